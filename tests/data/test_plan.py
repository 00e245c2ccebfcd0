"""Moment plans: the cap holds for every row, and sums are exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.moments import (
    FEWEST_BITS,
    LARGEST_CAP,
    MomentPlan,
    choose_bits,
    enforce_cap,
    quantise_rows,
    sum_outer_products,
)
from dagveil.errors import DataError, SchemaError

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
WIDTH = 3


@st.composite
def plans(draw: st.DrawFn) -> MomentPlan:
    return MomentPlan(
        columns=("a", "b", "c"),
        centers=tuple(draw(st.floats(-1e6, 1e6)) for _ in range(WIDTH)),
        spreads=tuple(draw(st.floats(1e-6, 1e6)) for _ in range(WIDTH)),
        radius_squared=draw(st.one_of(st.floats(0, 500), st.sampled_from([0.1, 1 / 3, 2.0, 1e-30, 5e-324]))),
        constant=draw(st.floats(0, 20)),
        bits=draw(st.integers(0, 15)),
    )


def check_cap(quantised: np.ndarray, plan: MomentPlan) -> None:
    for row in quantised.tolist():
        assert sum(entry * entry for entry in row) <= plan.norm_squared_bound()
        assert row[0] == math.trunc(Fraction(plan.constant) * 2**plan.bits)


@given(plan=plans(), rows=st.lists(st.lists(ANY_FLOAT, min_size=WIDTH, max_size=WIDTH), max_size=8))
@settings(max_examples=300, deadline=None)
def test_the_cap_holds_for_every_row(plan: MomentPlan, rows: list[list[float]]) -> None:
    check_cap(quantise_rows(np.array(rows, dtype=float).reshape(-1, WIDTH), plan), plan)


def test_the_cap_holds_on_the_sphere() -> None:
    # rows of exactly the radius are where float rounding can push a vector over the cap
    rng = np.random.default_rng(3)
    for radius in (1.0, 2.0, 0.1, 7.3):
        for width in (1, 2, 5, 30):
            plan = MomentPlan(tuple(f"x{k}" for k in range(width)), (0.0,) * width, (1.0,) * width, radius, 1.0, 17)
            rows = rng.normal(size=(2000, width))
            rows *= (math.sqrt(radius) / np.linalg.norm(rows, axis=1))[:, None]
            rows[::2] *= 1e9
            check_cap(quantise_rows(rows, plan), plan)


def test_rows_that_float_rounding_leaves_over_the_cap() -> None:
    # The radius is just below 5, so (3, 4) is too long; yet multiples such as (9, 12) are scaled to exactly (3, 4).
    plan = MomentPlan(("x", "y"), (0.0, 0.0), (1.0, 1.0), radius_squared=math.nextafter(25, 0), constant=1.0, bits=0)
    assert plan.norm_squared_bound() == 25
    lengths = np.arange(1.0, 2000.0)
    quantised = quantise_rows(np.column_stack([3 * lengths, -4 * lengths]), plan)
    check_cap(quantised, plan)
    assert {tuple(row) for row in quantised[:, 1:].tolist()} <= {(2, -3), (2, -4), (3, -3)}


@given(st.lists(st.lists(st.integers(-(2**20), 2**20), min_size=4, max_size=4), min_size=1), st.integers(0, 2**40))
@settings(max_examples=200)
def test_vectors_over_the_cap_are_shrunk_and_others_left(rows: list[list[int]], cap: int) -> None:
    vectors = np.array(rows, dtype=float)
    before = vectors.copy()
    enforce_cap(vectors.T, cap)
    for old, new in zip(before.tolist(), vectors.tolist(), strict=True):
        assert sum(entry * entry for entry in new) <= cap
        assert all(abs(b) <= abs(a) and a * b >= 0 for a, b in zip(old, new, strict=True))
        if sum(entry * entry for entry in old) <= cap:
            assert new == old


@given(plan=plans(), rows=st.lists(st.lists(ANY_FLOAT, min_size=WIDTH, max_size=WIDTH), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_row_is_quantised_by_itself(plan: MomentPlan, rows: list[list[float]]) -> None:
    values = np.array(rows, dtype=float)
    together = quantise_rows(values, plan)
    for position in range(len(rows)):
        assert quantise_rows(values[position : position + 1], plan)[0].tolist() == together[position].tolist()


@given(plan=plans(), row=st.lists(st.floats(-1e7, 1e7), min_size=WIDTH, max_size=WIDTH))
@settings(max_examples=200, deadline=None)
def test_quantised_rows_are_close_to_the_exact_ones(plan: MomentPlan, row: list[float]) -> None:
    parts = zip(row, plan.centers, plan.spreads, strict=True)
    exact = [(Fraction(x) - Fraction(center)) / Fraction(spread) for x, center, spread in parts]
    norm = sum(entry * entry for entry in exact)
    radius = Fraction(plan.radius_squared)
    shrink = math.sqrt(radius / norm) if norm > radius else 1.0
    found = quantise_rows(np.array([row]), plan)[0, 1:].tolist()
    for entry, wanted in zip(found, exact, strict=True):
        target = float(wanted) * shrink * 2**plan.bits
        assert abs(entry - target) <= 1 + 1e-6 * (1 + abs(target))


def test_sums_are_exact_where_floats_would_round() -> None:
    plan = MomentPlan(("x", "y"), (0.0, 0.0), (1.0, 1.0), radius_squared=2.0**10, constant=1.0, bits=14)
    rng = np.random.default_rng(1)
    columns = [rng.normal(scale=20, size=70_000) for _ in range(2)]
    answer = sum_outer_products(columns, plan, n_rows=70_000)
    rows = quantise_rows(np.column_stack(columns), plan)
    wanted = [
        [sum(a * b for a, b in zip(rows[:, i].tolist(), rows[:, j].tolist(), strict=True)) for j in range(3)]
        for i in range(3)
    ]
    assert answer.tolist() == wanted
    assert max(wanted[1]) * 64 > 2**53


def test_a_plan_without_columns_counts_rows() -> None:
    plan = MomentPlan((), (), (), radius_squared=1.0, constant=1.0, bits=2)
    assert sum_outer_products([], plan, n_rows=5).tolist() == [[80]]


def test_more_rows_than_fit_are_refused() -> None:
    plan = MomentPlan((), (), (), radius_squared=0.0, constant=2.0**20, bits=0)
    assert plan.norm_squared_bound() == LARGEST_CAP
    assert plan.max_rows() * plan.norm_squared_bound() < 2**62
    with pytest.raises(DataError, match=f"at most {plan.max_rows()} rows"):
        sum_outer_products([], plan, n_rows=plan.max_rows() + 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"centers": ()}, "1 columns, 0 centers"),
        ({"columns": ("x", "x"), "centers": (0.0, 0.0), "spreads": (1.0, 1.0)}, "twice"),
        ({"centers": (math.nan,)}, "center"),
        ({"spreads": (0.0,)}, "spread"),
        ({"spreads": (math.inf,)}, "spread"),
        ({"radius_squared": math.nan}, "radius_squared"),
        ({"radius_squared": -1.0}, "radius_squared"),
        ({"constant": math.inf}, "constant"),
        ({"bits": 41}, "41 bits"),
        ({"bits": -1}, "-1 bits"),
        ({"bits": 30}, "fewer bits than 30"),
    ],
)
def test_bad_plans_are_refused(change: dict[str, object], words: str) -> None:
    good = {"columns": ("x",), "centers": (0.0,), "spreads": (1.0,), "radius_squared": 1.0, "constant": 1.0, "bits": 8}
    with pytest.raises(SchemaError, match=words):
        MomentPlan(**(good | change))  # type: ignore[arg-type]


def test_no_release_makes_the_number_of_rows_a_free_question() -> None:
    """A table beyond `max_rows` is refused without a charge, so no release may bring that number within reach."""
    MomentPlan(("x",), (0.0,), (1.0,), 2.0**33, 1.0, 0).check_reach()
    with pytest.raises(SchemaError, match="tells nothing about the rows"):
        MomentPlan(("x",), (0.0,), (1.0,), 2.0**35, 1.0, 0).check_reach()


@pytest.mark.parametrize(("rows", "bits"), [(10**6, 10), (10**9, 9), (10**10, 7), (10**12, 4), (10**14, FEWEST_BITS)])
def test_bits_make_room_for_four_times_the_expected_rows(rows: int, bits: int) -> None:
    radius = 2272.7 if rows == 10**9 else 6000.0
    constant = math.sqrt(radius / 10)
    assert choose_bits(radius, constant, rows, most=10) == bits

    def most_rows(bits: int) -> int:
        return MomentPlan(("x",), (0.0,), (1.0,), radius, constant, bits).max_rows()

    if bits > FEWEST_BITS:
        assert most_rows(bits) >= 4 * rows
    if bits < 10:
        assert most_rows(bits + 1) < 4 * rows


@given(radius=st.floats(1e-3, 1e6), constant=st.floats(0, 300), rows=st.integers(0, 10**15), most=st.integers(4, 12))
@settings(max_examples=200, deadline=None)
def test_chosen_bits_are_the_most_that_leave_room(radius: float, constant: float, rows: int, most: int) -> None:
    bits = choose_bits(radius, constant, rows, most)

    def has_room(bits: int) -> bool:
        # in plain integers: constant² + radius, each rounded down, times the rows
        bound = math.floor(Fraction(constant) * 2**bits) ** 2 + math.floor(Fraction(radius) * 4**bits)
        return (2**62 - 1) // max(bound, 1) >= max(4 * rows, 2**28)

    assert bits == max(
        [candidate for candidate in range(FEWEST_BITS, most + 1) if has_room(candidate)] or [FEWEST_BITS]
    )


@pytest.mark.parametrize("bits", [FEWEST_BITS, 7, 10])
def test_the_most_rows_of_the_worst_kind_do_not_overflow(bits: int) -> None:
    """As many rows on the ball as a plan allows, all alike, against Python's integers."""
    width = 1000
    radius = 6.0 * width
    names = tuple(f"x{k}" for k in range(width))
    plan = MomentPlan(names, (0.0,) * width, (1.0,) * width, radius, math.sqrt(radius / 10), bits)
    # all of a row in one column makes the largest entry
    rows = np.zeros((1, width))
    rows[0, 3] = -1e9
    column = sum_outer_products(list(rows.T), plan, n_rows=1)
    slow = [int(entry) for entry in quantise_rows(rows, plan)[0]]
    assert column[4, 4] == slow[4] ** 2 > 0.99 * plan.integer_radius_squared
    whole = int(abs(column).max()) * plan.max_rows()
    assert whole < 2**63
    with np.errstate(over="raise"):
        assert int((column * np.int64(plan.max_rows()))[4, 4]) == slow[4] ** 2 * plan.max_rows()
    assert int((column * np.int64(plan.max_rows()))[0, 4]) == slow[0] * slow[4] * plan.max_rows()
