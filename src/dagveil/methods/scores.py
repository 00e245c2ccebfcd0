"""Columns with levels as numbers, for linear methods: public scores, centred and scaled by released one-way tables."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Curator
from dagveil.data.column import LevelColumn, Numeric
from dagveil.privacy.release import NoisyCounts

LEVELS_SHARE = Fraction(1, 20)
"""Share of the budget for the one-way tables that centre and scale columns with levels."""


def release_levels(curator: Curator, share: Fraction) -> tuple[NoisyCounts, ...]:
    """Release the one-way tables of columns with levels; nothing if all columns are numeric."""
    names = [(name,) for name, column in curator.schema.columns.items() if not isinstance(column, Numeric)]
    return curator.count_tables(names, share, "one-way tables")


def read_shares(table: NoisyCounts) -> NDArray[np.float64]:
    """Return the shares of levels that a noisy one-way table speaks for."""
    counts = np.maximum(table.counts, math.sqrt(table.count_variance))
    return np.asarray(counts / counts.sum())


def scale_levels(column: LevelColumn, shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return centre and spread of the column's scores under these shares of levels.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> scale_levels(Boolean(outside="false"), np.array([0.5, 0.5]))
    (0.5, 0.5)
    """
    numbers = np.array(column.numbers)
    center = float(shares @ numbers)
    return center, math.sqrt(float(shares @ (numbers - center) ** 2)) or 1.0
