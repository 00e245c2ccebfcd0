"""How commands fail: one sentence on the error stream and an exit code, never a traceback and never a data value.

Exit codes: 1 data that do not fit (`schema check`) or runs of a study that failed (`bench run`), 2 refused,
3 unexpected, 130 stopped by the user.
"""

import errno
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import click

from dagveil.errors import DagveilError, describe_error
from dagveil.progress import Cancelled, CancelSignal
from dagveil.text import clean_lines

DEBUG_VARIABLE = "DAGVEIL_DEBUG"


class Refusal(click.ClickException):
    """Something that was refused, with a next step for people."""

    exit_code = 2


class Breakdown(click.ClickException):
    """Something that nobody foresaw."""

    exit_code = 3


class PlainGroup(click.Group):
    """A group of commands that lists them in the order of use, and whose failures are plain sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the commands in the order in which they were added."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn every exception into a sentence."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, Cancelled, click.Abort) as stop:
            stays = "What was already charged stays charged: see `dagveil budget show`."
            if INTERRUPT.run is not None:
                stays += f" This was run {INTERRUPT.run}; `dagveil budget release` gives back what was only reserved."
            click.echo(f"Stopped. {describe_error(stop) or stays}", err=True)
            raise click.exceptions.Exit(130) from None
        except DagveilError as error:
            raise Refusal(clean_lines(describe_error(error))) from error
        except Exception as error:
            if isinstance(error, OSError):
                if error.errno == errno.EPIPE:  # the reader of our output has left: nothing to say, click ends quietly
                    raise
                if error.filename is not None and error.strerror:
                    place = clean_lines(str(error.filename))
                    raise Refusal(f"{place}: {error.strerror}; check the path and your rights") from error
            if os.environ.get(DEBUG_VARIABLE):
                raise
            # a traceback or message of a library may hold values of the rows
            raise Breakdown(
                f"something unexpected went wrong ({type(error).__name__}). Its message is withheld because it may "
                f"hold data. Set {DEBUG_VARIABLE}=1 to see it, and please report it without data. "
                f"{describe_error(error) or 'What was charged stays charged: see `dagveil budget show`.'}"
            ) from error


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


INTERRUPT = InterruptSignal()  # one for the process, as signals are


def stoppable(command: Callable[P, T]) -> Callable[P, T]:
    """Let a command that spends be stopped."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with INTERRUPT.hear():
            return command(*args, **kwargs)

    return call
