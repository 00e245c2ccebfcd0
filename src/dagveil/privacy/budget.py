"""A privacy budget: epsilon and delta as exact fractions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TypeAlias

from dagveil.errors import InvalidBudgetError

Amount: TypeAlias = float | int | str | Decimal | Fraction
MOST_BITS = 1400  # bits of a budget's numerators and denominators: a float has none that are longer
LARGEST_EPSILON = 10**15  # beyond this an amount is a mistake: no accounting goes further than 1e9


@dataclass(frozen=True, slots=True)
class Budget:
    """An (epsilon, delta) budget.

    Examples
    --------
    >>> Budget.of(0.1, 1e-6)
    Budget(epsilon=Fraction(1, 10), delta=Fraction(1, 1000000))
    >>> Budget.of("1/3", 0).words
    'epsilon 0.3334, delta 0'
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction) or not isinstance(self.delta, Fraction):
            raise InvalidBudgetError("Budget takes exact fractions; use Budget.of(epsilon, delta) for other numbers.")
        for name, amount in (("epsilon", self.epsilon), ("delta", self.delta)):
            if max(amount.numerator.bit_length(), amount.denominator.bit_length()) > MOST_BITS:
                raise InvalidBudgetError(f"{name} has hundreds of digits, but it must be a number such as 0.5 or 1/2.")
        if self.epsilon <= 0:
            raise InvalidBudgetError(f"epsilon is {self.epsilon}, but it must be above 0; common values are 0.1 to 10.")
        if self.epsilon > LARGEST_EPSILON:
            raise InvalidBudgetError(f"epsilon is above {LARGEST_EPSILON:.0e}, which promises nothing; lower it.")
        if not 0 <= self.delta < 1:
            raise InvalidBudgetError(
                f"delta is {self.delta}, but it must be at least 0 and below 1; choose it far below 1/rows, e.g. 1e-6."
            )

    @classmethod
    def of(cls, epsilon: Amount, delta: Amount) -> Budget:
        """Read a budget from any number; a float means its shortest decimal."""
        return cls(exact(epsilon, "epsilon"), exact(delta, "delta"))

    @property
    def words(self) -> str:
        """The budget for people, rounded up."""
        return f"epsilon {round_up(self.epsilon, 4)}, delta {round_up(self.delta, 4)}"


MOST_DIGITS = 400  # digits and exponents up to this are read: a float has none that are larger


def exact(value: Amount, name: str = "value") -> Fraction:
    """Turn a number into an exact fraction; a float means the shortest decimal that prints it: 0.1 is a tenth."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Fraction):
        raise InvalidBudgetError(f"{name} is of type {type(value).__name__}, but it must be a number.")
    try:
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidBudgetError(f"{name} is {value}, but it must be a finite number.")
            return Fraction(repr(float(value)))
        if isinstance(value, str | Decimal) and _is_endless(value):
            raise InvalidBudgetError(f"{name} has hundreds of digits, but it must be a number such as 0.5 or 1/2.")
        return Fraction(value)
    except InvalidBudgetError:
        raise
    except (ValueError, OverflowError, ZeroDivisionError):
        raise InvalidBudgetError(
            f"{name} is {str(value)!r}, but it must be a finite number such as 0.5 or 1/2."
        ) from None


def _is_endless(value: str | Decimal) -> bool:
    """Tell whether a text is so long, or its exponent so large, that the exact number would take much memory."""
    text = str(value)
    exponent = re.search(r"[eE][+-]?(\d+)", text)
    return len(text) > MOST_DIGITS or (exponent is not None and int(exponent.group(1)) > MOST_DIGITS)


def round_up(x: Amount, digits: int) -> str:
    """Print a non-negative number with so many significant digits, never below its true value."""
    return _print(exact(x), digits, ROUND_CEILING)


def round_down(x: Amount, digits: int) -> str:
    """Print a non-negative number with so many significant digits, never above its true value."""
    return _print(exact(x), digits, ROUND_FLOOR)


def _print(number: Fraction, digits: int, rounding: str) -> str:
    if number < 0 or digits < 1:
        raise InvalidBudgetError(f"amounts are printed from 0 up with at least 1 digit; got {digits} digits.")
    context = Context(prec=digits, rounding=rounding)
    shown = context.divide(Decimal(number.numerator), Decimal(number.denominator)).normalize(context)
    if number == 0 or shown >= Decimal("0.0001"):
        return f"{shown:f}"
    mantissa, exponent = f"{shown:e}".split("e")
    return f"{mantissa}e{int(exponent)}"
