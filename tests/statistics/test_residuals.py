"""Kernel ridge residuals: slow twins, no neighbour beyond the bound, and the published bound broken."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import EvidenceError
from dagveil.papers.zhang2023 import published_residual_bound
from dagveil.statistics.kernels import gaussian_gram
from dagveil.statistics.residuals import (
    fourier_features,
    residual_sensitivity,
    residuals_of_features,
    ridge_residuals,
    ridge_residuals_by_features,
)

Residuals = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]


def slow_residuals(features: np.ndarray, x: np.ndarray, penalty: float) -> np.ndarray:
    """Gradient descent on ½λ‖w‖² + mean (w·φ − x)², until it stands still."""
    w = np.zeros(features.shape[1])
    rate = 1.0 / (penalty + 2.0)
    for _ in range(20_000):
        gradient = penalty * w
        for row, value in zip(features, x, strict=True):
            gradient = gradient + 2.0 * (row @ w - value) * row / len(x)
        if np.abs(gradient).max() < 1e-12:
            break
        w = w - rate * gradient
    return np.array([value - min(1.0, max(-1.0, row @ w)) for row, value in zip(features, x, strict=True)])


@given(st.integers(2, 6), st.integers(1, 3), st.sampled_from([0.3, 1.0, 5.0]), st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_residuals_minimise_what_they_should(m: int, width: int, penalty: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, x = rng.uniform(-1, 1, (m, width)), rng.uniform(-1, 1, m)
    # rows of the root of the Gram matrix are features of the kernel
    values, vectors = np.linalg.eigh(gaussian_gram(z, 0.6))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    assert np.allclose(ridge_residuals(z, x, penalty, 0.6), slow_residuals(root, x, penalty), atol=1e-8)
    by_features = ridge_residuals_by_features(z, x, penalty, 0.6)
    features = fourier_features(z, 0.6)
    assert np.allclose(by_features, residuals_of_features(features, x, penalty))
    # the same through the Gram matrix of the features
    ridge = m * penalty / 2
    alpha = np.linalg.solve(features @ features.T + ridge * np.eye(m), x)
    assert np.allclose(by_features, x - np.clip(x - ridge * alpha, -1, 1), atol=1e-10)


def test_several_targets_are_the_single_ones() -> None:
    rng = np.random.default_rng(0)
    z, x = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (30, 3))
    for residuals in (ridge_residuals, ridge_residuals_by_features):
        together = residuals(z, x, 0.1, 0.5)
        for k in range(3):
            assert np.allclose(together[:, k], residuals(z, x[:, k], 0.1, 0.5), atol=1e-12)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_features_have_length_one_and_approach_the_kernel(width: int) -> None:
    z = np.random.default_rng(0).uniform(-1, 1, (200, width))
    features = fourier_features(z, 1.0)
    assert np.allclose(np.linalg.norm(features, axis=1), 1.0, atol=1e-12)
    error = np.abs(features @ features.T - gaussian_gram(z, 1.0)).max()
    assert error < {1: 1e-6, 2: 0.03, 5: 0.15}[width]
    # public: the same frequencies for every table, and for every row whatever stands beside it
    assert np.allclose(fourier_features(z[:3], 1.0), features[:3], atol=1e-12)


def test_predictions_are_clipped() -> None:
    z = np.linspace(-1, 1, 9)[:, None]
    x = np.where(np.abs(z[:, 0]) < 0.3, -1.0, 1.0)
    for residuals in (ridge_residuals, ridge_residuals_by_features):
        values = residuals(z, x, 1e-7, 0.7)
        assert np.abs(x - values).max() <= 1.0
        assert np.abs(values).max() <= 2.0


# ---------------------------------------------------------------------------------------------- neighbour search


def largest_move(residuals: Residuals, m: int, penalty: float, bandwidth: float, rng: np.random.Generator) -> float:
    """The largest move of a residual of an unchanged slot that climbing finds; slot 0 takes the last two numbers."""

    def move(case: np.ndarray) -> float:
        z, x = case[:m], case[m : 2 * m]
        new_z, new_x = np.r_[case[2 * m], z[1:]], np.r_[case[2 * m + 1], x[1:]]
        before = residuals(z[:, None], x, penalty, bandwidth)
        return float(np.abs(residuals(new_z[:, None], new_x, penalty, bandwidth) - before)[1:].max())

    best = rng.choice([-1.0, 1.0], 2 * m + 2)
    if rng.random() < 0.5:
        best[:m] = rng.uniform(-1, 1, m)
    top = move(best)
    for step in range(250):
        new = best.copy()
        chosen = rng.random(len(best)) < max(1.5 / len(best), 0.1)
        if step % 3 == 0:
            new[chosen] = rng.choice([-1.0, 1.0], int(chosen.sum()))
        elif step % 3 == 1:
            new[chosen] = rng.uniform(-1, 1, int(chosen.sum()))
        else:
            new = np.clip(new + chosen * rng.normal(0, 0.1, len(best)), -1, 1)
        value = move(new)
        if value >= top:
            best, top = new, value
    return top


@pytest.mark.parametrize("residuals", [ridge_residuals, ridge_residuals_by_features])
@pytest.mark.parametrize(
    ("m", "penalty", "share"),
    [(3, 1.0, 0.55), (6, 1.0, 0.5), (12, 0.1, 0.35), (40, 1.0, 0.5), (40, 0.02, 0.38), (20, 9.0, 0.75)],
)
def test_no_neighbour_exceeds_the_bound(residuals: Residuals, m: int, penalty: float, share: float) -> None:
    rng = np.random.default_rng(m)
    tops = [largest_move(residuals, m, penalty, width, rng) for width in (0.05, 0.3, 1.0)]
    assert share * residual_sensitivity(m, penalty) <= max(tops) <= residual_sensitivity(m, penalty)


def test_the_bound_is_close_for_large_penalties() -> None:
    """A slot beside one with the same z, far from all others: its target turns around."""
    m, penalty = 30, 50.0
    z = np.r_[0.9, 0.9, np.full(m - 2, -1.0)][:, None]
    x = np.r_[1.0, np.zeros(m - 1)]
    move = np.abs(ridge_residuals(z, x, penalty, 0.1) - ridge_residuals(z, np.r_[-1.0, x[1:]], penalty, 0.1))[1]
    assert 0.9 * residual_sensitivity(m, penalty) <= move <= residual_sensitivity(m, penalty)


def test_the_published_bound_forgets_the_changed_record() -> None:
    m = 400
    z, x = np.zeros((m, 1)), np.zeros(m)
    before, after = (ridge_residuals(z, np.r_[first, x[1:]], 1.0, 0.5) for first in (1.0, -1.0))
    assert published_residual_bound(m, 1.0) == 0.02
    assert abs(before[0] - after[0]) > 1.99
    assert np.abs(before - after)[1:].max() < residual_sensitivity(m, 1.0) < 0.02


def test_sensitivity_as_stated() -> None:
    assert residual_sensitivity(10, 1e-3) == 2.0
    expected = 4 * (1 + math.sqrt(99 / (2 * 100 * 0.5))) / (100 * 0.5 + 4)
    assert residual_sensitivity(100, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("penalty", [0.0, -1.0, math.inf, math.nan])
def test_bad_penalties_are_refused(penalty: float) -> None:
    with pytest.raises(EvidenceError, match="penalty"):
        ridge_residuals(np.zeros((3, 1)), np.zeros(3), penalty, 1.0)
    with pytest.raises(EvidenceError, match="penalty"):
        residual_sensitivity(3, penalty)


def test_penalties_that_leave_the_outcome_to_rounding_are_refused() -> None:
    """Two tables that differ in one row: with λ = 1e-15 one of them could be solved and the other not."""
    rows = np.zeros((50, 1))
    for penalty in (0.0, 1e-15, 1e-10, float("nan"), float("inf")):
        with pytest.raises(EvidenceError, match="at least 1e-09"):
            ridge_residuals_by_features(rows, np.ones(50), penalty, 0.5)
        with pytest.raises(EvidenceError, match="at least 1e-09"):
            residual_sensitivity(50, penalty)
    assert np.isfinite(ridge_residuals_by_features(rows, np.ones(50), 1e-9, 0.5)).all()
