"""The ledger on SQLite or PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, exists, func, select, true
from sqlalchemy.dialects import postgresql, sqlite

from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Event, Unbounded, decode_event, encode_event
from dagveil.privacy.ledger.account import Account, RunCost, RunRecord, RunState, admit, admit_lifetime, tally
from dagveil.privacy.ledger.book import Ledger, LedgerRun, closed_run
from dagveil.privacy.ledger.engine import LedgerEngine, open_engine
from dagveil.privacy.ledger.memory import utc_now
from dagveil.privacy.ledger.schema import DATASETS, EVENTS, FACTS, METADATA, RUNS, VERSION

_SCHEMA_LOCK = 0x64616776  # one key for PostgreSQL's advisory lock, so that two programs do not make tables at once


class SqlLedger(Ledger):
    """The books in a database; made by ``Ledger.open``."""

    def __init__(self, engine: LedgerEngine) -> None:
        self._engine = engine

    @classmethod
    def connect(cls, url_or_path: str | Path, wait_seconds: float) -> SqlLedger:
        """Open the database, make the tables if they are missing, and check their version."""
        engine = open_engine(url_or_path, wait_seconds)
        with engine.writing() as connection:
            if not engine.is_sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
            METADATA.create_all(connection)
            connection.execute(_insert_new(connection, FACTS, name="version", value=VERSION))
            found = connection.scalar(select(FACTS.c.value).where(FACTS.c.name == "version"))
        if found != VERSION:
            raise LedgerError(
                f"the ledger {engine.place} has version {found}, this program reads version {VERSION}; upgrade dagveil."
            )
        return cls(engine)

    def close(self) -> None:
        """Let go of connections."""
        self._engine.engine.dispose()

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the lifetime budget of a data set; it may not fall below what is spent."""
        with self._engine.writing() as connection:
            admit_lifetime(_locked_account(connection, dataset), budget)
            connection.execute(
                DATASETS.update()
                .where(DATASETS.c.name == dataset)
                .values(epsilon=str(budget.epsilon), delta=str(budget.delta))
            )

    def account(self, dataset: str) -> Account:
        """Account of one data set, recomputed from its runs."""
        with self._engine.reading() as connection:
            return _account(connection, dataset)

    def history(self, dataset: str | None = None) -> tuple[RunRecord, ...]:
        """All runs, oldest first, of one data set or of all."""
        wanted = true() if dataset is None else RUNS.c.dataset == dataset
        with self._engine.reading() as connection:
            runs = connection.execute(select(RUNS).where(wanted).order_by(RUNS.c.id)).all()
            rows = connection.execute(
                select(EVENTS.c.run, EVENTS.c.content).join(RUNS).where(wanted).order_by(EVENTS.c.id)
            ).all()
        events = defaultdict(list)
        try:
            for row in rows:
                events[row.run].append(decode_event(row.content))
        except msgspec.MsgspecError as error:
            raise LedgerError(
                f"the ledger {self._engine.place} holds an event that this program cannot read; upgrade dagveil."
            ) from error
        return tuple(
            RunRecord(
                run.id,
                run.dataset,
                _budget(run),
                run.method,
                run.software,
                RunState(run.state),
                run.started,
                run.ended,
                tuple(events[run.id]),
            )
            for run in runs
        )

    def datasets(self) -> tuple[str, ...]:
        """Names of all data sets, sorted."""
        with self._engine.reading() as connection:
            return tuple(sorted(connection.scalars(select(DATASETS.c.name))))

    def reserve(self, dataset: str, budget: Budget, method: str, software: str) -> LedgerRun:
        """Reserve a run's whole budget in one atomic step, or raise BudgetExceededError."""
        with self._engine.writing() as connection:
            admit(_locked_account(connection, dataset), budget)
            row = connection.execute(
                RUNS.insert()
                .values(
                    dataset=dataset,
                    epsilon=str(budget.epsilon),
                    delta=str(budget.delta),
                    method=method,
                    software=software,
                    state=RunState.OPEN.value,
                    started=utc_now(),
                )
                .returning(RUNS.c.id)
            )
            run_id = int(row.scalar_one())
        return LedgerRun(self, run_id, dataset, budget)

    def abandon_untouched(self, dataset: str | None = None) -> int:
        """Release open runs that have no event, and return their number."""
        wanted = true() if dataset is None else RUNS.c.dataset == dataset
        with self._engine.writing() as connection:
            open_runs = connection.scalars(
                select(RUNS.c.id)
                .where(wanted, RUNS.c.state == RunState.OPEN.value)
                .order_by(RUNS.c.id)
                .with_for_update()
            ).all()
            # a second statement, so that events committed while we waited for the row locks are seen
            touched = set(connection.scalars(select(EVENTS.c.run).where(EVENTS.c.run.in_(open_runs))))
            stale = [run_id for run_id in open_runs if run_id not in touched]
            _end(connection, stale, RunState.RELEASED)
        return len(stale)

    def record_event(self, run_id: int, event: Event) -> None:
        """Write an event of an open run durably; LedgerError if the run is not open."""
        content = encode_event(event).decode()
        with self._engine.writing() as connection:
            if _locked_state(connection, run_id) is not RunState.OPEN:
                raise closed_run(run_id)
            kind = type(event).__struct_config__.tag
            connection.execute(EVENTS.insert().values(run=run_id, kind=kind, content=content, recorded=utc_now()))

    def close_run(self, run_id: int) -> None:
        """Close an open run; an untouched one is released."""
        with self._engine.writing() as connection:
            if _locked_state(connection, run_id) is RunState.OPEN:
                touched = connection.scalar(select(exists().where(EVENTS.c.run == run_id)))
                _end(connection, [run_id], RunState.CLOSED if touched else RunState.RELEASED)


def _locked_account(connection: Connection, dataset: str) -> Account:
    """Account of a data set whose row is locked until the transaction ends; the row is made if it is missing."""
    connection.execute(_insert_new(connection, DATASETS, name=dataset))
    connection.execute(select(DATASETS.c.name).where(DATASETS.c.name == dataset).with_for_update())
    return _account(connection, dataset)


def _locked_state(connection: Connection, run_id: int) -> RunState | None:
    """State of a run whose row is locked until the transaction ends."""
    state = connection.scalar(select(RUNS.c.state).where(RUNS.c.id == run_id).with_for_update())
    return None if state is None else RunState(state)


def _account(connection: Connection, dataset: str) -> Account:
    lifetime = connection.execute(select(DATASETS).where(DATASETS.c.name == dataset)).one_or_none()
    rows = connection.execute(
        select(
            RUNS.c.epsilon,
            RUNS.c.delta,
            RUNS.c.state,
            _has_event().label("touched"),
            _has_event(EVENTS.c.kind == Unbounded.__struct_config__.tag).label("unbounded"),
        ).where(RUNS.c.dataset == dataset)
    )
    runs = [RunCost(_budget(row), RunState(row.state), bool(row.touched), bool(row.unbounded)) for row in rows]
    budget = None if lifetime is None or lifetime.epsilon is None else _budget(lifetime)
    return tally(dataset, budget, runs)


def _has_event(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().where(EVENTS.c.run == RUNS.c.id, *conditions)


def _budget(row: Any) -> Budget:
    return Budget(Fraction(row.epsilon), Fraction(row.delta))


def _end(connection: Connection, run_ids: Sequence[int], state: RunState) -> None:
    connection.execute(RUNS.update().where(RUNS.c.id.in_(run_ids)).values(state=state.value, ended=utc_now()))


def _insert_new(connection: Connection, table: Any, **values: str) -> Any:
    """Insert a row unless its key exists."""
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(table).values(**values).on_conflict_do_nothing()
