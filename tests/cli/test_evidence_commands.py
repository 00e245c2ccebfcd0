"""`dagveil tables` and `dagveil synthesize`."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import SECRET, Desk
from pyarrow import csv, parquet

from dagveil.evidence.bundle import load_evidence


@pytest.fixture
def evidence(desk: Desk) -> Path:
    rows = "a,b\n" + "no,no\nyes,yes\nyes,no\n" * 200 + f"{SECRET},no\n"
    path = desk.path("evidence.json")
    schema = desk.write_schema(facts="nominal_rows = 600")
    done = desk.run("measure", desk.write("rows.csv", rows), "--schema", schema, "--epsilon", 2, "-o", path)
    assert done.exit_code == 0, done.output
    return path


def test_table_one_and_a_pair(desk: Desk, evidence: Path) -> None:
    printed = desk.run("tables", evidence)
    assert printed.exit_code == 0, printed.output
    assert "standard error" in printed.output
    assert SECRET not in printed.output
    pair = desk.run("tables", evidence, "--columns", "a,b", "-o", desk.path("pair.csv"))
    assert pair.exit_code == 0, pair.output
    written = csv.read_csv(desk.path("pair.csv"))
    assert written["count"].to_pylist() == pytest.approx(
        load_evidence(evidence).table("a", "b").counts.ravel().tolist()
    )
    twice = desk.run("tables", evidence, "--columns", "a", "--columns", "b", "-o", desk.path("pair.parquet"))
    assert twice.exit_code == 0, twice.output
    assert parquet.read_table(desk.path("pair.parquet")).num_rows == written.num_rows


def test_bad_questions_are_refused(desk: Desk, evidence: Path) -> None:
    for words, told in (
        (("--columns", "a,c"), "no column is called 'c'"),
        (("-o", evidence), "must end in .csv, .parquet or .svg"),
        (("-o", desk.path("t.xlsx")), "must end in .csv, .parquet or .svg"),
    ):
        done = desk.run("tables", evidence, *words)
        assert done.exit_code == 2
        assert told in done.output


def test_synthetic_rows_fit_their_schema(desk: Desk, evidence: Path) -> None:
    done = desk.run("synthesize", evidence, "--rows", 300, "-o", desk.path("rows.synthetic.csv"))
    assert done.exit_code == 0, done.output
    assert "marked by the column dagveil_synthetic" in done.output
    rows, schema = desk.path("rows.synthetic.csv"), desk.path("rows.synthetic.toml")
    assert rows.read_text().count("true") == 300
    found = desk.run("discover", rows, "--schema", schema, "--epsilon", 5, "-o", desk.out)
    assert found.exit_code == 0, found.output
    assert desk.run("synthesize", evidence, "-o", desk.path("rows.xlsx")).exit_code == 2
