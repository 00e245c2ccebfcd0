"""Laws and slopes: intervals cover, parts of the variance are those of redraws, and rare strata do not blow up."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dagveil.effects.components import Components
from dagveil.effects.estimate import estimate_additive_law, estimate_slope, find_unshrunk
from dagveil.effects.tables import Law, estimate_law
from dagveil.evidence.graphical_model import project
from dagveil.examples.networks import LinearGaussian, gaussian_schema, sample_linear_gaussian
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.release import NoisyCounts, NoisyInteractions, NoisyMoments
from dagveil.runs.discovery import measure_source

Floats = NDArray[np.float64]
LEVELS = {"x": 2, "y": 3, "z": 3, "w": 2}


def release(
    names: Sequence[str], counts: Floats, sd: float, rng: np.random.Generator, lattice: int = 16
) -> NoisyCounts:
    values = np.rint(lattice * (counts + rng.normal(0.0, sd, counts.shape))).astype(int)
    variance = Fraction(max(sd, 1e-6) * lattice) ** 2
    return NoisyCounts(tuple(names), counts.shape, lattice, variance, tuple(values.ravel().tolist()))


def interaction(
    names: Sequence[str], counts: Floats, sd: float, rng: np.random.Generator, lattice: int = 16
) -> NoisyInteractions:
    exact = counts.copy()
    for axis in range(counts.ndim):
        exact = exact * counts.shape[axis] - exact.sum(axis=axis, keepdims=True)
    scale = lattice * counts.size
    values = np.rint(lattice * exact + rng.normal(0.0, sd * scale, counts.shape)).astype(int)
    return NoisyInteractions(
        tuple(names), counts.shape, lattice, Fraction(sd * scale) ** 2, tuple(values.ravel().tolist())
    )


def draw_model(seed: int, strata: int, *, additive: bool = False) -> tuple[Floats, Floats]:
    """P(x, y, z) as an array, and P(y | do(x))."""
    rng = np.random.default_rng(seed)
    pz = rng.dirichlet(np.full(strata, 2.0))
    px = rng.dirichlet(np.full(2, 3.0), size=strata)
    py = rng.dirichlet(np.full(3, 1.5), size=(strata, 2))
    if additive:
        shift = rng.dirichlet(np.full(3, 1.5), size=strata)[:, None, :] / 2.0
        py = shift + rng.dirichlet(np.full(3, 1.5), size=2)[None] / 2.0
    joint = pz[:, None, None] * px[:, :, None] * py
    return joint.transpose(1, 2, 0), (pz[:, None, None] * py).sum(axis=0)


def estimate_many(
    joint: Floats, rows: int, sd: float, repeats: int, seed: int, *, additive: bool = False
) -> tuple[list[Law], Floats]:
    rng = np.random.default_rng(seed)
    laws, values = [], []
    for _ in range(repeats):
        counts = rng.multinomial(rows, joint.ravel()).reshape(joint.shape).astype(float)
        if additive:
            pairs = [(("x", "y"), counts.sum(2)), (("x", "z"), counts.sum(1)), (("y", "z"), counts.sum(0))]
            parts = Components(LEVELS, [release(names, table, sd, rng) for names, table in pairs])
            laws.append(estimate_additive_law(parts, "x", "y", ("z",)))
        else:
            parts = Components(LEVELS | {"z": joint.shape[2]}, [release(("x", "y", "z"), counts, sd, rng)])
            laws.append(estimate_law(parts, "x", "y", ("z",)))
        values.append(laws[-1].mean[1] - laws[-1].mean[0])
    return laws, np.array(values)


@pytest.mark.parametrize(("rows", "sd", "strata"), [(20_000, 1.4, 3), (20_000, 20.0, 3), (3_000, 5.0, 6)])
def test_intervals_cover_the_truth(rows: int, sd: float, strata: int) -> None:
    covered = []
    for seed in range(6):
        joint, truth = draw_model(seed, strata)
        laws, values = estimate_many(joint, rows, sd, 60, seed)
        deviations = np.sqrt([law.contrast(1, 0)[1] for law in laws])
        covered.append(np.abs(values - (truth[1] - truth[0])) <= 1.96 * deviations)
    # contrasts of a table are dependent: 360 tables give a standard error of a hundredth
    assert 0.92 <= np.mean(covered) <= 0.985


@pytest.mark.parametrize(("sd", "additive"), [(0.0, False), (30.0, False), (0.0, True), (60.0, True)])
def test_the_delta_method_gives_the_variance_of_redraws(sd: float, additive: bool) -> None:
    joint, truth = draw_model(3, 3, additive=additive)
    laws, values = estimate_many(joint, 40_000, sd, 500, 1, additive=additive)
    told = np.mean([law.sampling[1, 0] + law.noise[1, 0] for law in laws], axis=0)
    assert values.var(axis=0) == pytest.approx(told, rel=0.25)
    assert np.abs(values.mean(axis=0) - (truth[1] - truth[0])).max() < 5 * np.sqrt(told.max() / 500) + 2e-4
    if sd:
        # a wrong noise would show: without it the variance is far too small
        quiet = np.mean([law.sampling[1, 0] for law in laws], axis=0)
        assert np.all(values.var(axis=0) > 1.3 * quiet)


def test_rare_strata_do_not_blow_up() -> None:
    joint, _ = draw_model(0, 3)
    rng = np.random.default_rng(1)
    wide = np.zeros((2, 3, 40))
    wide[:, :, :3] = rng.multinomial(500, joint.ravel()).reshape(joint.shape)
    parts = Components(LEVELS | {"z": 40}, [release(("x", "y", "z"), wide, 10.0, rng)])
    law = estimate_law(parts, "x", "y", ("z",))
    assert np.all((law.mean >= 0.0) & (law.mean <= 1.0))
    assert law.mean.sum(axis=1) == pytest.approx(1.0)
    assert law.thin.max() > 0.1
    assert np.sqrt(law.variance(0)).max() < 1.0


def test_a_level_below_its_noise_is_hidden() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((2, 3))
    counts[0] = 1000.0
    parts = Components(LEVELS, [release(("x", "y"), counts, 30.0, rng)])
    assert estimate_law(parts, "x", "y", ()).hidden.tolist() == [False, True]


def test_components_put_tables_together_and_know_their_noise() -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(50, 500, (2, 3, 3)).astype(float)
    coefficients = rng.normal(size=counts.shape)
    sums, told = [], 0.0
    for _ in range(600):
        released = [
            release((), np.array(counts.sum()), 3.0, rng),
            interaction(("x",), counts.sum(axis=(1, 2)), 2.0, rng),
            interaction(("y",), counts.sum(axis=(0, 2)), 2.0, rng),
            interaction(("z",), counts.sum(axis=(0, 1)), 2.0, rng),
            interaction(("x", "y"), counts.sum(axis=2), 4.0, rng),
            interaction(("z", "x"), counts.sum(axis=1).T, 4.0, rng),
            interaction(("y", "z"), counts.sum(axis=0), 4.0, rng),
            interaction(("x", "y", "z"), counts, 6.0, rng),
            release(("y", "z"), counts.sum(axis=0), 5.0, rng),
        ]
        parts = Components(LEVELS, released)
        assert not parts.missing(("x", "y", "z"))
        sums.append(float((parts.table(("x", "y", "z")) * coefficients).sum()))
        told = parts.noise_variance({("x", "y", "z"): coefficients})
    assert np.mean(sums) == pytest.approx(float((counts * coefficients).sum()), abs=5 * np.sqrt(told / 600))
    assert np.var(sums) == pytest.approx(told, rel=0.2)
    assert Components(LEVELS, released[:5]).missing(("x", "y", "z")) == [("x", "z"), ("y", "z"), ("x", "y", "z")]


def test_projection_keeps_the_total_and_no_negative_rows() -> None:
    found = project(np.array([10.0, -3.0, 5.0, 0.5]), 12.0)
    assert found.min() >= 0.0
    assert found.sum() == pytest.approx(12.0)
    assert found.tolist() == pytest.approx([8.5, 0.0, 3.5, 0.0])


def test_slopes_cover_the_truth_where_rows_were_shrunk() -> None:
    weights = np.zeros((4, 4))
    weights[0, 1], weights[0, 2], weights[1, 2], weights[2, 3] = 0.8, -0.7, 0.9, 0.5
    model = LinearGaussian(("a", "b", "c", "d"), weights, np.ones(4))
    schema = gaussian_schema(model, 5000)
    errors, deviations, bent = [], [], []
    for seed in range(60):
        rows = sample_linear_gaussian(model, 5000, np.random.default_rng(seed))
        table = {name: rows[:, i] for i, name in enumerate(model.nodes)}
        evidence = measure_source(table, schema, 1, noise=NoiseKind.SEEDED, seed=seed)
        moments = next(one for one in evidence.releases if isinstance(one, NoisyMoments))
        slope = estimate_slope(moments, "b", "c", ("a",))
        errors.append(slope.value - 0.9)
        deviations.append(np.sqrt(slope.variance))
        bent.append(slope.bent)
        assert np.linalg.eigvalsh(find_unshrunk(moments)).min() > 0.0
    # shrinking alone would move the slope by more than an interval is wide
    assert np.mean(bent) > 0.05
    assert abs(np.mean(errors)) < 0.04
    assert np.mean(np.abs(errors) <= 1.96 * np.array(deviations)) > 0.88
