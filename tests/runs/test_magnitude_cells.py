"""Cells between powers of two: one for every number, thresholds that noise respects, and what counts say."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import GaussianFilter, PureFilter
from dagveil.privacy.release import NoisyCounts
from dagveil.runs.bounds import (
    EXPONENTS,
    FALSE_CELLS,
    FARTHEST_START,
    BoundsSettings,
    choose_accounting,
    find_threshold,
    part_line,
    read_counts,
)

TINY, HUGE = 2.0 ** EXPONENTS[0], 2.0 ** EXPONENTS[-1]
anything = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)


def count_cells(numbers: list[float], start: float = 0.0) -> np.ndarray:
    schema = Schema(dataset="demo", columns={"x": part_line(start)})
    return MemoryTable.from_source({"x": np.array(numbers)}, schema).counts(["x"])


def find_cell(number: float) -> int:
    """Find the cell of a number the slow way, by its binary exponent."""
    zero = len(EXPONENTS) + 1
    if math.isnan(number):
        return 2 * zero
    if number == 0 or abs(number) < TINY:
        return zero if number >= 0 else zero - 1
    if math.isinf(number):
        return 2 * zero - 1 if number > 0 else 0
    mantissa, exponent = math.frexp(abs(number))
    if number < 0:
        # a cell holds its lower edge: -1 lies above -1, but 1 does not lie below 1
        exponent -= mantissa == 0.5
        return max(zero - 1 - (exponent - EXPONENTS[0]), 0)
    return min(zero + exponent - EXPONENTS[0], 2 * zero - 1)


def find_slowly(counts: list[int], cuts: list[float], threshold: float) -> tuple[float, float] | None:
    """Walk over the cells one by one."""
    lowest = highest = None
    for cell, count in enumerate(counts):
        if count >= threshold:
            below = cuts[max(cell - 1, 0)]
            above = cuts[min(cell, len(cuts) - 1)]
            lowest = below if lowest is None else lowest
            highest = above
    return None if lowest is None or highest is None or lowest >= highest else (lowest, highest)


class TestCells:
    @pytest.mark.parametrize(
        ("number", "lower", "upper"),
        [
            (1e300, HUGE, math.inf),
            (math.inf, HUGE, math.inf),
            (HUGE, HUGE, math.inf),
            (-1e300, -math.inf, -HUGE),
            (-math.inf, -math.inf, -HUGE),
            (5e-324, 0.0, TINY),
            (-5e-324, -TINY, 0.0),
            (0.0, 0.0, TINY),
            (-0.0, 0.0, TINY),
            (1.0, 1.0, 2.0),
            (-1.0, -1.0, -0.5),
            (-1.5, -2.0, -1.0),
        ],
    )
    def test_extreme_values_have_a_cell(self, number: float, lower: float, upper: float) -> None:
        counts = count_cells([number])
        (cell,) = np.flatnonzero(counts)
        edges = (-math.inf, *part_line(0.0).cuts, math.inf)
        assert (edges[cell], edges[cell + 1]) == (lower, upper)

    def test_missing_values_have_a_cell_of_their_own(self) -> None:
        counts = count_cells([math.nan, math.nan])
        assert counts[-1] == counts.sum() == 2

    @given(st.lists(anything, max_size=20))
    def test_every_number_stands_where_its_exponent_says(self, numbers: list[float]) -> None:
        wanted = np.bincount([find_cell(number) for number in numbers], minlength=2 * len(EXPONENTS) + 3)
        assert count_cells(numbers).tolist() == wanted.tolist()

    @given(st.lists(anything, max_size=8), anything, anything, st.floats(-1e12, 1e12))
    def test_neighbours_move_one_cell(self, numbers: list[float], one: float, other: float, start: float) -> None:
        without, with_one = count_cells(numbers, start), count_cells([*numbers, one], start)
        assert sorted(with_one - without) == [0] * (len(without) - 1) + [1]
        replaced = count_cells([*numbers, other], start) - with_one
        assert np.abs(replaced).sum() in (0, 2)
        assert np.square(replaced).sum() in (0, 2)

    @given(st.floats(-FARTHEST_START, FARTHEST_START))
    def test_every_start_gives_increasing_cuts(self, start: float) -> None:
        cuts = part_line(start).cuts
        assert start in cuts
        assert all(left < right for left, right in itertools.pairwise(cuts))


class TestThreshold:
    @pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
    @pytest.mark.parametrize("epsilon", [0.05, 0.5, 3.0, 40.0])
    def test_laplace_tails(self, relation: str, epsilon: float) -> None:
        schema = Schema(dataset="demo", columns={name: part_line(0.0) for name in "abc"}, relation=relation)
        threshold = find_threshold(PureFilter(Budget.of(epsilon, 0)), schema)
        scale = 3 * (1 if relation == "add-remove" else 2) / epsilon
        ratio = math.exp(-1 / scale)
        share = FALSE_CELLS / sum(column.n_levels for column in schema.columns.values())

        def tail(first: int) -> float:
            """Sum the probabilities of noise from `first` on."""
            return sum((1 - ratio) / (1 + ratio) * ratio**k for k in range(first, first + math.ceil(60 * scale) + 60))

        rows = math.ceil(threshold)
        assert tail(rows) <= share * (1 + 1e-9)
        assert rows == 1 or tail(rows - 1) > share

    @pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
    def test_gaussian_tails(self, relation: str) -> None:
        schema = Schema(dataset="demo", columns={name: part_line(0.0) for name in "abc"}, relation=relation)
        accounting = GaussianFilter(Budget.of(0.5, 1e-6))
        threshold = find_threshold(accounting, schema)
        deviation = math.sqrt(3 * (1 if relation == "add-remove" else 2) / accounting.total)
        cells = sum(column.n_levels for column in schema.columns.values())
        assert norm.sf(threshold / deviation) * cells == pytest.approx(FALSE_CELLS)

    def test_the_better_accounting_is_chosen(self) -> None:
        for names in (("a",), tuple("abcdefghijklmnopqrst")):
            schema = Schema(dataset="demo", columns={name: part_line(0.0) for name in names})
            budget = Budget.of(0.5, 1e-6)
            chosen = choose_accounting(budget, schema, BoundsSettings())
            both = [find_threshold(kind(budget), schema) for kind in (PureFilter, GaussianFilter)]
            assert find_threshold(chosen, schema) == min(both)
            assert choose_accounting(Budget.of(0.5, 0), schema, BoundsSettings()).name == "pure accounting"


class TestReading:
    CUTS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)

    def read(self, counts: list[int], threshold: float = 10.0, coverage: float = 1.0) -> Any:
        released = NoisyCounts(("x",), (len(counts) + 1,), 1, Fraction(2), (*counts, 10_000))
        return read_counts(released, self.CUTS, 0.0, threshold, coverage)

    @given(st.lists(st.integers(-20, 60), min_size=8, max_size=8), st.sampled_from([0.5, 10.0, 30.0]))
    def test_the_same_bounds_as_a_walk_over_the_cells(self, counts: list[int], threshold: float) -> None:
        found = self.read(counts, threshold)
        wanted = find_slowly(counts, list(self.CUTS), threshold)
        assert (None if found is None else found.bounds) == wanted
        if found is not None:
            assert found.bounds[0] <= found.center <= found.bounds[1]
            assert found.spread is None or 0 < found.spread < found.bounds[1] - found.bounds[0]
            assert found.beyond == (max(counts[0], counts[-1]) >= threshold)

    def test_coverage_leaves_out_what_is_rare(self) -> None:
        counts = [0, 20, 300, 400, 300, 0, 980, 0]
        assert self.read(counts).bounds == (-4.0, 4.0)
        assert self.read(counts, coverage=0.99).bounds == (-4.0, 4.0)
        assert self.read(counts, coverage=0.97).bounds == (-2.0, 4.0)

    @given(st.lists(st.integers(0, 500), min_size=8, max_size=8), st.floats(0.51, 1.0))
    def test_coverage_is_kept(self, counts: list[int], coverage: float) -> None:
        counts[0] = counts[-1] = 0
        found = self.read(counts, 0.5, coverage)
        if sum(counts) == 0:
            assert found is None
            return
        held = sum(
            count
            for cell, count in enumerate(counts[1:-1])
            if found.bounds[0] <= self.CUTS[cell] and self.CUTS[cell + 1] <= found.bounds[1]
        )
        assert held >= coverage * sum(counts) - 1e-6

    def test_quantiles_by_hand(self) -> None:
        # quartiles -1.5, 0 and 1.5: the middles of two cells, and the edge between two
        found = self.read([0, 0, 200, 0, 0, 200, 0, 0])
        assert found.spread == pytest.approx(3.0 / 1.349, rel=0.01)
        # the cells say only that the quartiles are at most 2 apart
        assert self.read([0, 0, 0, 200, 200, 0, 0, 0]).spread is None
        assert self.read([0, 0, 0, 100, 300, 0, 0, 0]).center == pytest.approx(1 / 3, rel=0.01)

    @given(st.integers(1, 183), st.integers(1, 183))
    def test_a_cell_between_the_quartiles_fixes_their_distance(self, first: int, last: int) -> None:
        cuts = part_line(0.0).cuts
        if abs(first - last) < 2 or max(first, last) >= len(cuts):
            return
        first, last = min(first, last), max(first, last)
        closest, farthest = cuts[last - 1] - cuts[first], cuts[last] - cuts[first - 1]
        assert farthest <= 3.5 * closest
        counts = np.zeros(len(cuts) + 2, dtype=np.int64)
        counts[[first, last]] = 100
        released = NoisyCounts(("x",), counts.shape, 1, Fraction(2), tuple(counts.tolist()))
        spread = read_counts(released, cuts, 0.0, 10.0).spread
        assert closest * 0.99 <= spread * 1.349 <= farthest * 1.01

    def test_values_beyond_the_last_power(self) -> None:
        found = self.read([0, 0, 0, 100, 0, 0, 0, 20])
        assert found.beyond
        assert found.bounds == (-1.0, 4.0)
        assert self.read([0, 0, 0, 0, 0, 0, 0, 500]) is None
