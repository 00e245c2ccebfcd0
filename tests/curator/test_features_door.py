"""The door for moments of features: price, noise and order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from spies import open_curator

from dagveil.curator import curator as curator_module
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import Basis, FeaturePlan
from dagveil.data.schema import Schema
from dagveil.errors import BudgetError, BudgetExceededError, SchemaError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, GaussianFilter, PureFilter, ZcdpFilter
from dagveil.statistics.moments import moments_squared_sensitivity

NAMES = tuple(f"x{k}" for k in range(40))
PLAN = FeaturePlan(NAMES, (0.0,) * 40, (2.0,) * 40, Basis.LEGENDRE, 3, 120.0, 3.0, 10)
BUDGET = Budget.of(1, 1e-6)


@pytest.fixture(scope="module")
def table() -> MemoryTable:
    schema = Schema(dataset="numbers", columns={name: Numeric(bounds=(-9, 9)) for name in NAMES}, reviewed=True)
    rows = np.random.default_rng(4).standard_normal((50, len(NAMES)))
    return MemoryTable.from_source(dict(zip(NAMES, rows.T, strict=True)), schema)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("kind", [GaussianFilter, ZcdpFilter])
def test_features_carry_the_declared_noise(
    table: MemoryTable, kind: type[GaussianFilter | ZcdpFilter], relation: Relation
) -> None:
    accounting = kind(BUDGET)
    curator = open_curator(table, accounting, relation)
    released = curator.outer_products(PLAN, Fraction(1), "features")
    assert (released.columns, released.degree, released.basis) == (NAMES, 3, "legendre")
    noise = released.matrix * 4.0**PLAN.bits - table.outer_products(PLAN)
    assert noise.shape == (121, 121)
    assert np.array_equal(noise, noise.T)
    for part, variance in (
        (noise[np.triu_indices(121, 1)], released.variance),
        (np.diag(noise), released.diagonal_variance),
    ):
        lower, upper = stats.chi2.ppf([0.0005, 0.9995], len(part))
        assert lower < float((part**2).sum() / float(variance)) < upper
    assert released.diagonal_variance >= 2 * released.variance
    (event,) = curator.events
    assert isinstance(event, DiscreteGaussian)
    assert event.squared_sensitivity == moments_squared_sensitivity(relation, PLAN)
    assert event.variance == released.variance


def test_nothing_is_left_after_the_whole_budget(table: MemoryTable) -> None:
    curator = open_curator(table, GaussianFilter(BUDGET))
    curator.outer_products(PLAN, Fraction(1), "features")
    with pytest.raises(BudgetExceededError):
        curator.outer_products(PLAN, Fraction(1, 100), "more")
    assert len(curator.events) == 1


def test_too_many_cells_are_refused_before_rows_are_read(table: MemoryTable, monkeypatch: pytest.MonkeyPatch) -> None:
    curator = open_curator(table, GaussianFilter(BUDGET))
    monkeypatch.setattr(curator_module, "MAX_RELEASED_CELLS", 100)
    monkeypatch.setattr(MemoryTable, "outer_products", None)
    with pytest.raises(BudgetError, match="the limit is 100"):
        curator.outer_products(PLAN, Fraction(1), "features")
    assert curator.events == ()


def test_gaussian_noise_has_no_price_under_pure_accounting(table: MemoryTable) -> None:
    curator = open_curator(table, PureFilter(Budget.of(1, 0)))
    with pytest.raises(BudgetError):
        curator.outer_products(PLAN, Fraction(1), "features")
    assert curator.events == ()


@pytest.mark.parametrize("radius", [1e6, 1e7])
def test_a_radius_cannot_be_used_to_ask_for_the_number_of_rows(table: MemoryTable, radius: float) -> None:
    accounting = GaussianFilter(BUDGET)
    wide = FeaturePlan(NAMES, (0.0,) * 40, (2.0,) * 40, Basis.LEGENDRE, 3, radius, 3.0, 8)
    with pytest.raises(SchemaError, match="tells nothing about the rows"):
        open_curator(table, accounting).outer_products(wide, Fraction(1), "features")
    assert accounting.spent == 0
