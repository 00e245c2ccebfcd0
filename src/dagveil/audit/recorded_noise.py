"""Noise that is noted; on a replay it is zero, and random choices are those of the recording."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import DagveilError
from dagveil.privacy.noise.source import NoiseSource


class Divergence(DagveilError):
    """A replayed run left the recording: something other than an answer told it which rows it had."""


class NoiseLaw(enum.Enum):
    """The laws that noise is drawn from."""

    GAUSSIAN = "discrete Gaussian"
    LAPLACE = "discrete Laplace"


@dataclass(frozen=True, slots=True)
class Draw:
    """One request for noise: the law, its variance or scale, and how many numbers."""

    law: NoiseLaw
    width: Fraction
    size: int


class RecordedNoise:
    """Noise that is noted. On a replay it is zero, and random choices are the ones on the recording.

    Parameters
    ----------
    source
        Where noise comes from in a first run.
    """

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._waiting: Iterator[NDArray[Any]] | None = None
        self._is_free = False
        self.draws: list[Draw] = []
        self.luck: list[NDArray[Any]] = []

    @property
    def name(self) -> str:
        """Name for the receipt."""
        return f"audited {self._source.name}"

    @property
    def private(self) -> bool:
        """As private as the source."""
        return self._source.private

    def begin(self, luck: Sequence[NDArray[Any]] | None) -> None:
        """Start an exchange; on a replay with the random choices of the recording."""
        self.draws, self.luck = [], []
        self._waiting = None if luck is None else iter(luck)

    @contextmanager
    def free(self) -> Iterator[None]:
        """Draw from the source meanwhile, note nothing: for mechanisms whose draws are noise, not choices."""
        self._is_free = True
        try:
            yield
        finally:
            self._is_free = False

    def representable_variance(self, variance: Fraction) -> Fraction:
        """Smallest variance at or above the wanted one that every source realises exactly."""
        return self._source.representable_variance(variance)

    def representable_scale(self, scale: Fraction) -> Fraction:
        """Smallest scale at or above the wanted one that every source realises exactly."""
        return self._source.representable_scale(scale)

    def discrete_gaussian(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw Gaussian integers."""
        self.draws.append(Draw(NoiseLaw.GAUSSIAN, variance, size))
        return self._zeros(size) if self._waiting is not None else self._source.discrete_gaussian(variance, size)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw Laplace integers."""
        self.draws.append(Draw(NoiseLaw.LAPLACE, scale, size))
        return self._zeros(size) if self._waiting is not None else self._source.discrete_laplace(scale, size)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw integers from 0 to bound − 1; a record that is new on a replay gets the middle one."""
        return self._choose(lambda: self._source.uniform_below(bound, size), size, bound // 2)

    def bernoulli(self, p: Fraction, size: int) -> NDArray[np.bool_]:
        """Draw true with probability p; a record that is new on a replay is taken."""
        return self._choose(lambda: self._source.bernoulli(p, size), size, True)

    def _choose(self, draw: Callable[[], NDArray[Any]], size: int, new: int | bool) -> NDArray[Any]:
        if self._is_free:
            return draw()
        chosen = draw() if self._waiting is None else self._play(size, new)
        self.luck.append(chosen.copy())
        return chosen

    def _play(self, size: int, new: int | bool) -> NDArray[Any]:
        assert self._waiting is not None
        recorded = next(self._waiting, None)
        if recorded is None or abs(len(recorded) - size) > 1:
            raise Divergence(f"the run asked for {size} random choices that the recording does not have")
        return np.append(recorded, recorded.dtype.type(new))[:size] if len(recorded) < size else recorded[:size].copy()

    @staticmethod
    def _zeros(size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)
