"""The ledger's interface, and the handle of one reserved run; and a ledger in memory, for public and simulated data."""

from __future__ import annotations

import abc
import getpass
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger import entries as log
from dagveil.privacy.ledger.account import (
    Account,
    Allowance,
    Composition,
    RunRecord,
    RunState,
    Terms,
    admit,
    admit_lifetime,
    admit_limit,
    check_name,
    price_run,
    tidy_name,
)
from dagveil.privacy.ledger.accounts import Books, Head, Verdict, verify_entries
from dagveil.privacy.ledger.entries import Entry
from dagveil.progress import CancelSignal

Append = Callable[[log.EntryKind, str, int | None, str], object]
WAIT_SECONDS: Final = 30.0  # how long to wait for another process that holds the ledger


class Ledger(abc.ABC):
    """The books of all data sets.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from dagveil.privacy.events import SparseVectorRound
    >>> from dagveil.privacy.ledger.ledger import MemoryLedger
    >>> from dagveil.privacy.budget import Relation
    >>> ledger = MemoryLedger()
    >>> ledger.set_budget("visits", Budget.of(3, 0))
    >>> terms = Terms.of(Relation.ADD_REMOVE, "one row")
    >>> with ledger.reserve("visits", Budget.of(1, 0), terms, "pure accounting", "pc", "dagveil 0") as run:
    ...     run.record(SparseVectorRound("edge", Fraction(1, 2)))
    >>> ledger.account("visits").left.epsilon
    Fraction(2, 1)
    >>> ledger.verify().problem is None
    True
    """

    @staticmethod
    def open(url_or_path: str | Path, wait_seconds: float = WAIT_SECONDS, analyst: str | None = None) -> Ledger:
        """Open a ledger; a path is an SQLite file, made with its folders if it does not exist.

        `analyst` is the name under which runs are noted in an SQLite file, the system's user unless given; nobody
        checks it. PostgreSQL notes the role that is connected, and takes no other name.
        """
        from dagveil.privacy.ledger.store import connect  # SQLAlchemy takes time to import

        return connect(url_or_path, wait_seconds, analyst)

    analyst: str
    """Name under which this program spends."""
    place = "a ledger in memory"
    """Where it is, for messages."""

    def set_budget(self, dataset: str, budget: Budget, composition: Composition | None = None) -> None:
        """Set the lifetime budget of a data set; it may not fall below what is spent. For the owner only.

        `composition` says how runs count; None keeps the rule that the data set has, and composes where it has none.
        """
        dataset = check_name(dataset)
        with self._writing(dataset) as (books, append):
            account = books.account(dataset)
            lifetime = allow(account, budget, composition)
            admit_lifetime(account, lifetime)
            append(log.EntryKind.BUDGET, dataset, None, log.budget_body(lifetime))
        self._note_head(limited=True)

    def set_limit(self, dataset: str, analyst: str, limit: Budget | None) -> None:
        """Set what one analyst may spend on a data set, or lift it; not below what they spent. For the owner only."""
        dataset = check_name(dataset)
        with self._writing(dataset) as (books, append):
            account, allowed = books.account(dataset), None
            if limit is not None:
                # runs count as in the data set's own budget
                rule = Composition.SUM if account.lifetime is None else account.lifetime.composition
                allowed = Allowance.of(limit, rule)
                admit_limit(account, analyst, allowed)
            append(log.EntryKind.LIMIT, dataset, None, log.limit_body(log.check_analyst(analyst), allowed))

    def grant(self, analyst: str) -> None:
        """Let a database role spend; only PostgreSQL has roles. For the owner only."""
        raise _no_roles(self.place)

    def revoke(self, analyst: str) -> None:
        """Take a grant back; a run in progress stops before it draws any more noise. For the owner only."""
        raise _no_roles(self.place)

    @abc.abstractmethod
    def account(self, dataset: str) -> Account:
        """Account of one data set, recomputed from the entries."""

    @abc.abstractmethod
    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first, of one data set or of all."""

    @abc.abstractmethod
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""

    def verify(self, kept: Head | None = None) -> Verdict:
        """Say whether the history is whole; `kept` is a head that was noted earlier."""
        return verify_entries(self.entries(), kept)

    @abc.abstractmethod
    def head(self) -> Head:
        """Return number and digest of the last entry, to be kept elsewhere."""

    @abc.abstractmethod
    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets, sorted."""

    @abc.abstractmethod
    def reserve(
        self, dataset: str, budget: Budget, terms: Terms, accounting: str, method: str, software: str
    ) -> LedgerRun:
        """Reserve a run's whole budget in one atomic step, or raise BudgetExceededError.

        - `dataset`: its name; capitals and small letters are not told apart.
        - `budget`: epsilon and delta of the run.
        - `terms`: relation and unit that they are promised for.
        - `accounting`: name of the filter that enforces them in the run.
        - `method`, `software`: what runs, for the history.
        """

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event, and return their number; an analyst releases their own only.

        A run of a living process may be among them: its first record then fails, before any noise is drawn.
        """
        wanted = dataset and tidy_name(dataset)
        with self._writing(dataset) as (books, append):
            runs = [run for run in books.runs.values() if wanted in (None, run.dataset)]
            stale = [run for run in runs if run.state is RunState.OPEN and not run.charges]
            for run in stale:
                append(log.EntryKind.RELEASE, run.dataset, run.number, "{}")
        return len(stale)

    @abc.abstractmethod
    def record_event(self, run_id: int, event: Event) -> None:
        """Write an event of an open run durably; LedgerError if the run is not open."""

    @abc.abstractmethod
    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""

    def close(self) -> None:  # noqa: B027 - only some ledgers hold a connection
        """Let go of files and connections."""

    @abc.abstractmethod
    def _writing(self, dataset: str | None) -> AbstractContextManager[tuple[Books, Append]]:
        """Keep others from adding entries; give the books, of one data set or of all, and what adds an entry."""

    def _note_head(self, limited: bool = False) -> None:  # noqa: B027 - only some ledgers are remembered
        """Remember how far the history has come."""


class LedgerRun:
    """A reserved run: record each event before its noise. A `with` block closes it; what is recorded stays spent."""

    def __init__(self, ledger: Ledger, run_id: int, dataset: str, budget: Budget, closed: bool = False) -> None:
        self._ledger = ledger
        self.id = run_id
        self.dataset = dataset
        self.budget = budget
        self._closed = closed

    def record(self, event: Event) -> None:
        """Write the event durably; draw noise only after this returns."""
        if self._closed:
            raise closed_run(self.id)
        self._ledger.record_event(self.id, event)

    def close(self) -> None:
        """Close the run; closing twice does nothing."""
        if not self._closed:
            self._ledger.close_run(self.id)
            self._closed = True

    def __enter__(self) -> LedgerRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LedgerError as reason:
            if error is not None:
                return  # the first error says more
            # an open run counts as much as a closed one, so a result that is paid for need not be lost
            warnings.warn(f"run {self.id} could not be closed and stays open: {reason}", stacklevel=2)


def allow(account: Account, budget: Budget, composition: Composition | None) -> Allowance:
    """Return what a new lifetime budget allows; runs count as before unless the composition is given."""
    chosen = account.lifetime is not None and (account.lifetime.budget.delta > 0 or account.spending.counted.epsilon)
    kept = account.lifetime.composition if account.lifetime is not None and chosen else Composition.CONCENTRATED
    return Allowance.of(budget, composition or kept)


def closed_run(run_id: int) -> LedgerError:
    """Error for a record in a run that is not open."""
    return LedgerError(f"run {run_id} is not open any more; nothing was drawn. Reserve a new run.")


def _no_roles(place: str) -> LedgerError:
    return LedgerError(
        f"{place} has no roles: whoever can write it is its owner. Put a ledger that several people share on "
        "PostgreSQL: --ledger postgresql://user@host/name."
    )


def system_user() -> str:
    """Return the name of the system's user, as far as the system says."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name in the environment and none for this number
        return f"user-{os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _forward(name: str) -> Any:
    """Make a method that the other ledger answers."""
    return lambda ledger, *arguments: getattr(ledger._books, name)(*arguments)


class WatchedLedger(Ledger):
    """Another ledger, with every writing step shielded.

    `cancel` is heard between steps, never within one: a charge that is written when it rings stays charged, and its
    noise is not drawn. `reserved` is told the number of each run that is reserved.
    """

    def __init__(self, books: Ledger, cancel: CancelSignal, reserved: Callable[[int], None]) -> None:
        self._books = books
        self.analyst = books.analyst
        self._signal = cancel
        self._reserved = reserved

    def reserve(
        self, dataset: str, budget: Budget, terms: Terms, accounting: str, method: str, software: str
    ) -> LedgerRun:
        """Reserve a run's whole budget, and tell its number."""
        self._signal.check()
        with self._signal.shield():
            run = self._books.reserve(dataset, budget, terms, accounting, method, software)
            self._reserved(run.id)
        return LedgerRun(self, run.id, run.dataset, budget)

    def record_event(self, run_id: int, event: Event) -> None:
        """Write an event of an open run durably."""
        self._signal.check()
        with self._signal.shield():
            self._books.record_event(run_id, event)

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with self._signal.shield():
            self._books.close_run(run_id)

    set_budget = _forward("set_budget")
    set_limit = _forward("set_limit")
    grant = _forward("grant")
    revoke = _forward("revoke")
    account = _forward("account")
    history = _forward("history")
    entries = _forward("entries")
    head = _forward("head")
    datasets = _forward("datasets")
    abandon_untouched = _forward("abandon_untouched")
    _writing = _forward("_writing")
    close = _forward("close")


class MemoryLedger(Ledger):
    """The books in memory only; nothing survives the process."""

    def __init__(self, analyst: str | None = None) -> None:
        self._lock = threading.RLock()
        self.analyst = system_user() if analyst is None else log.check_analyst(analyst)
        self._entries: list[log.Entry] = []
        self._books = Books()
        self._append(log.EntryKind.BEGUN, "", None, "{}")

    def account(self, dataset: str) -> Account:
        """Account of one data set."""
        with self._lock:
            return self._books.account(tidy_name(dataset))

    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first."""
        wanted = dataset and tidy_name(dataset)
        with self._lock:
            return tuple(run.record() for run in self._books.runs.values() if wanted in (None, run.dataset))

    def entries(self) -> tuple[log.Entry, ...]:
        """All entries, oldest first."""
        with self._lock:
            return tuple(self._entries)

    def head(self) -> Head:
        """Return number and digest of the last entry."""
        with self._lock:
            return Head(self._entries[-1].seq, self._entries[-1].digest)

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets, sorted."""
        with self._lock:
            return self._books.datasets()

    def reserve(
        self, dataset: str, budget: Budget, terms: Terms, accounting: str, method: str, software: str
    ) -> LedgerRun:
        """Reserve a run's whole budget."""
        dataset = check_name(dataset)
        body = log.reservation_body(budget, terms, accounting, method, software)
        with self._lock:
            admit(self.account(dataset), budget, price_run(budget, accounting), terms, self.analyst)
            number = len(self._books.runs) + 1
            self._append(log.EntryKind.RESERVE, dataset, number, body)
            return LedgerRun(self, number, dataset, budget)

    def record_event(self, run_id: int, event: Event) -> None:
        """Note an event of an open run."""
        kind, body = log.charge(event)
        with self._lock:
            run = self._books.runs[run_id]
            if run.state is not RunState.OPEN:
                raise closed_run(run_id)
            self._append(kind, run.dataset, run_id, body)

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with self._lock:
            run = self._books.runs[run_id]
            if run.state is RunState.OPEN:
                self._append(log.EntryKind.CLOSE if run.charges else log.EntryKind.RELEASE, run.dataset, run_id, "{}")

    @contextmanager
    def _writing(self, dataset: str | None) -> Iterator[tuple[Books, Append]]:
        with self._lock:
            yield self._books, self._append

    def _append(self, kind: log.EntryKind, dataset: str, run: int | None, body: str) -> None:
        last = self._entries[-1] if self._entries else None
        entry = log.follow(last, kind, dataset, run, self.analyst, body)
        self._books.apply(entry)
        self._entries.append(entry)
