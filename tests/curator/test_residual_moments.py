"""The door for moments of residuals: neighbours, price, noise, and that a row's coordinates are its own."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import legendre
from spies import open_curator

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import RESIDUAL_SPREAD, AdditiveFunction, ResidualPlan
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, GaussianFilter
from dagveil.statistics.moments import moments_squared_sensitivity

NAMES = ("a", "b", "x", "y")
SCHEMA = Schema(dataset="residuals", columns={name: Numeric(bounds=(-2, 6)) for name in NAMES}, reviewed=True)
PLAN = ResidualPlan(
    ("x", "y"),
    ("a", "b"),
    (AdditiveFunction(0.2, ((0.5, -0.3), (0.1, 0.4))), AdditiveFunction(-0.1, ((-3.0,), (7.0,)))),
    (0.2, -0.1),
    (0.3, 0.02),
)
BARE = ResidualPlan(("x", "y"), (), (AdditiveFunction(0.2), AdditiveFunction(-0.1)), (0.2, -0.1), (0.3, 0.02))
cells = st.one_of(st.floats(-10, 10), st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 5e-324]))


def table_of(rows: list[list[float]]) -> MemoryTable:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return MemoryTable.from_source(dict(zip(NAMES, columns, strict=True)), SCHEMA)


def weigh(change: np.ndarray) -> float:
    """Squared change in the norm in which noise has unit variance off the diagonal and two on it."""
    upper = np.triu(change, 1).astype(object)
    return float((upper**2).sum() + (np.diag(change).astype(object) ** 2).sum() / 2)


@settings(deadline=None)
@given(st.lists(st.lists(cells, min_size=4, max_size=4), min_size=1, max_size=5), st.sampled_from([PLAN, BARE]))
def test_no_neighbour_moves_the_moments_further_than_declared(rows: list[list[float]], plan: ResidualPlan) -> None:
    whole = table_of(rows).outer_products(plan)
    without = table_of(rows[:-1]).outer_products(plan) if len(rows) > 1 else np.zeros_like(whole)
    assert weigh(whole - without) <= moments_squared_sensitivity(Relation.ADD_REMOVE, plan.rows)
    replaced = table_of([*rows[:-1], [9.0, -9.0, 9.0, -9.0]]).outer_products(plan)
    assert weigh(whole - replaced) <= moments_squared_sensitivity(Relation.REPLACE_ONE, plan.rows)


def test_the_search_reaches_the_bound() -> None:
    """A row far from its predictions lies on the ball: a bound a tenth smaller would fail."""
    change = weigh(table_of([[6.0, -2.0, -2.0, 6.0]]).outer_products(PLAN))
    assert change > 0.9 * moments_squared_sensitivity(Relation.ADD_REMOVE, PLAN.rows)


def test_coordinates_against_a_slow_twin() -> None:
    rng = np.random.default_rng(1)
    block = rng.uniform(-1, 1, (4, 20))
    found = PLAN.expand(block)
    for place in range(20):
        a, b, x, y = block[:, place]
        slow: list[float] = []
        fits = []
        for function in PLAN.functions:
            value = function.constant + sum(
                legendre.legval(z, [0.0, *series]) for z, series in zip((a, b), function.series, strict=True)
            )
            fits.append(min(max(value, -1.0), 1.0))
        slow += [(v - f) / (RESIDUAL_SPREAD * s) for v, f, s in zip((x, y), fits, PLAN.spreads, strict=True)]
        for fit, center, spread in zip(fits, PLAN.centers, PLAN.spreads, strict=True):
            t = (fit - center) / spread
            slow += [t, (t**2 - 1) / math.sqrt(2), (t**3 - 3 * t) / math.sqrt(6)]
        assert found[:, place] == pytest.approx(slow)


def test_a_row_enters_alike_whatever_stands_beside_it() -> None:
    rng = np.random.default_rng(2)
    rows = rng.uniform(-3, 7, (300, 4)).tolist()
    parts = sum(table_of([row]).outer_products(PLAN) for row in rows)
    assert (table_of(rows).outer_products(PLAN) == parts).all()


@pytest.mark.parametrize("relation", Relation)
def test_price_and_noise(relation: Relation) -> None:
    accounting = GaussianFilter(Budget.of(1, 1e-6))
    table = table_of(np.random.default_rng(3).uniform(-2, 6, (500, 4)).tolist())
    curator = open_curator(table, accounting, relation)
    releases = [curator.outer_products(PLAN, Fraction(1, 60), "residuals") for _ in range(50)]
    (event,) = set(curator.events)
    assert isinstance(event, DiscreteGaussian)
    assert event.squared_sensitivity == moments_squared_sensitivity(relation, PLAN.rows)
    assert accounting.remaining == pytest.approx(float(accounting.total) / 6, rel=1e-3)
    exact = table.outer_products(PLAN) / 4.0**10
    noise = np.stack([release.matrix - exact for release in releases])
    off = noise[:, ~np.eye(9, dtype=bool)] / releases[0].deviation
    assert 0.9 < off.std() < 1.1
    assert 1.25 < (noise[:, np.eye(9, dtype=bool)] / releases[0].deviation).std() < 1.58
