"""The ledger's tables, the same for SQLite and PostgreSQL: a version, and entries that are only ever added."""

from __future__ import annotations

import uuid
from typing import Final

import msgspec
from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, String, Table, Text, inspect, select

from dagveil.errors import LedgerError
from dagveil.privacy.ledger.engine import LedgerEngine
from dagveil.privacy.ledger.entries import Entry, EntryKind, follow

VERSION: Final = "2"

METADATA: Final = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

FACTS: Final = Table(
    "dagveil_facts",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

ENTRIES: Final = Table(
    "dagveil_entries",
    METADATA,
    # two programs that both saw the same last entry cannot both add the next one
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("dataset", String, nullable=False),
    Column("run", _NUMBER),
    Column("analyst", String, nullable=False),
    Column("body", Text, nullable=False),
    Column("recorded", String, nullable=False),
    Column("previous", String, nullable=False),
    Column("digest", String, nullable=False),
)
Index("dagveil_entries_by_dataset", ENTRIES.c.dataset, ENTRIES.c.kind)
Index("dagveil_entries_by_run", ENTRIES.c.run)

_APPEND_ONLY: Final = (
    "CREATE TRIGGER dagveil_no_{name} BEFORE {name} ON dagveil_entries "
    "BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END"
)


def read_version(connection: Connection) -> str | None:
    """Return the version of the ledger in a database, or None if there is none yet."""
    if not inspect(connection).has_table(FACTS.name):
        return None
    found = connection.scalar(select(FACTS.c.value).where(FACTS.c.name == "version"))
    return None if found is None else str(found)


def create_tables(connection: Connection) -> None:
    """Make the tables; in SQLite with triggers that keep the history append-only, in PostgreSQL see roles.py."""
    METADATA.create_all(connection)
    if connection.dialect.name == "sqlite":
        for name in ("update", "delete"):
            connection.exec_driver_sql(_APPEND_ONLY.format(name=name))


def begin_history(analyst: str, migrated_from: str | None = None) -> Entry:
    """Make the first entry; its random name keeps the digests of two ledgers apart."""
    facts = {"ledger": uuid.uuid4().hex} | ({} if migrated_from is None else {"migrated_from": migrated_from})
    return follow(None, EntryKind.BEGUN, "", None, analyst, msgspec.json.encode(facts).decode())


def write_entry(connection: Connection, entry: Entry) -> None:
    """Add an entry that is already made."""
    connection.execute(ENTRIES.insert().values(**(msgspec.structs.asdict(entry) | {"kind": entry.kind.value})))


def refuse_version(engine: LedgerEngine, found: str) -> LedgerError:
    """Error for a ledger of a newer program."""
    return LedgerError(
        f"the ledger {engine.place} has version {found}, this program reads version {VERSION}; upgrade dagveil."
    )
