from __future__ import annotations

import datetime
import decimal
import gzip
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.encoding import encode
from dagveil.data.memory import MemoryTable
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema
from dagveil.errors import DataError

SCHEMA = Schema(
    dataset="formats",
    columns={
        "word": Categorical(("red", "01"), "own-level", "own-level"),
        "count": Categorical(("1", "2"), "own-level"),
        "flag": Boolean("false"),
        "size": Numeric(bounds=(0, 10), bins=2, missing="own-level"),
    },
)
FRAME = {
    "ignored": [1, 2, 3, 4],
    "size": [0.5, 99.0, -math.inf, math.nan],
    "flag": [True, False, True, True],
    "count": [1, 2, 3, 1],
    "word": ["red", "01", "1", None],
}
CSV = "ignored,size,flag,count,word\n1,0.5,True,1,red\n2,99,false,2,01\n3,-inf,1,3,1\n4,,yes,1,\n"
CODES = {"word": [0, 1, 2, 3], "count": [0, 1, 2, 0], "flag": [1, 0, 1, 1], "size": [0, 1, 0, 2]}


def write_csv(folder: Path) -> Path:
    (folder / "t.csv").write_text(CSV)
    return folder / "t.csv"


def write_windows_csv(folder: Path) -> Path:
    (folder / "w.CSV").write_bytes(CSV.replace("\n", "\r\n").encode("utf-8-sig"))
    return folder / "w.CSV"


def write_quoted_csv(folder: Path) -> Path:
    (folder / "q.csv").write_text(CSV.replace("red", '"red"').replace("ignored", '"ign\nored"'))
    return folder / "q.csv"


def write_gz(folder: Path) -> Path:
    (folder / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    return folder / "t.csv.gz"


def write_tsv(folder: Path) -> str:
    (folder / "t.tsv").write_text(CSV.replace(",", "\t"))
    return str(folder / "t.tsv")


def write_parquet(folder: Path) -> Path:
    pyarrow.parquet.write_table(pa.table(FRAME), folder / "t.parquet", row_group_size=2)
    return folder / "t.parquet"


def write_feather(folder: Path) -> Path:
    pyarrow.feather.write_feather(pa.table(FRAME), str(folder / "t.feather"))
    return folder / "t.feather"


def write_stream(folder: Path) -> Path:
    table = pa.table(FRAME)
    with pa.OSFile(str(folder / "t.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return folder / "t.arrow"


def make_structured(_: Path) -> np.ndarray:
    kinds = [("ignored", "i4"), ("size", "f8"), ("flag", "?"), ("count", "i8"), ("word", "O")]
    return np.array(list(zip(*FRAME.values(), strict=True)), dtype=kinds)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": write_csv,
    "windows csv": write_windows_csv,
    "quoted csv": write_quoted_csv,
    "csv.gz": write_gz,
    "tsv": write_tsv,
    "parquet": write_parquet,
    "feather": write_feather,
    "arrow stream": write_stream,
    "table": lambda _: pa.table(FRAME),
    "batch": lambda _: pa.RecordBatch.from_pydict(FRAME),
    "pandas": lambda _: pd.DataFrame(FRAME),
    "pandas categories": lambda _: pd.DataFrame(FRAME).astype({"word": "category", "count": "category"}),
    "pandas objects": lambda _: pd.DataFrame(FRAME).astype(object),
    "pandas index": lambda _: pd.DataFrame(FRAME, index=[7, 7, 2, 1]),
    "polars": lambda _: pl.DataFrame(FRAME),
    "polars categories": lambda _: pl.DataFrame(FRAME).with_columns(pl.col("word").cast(pl.Categorical)),
    "structured": make_structured,
    "two-dimensional": lambda _: np.array([FRAME[name] for name in SCHEMA.columns], dtype=object).T,
    "lists": lambda _: FRAME,
    "arrays": lambda _: {name: np.array(cells, dtype=object) for name, cells in FRAME.items()},
    "texts": lambda _: FRAME | {"count": np.array(["1", "2", "3", "1"]), "size": ["0.5", " 99 ", "-inf", "?"]},
    "bytes": lambda _: FRAME | {"count": np.array([b"1", b"2", b"3", b"1"])},
    "mixed": lambda _: FRAME | {"count": [1, "2", {"a": 3}, 1.0], "flag": [True, "no", 1, "Yes"]},
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=list(SOURCES))
def test_every_format_gives_the_same_codes(make: Callable[[Path], Any], tmp_path: Path) -> None:
    source = make(tmp_path)
    encoded = encode(read_source(source, list(SCHEMA.columns)), SCHEMA)
    assert {name: codes.tolist() for name, codes in encoded.codes.items()} == CODES
    assert encoded.values["size"].tolist() == [0.5, 10.0, 0.0, 5.0]
    table = MemoryTable.from_source(source, SCHEMA)
    assert table.counts(["flag", "count"]).tolist() == [[0, 1, 0], [2, 0, 1]]


def test_all_columns_are_read_by_default() -> None:
    assert read_source(FRAME).column_names == list(FRAME)
    assert read_source(pl.DataFrame(FRAME)).num_rows == 4


@pytest.mark.parametrize("kind", ["<f2", "<f4", ">f8", "g", ">i4", "u1", ">u8", "i8", ">U3", "S3", "O"])
def test_numpy_types(kind: str) -> None:
    cells = np.array([2, 1, 1, 7]).astype(kind)[::2]
    schema = Schema(dataset="d", columns={"a": Categorical(("1", "2"), "own-level")})
    assert MemoryTable.from_source({"a": cells}, schema).counts(["a"]).tolist() == [1, 1, 0]


def test_a_broken_line_is_one_record_of_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n\n4,5,6\n7,8\n")
    assert sorted(map(str, read_source(path).to_pylist())) == sorted(
        ["{'a': '1', 'b': '2'}", "{'a': '7', 'b': '8'}", *["{'a': None, 'b': None}"] * 2]
    )


def test_an_empty_line_of_a_single_column_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n2\n")
    assert read_source(path)["a"].to_pylist() == ["1", None, "2"]


def test_quoted_cells_may_hold_delimiters_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"x,\ny",2\n')
    assert read_source(path).to_pylist() == [{"a": "x,\ny", "b": "2"}]


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "a,b\r\n"])
def test_a_table_without_rows_is_valid(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    schema = Schema(dataset="d", columns={"a": Boolean("false"), "b": Numeric(bounds=(0, 1))})
    table = MemoryTable.from_source(path, schema)
    assert table.n_rows == 0
    assert table.counts(["a", "b"]).sum() == 0


def test_one_row_one_column_and_a_constant_column() -> None:
    schema = Schema(dataset="d", columns={"a": Boolean("false")})
    assert MemoryTable.from_source({"a": ["yes"]}, schema).counts(["a"]).tolist() == [0, 1]
    assert MemoryTable.from_source({"a": ["no"] * 9000}, schema).counts(["a"]).tolist() == [9000, 0]


def test_a_cell_of_ten_megabytes_is_an_outside_value(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    giant = "x" * 10_000_000
    path.write_text(f"a,b\nred,1\n{giant},2\n1,{giant}\n" + "red,3\n" * 10)
    schema = Schema(dataset="d", columns={"a": Categorical(("red",)), "b": Numeric(bounds=(0, 2), bins=2)})
    assert MemoryTable.from_source(path, schema).counts(["a"]).tolist() == [11, 2]
    assert MemoryTable.from_source({"a": [giant, "red"], "b": [giant, 1.0]}, schema).counts(["a"]).tolist() == [1, 1]


def test_a_cell_larger_than_a_block_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "x" * 40_000_000 + "\nred\n")
    schema = Schema(dataset="d", columns={"a": Categorical(("red",))})
    assert MemoryTable.from_source(path, schema).counts(["a"]).tolist() == [1, 1]


def test_a_hundred_thousand_distinct_values_are_outside_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "\n".join(f"v{k}" for k in range(100_000)) + "\n")
    schema = Schema(dataset="d", columns={"a": Categorical(("v0", "v1"))})
    assert MemoryTable.from_source(path, schema).counts(["a"]).tolist() == [1, 1, 99_998]


BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("t.csv", b"", "is empty .0 bytes."),
    "empty parquet": ("t.parquet", b"", "is empty .0 bytes."),
    "blank": ("t.csv", b"\n\n", "no line with column names"),
    "duplicate names": (
        "t.csv",
        b"a,a,b\n1,2,3\n",
        "1 column names more than once, the first in columns 1 and 2; rename",
    ),
    "no header": (
        "t.csv",
        b"37,secret,secret,37\n1,2,3,4\n",
        "2 column names more than once, the first in columns 1 and 4",
    ),
    "missing column": ("t.csv", b"a,c\n1,2\n", "lacks 1 column of the schema, the first is 'b'"),
    "latin-1 cell": ("t.csv", "a,b\nsecré,2\n".encode("latin-1"), "not encoded as UTF-8.*iconv"),
    "latin-1 header": ("t.csv", "é,b\n1,2\n".encode("latin-1"), "not encoded as UTF-8"),
    "utf-16": ("t.csv", "a,b\n1,2\n".encode("utf-16"), "not encoded as UTF-8"),
    "broken gzip": ("t.csv.gz", b"\x1f\x8bsecret", "cannot be read"),
    "cut gzip": ("t.csv.gz", gzip.compress(b"a,b\n" + b"secret,2\n" * 99999)[:-300], "cannot be read"),
    "no parquet": ("t.parquet", b"PAR1 secret PAR1", "cannot be read as Parquet"),
    "no arrow": ("t.arrow", b"secret" * 10, "cannot be read as Arrow"),
    "other ending": ("t.xlsx", b"secret", "format of t.xlsx is not known; the name must end in"),
}


@pytest.mark.parametrize(("name", "content", "words"), BAD_FILES.values(), ids=list(BAD_FILES))
def test_bad_files_are_refused_without_showing_a_cell(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read_source(tmp_path / name, ["a", "b"], coded=["a"])
    assert "secr" not in str(caught.value)
    assert "37" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_bad_sources_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[Any, str]] = [
        (tmp_path / "none.csv", "no file"),
        (tmp_path, "not a file"),
        (3, "builtins.int cannot be read"),
        (np.zeros(3), "1 dimensions"),
        (np.zeros((3, 3)), "3 columns and 2 names"),
        ({"a": [1], "b": [1, 2]}, "different lengths"),
        ({"a": [1]}, "lacks 1 column"),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]), "more than once"),
        (pa.table([[1], [2]], names=["a", "a"]), "more than once"),
    ]
    for source, words in cases:
        with pytest.raises(DataError, match=words):
            read_source(source, ["a", "b"])
    with pytest.raises(DataError, match="no names were given"):
        read_source(np.zeros((3, 2)))


def test_a_damaged_parquet_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"a": ["secret"] * 1000, "b": list(range(1000))}), path)
    content = bytearray(path.read_bytes())
    content[4:200] = b"\xff" * 196
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        read_source(path)


def test_lone_surrogates_and_hostile_objects_are_outside_values() -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError("secret")

    schema = Schema(dataset="d", columns={"a": Categorical(("red",))})
    table = MemoryTable.from_source({"a": ["\ud800", Hostile(), "red", b"\xff"]}, schema)
    assert table.counts(["a"]).tolist() == [1, 3]


def test_cells_without_a_declared_type_are_judged_one_by_one() -> None:
    # one odd record must neither stop the run nor change the codes of the others
    day, moment = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)
    plain: list[list[Any]] = [
        [1, 2],
        [1.0, 2.5],
        [True, False],
        ["1", "x"],
        [2**53 + 1, 5],
        [decimal.Decimal("1.0"), 2],
    ]
    odd = [
        day,
        moment,
        [1],
        {"a": 1},
        b"1",
        2**70,
        1j,
        object(),
        "?",
        True,
        0.5,
        math.nan,
        None,
        Ellipsis,
        np.float32(0.1),
    ]
    columns = {
        "word": Categorical(("1", "2", "2.5", "true", "x", str(2**53 + 1), str(2**70), "2024-05-01"), "own-level"),
        "flag": Boolean("own-level"),
        "size": Numeric(bounds=(0, 10), bins=5, missing="own-level"),
    }
    schema = Schema(dataset="d", columns=columns)
    for cells in plain:
        alone = encode(read_source(dict.fromkeys(columns, cells)), schema)
        for cell in odd:
            for form in (list, _as_objects, lambda some: pd.Series(some, dtype=object)):
                beside = encode(read_source(dict.fromkeys(columns, form([*cells, cell]))), schema)
                single = encode(read_source(dict.fromkeys(columns, form([cell]))), schema)
                for name in columns:
                    wanted = [*alone.codes[name].tolist(), *single.codes[name].tolist()]
                    assert beside.codes[name].tolist() == wanted, (name, cells, cell)


def _as_objects(cells: list[Any]) -> np.ndarray:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def test_text_that_is_not_utf8_in_a_parquet_file_is_an_outside_value(tmp_path: Path) -> None:
    cells = pa.array([b"\xff\xfe", b"1", None]).view(pa.string())
    pyarrow.parquet.write_table(pa.table({"word": cells, "size": cells}), tmp_path / "t.parquet")
    columns = {"word": Categorical(("1",), "own-level", "own-level"), "size": Numeric(bounds=(0, 2), bins=2)}
    table = MemoryTable.from_source(tmp_path / "t.parquet", Schema(dataset="d", columns=columns))
    assert table.counts(["word"]).tolist() == [1, 1, 1]
    assert table.counts(["size"]).tolist() == [0, 3]


def test_pandas_and_polars_are_not_needed() -> None:
    code = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in {'pandas', 'polars'}: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "from dagveil.data.reading import read_source\n"
        "assert read_source({'a': [1, 'x']}).num_rows == 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
