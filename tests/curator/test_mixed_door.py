"""The doors for moments of levels beside numbers: price, noise and order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from spies import open_curator

from dagveil.curator import curator as curator_module
from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, BudgetExceededError, MethodError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, GaussianFilter
from dagveil.statistics.moments import moments_squared_sensitivity, pair_moments_squared_sensitivity

LEVELS = tuple(f"l{k}" for k in range(10))
NUMBERS = tuple(f"x{k}" for k in range(20))
PLAN = MixedPlan(LEVELS, (4,) * 10, NUMBERS, (0.0,) * 20, (2.0,) * 20, (3,) * 20, 60.0, 3.0, 10)
PAIRS = MixedPairs(PLAN, tuple((level, number) for level in LEVELS for number in NUMBERS))
BUDGET = Budget.of(1, 1e-6)


@pytest.fixture(scope="module")
def table() -> MemoryTable:
    rng = np.random.default_rng(4)
    columns: dict[str, Column] = {name: Categorical(levels=tuple("0123"), outside="0") for name in LEVELS}
    columns |= {name: Numeric(bounds=(-9, 9)) for name in NUMBERS}
    source = {name: rng.integers(0, 4, 50).astype(str) for name in LEVELS}
    numbers = {name: rng.standard_normal(50) for name in NUMBERS}
    return MemoryTable.from_source({**source, **numbers}, Schema(dataset="both", columns=columns, reviewed=True))


@pytest.mark.parametrize("relation", Relation)
def test_the_matrix_carries_the_declared_noise(table: MemoryTable, relation: Relation) -> None:
    curator = open_curator(table, GaussianFilter(BUDGET), relation)
    released = curator.outer_products(PLAN, Fraction(1), "mixed")
    assert (released.levels, released.numbers, released.size) == (LEVELS, NUMBERS, 101)
    noise = released.matrix * 4.0**PLAN.bits - table.outer_products(PLAN)
    for part, variance in (
        (noise[np.triu_indices(101, 1)], released.variance),
        (np.diag(noise), released.diagonal_variance),
    ):
        lower, upper = stats.chi2.ppf([0.0005, 0.9995], len(part))
        assert lower < float((part**2).sum() / float(variance)) < upper
    assert released.diagonal_variance >= 2 * released.variance
    (event,) = curator.events
    assert isinstance(event, DiscreteGaussian)
    assert event.squared_sensitivity == moments_squared_sensitivity(relation, PLAN)
    with pytest.raises(BudgetExceededError):
        curator.pair_moments(PAIRS, Fraction(1, 100), "more")
    assert len(curator.events) == 1


@pytest.mark.parametrize("relation", Relation)
def test_chosen_pairs_carry_the_declared_noise(table: MemoryTable, relation: Relation) -> None:
    curator = open_curator(table, GaussianFilter(BUDGET), relation)
    released = curator.pair_moments(PAIRS, Fraction(1), "pairs")
    assert released.shapes == ((4, 3),) * 200
    exact, places = table.outer_products(PAIRS), PAIRS.places()
    noise = np.concatenate(
        [
            (block * 4.0**PLAN.bits - exact[places[x], places[y]]).ravel()
            for (x, y), block in zip(released.pairs, released.blocks, strict=True)
        ]
    )
    lower, upper = stats.chi2.ppf([0.0005, 0.9995], len(noise))
    assert lower < float((noise**2).sum() / float(released.variance)) < upper
    (event,) = curator.events
    assert isinstance(event, DiscreteGaussian)
    assert event.squared_sensitivity == pair_moments_squared_sensitivity(relation, PAIRS)
    assert event.variance == released.variance


def test_too_many_cells_and_other_levels_are_refused_before_rows_are_read(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    curator = open_curator(table, GaussianFilter(BUDGET))
    monkeypatch.setattr(MemoryTable, "outer_products", None)
    other = MixedPlan(("l0",), (5,), ("x0",), (0.0,), (2.0,), (1,), 2.0, 1.0, 10)
    for ask in (
        lambda: curator.outer_products(other, Fraction(1), "mixed"),
        lambda: curator.pair_moments(MixedPairs(other, (("l0", "x0"),)), Fraction(1), "pairs"),
    ):
        with pytest.raises(MethodError, match="not those of the schema"):
            ask()
    monkeypatch.setattr(curator_module, "MAX_RELEASED_CELLS", 100)
    with pytest.raises(BudgetError, match="the limit is 100"):
        curator.outer_products(PLAN, Fraction(1), "mixed")
    with pytest.raises(BudgetError, match="the limit is 100"):
        curator.pair_moments(PAIRS, Fraction(1), "pairs")
    assert curator.events == ()
