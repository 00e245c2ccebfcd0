"""How far one slot moves the rank score of residuals: every neighbour of small tables, and a pair that attains it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dagveil.statistics.residuals import residual_rank_score, residual_rank_sensitivity

LEVELS = (-2.0, -1.0, 0.0, 1.0)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_no_slot_of_a_small_table_moves_the_score_further(m: int) -> None:
    """All tables of values of which some are tied, some only in size; the first slot goes anywhere."""
    slots = list(product(LEVELS, LEVELS))
    for others in product(slots, repeat=m - 1):
        scores = []
        for slot in slots:
            column, residuals = np.array([slot, *others]).T
            scores.append(residual_rank_score(column, residuals))
        assert max(scores) - min(scores) <= residual_rank_sensitivity(m) + 1e-12


def test_no_slot_of_a_larger_table_moves_the_score_further() -> None:
    """Random and extreme neighbours, tied and concordant ones among them; some come near."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for trial in range(2000):
        m = int(rng.integers(3, 30))
        column, residuals = (rng.integers(-2, 3, m) if trial % 3 == 0 else rng.uniform(-1, 1, m) for _ in range(2))
        if trial % 2:
            residuals = column + 0.01 * rng.uniform(-1, 1, m)
        if trial % 5 == 0:
            column, residuals = np.abs(column), np.abs(residuals)
        place = int(rng.integers(m))
        moved = [values.astype(float).copy() for values in (column, residuals)]
        moved[0][place], moved[1][place] = rng.choice([-9.0, 0.0, 0.5, 9.0], 2)
        change = residual_rank_score(*moved) - residual_rank_score(column.astype(float), residuals.astype(float))
        worst = max(worst, abs(change) / residual_rank_sensitivity(m))
    assert 0.8 < worst <= 1.0 + 1e-12


@pytest.mark.parametrize("m", [5, 20, 1000])
def test_a_slot_out_of_line_attains_the_sensitivity(m: int) -> None:
    """Any smaller bound is refuted: sizes grow with the column but for one slot, which then falls into line."""
    column = residuals = np.arange(1.0, m + 1)
    out = residuals.copy()
    out[-1] = 0.5
    change = residual_rank_score(column, residuals) - residual_rank_score(column, out)
    assert change == pytest.approx(residual_rank_sensitivity(m), rel=1e-12)
