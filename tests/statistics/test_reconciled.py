"""Tests on parts of the rows: against scipy, for their level, and for what one record can change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import binom, chi2, chi2_contingency

from dagveil.errors import EvidenceError
from dagveil.privacy.budget import Relation
from dagveil.statistics.reconciled import (
    GRID,
    VOTE_SENSITIVITY,
    PartTest,
    Reconciled,
    part_p_values,
    part_statistics,
    votes,
)
from dagveil.statistics.statistic import TableShape

Record = tuple[int, int, int]
"""Stratum, level of x, level of y."""


def slow_p_value(tables: NDArray[np.int64], test: PartTest) -> float:
    """One part, stratum by stratum, with scipy's own tests on the rows and columns that are not empty."""
    statistic, freedom = 0.0, 0
    for table in tables:
        kept = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        if min(kept.shape) < 2:
            continue
        power = "log-likelihood" if test is PartTest.G else "pearson"
        found = chi2_contingency(kept, correction=False, lambda_=power)
        statistic, freedom = statistic + found.statistic, freedom + found.dof
    return float(chi2.sf(statistic, freedom)) if freedom else 1.0


SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))


@settings(deadline=None, max_examples=120)
@given(SHAPES.flatmap(lambda shape: arrays(np.int64, shape, elements=st.integers(0, 3) | st.integers(0, 10**6))))
def test_each_part_runs_the_ordinary_test(tables: NDArray[np.int64]) -> None:
    for test in PartTest:
        slow = [slow_p_value(part, test) for part in tables]
        np.testing.assert_allclose(part_p_values(tables, test), slow, rtol=1e-6, atol=1e-9)
        steps = part_statistics(tables, test)
        assert steps.dtype == np.int64
        assert (steps >= 0).all()
        assert (steps <= GRID).all()
        np.testing.assert_allclose(steps / GRID, slow, atol=0.51 / GRID)
        clear = [p for p in slow if abs(p - 0.05) > 1e-6]
        assert sum(p <= 0.05 for p in clear) <= votes(tables, test, 0.05) <= len(slow) - sum(p > 0.05 for p in clear)


def draw(rng: np.random.Generator, parts: int, rows: int, cells: NDArray[np.float64]) -> NDArray[np.int64]:
    return rng.multinomial(rows, cells.ravel(), size=parts).reshape(parts, *cells.shape)


def independent_cells(rng: np.random.Generator, strata: int, x_levels: int, y_levels: int) -> NDArray[np.float64]:
    sizes = ((strata, 1), (x_levels, strata), (y_levels, strata))
    z, x, y = (rng.dirichlet([8.0] * levels, size=count) for levels, count in sizes)
    cells: NDArray[np.float64] = z[0][:, None, None] * x[:, :, None] * y[:, None, :]
    return cells


@pytest.mark.parametrize(("strata", "x_levels", "y_levels", "rows"), [(1, 2, 2, 300), (4, 2, 2, 600), (3, 3, 3, 2000)])
@pytest.mark.parametrize("test", PartTest)
def test_each_part_keeps_its_level(test: PartTest, strata: int, x_levels: int, y_levels: int, rows: int) -> None:
    rng = np.random.default_rng(20)
    tables = np.concatenate(
        [draw(rng, 500, rows, independent_cells(rng, strata, x_levels, y_levels)) for _ in range(20)]
    )
    for level in (0.01, 0.05, 0.5):
        share = votes(tables, test, level) / len(tables)
        assert 0.7 * level < share < 1.4 * level
    # and a test with another level would be told apart
    assert votes(tables, test, 0.1) / len(tables) > 1.4 * 0.05


def test_sparse_parts_are_for_the_chi_square_test() -> None:
    """With about three records per cell the G test is liberal; docs/proofs/votes.md says so."""
    rng = np.random.default_rng(21)
    tables = np.concatenate([draw(rng, 500, 100, independent_cells(rng, 4, 3, 3)) for _ in range(10)])
    assert votes(tables, PartTest.CHI_SQUARE, 0.05) / len(tables) < 0.07
    assert votes(tables, PartTest.G, 0.05) / len(tables) > 0.1


@pytest.mark.parametrize("test", PartTest)
def test_dependence_is_seen(test: PartTest) -> None:
    rng = np.random.default_rng(22)
    cells = np.array([[[0.4, 0.1], [0.1, 0.4]]])
    assert votes(draw(rng, 50, 200, cells), test, 0.01) == 50


def test_a_part_that_cannot_tell_does_not_vote() -> None:
    silent = np.array([[[[0, 0], [0, 0]]], [[[9, 0], [0, 0]]], [[[4, 5], [0, 0]]], [[[0, 7], [0, 9]]]])
    for test in PartTest:
        assert part_statistics(silent, test).tolist() == [GRID] * 4
        assert votes(silent, test, 0.99) == 0


# --- what one record can change ----------------------------------------------------------------------------------

SHAPE = (2, 2, 2)
RECORDS: list[Record] = list(product(*(range(levels) for levels in SHAPE)))
LEVEL = 0.2


def tables_of(rows: Sequence[Record], places: Sequence[int], parts: int) -> NDArray[np.int64]:
    tables = np.zeros((parts, *SHAPE), dtype=np.int64)
    for record, part in zip(rows, places, strict=True):
        tables[(part, *record)] += 1
    return tables


def test_one_replaced_record_changes_one_part_and_one_vote() -> None:
    """Every record of every place of many tables, replaced by every other, in parts fixed by position."""
    rng = np.random.default_rng(5)
    parts, n_rows = 3, 12
    places = [row % parts for row in range(n_rows)]
    largest = dict.fromkeys(PartTest, 0)
    for _ in range(60):
        rows = [RECORDS[k] for k in rng.integers(0, len(RECORDS) // rng.choice([1, 2]), n_rows)]
        here = tables_of(rows, places, parts)
        for row, record in product(range(n_rows), RECORDS):
            there = tables_of([*rows[:row], record, *rows[row + 1 :]], places, parts)
            for test in PartTest:
                assert np.count_nonzero(part_statistics(here, test) - part_statistics(there, test)) <= 1
                change = abs(votes(here, test, LEVEL) - votes(there, test, LEVEL))
                largest[test] = max(largest[test], change)
    assert largest == dict.fromkeys(PartTest, VOTE_SENSITIVITY)


def largest_change_if_a_row_goes(deal: Callable[[int], Sequence[int]], rows: Sequence[Record], parts: int) -> int:
    """Largest change of the votes if one row is removed and the other rows are dealt anew by the rule."""
    before = votes(tables_of(rows, deal(len(rows)), parts), PartTest.CHI_SQUARE, LEVEL)
    return max(
        abs(before - votes(tables_of(left, deal(len(left)), parts), PartTest.CHI_SQUARE, LEVEL))
        for left in ([*rows[:gone], *rows[gone + 1 :]] for gone in range(len(rows)))
    )


def test_parts_by_row_number_are_wrong_if_records_come_and_go() -> None:
    parts, one, other = 4, RECORDS[0], RECORDS[3]
    # every part holds two of each, so it votes; without the middle row the second half moves on by one part
    rows = [one, other, one, other] * 2 + [other, one, other, one] * 2
    assert largest_change_if_a_row_goes(lambda n: [row % parts for row in range(n)], rows, parts) == parts


def output_law(rows: Sequence[Record], parts: int, epsilon: float) -> NDArray[np.float64]:
    """Exact law of votes plus discrete Laplace noise, each record having drawn its part by itself."""
    outputs = np.arange(-60, 61)
    law = np.zeros(len(outputs))
    for places in product(range(parts), repeat=len(rows)):
        count = votes(tables_of(rows, places, parts), PartTest.CHI_SQUARE, LEVEL)
        law += np.exp(-epsilon * np.abs(outputs - count))
    whole = law * math.tanh(epsilon / 2) / parts ** len(rows)
    return np.asarray(whole)


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_parts_drawn_record_by_record_keep_the_promise_if_records_come_and_go(epsilon: float) -> None:
    parts, most = 2, 5
    kinds = [RECORDS[0], RECORDS[1], RECORDS[3]]
    laws = {
        tuple(sorted(rows)): output_law(rows, parts, epsilon)
        for n_rows in range(2, most + 1)
        for rows in combinations_with_replacement(kinds, n_rows)
    }
    losses = [
        float(np.abs(np.log(laws[rows] / laws[tuple(sorted((*rows, record)))])).max())
        for rows in laws
        for record in kinds
        if len(rows) < most
    ]
    assert epsilon / 4 < max(losses) <= epsilon * (1 + 1e-9)


def test_a_part_is_a_function_of_its_own_rows_only() -> None:
    rng = np.random.default_rng(6)
    tables = rng.integers(0, 40, (37, 3, 3, 4))
    for test in PartTest:
        together = part_p_values(tables, test)
        # to the last bit, wherever a part stands and whatever stands beside it
        np.testing.assert_array_equal(together[::-1], part_p_values(tables[::-1].copy(), test))
        np.testing.assert_array_equal(together, [part_p_values(part[None], test)[0] for part in tables])


# --- votes as one statistic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 10, 40, 333])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.5])
def test_the_critical_number_of_votes_is_binomial(parts: int, level: float) -> None:
    statistic = Reconciled(PartTest.G, parts)
    critical = statistic.critical_value(level, 1000, TableShape(1, 2, 2))
    assert binom.sf(critical, parts, statistic.part_level) <= level * (1 + 1e-9)
    assert critical < 1 or binom.sf(critical - 1, parts, statistic.part_level) > level * (1 + 1e-9)


def test_votes_as_one_statistic() -> None:
    statistic = Reconciled(PartTest.CHI_SQUARE, 2, 0.01)
    assert statistic.name == "reconciled-chi-square"
    for relation in Relation:
        assert statistic.sensitivity(relation, TableShape(4, 2, 3)) == VOTE_SENSITIVITY
        assert statistic.refusal(relation) is None
    tables = np.array([[[[30, 10], [10, 30]]], [[[20, 20], [20, 20]]]])
    assert statistic.values(tables) == 1
    with pytest.raises(EvidenceError, match="2 parts"):
        statistic.values(tables[:1])


@pytest.mark.parametrize(
    "build",
    [
        lambda: Reconciled(PartTest.G, 0),
        lambda: Reconciled(PartTest.G, 3, 1.0),
        lambda: votes(np.zeros((1, 1, 2, 2), dtype=np.int64), PartTest.G, 0.0),
        lambda: part_statistics(np.zeros((1, 2, 2), dtype=np.int64), PartTest.G),
        lambda: part_statistics(np.zeros((0, 1, 2, 2), dtype=np.int64), PartTest.G),
    ],
)
def test_impossible_questions_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(EvidenceError):
        build()
