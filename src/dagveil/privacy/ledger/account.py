"""What a data set and its analysts have spent, and whether one more run fits.

How runs add up, plainly or also as concentrated privacy: docs/proofs/lifetime.md.
"""

from __future__ import annotations

import enum
import unicodedata
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from dagveil.errors import BudgetError, BudgetExceededError, LedgerError
from dagveil.privacy.budget import (
    Budget,
    Relation,
    epsilon_of_mu_squared,
    epsilon_of_rho,
    mu_squared_of,
    rho_of,
    round_down,
    round_up,
)
from dagveil.privacy.events import ApproximateZcdpFilter, Event, GaussianFilter, Unbounded, ZcdpFilter
from dagveil.privacy.receipt import name_unit

SUM_SHARE: Final = Fraction(1, 2)  # part of a lifetime delta that the plain sum may use where runs are also composed
# part of it that turns the sum of rho into epsilon; what is left is for releases that may fail
CONVERSION_SHARE: Final = Fraction(3, 8)
COMMON_DELTA: Final = Fraction(1, 10**6)  # delta of the run for which an account says how much is left


class Composition(enum.Enum):
    """How runs count against a lifetime budget."""

    CONCENTRATED = "concentrated"  # a run fits if the plain sums fit, or the sums of concentrated privacy do
    SUM = "sum"  # a run fits if the sums of epsilon and of delta fit


class Totals(NamedTuple):
    """What runs add up to: epsilon and delta plainly, rho and failure as approximate zero-concentrated privacy."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    failure: Fraction = Fraction(0)

    def plus(self, other: Totals, times: int = 1) -> Totals:
        """Add what other runs bring, or take it away with -1."""
        return Totals(*(mine + times * added for mine, added in zip(self, other, strict=True)))


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


_LOOK_ALIKES: Final = str.maketrans(
    # Cyrillic, Greek and rare Latin letters that are drawn like common Latin ones, as capitals or as small letters
    "аеорсухіјѕԁһӏԛԝвкмнт" + "αβεζηικμνορτυχ" + "ıɩɑɡ",
    "aeopcyxijsdhlqwbkmht" + "abezhikmvoptyx" + "iiag",
)
MOST_CHARACTERS: Final = 200


def tidy_name(name: str) -> str:
    """Return the form in which a name is kept: compatible characters as one, small letters, single blanks."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(folded.split())


def check_name(name: str) -> str:
    """Return the tidy name of a data set; LedgerError for one that could be taken for another."""
    tidy = tidy_name(name)
    if not tidy or len(tidy) > MOST_CHARACTERS:
        raise LedgerError(f"the name of a data set has 1 to {MOST_CHARACTERS} characters; choose another.")
    if not tidy.isprintable() or any(unicodedata.category(letter) in ("Cf", "Co", "Cn", "Cs") for letter in tidy):
        raise LedgerError("the name of a data set has a character that cannot be seen; write it again by hand.")
    scripts = {unicodedata.name(letter, "UNKNOWN").split()[0] for letter in tidy if letter.isalpha()}
    read = tidy.translate(_LOOK_ALIKES)
    if len(scripts - {"CJK", "HIRAGANA", "KATAKANA"}) > 1 or (read != tidy and read.isascii()):
        raise LedgerError(
            f"the name {tidy!r} has letters that look like those of another alphabet, so that two data sets could be "
            "taken for one; choose a name that cannot be misread."
        )
    return tidy


class RunState(enum.Enum):
    """OPEN until closed; CLOSED with events counts for ever; RELEASED never drew anything."""

    OPEN = "open"
    CLOSED = "closed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run promises its epsilon for: only runs with the same terms can be added up."""

    relation: Relation
    unit: str

    @classmethod
    def of(cls, relation: Relation, unit: str) -> Terms:
        """Take terms from a schema; "One Patient" and "patient" are one unit."""
        return cls(relation, " ".join(name_unit(unit).casefold().split()))

    @property
    def words(self) -> str:
        """The terms for people."""
        return f"{self.relation.value}, {self.unit}"


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
    analyst: str
    terms: Terms
    accounting: str
    unreadable: int = 0  # charges that this program cannot read; they count like any other

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

    spent: Totals = field(default_factory=Totals)
    reserved: Totals = field(default_factory=Totals)
    runs: int = 0

    @property
    def counted(self) -> Totals:
        """What counts against a budget."""
        return self.spent.plus(self.reserved)


@dataclass(frozen=True, slots=True)
class Share:
    """What one analyst has spent on a data set; ``limit`` is None where only the data set's budget binds."""

    analyst: str
    limit: Allowance | None
    spending: Spending

    @property
    def words(self) -> str:
        """The share in one sentence."""
        said = f"{self.analyst or 'unknown'}: {_describe_spent(self.limit, self.spending)}"
        if self.limit is None:
            return f"{said}; no limit of their own"
        return f"{said}; limit {self.limit.budget.words}; {describe_left(self.limit, self.spending)}"


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one data set."""

    dataset: str
    lifetime: Allowance | None = None
    spending: Spending = field(default_factory=Spending)
    unbounded: bool = False  # whether something was released without a guarantee
    shares: tuple[Share, ...] = ()
    terms: Terms | None = None  # of the runs that count; None as long as there is none
    damaged: tuple[str, ...] = ()  # entries; as long as there is one, no run is admitted

    @property
    def budget(self) -> Budget | None:
        """The lifetime budget."""
        return None if self.lifetime is None else self.lifetime.budget

    @property
    def spent_epsilon(self) -> Fraction:
        """Sum of the epsilons of all runs that recorded an event."""
        return self.spending.spent.epsilon

    @property
    def runs(self) -> int:
        """Number of runs, released ones too."""
        return self.spending.runs

    @property
    def lifetime_epsilon(self) -> Fraction:
        """Epsilon of all runs that recorded an event, at the lifetime's delta: composed, if that is the rule."""
        spent = self.spending.spent
        return spent.epsilon if self.lifetime is None else self.lifetime.epsilon_of(spent)

    @property
    def left(self) -> Budget | None:
        """Budget of the largest Gaussian run that still fits; None if none does, or without a lifetime budget."""
        return None if self.lifetime is None else self.lifetime.left_after(self.spending.counted)

    def share(self, analyst: str) -> Share:
        """Return what one analyst has spent."""
        nothing = Share(analyst, None, Spending())
        return next((share for share in self.shares if share.analyst == analyst), nothing)

    @property
    def words(self) -> str:
        """The account in one sentence."""
        spent = _describe_spent(self.lifetime, self.spending)
        if self.unbounded:
            spent = f"unbounded: a release without guarantee was made, so no total holds; counted: {spent}"
        if self.terms is not None:
            spent += f" ({self.terms.words})"
        if self.damaged:
            spent += f"; {self.damaged[0]} cannot be read, so no run is admitted"
        if self.budget is None:
            return f"{self.dataset}: {spent}; no lifetime budget is set"
        return f"{self.dataset}: {spent}; lifetime {self.budget.words}"


def describe_left(allowance: Allowance, spending: Spending) -> str:
    """Say what is left, for people."""
    counted = spending.counted
    if allowance.composition is Composition.SUM:
        amounts = (allowance.budget.epsilon - counted.epsilon, allowance.budget.delta - counted.delta)
        if min(amounts) < 0:
            over = [round_up(max(-amount, Fraction(0)), 4) for amount in amounts]
            return f"overspent by epsilon {over[0]}, delta {over[1]}"
        return f"left epsilon {round_down(amounts[0], 4)}, delta {round_down(amounts[1], 4)}"
    if not allowance.admits(counted):
        return "overspent: the runs together exceed it"
    left = allowance.left_after(counted)
    if left is None:
        return f"left nothing for a run with delta {round_up(COMMON_DELTA, 4)}"
    said = f"left a run of epsilon {round_down(left.epsilon, 4)} with Gaussian noise, delta {round_up(left.delta, 4)}"
    composed = left.epsilon > allowance.budget.epsilon - counted.epsilon
    return f"{said} (runs compose: this is no plain difference)" if composed else said


def _describe_spent(allowance: Allowance | None, spending: Spending) -> str:
    spent = spending.spent
    runs = "1 run" if spending.runs == 1 else f"{spending.runs} runs"
    said = f"spent epsilon {round_up(spent.epsilon, 4)}, delta {round_up(spent.delta, 4)} in {runs}"
    if allowance is None or allowance.composition is Composition.SUM or not spent.epsilon:
        return said
    composed = allowance.epsilon_of(spent)
    if composed >= spent.epsilon:
        return said
    return f"{said}, together epsilon {round_up(composed, 4)} at delta {round_up(allowance.budget.delta, 4)}"


def admit(account: Account, wanted: Budget, price: Totals, terms: Terms, analyst: str) -> None:
    """Raise BudgetExceededError if a run does not fit, LedgerError if the runs so far have other terms."""
    if account.damaged:  # nobody knows then what is left
        raise LedgerError(
            f"{account.damaged[0]} of {account.dataset!r} cannot be read, so nobody knows what is left; nothing was "
            "drawn. `dagveil budget verify` says more. Restore a backup, or upgrade dagveil."
        )
    if account.terms is not None and account.terms != terms:
        raise LedgerError(
            f"{account.dataset!r} counts runs under ({account.terms.words}), and this run has ({terms.words}): their "
            "epsilons promise different things and cannot be added up. Give relation and unit in the schema as the "
            "earlier runs had them."
        )
    share = account.share(analyst)
    binding = (
        (account.lifetime, account.spending, repr(account.dataset)),
        (share.limit, share.spending, f"the analyst {analyst!r} on {account.dataset!r}"),
    )
    said = []
    fits = True
    sums = False
    for allowance, spending, who in binding:
        if allowance is None:
            continue
        fits = fits and allowance.admits(spending.counted.plus(price))
        sums = sums or (not spending.counted.epsilon and Allowance(allowance.budget, None).admits(price))
        said.append(f"{who} has {describe_left(allowance, spending)}")
    if fits:
        return
    owner = "raise the lifetime budget, if you own it" if share.limit is None else "ask the ledger's owner for more"
    plain = "; before the first run the owner can also set it with --composition sum" if sums else ""
    raise BudgetExceededError(
        f"{', and '.join(said)}, but the run asks for {wanted.words}; nothing was drawn. Ask for less, release "
        f"untouched runs, or {owner}{plain}."
    )


def admit_lifetime(account: Account, lifetime: Allowance) -> None:
    """Raise an error if a lifetime budget is below what is already counted, or would count runs in another way."""
    counted = account.spending.counted.epsilon > 0
    if account.lifetime is not None and counted and account.lifetime.composition is not lifetime.composition:
        raise LedgerError(
            f"the runs on {account.dataset!r} are counted by the rule {account.lifetime.composition.value!r}; it "
            "cannot be changed once there are any, because the choice could depend on what they found."
        )
    _admit_above(account.spending, lifetime, repr(account.dataset), "a lifetime budget")


def admit_limit(account: Account, analyst: str, limit: Allowance) -> None:
    """Raise BudgetExceededError if an analyst's limit is below what they have already spent or reserved."""
    who = f"the analyst {analyst!r} on {account.dataset!r}"
    _admit_above(account.share(analyst).spending, limit, who, "a limit")


def _admit_above(spending: Spending, wanted: Allowance, who: str, what: str) -> None:
    counted = spending.counted
    if not wanted.admits(counted):
        raise BudgetExceededError(
            f"{who} has already spent or reserved epsilon {round_up(counted.epsilon, 6)} and delta "
            f"{round_up(counted.delta, 6)}; {what} of {wanted.budget.words} is below that. Choose a larger one."
        )
