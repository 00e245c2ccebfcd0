"""Rules for pairs as cdt has them: against slow twins written from their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.local.pairwise import compare_conditionals, compare_regression_errors, standardise
from dagveil.statistics.kernels import gaussian_gram
from dagveil_bench.cdt_rules import (
    JITTER,
    compare_aligned_conditionals,
    compare_cubes,
    compare_gaussian_processes,
    few_point_hsic,
    process_residuals,
)


def draw_pair(n: int, seed: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    cause = rng.integers(0, bins, n).astype(float)
    effect = np.round((cause / bins) ** 3 * bins + rng.normal(0, 1, n))
    return cause, effect


@pytest.mark.parametrize("seed", range(3))
def test_a_process_needs_one_equation_for_each_value(seed: int) -> None:
    given, target = (standardise(column) for column in draw_pair(80, seed, 6))
    gram = gaussian_gram(given[:, None] + 1e-12 * np.arange(80)[:, None], 1.0)
    fitted = gram @ np.linalg.solve(gram + JITTER * np.eye(80), target)
    assert np.allclose(process_residuals(given, target), target - fitted, atol=1e-3)


def test_the_criterion_sees_dependence_and_reads_few_rows() -> None:
    rng = np.random.default_rng(1)
    u = rng.normal(size=4000)
    alone, together = few_point_hsic(u, rng.normal(size=4000)), few_point_hsic(u, u**2)
    assert together > 5 * alone
    rows = np.floor(np.linspace(0, 3999, 200)).astype(int)
    changed = u.copy()
    kept = np.isin(np.arange(4000), rows)
    changed[~kept] = rng.permutation(u[~kept])  # the same mean and spread, other rows
    assert few_point_hsic(changed, u**2) == pytest.approx(together, rel=1e-9)


def test_the_cube_alone_is_another_rule_than_a_polynomial() -> None:
    cause = np.linspace(0.0, 1.0, 200)
    assert compare_cubes(cause, cause**3) > 0.0
    # what goes up and down is no monotone cube, but is a polynomial
    assert abs(compare_regression_errors(cause, (cause - 0.5) ** 2)) > 3 * abs(compare_cubes(cause, (cause - 0.5) ** 2))


def test_laws_of_few_values_are_moved_onto_each_other() -> None:
    """The effect is the cause plus a skewed step: once moved, its law is the same for every cause."""
    rng = np.random.default_rng(2)
    cause = rng.integers(0, 4, 4000).astype(float)
    effect = cause + rng.choice([0.0, 1.0, 2.0], 4000, p=[0.6, 0.3, 0.1])
    assert compare_aligned_conditionals(cause, effect) > 0.05
    assert compare_aligned_conditionals(cause, effect) != pytest.approx(compare_conditionals(cause, effect))


def test_the_process_finds_the_cause_of_additive_noise() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(10):
        cause = np.round(rng.uniform(-3, 3, 400), 1)
        found.append(compare_gaussian_processes(cause, np.round(cause**2 + rng.uniform(-1, 1, 400), 1)) > 0.0)
    assert sum(found) >= 9
