"""Where random bits come from."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class BitSource(Protocol):
    """Uniform, independent 64-bit words."""

    @property
    def private(self) -> bool:
        """Whether nobody can predict the words."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""


class SystemBits:
    """Words from the operating system's secure generator.

    Examples
    --------
    >>> SystemBits().words(3).shape
    (3,)
    """

    private = True

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class SeededBits:
    """Words that a seed determines: for tests and benchmarks, never for a release.

    Examples
    --------
    >>> bool((SeededBits(1).words(5) == SeededBits(1).words(5)).all())
    True
    """

    private = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(seed)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw so many words."""
        return self._generator.random_raw(count).astype(np.uint64, copy=False)
