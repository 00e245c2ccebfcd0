"""How much noise the curator adds, and what it charges for it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from spies import open_curator

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import Filter, GaussianFilter, ZcdpFilter
from dagveil.privacy.mechanisms.gaussian import FINE_DEVIATION, deviation_for, lattice_for
from dagveil.statistics.contingency import counts_squared_sensitivity
from dagveil.statistics.moments import moments_squared_sensitivity

LEVELS = 40
COLUMNS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def wide_table(make_schema: Callable[..., Schema]) -> MemoryTable:
    rng = np.random.default_rng(2)
    codes = {name: rng.integers(0, LEVELS, 500) for name in COLUMNS}
    return MemoryTable.from_codes(codes, make_schema(dict.fromkeys(COLUMNS, LEVELS)))


@pytest.fixture(scope="module")
def number_table() -> MemoryTable:
    names = [f"x{k}" for k in range(120)]
    schema = Schema(dataset="numbers", columns={name: Numeric(bounds=(-9, 9)) for name in names}, reviewed=True)
    rows = np.random.default_rng(4).standard_normal((50, len(names)))
    return MemoryTable.from_source(dict(zip(names, rows.T, strict=True)), schema)


def has_variance(noise: np.ndarray, variance: float) -> bool:
    """Chi-square test that centred noise has this variance, two-sided at 0.1 %."""
    statistic = float((noise**2).sum()) / variance
    lower, upper = stats.chi2.ppf([0.0005, 0.9995], len(noise))
    return bool(lower < statistic < upper)


def assert_declared(noise: np.ndarray, variance: float) -> None:
    """The noise has the declared variance, and the test would notice a deviation of ±10 % from it."""
    assert has_variance(noise, variance)
    assert not has_variance(noise, variance * 1.1**2)
    assert not has_variance(noise, variance * 0.9**2)
    assert abs(noise.mean()) < 4.0 * (variance / len(noise)) ** 0.5


@pytest.mark.parametrize("kind", [GaussianFilter, ZcdpFilter])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_tables_carry_the_declared_noise(wide_table: MemoryTable, kind: type, epsilon: float) -> None:
    accounting = kind(Budget.of(epsilon, 1e-6))
    pairs = [(a, b) for k, a in enumerate(COLUMNS) for b in COLUMNS[k + 1 :]]
    released = open_curator(wide_table, accounting).count_tables(pairs, Fraction(1, 3), "pairs")
    exact = [wide_table.counts(pair) for pair in pairs]
    noise = np.concatenate([(table.counts - truth).reshape(-1) for table, truth in zip(released, exact, strict=True)])
    assert_declared(noise, released[0].count_variance)
    # and the declared variance is the one that the accounting asks for, up to rounding
    price = 2 if kind is ZcdpFilter else 1
    wanted = len(pairs) / float(accounting.total * Fraction(1, 3)) / price
    assert wanted <= released[0].count_variance * (1 + 1e-12)
    assert released[0].count_variance < wanted * 1.003


def test_moments_carry_the_declared_noise(number_table: MemoryTable) -> None:
    names = tuple(number_table.schema.columns)
    plan = MomentPlan(names, (0.0,) * len(names), (1.0,) * len(names), 90.0, 3.0, 8)
    off, diagonal = [], []
    for seed in range(40):  # from 0 on: no seed is picked
        accounting = GaussianFilter(Budget.of(1, 1e-6))
        released = open_curator(number_table, accounting, seed=seed).outer_products(plan, Fraction(1), "moments")
        noise = released.matrix * 4.0**plan.bits - number_table.outer_products(plan)
        off.append(noise[np.triu_indices_from(noise, 1)])
        diagonal.append(np.diag(noise))
    assert_declared(np.concatenate(off), float(released.variance))
    assert_declared(np.concatenate(diagonal), float(released.diagonal_variance))
    # the proof weighs diagonal entries by half: their variance must be at least twice the other
    assert released.diagonal_variance >= 2 * released.variance
    wanted = float(moments_squared_sensitivity(Relation.ADD_REMOVE, plan) / accounting.total)
    assert wanted <= float(released.variance) < wanted * 1.001


def test_magnitudes_and_rows_are_the_counts_that_they_claim(number_table: MemoryTable) -> None:
    accounting = GaussianFilter(Budget.of(20, 1e-2))
    curator = open_curator(number_table, accounting)
    rows = curator.count_rows(Fraction(1, 2))
    assert rows.columns == rows.shape == ()
    assert abs(float(rows.counts) - 50) < 6 * rows.count_variance**0.5
    (size,) = curator.magnitudes({"x0": 0.0}, range(-3, 5), Fraction(1, 2))
    exact = number_table.magnitude_counts("x0", 0.0, range(-3, 5))
    assert size.first_exponent == -3
    deviation = float(size.variance) ** 0.5 / size.lattice
    assert np.abs(size.counts - exact).max() < 6 * deviation


def test_every_declared_cell_gets_noise(make_schema: Callable[..., Schema]) -> None:
    schema = make_schema({"a": 30, "b": 30})
    table = MemoryTable.from_codes({"a": np.array([], dtype=int), "b": np.array([], dtype=int)}, schema)
    (released,) = open_curator(table, GaussianFilter(Budget.of(1, 1e-6))).count_tables(
        [("a", "b")], Fraction(1), "pair"
    )
    assert len(released.values) == 900
    # noise of deviation 2048 or more is almost never 0: empty cells do not stand out
    assert sum(value == 0 for value in released.values) < 10


accountings = st.builds(
    lambda kind, epsilon, delta: kind(Budget.of(epsilon, delta)),
    st.sampled_from([GaussianFilter, ZcdpFilter]),
    st.floats(0.01, 20.0),
    st.sampled_from([1e-9, 1e-6, 1e-3]),
)
shares = st.fractions(min_value=Fraction(1, 1000), max_value=1)


@settings(max_examples=60, deadline=None)
@given(accountings, shares, st.sampled_from(Relation), st.integers(1, 3), st.booleans())
def test_no_question_costs_more_than_its_share(
    accounting: Filter, share: Fraction, relation: Relation, n_tables: int, numeric: bool
) -> None:
    schema = Schema(
        dataset="small", columns={"x": Numeric(bounds=(0, 1)), "a": Boolean("false"), "b": Categorical(("u", "v"), "u")}
    )
    source = {"x": np.array([0.1, 0.9]), "a": np.array([True, False]), "b": np.array(["u", "v"])}
    curator = open_curator(MemoryTable.from_source(source, schema), accounting, relation)
    if numeric:
        curator.outer_products(MomentPlan(("x",), (0.5,), (0.3,), 4.0, 1.0, 10), share, "moments")
    else:
        curator.count_tables([("a", "b"), ("x", "b"), ("x", "a", "b")][:n_tables], share, "tables")
    assert 0 < accounting.spent <= share * accounting.total
    (event,) = curator.events
    assert event.changed_draws <= event.draws


@settings(max_examples=200, deadline=None)
@given(accountings, shares, st.sampled_from(Relation), st.integers(1, 5000))
def test_lattices_are_fine_and_deviations_no_larger_than_needed(
    accounting: Filter, share: Fraction, relation: Relation, n_tables: int
) -> None:
    amount = share * accounting.total
    lattice = lattice_for(accounting, counts_squared_sensitivity(relation, n_tables), amount)
    sensitivity = counts_squared_sensitivity(relation, n_tables, lattice)
    deviation = deviation_for(accounting, sensitivity, amount)
    assert lattice & (lattice - 1) == 0
    assert deviation >= FINE_DEVIATION or lattice == FINE_DEVIATION

    def price(integer: int) -> Fraction:
        if isinstance(accounting, ZcdpFilter):
            return sensitivity / (2 * integer**2)
        return sensitivity / (integer**2 - 2)

    assert price(deviation) <= amount
    if deviation > 12:
        assert price(deviation - 1) > amount


def test_replacing_a_row_costs_twice_the_variance(wide_table: MemoryTable) -> None:
    variances = [
        open_curator(wide_table, GaussianFilter(Budget.of(1, 1e-6)), relation)
        .count_tables([("a", "b")], Fraction(1), "pair")[0]
        .count_variance
        for relation in (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
    ]
    assert variances[1] == pytest.approx(2 * variances[0], rel=2e-3)
