"""Rules for the direction of one pair: known answers, and slow twins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from dagveil.local.pairwise import (
    BANDWIDTH,
    PENALTY,
    compare_conditionals,
    compare_entropies,
    compare_regression_errors,
    compare_residuals,
    conditional_variability,
    normalised_hsic,
    regression_error,
    residual_dependence,
    scale_to_unit,
    spacing_entropy,
)
from dagveil.statistics.kernels import gaussian_gram, median_bandwidth
from dagveil.statistics.residuals import ridge_residuals
from slow_twins import exact_hsic

RULES = [compare_regression_errors, compare_entropies, compare_conditionals, compare_residuals]


def draw_pair(seed: int, rule: object) -> tuple[np.ndarray, np.ndarray]:
    """Cause and effect as the rule assumes them."""
    rng = np.random.default_rng(seed)
    cause = rng.uniform(-1.0, 1.0, 600)
    if rule is compare_entropies:
        return cause, cause**3
    if rule is compare_regression_errors:
        return cause, cause**2 + rng.normal(0.0, 0.05, 600)
    return cause, cause + cause**3 + rng.uniform(-0.4, 0.4, 600)


@pytest.mark.parametrize("rule", RULES)
def test_the_cause_is_found_and_the_answer_turns_with_the_pair(rule) -> None:
    right = 0
    for seed in range(10):
        cause, effect = draw_pair(seed, rule)
        forward = rule(cause, effect)
        assert rule(effect, cause) == pytest.approx(-forward)
        right += forward > 0.0
    assert right >= 9


@pytest.mark.parametrize("rule", RULES)
def test_units_do_not_matter(rule) -> None:
    cause, effect = draw_pair(3, rule)
    assert rule(7.0 * cause - 2.0, 0.01 * effect + 5.0) == pytest.approx(rule(cause, effect), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 2**31), levels=st.integers(1, 4), n=st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_few_values_and_constants_are_answered(rule, seed: int, levels: int, n: int) -> None:
    codes = np.random.default_rng(seed).integers(0, levels, (2, n)).astype(float)
    assert np.isfinite(rule(codes[0], codes[1]))


def test_regression_error_is_that_of_a_polynomial_fit() -> None:
    rng = np.random.default_rng(0)
    x, y = scale_to_unit(rng.normal(size=80)), rng.normal(size=80)
    fit = np.polynomial.Polynomial.fit(x, y, 3)
    assert regression_error(x, y) == pytest.approx(np.mean((y - fit(x)) ** 2))


def test_spacing_entropy_by_hand() -> None:
    values = np.array([0.0, 2.0, 1.0, 1.0])
    # gaps 1, 0, 1: the zero is left out of the sum and stays in the divisor
    assert spacing_entropy(values) == pytest.approx(special.digamma(4) - special.digamma(1))
    spread = np.random.default_rng(1).uniform(0.0, 3.0, 20_000)
    assert spacing_entropy(spread) == pytest.approx(np.log(3.0), abs=0.03)


def test_conditional_variability_by_counting() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=400), rng.normal(size=400)
    z = (x - x.mean()) / x.std()
    rows = []
    for cell in range(-6, 7):
        inside = [y[i] for i in range(400) if min(6, max(-6, round(2 * z[i]))) == cell]
        if len(inside) > 12:
            middle, spread = np.mean(inside), np.std(inside)
            counts = Counter(min(6, max(-6, round(2 * (v - middle) / spread))) for v in inside)
            rows.append([counts[k] / len(inside) for k in range(-6, 7)])
    table = np.array(rows)
    assert conditional_variability(x, y) == pytest.approx(np.sqrt(((table - table.mean(axis=0)) ** 2).mean()))


def test_features_agree_with_gram_matrices() -> None:
    rng = np.random.default_rng(3)
    u, v = rng.uniform(-1.0, 1.0, 120), rng.uniform(-1.0, 1.0, 120) ** 3
    v = np.clip(v + 0.5 * u, -1.0, 1.0)
    grams = [gaussian_gram(c[:, None], median_bandwidth(c[:, None])) for c in (u, v)]
    slow = exact_hsic(*grams) / np.sqrt(exact_hsic(grams[0], grams[0]) * exact_hsic(grams[1], grams[1]))
    assert normalised_hsic(u, v) == pytest.approx(slow, rel=1e-4)
    left = ridge_residuals(u[:, None], v, PENALTY, BANDWIDTH)
    assert residual_dependence(u, v) == pytest.approx(normalised_hsic(u, left), rel=1e-3)
