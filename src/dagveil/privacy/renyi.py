"""Rényi divergences of one integer order: what events cost, what a budget allows, and how to plan a run with them.

Costs are rounded up and totals down (docs/proofs/renyi-filter.md, docs/proofs/subsampled-gaussian.md). The order is
chosen before the run, from public figures alone: `best_order`.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError, InvalidBudgetError
from dagveil.privacy.budget import DELTA_SLACK, EPSILON_SLACK, Budget
from dagveil.privacy.events import Event, Filter, SubsampledGaussian, pure_cost, zcdp_cost

MOST_ORDER: Final = 1024  # largest order: up to here COST_MARGIN covers the rounding of every term of a cost
# relative part by which a floating-point cost is raised; docs/proofs/subsampled-gaussian.md bounds its error
COST_MARGIN: Final = Fraction(1, 2**27)
# no release is free: below this, floating point cannot tell a cost from nothing
LEAST_COST: Final = Fraction(1, 2**300)
# noise ratios above this, and rates below its inverse, are charged as if they were this: rounding up
EXTREME: Final = 2**200
RATIO_GRID: Final = 2**16  # planned noise ratios are multiples of 1 / RATIO_GRID
_CANDIDATES: Final = (*range(2, 65), *(round(64 * 2 ** (step / 12)) for step in range(1, 49)))


def renyi_cost(event: Event, order: int) -> Fraction | None:
    """Rényi divergence of this order that the event causes at most, or None."""
    checked_order(order)
    if isinstance(event, SubsampledGaussian):
        return subsampled_cost(event.rate, event.variance / event.squared_sensitivity, order)
    pure, rho = pure_cost(event), zcdp_cost(event)
    prices = [price for price in (pure, None if rho is None else order * rho) if price is not None]
    return min(prices) if prices else None


@lru_cache(maxsize=4096)
def subsampled_cost(rate: Fraction, ratio: Fraction, order: int) -> Fraction:
    """Divergence of Gaussian noise on a fresh Poisson sub-sample (Mironov et al. 2019); ratio = variance/Δ²."""
    checked_order(order)
    _check_plan(rate)
    if ratio * EXTREME < 1:
        raise InvalidBudgetError("the noise is far below the sensitivity, nothing would be private; add noise.")
    if (1 - rate) * EXTREME < 1:
        return order / (2 * ratio)
    rate, noise = max(rate, Fraction(1, EXTREME)), float(min(ratio, Fraction(EXTREME)))
    log_kept = math.log(float(rate))
    # without cancellation
    log_dropped = math.log1p(-float(rate)) if rate < Fraction(1, 2) else math.log(float(1 - rate))
    k = np.arange(2, order + 1, dtype=np.float64)
    log_binomial = _log_choices(order) + k * log_kept + (order - k) * log_dropped
    exponent = k * (k - 1.0) / (2.0 * noise)
    # binomial weights sum to 1, so the moment is 1 + this sum of positive terms: nothing cancels
    log_excess = exponent + np.log(-np.expm1(-exponent)) + log_binomial
    largest = float(log_excess.max())
    log_sum = largest + math.log(float(np.exp(log_excess - largest).sum()))
    log_moment = math.log1p(math.exp(log_sum)) if log_sum < 30 else log_sum + math.log1p(math.exp(-log_sum))
    above = Fraction(log_moment) / (order - 1) * (1 + COST_MARGIN)
    # mixing can only bring two laws closer: the price without sub-sampling is a bound too
    return min(max(above, LEAST_COST), order / (2 * ratio))


@lru_cache(maxsize=4096)
def renyi_of(budget: Budget, order: int) -> Fraction:
    """Largest divergence of this order inside the budget, rounded down (Canonne, Kamath and Steinke 2020)."""
    room = _room(budget, order)
    if room <= 0:
        raise BudgetError(
            f"{budget.words} leaves no room at order {order}; choose a larger order, or raise epsilon or delta."
        )
    return Fraction(room)


def epsilon_of_renyi(total: Fraction, order: int, delta: Fraction) -> Fraction:
    """Epsilon that a divergence of this order promises at this delta, rounded up."""
    if total < 0:
        raise BudgetError("a total of privacy costs cannot be negative.")
    return max(total + Fraction(_conversion(order, delta)) + Fraction(EPSILON_SLACK), Fraction(0))


@lru_cache(maxsize=4096)
def smallest_ratio(budget: Budget, rate: Fraction, questions: int, order: int) -> Fraction:
    """Return the smallest ratio of variance to squared sensitivity with which all questions fit, rounded up."""
    _check_plan(rate, questions)
    each = renyi_of(budget, order) / questions
    low, high = 0, 1
    while subsampled_cost(rate, Fraction(high, RATIO_GRID), order) > each:
        low, high = high, 2 * high
        if high > RATIO_GRID**4:
            raise BudgetError(f"{questions} questions do not fit into {budget.words}; ask fewer or raise epsilon.")
    # a relative precision of 1e-4 is enough: the deviation is its root, and becomes an integer anyway
    while high - low > max(1, high >> 13):
        middle = (low + high) // 2
        if subsampled_cost(rate, Fraction(middle, RATIO_GRID), order) > each:
            low = middle
        else:
            high = middle
    return Fraction(high, RATIO_GRID)


@lru_cache(maxsize=4096)
def best_order(budget: Budget, rate: Fraction, questions: int) -> int:
    """Return the order at which so many sub-sampled questions need the least noise, from public figures only."""
    _check_plan(rate, questions)
    coarse = _best_among(_CANDIDATES, budget, rate, questions)
    if coarse is None:
        raise BudgetError(f"no order up to {MOST_ORDER} leaves room under {budget.words}; raise epsilon or delta.")
    place = _CANDIDATES.index(coarse)
    last = _CANDIDATES[min(place + 1, len(_CANDIDATES) - 1)]
    between = range(_CANDIDATES[max(place - 1, 0)], last + 1)
    return _best_among((coarse, *between), budget, rate, questions) or coarse


def checked_order(order: int) -> int:
    """Return the order, or refuse one that is no integer from 2 to MOST_ORDER."""
    if isinstance(order, bool) or not isinstance(order, int) or not 2 <= order <= MOST_ORDER:
        raise InvalidBudgetError(f"a Renyi order must be an integer from 2 to {MOST_ORDER}, not {order}.")
    return order


def _best_among(orders: Iterable[int], budget: Budget, rate: Fraction, questions: int) -> int | None:
    """Return the order that needs the least noise, or None if none has room."""
    best: tuple[Fraction, int] | None = None
    for order in orders:
        if _room(budget, order) <= 0:
            continue
        # most orders are dismissed by one look at the best ratio so far
        if best is None or questions * subsampled_cost(rate, best[0], order) < renyi_of(budget, order):
            ratio = smallest_ratio(budget, rate, questions, order)
            best = (ratio, order) if best is None else min(best, (ratio, order))
    return None if best is None else best[1]


def _room(budget: Budget, order: int) -> float:
    return float(budget.epsilon) * (1 - 2**-50) - EPSILON_SLACK - _conversion(order, budget.delta)


def _conversion(order: int, delta: Fraction) -> float:
    """Epsilon = divergence + this, with the slack on delta."""
    checked_order(order)
    if not 0 < delta < 1:
        raise BudgetError(
            "delta must be above 0 and below 1 for Renyi accounting; with delta 0 only pure accounting applies."
        )
    log_delta = math.log(delta.numerator) - math.log(delta.denominator) - DELTA_SLACK
    return math.log1p(-1 / order) - (math.log(order) + log_delta) / (order - 1)


def _check_plan(rate: Fraction, questions: int = 1) -> None:
    if not 0 < rate <= 1:
        raise InvalidBudgetError(f"a sampling rate must be above 0 and at most 1, not {float(rate):.3g}.")
    if questions < 1:
        raise BudgetError(f"a plan has at least 1 question, not {questions}.")


@lru_cache(maxsize=256)
def _log_choices(order: int) -> NDArray[np.float64]:
    """Logarithms of the binomial coefficients from 2 to the order."""
    return np.array([math.log(math.comb(order, k)) for k in range(2, order + 1)])


class RenyiFilter(Filter):
    """Sum of divergences of one order, chosen before the run from public figures (docs/proofs/renyi-filter.md)."""

    _unit = "Renyi divergence"

    def __init__(self, budget: Budget, order: int) -> None:
        self.order = checked_order(order)
        self.name = f"Renyi accounting at order {order}"
        super().__init__(budget)

    def _total_of(self, budget: Budget) -> Fraction:
        return renyi_of(budget, self.order)

    def _price_of(self, event: Event) -> Fraction | None:
        return renyi_cost(event, self.order)
