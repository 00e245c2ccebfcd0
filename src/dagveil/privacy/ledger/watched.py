"""A ledger that tells the studio which run a job has reserved, and that a cancel never cuts through."""

from __future__ import annotations

from collections.abc import Callable

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import Account, RunRecord, Terms
from dagveil.privacy.ledger.accounts import Head
from dagveil.privacy.ledger.composition import Composition
from dagveil.privacy.ledger.entries import Entry
from dagveil.privacy.ledger.ledger import Ledger, LedgerRun
from dagveil.progress import CancelSignal


class WatchedLedger(Ledger):
    """Another ledger, with every writing step shielded.

    `cancel` is heard between steps, never within one: a charge that is written when it rings stays charged, and its
    noise is not drawn. `reserved` is told the number of each run that is reserved.
    """

    def __init__(self, books: Ledger, cancel: CancelSignal, reserved: Callable[[int], None]) -> None:
        self._books = books
        self._signal = cancel
        self._reserved = reserved

    @property
    def analyst(self) -> str:
        """Name under which this program spends."""
        return self._books.analyst

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

    def set_budget(self, dataset: str, budget: Budget, composition: Composition | None = None) -> None:
        """Set the lifetime budget of a data set."""
        self._books.set_budget(dataset, budget, composition)

    def set_limit(self, dataset: str, analyst: str, limit: Budget | None) -> None:
        """Set what one analyst may spend on a data set."""
        self._books.set_limit(dataset, analyst, limit)

    def grant(self, analyst: str) -> None:
        """Let a database role spend."""
        self._books.grant(analyst)

    def revoke(self, analyst: str) -> None:
        """Take a grant back."""
        self._books.revoke(analyst)

    def account(self, dataset: str) -> Account:
        """Account of one data set."""
        return self._books.account(dataset)

    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first."""
        return self._books.history(dataset)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return self._books.entries()

    def head(self) -> Head:
        """Return number and digest of the last entry."""
        return self._books.head()

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets."""
        return self._books.datasets()

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event."""
        return self._books.abandon_untouched(dataset)

    def close(self) -> None:
        """Let go of files and connections."""
        self._books.close()
