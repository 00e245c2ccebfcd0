"""Kernel features against the Gaussian kernel, factors against Gram matrices, the median without pairs."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import EvidenceError
from dagveil.statistics.kernels import (
    factor_gram,
    gaussian_gram,
    kernel_features,
    median_bandwidth,
)


def slow_gram(values: np.ndarray, bandwidth: float) -> np.ndarray:
    return np.array([[math.exp(-sum((a - b) ** 2) / (2 * bandwidth**2)) for b in values] for a in values])


@given(st.integers(2, 12), st.integers(1, 3), st.floats(0.05, 3.0), st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_gram_and_factor_are_those_of_the_slow_twin(rows: int, width: int, bandwidth: float, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(-1, 1, (rows, width))
    values[-1] = values[0]  # equal rows make the matrix singular
    gram = gaussian_gram(values, bandwidth)
    assert np.allclose(gram, slow_gram(values, bandwidth), atol=1e-14)
    factor = factor_gram(values, bandwidth)
    assert factor.shape[1] < rows
    assert np.abs(factor @ factor.T - gram).max() < 2e-10


def test_a_factor_stops_where_it_is_told() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    assert factor_gram(values, 0.1, most=40).shape == (200, 40)
    # more columns than the first allotment
    factor = factor_gram(values, 0.5)
    assert factor.shape[1] > 64
    assert np.abs(factor @ factor.T - gaussian_gram(values, 0.5)).max() < 1e-9


@pytest.mark.parametrize("reach", [2.0, 4.0, 0.7])
@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 0.5, 1.0, 10.0])
class TestFeatures:
    def test_products_are_the_kernel(self, bandwidth: float, reach: float) -> None:
        features = kernel_features(bandwidth, reach)
        values = np.linspace(-reach / 2, reach / 2, 1201)
        mapped = features.map(values)
        assert np.allclose(np.linalg.norm(mapped, axis=1), 1.0, atol=1e-14)
        error = np.abs(mapped @ mapped.T - gaussian_gram(values[:, None], bandwidth)).max()
        assert error < 1e-6

    def test_the_diameter_holds_and_is_close(self, bandwidth: float, reach: float) -> None:
        features = kernel_features(bandwidth, reach)
        # the distance depends on the difference only; fine steps find the dips of a truncated sum
        gaps = np.linspace(0.0, reach, 20_001)
        kernel = np.cos(np.outer(gaps, features.frequencies)) @ features.weights
        largest = math.sqrt(2.0 - 2.0 * kernel.min())
        assert largest <= features.diameter <= largest + 2e-3
        assert features.diameter <= math.sqrt(2.0) * (1 + 1e-6)

    def test_the_slope_holds_and_is_one_over_the_bandwidth(self, bandwidth: float, reach: float) -> None:
        features = kernel_features(bandwidth, reach)
        values = np.linspace(-reach / 2, reach / 2, 2001)
        mapped = features.map(values)
        steps = np.linalg.norm(np.diff(mapped, axis=0), axis=1) / np.diff(values)
        assert steps.max() <= features.slope * (1 + 1e-9)
        assert features.slope == pytest.approx(1 / bandwidth, rel=1e-4)


def test_whatever_comes_in_stays_within_the_diameter() -> None:
    features = kernel_features(0.3, 2.0)
    mapped = features.map(np.array([np.nan, np.inf, -np.inf, 1e300, -3.0, 0.0]))
    assert np.allclose(np.linalg.norm(mapped, axis=1), 1.0)
    assert np.array_equal(mapped[0], mapped[5])
    assert np.linalg.norm(mapped[1] - mapped[2]) <= features.diameter


@given(st.integers(2, 15), st.integers(1, 2), st.integers(0, 10_000), st.sampled_from([2, 5, 1000]))
@settings(max_examples=100, deadline=None)
def test_the_median_is_that_of_all_pairs(rows: int, width: int, seed: int, levels: int) -> None:
    values = np.random.default_rng(seed).integers(0, levels, (rows, width)) / levels
    distances = [float(np.linalg.norm(a - b)) for a, b in combinations(values, 2)]
    expected = float(np.median(distances))
    if expected == 0.0:
        expected = float(np.median([d for d in distances if d > 0.0] or [1.0]))
    assert median_bandwidth(values) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.inf, math.nan])
def test_bad_bandwidths_are_refused(bandwidth: float) -> None:
    rows = np.zeros((3, 1))
    for refuse in (
        lambda: gaussian_gram(rows, bandwidth),
        lambda: factor_gram(rows, bandwidth),
        lambda: kernel_features(bandwidth, 2.0),
    ):
        with pytest.raises(EvidenceError, match="bandwidth"):
            refuse()


def test_too_many_frequencies_and_no_reach_are_refused() -> None:
    with pytest.raises(EvidenceError, match="choose a bandwidth of at least"):
        kernel_features(1e-4, 2.0)
    kernel_features(2.0 / 2000, 2.0)
    with pytest.raises(EvidenceError, match="reach"):
        kernel_features(0.5, 0.0)
