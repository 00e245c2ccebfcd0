"""Between budgets (epsilon, delta) and totals of concentrated or Gaussian privacy, always rounded towards privacy.

Two named slacks make this safe: they cover floating point and, for Gaussian totals, the gap between the discrete and
the continuous Gaussian for up to MOST_CHANGED_DRAWS changed draws (docs/proofs/discrete-gaussian.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Final

from dagveil.errors import BudgetError, InvalidBudgetError
from dagveil.privacy.budget import Budget

EPSILON_SLACK: Final = 1e-9  # taken off epsilon before a total is computed, and added to an epsilon afterwards
DELTA_SLACK: Final = 1e-6  # relative part of delta that is never handed out
# relative part of a total that is never handed out, so that converting forth and back stays inside the budget
TOTAL_MARGIN: Final = 1e-10
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


@lru_cache(maxsize=1024)
def mu_squared_of(budget: Budget) -> Fraction:
    """Largest total mu squared that stays inside the budget, rounded down."""
    log_delta = _usable_log_delta(budget.delta)
    epsilon = _usable_epsilon(budget)
    mu = _largest(lambda candidate: log_gaussian_delta(epsilon, candidate) <= log_delta)
    return _round_down(mu * mu)


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
    return _round_down(best)


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


def _round_down(x: float) -> Fraction:
    return Fraction(x) * (1 - Fraction(TOTAL_MARGIN))
