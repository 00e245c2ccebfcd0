"""The BGe score: the marginal likelihood of linear Gaussian graphs, the same for equivalent ones.

Geiger and Heckerman, 2002, with the correction of Kuipers, Moffa and Heckerman, Addendum on the scoring of Gaussian
directed acyclic graphical models, 2014. The prior's matrix is a multiple of the identity, so scale columns first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import EvidenceError
from dagveil.evidence.questions import Questions

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class BgeScore:
    """What parents add to the log marginal likelihood of a node.

    Parameters
    ----------
    columns
        Names.
    n_rows
        How many rows stand behind the moments.
    means, covariance
        Of the rows; the covariance divides by the number of rows.
    mean_weight
        Rows that the prior mean of 0 counts for (α_μ).
    freedom
        Degrees of freedom of the prior beyond the number of columns (α_w − d), above 1.

    Examples
    --------
    >>> score = BgeScore(("a", "b"), 100.0, np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> round(score.score(1, (0,)) - score.score(0, (1,)), 9), score.score(0, (1,)) > 0
    (0.0, True)
    """

    columns: tuple[str, ...]
    n_rows: float
    means: Floats
    covariance: Floats
    mean_weight: float = 1.0
    freedom: float = 2.0
    _posterior: Floats = field(init=False, repr=False)
    _prior: float = field(init=False, repr=False)
    _known: dict[tuple[int, tuple[int, ...]], float] = field(init=False, repr=False, default_factory=dict)

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

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        """Return what a node with these parents is worth, 0 without parents."""
        return self.log_marginal(node, parents) - self.log_marginal(node, ()) if parents else 0.0

    def log_marginal(self, node: int, parents: tuple[int, ...]) -> float:
        """Return the log marginal likelihood of a node given its parents."""
        key = (node, tuple(sorted(parents)))
        if key not in self._known:
            self._known[key] = self._log_marginal(*key)
        return self._known[key]

    def gains(self, questions: Questions) -> Floats:
        """Return what y adds as a parent of x beside `given`."""
        gains = []
        for x, y, given in zip(questions.x.tolist(), questions.y.tolist(), questions.given.tolist(), strict=True):
            gains.append(self.log_marginal(x, (y, *given)) - self.log_marginal(x, tuple(given)))
        return np.array(gains, dtype=np.float64)

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
    """Return the score of public rows, each column with mean 0 and variance 1; constants stay 0.

    Examples
    --------
    >>> bge_of_rows(("a", "b"), np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])).score(0, (1,)) > 0
    True
    """
    spreads = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / np.where(spreads > 0.0, spreads, 1.0)
    return BgeScore(columns, float(len(rows)), np.zeros(len(columns)), scaled.T @ scaled / len(rows))
