"""Damaged Arrow and Parquet files are refused: they never end the process, and engines agree about them."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dagveil.data import files
from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.draft import draft_schema
from dagveil.data.engine import DatabaseTable, choose_engine
from dagveil.data.memory import MemoryTable
from dagveil.data.reading import arrow_batches, check_sound, open_arrow, read_header, read_source
from dagveil.data.schema import PLAIN_LAYOUT, Schema
from dagveil.errors import DagveilError, DataError

MARK = "a cell that no error may quote"
WORDS = ("red", "blue", "green")
SCHEMA = Schema(
    dataset="d",
    columns={
        "coded": Categorical(WORDS),
        "text": Categorical(WORDS),
        "number": Numeric(bounds=(-3, 3), bins=3),
        "truth": Boolean(),
        "whole": Categorical(tuple(map(str, range(30)))),
    },
)
ENDINGS = {"feather": "feather", "zipped": "feather", "stream": "arrow", "parquet": "parquet"}


def write_form(form: str, path: Path) -> None:
    texts = [WORDS[place % 3] if place % 5 else MARK for place in range(40)]
    table = pa.table(
        {
            "coded": pa.array(texts).dictionary_encode(),
            "text": pa.array([None if place % 7 == 0 else text for place, text in enumerate(texts)]),
            "number": np.random.default_rng(0).normal(size=40),
            "truth": [place % 2 == 0 for place in range(40)],
            "whole": pa.array(range(40), pa.int16()),
        }
    )
    if form == "parquet":
        pyarrow.parquet.write_table(table, path, compression="none")
    elif form == "stream":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        pyarrow.feather.write_feather(table, path, compression="lz4" if form == "zipped" else "uncompressed")


def damage(content: bytes, seed: int) -> bytes:
    """Flip bits, set bytes, put extreme integers, or cut the file off."""
    rng = random.Random(seed)
    data, place = bytearray(content), rng.randrange(len(content))
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        for _ in range(rng.choice([1, 2, 4])):
            data[rng.randrange(len(data))] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
    elif kind == 2:
        data[place : place + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", rng.randbytes(4)])
    else:
        data = data[: max(place, 1)]
    return bytes(data)


def read_damaged(form: str, seeds: range, folder: Path) -> None:
    """Read damaged files by both engines and as a draft; whatever is wrong raises, or ends this process."""
    whole = folder / "whole"
    write_form(form, whole)
    content = whole.read_bytes()
    path = folder / f"damaged.{ENDINGS[form]}"
    told: list[str] = []
    for seed in seeds:
        path.write_bytes(damage(content, seed))
        found = []
        for engine in ("memory", "duckdb"):
            try:
                table = choose_engine(path, engine).open(SCHEMA)
                answers = [table.counts([name]).tolist() for name in SCHEMA.columns]
                found.append([*answers, table.levelled_rows(["coded", "number"], 9).tolist()])
            except DagveilError as error:
                found.append(["refused"])
                told.append(str(error))
        assert found[0] == found[1], seed
        try:
            draft_schema(path, dataset="d")
        except DagveilError as error:
            told.append(str(error))
    assert len(told) > len(seeds)
    assert not any(MARK in words for words in told)


@pytest.mark.parametrize("form", list(ENDINGS))
def test_no_damage_ends_the_process(form: str, tmp_path: Path) -> None:
    """In a process of its own. Without the checks about every tenth of these Feather files would end it."""
    place = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    asked = f"read_damaged({form!r}, range(60), Path({str(tmp_path)!r}))"
    program = f"from {Path(__file__).stem} import *; {asked}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": place}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_engines_agree_on_a_damaged_byte_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind the first batch, which DuckDB does not look at through Arrow."""
    monkeypatch.setattr(files, "batch_rows", lambda width: 8)
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"x": [*WORDS, "blue"] * 10}), path, compression="none")
    content = path.read_bytes()
    schema = Schema(dataset="d", columns={"x": Categorical(WORDS)})
    refused = 0
    for place in range(40, 110):
        path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        found = []
        for engine in ("memory", "duckdb"):
            try:
                found.append(choose_engine(path, engine).open(schema).counts(["x"]).tolist())
            except DataError:
                found.append(None)
                refused += 1
        assert found[0] == found[1], place
    assert refused > 0


def test_places_beyond_a_dictionary_are_refused() -> None:
    beyond = pa.DictionaryArray.from_arrays(pa.array([0, 3]), pa.array(["a", "b"]), safe=False)
    before = pa.DictionaryArray.from_arrays(pa.array([0, -1]), pa.array(["a", "b"]), safe=False)
    for array in (beyond, before):
        with pytest.raises(pa.ArrowException):
            check_sound(array)
    check_sound(pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["a"])))
    check_sound(pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), pa.array([], pa.string())))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_a_text_that_is_no_utf8_is_no_damage(kind: pa.DataType, tmp_path: Path) -> None:
    raw = pa.array([b"red", b"\xff\xfe", b"red"])
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    if pa.types.is_dictionary(kind):
        text = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), text)
    else:
        text = text.view(pa.binary()).cast({pa.string_view(): pa.binary_view()}.get(kind, pa.binary()))
        text = text.view(kind) if kind != pa.large_string() else text.cast(pa.large_binary()).view(kind)
    path = tmp_path / "t.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.schema([("x", kind)])) as writer:
        writer.write_table(pa.table({"x": text}))
    schema = Schema(dataset="d", columns={"x": Categorical(WORDS)})
    for engine in ("memory", "duckdb"):
        assert choose_engine(path, engine).open(schema).counts(["x"]).tolist() == [2, 0, 0, 1]


def test_unions_are_refused_by_both_engines(tmp_path: Path) -> None:
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    )
    path = tmp_path / "t.arrow"
    table = pa.table({"coded": union})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for column in (Categorical(WORDS), Numeric(bounds=(0, 1))):
        for engine in ("memory", "duckdb"):
            with pytest.raises(DataError, match="convert it"):
                choose_engine(path, engine).open(Schema(dataset="d", columns={"coded": column}))


def test_names_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    for form, ending in ENDINGS.items():
        path = tmp_path / f"t.{ending}"
        write_form(form, path)
        path.write_bytes(path.read_bytes().replace(b"whole", b"\xffhole"))
        for engine in ("memory", "duckdb"):
            with pytest.raises(DataError):
                choose_engine(path, engine).open(SCHEMA)
        with pytest.raises(DataError):
            read_source(path)


def test_a_first_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("a," * 2**24)
    with pytest.raises(DataError, match="first line of"):
        read_header(path, PLAIN_LAYOUT)


def test_rows_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for reason in (MemoryError(MARK), pa.ArrowMemoryError(MARK)):

        def fail(*_: object, reason: Exception = reason) -> None:
            raise reason

        monkeypatch.setattr(MemoryTable, "from_source", fail)
        with pytest.raises(DataError, match="--engine duckdb") as caught:
            choose_engine({"x": [1]}, "memory").open(SCHEMA)
        assert MARK not in str(caught.value)


def test_a_pipe_is_no_database(tmp_path: Path) -> None:
    """To open it would wait for a writer for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no database"):
        choose_engine(DatabaseTable(str(tmp_path / "pipe"), "t")).open(SCHEMA)
    with pytest.raises(DataError, match="not a file"):
        choose_engine(tmp_path / "pipe", "memory").open(SCHEMA)


def shorten_while_open(path: Path) -> None:
    """Read a file that another program cuts off after it was opened."""
    rows = pa.table({"x": np.arange(1_000_000)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100_000)
    try:
        with open_arrow(path) as reader:
            os.truncate(path, 4096)
            list(arrow_batches(reader, ["x"]))
    except DataError:
        return
    raise AssertionError("the file was read")


def test_a_file_that_gets_shorter_ends_no_process(tmp_path: Path) -> None:
    """In a process of its own: a mapped file would end it."""
    place = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    program = f"from {Path(__file__).stem} import *; shorten_while_open(Path({str(tmp_path / 't.arrow')!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": place}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
