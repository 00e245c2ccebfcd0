"""Ledgers of version 1, which had no chain: their runs become entries, and their tables step aside.

The old tables are renamed, so that an older program that still has the ledger open fails at its next record, before it
draws noise.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, Text, select

from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Unbounded
from dagveil.privacy.ledger.account import RunState
from dagveil.privacy.ledger.entries import Entry, EntryKind, budget_body, follow, reservation_body
from dagveil.privacy.ledger.schema import FACTS, VERSION, begin_history, create_tables, write_entry

OLD_VERSION: Final = "1"

_OLD: Final = MetaData()
_DATASETS: Final = Table(
    "dagveil_datasets", _OLD, Column("name", String), Column("epsilon", Text), Column("delta", Text)
)
_RUNS: Final = Table(
    "dagveil_runs",
    _OLD,
    Column("id", Integer),
    Column("dataset", String),
    Column("epsilon", Text),
    Column("delta", Text),
    Column("method", Text),
    Column("software", Text),
    Column("state", String),
    Column("started", String),
    Column("ended", String),
)
_EVENTS: Final = Table(
    "dagveil_events",
    _OLD,
    Column("id", Integer),
    Column("run", Integer),
    Column("kind", String),
    Column("content", Text),
    Column("recorded", String),
)


def migrate(connection: Connection, analyst: str) -> None:
    """Turn a ledger of version 1 into one of this version, in one transaction."""
    create_tables(connection)
    last = begin_history(analyst, OLD_VERSION)
    write_entry(connection, last)
    for entry in _old_entries(connection, last):
        write_entry(connection, entry)
    for table in (_EVENTS, _RUNS, _DATASETS):
        connection.exec_driver_sql(f"ALTER TABLE {table.name} RENAME TO {table.name.replace('_', '_v1_')}")
    connection.execute(FACTS.update().where(FACTS.c.name == "version").values(value=VERSION))


def _old_entries(connection: Connection, last: Entry) -> list[Entry]:
    """Write budgets first, then run by run: so every sum stays within the last budget, which is the one we know."""
    entries = [last]

    def add(kind: EntryKind, dataset: str, run: int | None, body: str, recorded: str | None) -> None:
        entries.append(follow(entries[-1], kind, dataset, run, "", body, recorded))

    for row in connection.execute(select(_DATASETS).order_by(_DATASETS.c.name)):
        if row.epsilon is not None:
            add(EntryKind.BUDGET, row.name, None, budget_body(Budget.of(row.epsilon, row.delta)), None)
    charges: dict[int, list[tuple[str, str, str]]] = {}
    for row in connection.execute(select(_EVENTS).order_by(_EVENTS.c.id)):
        charges.setdefault(row.run, []).append((row.kind, row.content, row.recorded))
    for row in connection.execute(select(_RUNS).order_by(_RUNS.c.id)):
        body = reservation_body(Budget.of(row.epsilon, row.delta), row.method, row.software)
        add(EntryKind.RESERVE, row.dataset, row.id, body, row.started)
        for kind, content, recorded in charges.get(row.id, []):
            unbounded = kind == Unbounded.__struct_config__.tag
            add(EntryKind.UNBOUNDED if unbounded else EntryKind.CHARGE, row.dataset, row.id, content, recorded)
        if row.state != RunState.OPEN.value:
            add(EntryKind.CLOSE if row.id in charges else EntryKind.RELEASE, row.dataset, row.id, "{}", row.ended)
    return entries[1:]
