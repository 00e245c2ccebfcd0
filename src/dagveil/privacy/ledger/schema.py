"""The ledger's tables, the same for SQLite and PostgreSQL; amounts are exact fractions as text."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table, Text

VERSION: Final = "1"

METADATA: Final = MetaData()

FACTS: Final = Table(
    "dagveil_facts",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

DATASETS: Final = Table(
    "dagveil_datasets",
    METADATA,
    Column("name", String, primary_key=True),
    Column("epsilon", Text),
    Column("delta", Text),
)

RUNS: Final = Table(
    "dagveil_runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("dataset", String, ForeignKey(DATASETS.c.name), nullable=False, index=True),
    Column("epsilon", Text, nullable=False),
    Column("delta", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("software", Text, nullable=False),
    Column("state", String, nullable=False),
    Column("started", String, nullable=False),
    Column("ended", String),
    sqlite_autoincrement=True,
)

EVENTS: Final = Table(
    "dagveil_events",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", Integer, ForeignKey(RUNS.c.id), nullable=False, index=True),
    Column("kind", String, nullable=False),
    Column("content", Text, nullable=False),
    Column("recorded", String, nullable=False),
    sqlite_autoincrement=True,
)
