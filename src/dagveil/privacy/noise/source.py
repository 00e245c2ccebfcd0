"""What a noise source offers, and the scales that every source can realise."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.events import HomeProcess

# realisable scales are floats with so many significant bits: at most a 2^-20 part above the wanted scale
SCALE_BITS: Final = 21
LARGEST_SCALE: Final = 2**50  # beyond this scale noise would not fit 64-bit integers


class NoiseSource(Protocol):
    """Exact integer noise; draws beyond 64-bit integers, which no run sees, are clamped: post-processing."""

    @property
    def name(self) -> str:
        """Name for the receipt."""

    @property
    def private(self) -> bool:
        """False for a seeded source: "seeded: not private"."""

    def discrete_gaussian(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−y²/(2 variance))."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw integers with probability in proportion to exp(−|y|/scale)."""

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw integers from 0 to bound − 1, all equally likely."""

    def bernoulli(self, p: Fraction, size: int) -> NDArray[np.bool_]:
        """Draw true with probability p."""


def representable_scale(scale: Fraction) -> Fraction:
    """Smallest scale at or above this one that every source realises exactly: a number with 21 significant bits."""
    checked_scale(scale)
    # with this unit the scale lies between 2^19 and 2^21 units: 21 bits before the point, or one bit fewer
    shift = SCALE_BITS - 1 - (scale.numerator.bit_length() - scale.denominator.bit_length())
    unit = Fraction(2) ** -shift
    if scale < unit * 2 ** (SCALE_BITS - 1):
        unit /= 2
    return math.ceil(scale / unit) * unit


def representable_variance(variance: Fraction) -> Fraction:
    """Smallest variance at or above this one that every source realises: a square of such a scale."""
    checked_variance(variance)
    # The root is rounded up to a fine grid that contains every 21-bit number of its size, then to 21 bits: rounding
    # up twice onto nested grids is rounding up once.
    shift = 64 + variance.denominator.bit_length()
    root = Fraction(math.isqrt(math.ceil(variance * 4**shift) - 1) + 1, 2**shift)
    return representable_scale(root) ** 2


def checked_variance(variance: Fraction) -> Fraction:
    """Return the variance, or say why noise of this variance cannot be drawn."""
    if variance <= 0 or variance > LARGEST_SCALE**2:
        raise BudgetError(f"a noise variance must be above 0 and at most 2^100; got about {float(variance):.3g}.")
    return variance


def checked_scale(scale: Fraction) -> Fraction:
    """Return the scale, or say why noise of this scale cannot be drawn."""
    if scale <= 0 or scale > LARGEST_SCALE:
        raise BudgetError(f"a noise scale must be above 0 and at most 2^50; got about {float(scale):.3g}.")
    return scale


BLOCK: Final = 64  # draws per call of the source


class LaplaceBlocks:
    """Discrete Laplace draws, one at a time, of any scales that the source can realise."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._home = HomeProcess()
        self._waiting: dict[Fraction, Iterator[int]] = {}

    def draw(self, scale: Fraction) -> int:
        """Return a fresh draw; no draw is ever handed out twice, in a forked process neither."""
        self._home.check("a block of draws")
        drawn = next(self._waiting.get(scale, iter(())), None)
        if drawn is None:
            self._waiting[scale] = iter(self._noise.discrete_laplace(scale, BLOCK).tolist())
            drawn = next(self._waiting[scale])
        return drawn
