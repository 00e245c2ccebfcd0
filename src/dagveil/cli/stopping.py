"""Ctrl-C in the middle of a run: it always stops, and never between the two halves of a step of the ledger."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from dagveil.cancellation import CancelSignal

if TYPE_CHECKING:
    from dagveil.privacy.ledger.ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")


class InterruptSignal(CancelSignal):
    """Stops a command at the first signal, at its next safe point if a library swallows that, or at once at the second.

    A step of the ledger ends first; the one after it stops.
    """

    def __init__(self) -> None:
        super().__init__()
        self.run: int | None = None

    def note_run(self, run: int) -> None:
        """Remember which run was reserved, to name it."""
        self.run = run

    def send(self) -> None:
        """Stop now, or after the shielded step; the second time end the process."""
        if self._sent:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        super().send()

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Let a step end, and hand over what it made; the next step, or progress, stops."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1

    @contextmanager
    def hear(self) -> Iterator[None]:
        """Hear SIGINT and SIGTERM meanwhile."""
        self._sent, self.run = False, None
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


INTERRUPT = InterruptSignal()
"""One for the process, as signals are."""


def stoppable(command: Callable[P, T]) -> Callable[P, T]:
    """Let a command that spends be stopped."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with INTERRUPT.hear():
            return command(*args, **kwargs)

    return call


def open_watched_ledger(place: str) -> Ledger:
    """Open the ledger of a run: no signal cuts through its steps, and a swallowed one is heard at the next."""
    from dagveil.cli.options import open_ledger
    from dagveil.privacy.ledger.watched import WatchedLedger

    return WatchedLedger(open_ledger(place), INTERRUPT, INTERRUPT.note_run)
