"""Whether sites agree: the test keeps its level under noise, sees what differs, and nothing that does not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dagveil.evidence.homogeneity import Agreement, _merge, compare_releases, reject_holm
from dagveil.evidence.tables import ReleasedTables
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMoments, Release

Floats = NDArray[np.float64]
LATTICE = 64
SAME = np.array([[0.30, 0.10, 0.10], [0.05, 0.15, 0.30]])


def draw_site(
    law: Floats, rows: int, deviation: float, rng: np.random.Generator, stated: float | None = None
) -> list[Release]:
    """Release the table of x and y of one site; its stated noise may be another than the true one."""
    counts = rng.multinomial(rows, law.ravel())
    noisy = np.rint(LATTICE * (counts + deviation * rng.standard_normal(counts.size))).astype(int)
    variance = Fraction((LATTICE * (deviation if stated is None else stated)) ** 2).limit_denominator(10**6)
    return [NoisyCounts(("x", "y"), law.shape, LATTICE, variance, tuple(noisy.tolist()))]


def draw_sites(laws: list[Floats], deviation: float, seed: int, stated: float | None = None) -> Agreement:
    rng = np.random.default_rng(seed)
    return compare_releases(
        ("x", "y"), [draw_site(law, 2000 + 3000 * k, deviation, rng, stated) for k, law in enumerate(laws)]
    )


def test_without_much_noise_margins_are_compared_as_the_classical_test_does() -> None:
    rng = np.random.default_rng(5)
    laws = [SAME, SAME * [[1.1], [0.9]] / (SAME * [[1.1], [0.9]]).sum()]
    sites = [draw_site(law, 4000, 0.05, rng) for law in laws]
    found = compare_releases(("x", "y"), sites)
    for name, axis in (("x", 1), ("y", 0)):
        tables = np.stack([site[0].counts.sum(axis=axis) for site in sites])  # type: ignore[union-attr]
        classical = stats.chi2_contingency(tables, correction=False)
        assert np.log(found.columns[name]) == pytest.approx(np.log(classical.pvalue), abs=0.05, rel=0.02)


def test_the_noise_of_a_table_put_together_from_margins_has_this_covariance() -> None:
    rng = np.random.default_rng(3)
    deviations = {(): 40.0, ("x",): 9.0, ("y",): 15.0, ("x", "y"): 4.0}
    laws, drawn = [], []
    for _ in range(2000):
        releases: list[Release] = []
        for columns, deviation in deviations.items():
            levels = tuple({"x": 2, "y": 3}[name] for name in columns)
            scale = LATTICE * math.prod(levels)
            values = tuple(np.rint(scale * deviation * rng.standard_normal(math.prod(levels))).astype(int).tolist())
            kind = NoisyInteractions if columns else NoisyCounts
            releases.append(kind(columns, levels, LATTICE, Fraction(scale * deviation) ** 2, values))
        of = ReleasedTables(releases)
        table = of.find(("x", "y"))
        assert table is not None
        laws = [_merge([table], np.eye(2), np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), [of.total])]
        drawn.append(laws[0].counts.ravel())
    (law,) = laws
    without = law.variance[0] * np.kron(law.first[0], law.second[0])
    stated = without + law.beyond[0] * np.kron(np.outer(law.a, law.a), np.outer(law.b, law.b))
    close = {"rel": 0.15, "abs": 0.08 * stated.max()}
    assert np.cov(np.array(drawn).T) == pytest.approx(stated, **close)
    assert np.cov(np.array(drawn).T) != pytest.approx(without, **close)


@pytest.mark.parametrize("deviation", [0.5, 20.0])
def test_sites_of_one_law_are_told_apart_as_often_as_the_level_says(deviation: float) -> None:
    p_values = [draw_sites([SAME] * 3, deviation, seed) for seed in range(200)]
    for name in ("x", "y"):
        share = np.mean([one.columns[name] < 0.05 for one in p_values])
        assert 0.02 < share < 0.09
    assert np.mean([one.pairs[("x", "y")] < 0.05 for one in p_values]) < 0.09
    assert np.mean([bool(one.differing_columns) for one in p_values]) < 0.09


def test_a_test_that_does_not_know_the_noise_claims_differences() -> None:
    claims = [bool(draw_sites([SAME] * 3, 60.0, seed, stated=6.0).differing_columns) for seed in range(50)]
    assert np.mean(claims) > 0.5


def test_another_margin_alone_is_no_other_dependence() -> None:
    """The law of x given y differs, so that the p-value is that of y given x, which does not."""
    shifted = SAME * [[1.8], [0.2]]
    found = [draw_sites([SAME, shifted / shifted.sum()], 10.0, seed) for seed in range(200)]
    assert all(set(one.differing_columns) == {"x", "y"} for one in found)
    assert 0.02 < np.mean([one.pairs[("x", "y")] < 0.05 for one in found]) < 0.09


def test_columns_that_do_not_depend_on_each_other_do_so_nowhere() -> None:
    laws = [np.outer([0.5, 0.5], [0.2, 0.3, 0.5]), np.outer([0.7, 0.3], [0.5, 0.3, 0.2])]
    found = [draw_sites(laws, 10.0, seed) for seed in range(100)]
    assert all(set(one.differing_columns) == {"x", "y"} for one in found)
    assert np.mean([bool(one.differing_pairs) for one in found]) < 0.1


def test_another_dependence_is_seen_although_margins_agree() -> None:
    turned = SAME.sum(axis=1, keepdims=True) * SAME.sum(axis=0)
    found = [draw_sites([SAME, SAME, turned], 10.0, seed) for seed in range(20)]
    assert all(one.differing_pairs == (("x", "y"),) for one in found)
    assert sum(bool(one.differing_columns) for one in found) <= 4


def test_levels_that_noise_hides_at_a_site_are_merged_and_a_new_level_is_still_seen() -> None:
    gone = np.array([[0.30, 0.00, 0.10], [0.05, 0.00, 0.55]])
    assert draw_sites([gone, gone], 5.0, 1).differing_columns == ()
    there = np.array([[0.10, 0.30, 0.10], [0.05, 0.20, 0.30]])
    assert draw_sites([gone, there / there.sum()], 5.0, 1).columns["y"] < 1e-9


def test_holm_rejects_step_by_step() -> None:
    assert reject_holm({"a": 0.02, "b": 0.6, "c": 0.001, "d": 0.04}) == ("c",)
    assert reject_holm({"a": 0.012, "b": 0.6, "c": 0.001, "d": 0.02}) == ("c", "a", "d")
    assert reject_holm({}) == ()


def draw_moments(law: Floats, rows: int, deviation: float, rng: np.random.Generator) -> list[Release]:
    """Release the moments of x, with a mean and a deviation, and of y, which hangs on x by a slope."""
    mean, spread, slope = law
    x = mean + spread * rng.standard_normal(rows)
    data = np.column_stack([np.full(rows, 1.5), x, slope * x + 0.4 * rng.standard_normal(rows)])
    noise = np.sqrt(2.0) * deviation * rng.standard_normal((3, 3))
    upper = 4.0**6 * (data.T @ data + (noise + noise.T) / 2)[np.triu_indices(3)]
    variance = Fraction((4.0**6 * deviation) ** 2).limit_denominator(10**6)
    values = tuple(np.rint(upper).astype(int).tolist())
    return [NoisyMoments(("x", "y"), (0.0, 0.0), (1.0, 1.0), 99.0, 1.5, 6, variance, 2 * variance, values)]


def compare_moments(laws: list[list[float]], deviation: float, seed: int) -> Agreement:
    rng = np.random.default_rng(seed)
    return compare_releases(
        ("x", "y"), [draw_moments(np.array(law), 2000 + 3000 * k, deviation, rng) for k, law in enumerate(laws)]
    )


@pytest.mark.parametrize("deviation", [1.0, 60.0])
def test_moments_of_one_law_are_told_apart_as_often_as_the_level_says(deviation: float) -> None:
    found = [compare_moments([[0.3, 0.7, 0.6]] * 3, deviation, seed) for seed in range(600)]
    for name in ("x", "y"):
        assert 0.025 < np.mean([one.columns[name] < 0.05 for one in found]) < 0.08
    # the slope of x on y differs, so that the p-value is that of y on x, which does not
    wider = [compare_moments([[0.3, 0.7, 0.6], [0.3, 1.4, 0.6]], deviation, seed) for seed in range(600)]
    assert 0.025 < np.mean([one.pairs[("x", "y")] < 0.05 for one in wider]) < 0.08


def test_moments_tell_another_mean_from_another_slope() -> None:
    shifted = [compare_moments([[0.0, 0.7, 0.6], [0.3, 0.7, 0.6]], 10.0, seed) for seed in range(50)]
    assert all("x" in one.differing_columns for one in shifted)
    assert np.mean([bool(one.differing_pairs) for one in shifted]) < 0.15
    assert compare_moments([[0.0, 0.7, 0.6], [0.0, 0.7, 0.3]], 10.0, 1).differing_pairs == (("x", "y"),)
