"""`--engine` on the command line: the same evidence from every engine."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.data.reading import read_source
from dagveil.data.schema import save_schema
from dagveil.evidence.bundle import load_evidence
from dagveil.examples.networks import load_network, network_schema

pytest.importorskip("duckdb")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    run("sample", "asia", "--rows", "3000", "--seed", "3", "-o", "asia.csv")
    save_schema(network_schema(load_network("asia"), 3000), "schema.toml")
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(group, list(words))
    assert result.exit_code == code, result.output
    return result.output


def measure(file: str, *words: str) -> object:
    seeded = ("--noise", "seeded", "--seed", "5", "--epsilon", "1", "-o", "evidence.json")
    run("measure", file, "--schema", "schema.toml", *seeded, *words)
    return load_evidence("evidence.json").releases


def test_every_engine_releases_the_same(place: Path) -> None:
    wanted = measure("asia.csv", "--engine", "memory")
    assert measure("asia.csv", "--engine", "duckdb", "--memory-limit", "1GB") == wanted
    assert measure("asia.csv") == wanted
    table = read_source("asia.csv")
    half = table.num_rows // 2
    (place / "folder").mkdir()
    import pyarrow.parquet

    pyarrow.parquet.write_table(table.slice(0, half), "folder/a.parquet")
    pyarrow.parquet.write_table(table.slice(half), "folder/b.parquet")
    assert measure("folder", "--engine", "duckdb") == wanted
    assert measure("folder/*.parquet", "--engine", "memory") == wanted
    with sqlite3.connect("asia.db") as connection:
        names = ", ".join(f'"{name}"' for name in table.column_names)
        connection.execute(f"CREATE TABLE patients ({names})")
        marks = ", ".join("?" * table.num_columns)
        connection.executemany(
            f"INSERT INTO patients VALUES ({marks})", [tuple(row.values()) for row in table.to_pylist()]
        )
    assert measure("asia.db", "--table", "patients") == wanted


def test_what_makes_no_sense_is_refused_before_the_ledger(place: Path) -> None:
    run_words = ("--schema", "schema.toml", "--epsilon", "1")
    told = run("discover", "asia.csv", *run_words, "--memory-limit", "lots", code=2)
    assert "no amount of memory" in told
    told = run("discover", "asia.csv", *run_words, "--engine", "spark", code=2)
    assert "needs a frame of Spark" in told
    told = run("discover", "spark://127.0.0.1:1", *run_words, code=2)
    assert "--table" in told
    assert not (place / "ledger.sqlite").exists()
    told = run("discover", "asia.csv", "--table", "gone", *run_words, code=2)
    assert "no table 'gone'" in told


def test_plans_know_the_engine(place: Path) -> None:
    memory = run("plan", "--schema", "schema.toml", "--epsilon", "1", "--site", "here=10000000000")
    assert "memory engine" in " ".join(memory.split())
    assert "--engine duckdb" in memory
    streamed = run("plan", "--schema", "schema.toml", "--epsilon", "1", "--site", "h=10000000000", "--engine", "duckdb")
    assert "duckdb engine" in " ".join(streamed.split())
    assert "Warning" not in streamed


def test_bench_scale_prints_ratios(place: Path) -> None:
    told = run("bench", "scale", "--rows", "3000", "--columns", "4", "--memory-limit", "200MB", "-o", "scale.md")
    assert "beside DuckDB's own scan" in told
    assert (place / "scale.md").read_text().count("| ") > 10
    assert not list(place.glob("dagveil-scale-*"))
