"""DuckDB groups rows, and nobody can tell from the answers."""

from __future__ import annotations

import datetime
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from engine_contract import EngineContract, list_answers
from hypothesis import given, settings
from hypothesis import strategies as st
from table_contract import SCHEMA, as_source, as_table

from dagveil.data import duckdb as engine
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.duckdb import TextRule, write_code
from dagveil.data.encoding import encode
from dagveil.data.engine import DatabaseTable, choose_engine
from dagveil.data.files import list_files
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable
from dagveil.errors import DataError

duckdb = pytest.importorskip("duckdb")

SESSION = engine.DuckdbSession(2 * 10**8)
SESSION.run("SET threads = 1")


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    TestDuckdb.folder = tmp_path_factory.mktemp("parquet")
    yield
    SESSION.close()


class TestDuckdb(EngineContract):
    """Parquet files, several of them, in place."""

    folder: Path
    number = 0

    def make(self, source: Any, schema: Schema) -> StreamedTable:
        TestDuckdb.number += 1
        place = self.folder / f"{TestDuckdb.number}"
        place.mkdir()
        half = source.num_rows // 2
        pyarrow.parquet.write_table(source.slice(0, half), place / "a.parquet")
        pyarrow.parquet.write_table(source.slice(half), place / "b.parquet", row_group_size=1000)
        rows = engine.DuckdbFiles(list_files(place), schema, SESSION)
        return StreamedTable(rows, schema)


TEXTS = st.sampled_from(
    ["a", "A", "b", "", "a ", "true", "TRUE", "1", "01", "1.0", "é", "e\u0301", "a\x00", "\x00", "ß"]
)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 0.5, 0.1, math.inf, -math.inf, math.nan, 5e-324, 1e308, -1e308]) | st.floats()
WHOLE = st.sampled_from([0, 1, -1, 2, 127, -128, 2**31, -(2**31), 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
KINDS: list[tuple[pa.DataType, Any]] = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    (pa.bool_(), st.booleans()),
    (pa.float64(), FLOATS),
    (pa.float32(), st.floats(width=32) | st.sampled_from([0.5, -0.0, math.nan])),
    (pa.int64(), WHOLE),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**53 + 1])),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.decimal128(8, 2), st.decimals(-99, 99, places=2)),
    (pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))),
    (pa.timestamp("ms"), st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2050, 1, 1))),
]
COLUMNS: list[Column] = [
    Categorical(("a", "A", "1", "a\x00", "é", "true", "0.5", "-128", "9223372036854775807"), missing="own-level"),
    Categorical(("TRUE", "2", "18446744073709551615"), outside="2"),
    Categorical(tuple(str(k) for k in range(100)), missing="7"),
    Boolean(missing="own-level"),
    Numeric(bounds=(-1, 1), bins=(-0.5, 0.0, 0.1), missing="own-level"),
    Numeric(bounds=(0, 2**53 + 2), bins=(1.0, 2.0**53), missing=2.0),
    Numeric(bounds=(-1e308, 1e308), bins=100),
    Numeric(bounds=(-1, 1)),
]


@given(
    data=st.data(), kind=st.sampled_from(KINDS), column=st.sampled_from(COLUMNS), rule=st.sampled_from(list(TextRule))
)
@settings(max_examples=200, deadline=None)
def test_grouped_codes_are_the_encoders(
    data: st.DataObject, kind: tuple[pa.DataType, Any], column: Column, rule: TextRule
) -> None:
    """For every type that has an expression, DuckDB computes the code of every cell as the encoder does."""
    cells = data.draw(st.lists(st.none() | kind[1], max_size=12))
    table = pa.table({"x": pa.array(cells).cast(kind[0]) if pa.types.is_decimal(kind[0]) else pa.array(cells, kind[0])})
    schema = Schema(dataset="d", columns={"x": column})
    expression = write_code("x", kind[0], column)
    if expression is None:
        return
    path = TestDuckdb.folder / "cells.parquet"
    pyarrow.parquet.write_table(table, path)
    wanted = np.bincount(encode(table, schema).codes["x"], minlength=column.n_levels)
    pieces = engine.group_rows(SESSION, f"read_parquet('{path}')", table.schema, schema, rule)
    assert pieces is not None
    found = np.zeros(column.n_levels)
    for piece in pieces:
        assert piece.weights is not None
        found[piece.codes["x"]] += piece.weights
    assert found.tolist() == wanted.tolist()


def test_not_a_number_beside_one_number_in_parquet() -> None:
    """The file says that its numbers lie between 0 and 0."""
    schema = Schema(dataset="d", columns={"x": Numeric(bounds=(-1, 1), bins=(-0.5, 0.1), missing="own-level")})
    table = pa.table({"x": [0.0, math.nan]})
    path = TestDuckdb.folder / "nan.parquet"
    pyarrow.parquet.write_table(table, path)
    for place in (f"read_parquet('{path}')", f"(SELECT * FROM read_parquet('{path}'))"):
        (piece,) = engine.group_rows(SESSION, place, table.schema, schema, TextRule.PLAIN) or ()
        assert sorted(piece.codes["x"].tolist()) == [1, 3]


def test_which_types_have_an_expression() -> None:
    pushed = {str(kind) for kind, _ in KINDS if write_code("x", kind, COLUMNS[0]) is not None}
    assert {"string", "bool", "int64", "uint64"} <= pushed
    assert not pushed & {"double", "date32[day]", "timestamp[ms]", "decimal128(8, 2)"}
    binned = {str(kind) for kind, _ in KINDS if write_code("x", kind, COLUMNS[4]) is not None}
    assert {"double", "float", "int8", "bool"} <= binned
    assert not binned & {"string", "decimal128(8, 2)"}
    assert write_code("x", pa.string(), COLUMNS[2]) is None
    assert write_code("x", pa.float64(), COLUMNS[6]) is None


def open_both(path: Path, schema: Schema) -> tuple[Any, Any]:
    files = engine.DuckdbFiles(list_files(path), schema, SESSION)
    return StreamedTable(files, schema), MemoryTable.from_source(path, schema)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS], ids=str)
def test_whole_tables_of_every_type(kind: pa.DataType, tmp_path: Path) -> None:
    cells: dict[str, list[Any]] = {
        "decimal128(8, 2)": [1, 2],
        "date32[day]": [datetime.date(2020, 1, 1)],
        "timestamp[ms]": [datetime.datetime(2020, 1, 1)],
        "bool": [True, False],
    }
    texts = pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    found = cells.get(str(kind), ["a", "1", "é", ""] if texts else [0, 1, 2])
    pyarrow.parquet.write_table(pa.table({"x": pa.array([*found, None], kind)}), tmp_path / "t.parquet")
    levels = ("a", "1", "é", "2020-01-01", "2020-01-01 00:00:00.000", "true")
    schema = Schema(dataset="d", columns={"x": Categorical(levels, missing="own-level")})
    table, memory = open_both(tmp_path / "t.parquet", schema)
    assert table.counts(["x"]).tolist() == memory.counts(["x"]).tolist()


def test_names_that_differ_in_capitals_are_not_mixed_up(tmp_path: Path) -> None:
    rows = pa.table({"Age": ["a", "a", "b"], "age": ["b", "b", "b"], "x": ["a", "b", "b"]})
    pyarrow.parquet.write_table(rows, tmp_path / "t.parquet")
    columns: dict[str, Column] = {"age": Categorical(("a", "b")), "Age": Categorical(("a", "b"))}
    table, memory = open_both(tmp_path / "t.parquet", Schema(dataset="d", columns=columns))
    for name in columns:
        assert table.counts([name]).tolist() == memory.counts([name]).tolist()


def test_folders_that_look_like_partitions_add_no_columns(tmp_path: Path) -> None:
    place = tmp_path / "x=b"
    place.mkdir()
    pyarrow.parquet.write_table(pa.table({"x": ["a", "a"]}), place / "t.parquet")
    schema = Schema(dataset="d", columns={"x": Categorical(("a", "b"))})
    assert choose_engine(tmp_path, "duckdb").open(schema).counts(["x"]).tolist() == [2, 0, 0]


def test_texts_that_are_no_utf8_are_outside_values_as_in_memory(tmp_path: Path) -> None:
    raw = pa.array([b"a", b"\xff\xfe", b"a"])
    bad = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pyarrow.parquet.write_table(pa.table({"x": bad}), tmp_path / "t.parquet")
    schema = Schema(dataset="d", columns={"x": Categorical(("a", "b"))})
    table, memory = open_both(tmp_path / "t.parquet", schema)
    assert table.counts(["x"]).tolist() == memory.counts(["x"]).tolist() == [2, 0, 1]


def test_files_of_different_types_are_read_each_by_its_own(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"x": ["01", "1"]}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"x": [1, 2]}), tmp_path / "b.parquet")
    (tmp_path / "c.csv").write_text("x,y\n1,2\n1\n")
    schema = Schema(dataset="d", columns={"x": Categorical(("1", "2"), missing="own-level")})
    wanted = [3, 1, 1, 1]
    assert choose_engine(tmp_path, "duckdb").open(schema).counts(["x"]).tolist() == wanted
    assert choose_engine(tmp_path, "memory").open(schema).counts(["x"]).tolist() == wanted


def test_a_collation_of_the_database_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "claims.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA old; CREATE TABLE old.claims (x VARCHAR COLLATE NOCASE, y DOUBLE)")
        connection.execute("INSERT INTO old.claims VALUES ('a', 1), ('A', 'nan'), ('b', NULL), ('', -1)")
    schema = Schema(dataset="d", columns={"x": Categorical(("a", "b"), missing="b"), "y": Numeric(bounds=(0, 2))})
    source = DatabaseTable(str(path), "old.claims")
    table = choose_engine(source).open(schema)
    assert isinstance(table, StreamedTable)
    memory = choose_engine(source, "memory").open(schema)
    assert isinstance(memory, MemoryTable)
    assert table.counts(["x"]).tolist() == memory.counts(["x"]).tolist() == [1, 2, 1]
    assert table.counts(["y"]).tolist() == memory.counts(["y"]).tolist() == [1, 0, 3, 0]


def test_a_database_answers_everything_as_memory_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.duckdb"
    source = as_table(as_source([("red", "low", "t", 1.0, -1.0), ("x", "high", None, None, 9.0)] * 7))
    with duckdb.connect(str(path)) as connection:
        connection.register("source", source)
        connection.execute("CREATE TABLE rows AS SELECT * FROM source")
    table = choose_engine(DatabaseTable(str(path), "rows"), "duckdb").open(SCHEMA)
    assert list_answers(table) == list_answers(MemoryTable.from_source(source, SCHEMA))
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (14,)


def test_a_view_without_an_order_changes_no_slot_and_no_part(tmp_path: Path) -> None:
    """The view shuffles itself at every reading; one person more in the table below it changes one slot."""
    schema = Schema(dataset="d", columns={"x": Numeric(bounds=(0, 1000)), "y": Numeric(bounds=(0, 1000), bins=2)})
    found = []
    for n_rows in (900, 901):
        path = tmp_path / f"{n_rows}.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.execute(f"CREATE TABLE t AS SELECT k AS x, 1000 - k AS y FROM range({n_rows}) AS r(k)")
            connection.execute("CREATE VIEW v AS SELECT * FROM t ORDER BY random()")
        for engine_name in ("duckdb", "duckdb", "memory"):
            table = choose_engine(DatabaseTable(str(path), "v"), engine_name).open(schema)
            found.append(table.levelled_rows(["x", "y"], 50).tolist())
            rng = np.random.default_rng(0)
            parts = table.split(3, lambda n_rows, rng=rng: rng.integers(0, 3, n_rows))
            found.append([part.counts(["x", "y"]).tolist() for part in parts])
        assert found[-6:-4] == found[-4:-2] == found[-2:]
    slots = [{tuple(row) for row in answer} for answer in (found[0], found[6])]
    assert len(slots[0] - slots[1]) <= 1


def test_what_is_spilled_goes_to_a_private_folder_that_is_removed() -> None:
    session = engine.DuckdbSession(10**8)
    folder = Path(session._folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    settings = {row["name"]: row["value"] for row in session.read("FROM duckdb_settings()").read_all().to_pylist()}
    assert settings["temp_directory"] == str(folder)
    assert settings["autoinstall_known_extensions"] == settings["autoload_known_extensions"] == "false"
    assert "95" in settings["memory_limit"]
    session.close()
    assert not folder.exists()


def test_too_little_memory_for_groups_falls_back_to_streaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow.parquet.write_table(pa.table({"x": ["a", "b", "a"]}), tmp_path / "t.parquet")
    schema = Schema(dataset="d", columns={"x": Categorical(("a", "b"))})

    def fail(*_: object) -> None:
        raise duckdb.OutOfMemoryException("no memory")

    monkeypatch.setattr(SESSION, "read", fail)
    table, memory = open_both(tmp_path / "t.parquet", schema)
    assert table.counts(["x"]).tolist() == memory.counts(["x"]).tolist()


def test_nearly_distinct_rows_are_not_grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"v{k}" for k in range(60))
    rng = np.random.default_rng(0)
    rows = {f"c{k}": np.array(names)[rng.integers(0, 60, 70_000)] for k in range(5)}
    pyarrow.parquet.write_table(pa.table(rows), tmp_path / "t.parquet")
    schema = Schema(dataset="d", columns={name: Categorical(names, "v0") for name in rows})
    monkeypatch.setattr(SESSION, "read", lambda *_: pytest.fail("grouped"))
    files = engine.DuckdbFiles([tmp_path / "t.parquet"], schema, SESSION)
    table = StreamedTable(files, schema, held_bytes=10**6)
    memory = MemoryTable.from_source(tmp_path / "t.parquet", schema)
    pairs = [("c0", "c1"), ("c4", "c2")]
    for found, wanted in zip(table.counts_many(pairs), memory.counts_many(pairs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("place", "table", "message"),
    [("no.duckdb", "t", "no database"), ("odd.duckdb", "t", "no DuckDB database"), ("ok.duckdb", "u", "no table 'u'")],
)
def test_databases_that_cannot_be_read_say_why(place: str, table: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "odd.duckdb").write_text("this is no database at all, and long enough to look at" * 100)
    with duckdb.connect(str(tmp_path / "ok.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    schema = Schema(dataset="d", columns={"x": Categorical(("1",))})
    with pytest.raises(DataError, match=message):
        choose_engine(DatabaseTable(str(tmp_path / place), table)).open(schema)
