"""How delimited files are written: found by drafts, declared in schemas, and read the same by every engine."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.draft import draft_schema
from dagveil.data.duckdb import DuckdbFiles, DuckdbSession
from dagveil.data.engine import choose_engine
from dagveil.data.schema import FileLayout, Schema, find_layout, schema_from_toml, schema_to_toml
from dagveil.errors import DataError, SchemaError

SECRET = "P4711"
SEX = Categorical(
    ("F", "M"), missing="own-level", spellings={"F": ("f", "weiblich"), "M": ("männlich",)}, missing_words=("k.A.", "9")
)
PAY = Numeric((0, 10), bins=(2.5, 5.0), missing="own-level", center=3, missing_words=("k.A.", "-9"))
WORKS = Boolean(missing="own-level", spellings={"true": ("ja",), "false": ("nein",)}, missing_words=("?",))
COLUMNS = {"sex": SEX, "pay": PAY, "works": WORKS}
ROWS = [
    ("F", "1,5", "ja", 0, 1.5, 1),
    ("f", "3.5", "nein", 0, 3.0, 0),
    ("weiblich", " 7,25 ", "ja", 0, 7.25, 1),
    ("männlich", "k.A.", "?", 1, 3.0, 3),
    ("k.A.", "-9", "no", 3, 3.0, 0),
    ("9", "1.234,5", "vielleicht", 3, 3.0, 2),
    ("x", "12", "yes", 2, 10.0, 1),
    ("", "", "", 3, 3.0, 3),
    ("M", "1,5e0", "ja", 1, 1.5, 1),
]
"""Cells with a decimal comma, and by hand: code of sex, number of pay, code of works."""


def write(path: Path, separator: str, encoding: str = "utf-8") -> Path:
    lines = [separator.join(COLUMNS), *(separator.join(row[:3]) for row in ROWS)]
    content = "\n".join([*lines, ""]).encode(encoding)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


def open_all(source: Any, schema: Schema) -> list[Any]:
    return [choose_engine(source, engine).open(schema) for engine in ("memory", "duckdb")]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_every_engine_reads_by_declaration(tmp_path: Path, name: str, encoding: str, separator: str) -> None:
    layout = FileLayout(separator, ",", encoding.removesuffix("-sig"))
    schema = Schema(dataset="d", columns=COLUMNS, file=layout)
    path = write(tmp_path / name, separator, encoding)
    for table in open_all(path, schema):
        for column, place in (("sex", 3), ("works", 5)):
            wanted = np.bincount([int(row[place]) for row in ROWS], minlength=schema.columns[column].n_levels)
            assert table.counts([column]).tolist() == wanted.tolist()
        # 1.5 and 1.5 | - | 7.25 and 12, clipped | five that are no numbers or said to be missing
        assert table.counts(["pay"]).tolist() == [2, 0, 2, 5]


def test_a_folder_is_read_by_declaration(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, ";")
    schema = Schema(dataset="d", columns=COLUMNS, file=FileLayout(";", ","))
    for table in open_all(tmp_path, schema):
        assert table.counts(["pay"]).tolist() == [4, 0, 4, 10]


@pytest.mark.parametrize("whole", [True, False])
def test_words_are_pushed_down_to_duckdb_as_the_encoder_reads_them(tmp_path: Path, whole: bool) -> None:
    numbers = [1, -9, 7, 9, None, 3] if whole else [1.0, -9.0, 7.5, float("nan"), None, 3.0]
    cells = {"sex": ["F", "f", "k.A.", "x", None, ""], "pay": numbers, "works": ["ja", "?", "no", "nein", "x", None]}
    codes = {"sex": [2, 9, 9, 1, 5, None]} if whole else {}
    pyarrow.parquet.write_table(pa.table(cells | codes), tmp_path / "t.parquet")
    columns = COLUMNS | ({"sex": Categorical(("1", "2"), missing="own-level", missing_words=("9",))} if whole else {})
    schema = Schema(dataset="d", columns=columns)
    memory = choose_engine(tmp_path / "t.parquet", "memory").open(schema)
    rows = DuckdbFiles([tmp_path / "t.parquet"], schema, DuckdbSession(10**9))
    grouped = rows.distinct(schema, 100)
    assert grouped is not None
    assert grouped.weights is not None
    for name, column in columns.items():
        found = np.bincount(grouped.codes[name], grouped.weights, column.n_levels)
        assert found.tolist() == memory.counts([name]).tolist()


def test_a_schema_says_it_all_in_toml() -> None:
    schema = Schema(
        dataset="d", columns=COLUMNS, file=FileLayout(";", ",", "cp1252"), ignore=("id", "day"), reviewed=True
    )
    assert schema_from_toml(schema_to_toml(schema)) == schema
    text = '[dataset]\nname = "d"\nreviewed = true\n[file]\nseparator = "\\t"\n[columns.x]\nkind = "boolean"'
    assert schema_from_toml(text).file == FileLayout(separator="\t")
    assert "[file]" not in schema_to_toml(Schema(dataset="d", columns=COLUMNS))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FileLayout(separator=":"), "file.separator"),
        (lambda: FileLayout(decimal="'"), "file.decimal"),
        (lambda: FileLayout(encoding="utf-16"), "file.encoding"),
        (lambda: FileLayout(separator=",", decimal=","), "cannot separate"),
        (lambda: Schema(dataset="d", columns=COLUMNS, ignore=("sex",)), "ignore"),
        (lambda: Categorical(("a", "b"), spellings={"c": ("d",)}), "no level"),
        (lambda: Categorical(("a", "b"), spellings={"a": ("b",)}), "two things"),
        (lambda: Categorical(("a", "b"), spellings={"a": ("x",), "b": ("x",)}), "two things"),
        (lambda: Categorical(("a", "b"), spellings={"a": ("x",)}, missing_words=("x",)), "two things"),
        (lambda: Categorical(("a", "b"), missing_words=("a",)), "two things"),
        (lambda: Boolean(spellings={"true": ("f",)}), "two things"),
        (lambda: Numeric((0, 1), missing_words=("",)), "empty"),
        (lambda: Categorical(("a",), missing_words="NA"), "list of texts"),
    ],
)
def test_contradictions_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        make()


FILES: dict[str, tuple[str, str, FileLayout]] = {
    "commas": ("t.csv", "a,b\n1.5,x\n", FileLayout()),
    "semicolons": ("t.csv", "a;b\n1,5;x\n2,5;y\n", FileLayout(";", ",")),
    "semicolons and points": ("t.csv", "a;b\n1.5;x\n", FileLayout(";")),
    "tabs": ("t.csv", "a\tb\n1\tx\n", FileLayout("\t")),
    "tabs by name": ("t.tsv", "a\tb\n1,5\tx\n", FileLayout(decimal=",")),
    "bars": ("t.csv", "a|b\n1|x\n", FileLayout("|")),
    "commas in names": ("t.csv", '"a, in €";b;c\n1;2;3\n4;5;6\n', FileLayout(";")),
    "semicolons in cells": ("t.csv", 'a,b\n"x;y",1\n"z;y",2\n', FileLayout()),
    "dates and commas": ("t.csv", "day;pay\n01.02.2020;1,5\n02.02.2020;2,5\n", FileLayout(";", ",")),
}


@pytest.mark.parametrize(("name", "content", "wanted"), FILES.values(), ids=list(FILES))
def test_drafts_find_the_layout(tmp_path: Path, name: str, content: str, wanted: FileLayout) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert find_layout(tmp_path / name) == wanted


@pytest.mark.parametrize("given", [[], ["--separator", "|"]])
def test_a_file_of_one_column_is_refused_and_nothing_is_written(tmp_path: Path, given: list[str]) -> None:
    path, schema = tmp_path / "t.csv", tmp_path / "schema.toml"
    path.write_text("".join(f"{SECRET}:{k}\n" for k in range(50)))
    done = CliRunner().invoke(group, ["schema", "draft", str(path), "-o", str(schema), *given])
    assert done.exit_code == 2
    assert "one column only" in done.output
    assert "--separator" in done.output
    assert SECRET not in done.output
    assert not schema.exists()


def test_a_run_names_the_separator_that_the_first_line_shows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ";")
    with pytest.raises(DataError, match=r'write separator = ";" under \[file\]') as caught:
        choose_engine(path).open(Schema(dataset="d", columns=COLUMNS))
    assert "weiblich" not in str(caught.value)


def test_latin_1_only_by_declaration(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", ";", "latin-1")
    with pytest.raises(DataError, match="--encoding"):
        draft_schema(path)
    assert draft_schema(path, encoding="latin-1").file == FileLayout(";", ",", "latin-1")


def test_options_of_draft_and_check(tmp_path: Path) -> None:
    path, schema = write(tmp_path / "t.csv", ";"), tmp_path / "schema.toml"
    run = CliRunner().invoke
    drafted = run(group, ["schema", "draft", str(path), "-o", str(schema), "--separator", ";", "--decimal", ","])
    assert drafted.exit_code == 0, drafted.output
    assert "semicolons between cells, a comma in numbers" in drafted.output
    schema.write_text(schema.read_text(encoding="utf-8").replace('separator = ";"\n', ""), encoding="utf-8")
    assert run(group, ["schema", "check", str(path), "--schema", str(schema)]).exit_code == 2
    checked = run(group, ["schema", "check", str(path), "--schema", str(schema), "--separator", ";"])
    assert checked.exit_code in (0, 1)
    assert "declare it there" in checked.output
