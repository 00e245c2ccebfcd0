"""How the runs on a data set add up: plainly, or also as concentrated privacy (docs/proofs/lifetime.md)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget
from dagveil.privacy.conversion import epsilon_of_mu_squared, epsilon_of_rho, mu_squared_of, rho_of
from dagveil.privacy.filter import ApproximateZcdpFilter, GaussianFilter, ZcdpFilter

SUM_SHARE: Final = Fraction(1, 2)  # part of a lifetime delta that the plain sum may use where runs are also composed
# part of it that turns the sum of rho into epsilon; what is left is for releases that may fail
CONVERSION_SHARE: Final = Fraction(3, 8)
COMMON_DELTA: Final = Fraction(1, 10**6)  # delta of the run for which an account says how much is left


class Composition(enum.Enum):
    """How runs count against a lifetime budget."""

    CONCENTRATED = "concentrated"  # a run fits if the plain sums fit, or the sums of concentrated privacy do
    SUM = "sum"  # a run fits if the sums of epsilon and of delta fit


@dataclass(frozen=True, slots=True)
class Totals:
    """What runs add up to: epsilon and delta plainly, rho and failure as approximate zero-concentrated privacy."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    failure: Fraction = Fraction(0)

    def plus(self, other: Totals, times: int = 1) -> Totals:
        """Add what other runs bring, or take it away with -1."""
        return Totals(
            self.epsilon + times * other.epsilon,
            self.delta + times * other.delta,
            self.rho + times * other.rho,
            self.failure + times * other.failure,
        )


def price_run(budget: Budget, accounting: str) -> Totals:
    """Return what a run brings into the sums, by the accounting that enforces its budget."""
    epsilon, delta = budget.epsilon, budget.delta
    if accounting == GaussianFilter.name:
        return Totals(epsilon, delta, mu_squared_of(budget) / 2)
    if accounting == ZcdpFilter.name:
        return Totals(epsilon, delta, rho_of(budget))
    if accounting == ApproximateZcdpFilter.name:
        run = ApproximateZcdpFilter(budget)
        return Totals(epsilon, delta, run.total, run.total_failure)
    # whatever is (epsilon, delta)-private is epsilon²/2-concentrated unless it fails, with probability delta
    return Totals(epsilon, delta, epsilon**2 / 2, delta)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A budget that runs share, and what their rho may add up to; None where only plain sums count."""

    budget: Budget
    rho: Fraction | None

    @classmethod
    def of(cls, budget: Budget, composition: Composition) -> Allowance:
        """Compute what a budget allows; concentrated privacy needs delta above 0."""
        if composition is Composition.SUM or budget.delta == 0:
            return cls(budget, None)
        try:
            return cls(budget, rho_of(Budget(budget.epsilon, budget.delta * CONVERSION_SHARE)))
        except BudgetError:  # too small an epsilon to convert
            return cls(budget, None)

    @property
    def composition(self) -> Composition:
        """How runs count."""
        return Composition.SUM if self.rho is None else Composition.CONCENTRATED

    @property
    def sum_delta(self) -> Fraction:
        """What the runs' delta may add up to in the plain sum."""
        return self.budget.delta * (1 if self.rho is None else SUM_SHARE)

    @property
    def failure(self) -> Fraction:
        """What the probabilities of failure may add up to."""
        return self.budget.delta * (1 - SUM_SHARE - CONVERSION_SHARE)

    def admits(self, totals: Totals) -> bool:
        """Tell whether runs that add up so stay within the budget."""
        if totals.epsilon <= self.budget.epsilon and totals.delta <= self.sum_delta:
            return True
        return self.rho is not None and totals.rho <= self.rho and totals.failure <= self.failure

    def epsilon_of(self, totals: Totals) -> Fraction:
        """Return the epsilon, at the lifetime's delta, of runs that add up so."""
        found = [totals.epsilon]
        if self.rho is not None and totals.failure <= self.failure and totals.epsilon:
            found.append(epsilon_of_rho(totals.rho, self.budget.delta * CONVERSION_SHARE))
            if totals.delta > self.sum_delta:
                del found[0]
        return min(found)

    def left_after(self, totals: Totals) -> Budget | None:
        """Return the budget of the largest Gaussian run that still fits; None if none does."""
        if self.rho is None:
            epsilon, delta = self.budget.epsilon - totals.epsilon, self.budget.delta - totals.delta
            return Budget(epsilon, delta) if epsilon > 0 and delta >= 0 else None
        found = [Fraction(0)]
        if totals.delta + COMMON_DELTA <= self.sum_delta:
            found.append(self.budget.epsilon - totals.epsilon)
        if self.rho > totals.rho and totals.failure <= self.failure:
            # a grain less, since the way back rounds up
            found.append(epsilon_of_mu_squared(2 * (self.rho - totals.rho), COMMON_DELTA) * (1 - Fraction(1, 10**6)))
        return Budget(max(found), COMMON_DELTA) if max(found) > 0 else None
