"""The level of tests on pair tables that were put together from interactions and margins."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.tables import NoisyTable, add_total

REPLICATES = 600


def centre(counts: np.ndarray) -> np.ndarray:
    counts = counts - counts.mean(axis=0)
    return counts - counts.mean(axis=1, keepdims=True)


def draw_evidence(rng: np.random.Generator, n_rows: int, noise: float, margin_noise: float):
    """Rows of x ← z → y with uneven levels, released as margins and interactions."""
    z = rng.choice(3, n_rows, p=[0.6, 0.3, 0.1])
    x = (rng.random(n_rows) < np.array([0.1, 0.3, 0.6])[z]).astype(int)
    y = np.where(rng.random(n_rows) < 0.5, z, rng.choice(3, n_rows, p=[0.7, 0.2, 0.1]))
    codes, levels = {"x": x, "y": y, "z": z}, {"x": 2, "y": 3, "z": 3}
    total = NoisyTable((), np.array(n_rows + rng.normal(0, margin_noise)), margin_noise**2)
    contrasts = []
    for name, code in codes.items():
        counts = np.bincount(code, minlength=levels[name]) + rng.normal(0, margin_noise, levels[name])
        contrasts.append(NoisyTable((name,), counts - counts.mean(), margin_noise**2))
    singles = add_total(contrasts, total)
    tables = []
    for a, b in combinations(levels, 2):
        counts = np.zeros((levels[a], levels[b]))
        np.add.at(counts, (codes[a], codes[b]), 1)
        interaction = centre(counts + rng.normal(0, noise, counts.shape))
        tables.append(NoisyTable((a, b), interaction, noise**2))
    return marginal_evidence(list(levels), [], tables, singles)


@pytest.mark.parametrize(("noise", "margin_noise"), [(1.0, 1.0), (20.0, 25.0), (60.0, 40.0)])
def test_tests_keep_their_level(noise: float, margin_noise: float) -> None:
    rng = np.random.default_rng([int(noise), int(margin_noise)])
    question = Questions.of([(0, 1, (2,))])
    p_values = np.array(
        [draw_evidence(rng, 5000, noise, margin_noise).test(question).p_value[0] for _ in range(REPLICATES)]
    )
    for level in (0.05, 0.2):
        rejected = int((p_values < level).sum())
        # never above the level by more than chance; below it where noise dominates
        assert stats.binomtest(rejected, REPLICATES, level, alternative="greater").pvalue > 1e-4, (level, rejected)
        assert rejected > 0.3 * level * REPLICATES


def test_dependence_is_seen() -> None:
    rng = np.random.default_rng(9)
    evidence = [draw_evidence(rng, 5000, 20.0, 25.0) for _ in range(20)]
    questions = Questions.of([(0, 1, ()), (0, 2, ()), (1, 2, ())])
    seen = np.array([found.test(questions).p_value < 0.01 for found in evidence])
    assert seen.mean(axis=0).min() > 0.8
