"""What a data set and its analysts have spent, and whether one more run fits."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

from dagveil.errors import BudgetExceededError
from dagveil.privacy.budget import Budget, round_down, round_up
from dagveil.privacy.events import Event, Unbounded


class RunState(enum.Enum):
    """OPEN until closed; CLOSED with events counts for ever; RELEASED never drew anything."""

    OPEN = "open"
    CLOSED = "closed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as the ledger knows it; times are UTC in ISO form."""

    id: int
    dataset: str
    budget: Budget
    method: str
    software: str
    state: RunState
    started: str
    ended: str | None
    events: tuple[Event, ...]
    analyst: str = ""

    @property
    def unbounded(self) -> bool:
        """Whether something was released without a guarantee."""
        return any(isinstance(event, Unbounded) for event in self.events)


@dataclass(frozen=True, slots=True)
class Spending:
    """Sums over runs.

    ``spent`` counts every run that recorded an event: it may have drawn noise, so it costs its whole reservation.
    ``reserved`` counts every open run that has recorded none.
    """

    spent_epsilon: Fraction = Fraction(0)
    spent_delta: Fraction = Fraction(0)
    reserved_epsilon: Fraction = Fraction(0)
    reserved_delta: Fraction = Fraction(0)
    runs: int = 0

    def remaining(self, budget: Budget) -> tuple[Fraction, Fraction]:
        """Return epsilon and delta that may still be reserved."""
        return (
            budget.epsilon - self.spent_epsilon - self.reserved_epsilon,
            budget.delta - self.spent_delta - self.reserved_delta,
        )


@dataclass(frozen=True, slots=True)
class Share:
    """What one analyst has spent on a data set; ``limit`` is None where only the data set's budget binds."""

    analyst: str
    limit: Budget | None
    spending: Spending

    @property
    def words(self) -> str:
        """The share in one sentence."""
        spending = self.spending
        who = self.analyst or "unknown"
        said = f"{who}: spent epsilon {round_up(spending.spent_epsilon, 4)}, delta {round_up(spending.spent_delta, 4)}"
        said += f" in {_count(spending.runs)}"
        if self.limit is None:
            return f"{said}; no limit of their own"
        epsilon, delta = (max(amount, Fraction(0)) for amount in spending.remaining(self.limit))
        return f"{said}; limit {self.limit.words}; left epsilon {round_down(epsilon, 4)}, delta {round_down(delta, 4)}"


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one data set; ``budget`` is None if it has no lifetime budget, ``shares`` are its analysts'."""

    dataset: str
    budget: Budget | None
    spending: Spending
    unbounded: bool
    shares: tuple[Share, ...] = ()

    @property
    def spent_epsilon(self) -> Fraction:
        """Epsilon of all runs that recorded an event."""
        return self.spending.spent_epsilon

    @property
    def spent_delta(self) -> Fraction:
        """Delta of all runs that recorded an event."""
        return self.spending.spent_delta

    @property
    def reserved_epsilon(self) -> Fraction:
        """Epsilon of all open runs that recorded none."""
        return self.spending.reserved_epsilon

    @property
    def reserved_delta(self) -> Fraction:
        """Delta of all open runs that recorded none."""
        return self.spending.reserved_delta

    @property
    def runs(self) -> int:
        """Number of runs, released ones too."""
        return self.spending.runs

    @property
    def remaining_epsilon(self) -> Fraction | None:
        """Epsilon that may still be reserved, or None without a lifetime budget."""
        return None if self.budget is None else self.spending.remaining(self.budget)[0]

    @property
    def remaining_delta(self) -> Fraction | None:
        """Delta that may still be reserved, or None without a lifetime budget."""
        return None if self.budget is None else self.spending.remaining(self.budget)[1]

    def share(self, analyst: str) -> Share:
        """Return what one analyst has spent."""
        for share in self.shares:
            if share.analyst == analyst:
                return share
        return Share(analyst, None, Spending())

    @property
    def words(self) -> str:
        """The account in one sentence."""
        spent = f"spent epsilon {round_up(self.spent_epsilon, 4)}, delta {round_up(self.spent_delta, 4)}"
        if self.unbounded:
            spent = f"unbounded: a release without guarantee was made, so no total holds; counted: {spent}"
        spent += f" in {_count(self.runs)}"
        if self.budget is None:
            return f"{self.dataset}: {spent}; no lifetime budget is set"
        return f"{self.dataset}: {spent}; lifetime {self.budget.words}"


def admit(account: Account, wanted: Budget, analyst: str) -> None:
    """Raise BudgetExceededError if a run with this budget does not fit what is left of the data set and the analyst.

    Examples
    --------
    >>> admit(Account("visits", Budget.of(1, 0), Spending(), unbounded=False), Budget.of(1, 0), "ann")
    """
    share = account.share(analyst)
    binding = (
        (account.budget, account.spending, repr(account.dataset), "of its lifetime budget"),
        (share.limit, share.spending, f"the analyst {analyst!r}", f"on {account.dataset!r}"),
    )
    said = []
    fits = True
    for budget, spending, who, where in binding:
        if budget is None:
            continue
        epsilon, delta = spending.remaining(budget)
        fits = fits and wanted.epsilon <= epsilon and wanted.delta <= delta
        amounts = [round_down(max(amount, Fraction(0)), 6) for amount in (epsilon, delta)]
        said.append(f"{who} has epsilon {amounts[0]} and delta {amounts[1]} left {where}")
    if fits:
        return
    owner = "raise the lifetime budget, if you own it" if share.limit is None else "ask the ledger's owner for more"
    raise BudgetExceededError(
        f"{', and '.join(said)}, but the run asks for {wanted.words}; nothing was drawn. Ask for less, release "
        f"untouched runs, or {owner}."
    )


def admit_lifetime(account: Account, lifetime: Budget) -> None:
    """Raise BudgetExceededError if a lifetime budget is below what is already spent or reserved."""
    _admit_above(account.spending, lifetime, repr(account.dataset), "a lifetime budget")


def admit_limit(account: Account, analyst: str, limit: Budget) -> None:
    """Raise BudgetExceededError if an analyst's limit is below what they have already spent or reserved."""
    who = f"the analyst {analyst!r} on {account.dataset!r}"
    _admit_above(account.share(analyst).spending, limit, who, "a limit")


def _admit_above(spending: Spending, wanted: Budget, who: str, what: str) -> None:
    epsilon = spending.spent_epsilon + spending.reserved_epsilon
    delta = spending.spent_delta + spending.reserved_delta
    if wanted.epsilon < epsilon or wanted.delta < delta:
        raise BudgetExceededError(
            f"{who} has already spent or reserved epsilon {round_up(epsilon, 6)} and delta {round_up(delta, 6)}; "
            f"{what} of {wanted.words} is below that. Choose a larger one."
        )


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
