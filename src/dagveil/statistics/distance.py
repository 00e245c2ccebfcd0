"""How many records must change before a test of independence changes its mind (docs/proofs/distance.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dagveil.privacy.budget import Relation

if TYPE_CHECKING:
    from dagveil.statistics.statistic import Statistic, Tables, TableShape

REACH: Final = 16
"""Records added or removed up to which the exact distance is searched; it is cut off there and stays Lipschitz."""


@dataclass(frozen=True, slots=True)
class ExactDistance:
    """How many records must come or go before the G test of a 2×2 table changes its mind; another statistic elsewhere.

    On an independent table the value is REACH − (distance − 1), on a dependent one REACH + distance, the distance cut
    off at REACH: one record moves it by at most 1 (docs/proofs/distance.md).
    """

    level: float  # of the G test
    otherwise: Statistic  # the statistic for tables with more levels or strata
    name: ClassVar[str] = "exact-distance"
    parts: ClassVar[int] = 1

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return the value of one table, or of a batch."""
        tables = np.asarray(tables, dtype=np.int64)
        if tables.shape[-3:] != (1, 2, 2):
            return self.otherwise.values(tables)
        critical = float(chdtri(1, self.level))
        distances = [exact_distance(table, critical) for table in tables.reshape(-1, 2, 2)]
        values = [REACH - (distance - 1) if distance > 0 else REACH - distance for distance in distances]
        return np.array(values, dtype=np.int64).reshape(tables.shape[:-3])

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return 1, or 2 if a record is replaced: that is one removed and one added."""
        if tuple(shape) != (1, 2, 2):
            return self.otherwise.sensitivity(relation, shape)
        return 1 if relation is Relation.ADD_REMOVE else 2

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the value half-way between the closest independent and the closest dependent table."""
        if tuple(shape) != (1, 2, 2):
            return self.otherwise.critical_value(level, rows, shape, ties)
        return REACH + 0.5

    def refusal(self, relation: Relation) -> str | None:
        """Return the other statistic's refusal."""
        return self.otherwise.refusal(relation)


def exact_distance(table: NDArray[np.int64], critical: float) -> int:
    """Return how many records must be added or removed before G² crosses its critical value, at most REACH.

    Positive if the table looks independent (G² at most critical), negative if not.
    """
    sums = [*table.reshape(4).tolist(), *table.sum(axis=1).tolist(), *table.sum(axis=0).tolist(), int(table.sum())]
    steps, radii = _steps_around()
    possible = (np.array(sums) + steps >= 0).all(axis=1)
    # looked up, not computed in place: whether a table is dependent must not depend on where it stands in an array
    statistic = np.zeros(len(steps))
    for place, (start, sign) in enumerate(zip(sums, _SIGNS, strict=True)):
        products = np.array([n_log_n(max(start + step, 0)) for step in range(-REACH, REACH + 1)])
        statistic += sign * products[steps[:, place] + REACH]
    dependent = 2.0 * statistic > critical
    here = bool(dependent[0])
    crossed = np.flatnonzero(possible & (dependent != here))
    distance = int(radii[crossed[0]]) if crossed.size else REACH
    return -distance if here else distance


_SIGNS: Final = (1, 1, 1, 1, -1, -1, -1, -1, 1)
"""Of n ln n of the four cells, the two margins of x, the two of y, and the whole, in G²/2."""


@lru_cache(maxsize=1)
def _steps_around() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all ways to change a 2×2 table by at most REACH records, nearest first: changes of cells and sums."""
    span = np.arange(-REACH, REACH + 1)
    steps = np.stack(np.meshgrid(span, span, span, span, indexing="ij"), axis=-1).reshape(-1, 4)
    radii = np.abs(steps).sum(axis=1)
    order = np.argsort(radii, kind="stable")
    order = order[radii[order] <= REACH]
    a, b, c, d = steps[order].T
    return np.stack([a, b, c, d, a + b, c + d, a + c, b + d, a + b + c + d], axis=1), radii[order]


def n_log_n(count: int) -> float:
    """Return n ln n, and 0 for 0."""
    return count * math.log(count) if count else 0.0
