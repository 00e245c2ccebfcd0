"""A score by ranks of how the size of residuals goes with a column, and how far one slot can move it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def residual_rank_score(column: Floats, residuals: Floats) -> float:
    """Return |ρ(c, |r|)| + |ρ(|c|, |r|)|: how the size of residuals goes with the column, and with its distance from 0.

    ρ is 12/m³ Σ (R − (m+1)/2)(S − (m+1)/2) with midranks R and S: Spearman's, where no values are tied.

    Examples
    --------
    >>> residual_rank_score(np.array([-1.0, -0.5, 0.5, 1.0]), np.zeros(4))
    0.0
    """
    sizes = np.abs(residuals)
    return abs(_rank_correlation(column, sizes)) + abs(_rank_correlation(np.abs(column), sizes))


def residual_rank_sensitivity(slots: int) -> float:
    """Return 12 (m − 1)/m²: what one slot moves `residual_rank_score` by if it moves no other residual, at most.

    Attained; the proof is in docs/proofs/rank-score.md.

    Examples
    --------
    >>> residual_rank_sensitivity(1000)
    0.011988
    """
    return 12.0 * (slots - 1) / slots**2


def _rank_correlation(first: Floats, second: Floats) -> float:
    m = len(first)
    left, right = (find_midranks(values) - (m + 1) / 2.0 for values in (first, second))
    return 12.0 * float(left @ right) / m**3


def find_midranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of their ranks.

    Examples
    --------
    >>> find_midranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks: Floats = np.cumsum(counts) - (counts - 1) / 2.0
    return midranks[place]
