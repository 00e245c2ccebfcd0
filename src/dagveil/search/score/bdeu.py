"""The BDeu score: the marginal likelihood of categorical graphs under uniform Dirichlet priors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.questions import Questions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BdeuScore:
    """What parents add to the log marginal likelihood of a node.

    Parameters
    ----------
    columns
        Names.
    levels
        Levels of each column.
    codes
        Distinct records, in the shape (records, columns).
    counts
        How often each came.
    sample_size
        Rows that the prior counts for.

    Examples
    --------
    >>> score = BdeuScore(("a", "b"), (2, 2), np.array([[0, 0], [1, 1]]), np.array([50.0, 50.0]))
    >>> score.score(0, (1,)) > 0, round(score.score(0, (1,)) - score.score(1, (0,)), 9)
    (True, 0.0)
    """

    columns: tuple[str, ...]
    levels: tuple[int, ...]
    codes: Integers
    counts: Floats
    sample_size: float = 1.0
    _known: dict[tuple[int, tuple[int, ...]], float] = field(init=False, repr=False, default_factory=dict)

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
