"""Root HSIC: slow twins, no neighbour beyond the bounds, and the published bounds broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.papers.zhang2023 import published_hsic_bound, published_residual_hsic_bound
from dagveil.statistics.kernels import (
    KernelFeatures,
    draw_permutations,
    gaussian_gram,
    kernel_features,
    median_bandwidth,
    paired_root_hsic_sensitivity,
    root_hsic,
    root_hsic_sensitivity,
)
from dagveil.statistics.residuals import residual_sensitivity, ridge_residuals, ridge_residuals_by_features
from slow_twins import exact_hsic

NONE = np.empty((0, 0), dtype=np.intp)


def slow_hsic(u: np.ndarray, v: np.ndarray, bandwidth: float) -> float:
    """tr(K H L H), entry by entry."""
    m = len(u)
    K = [[math.exp(-((a - b) ** 2) / (2 * bandwidth**2)) for b in u] for a in u]
    L = [[math.exp(-((a - b) ** 2) / (2 * bandwidth**2)) for b in v] for a in v]
    H = [[(i == j) - 1 / m for j in range(m)] for i in range(m)]

    def times(A: list[list[float]], B: list[list[float]]) -> list[list[float]]:
        return [[sum(A[i][k] * B[k][j] for k in range(m)) for j in range(m)] for i in range(m)]

    product = times(times(K, H), times(L, H))
    return sum(product[i][i] for i in range(m))


@given(st.integers(2, 7), st.floats(0.2, 2.0), st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_both_forms_are_those_of_the_slow_twin(m: int, bandwidth: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-1, 1, (2, m))
    orders = np.array([rng.permutation(m) for _ in range(4)])
    features = kernel_features(bandwidth, 2.0)
    norms = root_hsic(features.map(u), features.map(v), orders)
    for norm, order in zip(norms, [np.arange(m), *orders], strict=True):
        trace = slow_hsic(u[order], v, bandwidth)
        # the features are exact to 1e-6, and so is the square of the root
        assert norm**2 == pytest.approx(trace / m**2, abs=4e-6)
        grams = gaussian_gram(u[order][:, None], bandwidth), gaussian_gram(v[:, None], bandwidth)
        assert exact_hsic(*grams) == pytest.approx(trace / (m - 1) ** 2, abs=1e-12)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    u, v = rng.normal(size=(50, 3)), rng.normal(size=(50, 4))
    orders = draw_permutations(23, 50, rng)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(50), (23, 1)))
    at_once = root_hsic(u, v, orders)
    monkeypatch.setattr("dagveil.statistics.kernels.BLOCK", 700)
    assert np.allclose(root_hsic(u, v, orders), at_once, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- neighbour search


def climb(change: Callable[[np.ndarray], float], size: int, steps: int, rng: np.random.Generator) -> float:
    """The largest change that extremes, random moves and small moves find, from a random corner."""
    best = rng.choice([-1.0, 1.0], size)
    top = change(best)
    for step in range(steps):
        new = best.copy()
        moved = rng.random(size) < max(1.5 / size, 0.1)
        if step % 3 == 0:
            new[moved] = rng.choice([-1.0, 1.0], int(moved.sum()))
        elif step % 3 == 1:
            new[moved] = rng.uniform(-1, 1, int(moved.sum()))
        else:
            new = np.clip(new + moved * rng.normal(0, 0.1, size), -1, 1)
        value = change(new)
        if value >= top:
            best, top = new, value
    return top


def moved(case: np.ndarray, m: int, features: KernelFeatures, orders: np.ndarray) -> np.ndarray:
    """How far each root moves when slot 0 takes the last two numbers of the case."""
    u, v = case[:m], case[m : 2 * m]
    new_u, new_v = np.r_[case[2 * m], u[1:]], np.r_[case[2 * m + 1], v[1:]]
    before = root_hsic(features.map(u), features.map(v), orders)
    return np.abs(root_hsic(features.map(new_u), features.map(new_v), orders) - before)


def some_orders(m: int, rng: np.random.Generator) -> np.ndarray:
    if m <= 5:
        return np.array(list(permutations(range(m))))
    return np.array([np.roll(np.arange(m), 1), *(rng.permutation(m) for _ in range(5))])


@pytest.mark.parametrize(
    ("m", "bandwidth", "share"),
    [(3, 0.25, 0.49), (4, 0.25, 0.49), (5, 0.25, 0.62), (8, 0.5, 0.7), (40, 0.25, 0.7), (10, 3.0, 0.6)],
)
def test_no_neighbour_exceeds_the_bound_for_any_permutation(m: int, bandwidth: float, share: float) -> None:
    rng = np.random.default_rng(m)
    features, orders = kernel_features(bandwidth, 2.0), some_orders(m, rng)
    bound = root_hsic_sensitivity(m, features, features)
    tops = [climb(lambda case: moved(case, m, features, orders).max(), 2 * m + 2, 300, rng) for _ in range(4)]
    assert max(tops) <= bound
    assert max(tops) >= share * bound  # the search has teeth


@pytest.mark.parametrize("m", [10, 40, 400])
def test_the_bound_for_permutations_is_nearly_attained(m: int) -> None:
    """All slots alike but for one u and one v that the permutation brings to the changed slot."""
    features = kernel_features(0.25, 2.0)
    case = -np.ones(2 * m + 2)
    case[m - 1] = case[m + 1] = case[2 * m] = case[2 * m + 1] = 1.0
    change = moved(case, m, features, np.roll(np.arange(m), 1)[None])[1]
    bound = root_hsic_sensitivity(m, features, features)
    assert (4 * m - 10) / (4 * m - 4) * bound * 0.999 <= change <= bound
    # so the smaller bound holds for the pairs as they are only
    assert change > paired_root_hsic_sensitivity(m, features, features)


@pytest.mark.parametrize("m", [3, 5, 12, 40])
def test_no_neighbour_exceeds_the_bound_for_pairs_as_they_are(m: int) -> None:
    rng = np.random.default_rng(m)
    features = kernel_features(0.25, 2.0)
    bound = paired_root_hsic_sensitivity(m, features, features)
    tops = [climb(lambda case: moved(case, m, features, NONE)[0], 2 * m + 2, 300, rng) for _ in range(8)]
    assert 0.7 * bound <= max(tops) <= bound
    # one slot apart from all others, which are alike: 2 of √6
    lone = moved(np.r_[-np.ones(2 * m), 1.0, 1.0], m, features, NONE)[0]
    assert lone == pytest.approx(bound * 2 / math.sqrt(6), rel=1e-5)


def test_the_bound_for_pairs_is_nearly_attained() -> None:
    """In a large table the change itself, not only the lengths, can point along the covariance."""
    features, m = kernel_features(0.1, 2.0), 4000
    counts = {(-1.0, -1.0): 3590, (0.0, 0.0): 10, (1.0, -1.0): 200, (-1.0, 1.0): 200}
    pairs = np.repeat(np.array(list(counts)), list(counts.values()), axis=0)
    case = np.concatenate([[1.0], pairs[1:, 0], [1.0], pairs[1:, 1], [0.0, 0.0]])
    bound = paired_root_hsic_sensitivity(m, features, features)
    assert 0.94 * bound <= moved(case, m, features, NONE)[0] <= bound


@pytest.mark.parametrize(("m", "penalty", "share"), [(5, 1.0, 0.1), (20, 1.0, 0.08), (20, 0.2, 0.03), (12, 20.0, 0.5)])
def test_no_neighbour_exceeds_the_bound_on_residuals(m: int, penalty: float, share: float) -> None:
    """Rows (x, y, z): the regressions move along with the changed slot."""
    rng = np.random.default_rng(m)
    features, orders = kernel_features(0.5, 4.0), some_orders(m, rng)
    step = residual_sensitivity(m, penalty)
    bounds = np.full(1 + len(orders), root_hsic_sensitivity(m, features, features, step, step))
    bounds[0] = paired_root_hsic_sensitivity(m, features, features, step, step)

    def roots(rows: np.ndarray) -> np.ndarray:
        u, v = ridge_residuals(rows[:, 2:], rows[:, :2], penalty, 0.3).T
        return root_hsic(features.map(u), features.map(v), orders)

    def change(case: np.ndarray) -> float:
        rows = case[3:].reshape(m, 3)
        return float((np.abs(roots(np.vstack([case[:3], rows[1:]])) - roots(rows)) / bounds).max())

    top = max(climb(change, 3 * m + 3, 200, rng) for _ in range(2))
    assert share <= top <= 1.0


@pytest.mark.parametrize("bandwidth", [0.5, 2.0])
def test_values_that_move_along_move_the_root_by_what_is_stated(bandwidth: float) -> None:
    """v in two halves, u constant; then u moves up in one half and down in the other."""
    m, step = 40, 0.01
    features = kernel_features(bandwidth, 2.0)
    v = np.where(np.arange(m) < m // 2, 1.0, -1.0)
    before = root_hsic(features.map(np.zeros(m)), features.map(v), NONE)[0]
    after = root_hsic(features.map(step * v), features.map(v), NONE)[0]
    stated = root_hsic_sensitivity(m, features, features, step) - root_hsic_sensitivity(m, features, features)
    assert 0.7 * stated <= abs(after - before) <= stated


# ---------------------------------------------------------------------------------------------- published bounds


def hsic_by_median(x: np.ndarray) -> float:
    gram = gaussian_gram(x[:, None], median_bandwidth(x[:, None]))
    return exact_hsic(gram, gram)


def test_the_median_bandwidth_breaks_equation_4() -> None:
    """Two clusters: one record decides whether the median distance is one within them or between them."""
    m = 1000
    within = 0.001 * np.where(np.arange(m) % 2, 1.0, -1.0)
    x = np.where(np.arange(m) < 515, -0.999, 0.999) + within
    neighbour = np.where(np.arange(m) < 516, -0.999, 0.999) + within
    assert (x != neighbour).sum() == 1
    assert abs(hsic_by_median(x) - hsic_by_median(neighbour)) > 10 * published_hsic_bound(m)


@pytest.mark.parametrize(("m", "broken"), [(400, False), (1000, True), (2500, True)])
def test_equation_3_is_broken_in_large_tables(m: int, broken: bool) -> None:
    """It falls as 1/m², the effect of a record as 1/m. The median bandwidths are 2 on both sides here."""
    x = np.where(np.arange(m) < m // 2, 1.0, -1.0)
    scores = []
    for last in (-1.0, 1.0):
        rows = np.column_stack([np.r_[x[:-1], last], x])
        u, v = ridge_residuals_by_features(np.zeros((m, 1)), rows, 1.0, 1.0).T
        assert median_bandwidth(u[:, None]) == pytest.approx(2.0) == median_bandwidth(v[:, None])
        features = kernel_features(2.0, 4.0)
        scores.append((root_hsic(features.map(u), features.map(v), NONE)[0] * m / (m - 1)) ** 2)
    change = abs(scores[0] - scores[1])
    assert (change > 1.2 * published_residual_hsic_bound(m, 1.0, 2.0, 2.0)) == broken
    step = residual_sensitivity(m, 1.0)
    ours = paired_root_hsic_sensitivity(m, features, features, step, step)
    assert abs(math.sqrt(scores[0]) - math.sqrt(scores[1])) * (m - 1) / m <= ours


def test_equation_3_as_printed() -> None:
    m, penalty, wide_u, wide_v = 50, 0.7, 0.4, 1.3
    lost = 2 - math.exp(-128 / (m**2 * penalty**3 * wide_u**2)) - math.exp(-128 / (m**2 * penalty**3 * wide_v**2))
    assert published_residual_hsic_bound(m, penalty, wide_u, wide_v) == pytest.approx(
        2 * (m**2 - m) * lost / (m - 1) ** 2
    )
    assert published_hsic_bound(50) == pytest.approx(589 / 2401)
