"""The declared sensitivity of second moments against a search for worse neighbours."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan, quantise_rows
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Relation
from dagveil.statistics.moments import moments_squared_sensitivity


def make_plan(width: int, radius_squared: float, constant: float, bits: int) -> MomentPlan:
    names = tuple(f"x{k}" for k in range(width))
    return MomentPlan(names, (0.5,) * width, (2.0,) * width, radius_squared, constant, bits)


PLANS = [
    make_plan(2, 4.0, 1.0, 10),
    make_plan(3, 4.0, 1.3, 6),
    make_plan(8, 6.0, 1.0, 10),
    make_plan(20, 15.0, 1.2247448713915890, 10),
    make_plan(5, 50.0, 0.01, 4),
]


def candidate_rows(plan: MomentPlan, rng: np.random.Generator) -> np.ndarray:
    """Rows that try to move the moments far: on the ball, just inside and outside, corners, huge and broken ones."""
    width, radius = len(plan.columns), math.sqrt(plan.radius_squared)
    directions = rng.standard_normal((150, width))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    axes = np.vstack([np.eye(width), -np.eye(width)])
    corners = np.array(list(product((-1.0, 1.0), repeat=min(width, 4))))
    corners = np.pad(corners, ((0, 0), (0, width - corners.shape[1]))) / math.sqrt(corners.shape[1])
    # an orthogonal partner of the first axis: with the constant in front, the scaled parts need the product −constant²
    cosine = max(-1.0, -((plan.constant / radius) ** 2))
    partner = np.zeros(width)
    partner[:2] = cosine, math.sqrt(1.0 - cosine**2)
    unit = np.vstack([directions, axes, corners, partner])
    # spreads are 2 and centres 0.5; factors around 1 probe the edge of the ball and the rounding there
    factors = [radius, radius * (1 - 1e-12), radius * (1 + 1e-12), radius * 0.999, radius * 1.001, 1e3, 1e200]
    rows = np.vstack([unit * factor for factor in factors]) * 2.0 + 0.5
    broken = np.full((3, width), 0.5)
    broken[0], broken[1, 0], broken[2, -1] = np.nan, np.inf, -np.inf
    return np.vstack([rows, broken, np.full(width, 0.5)])


def largest_change(plan: MomentPlan, relation: Relation) -> Fraction:
    """The largest weighted squared change that the search finds, in exact integers.

    Diagonal entries weigh half: Σ_{i<j} M_ij² + ½ Σ M_ii² is half of the sum over the whole symmetric matrix.
    """
    vectors = quantise_rows(candidate_rows(plan, np.random.default_rng(3)), plan)
    gram = vectors @ vectors.T
    squares = np.diag(gram)
    if relation is Relation.ADD_REMOVE:
        return Fraction(int(squares.max()) ** 2, 2)
    change = squares[:, None] ** 2 + squares[None, :] ** 2 - 2 * gram**2
    return Fraction(int(change.max()), 2)


def is_safe(plan: MomentPlan, relation: Relation, bound: Fraction) -> bool:
    """Whether the search finds nothing above the bound."""
    return largest_change(plan, relation) <= bound


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{len(plan.columns)} columns, {plan.bits} bits")
@pytest.mark.parametrize("relation", Relation)
class TestSearch:
    def test_nothing_exceeds_the_bound(self, plan: MomentPlan, relation: Relation) -> None:
        assert is_safe(plan, relation, moments_squared_sensitivity(relation, plan))

    def test_the_bound_is_reached(self, plan: MomentPlan, relation: Relation) -> None:
        # fixed point loses a little: with few bits a row cannot lie exactly on the ball
        slack = Fraction(99, 100) if plan.bits >= 6 else Fraction(90, 100)
        assert largest_change(plan, relation) >= slack * moments_squared_sensitivity(relation, plan)

    def test_a_smaller_bound_fails_the_same_search(self, plan: MomentPlan, relation: Relation) -> None:
        assert not is_safe(plan, relation, Fraction(9, 10) * moments_squared_sensitivity(relation, plan))


@pytest.mark.parametrize("relation", Relation)
def test_whole_tables_move_as_their_rows_do(relation: Relation) -> None:
    """The engine's own answers on neighbouring tables, wild values included, against the bound."""
    plan = make_plan(3, 4.0, 1.3, 8)
    bounds = (-1e9, 1e9)
    schema = Schema(dataset="wild", columns={name: Numeric(bounds=bounds) for name in plan.columns}, reviewed=True)
    rng = np.random.default_rng(5)
    rows = candidate_rows(plan, rng)
    base = rng.standard_normal((40, 3))
    bound = moments_squared_sensitivity(relation, plan)

    def sum_moments(matrix: np.ndarray) -> np.ndarray:
        return MemoryTable.from_source(dict(zip(plan.columns, matrix.T, strict=True)), schema).outer_products(plan)

    without = sum_moments(base)
    worst = Fraction(0)
    last = without
    for row in rows[::9]:
        now = sum_moments(np.vstack([base, row]))
        change = (now - (without if relation is Relation.ADD_REMOVE else last)).astype(object)
        if relation is Relation.ADD_REMOVE or last is not without:
            worst = max(worst, Fraction(int((change * change).sum()), 2))
        last = now
    assert Fraction(1, 2) * bound < worst <= bound


def test_truncation_never_lengthens_a_row() -> None:
    for plan in PLANS:
        vectors = quantise_rows(candidate_rows(plan, np.random.default_rng(8)), plan)
        cap = plan.norm_squared_bound()
        assert all(sum(int(entry) ** 2 for entry in vector) <= cap for vector in vectors)
        assert cap <= (Fraction(plan.radius_squared) + Fraction(plan.constant) ** 2) * 4**plan.bits


def test_replacing_costs_twice_as_much_in_squares() -> None:
    for plan in PLANS:
        added = moments_squared_sensitivity(Relation.ADD_REMOVE, plan)
        assert moments_squared_sensitivity(Relation.REPLACE_ONE, plan) == 2 * added
