"""Tables of SQLite and PostgreSQL, read in place."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagveil.benchmarks.postgres_server import start_server
from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.databases import SqliteTable
from dagveil.data.engine import DatabaseTable, choose_engine
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streamed import StreamedTable
from dagveil.errors import DataError, LedgerError

SCHEMA = Schema(
    dataset="claims",
    columns={
        "Word": Categorical(("a", "A", "1", "x\ny"), missing="own-level"),
        "flag": Boolean(missing="own-level"),
        "size": Numeric(bounds=(-1, 5), bins=3, missing="own-level"),
    },
)
LEVELS = Schema(dataset="claims", columns={name: SCHEMA.columns[name] for name in ("Word", "flag")})
ROWS = [
    ("a", True, 1.5),
    ("A", False, None),
    (None, None, 99.0),
    ("", True, -7.0),
    ('q"uo,te', True, 0.1),
    ("x\ny", False, 3.0),
    ("1", True, float("inf")),
    ("a", True, 1.5),
]


def check_equal(source: DatabaseTable, rows: list[tuple[object, ...]], schema: Schema = SCHEMA) -> StreamedTable:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(SCHEMA.columns)}
    wanted = MemoryTable.from_source({name: columns[name] for name in schema.columns}, schema)
    table = choose_engine(source).open(schema)
    assert isinstance(table, StreamedTable)
    names = list(schema.columns)
    for found in (table, choose_engine(source, "memory").open(schema)):
        assert found.counts(names).tolist() == wanted.counts(names).tolist()
        assert found.levelled_rows(names, 12).tolist() == wanted.levelled_rows(names, 12).tolist()
        if "size" in names:
            assert (
                found.histogram("size", [0.0, 1.0, 2.0]).tolist() == wanted.histogram("size", [0.0, 1.0, 2.0]).tolist()
            )
    return table


def test_sqlite_equals_memory_cell_by_cell(tmp_path: Path) -> None:
    odd = [*ROWS, (1, 1, "1.5"), (1.0, "yes", b"3"), (b"a", 0, "text"), ("A", "F", 2)]
    path = tmp_path / "claims.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "old claims" ("Word" COLLATE NOCASE, other, flag, size)')
        connection.executemany('INSERT INTO "old claims" VALUES (?, 7, ?, ?)', odd)
    before = path.read_bytes()
    check_equal(DatabaseTable(str(path), "old claims"), odd)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["claims.db"]


def test_a_text_of_sqlite_that_is_no_utf8_is_an_outside_value(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE t ("Word" TEXT)')
        connection.execute("INSERT INTO t VALUES (CAST(x'fffe' AS TEXT)), ('a')")
    schema = Schema(dataset="d", columns={"Word": Categorical(("a", "b"))})
    assert choose_engine(DatabaseTable(str(path), "t")).open(schema).counts(["Word"]).tolist() == [1, 0, 1]


def test_sqlite_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(DataError, match="no table 'u'"):
        choose_engine(DatabaseTable(str(path), "u")).open(SCHEMA)
    with pytest.raises(DataError, match="lacks 3 columns"):
        choose_engine(DatabaseTable(str(path), "t")).open(SCHEMA)
    with pytest.raises(DataError, match="no database"):
        SqliteTable(tmp_path / "gone.db", "t", ["a"])
    with pytest.raises(DataError, match="no database"):
        choose_engine(DatabaseTable(str(tmp_path / "gone.db"), "t")).open(SCHEMA)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        place = start_server()
        url = place.__enter__()
    except LedgerError as reason:
        if os.environ.get("CI"):
            pytest.fail(f"CI must test PostgreSQL, but {reason}")
        pytest.skip(str(reason))
    try:
        yield url
    finally:
        place.__exit__(None, None, None)


@pytest.mark.postgres
def test_postgres_equals_memory(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server) as connection:
        connection.execute(
            'CREATE SCHEMA old; CREATE TABLE old.claims ("Word" text, other int, flag bool, size float8)'
        )
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO old.claims VALUES (%s, 7, %s, %s)", ROWS)
    source = DatabaseTable(server, "old.claims")
    check_equal(source, list(ROWS))
    # without numbers the server groups the rows
    table = check_equal(source, list(ROWS), LEVELS)
    with psycopg.connect(server) as connection:
        connection.execute("INSERT INTO old.claims VALUES ('a', 7, true, 1)")
    # what was opened before does not see it
    assert table.n_rows == len(ROWS)
    assert table.levelled_rows(["flag"], 9)[:8].tolist() == table.levelled_rows(["flag"], 8).tolist()
    assert choose_engine(source).open(LEVELS).n_rows == len(ROWS) + 1
    with pytest.raises(DataError, match="no table 'gone'"):
        choose_engine(DatabaseTable(server, "gone")).open(SCHEMA)


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg")
    source = DatabaseTable("postgresql://ann:secret@127.0.0.1:1/none", "t")
    with pytest.raises(DataError, match="does not answer") as caught:
        choose_engine(source).open(SCHEMA)
    assert "secret" not in str(caught.value)
