"""A vectorised exact sampler: integer arithmetic only, no float anywhere (docs/proofs/exact-noise.md).

Every decision compares a uniform number, revealed bit by bit, with rigorous bounds on a probability. The first look
takes 62 bits and is vectorised; the rare undecided cases take more bits and tighter bounds until they are decided.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.noise import source
from dagveil.privacy.noise.bits import BitSource
from dagveil.privacy.noise.intervals import exp_bounds
from dagveil.privacy.noise.sampler_tables import BlockLaw

LOOK: Final = 62
"""Bits of the first look: edges up to 2^62 and their sums fit signed 64-bit integers."""

CHUNK: Final = 1 << 16
"""Draws per chunk, so that the working arrays stay in the cache."""

WORD: Final = 64
LARGEST: Final = 2**63 - 1


class ExactNoise:
    """Exact integer noise from a source of bits.

    Its running time depends on the draws: do not let strangers time single draws.

    Examples
    --------
    >>> from dagveil.privacy.noise.bits import SeededBits
    >>> noise = ExactNoise(SeededBits(1))
    >>> noise.private, noise.discrete_gaussian(Fraction(10_000), 3).dtype
    (False, dtype('int64'))
    """

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

    def representable_variance(self, variance: Fraction) -> Fraction:
        """Smallest variance at or above the wanted one that every source realises exactly."""
        return source.representable_variance(variance)

    def representable_scale(self, scale: Fraction) -> Fraction:
        """Smallest scale at or above the wanted one that every source realises exactly."""
        return source.representable_scale(scale)

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
            negative = self._signs(len(magnitude))
            signed = np.where(negative, -magnitude, magnitude)[~(negative & (magnitude == 0))]
            drawn[filled : filled + len(signed)] = signed
            filled += len(signed)
        return drawn

    def _magnitudes(self, law: BlockLaw, count: int) -> NDArray[np.int64]:
        """Propose so many points and return those that are kept."""
        below, above, kept = law.arrays(self._look)
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
            table = law.table(bits)
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

    def _signs(self, count: int) -> NDArray[np.bool_]:
        words = self._bits.words(-(-count // WORD))
        return np.unpackbits(words.view(np.uint8), count=count).astype(np.bool_)
