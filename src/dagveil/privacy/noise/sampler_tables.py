"""The law exp(−a m² − b m) on m = 0, 1, 2, … cut into blocks of equal width, with rigorous integer tables.

A block is proposed with the weight of its first point, a point in it uniformly, and the point is kept with probability
exp(−(loss(m) − loss(first point))): so m follows the law exactly (docs/proofs/exact-noise.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.noise.intervals import exp_bounds

GAUSSIAN_BLOCKS: Final = 64
LAPLACE_BLOCKS: Final = 32
"""Blocks per scale: more keep more proposals at once, fewer make a smaller table."""


@dataclass(frozen=True, slots=True)
class BlockTable:
    """Bounds, in units of 2^-bits: block j is chosen for a uniform number between edges j and j + 1.

    ``edge_above[j]`` and ``edge_below[j]`` enclose edge j. ``surely_kept[j]`` is below the probability of keeping any
    point of block j.
    """

    edge_below: tuple[int, ...]
    edge_above: tuple[int, ...]
    surely_kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockLaw:
    """Loss (quadratic · m² + linear · m) / denominator, in blocks of ``width`` points.

    Examples
    --------
    >>> BlockLaw.gaussian(Fraction(10_000)).width
    1
    """

    quadratic: int
    linear: int
    denominator: int
    width: int

    @classmethod
    def gaussian(cls, variance: Fraction) -> BlockLaw:
        """Half of the discrete Gaussian."""
        width = max(1, math.isqrt(int(variance)) // GAUSSIAN_BLOCKS)
        return cls(variance.denominator, 0, 2 * variance.numerator, width)

    @classmethod
    def laplace(cls, scale: Fraction) -> BlockLaw:
        """Half of the discrete Laplace."""
        return cls(0, scale.denominator, scale.numerator, max(1, int(scale) // LAPLACE_BLOCKS))

    def loss_above_block(self, block: int, offset: int) -> int:
        """Numerator of loss(m) − loss(first point of the block), m = block · width + offset."""
        return offset * (self.quadratic * (2 * block * self.width + offset) + self.linear)

    def table(self, bits: int) -> BlockTable:
        """Compute the table to so many bits."""
        return _table(self, bits)

    def arrays(self, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the table as arrays, for at most 62 bits."""
        return _arrays(self, bits)


@lru_cache(maxsize=256)
def _table(law: BlockLaw, bits: int) -> BlockTable:
    work = bits + 64
    one = 1 << work
    weight_low = weight_high = one
    ratio_low, ratio_high = exp_bounds(law.loss_above_block(0, law.width), law.denominator, work)
    # the ratio of neighbouring ratios does not depend on the block, because the loss is quadratic
    step_low, step_high = exp_bounds(2 * law.quadratic * law.width**2, law.denominator, work)
    sum_low = sum_high = 0
    lows, highs, kept = [0], [0], []
    small = 1 << 60
    while True:
        sum_low += weight_low
        sum_high += weight_high
        lows.append(sum_low)
        highs.append(sum_high)
        kept.append(ratio_low >> 64)
        weight_low = (weight_low * ratio_low) >> work
        weight_high = ((weight_high * ratio_high) >> work) + 1
        ratio_low = (ratio_low * step_low) >> work
        lower_ratio = ((ratio_high * step_high) >> work) + 1
        ratio_high = lower_ratio if lower_ratio < ratio_high else ratio_high
        # the tail is no smaller than its first weight, so that most blocks need no division
        if weight_high < small:
            # weights fall at least as fast as a geometric series with the present ratio
            tail = (weight_high << work) // (one - ratio_high) + 1
            if tail < small:
                break
    all_low, all_high = sum_low, sum_high + tail
    return BlockTable(
        tuple([(low << bits) // all_high for low in lows]),
        tuple([-((-high << bits) // all_low) for high in highs]),
        tuple(kept),
    )


@lru_cache(maxsize=256)
def _arrays(law: BlockLaw, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    table = law.table(bits)
    below, above, kept = (
        np.array(column, dtype=np.int64) for column in (table.edge_below, table.edge_above, table.surely_kept)
    )
    return below, above, kept
