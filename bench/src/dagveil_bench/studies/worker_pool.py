"""Processes that share work: one that dies or takes too long costs one job, and is replaced.

A process pool of the standard library gives all work up when one of its processes is killed, for example for want of
memory. Here every process has one job at a time, so whoever dies is known.
"""

import enum
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from dagveil.errors import MethodError
from dagveil_bench.studies.machine import THREADS

Job = TypeVar("Job")
Product = TypeVar("Product")

PATIENCE = 5.0  # seconds that an ended process has before it is killed


@dataclass(frozen=True, slots=True)
class Lost:
    """A job that its process did not survive, and why: it took too long, or the process ended with this code."""

    reason: str
    exit_code: int | None = field(default=None, compare=False)


class _State(enum.Enum):
    STARTING = enum.auto()  # it imports what it needs; the clock of its first job does not run yet
    IDLE = enum.auto()
    BUSY = enum.auto()


@dataclass(slots=True, eq=False)
class _Worker:
    """A process with its end of the pipe, and what it has in hand."""

    process: SpawnProcess
    pipe: Connection
    state: _State = _State.STARTING
    job: Any = None
    began: float = 0.0


class WorkerPool(Generic[Job, Product]):
    """Processes that do one job at a time.

    The work is a function of a module. A job is given up after `limit` seconds.
    """

    def __init__(self, work: Callable[[Job], Product], workers: int, limit: float | None = None) -> None:
        self._work = work
        self._size = workers
        self._limit = limit

    def do(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Product | Lost]]:
        """Yield each job with what came of it, in the order in which they end."""
        waiting = list(reversed(jobs))
        workers: list[_Worker] = []
        try:
            while waiting or any(worker.state is _State.BUSY for worker in workers):
                free = sum(worker.state is not _State.BUSY for worker in workers)
                workers += [self._hire() for _ in range(min(self._size - len(workers), len(waiting) - free))]
                for worker in workers:
                    if waiting and worker.state is _State.IDLE:
                        self._hand(worker, waiting.pop())
                for worker in self._await([worker for worker in workers if worker.state is not _State.IDLE]):
                    if worker.state is _State.STARTING:
                        self._greet(worker)
                        continue
                    job, product = worker.job, self._collect(worker)
                    if isinstance(product, Lost):
                        workers.remove(worker)
                        _end(worker)
                    yield job, product
        finally:
            for worker in workers:
                _end(worker)

    def _hire(self) -> _Worker:
        ours, theirs = get_context("spawn").Pipe()
        process = get_context("spawn").Process(target=_serve, args=(self._work, theirs), daemon=True)
        with _one_thread():
            process.start()
        theirs.close()  # so that a dead process is the end of the pipe
        return _Worker(process, ours)

    @staticmethod
    def _greet(worker: _Worker) -> None:
        try:
            worker.pipe.recv()
        except (EOFError, OSError) as error:
            worker.process.join(PATIENCE)
            raise MethodError(
                f"a process that should do the work could not start (exit code {worker.process.exitcode}); its own "
                "message stands above. A script needs `if __name__ == '__main__':` before what it does"
            ) from error
        worker.state = _State.IDLE

    @staticmethod
    def _hand(worker: _Worker, job: Job) -> None:
        worker.job, worker.state, worker.began = job, _State.BUSY, time.monotonic()
        with suppress(OSError):  # a process that died idle is found out when its answer is awaited
            worker.pipe.send(job)

    def _await(self, others: list[_Worker]) -> list[_Worker]:
        """Wait for answers, ends and deadlines."""
        pause = None
        if self._limit is not None:
            starts = [worker.began for worker in others if worker.state is _State.BUSY]
            pause = max(0.0, min(starts) + self._limit - time.monotonic()) if starts else None
        ready = set(wait([worker.pipe for worker in others], pause))
        return [worker for worker in others if worker.pipe in ready or self._is_late(worker)]

    def _is_late(self, worker: _Worker) -> bool:
        late = self._limit is not None and time.monotonic() - worker.began >= self._limit
        return late and worker.state is _State.BUSY

    def _collect(self, worker: _Worker) -> Product | Lost:
        if not worker.pipe.poll():
            return Lost(f"given up after {self._limit:g} seconds")
        try:
            product: Product = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(PATIENCE)
            code = worker.process.exitcode
            return Lost(f"the process ended with exit code {code}", code)
        worker.state, worker.job = _State.IDLE, None
        return product


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """Do jobs until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to everyone; our parent decides
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send("ready")
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        product = work(job)
        try:
            pipe.send(product)
        except OSError:
            return


def _follow_parent() -> None:
    """End with the parent, even if it was killed: a resumed study must not compete with an orphan."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _end(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.terminate()
    worker.process.join(PATIENCE)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()
    worker.process.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes start with one thread for linear algebra each, unless the user has chosen a number."""
    added = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
