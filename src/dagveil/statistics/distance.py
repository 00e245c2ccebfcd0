"""How many records must change before a test of independence changes its mind (docs/proofs/distance.md)."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dagveil.privacy.relation import Relation

if TYPE_CHECKING:
    from dagveil.statistics.statistic import Statistic, Tables, TableShape

REACH: Final = 16
"""Records added or removed up to which the exact distance is searched; it is cut off there and stays Lipschitz."""


@dataclass(frozen=True, slots=True)
class ExactDistance:
    """How many records must come or go before the G test of a 2×2 table changes its mind; another statistic elsewhere.

    On an independent table the value is REACH − (distance − 1), on a dependent one REACH + distance, the distance cut
    off at REACH: one record moves it by at most 1 (docs/proofs/distance.md).

    Parameters
    ----------
    level
        Of the G test.
    otherwise
        The statistic for tables with more levels or strata.

    Examples
    --------
    >>> from dagveil.statistics.kendall import Kendall
    >>> ExactDistance(0.1, Kendall(100)).values(np.array([[[25, 25], [25, 25]]]))
    array(4)
    """

    level: float
    otherwise: Statistic

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return "exact-distance"

    @property
    def unit(self) -> float:
        """One record."""
        return 1.0

    @property
    def parts(self) -> int:
        """One part: the whole table."""
        return 1

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

    Examples
    --------
    >>> exact_distance(np.array([[25, 25], [25, 25]]), 2.706), exact_distance(np.array([[30, 20], [20, 30]]), 2.706)
    (13, -4)
    """
    sums = [*table.reshape(4).tolist(), *table.sum(axis=1).tolist(), *table.sum(axis=0).tolist(), int(table.sum())]
    steps, radii = _steps_around()
    possible = (np.array(sums) + steps >= 0).all(axis=1)
    # looked up, not computed in place: whether a table is dependent must not depend on where it stands in an array
    statistic = np.zeros(len(steps))
    for place, (start, sign) in enumerate(zip(sums, _SIGNS, strict=True)):
        products = np.array([_product(max(start + step, 0)) for step in range(-REACH, REACH + 1)])
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


def greedy_distance(tables: NDArray[np.int64], critical: float) -> int:
    """Return the published distance: records that a greedy walk removes until G² crosses its critical value.

    Positive if the table looks independent (G² at most critical), negative if not. It is **not** the distance: one
    record can change it by dozens.

    Parameters
    ----------
    tables
        Counts of shape (strata, levels of x, levels of y).
    critical
        Value of G² above which the test says "dependent".

    Examples
    --------
    >>> [greedy_distance(np.array([table]), 2.706) for table in ([[30, 20], [20, 30]], [[25, 25], [25, 25]])]
    [-4, 13]
    """
    statistic = _g_squared(tables)
    rising = statistic <= critical
    sign = -1.0 if rising else 1.0
    gain = _increments(_next_power(int(tables.sum(axis=(1, 2)).max(initial=0))), sign)
    strata = [_Stratum(table, gain) for table in tables.tolist()]
    # the best record of each stratum, best first
    heap = [(-stratum.merit, place) for place, stratum in enumerate(strata) if stratum.rows]
    heapq.heapify(heap)
    steps = 0
    while heap:
        merit, place = heap[0]
        stratum = strata[place]
        # while this stratum stays ahead of the others, the heap need not know
        others = min((entry[0] for entry in heap[1:3]), default=math.inf)
        while merit <= others:
            steps += 1
            statistic += 2.0 * sign * merit
            if (statistic > critical) == rising:
                return steps if rising else -steps
            stratum.remove_best()
            if not stratum.rows:
                break
            merit = -stratum.merit
        if stratum.rows:
            heapq.heapreplace(heap, (merit, place))
        else:
            heapq.heappop(heap)
    return steps if rising else -steps


class _Stratum:
    """A table that loses one record at a time, where that moves G² most in the direction of the sign.

    Taking a record from cell (i, j) changes G² by −2 (g(n) − g(x) − g(y) + g(m)), g being the increment of n ln n at
    the counts of the cell, its margins and the stratum. Only cells in the same row or column need a new look.
    """

    __slots__ = ("_affected", "_best", "_gain", "_gains", "_merits", "_n", "_x", "_y", "merit", "rows")

    def __init__(self, table: list[list[int]], gain: list[float]) -> None:
        """Take the table, and the increments with the sign of the direction."""
        self._n = [count for line in table for count in line]
        self._x = [sum(line) for line in table]
        self._y = [sum(column) for column in zip(*table, strict=True)]
        self._gain = gain
        self._affected = _neighbourhoods(len(table), len(table[0]))
        # increments of cells, of rows and of columns; an empty cell has no record to take
        self._gains = (
            [gain[count] if count else -math.inf for count in self._n],
            [gain[count] for count in self._x],
            [gain[count] for count in self._y],
        )
        self.rows = sum(self._x)
        cells, rows, columns = self._gains
        self._merits = [cells[k] - rows[i] - columns[j] for k, i, j, _ in self._affected]
        self._find_best()

    def remove_best(self) -> None:
        """Take away the record that `merit` stands for."""
        cell, i, j, touched = self._affected[self._best]
        cells, rows, columns = self._gains
        gain, merits = self._gain, self._merits
        self.rows -= 1
        self._n[cell] = count = self._n[cell] - 1
        cells[cell] = gain[count] if count else -math.inf
        self._x[i] = count = self._x[i] - 1
        rows[i] = gain[count]
        self._y[j] = count = self._y[j] - 1
        columns[j] = gain[count]
        for k, a, b in touched:
            merits[k] = cells[k] - rows[a] - columns[b]
        self._find_best()

    def _find_best(self) -> None:
        best = max(self._merits)
        self._best = self._merits.index(best)
        self.merit = best + self._gain[self.rows]


@lru_cache(maxsize=64)
def _neighbourhoods(height: int, width: int) -> list[tuple[int, int, int, list[tuple[int, int, int]]]]:
    """Return, for each cell, its row and column and the cells that share one of them."""
    cells = [(k, k // width, k % width) for k in range(height * width)]
    return [(k, i, j, [cell for cell in cells if cell[1] == i or cell[2] == j]) for k, i, j in cells]


def _g_squared(tables: NDArray[np.int64]) -> float:
    parts = ((1, tables), (-1, tables.sum(axis=1)), (-1, tables.sum(axis=2)), (1, tables.sum(axis=(1, 2))))
    return 2.0 * sum(sign * sum(map(_product, counts.reshape(-1).tolist())) for sign, counts in parts)


def _product(count: int) -> float:
    return count * math.log(count) if count else 0.0


def _next_power(count: int) -> int:
    return 1 << max(10, count.bit_length())


@lru_cache(maxsize=4)
def _increments(size: int, sign: float) -> list[float]:
    """Return n ln n − (n − 1) ln(n − 1), with a sign, for every n up to a size; 0 for n = 0."""
    counts = np.arange(size + 1, dtype=np.float64)
    products = counts * np.log(np.maximum(counts, 1.0))
    return [0.0, *(sign * np.diff(products)).tolist()]
