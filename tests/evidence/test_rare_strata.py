"""Joint tests where most joint cells of the conditioning pair hold few rows, or none."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from simulated_tables import release

from dagveil.evidence import triples
from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.triples import TripleEvidence
from dagveil.evidence.wald import Conditioning

LEVELS = {"x": 2, "y": 2, "schooling": 4, "years": 4}
FILLED = np.array([(0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (2, 3)])
EMPTY = np.array([cell for cell in np.ndindex(4, 4) if list(cell) not in FILLED.tolist()])
QUESTION = Questions.of([(0, 1, (2, 3))])


def measure(codes: dict[str, np.ndarray], deviation: float, rng: np.random.Generator) -> TripleEvidence:
    sets = [("x", "schooling", "years"), ("y", "schooling", "years")]
    tables = release(codes, LEVELS, list(combinations(LEVELS, 2)), (deviation / 2) ** 2, rng)
    evidence = marginal_evidence(tuple(LEVELS), tables + release(codes, LEVELS, sets, deviation**2, rng))
    assert isinstance(evidence, TripleEvidence)
    return evidence


def statistics(codes: dict[str, np.ndarray], deviation: float, runs: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([measure(codes, deviation, rng).test(QUESTION).statistic[0] for _ in range(runs)])


def test_empty_strata_do_not_hide_a_strong_dependence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of the sixteen joint cells of schooling and years are empty: what is counted there is noise."""
    rng = np.random.default_rng(1)
    n_rows = 12_000
    schooling, years = FILLED[rng.integers(0, len(FILLED), n_rows)].T
    x = (rng.random(n_rows) < 0.3 + 0.1 * schooling).astype(int)
    y = np.where(rng.random(n_rows) < 0.45, x, rng.integers(0, 2, n_rows))
    codes = {"x": x, "y": y, "schooling": schooling, "years": years}
    found = statistics(codes, 80.0, 20, 2)
    assert found.min() > 150
    assert found.max() < 6 * found.min()
    monkeypatch.setattr(triples, "MUTE", 0.0)
    assert statistics(codes, 80.0, 20, 2).min() < 20


def draw_far_off(rng: np.random.Generator, rare: int) -> dict[str, np.ndarray]:
    """Independent given the pair, with x and y far off in each of the rare cells."""
    common = FILLED[rng.integers(0, len(FILLED), 6000)]
    schooling, years = np.concatenate([common, np.repeat(EMPTY, rare, axis=0)]).T
    far = np.arange(len(schooling)) >= 6000
    x, y = ((rng.random(len(schooling)) < np.where(far, 0.99, 0.5)).astype(int) for _ in range(2))
    return {"x": x, "y": y, "schooling": schooling, "years": years}


@pytest.mark.parametrize("rare", [0, 20, 60])
def test_rows_that_are_left_out_make_no_dependence(rare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = draw_far_off(np.random.default_rng(3), rare)
    found = statistics(codes, 80.0, 60, 4)
    assert (found > 10.83).sum() <= 1  # at the level 0.001
    assert found.mean() < 1.5
    if rare == 60:
        # leaving them out without allowing for them is not enough

        def forgetful(**parts: np.ndarray) -> Conditioning:
            return replace(Conditioning(**parts), allowance=None)

        monkeypatch.setattr(triples, "Conditioning", forgetful)
        assert (statistics(codes, 80.0, 60, 4) > 10.83).mean() > 0.1
