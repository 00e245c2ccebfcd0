"""Report noisy max: the position of the largest score after Laplace noise (docs/proofs/exponential.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, NoisyMax
from dagveil.privacy.noise.source import NoiseSource


def choose(
    scores: Sequence[int],
    epsilon: Fraction,
    noise: NoiseSource,
    charge: Callable[[Event], None],
    sensitivity: int = 1,
    label: str = "noisy max",
) -> int:
    """Choose the position of the largest score + discrete Laplace(2 · sensitivity / epsilon); ties are drawn by lot.

    Examples
    --------
    >>> from dagveil.privacy.noise.kind import NoiseKind, noise_source
    >>> choose([0, 10**6], Fraction(1), noise_source(NoiseKind.EXACT), lambda event: None)
    1
    """
    if not len(scores) or sensitivity < 1:
        raise BudgetError("noisy max needs at least one score and an integer sensitivity of at least 1.")
    charge(NoisyMax(label, epsilon))
    scale = noise.representable_scale(2 * sensitivity / Fraction(epsilon))
    noisy = np.asarray(scores, dtype=np.int64) + noise.discrete_laplace(scale, len(scores))
    winners = np.flatnonzero(noisy == noisy.max())
    return int(winners[noise.uniform_below(len(winners), 1)[0]])
