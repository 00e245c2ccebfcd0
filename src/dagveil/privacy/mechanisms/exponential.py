"""The exponential mechanism, sampled exactly (docs/proofs/exponential.md)."""

from __future__ import annotations

import math
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
FAR: Final = 32  # weights are computed anew if the least loss of those left is larger by this


class Weights:
    """Weights exp(−loss) of positions, from which one position after the other can be drawn exactly."""

    def __init__(self, losses: Sequence[Fraction]) -> None:
        self._denominator = math.lcm(*(loss.denominator for loss in losses))
        self._losses = [int(loss * self._denominator) for loss in losses]
        self._base = 0
        self._known: dict[int, dict[int, tuple[int, int]]] = {}

    def draw(self, places: Sequence[int], noise: NoiseSource) -> int:
        """Choose one of these positions with probability in proportion to its weight."""
        position, bits = 0, 0
        while True:
            position = (position << LOOK) | int(noise.uniform_below(1 << LOOK, 1)[0])
            bits += LOOK
            bounds = self._bounds(places, bits + 16 + FAR + FAR // 2 + len(places).bit_length())
            below = list(accumulate((low for low, _ in bounds), initial=0))
            above = list(accumulate((high for _, high in bounds), initial=0))
            # edge j, as a part of the sum of all weights, lies between below[j]/above[-1] and above[j]/below[-1]
            ceilings = [-((-edge << bits) // below[-1]) for edge in above]
            chosen = bisect_right(ceilings, position) - 1
            if chosen < len(places) and position + 1 <= (below[chosen + 1] << bits) // above[-1]:
                return places[chosen]

    def _bounds(self, places: Sequence[int], work: int) -> list[tuple[int, int]]:
        """Return bounds on the weights of these positions, all relative to one of about the largest."""
        least = min(self._losses[place] for place in places)
        if not self._base <= least <= self._base + FAR * self._denominator or not self._known:
            self._base, self._known = least, {}
        known = self._known.setdefault(work, {})
        for place in places:
            if place not in known:
                known[place] = exp_bounds(self._losses[place] - self._base, self._denominator, work)
        return [known[place] for place in places]


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
    places = range(len(scores_in_units_of_sensitivity))
    return choose_in_turn(scores_in_units_of_sensitivity, epsilon, 1, lambda _: places, noise, charge, label)[0]


def choose_in_turn(
    scores_in_units_of_sensitivity: Sequence[Fraction | int],
    epsilon: Fraction,
    count: int,
    allowed: Callable[[Sequence[int]], Sequence[int]],
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "choices",
) -> list[int]:
    """Choose up to so many positions, one after the other, each as `choose` does.

    `allowed` returns the positions that may come next, given those chosen so far and nothing else; none ends it.
    """
    scores = [Fraction(score) for score in scores_in_units_of_sensitivity]
    if not scores or count < 1:
        raise BudgetError("there is nothing to choose from; give at least one score.")
    charge(ExponentialChoice(label, epsilon, count))
    best = max(scores)
    weights = Weights([Fraction(epsilon) * (best - score) / 2 for score in scores])
    chosen: list[int] = []
    while len(chosen) < count and (places := allowed(chosen)):
        chosen.append(weights.draw(places, noise))
    return chosen
