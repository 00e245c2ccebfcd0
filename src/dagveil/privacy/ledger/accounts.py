"""The books: what the entries of a history add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import msgspec

from dagveil.errors import BudgetError, LedgerError
from dagveil.privacy.budget import MOST_DIGITS, Budget
from dagveil.privacy.events import decode_event
from dagveil.privacy.ledger.account import Account, RunRecord, RunState, Share, Spending, Terms
from dagveil.privacy.ledger.composition import Allowance, Totals
from dagveil.privacy.ledger.entries import Amounts, Entry, EntryKind, Limit, Reservation
from dagveil.privacy.relation import Relation

Body = TypeVar("Body")


@dataclass(slots=True)
class BookedRun:
    """A run while its entries are read."""

    number: int
    dataset: str
    analyst: str
    budget: Budget
    price: Totals
    terms: Terms
    accounting: str
    method: str
    software: str
    started: str
    ended: str | None = None
    state: RunState = RunState.OPEN
    charges: list[str] = field(default_factory=list)

    @property
    def counts(self) -> bool:
        """Whether the run counts against a budget: it is open, or has a charge."""
        return self.state is RunState.OPEN or bool(self.charges)

    def record(self) -> RunRecord:
        """Return the run with its events."""
        events = []
        for charge in self.charges:
            with suppress(msgspec.MsgspecError, BudgetError, UnicodeError):
                events.append(decode_event(charge))
        return RunRecord(
            self.number,
            self.dataset,
            self.budget,
            self.method,
            self.software,
            self.state,
            self.started,
            self.ended,
            tuple(events),
            self.analyst,
            self.terms,
            self.accounting,
            len(self.charges) - len(events),
        )


class Books:
    """All accounts, computed from entries alone.

    Entries are taken as they come; `dagveil.privacy.ledger.verification` says whether they were allowed. Of a run's
    charges those that were left out change no account, as long as one stays. An entry that makes no sense is noted in
    the account, and the others still count.

    Examples
    --------
    >>> from dagveil.privacy.ledger.entries import budget_body, follow
    >>> body = budget_body(Allowance(Budget.of(3, 0), None))
    >>> Books([follow(None, EntryKind.BUDGET, "visits", None, "ann", body)]).account("visits").left
    Budget(epsilon=Fraction(3, 1), delta=Fraction(0, 1))
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.runs: dict[int, BookedRun] = {}
        self._budgets: dict[str, Allowance] = {}
        self._limits: defaultdict[str, dict[str, Allowance]] = defaultdict(dict)
        self._unbounded: set[str] = set()
        self._damaged: defaultdict[str, list[str]] = defaultdict(list)
        self._spending: defaultdict[str, Spending] = defaultdict(Spending)
        self._shares: defaultdict[str, dict[str, Spending]] = defaultdict(dict)
        self._names: set[str] = set()
        for entry in entries:
            try:
                self.apply(entry)
            except BudgetError:
                self._damaged[entry.dataset].append(entry.words)

    def apply(self, entry: Entry) -> None:
        """Take one more entry; LedgerError if it makes no sense."""
        if entry.dataset:
            self._names.add(entry.dataset)
        match entry.kind:
            case EntryKind.BUDGET:
                self._budgets[entry.dataset] = _allowance(_read(entry, Amounts), entry)
            case EntryKind.LIMIT:
                limit = _read(entry, Limit)
                if limit.epsilon is None:
                    self._limits[entry.dataset].pop(limit.analyst, None)
                else:
                    self._limits[entry.dataset][limit.analyst] = _allowance(limit, entry)
            case EntryKind.RESERVE:
                self._reserve(entry)
            case EntryKind.CHARGE | EntryKind.UNBOUNDED:
                self._charge(entry)
            case EntryKind.CLOSE | EntryKind.RELEASE:
                self._end(entry)
            case EntryKind.UNREADABLE:
                raise nonsense(entry, "its kind is not known")

    def account(self, dataset: str) -> Account:
        """Return the account of a data set."""
        spent, limits = self._shares[dataset], self._limits[dataset]
        shares = tuple(
            Share(analyst, limits.get(analyst), spent.get(analyst, Spending()))
            for analyst in sorted(spent.keys() | limits.keys())
        )
        runs = (run for run in self.runs.values() if run.dataset == dataset and run.counts)
        first = next(runs, None)
        return Account(
            dataset,
            self._budgets.get(dataset),
            self._spending[dataset],
            dataset in self._unbounded,
            shares,
            None if first is None else first.terms,
            # what names no data set could be about any
            tuple(self._damaged[dataset] + self._damaged[""]),
        )

    def datasets(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        return tuple(sorted(self._names))

    def _reserve(self, entry: Entry) -> None:
        if entry.run is None or entry.run in self.runs:
            raise nonsense(entry, "its run has no number of its own")
        body = _read(entry, Reservation)
        budget = Budget(_amount(body.epsilon, entry), _amount(body.delta, entry))
        run = BookedRun(
            entry.run,
            entry.dataset,
            entry.analyst,
            budget,
            Totals(budget.epsilon, budget.delta, _amount(body.rho, entry), _amount(body.failure, entry)),
            Terms(_relation(body, entry), body.unit),
            body.accounting,
            body.method,
            body.software,
            entry.recorded,
        )
        self.runs[run.number] = run
        self._add(run, reserved=1, runs=1)

    def _charge(self, entry: Entry) -> None:
        run = self.named_run(entry)
        if not run.charges:
            # a charge makes the reservation spent; one after a release would come too late to be taken back
            self._add(run, reserved=-1 if run.state is RunState.OPEN else 0, spent=1)
        run.charges.append(entry.body)
        if entry.kind is EntryKind.UNBOUNDED:
            self._unbounded.add(run.dataset)

    def _end(self, entry: Entry) -> None:
        run = self.named_run(entry)
        if run.state is RunState.OPEN and not run.charges:
            self._add(run, reserved=-1)
        run.state = RunState.CLOSED if entry.kind is EntryKind.CLOSE else RunState.RELEASED
        run.ended = entry.recorded

    def named_run(self, entry: Entry) -> BookedRun:
        """Return the run that an entry is about."""
        run = None if entry.run is None else self.runs.get(entry.run)
        if run is None or run.dataset != entry.dataset:
            raise nonsense(entry, "no such run was reserved")
        return run

    def _add(self, run: BookedRun, reserved: int = 0, spent: int = 0, runs: int = 0) -> None:
        def grow(old: Spending) -> Spending:
            return Spending(old.spent.plus(run.price, spent), old.reserved.plus(run.price, reserved), old.runs + runs)

        self._spending[run.dataset] = grow(self._spending[run.dataset])
        shares = self._shares[run.dataset]
        shares[run.analyst] = grow(shares.get(run.analyst, Spending()))


def nonsense(entry: Entry, why: str) -> LedgerError:
    """Error for an entry that this program did not write."""
    return LedgerError(f"{entry.words} makes no sense: {why}. `dagveil budget verify` looks for what was changed.")


def _read(entry: Entry, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(entry.body, type=kind)
    except msgspec.MsgspecError as error:
        raise nonsense(entry, "its content cannot be read") from error


def _allowance(body: Amounts | Limit, entry: Entry) -> Allowance:
    budget = Budget(_amount(body.epsilon or "", entry), _amount(body.delta or "", entry))
    return Allowance(budget, None if body.rho is None else _amount(body.rho, entry))


def _amount(text: str, entry: Entry) -> Fraction:
    try:
        if len(text) > 2 * MOST_DIGITS + 1:
            raise ValueError
        amount = Fraction(text)
        if amount < 0:
            raise ValueError
        return amount
    except (ValueError, ZeroDivisionError) as error:
        raise nonsense(entry, "its amounts cannot be read") from error


def _relation(body: Reservation, entry: Entry) -> Relation:
    try:
        return Relation(body.relation)
    except ValueError as error:
        raise nonsense(entry, "its relation is not known") from error
