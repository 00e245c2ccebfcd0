"""A ledger that forgets: for public and simulated data, when no ledger file is wanted."""

from __future__ import annotations

import datetime
import threading
from dataclasses import replace

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import Account, RunRecord, RunState, admit, admit_lifetime, tally
from dagveil.privacy.ledger.book import Ledger, LedgerRun, closed_run


class MemoryLedger(Ledger):
    """The books in memory only; nothing survives the process.

    Examples
    --------
    >>> MemoryLedger().account("visits").words
    'visits: spent epsilon 0, delta 0 in 0 runs; no lifetime budget is set'
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._budgets: dict[str, Budget | None] = {}
        self._runs: list[RunRecord] = []

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the lifetime budget of a data set."""
        with self._lock:
            admit_lifetime(self.account(dataset), budget)
            self._budgets[dataset] = budget

    def account(self, dataset: str) -> Account:
        """Account of one data set, recomputed from its runs."""
        with self._lock:
            return tally(dataset, self._budgets.get(dataset), (run.cost for run in self.history(dataset)))

    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first."""
        with self._lock:
            return tuple(run for run in self._runs if dataset is None or run.dataset == dataset)

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets, sorted."""
        with self._lock:
            return tuple(sorted(self._budgets))

    def reserve(self, dataset: str, budget: Budget, method: str, software: str) -> LedgerRun:
        """Reserve a run's whole budget."""
        with self._lock:
            admit(self.account(dataset), budget)
            self._budgets.setdefault(dataset, None)
            number = len(self._runs) + 1
            self._runs.append(RunRecord(number, dataset, budget, method, software, RunState.OPEN, utc_now(), None, ()))
            return LedgerRun(self, number, dataset, budget)

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event."""
        with self._lock:
            stale = [run for run in self.history(dataset) if run.state is RunState.OPEN and not run.events]
            for run in stale:
                self.close_run(run.id)
            return len(stale)

    def record_event(self, run_id: int, event: Event) -> None:
        """Note an event of an open run."""
        with self._lock:
            run = self._runs[run_id - 1]
            if run.state is not RunState.OPEN:
                raise closed_run(run_id)
            self._runs[run_id - 1] = replace(run, events=(*run.events, event))

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with self._lock:
            run = self._runs[run_id - 1]
            if run.state is RunState.OPEN:
                state = RunState.CLOSED if run.events else RunState.RELEASED
                self._runs[run_id - 1] = replace(run, state=state, ended=utc_now())


def utc_now() -> str:
    """Time now, in UTC, to the second.

    Examples
    --------
    >>> utc_now()[-6:]
    '+00:00'
    """
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
