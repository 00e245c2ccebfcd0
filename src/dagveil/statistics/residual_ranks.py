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
    """Return 24/m: what one slot moves `residual_rank_score` by, at most, if it moves no other residual.

    A centred midrank is half the sum of the signs of differences to the other slots. So one slot moves those of the
    others by at most 1, and no sum of their absolute values exceeds m²/4. The products of the others then move by at
    most m²/2 in all, its own by at most (m − 1)²/2: together less than m², and 12/m³ makes that 12/m for each ρ.

    Examples
    --------
    >>> residual_rank_sensitivity(1000)
    0.024
    """
    return 24.0 / slots


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
