"""Who starts, watches and stops the processes of jobs.

A process goes on when the server stops. The server finds it again by the lock that it holds on a file, and finds what
it wrote by the job's id. The system lets go of the lock when the process dies, however it dies; unlike a process
number it is never taken for that of another process. A job whose process died is shown as interrupted, with what it
had charged; it is never run again by itself. Somebody may ask to finish one that was charged: it then goes on from its
recovery file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dagveil.errors import DataError, LedgerError
from dagveil.local.collector import Refused
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.run import LEDGER_VARIABLE
from dagveil.studio.folder import Folder
from dagveil.studio.jobs import Job, JobOrder, JobState, JobStore, resolve_run
from dagveil.studio.worker import FOUND

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]


def take_lock(path: Path) -> int | None:
    """Take the lock of a file and return its descriptor, or None if another process holds it.

    The lock belongs to the descriptor: a child process that inherits it goes on holding the lock.
    """
    if fcntl is None:  # pragma: no cover - Windows
        raise DataError("the studio needs a system with file locks, such as Linux or macOS")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
    """Say whether a living process holds the lock of a file."""
    if not path.exists():
        return False
    handle = take_lock(path)
    if handle is None:
        return True
    os.close(handle)
    return False


@contextmanager
def holding(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock, or refuse."""
    handle = take_lock(path)
    if handle is None:
        raise DataError(refusal)
    try:
        yield
    finally:
        os.close(handle)


MOST_RUNNING: Final = 2  # jobs at the same time; further ones wait
MOST_QUEUED: Final = 100

PATIENCE_SECONDS: Final = 10.0  # a process that does not stop within this time after a cancel is killed
INTERRUPTED: Final = "the process of this run ended before the run did: the machine or somebody stopped it"
OTHER_LEDGER: Final = (
    "this run was asked for when the studio had another ledger; nothing was spent in this one. Ask again, or start the "
    "studio with that ledger"
)


class JobRunner:
    """The processes of one folder; used by one server at a time.

    `ledger` is its place with everything that is needed to open it, `shown` the same as it may be shown: without a
    password.
    """

    def __init__(
        self, folder: Folder, store: JobStore, ledger: str, shown: str, books: Ledger, most: int = MOST_RUNNING
    ) -> None:
        self.folder, self.store, self.books = folder, store, books
        self._place, self.shown = ledger, shown
        self._most = most
        self._turn = threading.RLock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._asked: dict[str, float] = {}

    def queue(self, order: JobOrder) -> Job:
        """Add a job, and start it if there is room."""
        with self._turn:
            self._check_room()
            job = self.store.add(order)
            self.tick()
            return self.store.get(job.id) or job

    def finish(self, job: Job) -> Job:
        """Queue a job that stopped once more; its process finds what was released, and goes on from there."""
        with self._turn:
            self._check_room()
            if not self.store.requeue(job.id):
                raise Refused(409, "not stopped", "this job waits, runs or is done; there is nothing to finish")
            self._asked.pop(job.id, None)
            self.tick()
            return self.store.get(job.id) or job

    def _check_room(self) -> None:
        if len(self.store.all(JobState.QUEUED)) >= MOST_QUEUED:
            raise Refused(503, "too many jobs", f"{MOST_QUEUED} jobs wait already; cancel some, or wait")

    def cancel(self, job: Job) -> Job:
        """Stop a job: one that waits at once, one that runs before its next charge."""
        with self._turn:
            if not self.store.cancel_queued(job.id):
                if not self.store.ask_to_cancel(job.id):
                    raise Refused(409, "over", "this job has ended already; there is nothing to cancel")
                self._stop(job.id)
            return self.store.get(job.id) or job

    def tick(self) -> None:
        """Look after all jobs: bury the dead, hurry the cancelled, start those that wait."""
        with self._turn:
            for job_id, child in list(self._children.items()):
                if child.poll() is not None:
                    del self._children[job_id]
            running = 0
            for job in self.store.all(JobState.RUNNING):
                if self.is_alive(job.id):
                    running += 1
                    if job.cancelling:
                        self._stop(job.id)
                else:
                    self._finish_dead(job.id)
            for job in self.store.all(JobState.QUEUED)[: max(0, self._most - running)]:
                self._start(job)

    def is_alive(self, job: str) -> bool:
        """Say whether a job's process lives."""
        return is_held(self.folder.results(job) / "alive")

    def _start(self, job: Job) -> None:
        if job.order.ledger != self.shown:
            self.store.end(job.id, JobState.FAILED, OTHER_LEDGER)
            return
        place = self.folder.results(job.id)
        place.mkdir(mode=0o700, exist_ok=True)
        lock = take_lock(place / "alive")
        if lock is None:
            return
        try:
            if not self.store.start(job.id):
                return
            # the child inherits the lock, so there is no moment in which the job runs and nobody holds it
            self._children[job.id] = subprocess.Popen(
                # -P: nothing is imported from wherever the server was started
                [sys.executable, "-P", "-m", "dagveil.studio.worker", str(self.folder.root), job.id],
                env={**os.environ, LEDGER_VARIABLE: self._place},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
                start_new_session=True,
            )
            self.store.note_process(job.id, self._children[job.id].pid)
        except OSError as error:
            self.store.end(
                job.id, JobState.FAILED, f"no process could be started ({error.strerror}); nothing was spent"
            )
        finally:
            os.close(lock)

    def _stop(self, job_id: str) -> None:
        """Ask the process to end, and once patience is over make it."""
        job = self.store.get(job_id)
        if job is None or job.pid is None or job.state is not JobState.RUNNING or not self.is_alive(job_id):
            return  # a dead process's number may belong to another by now
        moment = time.monotonic()
        asked = self._asked.setdefault(job_id, moment)
        number = signal.SIGKILL if moment - asked > PATIENCE_SECONDS else signal.SIGTERM
        if number == signal.SIGTERM and asked != moment:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(job.pid, number)  # and whatever it has started: it leads a session of its own
            else:
                os.kill(job.pid, number)

    def _finish_dead(self, job_id: str) -> None:
        """End a job whose process is gone, and give back what it reserved and never touched."""
        job = self.store.get(job_id)  # once more: it may have ended well in the meantime
        if job is None or job.state is not JobState.RUNNING:
            return
        if job.run is not None and job.order.ledger == self.shown:  # numbers of another ledger mean other runs
            try:
                # a run with a charge stays charged, and open if it can be finished; one without is released
                resolve_run(self.books, job.run, self.folder.results(job_id))
            except LedgerError:
                return  # the ledger is away: the next round tries again
        if any((self.folder.results(job_id) / name).exists() for name in FOUND):
            self.store.end(job_id, JobState.DONE)
        elif job.cancelling:
            self.store.end(job_id, JobState.CANCELLED)
        else:
            self.store.end(job_id, JobState.INTERRUPTED, INTERRUPTED)
