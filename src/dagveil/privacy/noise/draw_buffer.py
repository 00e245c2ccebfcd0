"""Single Laplace draws, taken from the source in blocks: a call costs far more than a draw."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.process import HomeProcess

BLOCK: Final = 64
"""Draws per call of the source."""


class LaplaceBlocks:
    """Discrete Laplace draws, one at a time, of any scales that the source can realise.

    Examples
    --------
    >>> from dagveil.privacy.noise.kind import NoiseKind, noise_source
    >>> blocks = LaplaceBlocks(noise_source(NoiseKind.SEEDED, 1))
    >>> isinstance(blocks.draw(Fraction(8)), int)
    True
    """

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
