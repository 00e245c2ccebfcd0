"""Levels under the null and power under dependence, by simulation.

Many independent replicates become one evidence: replicate r has its own columns x_r, y_r, z_r, and only the tables
inside a replicate exist. One batch then tests all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable

N_ROWS = 5000
REPLICATES = 3000
BATCH = 150
NOMINAL = 0.01


def chain_law(levels: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """P(x, y, z) of x ← z → y; no level is rarer than about a twentieth."""
    a, b, c = levels
    pz = rng.dirichlet(np.full(c, 8.0))
    px, py = rng.dirichlet(np.full(a, 4.0), c), rng.dirichlet(np.full(b, 4.0), c)
    return np.einsum("z,zx,zy->xyz", pz, px, py)


def fork_law(rng: np.random.Generator) -> np.ndarray:
    """P(x, y, z₁, z₂) of x ← (z₁, z₂) → y with interactions, so that main effects alone do not separate."""
    pz = rng.dirichlet(np.full(6, 8.0)).reshape(2, 3)
    px, py = rng.dirichlet(np.full(2, 3.0), (2, 3)), rng.dirichlet(np.full(3, 3.0), (2, 3))
    return np.einsum("uv,uvx,uvy->xyuv", pz, px, py)


def replicate(
    law: np.ndarray, sets: list[tuple[int, ...]], deviation: float, rng: np.random.Generator, replicates: int
) -> PairEvidence:
    """Evidence of so many independent tables drawn from one law."""
    tables, columns = [], []
    samples = rng.multinomial(N_ROWS, law.reshape(-1), size=replicates).reshape(replicates, *law.shape)
    for r, sample in enumerate(samples):
        columns += [f"{axis}/{r}" for axis in range(law.ndim)]
        for axes in sets:
            counts = sample.sum(axis=tuple(axis for axis in range(law.ndim) if axis not in axes)).astype(float)
            counts += deviation * rng.standard_normal(counts.shape)
            variance = max(deviation**2, 1e-9)
            tables.append(NoisyTable(tuple(f"{axis}/{r}" for axis in axes), counts, variance))
    return marginal_evidence(columns, tables)


def p_values(
    law: np.ndarray, sets: list[tuple[int, ...]], given: tuple[int, ...], deviation: float, replicates: int = REPLICATES
) -> np.ndarray:
    """p-values of (first axis, second axis, given) in many replicates."""
    rng = np.random.default_rng([len(sets), len(given), int(deviation), law.size])
    found = []
    for _ in range(replicates // BATCH):
        evidence = replicate(law, sets, deviation, rng, BATCH)
        width = law.ndim
        asked = [(width * r, width * r + 1, tuple(width * r + z for z in given)) for r in range(BATCH)]
        found.append(evidence.test(Questions.of(asked)).p_value)
    return np.concatenate(found)


def assert_level(p: np.ndarray, low: float, high: float) -> None:
    """The true level at nominal 1 % lies between the two, as far as so many replicates can tell (99.9 % interval)."""
    rejections = int((p < NOMINAL).sum())
    lower = stats.beta.ppf(0.0005, rejections, len(p) - rejections + 1) if rejections else 0.0
    upper = stats.beta.ppf(0.9995, rejections + 1, len(p) - rejections)
    assert lower < high, f"rejects {rejections / len(p):.2%} at nominal 1 %"
    assert upper > low, f"rejects {rejections / len(p):.2%} at nominal 1 %"


PAIRS = [(0, 1), (0, 2), (1, 2)]
# from no noise to noise of the size of a cell: 5000 rows in 8 to 60 cells
DEVIATIONS = [0.0, 20.0, 100.0]


@pytest.mark.parametrize("deviation", DEVIATIONS)
@pytest.mark.parametrize("levels", [(2, 2, 2), (3, 2, 4), (4, 3, 2)])
def test_order_one_keeps_its_level(levels: tuple[int, int, int], deviation: float) -> None:
    law = chain_law(levels, np.random.default_rng(levels))
    p = p_values(law, PAIRS, (2,), deviation)
    assert_level(p, 0.005, 0.017)
    # not only the tail: the median p-value of a true null is a half
    assert 0.45 < np.median(p) < 0.56


def test_the_interval_has_teeth() -> None:
    """Ideal p-values pass; those of a test whose level is three times too high or ten times too low do not."""
    ideal = (np.arange(REPLICATES) + 0.5) / REPLICATES
    assert_level(ideal, 0.005, 0.017)
    with pytest.raises(AssertionError, match=r"rejects 3\.00%"):
        assert_level(ideal / 3, 0.005, 0.017)
    with pytest.raises(AssertionError, match=r"rejects 0\.10%"):
        assert_level(np.minimum(ideal * 10, 1.0), 0.005, 0.017)


@pytest.mark.parametrize("deviation", [0.0, 40.0])
def test_order_zero_keeps_its_level(deviation: float) -> None:
    rng = np.random.default_rng(8)
    law = np.einsum("x,y->xy", rng.dirichlet(np.full(3, 5.0)), rng.dirichlet(np.full(4, 5.0)))
    assert_level(p_values(law, [(0, 1)], (), deviation), 0.005, 0.017)


@pytest.mark.parametrize("deviation", [0.0, 15.0])
def test_joint_order_two_keeps_its_level(deviation: float) -> None:
    law = fork_law(np.random.default_rng(3))
    sets = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 2, 3), (1, 2, 3)]
    assert_level(p_values(law, sets, (2, 3), deviation, 2100), 0.004, 0.02)


@pytest.mark.parametrize("deviation", [20.0, 150.0])
def test_main_effects_of_two_columns_keep_their_level(deviation: float) -> None:
    """P(x | z₁, z₂) and P(y | z₁, z₂) are additive, so pair tables alone must separate x from y."""
    law = np.zeros((2, 2, 2, 2))
    for z1, z2 in np.ndindex(2, 2):
        chance = 0.15 + 0.35 * z1 + 0.35 * z2
        law[:, :, z1, z2] = (0.35 if z1 == z2 else 0.15) * np.outer([1 - chance, chance], [1 - chance, chance])
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert_level(p_values(law, pairs, (2, 3), deviation, 2100), 0.005, 0.018)


@pytest.mark.parametrize("deviation", [0.0, 20.0])
def test_dependence_is_seen(deviation: float) -> None:
    """x and y share a tenth of their mass beyond z: nearly every replicate must notice."""
    law = chain_law((2, 2, 3), np.random.default_rng(2))
    copy = np.einsum("xz,xy->xyz", law.sum(axis=1), np.eye(2))
    p = p_values(0.8 * law + 0.2 * copy, PAIRS, (2,), deviation, 450)
    assert (p < NOMINAL).mean() > 0.9


def test_noise_costs_power_never_level() -> None:
    """More noise gives fewer rejections of a false null."""
    law = chain_law((2, 2, 2), np.random.default_rng(5))
    copy = np.einsum("xz,xy->xyz", law.sum(axis=1), np.eye(2))
    shares = [(p_values(0.95 * law + 0.05 * copy, PAIRS, (2,), s, 450) < NOMINAL).mean() for s in (0.0, 60.0, 400.0)]
    assert shares[0] > shares[1] > shares[2]


@pytest.mark.parametrize("deviation", [0.0, 40.0])
def test_associations_are_free_of_the_bias_of_squares(deviation: float) -> None:
    """On average the association is the χ² information of the law: 0 for independent columns, noise or not."""
    law = chain_law((3, 2, 2), np.random.default_rng(12))
    rng = np.random.default_rng(13)
    replicates = 200
    found = np.empty((5 * replicates, 2))
    for k in range(5):
        matrix = replicate(law, PAIRS, deviation, rng, replicates).association()
        first = 3 * np.arange(replicates)
        found[k * replicates : (k + 1) * replicates] = np.stack(
            [matrix[first, first + 1], matrix[first, first + 2]], axis=1
        )
    for column, axes in enumerate([(0, 1), (0, 2)]):
        pair = law.sum(axis=tuple(axis for axis in range(3) if axis not in axes))
        independent = np.outer(pair.sum(axis=1), pair.sum(axis=0))
        truth = float(((pair - independent) ** 2 / independent).sum())
        error = found[:, column].std() / np.sqrt(len(found))
        # the plug-in estimate of a dependent pair has a small bias of its own, of the order 1/n
        assert abs(found[:, column].mean() - truth) < 4 * error + 2 / N_ROWS


def test_associations_obey_the_data_processing_inequality() -> None:
    """x ← z → y: x and y are no more associated than either is with z."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        law = chain_law((3, 2, 4), rng)
        matrix = replicate(law, PAIRS, 0.0, rng, 1).association()
        assert matrix[0, 1] < min(matrix[0, 2], matrix[1, 2]) + 4 / np.sqrt(N_ROWS) * np.sqrt(max(matrix[0, 2], 1e-4))
