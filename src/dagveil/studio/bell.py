"""A bell that stops a run: it may ring at any moment, and is heard as soon as nothing is half done."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Cancelled(BaseException):
    """Somebody stopped the run; no `Exception`, so that nothing on the way takes it for an error of its own."""


class Bell:
    """Turns the signal to end into `Cancelled`, but never in the middle of a shielded step.

    Examples
    --------
    >>> bell = Bell()
    >>> heard = []
    >>> try:
    ...     with bell.shield():
    ...         bell.ring()
    ...         heard.append("the step was finished")
    ... except Cancelled:
    ...     heard.append("then the run stopped")
    >>> heard
    ['the step was finished', 'then the run stopped']
    """

    def __init__(self) -> None:
        self._rung = False
        self._shields = 0

    def listen(self) -> None:
        """Ring at SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.ring()

    def ring(self) -> None:
        """Stop the run now, or when the shielded step is over."""
        if self._rung:
            return  # once is enough: the run is clearing up
        self._rung = True
        if not self._shields:
            raise Cancelled

    def check(self) -> None:
        """Stop the run if the bell has rung: code that a foreign library called back may have lost it."""
        if self._rung:
            raise Cancelled

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Let a step end before the bell is heard."""
        before = self._rung
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._rung and not before and not self._shields:
            raise Cancelled
