"""The median with noise scaled to its smooth sensitivity (docs/proofs/smooth-median.md).

Neighbours are two lists of the same public length that differ in one value.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.events import Event, SmoothLaplace
from dagveil.privacy.noise.exact import exp_bounds
from dagveil.privacy.noise.source import LARGEST_SCALE, SCALE_BITS, NoiseSource, representable_scale

DECAY_BITS: Final = 96  # powers of the decay are fractions with so many binary digits, rounded up
# floor of the noise scale: a constant is smooth, and noise of this scale is other than 0 once in 10^13 draws
SMALLEST_SCALE: Final = Fraction(1, 32)
LARGEST_DELTA: Final = Fraction(1, 2)  # above this the proof would need another case
LARGEST_EPSILON: Final = 1000  # above this there is nothing to protect, and logarithms would need more care
# relative part of the room for dilation, and of beta, that is given away for the error of floating point
FLOAT_SLACK: Final = Fraction(1, 2**40)


def median(values: Sequence[int] | NDArray[np.int64]) -> int:
    """Return the middle value, the lower one of two."""
    ordered = np.sort(np.asarray(values, dtype=np.int64))
    return int(ordered[(len(ordered) - 1) // 2])


def smooth_sensitivity(
    values: Sequence[int] | NDArray[np.int64], lower: int, upper: int, beta: Fraction | float
) -> Fraction:
    """Return an upper bound of the beta-smooth sensitivity of the median of integers in a public range.

    The bound is itself beta-smooth, exactly: on neighbours it differs by a factor of at most e^beta. It is above 0
    whenever the range is. Values outside the range count as its ends.

    The number of values is public, and `beta`, above 0, is the decay per changed value.
    """
    _check_range(len(values), lower, upper)
    changes = _changes_at_distance(np.asarray(values, dtype=np.int64), lower, upper)
    best = max(weight * change for weight, change in zip(_weights(Fraction(beta), len(changes)), changes, strict=True))
    return Fraction(best, 1 << DECAY_BITS)


@lru_cache(maxsize=256)
def dilation_bound(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest ratio 1 + c of the noise scales of two neighbours that the proof allows, rounded down.

    c obeys ln(1 + c) ≤ epsilon/2 and 2c/(1 + c) · exp(−epsilon/(2c)) ≤ delta; c = epsilon/(2 ln(2/delta)) always does.
    """
    half = float(epsilon) / 2
    log_delta = math.log(delta.numerator) - math.log(delta.denominator)
    low, high = half / (math.log(2) - log_delta), math.expm1(min(half, 30.0))
    for _ in range(60):
        middle = (low + high) / 2
        if math.log(2 * middle / (1 + middle)) - half / middle <= log_delta:
            low = middle
        else:
            high = middle
    return 1 + Fraction(low) * (1 - FLOAT_SLACK)


def decay_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return beta, so that noise scales still obey the dilation bound after they are rounded up."""
    room = dilation_bound(epsilon, delta) / (1 + Fraction(1, 2 ** (SCALE_BITS - 1))) - 1
    if room < FLOAT_SLACK:
        raise BudgetError(
            f"epsilon {float(epsilon):.3g} with delta {float(delta):.3g} is too small for a median with smooth noise; "
            "raise epsilon above 1e-4, or ask for votes."
        )
    return Fraction(math.log1p(float(room))) * (1 - FLOAT_SLACK)


def noise_scale(
    values: Sequence[int] | NDArray[np.int64], lower: int, upper: int, epsilon: Fraction, delta: Fraction
) -> Fraction:
    """Return the scale of the noise, before it is rounded up to one that can be drawn: as secret as the values."""
    smooth = smooth_sensitivity(values, lower, upper, decay_for(epsilon, delta))
    return max(smooth / (epsilon / 2), SMALLEST_SCALE)


def release_median(
    values: Sequence[int] | NDArray[np.int64],
    lower: int,
    upper: int,
    epsilon: Fraction,
    delta: Fraction,
    noise: NoiseSource,
    charge: Callable[[Event], None],
    label: str = "median",
) -> int:
    """Release the median of integers in a public range with discrete Laplace noise: (epsilon, delta)-private.

    Values outside the range count as its ends. The answer may lie outside the range; clamping it is free.
    """
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    _check_range(len(values), lower, upper)
    # every refusal must rest on public numbers, so the largest possible scale is checked, not the real one
    if not 0 < epsilon <= LARGEST_EPSILON or not 0 < delta <= LARGEST_DELTA:
        raise BudgetError(
            f"a median needs epsilon above 0 and at most {LARGEST_EPSILON}, delta above 0 and at most {LARGEST_DELTA}; "
            f"got {float(epsilon):.3g} and {float(delta):.3g}."
        )
    if (upper - lower) / (epsilon / 2) > LARGEST_SCALE:
        raise BudgetError("the range of the values over epsilon is above 2^49; choose a coarser grid.")
    decay_for(epsilon, delta)
    charge(SmoothLaplace(label, epsilon, delta))
    inside = np.clip(np.asarray(values, dtype=np.int64), lower, upper)
    scale = representable_scale(noise_scale(inside, lower, upper, epsilon, delta))
    return median(inside) + int(noise.discrete_laplace(scale, 1)[0])


def _changes_at_distance(values: NDArray[np.int64], lower: int, upper: int) -> list[int]:
    """How far one more change can move the median after k others, for k = 0 to the number of values.

    Take k + 2 neighbours in the sorted list, the median among them. After k changes the median can stand at one end of
    this window, and one more change moves it to the other end. Beyond the list stand the ends of the range.
    """
    ordered = np.sort(np.clip(values, lower, upper))
    count, middle = len(ordered), (len(ordered) - 1) // 2
    starts = np.concatenate([[lower], ordered[: middle + 1]])  # positions −1 to middle
    ends = np.concatenate([ordered[middle:], [upper]])  # positions middle to count
    gaps = np.arange(middle, count + 1)[None, :] - np.arange(-1, middle + 1)[:, None]
    widest = np.zeros(count + 2, dtype=np.int64)
    np.maximum.at(widest, gaps, ends[None, :] - starts[:, None])
    changes: list[int] = np.maximum.accumulate(widest[1:]).tolist()
    return changes


def _weights(beta: Fraction, count: int) -> list[int]:
    """Upper bounds of 2^DECAY_BITS e^(−k beta); each is at least e^−beta times the one before, as the proof needs."""
    if beta <= 0:
        raise BudgetError("the decay beta of a smooth sensitivity must be above 0.")
    decay = exp_bounds(beta.numerator, beta.denominator, DECAY_BITS)[1]
    weights = [1 << DECAY_BITS]
    while len(weights) < count:
        weights.append(-(-weights[-1] * decay >> DECAY_BITS))
    return weights


def _check_range(count: int, lower: int, upper: int) -> None:
    if count < 1:
        raise BudgetError("there is no value to take the median of; give at least one.")
    if not -LARGEST_SCALE <= lower < upper <= LARGEST_SCALE:
        raise BudgetError("a median needs a public range: lower below upper, both within 2^50.")
