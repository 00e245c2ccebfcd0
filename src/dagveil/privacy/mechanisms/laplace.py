"""How large an epsilon a share of the budget buys, and the variance of integer Laplace noise."""

import math
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetError
from dagveil.privacy import events
from dagveil.privacy.budget import Budget

DIGITS: Final = 2**40  # epsilons are rounded down to fractions of this denominator
PureEvent = type[events.DiscreteLaplace] | type[events.ExponentialChoice]


def epsilon_for(accounting: events.Filter, amount: Fraction, event: PureEvent = events.DiscreteLaplace) -> Fraction:
    """Return the largest epsilon, but for rounding down, whose event costs at most `amount`.

    - `accounting`: the filter that will be charged.
    - `amount`: what may be charged, in the filter's unit.
    - `event`: Laplace noise (a round of the sparse vector costs the same), or a choice by the exponential mechanism.

    Examples
    --------
    >>> float(epsilon_for(events.PureFilter(Budget.of(1, 0)), Fraction(1, 4)))
    0.25
    >>> round(float(epsilon_for(events.ZcdpFilter(Budget.of(1, 1e-6)), Fraction(1, 200), events.ExponentialChoice)), 4)
    0.2
    """
    if amount <= 0:
        raise BudgetError("a share of the budget must be above 0")
    if isinstance(accounting, events.PureFilter):
        return amount
    if isinstance(accounting, events.ZcdpFilter):
        squared = amount * (8 if event is events.ExponentialChoice else 2)
    elif isinstance(accounting, events.GaussianFilter):
        squared = amount * (8 if event is events.ExponentialChoice else 2) / events.PI_ABOVE
    else:
        raise BudgetError(f"{accounting.name} has no simple price for Laplace noise; use zCDP or pure accounting")
    return Fraction(math.isqrt(math.floor(squared * DIGITS**2)), DIGITS)


def filter_for(budget: Budget, questions: int, event: PureEvent = events.DiscreteLaplace) -> events.Filter:
    """Choose the accounting with the largest epsilon for each of so many questions: few add up, many by zCDP."""
    pure = events.PureFilter(budget)
    if budget.delta == 0:
        return pure
    concentrated = events.ZcdpFilter(budget)
    many = max(1, questions)
    if epsilon_for(pure, pure.total / many, event) >= epsilon_for(concentrated, concentrated.total / many, event):
        return pure
    return concentrated


def laplace_variance(scale: Fraction) -> Fraction:
    """Return the variance of discrete Laplace noise, 1 / (2 sinh²(1 / (2 scale))), for those who read noisy values."""
    # below 1e-43 it makes no difference, but readers divide by it
    half = float(min(1 / (2 * scale), Fraction(50)))
    return Fraction(0.5 / math.sinh(half) ** 2)
