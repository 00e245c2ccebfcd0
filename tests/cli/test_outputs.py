"""`-o` destroys nothing: what is read and the ledger are refused, and what was paid for is kept aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from desk import ROWS, TWO_COLUMNS, TWO_NUMBERS, Desk

from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.local.protocol import load_protocol
from dagveil.local.store import ReportStore
from dagveil.privacy.ledger import Ledger
from dagveil.runs.recovery import save_whole


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
    assert desk.run("plan", "--schema", schema, "--epsilon", 1, "--set", "plan=pairs", "-o", plan).exit_code == 0
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


@pytest.mark.parametrize("target", ["t.csv", "schema.toml", "ledger.sqlite"])
@pytest.mark.parametrize("command", ["direction", "bounds", "planned"])
def test_every_run_spares_what_it_reads_and_the_ledger(command: str, target: str, desk: Desk) -> None:
    file = desk.write("t.csv", "a,b\n" + "0.1,0.2\n0.3,-0.4\n" * 100)
    columns = TWO_COLUMNS if command == "planned" else TWO_NUMBERS
    schema = desk.write_schema(columns, facts="nominal_rows = 200")
    Ledger.open(desk.ledger).close()
    before = desk.path(target).read_bytes()
    words: tuple[object, ...] = ("--schema", schema, "--noise", "exact", "-o", desk.path(target))
    if command == "planned":
        planned = desk.run(
            "plan", "--schema", schema, "--epsilon", 1, "--set", "plan=pairs", "-o", desk.path("plan.json")
        )
        assert planned.exit_code == 0, planned.output
        words = ("measure", file, "--plan", desk.path("plan.json"), *words)
    elif command == "direction":
        words = ("direction", file, "--columns", "a,b", "--epsilon", 1, *words)
    else:
        words = ("schema", "bounds", file, "--columns", "a,b", "--epsilon", 1, "--force", *words)
    desk.check_refused(desk.run(*words), r"is (a file that this command reads|the ledger)", "choose another place")
    assert desk.path(target).read_bytes() == before


def test_local_commands_refuse_what_they_read(desk: Desk) -> None:
    schema, protocol, reports = desk.write_schema(), desk.path("p.json"), desk.path("r.csv")
    plan = ("local", "plan", "--schema", schema, "--mechanism", "response", "--epsilon", 4, "--force", "-o")
    assert desk.run(*plan, protocol).exit_code == 0
    desk.write("records.csv", "a,b\n" + "no,yes\n" * 30)
    drawn = desk.run("local", "randomise", desk.path("records.csv"), "--protocol", protocol, "-o", reports)
    assert drawn.exit_code == 0, drawn.output
    store = desk.path("store.csv")
    ReportStore.open(store, load_protocol(protocol)).close()
    desk.out.mkdir()
    known = desk.out / "graph.svg"
    known.write_text('forbidden = [["a", "b"]]\n')
    kept = {path: path.read_bytes() for path in (Path(schema), protocol, reports, store, known)}
    read = ("--protocol", protocol)
    for words in (
        (*plan, schema),
        ("local", "recover", reports, *read, "--columns", "a", "-o", reports),
        ("local", "recover", reports, *read, "--columns", "a", "-o", protocol),
        ("local", "discover", reports, *read, "--knowledge", known, "-o", desk.out),
        ("local", "export", "--store", store, "-o", store),
    ):
        result = desk.run(*words)
        assert result.exit_code == 2, words
        assert "is a file that this command reads" in result.stderr, (words, result.stderr)
    assert {path: path.read_bytes() for path in kept} == kept


def test_damaged_evidence_is_kept_aside(desk: Desk, rows: str) -> None:
    """Whatever it was, nothing else could give it back."""
    place = desk.write("evidence.json", '{"format": "dagveil-evidence", "receipt": {"epsi')
    before = Path(place).read_bytes()
    assert measure(desk, rows, Path(place)).exit_code == 0
    assert desk.path("evidence-1.json").read_bytes() == before


def test_free_searches_refuse_their_evidence(desk: Desk, rows: str) -> None:
    desk.out.mkdir()
    evidence = desk.out / "result.json"
    assert measure(desk, rows, evidence).exit_code == 0
    before = evidence.read_bytes()
    result = desk.run("discover", evidence, "--redraws", 0, "-o", desk.out)
    assert result.exit_code == 2
    assert "is a file that this command reads" in result.stderr
    assert evidence.read_bytes() == before


def test_files_are_on_disk_before_they_have_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(handle: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        sync(handle)

    def note_name(old: Path, new: Path) -> None:
        done.append(f"name {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_name)
    with save_whole(tmp_path / "a.txt") as part:
        part.write_text("whole")
    assert done == ["sync .part-a.txt", "name a.txt", f"sync {tmp_path.name}"]


@pytest.mark.parametrize("name", ["evidence", "evidence.dat", "evidence.txt"])
def test_evidence_under_any_name_is_kept_aside(name: str, desk: Desk, rows: str) -> None:
    place = desk.path(name)
    assert measure(desk, rows, place).exit_code == 0
    first = place.read_bytes()
    assert measure(desk, rows, place).exit_code == 0
    assert first in [path.read_bytes() for path in desk.folder.iterdir() if path.is_file() and path != place]


@pytest.mark.parametrize("command", ["export", "card", "draft", "plan", "sample"])
def test_free_commands_spare_the_ledger(command: str, desk: Desk, rows: str) -> None:
    schema = desk.write_schema()
    assert desk.discover(rows, schema).exit_code == 0
    before = desk.ledger.read_bytes()
    found = desk.out / "result.json"
    words = {
        "export": ("export", found, "--to", "dot", "-o", desk.ledger),
        "card": ("report", found, "--card", desk.ledger),
        "draft": ("schema", "draft", rows, "-o", desk.ledger, "--force"),
        "plan": ("plan", "--schema", schema, "--epsilon", 1, "--set", "plan=pairs", "-o", desk.ledger),
        "sample": ("sample", "asia", "-o", desk.ledger.with_suffix(".csv")),
    }[command]
    if command == "sample":
        desk.ledger.rename(desk.ledger.with_suffix(".csv"))
        desk.ledger = desk.ledger.with_suffix(".csv")
    result = desk.run(*words)
    assert desk.ledger.read_bytes() == before
    assert result.exit_code == 2, result.output
    assert "is the ledger" in result.stderr


def test_randomise_spares_its_protocol(desk: Desk) -> None:
    schema, protocol = desk.write_schema(), desk.path("p.jsonl")
    plan = ("local", "plan", "--schema", schema, "--mechanism", "response", "--epsilon", 4, "-o", protocol)
    assert desk.run(*plan).exit_code == 0
    before = protocol.read_bytes()
    records = desk.write("records.csv", "a,b\n" + "no,yes\n" * 30)
    result = desk.run("local", "randomise", records, "--protocol", protocol, "-o", protocol)
    assert protocol.read_bytes() == before
    assert result.exit_code == 2


def test_an_exploration_spares_its_schema(desk: Desk) -> None:
    schema = desk.write_schema(name="schema.json")
    before = Path(schema).read_bytes()
    words = ("--explore", "--epsilons", "1", "--seconds", 1)
    result = desk.run("plan", "--schema", schema, *words, "-o", schema)
    assert Path(schema).read_bytes() == before
    assert result.exit_code == 2
