"""A ledger that tells the studio which run a job has reserved, and that a cancel never cuts through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event
from dagveil.privacy.ledger.account import Terms
from dagveil.privacy.ledger.ledger import Ledger, LedgerRun
from dagveil.progress import CancelSignal


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
    close = _forward("close")
