"""The ledger's tables, the same for SQLite and PostgreSQL: a version, and entries that are only ever added."""

from __future__ import annotations

import functools
import uuid
from typing import Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    inspect,
    select,
    text,
)

from dagveil.errors import LedgerError
from dagveil.privacy.ledger.engine import POSTGRES_SCHEMA, LedgerEngine
from dagveil.privacy.ledger.entries import Entry, EntryKind, follow

VERSION: Final = "3"
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
    schema = POSTGRES_SCHEMA if connection.dialect.name == "postgresql" else None
    if not inspect(connection).has_table(FACTS.name, schema=schema):
        return None
    found = connection.scalar(select(FACTS.c.value).where(FACTS.c.name == "version"))
    return None if found is None else str(found)


def create_tables(connection: Connection) -> None:
    """Make the tables; in SQLite with triggers that keep the history append-only, in PostgreSQL see roles.py."""
    METADATA.create_all(connection)
    if connection.dialect.name == "sqlite":
        for name in ("update", "delete"):
            connection.exec_driver_sql(_APPEND_ONLY.format(name=name))


def begin_history(analyst: str) -> Entry:
    """Make the first entry; its random name keeps the digests of two ledgers apart."""
    return follow(None, EntryKind.BEGUN, "", None, analyst, msgspec.json.encode({"ledger": uuid.uuid4().hex}).decode())


def write_entry(connection: Connection, entry: Entry) -> None:
    """Add an entry that is already made; LedgerError if the database did not take it."""
    fields = msgspec.structs.asdict(entry) | {"kind": entry.kind.value}
    if connection.execute(ENTRIES.insert().values(**fields)).rowcount == 0:
        raise LedgerError(
            "the ledger did not take an entry: something in its file keeps entries out. Nothing was drawn."
        )


def find_alteration(connection: Connection) -> str | None:
    """Say what in an SQLite file is not as this program makes it: a trigger, a table, a type; None if all is."""
    if connection.dialect.name != "sqlite":
        return None
    listing = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = {str(row.name): str(row.sql) for row in connection.execute(listing)}
    for name in sorted(found.keys() | _as_made().keys()):
        if found.get(name) != _as_made().get(name):
            what = "is missing" if name not in found else "was added" if name not in _as_made() else "was changed"
            return f"{name!r} in the ledger's file {what}"
    return None


def find_odd_types(connection: Connection) -> str | None:
    """Say which entry of an SQLite file has a field of another type than this program writes."""
    if connection.dialect.name != "sqlite":
        return None
    texts = " OR ".join(f"typeof({column.name}) <> 'text'" for column in ENTRIES.c if column.name not in ("seq", "run"))
    odd = connection.scalar(
        text(
            "SELECT min(seq) FROM dagveil_entries WHERE typeof(seq) <> 'integer' OR typeof(run) NOT IN "
            f"('integer', 'null') OR {texts}"
        )
    )
    return None if odd is None else f"entry {odd} has a field of another type than this program writes"


@functools.cache
def _as_made() -> dict[str, str]:
    """Return what a new SQLite ledger holds."""
    with create_engine("sqlite://").connect() as connection:
        create_tables(connection)
        listing = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        return {str(row.name): str(row.sql) for row in listing}


def refuse_version(engine: LedgerEngine, found: str) -> LedgerError:
    """Error for a ledger of another version."""
    return LedgerError(
        f"the ledger {engine.place} has version {found}, this program reads version {VERSION}; use the program that "
        "wrote it."
    )
