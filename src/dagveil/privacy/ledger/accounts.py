"""The accounts that follow from the entries of a ledger, and whether they are as they must be."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeVar

import msgspec

from dagveil.errors import BudgetError, LedgerError
from dagveil.privacy.budget import MOST_DIGITS, Budget, Relation
from dagveil.privacy.events import Filter, decode_event
from dagveil.privacy.ledger.account import (
    Account,
    Allowance,
    RunRecord,
    RunState,
    Share,
    Spending,
    Terms,
    Totals,
    admit,
    admit_lifetime,
    admit_limit,
    price_run,
)
from dagveil.privacy.ledger.entries import NOTHING_BEFORE, Amounts, Entry, EntryKind, Limit, Reservation
from dagveil.privacy.receipt import filter_named

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
        what = self.number, self.dataset, self.budget, self.method, self.software
        course = self.state, self.started, self.ended, tuple(events)
        unreadable = len(self.charges) - len(events)
        return RunRecord(*what, *course, self.analyst, self.terms, self.accounting, unreadable)


class Books:
    """All accounts, computed from entries alone.

    Entries are taken as they come; `dagveil.privacy.ledger.entries` says whether they were allowed. Of a run's
    charges those that were left out change no account, as long as one stays. An entry that makes no sense is noted in
    the account, and the others still count.
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
        terms = next((run.terms for run in self.runs.values() if run.dataset == dataset and run.counts), None)
        # what names no data set could be about any
        damaged = tuple(self._damaged[dataset] + self._damaged[""])
        sums = self._budgets.get(dataset), self._spending[dataset], dataset in self._unbounded
        return Account(dataset, *sums, shares, terms, damaged)

    def datasets(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        return tuple(sorted(self._names))

    def _reserve(self, entry: Entry) -> None:
        if entry.run is None or entry.run in self.runs:
            raise nonsense(entry, "its run has no number of its own")
        body = _read(entry, Reservation)
        budget = Budget(_amount(body.epsilon, entry), _amount(body.delta, entry))
        price = Totals(budget.epsilon, budget.delta, _amount(body.rho, entry), _amount(body.failure, entry))
        try:
            terms = Terms(Relation(body.relation), body.unit)
        except ValueError as error:
            raise nonsense(entry, "its relation is not known") from error
        program = body.accounting, body.method, body.software
        run = BookedRun(entry.run, entry.dataset, entry.analyst, budget, price, terms, *program, entry.recorded)
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


_HEAD: Final = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry's number and digest: kept elsewhere, it shows later whether anything up to it was changed."""

    seq: int
    digest: str

    @classmethod
    def read(cls, text: str) -> Head:
        """Read what `str` wrote."""
        found = _HEAD.fullmatch(text.strip().lower())
        if found is None:
            raise LedgerError("a head is the number of an entry, a colon and 64 hexadecimal digits; copy it whole.")
        return cls(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verification found; ``problem`` is None if everything fits, otherwise it names the first misfit."""

    entries: int
    head: Head
    problem: str | None


def verify_entries(entries: Iterable[Entry], kept: Head | None = None) -> Verdict:
    """Go through a history from its first entry.

    `kept` is a head that was noted earlier. Without it, a history that was cut off at its end, or written anew from
    some entry on, cannot be told from a true one.
    """
    books = Books()
    spent: dict[int, Filter] = {}
    last = Head(0, NOTHING_BEFORE)
    try:
        for entry in entries:
            problem = _check_place(entry, last) or _check_rules(books, spent, entry) or _check_kept(entry, kept)
            if problem is not None:
                return Verdict(last.seq, last, problem)
            last = Head(entry.seq, entry.digest)
    except LedgerError as error:  # an entry that cannot even be read
        return Verdict(last.seq, last, str(error))
    problem = None
    if last.seq == 0:
        problem = "the history is empty, but a ledger has at least its first entry: it was emptied"
    elif kept is not None and kept.seq > last.seq:
        problem = (
            f"the history ends with entry {last.seq}, but entry {kept.seq} was there when the head was noted: its end "
            "was cut off"
        )
    return Verdict(last.seq, last, problem)


def _check_place(entry: Entry, last: Head) -> str | None:
    """Say how an entry does not follow the one before it."""
    if entry.seq != last.seq + 1:
        missing = f"entry {last.seq + 1} is" if entry.seq == last.seq + 2 else f"entries from {last.seq + 1} on are"
        return f"{entry.words} follows entry {last.seq}: {missing} missing"
    if entry.compute_digest() != entry.digest:
        return f"{entry.words} does not fit its own digest: it was changed"
    if entry.previous != last.digest:
        return f"{entry.words} does not follow entry {last.seq}: one of the two was changed or put in its place"
    if (entry.kind is EntryKind.BEGUN) != (entry.seq == 1):
        return f"{entry.words} is out of place: a history begins once, with its first entry"
    return None


def _check_kept(entry: Entry, kept: Head | None) -> str | None:
    """Say how an entry is not the one that was noted earlier."""
    if kept is None or kept.seq != entry.seq or kept.digest == entry.digest:
        return None
    return (
        f"{entry.words} is not the one whose digest was noted: it or one before it was changed, and the digests were "
        "computed anew; or the head is another ledger's"
    )


def _check_rules(books: Books, spent: dict[int, Filter], entry: Entry) -> str | None:
    """Apply an entry, and say how it breaks the rules that the program keeps."""
    try:
        if entry.kind is EntryKind.RESERVE:
            before = books.account(entry.dataset)
            books.apply(entry)
            assert entry.run is not None
            run = books.runs[entry.run]
            if price_run(run.budget, run.accounting) != run.price:
                raise nonsense(entry, "it does not count what its epsilon and delta are worth")
            admit(before, run.budget, run.price, run.terms, entry.analyst)
            return None
        if entry.run is not None:
            run = books.named_run(entry)
            if run.state is not RunState.OPEN:
                raise nonsense(entry, "its run had ended")
            if entry.kind is EntryKind.RELEASE and run.charges:
                raise nonsense(entry, "a run with charges cannot be released")
            if entry.kind is EntryKind.CLOSE and not run.charges:
                raise nonsense(entry, "a run without charges is released, not closed")
            if entry.kind is EntryKind.CHARGE:
                _check_charge(spent, run, entry)
        before = books.account(entry.dataset)
        books.apply(entry)
        account = books.account(entry.dataset)
        if entry.kind is EntryKind.BUDGET and account.lifetime is not None:
            admit_lifetime(before, account.lifetime)
        if entry.kind is EntryKind.LIMIT:
            for share in account.shares:
                if share.limit is not None:
                    admit_limit(account, share.analyst, share.limit)
    except BudgetError as error:
        return f"{entry.words} breaks the rules: {error}"
    return None


def _check_charge(spent: dict[int, Filter], run: BookedRun, entry: Entry) -> None:
    """Charge the run's events again, and refuse what its reservation does not cover."""
    if run.number not in spent:
        spent[run.number] = filter_named(run.accounting, run.budget)
    try:
        event = decode_event(entry.body)
    except msgspec.MsgspecError as error:
        raise nonsense(entry, "its content cannot be read") from error
    spent[run.number].charge(event)
