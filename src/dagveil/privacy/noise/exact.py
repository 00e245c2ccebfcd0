"""A vectorised exact sampler: integer arithmetic only, no float anywhere (docs/proofs/exact-noise.md).

Every decision compares a uniform number, revealed bit by bit, with rigorous bounds on a probability. The first look
takes 62 bits and is vectorised; the rare undecided cases take more bits and tighter bounds until they are decided.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.noise import source


def exp_bounds(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Integers with lower ≤ 2^bits · exp(−numerator/denominator) ≤ upper (docs/proofs/exact-noise.md)."""
    if numerator == 0:
        return 1 << bits, 1 << bits
    whole = numerator // denominator
    if whole >= bits:  # e^-bits < 2^-bits
        return 0, 1
    halvings = whole.bit_length() + 3
    work = bits + halvings + 16
    argument = (numerator << (work - halvings)) // denominator
    term = total = 1 << work
    count = 0
    while term:
        count += 1
        term = ((term * argument) >> work) // count
        total += -term if count & 1 else term
    error = 3 * count + 8
    lower, upper = total - error, min(total + error, 1 << work)
    for _ in range(halvings):
        lower = (lower * lower) >> work
        upper = ((upper * upper) >> work) + 1
    shift = work - bits
    return lower >> shift, -(-upper >> shift)


EXPONENT_BITS: Final = 32  # bits of an argument of `exp_floors` behind its point
FLOOR_BITS: Final = 31
EXP_GAP: Final = 12  # floors are less than this below what they bound


def exp_floors(arguments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers with floor ≤ 2^31 · exp(−x) ≤ floor + EXP_GAP for all x from 2^-32 · argument to 2^-32 more.

    Arguments are at least 0. Of a product of lower bounds each factor has 31 bits, so that it fits a word.
    """
    whole, coarse, fine = _floor_tables()
    factors = (
        coarse[(arguments >> 24) & 255],
        fine[(arguments >> 16) & 255],
        (1 << FLOOR_BITS) - (((arguments & 0xFFFF) + 2) >> 1),  # 1 − t ≤ exp(−t)
    )
    floors: NDArray[np.int64] = whole[np.minimum(arguments >> EXPONENT_BITS, len(whole) - 1)]
    for factor in factors:
        floors = (floors * factor) >> FLOOR_BITS
    return floors


@lru_cache(maxsize=1)
def _floor_tables() -> tuple[NDArray[np.int64], ...]:
    """Floors of 2^31 exp(−k), exp(−k/2^8) and exp(−k/2^16); the first ends with zero."""
    tables = ((FLOOR_BITS + 1, 1), (256, 1 << 8), (256, 1 << 16))
    return tuple(
        np.array([exp_bounds(k, divisor, FLOOR_BITS)[0] for k in range(count)], dtype=np.int64)
        for count, divisor in tables
    )


class BitSource(Protocol):
    """Uniform, independent 64-bit words."""

    @property
    def private(self) -> bool:
        """Whether nobody can predict the words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""


class SystemBits:
    """Words from the operating system's secure generator."""

    private = True

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class SeededBits:
    """Words that a seed determines: for tests and benchmarks, never for a release."""

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""
        return self._generator.random_raw(count).astype(np.uint64, copy=False)


GAUSSIAN_BLOCKS: Final = 64
LAPLACE_BLOCKS: Final = 32  # blocks per scale: more keep more proposals at once, fewer make a smaller table


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
    """Loss (quadratic · m² + linear · m) / denominator, in blocks of ``width`` points."""

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


@lru_cache(maxsize=256)
def tabulate_blocks(law: BlockLaw, bits: int) -> BlockTable:
    """Compute the table of a law to so many bits.

    Lower bounds are carried along; how far below they are at most is known beforehand (docs/proofs/exact-noise.md).
    """
    work = bits + 64
    weight, total, small = 1 << work, 0, 1 << 60
    ratio, ratio_high = exp_bounds(law.loss_above_block(0, law.width), law.denominator, work)
    # the ratio of neighbouring ratios does not depend on the block, because the loss is quadratic
    step, step_high = exp_bounds(2 * law.quadratic * law.width**2, law.denominator, work)
    each = max(ratio_high - ratio, step_high - step) + 1
    sums, kept = [0], []
    while True:
        total += weight
        sums.append(total)
        kept.append(ratio >> 64)
        weight = (weight * ratio) >> work
        ratio = (ratio * step) >> work
        # the tail is no smaller than its first weight, so that most blocks need no division
        if weight < small:
            blocks = len(sums)
            # weights fall at least as fast as a geometric series with the present ratio
            room = (1 << work) - min(ratio + blocks * each, ratio_high)
            tail = ((weight + blocks**2 * each) << work) // room + 1
            if tail < small:
                break
    missing = blocks**3 * each  # from a sum of lower bounds
    whole = total + missing + tail
    below = tuple([(edge << bits) // whole for edge in sums])
    gap = ((2 * missing + tail) << bits) // total + 2
    return BlockTable(below, (0, *[edge + gap for edge in below[1:]]), tuple(kept))


@lru_cache(maxsize=256)
def _arrays(law: BlockLaw, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the table as arrays, for at most 62 bits."""
    table = tabulate_blocks(law, bits)
    below, above, kept = (
        np.array(column, dtype=np.int64) for column in (table.edge_below, table.edge_above, table.surely_kept)
    )
    return below, above, kept


LOOK: Final = 62  # bits of the first look: edges up to 2^62 and their sums fit signed 64-bit integers
CHUNK: Final = 1 << 16  # draws per chunk, so that the working arrays stay in the cache
WORD: Final = 64
LARGEST: Final = 2**63 - 1


class ExactNoise(source.NoiseSource):
    """Exact integer noise from bits; its time depends on the draws: do not let strangers time single ones."""

    def __init__(self, bits: BitSource, look: int = LOOK) -> None:
        if not 1 <= look <= LOOK:
            raise BudgetError(f"the first look takes 1 to {LOOK} bits, not {look}.")
        self._bits = bits
        self._look = look

    @property
    def name(self) -> str:
        """Name for the receipt."""
        return "exact integer sampler" if self.private else "exact integer sampler, seeded: not private"

    @property
    def private(self) -> bool:
        """Whether the bits come from the operating system."""
        return self._bits.private

    def discrete_gaussian(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−y²/(2 variance))."""
        return self._draw(BlockLaw.gaussian(Fraction(source.checked_variance(variance))), size)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−|y|/scale)."""
        return self._draw(BlockLaw.laplace(Fraction(source.checked_scale(scale))), size)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw integers from 0 to bound − 1, all equally likely."""
        if not 1 <= bound <= 2**63:
            raise BudgetError(f"a uniform draw needs a bound from 1 to 2^63, not {bound}.")
        drawn = np.empty(size, dtype=np.int64)
        excess = 2**WORD % bound  # the words left over when all words are dealt out evenly
        filled = 0
        while filled < size:
            words = self._bits.words(size - filled)
            if excess:
                words = words[words < np.uint64(2**WORD - excess)]
            drawn[filled : filled + len(words)] = (words % np.uint64(bound)).astype(np.int64)
            filled += len(words)
        return drawn

    def bernoulli(self, p: Fraction, size: int) -> NDArray[np.bool_]:
        """Draw true with probability p."""
        if not 0 <= p <= 1:
            raise BudgetError(f"a probability must lie between 0 and 1, not {float(p):.3g}.")
        if p == 1:
            return np.ones(size, dtype=np.bool_)
        whole, rest = divmod(p.numerator << WORD, p.denominator)
        words = self._bits.words(size)
        drawn: NDArray[np.bool_] = words < np.uint64(whole)
        if rest:  # a word on the edge leaves a draw with the remaining probability
            for tie in np.flatnonzero(words == np.uint64(whole)):
                drawn[tie] = self.bernoulli(Fraction(rest, p.denominator), 1)[0]
        return drawn

    def _draw(self, law: BlockLaw, size: int) -> NDArray[np.int64]:
        """Draw a magnitude and a sign; minus zero is drawn again, so that zero is not counted twice."""
        drawn = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            count = min(CHUNK, size - filled)
            magnitude = self._magnitudes(law, count)
            words = self._bits.words(-(-len(magnitude) // WORD))
            negative = np.unpackbits(words.view(np.uint8), count=len(magnitude)).astype(np.bool_)
            signed = np.where(negative, -magnitude, magnitude)[~(negative & (magnitude == 0))]
            drawn[filled : filled + len(signed)] = signed
            filled += len(signed)
        return drawn

    def _magnitudes(self, law: BlockLaw, count: int) -> NDArray[np.int64]:
        """Propose so many points and return those that are kept."""
        below, above, kept = _arrays(law, self._look)
        position = self._looks(count)
        block = np.searchsorted(above, position, side="right").astype(np.int64) - 1
        last = len(kept) - 1
        # true also beyond the table, whose last edge lies below such a position
        undecided = position >= below[np.minimum(block, last) + 1]
        for case in np.flatnonzero(undecided):
            block[case] = min(self._settle_block(law, int(position[case])), LARGEST // law.width)
        if law.width == 1:
            return block
        offset = self.uniform_below(law.width, count)
        coin = self._looks(count)
        keep = coin < kept[np.minimum(block, last)]
        # beyond the table the ratios are smaller than its last one
        keep &= block <= last
        for case in np.flatnonzero(~keep):
            keep[case] = self._settle_coin(law, int(coin[case]), int(block[case]), int(offset[case]))
        block, offset = block[keep], offset[keep]
        return np.where(block >= LARGEST // law.width, LARGEST, block * law.width + offset)

    def _settle_block(self, law: BlockLaw, position: int) -> int:
        """Reveal more bits of a position until it lies in one block."""
        bits = self._look
        while True:
            position, bits = self._more(position, bits)
            table = tabulate_blocks(law, bits)
            block = bisect_right(table.edge_above, position) - 1
            if block < len(table.surely_kept) and position < table.edge_below[block + 1]:
                return block

    def _settle_coin(self, law: BlockLaw, coin: int, block: int, offset: int) -> bool:
        """Decide a coin against exp(−loss), revealing more bits while the bounds leave it open."""
        numerator = law.loss_above_block(block, offset)
        bits = self._look
        while True:
            lower, upper = exp_bounds(numerator, law.denominator, bits)
            if coin < lower:
                return True
            if coin >= upper:
                return False
            coin, bits = self._more(coin, bits)

    def _more(self, value: int, bits: int) -> tuple[int, int]:
        return (value << WORD) | int(self._bits.words(1)[0]), bits + WORD

    def _looks(self, count: int) -> NDArray[np.int64]:
        return (self._bits.words(count) >> np.uint64(WORD - self._look)).astype(np.int64)
