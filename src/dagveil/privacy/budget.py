"""A privacy budget, which tables must be hard to tell apart, and conversions to totals, rounded towards privacy.

Budgets are exact fractions. Two named slacks make the conversion to totals of concentrated or Gaussian privacy safe:
they cover floating point and, for Gaussian totals, the gap between the discrete and the continuous Gaussian for up to
MOST_CHANGED_DRAWS changed draws (docs/proofs/discrete-gaussian.md).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

from dagveil.errors import BudgetError, InvalidBudgetError

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


class Relation(enum.Enum):
    """How two neighbouring tables differ; an argument of every sensitivity."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @property
    def words(self) -> str:
        """The relation in plain words."""
        return self.describe("one record")

    def describe(self, unit: str, more: str = "", known: str = "number of rows") -> str:
        """Say the relation about some unit."""
        with_more = f" {more}" if more else ""
        if self is Relation.ADD_REMOVE:
            return f"{unit}{with_more} is added or removed"
        return f"{unit}{with_more} is replaced by another; the {known} is public"


EPSILON_SLACK: Final = 1e-9  # taken off epsilon before a total is computed, and added to an epsilon afterwards
DELTA_SLACK: Final = 1e-6  # relative part of delta that is never handed out
TOTAL_MARGIN: Final = 1e-10  # relative part of a total that is never handed out; see total_margin
# changed draws of discrete Gaussian noise that EPSILON_SLACK and DELTA_SLACK cover in one run
MOST_CHANGED_DRAWS: Final = 10_000_000


def log_gaussian_delta(epsilon: float, mu: float) -> float:
    """Natural logarithm of the delta that mu-Gaussian privacy has at this epsilon (Balle and Wang 2018)."""
    from scipy.special import log_ndtr

    # Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), as e^a (1 − e^(b−a)): neither term can underflow
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    gap = second - first
    return first + math.log(-math.expm1(gap)) if gap < 0 else -math.inf


def total_margin(budget: Budget) -> Fraction:
    """Relative part of a budget's total that is not handed out, so that forth and back stays inside the budget.

    Logarithms about as large as that of delta cancel down to epsilon, so what rounding does to a total grows as epsilon
    shrinks. (The guarantee needs none of this: EPSILON_SLACK is a hundred thousand times larger than that rounding.)
    """
    return Fraction(max(TOTAL_MARGIN, 1e-14 * -_usable_log_delta(budget.delta) / float(budget.epsilon)))


@lru_cache(maxsize=1024)
def mu_squared_of(budget: Budget) -> Fraction:
    """Largest total mu squared that stays inside the budget, rounded down."""
    log_delta = _usable_log_delta(budget.delta)
    epsilon = _usable_epsilon(budget)
    mu = _largest(lambda candidate: log_gaussian_delta(epsilon, candidate) <= log_delta)
    return Fraction(mu * mu) * (1 - total_margin(budget))


@lru_cache(maxsize=1024)
def epsilon_of_mu_squared(mu_squared: Fraction, delta: Fraction) -> Fraction:
    """Smallest epsilon that a total mu squared promises at this delta, rounded up."""
    log_delta = _usable_log_delta(delta)
    mu = math.sqrt(float(_checked_total(mu_squared))) * (1 + 2**-50)  # rounded up
    if mu == 0:
        return Fraction(0)
    if log_gaussian_delta(0.0, mu) <= log_delta:
        return Fraction(EPSILON_SLACK)
    inside = _largest(lambda epsilon: log_gaussian_delta(epsilon, mu) > log_delta)
    return Fraction(inside) * (1 + Fraction(1, 2**48)) + Fraction(EPSILON_SLACK)


@lru_cache(maxsize=1024)
def rho_of(budget: Budget) -> Fraction:
    """Largest total rho that stays inside the budget, rounded down (Canonne, Kamath and Steinke 2020, tight form)."""
    log_delta = _usable_log_delta(budget.delta)
    epsilon = _usable_epsilon(budget)
    # every order gives a valid rho, so a search that is not quite optimal is still private
    best = _best(lambda excess: (epsilon - _order_term(excess, log_delta)) / (1 + excess))
    if best <= 0:
        raise BudgetError(f"{budget.words} leaves no room for zCDP accounting; raise epsilon or delta.")
    return Fraction(best) * (1 - total_margin(budget))


@lru_cache(maxsize=1024)
def epsilon_of_rho(rho: Fraction, delta: Fraction) -> Fraction:
    """Smallest epsilon that a total rho promises at this delta, rounded up."""
    log_delta = _usable_log_delta(delta)
    total = _checked_total(rho)
    if total == 0:
        return Fraction(0)
    amount = float(total) * (1 + 2**-50)
    best = max(0.0, -_best(lambda excess: -(amount * (1 + excess) + _order_term(excess, log_delta))))
    return Fraction(best) * (1 + Fraction(1, 2**44)) + Fraction(EPSILON_SLACK)


def _order_term(excess: float, log_delta: float) -> float:
    """Epsilon = rho·order + this, with order = 1 + excess."""
    log_order = math.log1p(excess)
    return (-log_delta - log_order) / excess + math.log(excess) - log_order


def _best(score: Callable[[float], float]) -> float:
    """Largest score over orders 1 + e^x: a coarse grid, then ternary search around its best point."""
    grid = [-20 + 0.25 * step for step in range(260)]
    centre = max(grid, key=lambda x: score(math.exp(x)))
    low, high = centre - 0.25, centre + 0.25
    for _ in range(100):
        third = (high - low) / 3
        if score(math.exp(low + third)) < score(math.exp(high - third)):
            low += third
        else:
            high -= third
    return max(score(math.exp(centre)), score(math.exp((low + high) / 2)))


def _largest(holds: Callable[[float], bool]) -> float:
    """Largest positive float for which a condition holds that is true near 0 and false from some point on."""
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > 1e9:
            raise BudgetError("this budget is too large to account for; lower epsilon below 1e9.")
    while low == 0.0:
        middle = high / 2
        if holds(middle):
            low = middle
        elif middle < 1e-150:
            raise BudgetError("this budget leaves no room at all; raise epsilon or delta.")
        else:
            high = middle
    for _ in range(60):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _usable_epsilon(budget: Budget) -> float:
    if budget.epsilon < 10 * EPSILON_SLACK:
        raise InvalidBudgetError(
            f"epsilon {float(budget.epsilon):.3g} is below 1e-8, the least that can be converted; raise epsilon."
        )
    return float(budget.epsilon) * (1 - 2**-50) - EPSILON_SLACK


def _usable_log_delta(delta: Fraction) -> float:
    if not 0 < delta < 1:
        raise BudgetError(
            "delta must be above 0 and below 1 for zCDP or Gaussian accounting; "
            "with delta 0 only pure accounting applies."
        )
    return math.log(delta.numerator) - math.log(delta.denominator) - DELTA_SLACK


def _checked_total(total: Fraction) -> Fraction:
    if total < 0:
        raise BudgetError("a total of privacy costs cannot be negative.")
    return total
