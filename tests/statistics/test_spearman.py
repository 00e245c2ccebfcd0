"""Spearman's statistic against triples of rows and against scipy."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import spearmanr

from dagveil.privacy.budget import Relation
from dagveil.statistics.spearman import GRID, MOST_SHORT_ROWS, Spearman, sum_rank_products
from dagveil.statistics.statistic import TableShape

small_tables = hnp.arrays(
    np.int64, st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 3)), elements=st.integers(0, 2)
)


def slow_rank_products(stratum: np.ndarray) -> int:
    """Sum sgn(x_i − x_j) sgn(y_i − y_k) over all triples of rows."""
    rows = [cell for cell in np.ndindex(*stratum.shape) for _ in range(stratum[cell])]
    return sum(
        int(np.sign(one[0] - other[0]) * np.sign(one[1] - third[1])) for one, other, third in product(rows, repeat=3)
    )


@settings(max_examples=60, deadline=None)
@given(table=small_tables)
def test_values_are_what_triples_of_rows_say(table: np.ndarray) -> None:
    counted = [slow_rank_products(stratum) for stratum in table]
    assert sum_rank_products(table).tolist() == counted
    sizes = [max(int(stratum.sum()), 1) for stratum in table]
    steps = [math.trunc(Fraction(3 * GRID * q, m * (m + 1))) for q, m in zip(counted, sizes, strict=True)]
    assert int(Spearman(100).values(table)) == abs(sum(steps))


def test_it_agrees_with_scipy_without_ties() -> None:
    order = np.random.default_rng(1).permutation(60)
    table = np.zeros((1, 60, 60), dtype=np.int64)
    table[0, np.arange(60), order] = 1
    rho = spearmanr(np.arange(60), order).statistic
    assert int(sum_rank_products(table)[0]) == round(rho * 60 * (60**2 - 1) / 3)
    assert int(Spearman(60).values(table)) / GRID == pytest.approx(59 * abs(rho), abs=1 / GRID)


@pytest.mark.parametrize("rows", [MOST_SHORT_ROWS, MOST_SHORT_ROWS + 2, 10**9])
def test_long_and_short_arithmetic_are_exact(rows: int) -> None:
    half = rows // 2
    tables = np.array([[np.diag([half, 0, half]), np.diag([3, 2, 1])], [np.diag([3, 0, half])] * 2])
    slow = []
    for table in tables.astype(object):
        total = 0
        for stratum, q in zip(table, sum_rank_products(table), strict=True):
            m = int(stratum.sum())
            total += math.trunc(Fraction(3 * GRID * int(q), m * (m + 1)))
        slow.append(abs(total))
    assert Spearman(rows).values(tables).tolist() == slow
    assert Spearman(rows).values(tables).dtype == np.int64


def test_two_levels_on_one_side_take_the_short_cut() -> None:
    tables = np.random.default_rng(2).integers(0, 50, (200, 1, 2, 4))
    padded = np.concatenate([tables, np.zeros((200, 1, 1, 4), dtype=np.int64)], axis=2)  # an empty third level
    np.testing.assert_array_equal(Spearman(100).values(tables), Spearman(100).values(padded))


@pytest.mark.parametrize(
    ("relation", "shape", "constant"),
    [
        (Relation.ADD_REMOVE, TableShape(4, 2, 9), 3),
        (Relation.ADD_REMOVE, TableShape(4, 3, 3), 5),
        (Relation.REPLACE_ONE, TableShape(1, 2, 2), 3),
        (Relation.REPLACE_ONE, TableShape(1, 2, 3), 6),
        (Relation.REPLACE_ONE, TableShape(1, 5, 5), 6),
        (Relation.REPLACE_ONE, TableShape(2, 2, 2), 6),
        (Relation.REPLACE_ONE, TableShape(2, 3, 3), 10),
    ],
)
def test_the_constants_of_the_proof(relation: Relation, shape: TableShape, constant: int) -> None:
    statistic = Spearman(10_000)
    assert statistic.sensitivity(relation, shape) == constant * GRID


def test_many_levels_come_close_to_the_limit() -> None:
    """All rows on the falling diagonal, the new one beyond it: exactly (5m − 2)/(m + 2) for m rows."""
    m = 200
    core = np.zeros((1, m + 1, m + 1), dtype=np.int64)
    core[0, np.arange(m), np.arange(m - 1, -1, -1)] = 1
    more = core.copy()
    more[0, -1, -1] = 1
    statistic = Spearman(m)
    change = abs(int(statistic.values(more)) - int(statistic.values(core)))
    assert change / GRID == pytest.approx((5 * m - 2) / (m + 2), abs=2 / GRID)
    assert change <= statistic.sensitivity(Relation.ADD_REMOVE, TableShape(1, m + 1, m + 1))
