"""A ledger that forgets: for public and simulated data, when no ledger file is wanted."""

from __future__ import annotations

import threading

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger import entries as log
from dagveil.privacy.ledger.account import (
    Account,
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
from dagveil.privacy.ledger.accounts import Books, Head
from dagveil.privacy.ledger.ledger import Ledger, LedgerRun, allow, allow_analyst, closed_run, system_user


class MemoryLedger(Ledger):
    """The books in memory only; nothing survives the process."""

    def __init__(self, analyst: str | None = None) -> None:
        self._lock = threading.RLock()
        self.analyst = system_user() if analyst is None else log.check_analyst(analyst)
        self._entries: list[log.Entry] = []
        self._books = Books()
        self._append(log.EntryKind.BEGUN, "", None, "{}")

    def set_budget(self, dataset: str, budget: Budget, composition: Composition | None = None) -> None:
        """Set the lifetime budget of a data set."""
        with self._lock:
            account = self.account(check_name(dataset))
            lifetime = allow(account, budget, composition)
            admit_lifetime(account, lifetime)
            self._append(log.EntryKind.BUDGET, account.dataset, None, log.budget_body(lifetime))

    def set_limit(self, dataset: str, analyst: str, limit: Budget | None) -> None:
        """Set what one analyst may spend on a data set, or lift it."""
        with self._lock:
            account = self.account(check_name(dataset))
            allowed = allow_analyst(account, limit)
            if allowed is not None:
                admit_limit(account, analyst, allowed)
            self._append(
                log.EntryKind.LIMIT,
                account.dataset,
                None,
                log.limit_body(log.check_analyst(analyst), allowed),
            )

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

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event."""
        wanted = dataset and tidy_name(dataset)
        with self._lock:
            stale = [
                run.number
                for run in self._books.runs.values()
                if wanted in (None, run.dataset) and run.state is RunState.OPEN and not run.charges
            ]
            for number in stale:
                self.close_run(number)
            return len(stale)

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

    def _append(self, kind: log.EntryKind, dataset: str, run: int | None, body: str) -> None:
        last = self._entries[-1] if self._entries else None
        entry = log.follow(last, kind, dataset, run, self.analyst, body)
        self._books.apply(entry)
        self._entries.append(entry)
