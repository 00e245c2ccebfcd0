"""k-ary randomised response: the truth with a larger weight, every other value with the same smaller one."""

from __future__ import annotations

import math

import numpy as np

from dagveil.errors import BudgetError
from dagveil.local.channel import WHOLE, Channel


def randomised_response(n_values: int, epsilon: float) -> Channel:
    """Return randomised response over so many values with at most this ε.

    Examples
    --------
    >>> channel = randomised_response(4, math.log(3))
    >>> [round(float(p), 6) for p in channel.matrix[0]], channel.epsilon() <= math.log(3) + 1e-12
    ([0.5, 0.166667, 0.166667, 0.166667], True)
    """
    if not epsilon >= 0.0 or not math.isfinite(epsilon):
        raise BudgetError(f"the epsilon of randomised response is {epsilon:g}; choose a finite number of 0 or more")
    # a hair less, so that the exact epsilon, which is rounded up, is never more than what was asked for
    return response_with_truth(n_values, truth_of_response(n_values, epsilon * (1.0 - 1e-12)))


def response_with_truth(n_values: int, truth: float) -> Channel:
    """Return randomised response that tells the truth with at most this probability.

    Examples
    --------
    >>> response_with_truth(2, 0.75).matrix.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    check_truth(n_values, truth)
    if n_values == 1:
        return Channel(np.array([[WHOLE]], dtype=np.int64))
    # others are rounded up, the truth takes the rest: the ratio of the two never exceeds what was asked for
    other = min(math.ceil((1.0 - truth) * WHOLE / (n_values - 1)), WHOLE // n_values)
    other = max(other, 1)
    weights = np.full((n_values, n_values), other, dtype=np.int64)
    np.fill_diagonal(weights, WHOLE - (n_values - 1) * other)
    return Channel(weights)


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


def check_truth(n_values: int, truth: float) -> None:
    """Refuse a probability of the truth that no channel of this kind can have."""
    if n_values < 1:
        raise BudgetError(f"a channel needs at least 1 value, not {n_values}")
    if not (1.0 / n_values <= truth * (1.0 + 1e-12) and truth < 1.0) and n_values > 1:
        raise BudgetError(
            f"the truth cannot be reported with probability {truth:g}: with {n_values} values it must be at least "
            f"1/{n_values} = {1.0 / n_values:.4g}, which is blind guessing, and below 1"
        )
