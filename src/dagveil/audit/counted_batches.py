"""Statistics of many tables of counts at once, where the statistic itself takes one: equal to it table by table."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dagveil.audit.search import Floats
from dagveil.audit.tables import Measure, Tables
from dagveil.curator.questions import RECORD
from dagveil.privacy.mechanisms.smooth_median import DECAY_BITS, _weights
from dagveil.privacy.relation import Relation
from dagveil.statistics.distance import _SIGNS, REACH, n_log_n
from dagveil.statistics.reconciled import Reconciled, part_p_values
from dagveil.statistics.statistic import Statistic, TableShape

Integers = NDArray[np.int64]


def batch_votes(statistic: Reconciled) -> Measure:
    """Return the twin of votes: tables come as (batch, parts, levels of x, levels of y)."""

    def measure(tables: Tables) -> Floats:
        p_values = part_p_values(tables.reshape(-1, 1, *tables.shape[2:]), statistic.test)
        votes = (p_values <= statistic.part_level).reshape(len(tables), statistic.parts).sum(axis=1)
        return np.asarray(votes[:, None], dtype=np.float64)

    return measure


def batch_scores(statistic: Statistic, relation: Relation, shape: TableShape) -> Measure:
    """Return the twin of a question session's scores, in grid steps."""
    sensitivity = statistic.sensitivity(relation, shape)
    return lambda tables: (statistic.values(tables) * RECORD // sensitivity)[:, None].astype(np.float64)


MOST_ROWS: Final = 31
"""Rows of the largest tables whose exact distance is looked up."""


def batch_distances(level: float) -> Measure:
    """Return the twin of the exact distance of 2×2 tables with at most MOST_ROWS rows: looked up."""
    known = tabulate_distances(level)

    def measure(tables: Tables) -> Floats:
        a, b, c, d = tables.reshape(-1, 4).T
        return known[a, b, c, d][:, None].astype(np.float64)

    return measure


@lru_cache(maxsize=2)
def tabulate_distances(level: float) -> NDArray[np.int8]:
    """Return the value of `ExactDistance` for every table with cells up to MOST_ROWS, by the four cells.

    All tables are judged once. Then those within 1, 2, … records of a table that is judged otherwise are marked, by
    shifting the marks along each axis. Ways beyond REACH do not count, so cells up to MOST_ROWS + REACH suffice.
    """
    size = MOST_ROWS + REACH + 1
    products = np.array([n_log_n(count) for count in range(4 * size)])
    a, b, c, d = np.ogrid[:size, :size, :size, :size]
    statistic = np.zeros((size,) * 4)
    # in the order of the statistic itself, so that sums round in the same way
    for counts, sign in zip((a, b, c, d, a + b, c + d, a + c, b + d, a + b + c + d), _SIGNS, strict=True):
        statistic += sign * products[counts]
    dependent = 2.0 * statistic > float(chdtri(1, level))
    values = np.empty(dependent.shape, dtype=np.int8)
    for side in (False, True):
        distance = np.full(dependent.shape, REACH, dtype=np.int8)
        reached = dependent != side
        distance[reached] = 0
        for radius in range(1, REACH):
            wider = _widen(reached)
            distance[wider & ~reached] = radius
            reached = wider
        # one value for tables that look dependent, another for those that do not
        mine = dependent == side
        values[mine] = (REACH + distance if side else REACH - (distance - 1))[mine]
    kept = slice(MOST_ROWS + 1)
    return np.ascontiguousarray(values[kept, kept, kept, kept])


def _widen(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark all tables that one record takes to a marked one."""
    wider = marks.copy()
    for axis in range(marks.ndim):
        target, source = np.moveaxis(wider, axis, 0), np.moveaxis(marks, axis, 0)
        target[1:] |= source[:-1]
        target[:-1] |= source[1:]
    return wider


def batch_smooth_sensitivity(lists: Integers, lower: int, upper: int, beta: float) -> Floats:
    """Return the smooth sensitivity of the median of each list, (batch,), in floating point.

    Examples
    --------
    >>> batch_smooth_sensitivity(np.array([[4, 5, 5, 5, 6]]), 0, 10, 0.5).round(4).tolist()
    [1.8394]
    """
    count = lists.shape[1]
    middle = (count - 1) // 2
    ordered = np.sort(np.clip(lists, lower, upper), axis=1)
    edge = np.ones((len(lists), 1), dtype=np.int64)
    starts = np.hstack([lower * edge, ordered[:, : middle + 1]])
    ends = np.hstack([ordered[:, middle:], upper * edge])
    widest = np.zeros((len(lists), count + 2), dtype=np.int64)
    for left in range(starts.shape[1]):
        for right in range(ends.shape[1]):
            gap = middle + right - (left - 1)
            np.maximum(widest[:, gap], ends[:, right] - starts[:, left], out=widest[:, gap])
    changes = np.maximum.accumulate(widest[:, 1:], axis=1)
    return np.asarray((_decays(beta, changes.shape[1]) * changes).max(axis=1))


@lru_cache(maxsize=64)
def _decays(beta: float, count: int) -> Floats:
    return np.array([weight / 2**DECAY_BITS for weight in _weights(Fraction(beta), count)])
