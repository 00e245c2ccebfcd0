"""The exponential mechanism, sampled exactly (docs/proofs/exponential.md)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, ExponentialChoice
from dagveil.privacy.noise.exact import exp_bounds
from dagveil.privacy.noise.source import NoiseSource

LOOK: Final = 62  # bits that each look reveals


def choose_by_loss(losses: Sequence[Fraction], noise: NoiseSource) -> int:
    """Choose a position with probability in proportion to exp(−loss), exactly; losses are at least 0."""
    position, bits = 0, 0
    while True:
        position = (position << LOOK) | int(noise.uniform_below(1 << LOOK, 1)[0])
        bits += LOOK
        work = bits + 16 + len(losses).bit_length()
        bounds = [exp_bounds(loss.numerator, loss.denominator, work) for loss in losses]
        below = list(accumulate((low for low, _ in bounds), initial=0))
        above = list(accumulate((high for _, high in bounds), initial=0))
        # edge j, as a part of the sum of all weights, lies between below[j]/above[-1] and above[j]/below[-1]
        ceilings = [-((-edge << bits) // below[-1]) for edge in above]
        chosen = bisect_right(ceilings, position) - 1
        if chosen < len(losses) and position + 1 <= (below[chosen + 1] << bits) // above[-1]:
            return chosen


def flip(bounds: Callable[[int], tuple[int, int]], size: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """Flip coins whose probability of true p is known by bounds(bits): lower ≤ 2^bits p ≤ upper."""
    lower, upper = bounds(LOOK)
    position = noise.uniform_below(1 << LOOK, size)
    landed: NDArray[np.bool_] = position < lower
    for case in np.flatnonzero((position >= lower) & (position < upper)):
        landed[case] = _settle(bounds, int(position[case]), noise)
    return landed


def _settle(bounds: Callable[[int], tuple[int, int]], position: int, noise: NoiseSource) -> bool:
    bits = LOOK
    while True:
        position = (position << LOOK) | int(noise.uniform_below(1 << LOOK, 1)[0])
        bits += LOOK
        lower, upper = bounds(bits)
        if position < lower:
            return True
        if position >= upper:
            return False


def choose(
    scores_in_units_of_sensitivity: Sequence[Fraction | int],
    epsilon: Fraction,
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "choice",
) -> int:
    """Choose a position with probability in proportion to exp(epsilon · score / 2).

    Every score is divided by its sensitivity first: one record moves it by at most 1. Scores are exact numbers; a float
    that was rounded may move by more than its sensitivity, so round it to a public grid and count that in.
    """
    scores = [Fraction(score) for score in scores_in_units_of_sensitivity]
    if not scores:
        raise BudgetError("there is nothing to choose from; give at least one score.")
    charge(ExponentialChoice(label, epsilon))
    best = max(scores)
    return choose_by_loss([Fraction(epsilon) * (best - score) / 2 for score in scores], noise)
