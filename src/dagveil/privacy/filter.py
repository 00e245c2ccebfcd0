"""Privacy filters: a running total that refuses the charge that would overspend.

A filter is not safe for several threads; give each run its own, and let the ledger keep runs apart. Why the total may
be spent adaptively: docs/proofs/pure-filter.md, zcdp-filter.md and gaussian-filter.md.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from fractions import Fraction
from typing import Protocol

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.conversion import MOST_CHANGED_DRAWS, mu_squared_of, rho_of
from dagveil.privacy.events import DiscreteGaussian, Event, Unbounded, gaussian_cost, pure_cost, zcdp_cost


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

    @property
    def guarantee_words(self) -> str:
        """The promise in one sentence."""

    def cost(self, event: Event) -> Fraction:
        """Price of an event; BudgetError if this accounting cannot charge it."""

    def charge(self, event: Event) -> None:
        """Take the price, or raise BudgetExceededError and change nothing."""


class _SumFilter(abc.ABC):
    """A total and a running sum; each accounting says what a total is and what an event costs."""

    name: str
    _unit: str

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._total = self._total_of(budget)
        self._spent = Fraction(0)

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

    @property
    def guarantee_words(self) -> str:
        return f"{self._budget.words}, enforced by {self.name} before every draw"

    def cost(self, event: Event) -> Fraction:
        price = self._price_of(event)
        if price is None:
            kind = type(event).__name__
            raise BudgetError(f"{self.name} cannot charge {event.label!r} ({kind}): {self._why_not(event)}")
        return price

    def charge(self, event: Event) -> None:
        price = self.cost(event)
        if price > self.remaining:
            raise BudgetExceededError(
                f"{event.label!r} costs {_shown(price)} {self._unit}, but {_shown(self.remaining)} of "
                f"{_shown(self._total)} is left under {self._budget.words}; nothing was drawn. "
                "Ask for less, add noise, or start a run with a larger budget."
            )
        self._spent += price

    @staticmethod
    @abc.abstractmethod
    def _total_of(budget: Budget) -> Fraction:
        """Return all that a budget allows, in the unit of the accounting."""

    @staticmethod
    @abc.abstractmethod
    def _price_of(event: Event) -> Fraction | None:
        """Return what an event costs, or None if this accounting cannot charge it."""

    def _why_not(self, event: Event) -> str:
        return "it carries no guarantee." if isinstance(event, Unbounded) else "use another accounting."


class PureFilter(_SumFilter):
    """Sum of epsilons; delta is never used.

    Examples
    --------
    >>> from dagveil.privacy.events import NoisyMax
    >>> f = PureFilter(Budget.of(1, 0))
    >>> f.charge(NoisyMax("edge", Fraction(1, 4)))
    >>> f.remaining
    Fraction(3, 4)
    """

    name = "pure accounting"
    _unit = "epsilon"

    @staticmethod
    def _total_of(budget: Budget) -> Fraction:
        return budget.epsilon

    @staticmethod
    def _price_of(event: Event) -> Fraction | None:
        return pure_cost(event)

    def _why_not(self, event: Event) -> str:
        if isinstance(event, DiscreteGaussian):
            return "Gaussian noise needs delta above 0 and zCDP or Gaussian accounting."
        return super()._why_not(event)


class ZcdpFilter(_SumFilter):
    """Sum of rho (zero-concentrated differential privacy).

    Examples
    --------
    >>> round(float(ZcdpFilter(Budget.of(1, 1e-6)).total), 4)
    0.0244
    """

    name = "zCDP accounting"
    _unit = "rho"

    @staticmethod
    def _total_of(budget: Budget) -> Fraction:
        return rho_of(budget)

    @staticmethod
    def _price_of(event: Event) -> Fraction | None:
        return zcdp_cost(event)


class GaussianFilter(_SumFilter):
    """Sum of mu squared (Gaussian differential privacy): the most room for Gaussian noise.

    Examples
    --------
    >>> round(float(GaussianFilter(Budget.of(1, 1e-6)).total), 4)
    0.056
    """

    name = "Gaussian accounting"
    _unit = "mu squared"

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget)
        self._changed_draws = 0

    def charge(self, event: Event) -> None:
        """Take the price; also count changed draws, which the slack of the conversion covers up to a limit."""
        changed = event.changed_draws if isinstance(event, DiscreteGaussian) else 0
        if self._changed_draws + changed > MOST_CHANGED_DRAWS:
            self.cost(event)
            raise BudgetExceededError(
                f"{event.label!r} brings the draws that one record can change to {self._changed_draws + changed}, "
                f"above the {MOST_CHANGED_DRAWS} that Gaussian accounting covers; nothing was drawn. State `changed`, "
                "the number of draws that one record can really change, or use zCDP accounting."
            )
        super().charge(event)
        self._changed_draws += changed

    @staticmethod
    def _total_of(budget: Budget) -> Fraction:
        return mu_squared_of(budget)

    @staticmethod
    def _price_of(event: Event) -> Fraction | None:
        return gaussian_cost(event)

    def _why_not(self, event: Event) -> str:
        if isinstance(event, DiscreteGaussian):
            return "its variance is below 100; multiply the integers by a public factor first."
        return super()._why_not(event)


def tightest_filter(budget: Budget, event_types: Iterable[type]) -> Filter:
    """Choose the accounting with the most room for many events of these types.

    Only Gaussian noise: Gaussian accounting. Delta 0: pure accounting. Anything else: zCDP. A run of a few pure events
    with a large epsilon can do better with PureFilter.

    Examples
    --------
    >>> tightest_filter(Budget.of(1, 1e-6), [DiscreteGaussian]).name
    'Gaussian accounting'
    """
    kinds = set(event_types)
    if Unbounded in kinds:
        raise BudgetError("no accounting can charge a release that carries no guarantee; use its sound calibration.")
    if budget.delta == 0:
        if DiscreteGaussian in kinds:
            raise BudgetError("Gaussian noise needs delta above 0, but delta is 0; give a delta such as 1e-6.")
        return PureFilter(budget)
    if kinds == {DiscreteGaussian}:
        return GaussianFilter(budget)
    return ZcdpFilter(budget)


def _shown(amount: Fraction) -> str:
    return round_up(amount, 6)
