"""The books: what the entries of a history add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeVar

import msgspec

from dagveil.errors import BudgetError, LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import decode_event
from dagveil.privacy.ledger.account import Account, RunRecord, RunState, Share, Spending
from dagveil.privacy.ledger.entries import Amounts, Entry, EntryKind, Limit, Reservation

Body = TypeVar("Body")


@dataclass(slots=True)
class BookedRun:
    """A run while its entries are read."""

    number: int
    dataset: str
    analyst: str
    budget: Budget
    method: str
    software: str
    started: str
    ended: str | None = None
    state: RunState = RunState.OPEN
    charges: list[str] = field(default_factory=list)

    def record(self) -> RunRecord:
        """Return the run with its events."""
        try:
            events = tuple(decode_event(charge) for charge in self.charges)
        except (msgspec.MsgspecError, BudgetError) as error:
            raise LedgerError(
                f"run {self.number} holds an event that this program cannot read; upgrade dagveil."
            ) from error
        return RunRecord(
            self.number,
            self.dataset,
            self.budget,
            self.method,
            self.software,
            self.state,
            self.started,
            self.ended,
            events,
            self.analyst,
        )


class Books:
    """All accounts, computed from entries alone.

    Entries are taken as they come; `dagveil.privacy.ledger.verification` says whether they were allowed. Of a run's
    charges those that were left out change no account, as long as one stays.

    Examples
    --------
    >>> from dagveil.privacy.ledger.entries import budget_body, follow
    >>> budget = follow(None, EntryKind.BUDGET, "visits", None, "ann", budget_body(Budget.of(3, 0)))
    >>> Books([budget]).account("visits").remaining_epsilon
    Fraction(3, 1)
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.runs: dict[int, BookedRun] = {}
        self._budgets: dict[str, Budget] = {}
        self._limits: defaultdict[str, dict[str, Budget]] = defaultdict(dict)
        self._unbounded: set[str] = set()
        self._spending: defaultdict[str, Spending] = defaultdict(Spending)
        self._shares: defaultdict[str, dict[str, Spending]] = defaultdict(dict)
        self._names: set[str] = set()
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Take one more entry; LedgerError if it makes no sense."""
        if entry.dataset:
            self._names.add(entry.dataset)
        match entry.kind:
            case EntryKind.BUDGET:
                self._budgets[entry.dataset] = _budget(_read(entry, Amounts), entry)
            case EntryKind.LIMIT:
                limit = _read(entry, Limit)
                if limit.epsilon is None:
                    self._limits[entry.dataset].pop(limit.analyst, None)
                else:
                    self._limits[entry.dataset][limit.analyst] = _budget(limit, entry)
            case EntryKind.RESERVE:
                self._reserve(entry)
            case EntryKind.CHARGE | EntryKind.UNBOUNDED:
                self._charge(entry)
            case EntryKind.CLOSE | EntryKind.RELEASE:
                self._end(entry)

    def account(self, dataset: str) -> Account:
        """Return the account of a data set."""
        spent, limits = self._shares[dataset], self._limits[dataset]
        shares = tuple(
            Share(analyst, limits.get(analyst), spent.get(analyst, Spending()))
            for analyst in sorted(spent.keys() | limits.keys())
        )
        return Account(dataset, self._budgets.get(dataset), self._spending[dataset], dataset in self._unbounded, shares)

    def datasets(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        return tuple(sorted(self._names))

    def _reserve(self, entry: Entry) -> None:
        if entry.run is None or entry.run in self.runs:
            raise nonsense(entry, "its run has no number of its own")
        body = _read(entry, Reservation)
        run = BookedRun(
            entry.run,
            entry.dataset,
            entry.analyst,
            _budget(body, entry),
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
        epsilon, delta = run.budget.epsilon, run.budget.delta

        def grow(old: Spending) -> Spending:
            return replace(
                old,
                spent_epsilon=old.spent_epsilon + spent * epsilon,
                spent_delta=old.spent_delta + spent * delta,
                reserved_epsilon=old.reserved_epsilon + reserved * epsilon,
                reserved_delta=old.reserved_delta + reserved * delta,
                runs=old.runs + runs,
            )

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


def _budget(body: Amounts | Limit | Reservation, entry: Entry) -> Budget:
    try:
        return Budget(Fraction(body.epsilon or ""), Fraction(body.delta or ""))
    except (ValueError, ZeroDivisionError) as error:
        raise nonsense(entry, "its amounts cannot be read") from error
