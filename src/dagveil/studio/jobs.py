"""Jobs in one SQLite file, so that they outlive the server: what was asked, how far it is, and how it ended."""

from __future__ import annotations

import enum
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from dagveil.errors import DataError
from dagveil.privacy.ledger.account import RunRecord
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.result import now
from dagveil.search.settings import SearchSettings

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
    cancelling: bool = field(default=False)


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
        found = self._select("WHERE id = ?", (job,))
        return found[0] if found else None

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
        return [_read(row) for row in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # one connection for each step: threads and processes share nothing but the file
        connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


def _read(row: tuple[Any, ...]) -> Job:
    values = dict(zip((entry.name for entry in fields(Job)), row, strict=True))
    values["state"] = JobState(values["state"])
    values["order"] = msgspec.json.decode(values["order"], type=JobOrder)
    values["cancelling"] = bool(values["cancelling"])
    return Job(**values)


START: Final = "start"  # stands for a method: the exploration that plain answers lead to
RECOVERY: Final = "recovery.jsonl"  # keeps what a run released until it is saved, as at the command line
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
