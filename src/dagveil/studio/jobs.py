"""Jobs in one SQLite file, so that they outlive the server, and who starts, watches and stops their processes.

A process goes on when the server stops. The server finds it again by the lock that it holds on a file, and finds what
it wrote by the job's id. The system lets go of the lock when the process dies, however it dies; unlike a process
number it is never taken for that of another process. A job whose process died is shown as interrupted, with what it
had charged; it is never run again by itself. Somebody may ask to finish one that was charged: it then goes on from its
recovery file.
"""

import contextlib
import enum
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from dagveil.errors import DataError, LedgerError
from dagveil.local.collector import Refused
from dagveil.privacy.ledger.account import RunRecord
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.result import now
from dagveil.runs.run import LEDGER_VARIABLE
from dagveil.search.settings import SearchSettings
from dagveil.studio.folder import Folder

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

STORE_FORMAT: Final = 1
WAIT_SECONDS: Final = 20.0

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, orders TEXT NOT NULL,
    created TEXT NOT NULL, started TEXT, ended TEXT, run INTEGER, stage TEXT NOT NULL DEFAULT '',
    done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL DEFAULT '',
    pid INTEGER, cancelling INTEGER NOT NULL DEFAULT 0
)
"""
_COLUMNS: Final = "id, state, orders, created, started, ended, run, stage, done, total, message, pid, cancelling"


class JobState(enum.Enum):
    """Where a job stands."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


# states of jobs that have ended without being done
STOPPED: Final = (JobState.FAILED, JobState.CANCELLED, JobState.INTERRUPTED)


class JobKind(enum.Enum):
    """What a job does."""

    RUN = "run"  # reads rows, and spends
    SEARCH = "search"  # searches evidence that was released before; free
    EXPLORATION = "exploration"  # tries methods on synthetic tables of the same schema; free, and reads no row


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as it was when it was asked.

    `table` is the id of the data set in the folder and `dataset` its name in the ledger. `schema_digest` holds the run
    to the schema that was seen. `ledger` is the ledger's place without a password. `evidence` is the job whose evidence
    is searched, by `settings` and with the TOML of `knowledge`, and `epsilons` are the budgets that are explored.
    """

    table: str
    file: str
    dataset: str
    schema_digest: str
    method: str
    epsilon: str
    delta: str
    redraws: int
    noise: str
    ledger: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    kind: JobKind = JobKind.RUN
    evidence: str | None = None
    epsilons: tuple[str, ...] = ()
    settings: SearchSettings | None = None
    knowledge: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job."""

    id: str
    state: JobState
    order: JobOrder
    created: str
    started: str | None = None
    ended: str | None = None
    run: int | None = None  # number of the run in the ledger, once it is reserved
    stage: str = ""
    done: int = 0
    total: int = 0
    message: str = ""
    pid: int | None = None
    cancelling: bool = False


class JobStore:
    """The jobs of one folder; every change is one transaction, and only lawful changes happen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.touch(mode=0o600)
            path.chmod(0o600)
            with self._open() as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, STORE_FORMAT):
                    raise DataError(f"{path} was written by another version of dagveil; choose another folder")
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version={STORE_FORMAT}")
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"{path} cannot be used for jobs ({error}); choose another folder") from None

    def add(self, order: JobOrder) -> Job:
        """Queue a job."""
        job = Job(secrets.token_hex(8), JobState.QUEUED, order, now())
        with self._open() as connection:
            connection.execute(
                "INSERT INTO jobs (id, state, orders, created) VALUES (?, ?, ?, ?)",
                (job.id, job.state.value, msgspec.json.encode(order).decode(), job.created),
            )
        return job

    def get(self, job: str) -> Job | None:
        """Return a job, or None."""
        return next(iter(self._select("WHERE id = ?", (job,))), None)

    def all(self, *states: JobState) -> list[Job]:
        """Return the jobs in these states, or all; oldest first."""
        if not states:
            return self._select("ORDER BY number")
        marks = ", ".join("?" * len(states))
        return self._select(f"WHERE state IN ({marks}) ORDER BY number", tuple(state.value for state in states))

    def start(self, job: str) -> bool:
        """Take a queued job; false if somebody else has, or if it was cancelled."""
        return self._change(
            "state = ?, started = ? WHERE id = ? AND state = ?",
            (JobState.RUNNING.value, now(), job, JobState.QUEUED.value),
        )

    def end(self, job: str, state: JobState, message: str = "") -> bool:
        """End a job that has not ended."""
        return self._change(
            "state = ?, ended = ?, message = ?, pid = NULL WHERE id = ? AND state IN (?, ?)",
            (state.value, now(), message, job, JobState.QUEUED.value, JobState.RUNNING.value),
        )

    def requeue(self, job: str) -> bool:
        """Queue a job that has stopped once more."""
        return self._change(
            "state = ?, ended = NULL, message = '', stage = '', done = 0, total = 0, cancelling = 0 "
            "WHERE id = ? AND state IN (?, ?, ?)",
            (JobState.QUEUED.value, job, *(state.value for state in STOPPED)),
        )

    def cancel_queued(self, job: str) -> bool:
        """Cancel a job that has not begun."""
        return self._change(
            "state = ?, ended = ?, cancelling = 1 WHERE id = ? AND state = ?",
            (JobState.CANCELLED.value, now(), job, JobState.QUEUED.value),
        )

    def ask_to_cancel(self, job: str) -> bool:
        """Note that a running job is to stop."""
        return self._change("cancelling = 1 WHERE id = ? AND state = ?", (job, JobState.RUNNING.value))

    def note_process(self, job: str, pid: int) -> None:
        """Note which process runs a job."""
        self._change("pid = ? WHERE id = ?", (pid, job))

    def note_run(self, job: str, run: int) -> None:
        """Note the number of the run in the ledger."""
        self._change("run = ? WHERE id = ?", (run, job))

    def note_progress(self, job: str, stage: str, done: int, total: int) -> None:
        """Note how far a job is."""
        self._change("stage = ?, done = ?, total = ? WHERE id = ?", (stage, done, total, job))

    def _change(self, what: str, values: tuple[Any, ...]) -> bool:
        with self._open() as connection:
            return connection.execute(f"UPDATE jobs SET {what}", values).rowcount == 1

    def _select(self, where: str, values: tuple[Any, ...] = ()) -> list[Job]:
        with self._open() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values).fetchall()
        return [_read(dict(zip((entry.name for entry in fields(Job)), row, strict=True))) for row in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # one connection for each step: threads and processes share nothing but the file
        connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def _read(values: dict[str, Any]) -> Job:
    order = msgspec.json.decode(values["order"], type=JobOrder)
    typed = {"state": JobState(values["state"]), "order": order, "cancelling": bool(values["cancelling"])}
    return Job(**values | typed)


START: Final = "start"  # stands for a method: the exploration that plain answers lead to
RECOVERY: Final = "recovery.jsonl"  # keeps what a run released until it is saved, as at the command line
FOUND: Final = ("result.json", "exploration.json")  # what a job leaves when it is done
# what a run saves; once one of them is there, nothing is left to recover
PAID: Final = ("evidence.json", "result.json")


def is_kept(place: Path, run: RunRecord | None) -> bool:
    """Say whether a run was charged and only its recovery file has what it released."""
    saved = any((place / name).exists() for name in PAID)
    return run is not None and bool(run.events) and not saved and (place / RECOVERY).exists()


def resolve_run(books: Ledger, number: int, place: Path) -> None:
    """Close a run whose process is at its end, unless it can be finished.

    An untouched run is released. A run whose evidence is saved needs its recovery file no more.
    """
    run = next((one for one in books.history() if one.id == number), None)
    if is_kept(place, run):
        return
    books.close_run(number)
    (place / RECOVERY).unlink(missing_ok=True)


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
    if (handle := take_lock(path)) is not None:
        os.close(handle)
    return handle is None


@contextmanager
def holding(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock, or refuse."""
    if (handle := take_lock(path)) is None:
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
            self._children = {name: child for name, child in self._children.items() if child.poll() is None}
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
            why = f"no process could be started ({error.strerror}); nothing was spent"
            self.store.end(job.id, JobState.FAILED, why)
        finally:
            os.close(lock)

    def _stop(self, job_id: str) -> None:
        """Ask the process to end, and once patience is over make it."""
        job = self.store.get(job_id)
        if job is None or job.pid is None or job.state is not JobState.RUNNING or not self.is_alive(job_id):
            return  # a dead process's number may belong to another by now
        moment = time.monotonic()
        asked = self._asked.setdefault(job_id, moment)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if moment - asked > PATIENCE_SECONDS:
                os.killpg(job.pid, signal.SIGKILL)  # and whatever it has started: it leads a session of its own
            elif asked == moment:
                os.kill(job.pid, signal.SIGTERM)

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
