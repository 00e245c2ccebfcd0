"""Pearson's χ² against scipy, and why it refuses additive noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from dagveil.privacy.budget import Relation
from dagveil.statistics.chi_square import GRID, ChiSquare
from dagveil.statistics.statistic import TableShape


def test_it_agrees_with_scipy_stratum_by_stratum() -> None:
    tables = np.random.default_rng(1).integers(1, 90, (25, 3, 2, 4))
    theirs = [sum(chi2_contingency(s, correction=False).statistic for s in table) for table in tables]
    np.testing.assert_allclose(ChiSquare(10_000).values(tables) / GRID, theirs, atol=1 / GRID)


def test_empty_levels_and_strata_count_nothing() -> None:
    table = np.array([[[7, 0, 3], [2, 0, 8]], [[0, 0, 0], [0, 0, 0]], [[5, 0, 0], [0, 0, 0]]])
    exact = chi2_contingency(table[0][:, [0, 2]], correction=False).statistic
    assert int(ChiSquare(100).values(table)) / GRID == pytest.approx(exact, abs=1 / GRID)


@pytest.mark.parametrize("levels", [2, 3, 5])
def test_a_diagonal_reaches_the_clip_and_never_passes_it(levels: int) -> None:
    statistic, shape = ChiSquare(100), TableShape(1, levels, levels)
    for rows in (100 // levels * levels, 100 * levels):
        value = int(statistic.values(np.eye(levels, dtype=np.int64)[None] * (rows // levels)))
        assert value == GRID * min(rows, 100) * (levels - 1)
        assert value <= statistic.sensitivity(Relation.ADD_REMOVE, shape)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_one_record_moves_it_across_its_range(n: int) -> None:
    statistic = ChiSquare(n)
    core, more = np.array([[[n - 1, 0], [0, 0]]]), np.array([[[n - 1, 0], [0, 1]]])
    assert int(statistic.values(core)) == 0
    change = int(statistic.values(more))
    for relation in Relation:
        assert change == statistic.sensitivity(relation, TableShape(1, 2, 2))


@pytest.mark.parametrize("relation", Relation)
def test_the_refusal_says_why_and_what_instead(relation: Relation) -> None:
    refusal = ChiSquare(1234).refusal(relation)
    assert refusal is not None
    assert "1234" in refusal
    assert "reconciled-chi-square" in refusal
    assert "votes" in refusal
