"""Exact RCIT against slow twins, its level, and the published guarantee broken."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dagveil.errors import EvidenceError
from dagveil.papers import zhang2023 as module
from dagveil.papers.publication import published_p_values
from dagveil.papers.zhang2023 import (
    PcdPublished,
    PublishedDecision,
    Rcit,
    RcitForm,
    RcitScale,
    RcitSettings,
    exact_rcit,
    feature_rcit,
    kendall_p_value,
    published_hsic_bound,
    published_p_value_range,
    published_residual_hsic_bound,
)
from dagveil.statistics.kernels import draw_permutations, gaussian_gram, median_bandwidth
from dagveil.statistics.residuals import ridge_residuals
from dagveil_bench.levels import Design, draw_design
from slow_twins import exact_hsic

LEVEL = 0.05


def slow_rcit(x: np.ndarray, y: np.ndarray, z: np.ndarray | None, chosen: RcitSettings, seed: int) -> Rcit:
    """Whole Gram matrices, permuted one by one."""
    if z is not None:
        width = chosen.bandwidth or median_bandwidth(z)
        ridge = chosen.penalty * (0.5 * len(x) if chosen.scale is RcitScale.EQUATIONS else 1.0)
        system = gaussian_gram(z, width) + ridge * np.eye(len(x))
        x, y = (w - np.clip(w - ridge * np.linalg.solve(system, w), -1, 1) for w in (x, y))
    widths = [chosen.bandwidth or median_bandwidth(w[:, None]) for w in (x, y)]
    K, L = gaussian_gram(x[:, None], widths[0]), gaussian_gram(y[:, None], widths[1])
    score = exact_hsic(K, L)
    permuted = []
    for order in draw_permutations(chosen.permutations, len(x), np.random.default_rng(seed)):
        permuted.append(exact_hsic(np.array([[K[i, j] for j in order] for i in order]), L))
    p_value = sum(score < other for other in permuted) / len(permuted)
    factor = 1.0 if chosen.scale is RcitScale.EQUATIONS else float(len(x))
    return Rcit(
        p_value, factor * score, factor * np.array(permuted), widths[0], widths[1], 0 if z is None else z.shape[1]
    )


@given(
    st.integers(0, 4),
    st.sampled_from([None, 0.4]),
    st.sampled_from([1.0, 0.05]),
    st.sampled_from(RcitScale),
    st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_exact_rcit_is_its_slow_twin(
    width: int, bandwidth: float | None, penalty: float, scale: RcitScale, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    m = 25
    z = rng.uniform(-1, 1, (m, width)) if width else None
    x = rng.uniform(-1, 1, m)
    y = np.clip(0.5 * x + 0.5 * rng.uniform(-1, 1, m), -1, 1)
    chosen = RcitSettings(penalty, 20, bandwidth, scale)
    fast = exact_rcit(x, y, z, chosen, np.random.default_rng(seed))
    slow = slow_rcit(x, y, z, chosen, seed)
    assert fast.score == pytest.approx(slow.score, abs=1e-8)
    assert np.allclose(fast.permuted, slow.permuted, atol=1e-8)
    assert fast.p_value == slow.p_value
    assert (fast.n_given, slow.n_given) == (width, width)
    assert fast.bandwidth_u == pytest.approx(slow.bandwidth_u, abs=1e-8)


def test_factor_and_whole_system_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, y, z = rng.uniform(-1, 1, 300), rng.uniform(-1, 1, 300), rng.uniform(-1, 1, (300, 2))
    by_factor = exact_rcit(x, y, z, RcitSettings(), np.random.default_rng(0))
    monkeypatch.setattr(module, "LOW_RANK", 5)
    whole = exact_rcit(x, y, z, RcitSettings(), np.random.default_rng(0))
    assert np.allclose(by_factor.permuted, whole.permuted, rtol=1e-6)
    assert by_factor.score == pytest.approx(whole.score, rel=1e-6)


@pytest.mark.parametrize("width", [0, 1, 3])
def test_the_linear_form_is_close_to_the_exact_one(width: int) -> None:
    rng = np.random.default_rng(width)
    m = 400
    z = rng.uniform(-1, 1, (m, width)) if width else None
    x = rng.uniform(-1, 1, m)
    y = np.clip(x**2 - 0.5 + 0.3 * rng.uniform(-1, 1, m), -1, 1)
    exact = exact_rcit(x, y, z, RcitSettings(), np.random.default_rng(0))
    linear = feature_rcit(x, y, z, RcitSettings(), np.random.default_rng(0))
    assert linear.score == pytest.approx(exact.score, rel=0.02)
    assert linear.p_value == exact.p_value == 0.0
    assert linear.n_given == width


def test_a_single_column_may_be_flat_and_no_columns_are_none() -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.uniform(-1, 1, (3, 40))
    for test in (exact_rcit, feature_rcit):
        flat = test(x, y, z, RcitSettings(), np.random.default_rng(0))
        assert flat.score == test(x, y, z[:, None], RcitSettings(), np.random.default_rng(0)).score
        empty = test(x, y, np.empty((40, 0)), RcitSettings(), np.random.default_rng(0))
        assert empty.score == test(x, y, None, RcitSettings(), np.random.default_rng(0)).score
        with pytest.raises(EvidenceError, match="too few"):
            test(x[:1], y[:1], None, RcitSettings(), rng)
        constant = test(np.zeros(40), y, None, RcitSettings(), rng)
        assert constant.score == pytest.approx(0.0, abs=1e-12)


def test_narrow_columns_and_no_permutations() -> None:
    """A median distance far below the range must not stop the linear form."""
    rng = np.random.default_rng(0)
    x = 1e-6 * rng.uniform(-1, 1, 300)
    x[:3] = 1.0
    answer = feature_rcit(x, rng.uniform(-1, 1, 300), x, RcitSettings(), rng)
    assert 0.0 <= answer.p_value <= 1.0
    with pytest.raises(EvidenceError, match="permutations"):
        RcitSettings(permutations=0)
    with pytest.raises(EvidenceError, match="bandwidth"):
        exact_rcit(x, x, None, RcitSettings(bandwidth=0.0), rng)


@pytest.mark.parametrize("test", [exact_rcit, feature_rcit])
@pytest.mark.parametrize("width", [0, 1])
def test_level_under_independence(test: object, width: int) -> None:
    """A share of k permuted scores at or below the level comes with probability (⌊αk⌋ + 1)/(k + 1)."""
    rng = np.random.default_rng(11)
    runs, m, chosen = 250, 60, RcitSettings(permutations=40)
    rejected = 0
    for _ in range(runs):
        x, y = rng.uniform(-1, 1, (2, m)) ** 3
        z = rng.uniform(-1, 1, (m, width)) if width else None
        rejected += test(x, y, z, chosen, rng).p_value <= LEVEL  # type: ignore[operator]
    expected = (math.floor(LEVEL * 40) + 1) / 41
    assert binom.cdf(rejected, runs, expected) > 1e-6
    assert binom.sf(rejected - 1, runs, expected) > 1e-6


def test_theorem_4_as_printed() -> None:
    permuted = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    answer = Rcit(0.5, 0.25, permuted, 0.5, 0.7, 0)
    step = published_hsic_bound(200)
    assert published_p_value_range(answer, 200, RcitSettings()) == (
        sum(other - 2 * step > 0.25 for other in permuted) / 6,
        sum(other + 2 * step > 0.25 for other in permuted) / 6,
    )
    given_two = Rcit(0.5, 0.25, permuted, 0.5, 0.7, 2)
    step = published_residual_hsic_bound(200, 0.9, 0.5, 0.7)
    assert published_p_value_range(given_two, 200, RcitSettings(penalty=0.9)) == (
        sum(other - 2 * step > 0.25 for other in permuted) / 6,
        sum(other + 2 * step > 0.25 for other in permuted) / 6,
    )


def chance_of_deletion(rows: np.ndarray, chosen: RcitSettings, epsilon: float) -> float:
    """Algorithm 1 for one question, given its permutations: the chance that the edge is deleted."""
    answer = exact_rcit(rows[:, 0], rows[:, 1], None, chosen, np.random.default_rng(5))
    low, high = published_p_value_range(answer, len(rows), chosen)
    p = answer.p_value
    if p > LEVEL:
        step, sure = p - low, 1.0
        noisy = p - step <= LEVEL
    else:
        step, sure = high - p, 0.0
        noisy = p + step >= LEVEL
    if not noisy:
        return sure
    # P(p + Lap(4Δ/ε) ≥ α + Lap(2Δ/ε)): the law of the difference of two Laplace variables
    a, b, gap = 4 * step / epsilon, 2 * step / epsilon, abs(LEVEL - p)
    tail = (a**2 * math.exp(-gap / a) - b**2 * math.exp(-gap / b)) / (2 * (a**2 - b**2))
    return tail if p <= LEVEL else 1.0 - tail


def test_the_noiseless_branch_of_algorithm_1_tells_neighbours_apart() -> None:
    """The bandwidth is public and the bound of theorem 1 holds, and still epsilon is infinite."""
    m, chosen = 1000, RcitSettings(bandwidth=0.5)

    def table(turned: int) -> np.ndarray:
        x = np.where(np.arange(m) % 2, 1.0, -1.0)
        return np.column_stack([x, np.where(np.arange(m) < turned, -x, x)])

    low, high = 0, m // 2  # records that contradict the others, one by one
    assert chance_of_deletion(table(low), chosen, 1.0) == 0.0
    assert chance_of_deletion(table(high), chosen, 1.0) > 0.4
    while high - low > 1:
        middle = (low + high) // 2
        if chance_of_deletion(table(middle), chosen, 1.0) == 0.0:
            low = middle
        else:
            high = middle
    assert (table(low) != table(high)).any(axis=1).sum() == 1
    assert chance_of_deletion(table(low), chosen, 1.0) == 0.0
    assert chance_of_deletion(table(high), chosen, 1.0) > 0.4


def test_residuals_of_the_publication_underfit() -> None:
    """λ = 1: x and y are independent given z, and the test says they are not; a smaller λ repairs it."""
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, 500)
    x, y = (np.clip(0.8 * np.sin(3 * z) + 0.2 * rng.uniform(-1, 1, 500), -1, 1) for _ in range(2))
    assert exact_rcit(x, y, z, RcitSettings(), rng).p_value == 0.0
    assert exact_rcit(x, y, z, RcitSettings(penalty=1e-3), rng).p_value > LEVEL
    assert np.var(ridge_residuals(z[:, None], x, 1e-3, 0.5)) < 0.1 * np.var(ridge_residuals(z[:, None], x, 1.0, 0.5))


def test_kendall_within_the_algorithm_is_the_published_p_value() -> None:
    rng = np.random.default_rng(4)
    x, y, z = (rng.integers(0, 3, 90) for _ in range(3))
    counts = np.zeros((3, 3, 3), dtype=np.int64)
    np.add.at(counts, (z, x, y), 1)
    found = kendall_p_value(x.astype(float), y.astype(float), z[:, None].astype(float))
    assert found == pytest.approx(float(published_p_values(counts)), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_kendall_within_the_algorithm_rejects_whatever_is_asked_given_numbers(epsilon: float) -> None:
    """Every value of Z is its own block, and no answer gets noise: the publication's type II error is 0."""
    rng = np.random.default_rng(5)
    rows = {name: rng.uniform(-1, 1, 60) for name in "xyz"}
    decision = PublishedDecision(rows, epsilon, PcdPublished(statistic=RcitForm.KENDALL), rng)
    assert not any(decision.is_independent(("x", "y", ("z",))) for _ in range(50))
    assert decision.noisy_answers == 0
    assert any(decision.is_independent(("x", "y", ())) for _ in range(50))


def test_the_customary_scale_has_the_level_and_power_that_are_printed() -> None:
    """500 rows: type I error falls far below ½ and power is 1; in the scale of the equations neither holds."""
    errors, powers = {}, {}
    for scale in RcitScale:
        chosen = PcdPublished(scale=scale)
        samples = [draw_design(500, np.random.default_rng(seed)) for seed in range(12)]
        for found, design in ((errors, Design.CONDITIONAL_NULL), (powers, Design.MARGINAL_POWER)):
            rejected = [
                not PublishedDecision(rows, 8.0, chosen, np.random.default_rng(seed)).is_independent(design.question)
                for seed, rows in enumerate(samples)
            ]
            found[scale] = np.mean(rejected)
    assert errors[RcitScale.CUSTOMARY] < 0.35 < 0.9 < errors[RcitScale.EQUATIONS]
    assert powers[RcitScale.CUSTOMARY] == 1.0
