"""Randomised response over k levels, sampled exactly (docs/proofs/randomised-response.md)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, RandomisedResponse
from dagveil.privacy.mechanisms.lazy_choice import flip
from dagveil.privacy.noise.intervals import exp_bounds
from dagveil.privacy.noise.source import NoiseSource


def respond(
    values: NDArray[np.int64],
    levels: int,
    epsilon: Fraction,
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "answers",
) -> NDArray[np.int64]:
    """Randomise one value per record: the truth with weight e^epsilon, every other level with weight 1.

    The number of values is public. Each record gives one value, so the whole call costs epsilon once.

    Examples
    --------
    >>> from dagveil.privacy.noise.kind import NoiseKind, noise_source
    >>> respond(np.array([0, 2]), 3, Fraction(1000), noise_source(NoiseKind.EXACT), lambda event: None)
    array([0, 2])
    """
    true_values = np.asarray(values, dtype=np.int64)
    if levels < 2:
        raise BudgetError(f"randomised response needs at least 2 levels, not {levels}.")
    if len(true_values) and (true_values.min() < 0 or true_values.max() >= levels):
        raise BudgetError(f"randomised response takes values from 0 to {levels - 1}; some are outside.")
    charge(RandomisedResponse(label, epsilon))
    truthful = flip(lambda bits: _truth_bounds(Fraction(epsilon), levels, bits), len(true_values), noise)
    # another level: a step of 1 to levels − 1 around the circle, all equally likely
    steps = 1 + noise.uniform_below(levels - 1, len(true_values))
    return np.where(truthful, true_values, (true_values + steps) % levels)


def _truth_bounds(epsilon: Fraction, levels: int, bits: int) -> tuple[int, int]:
    """Bounds on 2^bits / (1 + (levels − 1) e^−epsilon)."""
    work = bits + 16 + levels.bit_length()
    lower, upper = exp_bounds(epsilon.numerator, epsilon.denominator, work)
    one = 1 << work
    return (one << bits) // (one + (levels - 1) * upper), -((-one << bits) // (one + (levels - 1) * lower))
