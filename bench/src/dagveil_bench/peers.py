"""Programs of others that ours are measured beside."""

import logging
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from itertools import combinations
from types import FrameType
from typing import Any, TypeVar

from dagveil.errors import MethodError, MissingExtraError
from dagveil.graphs.pag import Edge, Mark

Product = TypeVar("Product")


def import_peer(module: str, extra: str = "peers") -> Any:
    """Return a module of a package that an extra of ours brings."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_peer(module.partition(".")[0], extra) from error


def missing_peer(package: str, extra: str = "peers") -> MissingExtraError:
    """Return an error that says how to install a package."""
    return MissingExtraError(
        f"this needs the package {package!r}, which is not installed; install all that it needs with: "
        f"pip install './bench[{extra}]'"
    )


@contextmanager
def keep_quiet() -> Iterator[None]:
    """Let a peer neither log nor warn."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def read_ends(names: Sequence[str], ends: Any) -> frozenset[Edge]:
    """Return the edges whose ends causal-learn writes as numbers."""
    marks = {-1: Mark.TAIL, 1: Mark.ARROW, 2: Mark.CIRCLE}
    joined = [(i, j) for i, j in combinations(range(len(names)), 2) if ends[i, j] and ends[j, i]]
    return frozenset(Edge(names[i], names[j], marks[int(ends[i, j])], marks[int(ends[j, i])]) for i, j in joined)


def read_seconds(settings: Mapping[str, object]) -> float:
    """Return how long a peer may run, in seconds of the processor; MethodError where settings say anything else."""
    seconds = {"seconds": 60.0, **settings}.pop("seconds")
    if not isinstance(seconds, int | float) or seconds <= 0 or settings.keys() - {"seconds"}:
        raise MethodError("settings: a program of others has only seconds, a positive number")
    return float(seconds)


def finish_within(seconds: float, work: Callable[[], Product]) -> Product | None:
    """Do a peer's work quietly; None if it uses more processor time. For the main thread of a process only."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    usual = signal.signal(signal.SIGPROF, stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with keep_quiet(), redirect_stdout(StringIO()):
            return work()
    except _OutOfTime:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, usual)


class _OutOfTime(Exception):
    """The peer has used the processor time that it was given."""
