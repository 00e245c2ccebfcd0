"""What a data set has spent, recomputed from its runs, and whether one more run fits."""

from __future__ import annotations

import enum
from collections.abc import Iterable
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

    @property
    def cost(self) -> RunCost:
        """What the run counts for."""
        return RunCost(
            self.budget, self.state, bool(self.events), any(isinstance(event, Unbounded) for event in self.events)
        )


@dataclass(frozen=True, slots=True)
class RunCost:
    """The part of a run that totals need. A touched run may have drawn noise: it costs its whole reservation."""

    budget: Budget
    state: RunState
    touched: bool
    unbounded: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one data set; ``budget`` is None if it has no lifetime budget.

    ``spent`` counts every run that recorded an event, ``reserved`` every open run that has not.
    """

    dataset: str
    budget: Budget | None
    spent_epsilon: Fraction
    spent_delta: Fraction
    reserved_epsilon: Fraction
    reserved_delta: Fraction
    runs: int
    unbounded: bool

    @property
    def remaining_epsilon(self) -> Fraction | None:
        """Epsilon that may still be reserved, or None without a lifetime budget."""
        return None if self.budget is None else self.budget.epsilon - self.spent_epsilon - self.reserved_epsilon

    @property
    def remaining_delta(self) -> Fraction | None:
        """Delta that may still be reserved, or None without a lifetime budget."""
        return None if self.budget is None else self.budget.delta - self.spent_delta - self.reserved_delta

    @property
    def words(self) -> str:
        """The account in one sentence."""
        spent = f"spent epsilon {round_up(self.spent_epsilon, 4)}, delta {round_up(self.spent_delta, 4)}"
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        if self.unbounded:
            spent = f"unbounded: a release without guarantee was made, so no total holds; counted: {spent}"
        if self.budget is None:
            return f"{self.dataset}: {spent} in {runs}; no lifetime budget is set"
        return f"{self.dataset}: {spent} in {runs}; lifetime {self.budget.words}"


def tally(dataset: str, budget: Budget | None, runs: Iterable[RunCost]) -> Account:
    """Sum up the runs of a data set.

    Examples
    --------
    >>> run = RunCost(Budget.of(1, 0), RunState.OPEN, touched=False, unbounded=False)
    >>> tally("visits", Budget.of(3, 0), [run]).remaining_epsilon
    Fraction(2, 1)
    """
    spent = [Fraction(0), Fraction(0)]
    reserved = [Fraction(0), Fraction(0)]
    count, unbounded = 0, False
    for run in runs:
        count += 1
        unbounded |= run.unbounded
        if run.touched:
            target = spent
        elif run.state is RunState.OPEN:
            target = reserved
        else:
            continue
        target[0] += run.budget.epsilon
        target[1] += run.budget.delta
    return Account(dataset, budget, spent[0], spent[1], reserved[0], reserved[1], count, unbounded)


def admit(account: Account, wanted: Budget) -> None:
    """Raise BudgetExceededError if a run with this budget does not fit the lifetime budget."""
    epsilon, delta = account.remaining_epsilon, account.remaining_delta
    if epsilon is None or delta is None or (wanted.epsilon <= epsilon and wanted.delta <= delta):
        return
    epsilon, delta = max(epsilon, Fraction(0)), max(delta, Fraction(0))
    raise BudgetExceededError(
        f"{account.dataset!r} has epsilon {round_down(epsilon, 6)} and delta {round_down(delta, 6)} left of its "
        f"lifetime budget, but the run asks for {wanted.words}; nothing was drawn. Ask for less, release untouched "
        "runs, or raise the lifetime budget."
    )


def admit_lifetime(account: Account, lifetime: Budget) -> None:
    """Raise BudgetExceededError if a lifetime budget is below what is already spent or reserved."""
    epsilon = account.spent_epsilon + account.reserved_epsilon
    delta = account.spent_delta + account.reserved_delta
    if lifetime.epsilon < epsilon or lifetime.delta < delta:
        raise BudgetExceededError(
            f"{account.dataset!r} has already spent or reserved epsilon {round_up(epsilon, 6)} and delta "
            f"{round_up(delta, 6)}; a lifetime budget of {lifetime.words} is below that. Choose a larger one."
        )
