"""Files and folders in batches: every cell is read as memory reads it; and which engine is chosen."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data import engine as engines
from dagveil.data import files as reading_files
from dagveil.data.column import Categorical, Numeric
from dagveil.data.engine import DatabaseTable, Engine, choose_engine
from dagveil.data.files import FileRows, list_files
from dagveil.data.machine import read_bytes
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable, encode_batch
from dagveil.errors import DataError, SchemaError

SCHEMA = Schema(
    dataset="files",
    columns={
        "word": Categorical(("red", "01", "1"), "own-level", "own-level"),
        "size": Numeric(bounds=(0, 10), bins=4, missing="own-level"),
    },
)
CELLS = st.sampled_from(
    ["red", "01", "1", "1.0", "", '""', '"red"', '"re""d"', '"a,b"', '"a\nb"', " red", "nan", "-inf", "7", "NULL", "é"]
)
LINES = st.lists(st.lists(CELLS, min_size=0, max_size=4).map(",".join), max_size=15)


def rows_of(path: Path) -> tuple[list[list[float]], list[list[float]]]:
    """Return codes and numbers of every row in order, in batches and at once."""
    memory = MemoryTable.from_source(path, SCHEMA)
    codes: list[list[float]] = [[], [], []]
    for batch in FileRows(list_files(path), SCHEMA).batches(list(SCHEMA.columns)):
        piece = encode_batch(batch, SCHEMA)
        for place, array in enumerate((piece.codes["word"], piece.codes["size"], piece.values["size"])):
            codes[place] += array.tolist()
    assert memory._codes is not None
    at_once = (memory._codes["word"], memory._codes["size"], memory._values["size"])
    return codes, [array.tolist() for array in at_once]


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_hostile_delimited_files(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, mark: bool
) -> None:
    """Broken lines, quotes, empty lines and byte order marks: one parser reads them, at once or in pieces."""
    path = tmp_path_factory.getbasetemp() / "hostile.csv"
    path.write_bytes(end.join(["word,size", *lines, ""]).encode("utf-8-sig" if mark else "utf-8"))
    in_batches, at_once = rows_of(path)
    assert in_batches == at_once


def test_blocks_that_a_record_straddles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks make many batches; a cell larger than one is read again in a larger block, no row twice."""
    monkeypatch.setattr(reading_files.reading, "BLOCK_BYTES", (256, 2**20))
    lines = [f"{'red' if k % 3 else '01'},{k % 11}" for k in range(300)]
    lines[100] = "x,1,2"
    lines[200] = '"' + "y" * 5000 + '",3'
    (tmp_path / "t.csv").write_text("\n".join(["word,size", *lines]) + "\n")
    in_batches, at_once = rows_of(tmp_path / "t.csv")
    assert len(in_batches[0]) == 300
    assert in_batches == at_once


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.feather", "t.arrow", "stream.arrow"])
def test_every_form_in_batches(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_files, "batch_rows", lambda _: 3)
    table = pa.table({"other": list(range(10)), "word": ["red", "1", None, "", "01"] * 2, "size": list(range(10))})
    path = tmp_path / name
    text = "other,word,size\n" + "".join(
        f"{row['other']},{row['word'] or ''},{row['size']}\n" for row in table.to_pylist()
    )
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif "sv" in name:
        path.write_text(text.replace(",", "\t") if "tsv" in name else text)
    elif "parquet" in name:
        pyarrow.parquet.write_table(table, path)
    elif "stream" in name:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    else:
        pyarrow.feather.write_feather(table, path)
    in_batches, at_once = rows_of(path)
    assert len(in_batches[0]) == 10
    assert in_batches == at_once


def test_a_folder_is_the_sum_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.csv").write_text("word,size\nred,1\nred,2,3\n")
    (tmp_path / "b" / "c.tsv").write_text("size\tword\n5\t01\n")
    (tmp_path / "_note.txt").write_text("passed over")
    pyarrow.parquet.write_table(pa.table({"word": ["1"], "size": [9.0]}), tmp_path / "d.parquet")
    assert [path.name for path in list_files(tmp_path)] == ["a.csv", "c.tsv", "d.parquet"]
    assert [path.name for path in list_files(str(tmp_path / "*.csv"))] == ["a.csv"]
    for engine in ("memory", "duckdb"):
        table = choose_engine(tmp_path, engine).open(SCHEMA)
        assert table.counts(["word"]).tolist() == [1, 1, 1, 0, 1]
        assert table.n_rows == 4
        assert sorted(table.levelled_rows(["size"], 4)[:, 0].tolist()) == pytest.approx([-0.8, 0.0, 0.0, 0.8])


def test_files_that_change_during_a_run_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("word,size\nred,1\n")
    table = choose_engine(path, "duckdb").open(SCHEMA)
    assert table.counts(["word"]).sum() == 1
    path.write_text("word,size\nred,1\nred,1\n")
    with pytest.raises(DataError, match="changed during the run"):
        table.magnitude_counts("size", 0.0, range(2))


def test_what_cannot_be_read_is_refused_before_the_first_question(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("word\nred\n")
    with pytest.raises(DataError, match="lacks 1 column"):
        choose_engine(tmp_path, "duckdb").open(SCHEMA)
    pyarrow.parquet.write_table(pa.table({"word": ["a"], "size": [1.0]}), tmp_path / "t.csv.parquet")
    (tmp_path / "t.csv").unlink()
    pyarrow.parquet.write_table(pa.table({"word": [[1]], "size": [1.0]}), tmp_path / "u.parquet")
    with pytest.raises(DataError, match="cannot be compared"):
        choose_engine(tmp_path, "duckdb").open(SCHEMA)
    (tmp_path / "v.xlsx").write_text("?")
    with pytest.raises(DataError, match=r"format of v\.xlsx"):
        choose_engine(tmp_path)
    with pytest.raises(DataError, match="no files"):
        choose_engine(str(tmp_path / "*.nothing"))
    with pytest.raises(DataError, match="no file"):
        choose_engine(tmp_path / "gone.csv")
    (tmp_path / "w.csv").write_bytes(b"word,size\nred,1\n\xff\xfe,2\n")
    with pytest.raises(DataError, match="UTF-8"):
        choose_engine(tmp_path / "w.csv", "duckdb").open(SCHEMA).counts(["word"])


def test_the_engine_follows_the_size_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("word,size\n" + "red,1\n" * 100_000)
    assert choose_engine(path).engine is Engine.MEMORY
    monkeypatch.setattr(engines, "available_memory", lambda: 1e6)
    assert choose_engine(path).engine is Engine.DUCKDB
    assert choose_engine(path, memory_limit="8GB").engine is Engine.MEMORY
    assert choose_engine(path, "memory").engine is Engine.MEMORY
    assert choose_engine({"word": ["red"]}).engine is Engine.MEMORY
    monkeypatch.setattr(engines.duckdb, "is_installed", lambda: False)
    assert choose_engine(path).engine is Engine.MEMORY


def test_frames_can_be_streamed_too() -> None:
    rows = {"word": np.array(["red", "1", "?"]), "size": np.array([1.0, np.nan, 99.0])}
    table = choose_engine(rows, Engine.DUCKDB).open(SCHEMA)
    assert isinstance(table, StreamedTable)
    memory = choose_engine(rows).open(SCHEMA)
    assert table.counts(["word", "size"]).tolist() == memory.counts(["word", "size"]).tolist()
    assert choose_engine(table).open(SCHEMA) is table
    with pytest.raises(SchemaError, match="another schema"):
        choose_engine(table).open(Schema(dataset="other", columns=SCHEMA.columns))


@pytest.mark.parametrize(
    ("source", "engine", "message"),
    [
        ("t.csv", "sparc", "no engine 'sparc'"),
        ("t.csv", "spark", r"needs a frame of Spark"),
        ("spark://host:7077", "auto", "name of a table"),
        (DatabaseTable("spark://host:7077", "t"), "memory", "counted there"),
        (DatabaseTable("mysql://host/db", "t"), "auto", "kind 'mysql'"),
    ],
)
def test_choices_that_make_no_sense(source: object, engine: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_engine(source, engine).open(SCHEMA)


@pytest.mark.parametrize("text", ["", "8", "many", "8 XB", "-1GB", "1KB"])
def test_memory_limits_that_make_no_sense(text: str) -> None:
    with pytest.raises(DataError, match="memory"):
        read_bytes(text)


def test_a_password_is_not_shown() -> None:
    source = DatabaseTable("postgresql://ann:secret@host/db", "claims")
    assert "secret" not in repr(source) + repr(choose_engine(source))
