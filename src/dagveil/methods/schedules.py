"""How a gradient method spreads its budget over iterations, and how many iterations a budget allows.

The three rising schedules and Lemma 2 are those of Bhattacharjee and Tandon 2024.
"""

from __future__ import annotations

import enum
import math

from dagveil.errors import MethodError


class Schedule(enum.Enum):
    """Epsilon of iteration k of I, from an initial one ε₀."""

    UNIFORM = "uniform"
    """ε₀, as NOLEAKS has it."""

    ADDITIVE = "additive"
    """ε₀ (1 + k/I): the last iteration gets almost twice the first."""

    EXPONENTIAL = "exponential"
    """ε₀ exp(k/I): the last iteration gets almost e times the first."""

    MULTIPLICATIVE = "multiplicative"
    """ε₀ ^ (1 + k/I): rises for ε₀ above 1 and **falls** below."""


def epsilon_at(schedule: Schedule, initial: float, iteration: int, iterations: int) -> float:
    """Return the epsilon of one iteration, counted from 0.

    Examples
    --------
    >>> [round(epsilon_at(Schedule.MULTIPLICATIVE, 0.1, k, 4), 4) for k in range(4)]
    [0.1, 0.0562, 0.0316, 0.0178]
    """
    step = iteration / iterations
    if schedule is Schedule.ADDITIVE:
        return initial * (1.0 + step)
    if schedule is Schedule.EXPONENTIAL:
        return initial * math.exp(step)
    if schedule is Schedule.MULTIPLICATIVE:
        return float(initial ** (1.0 + step))
    return initial


def iterations_allowed(schedule: Schedule, total: float, initial: float) -> float:
    """Return Lemma 2's number of iterations whose epsilons add up to at most the total, before rounding down.

    The exponential one is as printed, where every iteration is charged the largest epsilon: more would fit.

    Examples
    --------
    >>> round(iterations_allowed(Schedule.ADDITIVE, 1.0, 0.1), 2), round(iterations_allowed(Schedule.UNIFORM, 1.0, 0.1))
    (7.0, 10)
    """
    if initial <= 0.0 or total < initial:
        raise MethodError(f"an initial epsilon of {initial:g} does not fit a total of {total:g}; choose a smaller one")
    if schedule is Schedule.ADDITIVE:
        return (total + initial / 2.0) / (1.5 * initial)
    if schedule is Schedule.EXPONENTIAL:
        return total / (initial * math.e)
    if schedule is Schedule.MULTIPLICATIVE and initial != 1.0:
        rest = 1.0 - initial * (1.0 - initial) / total
        return math.log(initial) / math.log(rest) if rest > 0.0 else 1.0
    return total / initial


def shares(schedule: Schedule, initial: float, iterations: int) -> list[float]:
    """Return each iteration's share of the budget, in the unit of Gaussian accounting: in proportion to epsilon².

    Examples
    --------
    >>> [round(share, 3) for share in shares(Schedule.ADDITIVE, 0.1, 2)]
    [0.308, 0.692]
    """
    squares = [epsilon_at(schedule, initial, k, iterations) ** 2 for k in range(iterations)]
    whole = sum(squares)
    return [square / whole for square in squares]


def tell_direction(schedule: Schedule, initial: float) -> str:
    """Say whether later iterations get more or less.

    Examples
    --------
    >>> tell_direction(Schedule.MULTIPLICATIVE, 0.1)
    'Later iterations get less budget than earlier ones: this schedule falls for an initial epsilon below 1.'
    """
    if schedule is Schedule.MULTIPLICATIVE and initial < 1.0:
        return "Later iterations get less budget than earlier ones: this schedule falls for an initial epsilon below 1."
    if schedule is Schedule.UNIFORM or (initial == 1.0 and schedule is Schedule.MULTIPLICATIVE):
        return "Every iteration gets the same budget."
    return "Later iterations get more budget than earlier ones."
