"""k-ary randomised response: the truth with a larger weight, every other value with the same smaller one."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dagveil.errors import BudgetError
from dagveil.local.channel import LOG_ERROR, WHOLE, Channel

HAIR: Final = 2.0**-49
"""Relatively more than float rounding can do to a probability that a few operations give."""


def randomised_response(n_values: int, epsilon: float) -> Channel:
    """Return randomised response over so many values with at most this ε.

    Examples
    --------
    >>> channel = randomised_response(4, math.log(3))
    >>> [round(float(p), 6) for p in channel.matrix[0]], channel.epsilon() <= math.log(3)
    ([0.5, 0.166667, 0.166667, 0.166667], True)
    """
    if not epsilon >= 0.0 or not math.isfinite(epsilon):
        raise BudgetError(f"the epsilon of randomised response is {epsilon:g}; choose a finite number of 0 or more")
    _check_values(n_values)
    # the weight of another value comes from epsilon at once: 1 − truth would keep few digits of it
    shrink = math.exp(-lower(epsilon))
    return _response(n_values, math.ceil(WHOLE * shrink / (1.0 + (n_values - 1) * shrink) * (1.0 + HAIR)))


def response_with_truth(n_values: int, truth: float) -> Channel:
    """Return randomised response that tells the truth with at most this probability.

    Examples
    --------
    >>> response_with_truth(2, 0.75).matrix.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    check_truth(n_values, truth)
    return _response(n_values, math.ceil((1.0 - truth) * WHOLE / max(n_values - 1, 1)))


def truth_of_response(n_values: int, epsilon: float) -> float:
    """Return e^ε / (k − 1 + e^ε): how often randomised response tells the truth.

    Examples
    --------
    >>> truth_of_response(2, 0.0)
    0.5
    """
    return 1.0 / (1.0 + (n_values - 1) * math.exp(-epsilon))


def epsilon_of_response(n_values: int, truth: float) -> float:
    """Return the ε at which randomised response tells the truth so often.

    Examples
    --------
    >>> round(epsilon_of_response(4, 0.5), 6) == round(math.log(3), 6)
    True
    """
    check_truth(n_values, truth)
    return math.log(truth * (n_values - 1) / (1.0 - truth)) if n_values > 1 else 0.0


def lower(epsilon: float) -> float:
    """Return a hair less than this ε, so that the exact one, which is rounded up, is never above what was asked for.

    Examples
    --------
    >>> lower(0.0), 1.0 - 1e-11 < lower(1.0) < 1.0
    (0.0, True)
    """
    return max(epsilon * (1.0 - 1e-12) - 4.0 * LOG_ERROR, 0.0)


def check_truth(n_values: int, truth: float) -> None:
    """Refuse a probability of the truth that no channel of this kind can have."""
    _check_values(n_values)
    # whole numbers are divided, since those of a product of many columns may be beyond all floats
    chance = 1 / n_values
    if not (chance <= truth * (1.0 + 1e-12) and truth < 1.0) and n_values > 1:
        size = write_size(n_values)
        raise BudgetError(
            f"the truth cannot be reported with probability {truth:g}: with {size} values it must be at least "
            f"1/{size} = {chance:.4g}, which is blind guessing, and below 1"
        )


def write_size(size: int) -> str:
    """Write a number of values or records, a very large one as a power of 2.

    Examples
    --------
    >>> write_size(45), write_size(2**1200)
    ('45', '(about 2**1200)')
    """
    return str(size) if size <= WHOLE else f"(about 2**{math.log2(size):.0f})"


def _check_values(n_values: int) -> None:
    if n_values < 1:
        raise BudgetError(f"a channel needs at least 1 value, not {n_values}")


def _response(n_values: int, other: int) -> Channel:
    if n_values == 1:
        return Channel(np.array([[WHOLE]], dtype=np.int64))
    # others were rounded up, the truth takes the rest: the ratio of the two never exceeds what was asked for
    other = max(min(other, WHOLE // n_values), 1)
    weights = np.full((n_values, n_values), other, dtype=np.int64)
    np.fill_diagonal(weights, WHOLE - (n_values - 1) * other)
    return Channel(weights)
