"""Long work: what tells how far it is, and what stops it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def silent(stage: str, done: int, total: int) -> None:
    """Show no progress."""


class Cancelled(BaseException):
    """Somebody stopped the run; no `Exception`, so that nothing on the way takes it for an error of its own."""


class CancelSignal:
    """Turns the signal to end into `Cancelled`, but never in the middle of a shielded step.

    Examples
    --------
    >>> signal = CancelSignal()
    >>> heard = []
    >>> try:
    ...     with signal.shield():
    ...         signal.send()
    ...         heard.append("the step was finished")
    ... except Cancelled:
    ...     heard.append("then the run stopped")
    >>> heard
    ['the step was finished', 'then the run stopped']
    """

    def __init__(self) -> None:
        self._sent = False
        self._shields = 0

    def listen(self) -> None:
        """Send at SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.send()

    def send(self) -> None:
        """Stop the run now, or when the shielded step is over."""
        if self._sent:
            return  # once is enough: the run is clearing up
        self._sent = True
        if not self._shields:
            raise Cancelled

    def check(self) -> None:
        """Stop the run if the signal was sent: code that a foreign library called back may have lost it."""
        if self._sent:
            raise Cancelled

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Let a step end before the signal takes effect."""
        before = self._sent
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._sent and not before and not self._shields:
            raise Cancelled
