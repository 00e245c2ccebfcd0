"""Exact sums of outer products of clipped, quantised rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import DataError, SchemaError

LARGEST_CAP: Final = 2**40
"""The largest squared integer norm that a plan may allow."""

LARGEST_SUM: Final = 2**62
"""The largest absolute value of an entry of the answer: half of what a 64-bit integer holds."""

_EXACT_FLOAT: Final = 2**53
_HUGE: Final = 1e100
_BLOCK_ROWS: Final = 32768


@dataclass(frozen=True, slots=True)
class MomentPlan:
    """How rows become integer vectors: all public.

    A row x becomes z with z_j = (x_j - center_j) / spread_j, is shrunk to the ball of squared radius `radius_squared`,
    gets `constant` in front, and every coordinate is multiplied by 2**bits and cut to an integer, towards zero.

    Examples
    --------
    >>> plan = MomentPlan(columns=("x",), centers=(0.0,), spreads=(1.0,), radius_squared=4.0, constant=1.0, bits=3)
    >>> plan.norm_squared_bound()
    320
    """

    columns: tuple[str, ...]
    centers: tuple[float, ...]
    spreads: tuple[float, ...]
    radius_squared: float
    constant: float
    bits: int

    def __post_init__(self) -> None:
        if not len(self.columns) == len(self.centers) == len(self.spreads):
            raise SchemaError(
                f"a moment plan has {len(self.columns)} columns, {len(self.centers)} centers and "
                f"{len(self.spreads)} spreads; give one center and one spread for each column"
            )
        if len(set(self.columns)) < len(self.columns):
            raise SchemaError("a moment plan names a column twice; name each column once")
        if not all(math.isfinite(center) for center in self.centers):
            raise SchemaError("a center of a moment plan is not finite; declare finite centers")
        if not all(math.isfinite(spread) and spread > 0 for spread in self.spreads):
            raise SchemaError("a spread of a moment plan is not a positive finite number; declare positive spreads")
        for name, number in (("radius_squared", self.radius_squared), ("constant", self.constant)):
            if not (math.isfinite(number) and number >= 0):
                raise SchemaError(f"{name} of a moment plan is {number:g}; it must be finite and not negative")
        if not 0 <= self.bits <= 40:
            raise SchemaError(f"a moment plan asks for {self.bits} bits; choose between 0 and 40")
        if self.norm_squared_bound() > LARGEST_CAP:
            raise SchemaError(
                f"the squared norm of a quantised row could reach {self.norm_squared_bound()}, more than "
                f"{LARGEST_CAP}; choose fewer bits than {self.bits} or a smaller radius"
            )

    @property
    def integer_constant(self) -> int:
        """The first coordinate of every quantised row."""
        return math.trunc(Fraction(self.constant) * (1 << self.bits))

    @property
    def integer_radius_squared(self) -> int:
        """The cap on the squared norm of a quantised row without its first coordinate."""
        return math.floor(Fraction(self.radius_squared) * (1 << 2 * self.bits))

    def norm_squared_bound(self) -> int:
        """Give the cap on the squared norm of every quantised row, its first coordinate included."""
        return self.integer_constant**2 + self.integer_radius_squared

    def max_rows(self) -> int:
        """Give the largest number of rows whose sum is sure to fit into 64-bit integers (at least 2**22)."""
        return (LARGEST_SUM - 1) // max(self.norm_squared_bound(), 1)


def quantise_rows(values: NDArray[np.float64], plan: MomentPlan) -> NDArray[np.int64]:
    """Turn rows (n, d) into integer vectors (n, 1 + d) whose squared norm never exceeds the plan's bound.

    The bound holds for every conceivable input. Not-a-number counts as the center. The result for a row depends
    on that row alone.
    """
    n_rows, width = values.shape
    quantised = np.empty((n_rows, 1 + width), dtype=np.int64)
    quantised[:, 0] = plan.integer_constant
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (np.asarray(values, dtype=np.float64) - np.array(plan.centers)) / np.array(plan.spreads)
    # finite before squaring: beyond 1e100 only the direction of the largest entries would matter anyway
    np.nan_to_num(scaled, copy=False, nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    np.clip(scaled, -_HUGE, _HUGE, out=scaled)
    norms = np.einsum("ij,ij->i", scaled, scaled)
    long = norms > plan.radius_squared
    scaled[long] *= np.sqrt(plan.radius_squared / norms[long])[:, None]
    np.trunc(scaled * 2.0**plan.bits, out=scaled)
    quantised[:, 1:] = scaled
    _enforce_cap(quantised[:, 1:], plan.integer_radius_squared)
    return quantised


def _enforce_cap(vectors: NDArray[np.int64], cap: int) -> None:
    # Float rounding can leave a vector a little over the cap. Entries stay near 2**20, so this int64 norm is exact.
    norms = np.einsum("ij,ij->i", vectors, vectors)
    for row in np.flatnonzero(norms > cap):
        norm = int(norms[row])
        # With r = isqrt(cap * norm): (r / norm)**2 <= cap / norm, and cutting towards zero only shrinks further, so
        # the new squared norm is at most norm * (cap / norm) = cap. All in Python integers.
        root = math.isqrt(cap * norm)
        vectors[row] = [(abs(int(entry)) * root // norm) * (1 if entry >= 0 else -1) for entry in vectors[row]]


def sum_outer_products(columns: Sequence[NDArray[np.float64]], plan: MomentPlan, *, n_rows: int) -> NDArray[np.int64]:
    """Give the exact sum over rows of the outer product of each quantised row with itself, (1 + d, 1 + d).

    Why float64 is exact here: for a block of b rows with squared norms at most c, every partial sum of products
    q_i q_j, in any order and with fused or split multiplications, is an integer of absolute value at most b c
    (Cauchy-Schwarz bounds the sum of |q_i q_j| by the sum of the squared norms). With b c <= 2**53 each one is a
    float64, so no rounding ever happens. Blocks are added in int64, where n c < 2**62 leaves no room for overflow.
    """
    if n_rows > plan.max_rows():
        raise DataError(
            f"this moment plan sums at most {plan.max_rows()} rows exactly and the table is larger; "
            f"choose fewer bits than {plan.bits}, or a smaller radius"
        )
    total = np.zeros((1 + len(columns), 1 + len(columns)), dtype=np.int64)
    block = min(_BLOCK_ROWS, _EXACT_FLOAT // max(plan.norm_squared_bound(), 1))
    for start in range(0, n_rows, block):
        stop = min(start + block, n_rows)
        values = np.empty((stop - start, len(columns)))
        for position, column in enumerate(columns):
            values[:, position] = column[start:stop]
        quantised = quantise_rows(values, plan).astype(np.float64)
        total += (quantised.T @ quantised).astype(np.int64)
    return total
