"""`-o` destroys nothing: what is read and the ledger are refused, and what was paid for is kept aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from desk import ROWS, Desk

from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.privacy.ledger import Ledger


@pytest.fixture
def rows(desk: Desk) -> str:
    return desk.write("t.csv", ROWS)


def measure(desk: Desk, rows: str, output: Path, *words: object) -> object:
    schema = desk.path("schema.toml") if desk.path("schema.toml").exists() else desk.write_schema()
    more = () if "--schema" in words else ("--schema", schema)
    return desk.run("measure", rows, *more, "--epsilon", 1, "--noise", "exact", "-o", output, *words)


@pytest.mark.parametrize("name", ["t.csv", "link.csv", "hard.csv", "./folder/../t.csv"])
def test_the_source(name: str, desk: Desk, rows: str) -> None:
    desk.path("folder").mkdir()
    desk.path("link.csv").symlink_to(rows)
    os.link(rows, desk.path("hard.csv"))
    result = measure(desk, rows, desk.path(name))
    desk.check_refused(result, "is a file that this command reads", "choose another place with -o. Nothing was spent")
    assert Path(rows).read_text() == ROWS


@pytest.mark.parametrize("source", ["folder", "folder/*.csv"])
def test_a_file_of_a_source_of_many(source: str, desk: Desk) -> None:
    desk.path("folder").mkdir()
    desk.write("folder/t.csv", ROWS)
    result = measure(desk, str(desk.path(source)), desk.path("folder/t.csv"))
    desk.check_refused(result, "is a file that this command reads", "choose another")


@pytest.mark.parametrize("ledger", ["{}", "sqlite:///{}"])
@pytest.mark.parametrize("end", ["", "-journal"])
def test_the_ledger(ledger: str, end: str, desk: Desk, rows: str) -> None:
    Ledger.open(desk.ledger).close()
    before = desk.ledger.read_bytes()
    place = ledger.format(desk.ledger)
    result = measure(desk, rows, Path(f"{desk.ledger}{end}"), "--ledger", place)
    desk.check_refused(result, "is the ledger", "choose another place")
    assert desk.ledger.read_bytes() == before


def test_a_ledger_in_the_folder_of_results(desk: Desk, rows: str) -> None:
    desk.out.mkdir()
    books = desk.out / "result.json"
    Ledger.open(books).close()
    result = desk.discover(rows, desk.write_schema(), "--ledger", books)
    assert result.exit_code == 2
    assert "is the ledger" in result.stderr
    Ledger.open(books).close()


def test_the_schema_the_plan_and_the_knowledge(desk: Desk, rows: str) -> None:
    schema = desk.write_schema()
    desk.check_refused(measure(desk, rows, Path(schema)), "a file that this command reads", "another place")
    bounds = desk.run("schema", "bounds", rows, "--schema", schema, "--epsilon", 1, "-o", schema, "--force")
    desk.check_refused(bounds, "a file that this command reads", "another place")
    plan = desk.path("plan.json")
    assert desk.run("plan", "--schema", schema, "--epsilon", 1, "--set", "plan=tables", "-o", plan).exit_code == 0
    planned = desk.run("measure", rows, "--plan", plan, "--schema", schema, "-o", plan)
    desk.check_refused(planned, "plan.json is a file that this command reads", "another place")
    over = desk.run("plan", "--schema", schema, "--epsilon", 1, "-o", schema)
    desk.check_refused(over, "schema.toml is a file that this command reads", "another place")
    desk.out.mkdir()
    known = desk.out / "report.html"
    known.write_text('forbidden = [["a", "b"]]\n')
    result = desk.discover(rows, schema, "--knowledge", known)
    assert "report.html is a file that this command reads" in result.stderr
    desk.check_nothing_spent()


def test_other_commands_refuse_what_they_read(desk: Desk, rows: str) -> None:
    assert desk.discover(rows, desk.write_schema()).exit_code == 0
    found = desk.out / "result.json"
    before = found.read_bytes()
    for words in (
        ("export", found, "--to", "dot", "-o", found),
        ("report", found, "--card", found),
        ("combine", desk.out / "evidence.json", desk.out / "evidence.json", "-o", desk.out / "evidence.json"),
        ("schema", "draft", rows, "-o", rows, "--force"),
    ):
        result = desk.run(*words)
        assert result.exit_code == 2, words
        assert "is a file that this command reads" in result.stderr, result.stderr
    assert found.read_bytes() == before


def test_evidence_of_an_earlier_run_is_kept_aside(desk: Desk, rows: str) -> None:
    place = desk.path("evidence.json")
    assert measure(desk, rows, place).exit_code == 0
    first = load_evidence(place)
    again = measure(desk, rows, place)
    assert again.exit_code == 0
    assert "kept the evidence of an earlier run as" in again.stderr
    assert load_evidence(desk.path("evidence-1.json")) == first
    assert load_evidence(place) != first
    # a free command does not destroy it either
    assert desk.discover(rows, desk.path("schema.toml")).exit_code == 0
    assert desk.run("export", desk.out / "result.json", "--to", "dot", "-o", place).exit_code == 0
    assert load_evidence(desk.path("evidence-2.json")).releases


def test_a_pipe_and_a_link_to_nothing(desk: Desk, rows: str) -> None:
    os.mkfifo(desk.path("pipe.json"))
    desk.check_refused(measure(desk, rows, desk.path("pipe.json")), "is a pipe or a device", "choose another place")
    desk.path("link.json").symlink_to(desk.path("nowhere.json"))
    desk.check_refused(measure(desk, rows, desk.path("link.json")), "is a link to nothing", "remove it or choose")
    assert desk.path("link.json").is_symlink()
    assert not desk.path("nowhere.json").exists()


def test_a_link_stays_a_link(desk: Desk, rows: str) -> None:
    desk.write("real.json", "{}")
    desk.path("link.json").symlink_to(desk.path("real.json"))
    assert measure(desk, rows, desk.path("link.json")).exit_code == 0
    assert desk.path("link.json").is_symlink()
    assert load_evidence(desk.path("real.json")).releases


def test_a_failed_write_leaves_the_old_file(desk: Desk, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = desk.write("evidence.json", "{}")

    def fail(evidence: Evidence, path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Evidence, "save", fail)
    assert measure(desk, rows, Path(place)).exit_code == 2
    assert Path(place).read_text() == "{}"
    assert not list(desk.folder.glob(".part-*"))
