"""Sums of residual products: no neighbour beyond the bounds, and a p-value that keeps its level with noise."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from dagveil.errors import EvidenceError
from dagveil.statistics.gcm import gcm_p_value, gcm_sensitivities, gcm_sums
from dagveil.statistics.residuals import residual_sensitivity, ridge_residuals
from slow_twins import exact_gcm

LEVEL = 0.05


@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3)), max_size=20), st.floats(0.1, 3))
@settings(max_examples=60, deadline=None)
def test_sums_are_those_of_the_slow_twin(pairs: list[tuple[float, float]], bound: float) -> None:
    u, v = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    products = [max(-bound, min(bound, a)) * max(-bound, min(bound, b)) for a, b in pairs]
    total, squares = gcm_sums(u, v, bound)
    assert total == pytest.approx(sum(products), abs=1e-9)
    assert squares == pytest.approx(sum(p * p for p in products), abs=1e-9)


@pytest.mark.parametrize("residual", [0.0, 0.01, 0.5, 1.0, 1.7, 2.0, 3.0])
@pytest.mark.parametrize("bound", [1.0, 2.0, 0.3])
def test_bounds_hold_and_are_attained(bound: float, residual: float) -> None:
    """Slots move on their own: the first anywhere, each other by up to `residual`. So each is searched alone."""
    step = min(residual, 2 * bound)
    grid = np.unique(np.r_[np.linspace(-bound, bound, 41), bound - step, step - bound])
    grid = grid[np.abs(grid) <= bound]
    pairs = [(a, b) for a, b in product(grid, grid) if abs(a - b) <= residual * (1 + 1e-12)]
    a, b = np.array(pairs).T
    before, after = np.outer(a, a).ravel(), np.outer(b, b).ravel()
    own, own_squares = gcm_sensitivities(1, bound)
    along, along_squares = np.subtract(gcm_sensitivities(2, bound, residual), (own, own_squares))
    assert np.abs(before - after).max() == pytest.approx(along, abs=1e-12)
    assert np.abs(before**2 - after**2).max() == pytest.approx(along_squares, abs=1e-12)
    anywhere = np.outer(grid, grid)
    assert np.ptp(anywhere) == pytest.approx(own)
    assert np.ptp(anywhere**2) == pytest.approx(own_squares)
    assert gcm_sensitivities(9, bound, residual) == pytest.approx((own + 8 * along, own_squares + 8 * along_squares))
    # never worse than the linear bounds 2Br and 4B³r
    assert along <= 2 * bound * residual + 1e-12
    assert along_squares <= 4 * bound**3 * residual + 1e-12


@pytest.mark.parametrize(("m", "penalty"), [(3, 1.0), (10, 5.0), (40, 1.0), (20, 0.1)])
def test_no_neighbour_exceeds_the_bounds_on_residuals(m: int, penalty: float) -> None:
    rng = np.random.default_rng(m)
    bound = 1.0
    limits = gcm_sensitivities(m, bound, residual_sensitivity(m, penalty))

    def sums(rows: np.ndarray) -> np.ndarray:
        return np.array(gcm_sums(*ridge_residuals(rows[:, 2:], rows[:, :2], penalty, 0.3).T, bound))

    best, top = rng.choice([-1.0, 1.0], (m + 1, 3)), 0.0
    for step in range(300):
        new = best.copy()
        moved = rng.random(new.shape) < max(0.1, 1 / m)
        new[moved] = rng.choice([-1.0, 1.0], moved.sum()) if step % 2 else rng.uniform(-1, 1, moved.sum())
        share = float((np.abs(sums(new[1:]) - sums(np.vstack([new[0], new[2:]]))) / limits).max())
        if share >= top:
            best, top = new, share
    assert 0.05 < top <= 1.0


@pytest.mark.parametrize("epsilon", [math.inf, 10.0, 1.0, 0.2])
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_level_with_noise(epsilon: float, scale: float) -> None:
    """Laplace noise on both sums; the true variance may be far below the noise."""
    rng = np.random.default_rng(4)
    runs, m, bound = 2000, 200, 1.0
    deltas = gcm_sensitivities(m, bound)
    scales = [0.0 if epsilon == math.inf else 2 * delta / epsilon for delta in deltas]
    variances = [2 * scale**2 for scale in scales]
    rejected = 0
    for _ in range(runs):
        u, v = scale * rng.uniform(-1, 1, (2, m))
        total, squares = gcm_sums(u, v, bound)
        noise = rng.laplace(0.0, 1.0, 2) * scales
        rejected += gcm_p_value(total + noise[0], squares + noise[1], m, *variances) <= LEVEL
    assert binom.sf(rejected - 1, runs, LEVEL) > 1e-6
    if (epsilon >= 10.0 and scale == 1.0) or epsilon == 0.2:
        assert binom.cdf(rejected, runs, 0.7 * LEVEL) > 1e-6  # not by being blind


@pytest.mark.parametrize(
    ("deviation", "scale"), [(1.0, 1.0), (1.0, 0.01), (0.01, 1.0), (3.0, 1e-9), (1e-9, 2.0), (2.0, 5.0)]
)
def test_laplace_and_normal_together(deviation: float, scale: float) -> None:
    """The closed form against an integral over the Laplace law, and never below the normal p-value."""
    quantiles = (np.arange(200_000) + 0.5) / 200_000
    laplace = -scale * np.log(quantiles)  # the size; its sign is fair
    for size in (0.0, 0.3 * deviation, 2.0 * deviation, 2.0 * scale, 6.0 * scale):
        tails = ndtr((-size + laplace) / deviation) + ndtr((-size - laplace) / deviation)
        p_value = gcm_p_value(size, deviation**2, 10, 2 * scale**2, 0.0)
        normal = 2 * float(ndtr(-size / math.hypot(deviation, math.sqrt(2) * scale)))
        assert p_value == pytest.approx(max(float(tails.mean()), normal), rel=1e-3)


def test_level_of_the_exact_test_on_residuals() -> None:
    """x and y depend on z, not on each other; the regression is flexible enough."""
    rng = np.random.default_rng(8)
    runs, m = 300, 150
    rejected = 0
    for _ in range(runs):
        z = rng.uniform(-1, 1, m)
        x, y = 0.6 * np.sin(2 * z) + 0.4 * rng.uniform(-1, 1, m), 0.5 * z**2 + 0.5 * rng.uniform(-1, 1, m)
        u, v = ridge_residuals(z[:, None], np.column_stack([x, y]), 1e-3, 0.5).T
        rejected += exact_gcm(u, v) <= LEVEL
    assert binom.sf(rejected - 1, runs, 0.06) > 1e-6
    assert binom.cdf(rejected, runs, 0.03) > 1e-6


def test_power_and_noise() -> None:
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, 500)
    v = np.clip(0.5 * u + 0.5 * rng.uniform(-1, 1, 500), -1, 1)
    assert exact_gcm(u, v, 1.0) < 1e-6
    total, squares = gcm_sums(u, v, 1.0)
    p_values = [gcm_p_value(total, squares, 500, variance, 0.0) for variance in (0.0, 10.0, 1e3, 1e6)]
    assert p_values == sorted(p_values)
    assert p_values[-1] > 0.9


def test_corner_cases() -> None:
    assert gcm_p_value(0.0, 0.0, 10, 0.0, 0.0) == 1.0
    assert exact_gcm(np.zeros(3), np.ones(3)) == 1.0
    # a negative noisy sum of squares is no licence
    assert gcm_p_value(3.0, -50.0, 10, 1.0, 4.0) == pytest.approx(gcm_p_value(3.0, 2.0, 10, 1.0, 0.0))
    assert gcm_p_value(5.0, 1.0, 1, 0.0, 0.0) == 1.0
    # huge ratios of the two noises stay numbers
    assert 0.0 <= gcm_p_value(1e6, 1e12, 10, 1e-12, 0.0) <= 1.0
    assert 0.0 <= gcm_p_value(1e6, 1e-12, 10, 1e12, 0.0) <= 1.0
    for bound in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(EvidenceError, match="clipped"):
            gcm_sums(np.ones(2), np.ones(2), bound)
        with pytest.raises(EvidenceError, match="clipped"):
            gcm_sensitivities(2, bound)
