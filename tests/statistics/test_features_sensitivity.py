"""The declared sensitivity of moments of features against a search for worse neighbours."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import Basis, FeaturePlan, quantise_rows
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Relation
from dagveil.statistics.moments import moments_squared_sensitivity


def make_plan(width: int, degree: int, per_feature: float, bits: int) -> FeaturePlan:
    names = tuple(f"x{k}" for k in range(width))
    radius_squared = per_feature * width * degree
    constant = math.sqrt(max(1.0, radius_squared / 10.0))
    return FeaturePlan(names, (0.5,) * width, (2.0,) * width, Basis.LEGENDRE, degree, radius_squared, constant, bits)


PLANS = [make_plan(2, 2, 1.0, 10), make_plan(3, 3, 0.75, 10), make_plan(8, 1, 1.0, 8), make_plan(4, 3, 2.0, 12)]


def candidate_rows(plan: FeaturePlan, rng: np.random.Generator) -> np.ndarray:
    """Rows at the ends, just inside and outside, corners, at random, huge and broken ones."""
    width = len(plan.columns)
    corners = np.array(list(product((-1.0, 0.0, 1.0), repeat=min(width, 4))))
    corners = np.pad(corners, ((0, 0), (0, width - corners.shape[1])), constant_values=1.0)
    ends = np.vstack([corners * factor for factor in (1.0, 1 - 1e-12, 1 + 1e-12, 0.999, 1.5, 1e3, 1e300)])
    inside = rng.uniform(-1.0, 1.0, (200, width))
    broken = np.zeros((4, width))
    broken[0], broken[1, 0], broken[2, -1], broken[3] = np.nan, np.inf, -np.inf, np.inf
    return np.vstack([ends, inside, broken]) * 2.0 + 0.5


def largest_change(plan: FeaturePlan, relation: Relation) -> Fraction:
    """The largest weighted squared change that the search finds, in exact integers."""
    vectors = quantise_rows(plan.expand(candidate_rows(plan, np.random.default_rng(3)).T).T, plan.rows)
    gram = (vectors @ vectors.T).astype(object)
    squares = np.diag(gram)
    if relation is Relation.ADD_REMOVE:
        return Fraction(int(squares.max()) ** 2, 2)
    change = squares[:, None] ** 2 + squares[None, :] ** 2 - 2 * gram**2
    return Fraction(int(change.max()), 2)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{len(plan.columns)} columns, {plan.degree} features")
@pytest.mark.parametrize("relation", Relation)
class TestSearch:
    def test_nothing_exceeds_the_bound(self, plan: FeaturePlan, relation: Relation) -> None:
        assert largest_change(plan, relation) <= moments_squared_sensitivity(relation, plan)

    def test_a_smaller_bound_fails_the_same_search(self, plan: FeaturePlan, relation: Relation) -> None:
        # two rows on the ball are hardly ever orthogonal, so the search stays further below the bound for replacing
        share = Fraction(9, 10) if relation is Relation.ADD_REMOVE else Fraction(1, 2)
        assert largest_change(plan, relation) > share * moments_squared_sensitivity(relation, plan)


@pytest.mark.parametrize("relation", Relation)
def test_whole_tables_move_as_their_rows_do(relation: Relation) -> None:
    """The engine's own answers on neighbouring tables, wild values included, against the bound."""
    plan = make_plan(3, 2, 1.0, 8)
    schema = Schema(dataset="wild", columns={name: Numeric(bounds=(-1e9, 1e9)) for name in plan.columns}, reviewed=True)
    rng = np.random.default_rng(5)
    base = rng.standard_normal((40, 3))
    bound = moments_squared_sensitivity(relation, plan)

    def sum_moments(matrix: np.ndarray) -> np.ndarray:
        source = dict(zip(plan.columns, matrix.T, strict=True))
        return MemoryTable.from_source(source, schema).outer_products(plan)

    start = sum_moments(base)
    worst = Fraction(0)
    for place, row in enumerate(candidate_rows(plan, rng)[::7]):
        cut = np.delete(base, place % 40, axis=0) if relation is Relation.REPLACE_ONE else base
        changed = np.insert(cut, place % 40, row, axis=0)
        change = (sum_moments(changed) - start).astype(object)
        worst = max(worst, Fraction(int((change * change).sum()), 2))
    assert bound / 4 < worst <= bound


def test_replacing_costs_twice_as_much_in_squares() -> None:
    for plan in PLANS:
        added = moments_squared_sensitivity(Relation.ADD_REMOVE, plan)
        assert added == Fraction(plan.rows.norm_squared_bound() ** 2, 2)
        assert moments_squared_sensitivity(Relation.REPLACE_ONE, plan) == 2 * added
