"""The exponential mechanism, sampled exactly (docs/proofs/exponential.md)."""

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
from dagveil.privacy.noise.exact import EXP_GAP, EXPONENT_BITS, exp_bounds, exp_floors
from dagveil.privacy.noise.source import NoiseSource

Integers = NDArray[np.int64]
LOOK: Final = 62  # bits that each look reveals
ROOM: Final = 1 << 62  # losses beyond this, in steps of the first look, count as this much


class Weights:
    """Weights exp(−loss) of positions, from which one position after the other can be drawn exactly.

    A loss is so many steps of one unit, both at least 0.
    """

    def __init__(self, steps: Sequence[int], unit: Fraction) -> None:
        self._steps, self._unit = steps, unit
        factor, divisor = unit.numerator << EXPONENT_BITS, unit.denominator
        self._losses = np.array([min(ROOM, step * factor // divisor) for step in steps], dtype=np.int64)
        self._base, self._floors = -ROOM, self._losses

    def draw(self, places: Sequence[int] | NDArray[np.intp], noise: NoiseSource) -> int:
        """Choose one of these positions with probability in proportion to its weight."""
        places = np.asarray(places, dtype=np.intp)
        position = int(noise.uniform_below(1 << LOOK, 1)[0])
        least = int(self._losses[places].min())
        if least < ROOM // 2:  # rough bounds nearly always do
            if not self._base <= least <= self._base + (1 << EXPONENT_BITS):
                self._base, self._floors = least, exp_floors(np.maximum(self._losses - least, 0))
            lows = self._floors[places]
            below = np.concatenate([[0], lows.cumsum()])
            above = below + EXP_GAP * np.arange(len(below))
            chosen = _find_piece(position, LOOK, below, above)
            if chosen is not None:
                return int(places[chosen])
        return int(places[self._settle(places.tolist(), position, noise)])

    def _settle(self, places: Sequence[int], position: int, noise: NoiseSource) -> int:
        """Tighten the bounds, and reveal more bits of the position, until it lies in one piece."""
        least = min(self._steps[place] for place in places)
        factor, divisor = self._unit.as_integer_ratio()
        losses = [(self._steps[place] - least) * factor for place in places]
        bits = LOOK
        while True:
            bounds = [exp_bounds(loss, divisor, bits + 16 + len(places).bit_length()) for loss in losses]
            below, above = (list(accumulate(edges, initial=0)) for edges in zip(*bounds, strict=True))
            chosen = _find_piece(position, bits, below, above)
            if chosen is not None:
                return chosen
            position = (position << LOOK) | int(noise.uniform_below(1 << LOOK, 1)[0])
            bits += LOOK


def _find_piece(
    position: int, bits: int, below: Sequence[int] | Integers, above: Sequence[int] | Integers
) -> int | None:
    """Return the piece that surely holds a number known to so many bits, or None.

    Edge j, as a part of the sum of all weights, lies between below[j]/above[-1] and above[j]/below[-1].
    """
    chosen = bisect_right(above, (position * int(below[-1])) >> bits) - 1
    surely = chosen < len(below) - 1 and (position + 1) * int(above[-1]) <= int(below[chosen + 1]) << bits
    return chosen if surely else None


def _on_grid(numbers: Sequence[Fraction | int]) -> tuple[list[int], int]:
    """Return numbers as integers over one denominator."""
    grid = math.lcm(*(Fraction(number).denominator for number in numbers))
    return [int(number * grid) for number in numbers], grid


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
    steps, grid = _on_grid(scores_in_units_of_sensitivity)
    return choose_in_turn(steps, grid, epsilon, 1, lambda _: range(len(steps)), noise, charge, label)[0]


def choose_in_turn(
    steps: Sequence[int],
    grid: int,
    epsilon: Fraction,
    count: int,
    allowed: Callable[[Sequence[int]], Sequence[int] | NDArray[np.intp]],
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "choices",
) -> list[int]:
    """Choose up to so many positions, one after the other, each as `choose` does.

    One record moves a score by at most `grid` steps. `allowed` returns the positions that may come next, given those
    chosen so far and nothing else; none ends it.
    """
    if not steps or count < 1:
        raise BudgetError("there is nothing to choose from; give at least one score.")
    charge(ExponentialChoice(label, epsilon, count))
    best = max(steps)
    weights = Weights([best - step for step in steps], Fraction(epsilon) / (2 * grid))
    chosen: list[int] = []
    while len(chosen) < count and len(places := allowed(chosen)):
        chosen.append(weights.draw(places, noise))
    return chosen
