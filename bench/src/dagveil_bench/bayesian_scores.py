"""Bayesian scores of a column and its parents from public rows: BDeu for levels, BGe for numbers."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import EvidenceError
from dagveil.evidence.questions import Questions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Score(ABC):
    """What parents add to the log marginal likelihood of a node, which is computed once."""

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        """Return what a node with these parents is worth, 0 without parents."""
        return self.log_marginal(node, parents) - self.log_marginal(node, ()) if parents else 0.0

    def gains(self, questions: Questions) -> Floats:
        """Return what y adds as a parent of x beside `given`."""
        gains = []
        for x, y, given in zip(questions.x.tolist(), questions.y.tolist(), questions.given.tolist(), strict=True):
            gains.append(self.log_marginal(x, (y, *given)) - self.log_marginal(x, tuple(given)))
        return np.array(gains, dtype=np.float64)

    def log_marginal(self, node: int, parents: tuple[int, ...]) -> float:
        """Return the log marginal likelihood of a node given its parents."""
        key = (node, tuple(sorted(parents)))
        if key not in self._known:
            self._known[key] = self._log_marginal(*key)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[int, ...]], float]:
        return {}

    @abstractmethod
    def _log_marginal(self, node: int, parents: tuple[int, ...]) -> float: ...


@dataclass(frozen=True, eq=False)
class BdeuScore(_Score):
    """What parents add to the log marginal likelihood of a node.

    Codes are distinct records, in the shape (records, columns), and counts how often each came; the prior counts for
    `sample_size` rows.
    """

    columns: tuple[str, ...]
    levels: tuple[int, ...]
    codes: Integers
    counts: Floats
    sample_size: float = 1.0

    def _log_marginal(self, node: int, parents: tuple[int, ...]) -> float:
        cases = math.prod(self.levels[parent] for parent in parents)
        values = self.levels[node]
        # only cases of the parents that came matter: the prior cancels in the others
        keys = np.zeros(len(self.codes), dtype=np.int64)
        for parent in parents:
            keys = keys * self.levels[parent] + self.codes[:, parent]
        seen, places = np.unique(keys, return_inverse=True)
        cells = places.reshape(-1) * values + self.codes[:, node]
        table = np.bincount(cells, weights=self.counts, minlength=len(seen) * values).reshape(len(seen), values)
        per_case = self.sample_size / cases
        per_cell = per_case / values
        totals = special.gammaln(per_case) - special.gammaln(per_case + table.sum(axis=1))
        inner = special.gammaln(per_cell + table) - special.gammaln(per_cell)
        return float(totals.sum() + inner.sum())


@dataclass(frozen=True, eq=False)
class BgeScore(_Score):
    """What parents add to the log marginal likelihood of a node.

    The covariance divides by the number of rows. The prior mean of 0 counts for `mean_weight` rows (α_μ); `freedom` is
    the prior's degrees of freedom beyond the number of columns (α_w − d), above 1.
    """

    columns: tuple[str, ...]
    n_rows: float
    means: Floats
    covariance: Floats
    mean_weight: float = 1.0
    freedom: float = 2.0
    _posterior: Floats = field(init=False, repr=False)
    _prior: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        d = len(self.columns)
        if self.covariance.shape != (d, d) or self.means.shape != (d,):
            raise EvidenceError(f"{d} columns need {d} means and a covariance of shape ({d}, {d})")
        if not self.freedom > 1.0 or not self.mean_weight > 0.0:
            raise EvidenceError("the prior of the BGe score needs freedom above 1 and a positive mean_weight")
        prior = self.mean_weight * (self.freedom - 1.0) / (self.mean_weight + 1.0)
        pull = self.n_rows * self.mean_weight / (self.n_rows + self.mean_weight)
        posterior = prior * np.eye(d) + self.n_rows * self.covariance + pull * np.outer(self.means, self.means)
        object.__setattr__(self, "_prior", prior)
        object.__setattr__(self, "_posterior", posterior)

    def _log_marginal(self, node: int, parents: tuple[int, ...]) -> float:
        size = len(parents) + 1
        before, after = self.freedom + size, self.n_rows + self.freedom + size
        return (
            -0.5 * self.n_rows * math.log(math.pi)
            + 0.5 * math.log(self.mean_weight / (self.n_rows + self.mean_weight))
            + math.lgamma(0.5 * after)
            - math.lgamma(0.5 * before)
            + 0.5 * (self.freedom + 2 * size - 1) * math.log(self._prior)
            + 0.5 * (after - 1.0) * self._log_determinant(parents)
            - 0.5 * after * self._log_determinant((*parents, node))
        )

    def _log_determinant(self, nodes: tuple[int, ...]) -> float:
        return float(np.linalg.slogdet(self._posterior[np.ix_(nodes, nodes)])[1]) if nodes else 0.0


def bge_of_rows(columns: tuple[str, ...], rows: Floats) -> BgeScore:
    """Return the score of public rows, each column with mean 0 and variance 1; constants stay 0."""
    spreads = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spreads > 0.0, spreads, 1.0)
    return BgeScore(columns, float(len(rows)), np.zeros(len(columns)), scaled.T @ scaled / len(rows))
