"""The store of a study: one SQLite file, to which every finished run is added at once.

Each run is one transaction, so a killed study loses at most the runs that were under way. Rows are only ever added: a
run that is tried again gets a new attempt, and the latest counts. Parquet cannot be appended to.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from dagveil.errors import DataError
from dagveil_bench.studies.jobs import Job
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Study
from dagveil_bench.studies.trial import Outcome

FORMAT = 1  # version of the layout; a newer one is refused
APPLICATION = 0x64764C73  # marks the file as one of ours
WAIT_SECONDS = 60.0  # how long to wait for another process that writes
# columns that say what was run; the metrics follow
FACTS = (
    ("key", "TEXT NOT NULL"),
    ("attempt", "INTEGER NOT NULL"),
    ("data", "TEXT NOT NULL"),
    ("source", "TEXT NOT NULL"),
    ("n_rows", "INTEGER NOT NULL"),
    ("label", "TEXT NOT NULL"),
    ("role", "TEXT NOT NULL"),
    ("method", "TEXT NOT NULL"),
    ("calibration", "TEXT NOT NULL"),
    ("settings", "TEXT NOT NULL"),
    ("epsilon", "REAL NOT NULL"),
    ("delta", "REAL NOT NULL"),
    ("repetition", "INTEGER NOT NULL"),
    ("sample_seed", "INTEGER NOT NULL"),
    ("noise_seed", "INTEGER NOT NULL"),
    ("session", "INTEGER NOT NULL REFERENCES sessions (id)"),
    ("finished", "TEXT NOT NULL"),
    ("error", "TEXT"),
)
COLUMNS = (*(name for name, _ in FACTS), *(metric.column for metric in Metric))

_LAYOUT = (
    "CREATE TABLE studies (id INTEGER PRIMARY KEY, created TEXT NOT NULL, name TEXT NOT NULL, plan TEXT NOT NULL)",
    "CREATE TABLE sessions (id INTEGER PRIMARY KEY, started TEXT NOT NULL, workers INTEGER NOT NULL, "
    "software TEXT NOT NULL, hardware TEXT NOT NULL)",
    "CREATE TABLE runs ("
    + ", ".join(f"{name} {kind}" for name, kind in FACTS)
    + "".join(f", {metric.column} REAL" for metric in Metric)
    + ", PRIMARY KEY (key, attempt))",
)

_INSERT = f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the runner: when, with how many processes, versions and hardware."""

    started: str
    workers: int
    software: dict[str, str]
    hardware: dict[str, str]


class Store:
    """All runs of a study."""

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self._path = Path(path)
        if not create and not self._path.exists():
            raise DataError(f"there is no store {path}; make one with `dagveil bench run STUDY --store {path}`")
        try:
            if create:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._path, timeout=WAIT_SECONDS, isolation_level=None)
            self._open(create)
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"cannot open {path} as the store of a study: {error}; choose another file") from error

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise DataError(
                f"{self._path} cannot be used: {error}. If the file is damaged, "
                f"`sqlite3 {self._path} .recover | sqlite3 rescued.sqlite` may rescue its runs; or choose another file"
            ) from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def put_study(self, study: Study) -> None:
        """Keep the plan, if it is not the latest one already; a store belongs to one study."""
        plan = study.to_json()
        with self._change() as connection:
            latest = connection.execute("SELECT name, plan FROM studies ORDER BY id DESC LIMIT 1").fetchone()
            if latest is not None and latest[0] != study.name:
                raise DataError(
                    f"{self._path} holds the study {latest[0]!r}, not {study.name!r}; choose another file with --store"
                )
            if latest is None or latest[1] != plan:
                fresh = (_now(), study.name, plan)
                connection.execute("INSERT INTO studies (created, name, plan) VALUES (?, ?, ?)", fresh)

    def study(self) -> Study:
        """Return the latest plan."""
        latest = self._connection.execute("SELECT plan FROM studies ORDER BY id DESC LIMIT 1").fetchone()
        if latest is None:
            raise DataError(f"{self._path} holds no study yet; run one into it with `dagveil bench run`")
        try:
            return msgspec.json.decode(latest[0], type=Study)
        except msgspec.DecodeError as error:
            raise DataError(f"the plan in {self._path} cannot be read: {error}; run the study again with it") from error

    def begin_session(self, workers: int, software: dict[str, str], hardware: dict[str, str]) -> int:
        """Note who runs now."""
        with self._change() as connection:
            return _insert_session(connection, Session(_now(), workers, software, hardware))

    def sessions(self) -> list[Session]:
        """Return all calls of the runner, oldest first."""
        rows = self._connection.execute("SELECT started, workers, software, hardware FROM sessions ORDER BY id")
        return [Session(row[0], row[1], json.loads(row[2]), json.loads(row[3])) for row in rows]

    def add(self, job: Job, outcome: Outcome, session: int) -> bool:
        """Keep a finished run, durably; if another process was faster its outcome stays, and this one is not kept."""
        with self._change() as connection:
            latest = connection.execute(
                "SELECT attempt, error FROM runs WHERE key = ? ORDER BY attempt DESC LIMIT 1", (job.key,)
            ).fetchone()
            if latest is not None and latest[1] is None:
                return False
            attempt = 1 if latest is None else latest[0] + 1
            settings = json.dumps(job.settings, sort_keys=True)
            facts: tuple[Any, ...] = (  # in the order of FACTS
                *(job.key, attempt, job.data, job.source, job.n_rows, job.label, job.role.value, job.method),
                *(job.calibration.value, settings, job.epsilon, job.delta, job.repetition, job.sample_seed),
                *(job.noise_seed, session, _now(), outcome.error),
            )
            numbers = [None if math.isnan(outcome.of(metric)) else outcome.of(metric) for metric in Metric]
            connection.execute(_INSERT, (*facts, *numbers))
            return True

    def absorb(self, sessions: Sequence[Session], rows: Iterable[tuple[Any, ...]]) -> int:
        """Take over runs of another store, as `rows` yields them, with their sessions; return how many.

        Runs that are here already stay as they are. Sessions are copied if one of their runs is.
        """
        key, session = COLUMNS.index("key"), COLUMNS.index("session")
        numbers: dict[int, int] = {}
        taken = []
        with self._change() as connection:
            known = {row[0] for row in connection.execute("SELECT key FROM runs")}
            for row in rows:
                if row[key] in known:
                    continue
                theirs = row[session]
                if theirs not in numbers:
                    numbers[theirs] = _insert_session(connection, sessions[theirs - 1])
                taken.append((*row[:session], numbers[theirs], *row[session + 1 :]))
            connection.executemany(_INSERT, taken)
        return len(taken)

    def outcomes(self) -> dict[str, Outcome]:
        """Return the latest outcome of every run, by key."""
        names = ", ".join(self._select(metric.column) for metric in Metric)
        found = {}
        for key, error, *values in self._connection.execute(f"SELECT key, error, {names} FROM runs ORDER BY attempt"):
            numbers = {m.column: float(value) for m, value in zip(Metric, values, strict=True) if value is not None}
            found[key] = Outcome(numbers, error)
        return found

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield all runs as they are stored, oldest first; COLUMNS names their parts."""
        names = ", ".join(self._select(name) for name in COLUMNS)
        yield from self._connection.execute(f"SELECT {names} FROM runs ORDER BY rowid")

    def pending(self, jobs: Iterable[Job], *, retry: bool = False) -> list[Job]:
        """Return the jobs without an outcome; with `retry` also those that failed."""
        known = {key for key, outcome in self.outcomes().items() if outcome.error is None or not retry}
        return [job for job in jobs if job.key not in known]

    def _open(self, create: bool) -> None:
        if create:
            with self._change() as connection:
                if not self._count_tables():
                    for statement in _LAYOUT:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
        (mark,) = self._connection.execute("PRAGMA application_id").fetchone()
        (layout,) = self._connection.execute("PRAGMA user_version").fetchone()
        if mark != APPLICATION:
            what = "a database of something else" if self._count_tables() else "empty"
            raise DataError(f"{self._path} is {what}; choose the file of a study")
        if layout != FORMAT:
            raise DataError(
                f"{self._path} has layout {layout}, this program reads {FORMAT}; use the dagveil that wrote it"
            )
        self._present = {row[1] for row in self._connection.execute("PRAGMA table_info(runs)")}
        if create and not self._present.issuperset(COLUMNS):
            self._add_metrics()

    def _add_metrics(self) -> None:
        """Add columns of metrics that did not exist when the file was made; its runs have none of them."""
        with self._change() as connection:
            present = {row[1] for row in connection.execute("PRAGMA table_info(runs)")}
            for metric in Metric:
                if metric.column not in present:
                    connection.execute(f"ALTER TABLE runs ADD COLUMN {metric.column} REAL")
        self._present.update(COLUMNS)

    def _select(self, name: str) -> str:
        """Return a column, or nothing under its name where an older file has none and may only be read."""
        return name if name in self._present else f"NULL AS {name}"

    def _count_tables(self) -> int:
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return int(tables)

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for one transaction, which happens wholly or not at all."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _insert_session(connection: sqlite3.Connection, session: Session) -> int:
    cursor = connection.execute(
        "INSERT INTO sessions (started, workers, software, hardware) VALUES (?, ?, ?, ?)",
        (session.started, session.workers, json.dumps(session.software), json.dumps(session.hardware)),
    )
    return int(cursor.lastrowid or 0)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
