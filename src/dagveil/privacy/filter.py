"""Privacy filters: a running total that refuses the charge that would overspend, for one run in one process.

A filter is not safe for several threads; the ledger keeps runs apart. Why the total may be spent adaptively:
docs/proofs/pure-filter.md, zcdp-filter.md and gaussian-filter.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final, Protocol

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy import events
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.conversion import MOST_CHANGED_DRAWS, mu_squared_of, rho_of


class HomeProcess:
    """The process in which an object was made; `check` refuses to work in any other."""

    def __init__(self) -> None:
        self._id = os.getpid()

    def check(self, what: str) -> None:
        """Refuse in another process than the one that made the object."""
        here = os.getpid()
        if here != self._id:
            raise BudgetError(
                f"{what} was made in process {self._id} and works only there, not in process {here}: a copy would "
                "repeat noise and spend what nobody adds up; nothing was drawn. Ask in the process that made it, or "
                "start a run of its own in each process."
            )


# part of delta that approximate zCDP accounting keeps for releases that may fail; the rest converts rho
FAILURE_SHARE: Final = Fraction(1, 2)


class Filter(Protocol):
    """What every filter offers."""

    @property
    def name(self) -> str:
        """Short name of the accounting."""

    @property
    def budget(self) -> Budget:
        """The promised budget."""

    @property
    def total(self) -> Fraction:
        """All that may be spent, in the unit of the accounting."""

    @property
    def spent(self) -> Fraction:
        """What has been charged."""

    @property
    def remaining(self) -> Fraction:
        """What may still be charged."""

    def cost(self, event: events.Event) -> Fraction:
        """Price of an event; BudgetError if this accounting cannot charge it."""

    def charge(self, event: events.Event) -> None:
        """Take the price, or raise BudgetExceededError and change nothing."""


class _SumFilter:
    """A total and a running sum; each accounting says what a total is and what an event costs."""

    name: str
    _unit: str
    _total_of: Callable[[Budget], Fraction]  # all that a budget allows, in the unit of the accounting
    _price_of: Callable[[events.Event], Fraction | None]  # None if this accounting cannot charge the event

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._total = self._total_of(budget)
        self._spent = Fraction(0)
        self._home = HomeProcess()

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def total(self) -> Fraction:
        return self._total

    @property
    def spent(self) -> Fraction:
        return self._spent

    @property
    def remaining(self) -> Fraction:
        return self._total - self._spent

    def cost(self, event: events.Event) -> Fraction:
        price = self._price_of(event)
        if price is None:
            kind = type(event).__name__
            raise BudgetError(f"{self.name} cannot charge {event.label!r} ({kind}): {self._why_not(event)}")
        return price

    def charge(self, event: events.Event) -> None:
        self._home.check("a filter")
        price = self.cost(event)
        if price > self.remaining:
            raise BudgetExceededError(
                f"{event.label!r} costs {_shown(price)} {self._unit}, but {_shown(self.remaining)} of "
                f"{_shown(self._total)} is left under {self._budget.words}; nothing was drawn. "
                "Ask for less, add noise, or start a run with a larger budget."
            )
        self._spent += price

    def _why_not(self, event: events.Event) -> str:
        if isinstance(event, events.SmoothLaplace):
            return "it may fail with a probability delta, which only approximate zCDP accounting adds up."
        return "it carries no guarantee." if isinstance(event, events.Unbounded) else "use another accounting."


class PureFilter(_SumFilter):
    """Sum of epsilons; delta is never used."""

    name = "pure accounting"
    _unit = "epsilon"

    _total_of = staticmethod(lambda budget: budget.epsilon)
    _price_of = staticmethod(events.pure_cost)

    def _why_not(self, event: events.Event) -> str:
        if isinstance(event, events.DiscreteGaussian | events.SubsampledGaussian):
            return "Gaussian noise needs delta above 0 and zCDP or Gaussian accounting."
        return super()._why_not(event)


class ZcdpFilter(_SumFilter):
    """Sum of rho (zero-concentrated differential privacy)."""

    name = "zCDP accounting"
    _unit = "rho"
    _total_of: Callable[[Budget], Fraction] = staticmethod(rho_of)
    _price_of = staticmethod(events.zcdp_cost)


class ApproximateZcdpFilter(ZcdpFilter):
    """Sum of rho, and apart from it the sum of the probabilities with which releases may fail.

    FAILURE_SHARE of delta is for failures and the rest for the conversion of rho. `total`, `spent` and `remaining` are
    rho; a charge needs room in both sums.
    """

    name = "approximate zCDP accounting"
    _total_of = staticmethod(lambda budget: rho_of(Budget(budget.epsilon, budget.delta * (1 - FAILURE_SHARE))))
    _price_of = staticmethod(events.approximate_zcdp_cost)

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._failure = Fraction(0)

    @property
    def total_failure(self) -> Fraction:
        """All the probability of failure that may be spent."""
        return self._budget.delta * FAILURE_SHARE

    @property
    def remaining_failure(self) -> Fraction:
        """Probability of failure that may still be charged."""
        return self.total_failure - self._failure

    def charge(self, event: events.Event) -> None:
        """Take rho and the probability of failure, or raise BudgetExceededError and change neither."""
        failure = events.failure_probability(event)
        if failure > self.remaining_failure:
            self.cost(event)
            raise BudgetExceededError(
                f"{event.label!r} may fail with probability {_shown(failure)}, but {_shown(self.remaining_failure)} of "
                f"{_shown(self.total_failure)} is left under {self._budget.words}; nothing was drawn. "
                "Give each release a smaller delta, or start a run with a larger one."
            )
        super().charge(event)
        self._failure += failure


class GaussianFilter(_SumFilter):
    """Sum of mu squared (Gaussian differential privacy): the most room for Gaussian noise."""

    name = "Gaussian accounting"
    _unit = "mu squared"
    _total_of = staticmethod(mu_squared_of)
    _price_of = staticmethod(events.gaussian_cost)

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._changed_draws = 0

    def charge(self, event: events.Event) -> None:
        """Take the price; also count changed draws, which the slack of the conversion covers up to a limit."""
        changed = event.changed_draws if isinstance(event, events.DiscreteGaussian) else 0
        if self._changed_draws + changed > MOST_CHANGED_DRAWS:
            self.cost(event)
            raise BudgetExceededError(
                f"{event.label!r} brings the draws that one record can change to {self._changed_draws + changed}, "
                f"above the {MOST_CHANGED_DRAWS} that Gaussian accounting covers; nothing was drawn. State `changed`, "
                "the number of draws that one record can really change, or use zCDP accounting."
            )
        super().charge(event)
        self._changed_draws += changed

    def _why_not(self, event: events.Event) -> str:
        if isinstance(event, events.DiscreteGaussian):
            return "its variance is below 100; multiply the integers by a public factor first."
        return super()._why_not(event)


def tightest_filter(budget: Budget, event_types: Iterable[type]) -> Filter:
    """Choose the accounting with the most room for many events of these types.

    Only Gaussian noise: Gaussian accounting. Delta 0: pure accounting. Releases that may fail: approximate zCDP.
    Anything else: zCDP. A run of a few pure events with a large epsilon can do better with PureFilter, and sub-sampled
    noise with RenyiFilter, whose order has to be planned.
    """
    kinds = set(event_types)
    if events.Unbounded in kinds:
        raise BudgetError("no accounting can charge a release that carries no guarantee; use its sound calibration.")
    if budget.delta == 0:
        if kinds & {events.DiscreteGaussian, events.SubsampledGaussian}:
            raise BudgetError("Gaussian noise needs delta above 0, but delta is 0; give a delta such as 1e-6.")
        if events.SmoothLaplace in kinds:
            raise BudgetError("a release that may fail needs delta above 0, but delta is 0; give a delta such as 1e-6.")
        return PureFilter(budget)
    if events.SmoothLaplace in kinds:
        return ApproximateZcdpFilter(budget)
    if kinds == {events.DiscreteGaussian}:
        return GaussianFilter(budget)
    return ZcdpFilter(budget)


def _shown(amount: Fraction) -> str:
    return round_up(amount, 6)
