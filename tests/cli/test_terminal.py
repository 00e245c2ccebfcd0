"""Names from foreign files and ledgers never steer the terminal."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from desk import ROWS, SOURCE, Desk

from dagveil.cli.failure import PlainGroup
from dagveil.cli.main import group
from dagveil.cli.options import describe
from dagveil.data.column import Boolean, Categorical
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.files import seal
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Mechanism
from dagveil.local.reports import LineFormat, check_labels
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import SparseVectorRound
from dagveil.privacy.ledger import Ledger
from dagveil.privacy.ledger.account import Account, Spending, Terms

ESCAPES = "a\x1b[2J\x9b1m\u202eb"
STEERING = ("\x1b", "\x9b", "\u202e")


def watch(*words: object) -> str:
    """Run a command on a terminal and return all that reached it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from dagveil.cli.main import main; main()", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "TERM": "dumb", "NO_COLOR": "1", "PYTHONUTF8": "1"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the last writer has left
            break
        if not piece:
            break
        shown += piece
    process.wait()
    os.close(ours)
    return shown.decode(errors="replace")


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a result whose columns have hostile names, sealed."""
    desk = Desk(tmp_path_factory.mktemp("forged"))
    assert desk.discover(desk.write("t.csv", ROWS), desk.write_schema()).exit_code == 0
    text = (desk.out / "result.json").read_text().replace('"a"', json.dumps(ESCAPES))
    path = desk.path("forged.json")
    path.write_text(json.dumps(seal(json.loads(text))))
    return path


@pytest.mark.parametrize("form", ["dot", "gml", "networkx-json", "dagitty", "graphml", "pgmpy", "causal-learn"])
def test_exports_on_a_terminal(forged: Path, form: str) -> None:
    shown = watch("export", forged, "--to", form)
    assert shown.strip()
    assert not any(sign in shown for sign in STEERING)


def test_exports_for_programs_stay_exact(forged: Path) -> None:
    out = forged.with_suffix(".dot")
    assert CliRunner().invoke(group, ["export", str(forged), "--to", "dot", "-o", str(out)]).exit_code == 0
    assert ESCAPES in out.read_bytes().decode()


def test_comparisons(forged: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.dot"
    other.write_text("digraph { c -> d }")
    for words in (("compare", forged, forged), ("compare", forged, forged, "--json"), ("compare", forged, other)):
        shown = watch(*words)
        assert shown.strip()
        assert not any(sign in shown for sign in STEERING)


def test_errors() -> None:
    for name in (f"{ESCAPES}.json", f"{ESCAPES}.csv"):
        shown = watch("discover", name)
        assert "Error" in shown
        assert not any(sign in shown for sign in STEERING)


def test_accounts() -> None:
    words = describe(Account(ESCAPES, None, Spending(), unbounded=False))
    assert not any(sign in words for sign in STEERING)


def test_records_on_a_terminal(tmp_path: Path) -> None:
    column = Categorical(levels=(ESCAPES, ESCAPES + "c"), outside=ESCAPES)
    schema = Schema(dataset="demo", columns={"x": column, "y": Boolean("false")})
    plan_protocol(schema, Mechanism.RESPONSE, epsilon=1.0).save(tmp_path / "p.json")
    (tmp_path / "r.jsonl").write_text('{"y": true}\n' * 5)
    shown = watch("local", "randomise", tmp_path / "r.jsonl", "--protocol", tmp_path / "p.json")
    assert shown.count('"y"') == 5
    assert not any(sign in shown for sign in STEERING)


@pytest.mark.parametrize("label", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", '-HYPERLINK("x")', "\tx"])
def test_no_formula_is_written_as_csv(label: str) -> None:
    check_labels(LineFormat.JSON, {"x": [label]})
    for labels in ({"x": ["no", label]}, {label: ["no"]}):
        with pytest.raises(DataError, match="spreadsheet would compute"):
            check_labels(LineFormat.CSV, labels)


def test_signs_and_numbers_are_no_formulas() -> None:
    check_labels(LineFormat.CSV, {"rhesus": ["+", "-"], "t": ["-1", "+2.5", "-3e4", "-inf to 0"]})


def test_ledgers(tmp_path: Path) -> None:
    """Whoever may write an entry names methods, units, labels, and by hand anything."""
    place = tmp_path / "ledger.sqlite"
    books = Ledger.open(place, analyst="ann")
    books.set_limit("visits", "ben", Budget.of(1, 0))
    terms = Terms(Relation.ADD_REMOVE, ESCAPES)
    with books.reserve("visits", Budget.of(1, 0), terms, "pure accounting", ESCAPES, "s") as run:
        run.record(SparseVectorRound(ESCAPES, Fraction(1, 2)))
    books.close()
    with sqlite3.connect(place) as raw:
        raw.execute("DROP TRIGGER dagveil_no_update")
        raw.execute("UPDATE dagveil_entries SET dataset = ?, analyst = ? WHERE dataset <> ''", (ESCAPES, ESCAPES))
        raw.execute("UPDATE dagveil_entries SET body = replace(body, 'ben', ?) WHERE kind = 'limit'", ("b\x9b2Jn",))
    raw.close()
    for command in ("show", "history", "verify"):
        shown = watch("budget", command, "--ledger", place)
        assert "[2" in shown, command
        assert not any(sign in shown for sign in STEERING), command


def test_comparisons_that_differ(forged: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.dot"
    # json writes the name as DOT reads it, except for the backslash before a control sign
    other.write_text(f'digraph {{ "{ESCAPES}"; "b" }}')
    shown = watch("compare", forged, other)
    assert "only here: 1 edge" in shown
    assert not any(sign in shown for sign in STEERING)


def test_paths_of_errors() -> None:
    @click.command()
    def stumble() -> None:
        raise OSError(2, "No such file", ESCAPES)

    done = CliRunner().invoke(PlainGroup(commands={"stumble": stumble}), ["stumble"])
    assert done.exit_code == 2
    assert "No such file" in done.stderr
    assert not any(sign in done.stderr for sign in STEERING)
