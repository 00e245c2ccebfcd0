"""Clipped gradients: the slow twin, no neighbour beyond the bound, and the published bound broken."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.gradients import GradientPlan, sum_curvatures, sum_gradients
from dagveil.data.moments import MomentPlan
from dagveil.errors import SchemaError
from dagveil.papers.ma2022 import published_gradient_sensitivity
from dagveil.privacy.budget import Relation
from dagveil.statistics.moments import curvature_squared_sensitivity, gradient_squared_sensitivity

BITS = 10


def make_plan(d: int, weights: np.ndarray, clip: float, radius: float = 50.0) -> GradientPlan:
    names = tuple(f"x{i}" for i in range(d))
    rows = MomentPlan(names, (0.0,) * d, (1.0,) * d, radius, 1.0, BITS)
    return GradientPlan(rows, tuple(map(tuple, weights.tolist())), clip)


def sums(rows: np.ndarray, plan: GradientPlan) -> np.ndarray:
    return sum_gradients(list(rows.T.copy()), plan, n_rows=len(rows))


def slow_gradient(row: np.ndarray, plan: GradientPlan) -> np.ndarray:
    """One record's clipped gradient, in real numbers."""
    z = np.nan_to_num(row, posinf=1e100, neginf=-1e100)
    length = math.sqrt(float(z @ z)) if np.abs(z).max() < 1e100 else math.inf
    radius = math.sqrt(plan.rows.radius_squared)
    if length > radius:
        z = z / np.abs(z).max()
        z = z * radius / math.sqrt(float(z @ z))
    r = z - z @ np.array(plan.weights)
    product = math.sqrt(float(z @ z)) * math.sqrt(float(r @ r))
    return np.outer(z, r) * (min(1.0, plan.clip / product) if product else 1.0)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, GradientPlan]:
    d = draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    weights = rng.normal(0, draw(st.sampled_from([0.0, 0.5, 3.0])), (d, d))
    rows = rng.normal(0, draw(st.sampled_from([0.1, 1.0, 100.0])), (draw(st.integers(0, 8)), d))
    if draw(st.booleans()) and len(rows):
        rows[0] = draw(st.sampled_from([0.0, 1e300, -1e300, np.inf, np.nan, 4.0]))
    return rows, make_plan(d, weights, draw(st.sampled_from([0.5, 5.0, 80.0])))


@given(cases())
@settings(max_examples=150, deadline=None)
def test_the_sum_is_that_of_the_slow_twin(case: tuple[np.ndarray, GradientPlan]) -> None:
    rows, plan = case
    exact = sum((slow_gradient(row, plan) for row in rows), np.zeros((len(plan.weights),) * 2))
    # each factor is cut off to a multiple of 2**-bits
    tolerance = len(rows) * 2.0**-BITS * 3.0 * (1.0 + math.sqrt(plan.clip))
    assert np.allclose(sums(rows, plan) / 4.0**BITS, exact, atol=tolerance)


@given(cases(), st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_no_neighbour_exceeds_the_bound(case: tuple[np.ndarray, GradientPlan], seed: int) -> None:
    rows, plan = case
    d = len(plan.weights)
    rng = np.random.default_rng(seed)
    extremes = [rng.normal(0, 10.0 ** rng.integers(-3, 4), d), np.full(d, 1e9), np.full(d, np.inf), np.eye(d)[0] * 7]
    before = sums(rows, plan)
    for record in extremes:
        change = sums(np.vstack([rows, record]), plan) - before
        assert int((change.astype(object) ** 2).sum()) <= gradient_squared_sensitivity(Relation.ADD_REMOVE, plan)
    for record in extremes:
        for other in extremes:
            change = sums(np.vstack([rows, record]), plan) - sums(np.vstack([rows, other]), plan)
            assert int((change.astype(object) ** 2).sum()) <= gradient_squared_sensitivity(Relation.REPLACE_ONE, plan)


def test_the_bounds_are_nearly_attained() -> None:
    plan = make_plan(3, np.zeros((3, 3)), 5.0)
    one = sums(np.array([[40.0, 0.0, 0.0]]), plan)
    length = math.sqrt(float((one**2).sum()))
    assert length >= 0.99 * math.sqrt(gradient_squared_sensitivity(Relation.ADD_REMOVE, plan))
    # z and r point the same way for W = 0, so two records cannot oppose each other; a strong W turns r around
    turned = make_plan(2, np.array([[2.0, 0.0], [0.0, 0.0]]), 5.0)
    change = sums(np.array([[40.0, 0.0]]), turned) - sums(np.array([[0.0, 40.0]]), turned)
    assert (change != 0).sum() == 2


def test_clipping_the_mean_breaks_the_published_bound() -> None:
    """NOLEAKS clips the mean gradient entry by entry: one record moves it by far more than the stated bound."""
    rng = np.random.default_rng(0)
    d, n, clip = 5, 1000, 2.0
    rows = rng.standard_normal((n, d))
    weights = np.zeros((d, d))

    def published(data: np.ndarray) -> np.ndarray:
        gradient = -(data.T @ (data - data @ weights)) / n
        np.fill_diagonal(gradient, 0.0)
        return np.clip(gradient, -clip, clip)

    record = np.full(d, 6.0)
    moved = np.linalg.norm(published(np.vstack([rows[1:], record])) - published(rows))
    assert moved > 13 * published_gradient_sensitivity(d, n, clip)
    # the same record, clipped by itself, stays within the sound bound
    plan = make_plan(d, weights, clip)
    change = sums(np.vstack([rows[1:], record]), plan) - sums(rows, plan)
    assert float((change.astype(float) ** 2).sum()) <= gradient_squared_sensitivity(Relation.REPLACE_ONE, plan)


@given(cases(), st.floats(0.5, 100.0))
@settings(max_examples=60, deadline=None)
def test_curvature(case: tuple[np.ndarray, GradientPlan], cap: float) -> None:
    rows, plan = case
    d = len(plan.weights)
    direction = np.random.default_rng(1).standard_normal((d, d))

    def total(data: np.ndarray) -> int:
        return sum_curvatures(list(data.T.copy()), plan.rows, direction, cap, n_rows=len(data))

    bound = math.isqrt(int(curvature_squared_sensitivity(plan.rows, cap)))
    for record in (np.zeros(d), np.full(d, 1e12), np.random.default_rng(2).standard_normal(d)):
        assert 0 <= total(np.vstack([rows, record])) - total(rows) <= bound


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan, 1e12])
def test_bad_clips_are_refused(clip: float) -> None:
    with pytest.raises(SchemaError, match="clip"):
        make_plan(2, np.zeros((2, 2)), clip)
