"""Tables of SQLite and PostgreSQL, read in place."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.engine import DatabaseTable, PostgresTable, SqliteTable, choose_engine
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable
from dagveil.errors import DataError
from dagveil_bench.postgres_server import start_server

SCHEMA = Schema(
    dataset="claims",
    columns={
        "Word": Categorical(("a", "A", "1", "x\ny"), missing="own-level"),
        "flag": Boolean(missing="own-level"),
        "size": Numeric(bounds=(-1, 5), bins=3, missing="own-level"),
    },
)
PLANE = Schema(dataset="plane", columns={name: Numeric(bounds=(-10, 10)) for name in ("x", "y")})
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
            sizes = wanted.magnitude_counts("size", 1.0, range(-1, 3)).tolist()
            assert found.magnitude_counts("size", 1.0, range(-1, 3)).tolist() == sizes
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


def test_an_index_that_sqlite_reads_instead_changes_no_slot(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x, y)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(place / 10, -place / 10) for place in range(100)])
        connection.execute("CREATE INDEX by_y ON t (y)")
    table = choose_engine(DatabaseTable(str(path), "t")).open(PLANE)
    assert table.levelled_rows(["y"], 20)[:, 0].tolist() == table.levelled_rows(["x", "y"], 20)[:, 1].tolist()


def test_sqlite_shows_the_rows_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x, y)")
        connection.executemany("INSERT INTO t VALUES (?, 0)", [(place,) for place in range(9)])
        connection.commit()
        table = choose_engine(DatabaseTable(str(path), "t")).open(PLANE)
        connection.execute("INSERT INTO t VALUES (1, 1)")
        connection.commit()
        assert table.n_rows == 9
        assert table.magnitude_counts("y", 0.0, range(-1, 1)).tolist() == [9, 0]
        assert choose_engine(DatabaseTable(str(path), "t")).open(PLANE).n_rows == 10


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
    with start_server() as url:
        yield url


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


def slots_of(source: DatabaseTable, engine: str, slots: int) -> Counter[tuple[float, ...]]:
    table = choose_engine(source, engine).open(PLANE)
    return Counter(map(tuple, table.levelled_rows(["x", "y"], slots).tolist()))


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ["duckdb", "memory"])
def test_one_record_more_changes_one_slot_though_the_server_starts_elsewhere(server: str, engine: str) -> None:
    """A scan of a table above a quarter of the buffers begins where the last unfinished scan of any session stopped."""
    psycopg = pytest.importorskip("psycopg")
    found = []
    for n_rows in (32768, 32769):
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS wide")
            connection.execute("CREATE TABLE wide (x float8, y float8, filler text)")
            # eight rows to a page, 4096 pages: the last row of the larger table begins a page that is one too many
            connection.execute(
                "INSERT INTO wide SELECT k / 10000.0, CASE WHEN k < 16384 THEN 1 ELSE -1 END * k / 10000.0, "
                f"repeat('f', 950) FROM generate_series(0, {n_rows - 1}) AS k"
            )
            pages = connection.execute("SELECT pg_relation_size('wide') / 8192").fetchone()
            assert pages == (-(-n_rows // 8),)
            connection.execute("SELECT count(x) FROM (SELECT x FROM wide LIMIT 16384) AS few")
        source = DatabaseTable(server, "wide")
        first = next(PostgresTable(server, "wide", ["x"]).batches(["x"]))["x"][0].as_py()
        assert (first == "0") is (n_rows == 32768)
        found.append(slots_of(source, engine, 500))
    assert sum((found[0] - found[1]).values()) <= 1


@pytest.mark.postgres
def test_a_record_stands_in_one_part_though_the_server_reads_in_parallel(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE parallel AS SELECT false AS x, false AS y FROM generate_series(1, 100000)")
        connection.execute("INSERT INTO parallel VALUES (true, true)")
        connection.execute("INSERT INTO parallel SELECT false, false FROM generate_series(1, 100000)")
    settings = ["parallel_setup_cost=0", "parallel_tuple_cost=0", "min_parallel_table_scan_size=0"]
    options = quote(" ".join(f"-c {setting}" for setting in settings))
    rows = PostgresTable(f"{server}?options={options}", "parallel", ["x", "y"])
    plan = rows._connection.execute("EXPLAIN SELECT x::text, y::text FROM parallel").fetchall()
    assert any("Gather" in line for (line,) in plan)
    schema = Schema(dataset="parallel", columns={name: Boolean(outside="false") for name in ("x", "y")})
    rng = np.random.default_rng(0)
    for _ in range(3):
        table = StreamedTable(rows, schema, held_bytes=0)
        parts = table.split(20, lambda n_rows: rng.integers(0, 20, n_rows))
        assert sum(int(part.counts(("x", "y"))[1, 1]) for part in parts) == 1
        assert sum(int(part.counts(("y",))[1]) for part in parts) == 1
        assert sum(part.n_rows for part in parts) == 200001


@pytest.mark.postgres
def test_a_reading_that_stops_early_harms_no_other(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE long AS SELECT k AS x, -k AS y FROM generate_series(1, 2000000) AS k")
    rows = PostgresTable(server, "long", ["x", "y"])
    with psycopg.connect(server) as connection:
        connection.execute("INSERT INTO long VALUES (0, 0)")
    for _ in range(2):
        batches = rows.batches(["x", "y"])
        assert next(batches).num_rows > 0
        with pytest.raises(DataError, match="being read already"):
            next(rows.batches(["x"]))
        batches.close()
    # it stops at the first distinct rows that are too many
    assert rows.distinct(PLANE, 1) is None
    # what is left is the same transaction: the rows of the moment at which the table was opened
    assert sum(batch.num_rows for batch in rows.batches(["x"])) == 2_000_000


@pytest.mark.postgres
def test_a_large_cell_of_postgres_is_an_outside_value(server: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE large (word text)")
        connection.execute("INSERT INTO large VALUES ('a'), (repeat(E'x\"\\n,', 10000000)), ('b'), (NULL), ('')")
    schema = Schema(dataset="large", columns={"word": Categorical(("a", "b"), missing="own-level")})
    for engine in ("duckdb", "memory"):
        table = choose_engine(DatabaseTable(server, "large"), engine).open(schema)
        assert table.counts(["word"]).tolist() == [1, 1, 1, 2]


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg")
    source = DatabaseTable("postgresql://ann:secret@127.0.0.1:1/none", "t")
    with pytest.raises(DataError, match="does not answer") as caught:
        choose_engine(source).open(SCHEMA)
    assert "secret" not in str(caught.value)
