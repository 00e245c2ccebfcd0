"""What was paid for is never lost: kills, closed pipes, locked ledgers, full disks and Ctrl-C, as users meet them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from desk import ROWS, SOURCE, TWO_NUMBERS, Desk

from dagveil.curator.journal import Journal
from dagveil.errors import LedgerError
from dagveil.evidence.bundle import load_evidence
from dagveil.privacy.ledger import RunState
from dagveil.privacy.ledger.store import SqlLedger

KILL = "os.kill(os.getpid(), signal.SIGKILL)"
KILLED = {
    "before the first charge": f"SqlLedger.record_event = lambda *a: {KILL}",
    "after the charge": f"ExactNoise.discrete_gaussian = lambda *a: {KILL}",
    "after the draw": f"Journal.add = lambda *a: {KILL}",
    "after the answer": f"add = Journal.add\nJournal.add = lambda *a: (add(*a), {KILL})",
    "before the run is closed": f"SqlLedger.close_run = lambda *a: {KILL}",
    "before the evidence is saved": f"Evidence.save = lambda *a: {KILL}",
    "in the middle of saving": f"Evidence.save = lambda self, path: (path.write_text('half'), {KILL})",
    "before it has its name": f"os.replace = lambda *a: {KILL}",
    "before the recovery file is gone": "unlink = output.Path.unlink\noutput.Path.unlink = lambda self, **k: "
    f"{KILL} if self.name == 'recovery.jsonl' else unlink(self, **k)",
}
PRELUDE = textwrap.dedent(
    """
    import os, signal
    from dagveil.cli import output
    from dagveil.curator.journal import Journal
    from dagveil.evidence.bundle import Evidence
    from dagveil.privacy.ledger.store import SqlLedger
    from dagveil.privacy.noise.exact import ExactNoise
    """
)


@pytest.fixture
def words(desk: Desk) -> tuple[object, ...]:
    """Return the words of a run of three questions."""
    return (
        *("discover", desk.write("t.csv", ROWS), "--schema", desk.write_schema(), "--epsilon", 1, "--set"),
        *("plan=pairs", "--noise", "exact", "--redraws", 0, "-o", desk.out),
    )


@pytest.mark.parametrize("moment", KILLED)
def test_killed(moment: str, desk: Desk, words: tuple[object, ...]) -> None:
    killed = desk.spawn(*words, prelude=PRELUDE + KILLED[moment])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (run,) = desk.history()
    recovery, evidence = desk.out / "recovery.jsonl", desk.out / "evidence.json"
    assert recovery.exists()
    again = desk.run(*words)
    assert again.exit_code == 0, again.output
    assert "going on with run 1, which stopped" in again.stderr
    assert not recovery.exists()
    (finished,) = desk.history()
    assert finished.state is RunState.CLOSED
    assert finished.events[: len(run.events)] == run.events
    assert load_evidence(evidence).receipt.events == finished.events
    assert not list(desk.out.glob(".part-*"))


def test_another_command_is_told(desk: Desk, words: tuple[object, ...]) -> None:
    desk.spawn(*words, prelude=PRELUDE + KILLED["after the answer"])
    other = desk.run(*words, "--epsilon", "0.5")
    assert other.exit_code == 2
    assert "recovery.jsonl keeps what run 1 of measure on 'patients' released before it stopped" in other.stderr
    assert "repeat its command to finish it at no further cost, or delete the file" in other.stderr
    assert len(desk.history()) == 1


@pytest.mark.parametrize("command", ["measure", "direction", "schema bounds"])
def test_other_commands_go_on(command: str, desk: Desk) -> None:
    rows = "a,b\n" + "".join(f"{x / 100},{(x * 37 % 100) / 100}\n" for x in range(-100, 100))
    columns = TWO_NUMBERS.replace("bounds = [-5.0, 5.0]\n", "") if command == "schema bounds" else TWO_NUMBERS
    file, schema = desk.write("t.csv", rows), desk.write_schema(columns, facts="nominal_rows = 200")
    target = desk.path("found.toml" if command == "schema bounds" else "found.json")
    more = ("--columns", "a,b") if command == "direction" else ()
    words = (*command.split(), file, "--schema", schema, "--epsilon", 20, "--noise", "exact", "-o", target, *more)
    killed = desk.spawn(*words, prelude=PRELUDE + KILLED["after the answer"])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert desk.path("found.recovery.jsonl").exists()
    assert not target.exists()
    again = desk.run(*words)
    assert again.exit_code == 0, again.output
    assert target.exists()
    assert not desk.path("found.recovery.jsonl").exists()
    (run,) = desk.history()
    assert run.state is RunState.CLOSED


@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_a_closed_pipe(stream: str, desk: Desk, words: tuple[object, ...]) -> None:
    """`dagveil discover … | true`: whoever reads has left before the first word."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "dagveil.cli.main", *map(str, words)],
        stdout=write if stream != "stderr" else subprocess.DEVNULL,
        stderr=write if stream != "stdout" else subprocess.DEVNULL,
        env={**os.environ, "DAGVEIL_LEDGER": str(desk.ledger), "PYTHONPATH": SOURCE},
        check=False,
        timeout=120,
    )
    os.close(write)
    (run,) = desk.history()
    assert run.events
    assert load_evidence(desk.out / "evidence.json").receipt.events == run.events
    assert done.returncode in (0, 1)


def test_a_ledger_that_is_held_from_the_last_charge_on(
    desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(*_: object) -> None:
        raise LedgerError("the ledger is held by another process; nothing was drawn.")

    with monkeypatch.context() as context:
        context.setattr(SqlLedger, "close_run", held)
        context.setattr(SqlLedger, "account", held)
        with pytest.warns(UserWarning, match="run 1 could not be closed"):
            result = desk.run(*words)
    assert result.exit_code == 0, result.output
    assert "nothing was drawn" not in result.output
    assert "the account cannot be read just now" in result.stderr
    (run,) = desk.history()
    assert load_evidence(desk.out / "evidence.json").receipt.events == run.events


def test_a_ledger_that_is_held_from_the_first_charge_on(
    desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Journal.add

    def held(*_: object) -> None:
        raise LedgerError("the ledger is held by another process; nothing was drawn. Wait for the other run.")

    def hold(journal: Journal, *answer: object) -> None:
        add(journal, *answer)  # type: ignore[arg-type]
        context.setattr(SqlLedger, "record_event", held)

    with monkeypatch.context() as context:
        context.setattr(Journal, "add", hold)
        result = desk.run(*words)
    assert result.exit_code == 2
    assert "nothing more was drawn" in result.stderr
    assert "Run 1 stays open and what it released is kept in" in result.stderr
    assert desk.run(*words).exit_code == 0
    assert len(desk.history()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_disk_that_fills_up(desk: Desk, words: tuple[object, ...]) -> None:
    """The recovery file cannot take an answer, so nobody is told it; with room again the run goes on."""
    fill = """
    write = os.write
    def full(handle, content):
        if b"digest" in bytes(content[-100:]):
            write(handle, content[:5])
            raise OSError(28, "No space left on device")
        return write(handle, content)
    os.write = full
    """
    result = desk.spawn(*words, prelude=PRELUDE + textwrap.dedent(fill))
    assert result.returncode == 2, result.stderr
    assert "No space left on device; the last answer was not told to anybody. Make room" in result.stderr
    assert "the same command finishes it at no further cost" in result.stderr
    again = desk.run(*words)
    assert again.exit_code == 0, again.output
    (run,) = desk.history()
    assert load_evidence(desk.out / "evidence.json").receipt.events == run.events


INTERRUPTED = {
    "plainly, before the first charge": ("SqlLedger.history = lambda *a: ring()", False),
    "in a callback that swallows it": ("before('history', swallow)", False),
    "within the reservation": ("before('reserve', ring)", False),
    "within a charge": ("before('record_event', ring)", True),
    "in a callback after a charge": ("add = Journal.add\nJournal.add = lambda *a: (add(*a), swallow())", True),
}
RING = """
def ring():
    signal.raise_signal(signal.SIGINT)

class Callback:
    def __del__(self):
        ring()

def swallow():
    Callback()

def before(name, first):
    step = getattr(SqlLedger, name)
    setattr(SqlLedger, name, lambda *a, **k: (first(), step(*a, **k))[1])
"""


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_interrupted(moment: str, desk: Desk, words: tuple[object, ...]) -> None:
    patch, is_charged = INTERRUPTED[moment]
    result = desk.spawn(*words, prelude=PRELUDE + RING + patch)
    assert result.returncode == 130, result.stderr
    assert "Stopped." in result.stderr
    (run,) = desk.history()
    assert bool(run.events) == is_charged
    if is_charged:
        assert f"Run {run.id} stays open and what it released is kept in" in result.stderr
        assert desk.run(*words).exit_code == 0
        (run,) = desk.history()
        assert run.state is RunState.CLOSED
    else:
        assert run.state is RunState.RELEASED
        assert not (desk.out / "recovery.jsonl").exists()


def test_interrupted_twice(desk: Desk, words: tuple[object, ...]) -> None:
    patch = "SqlLedger.record_event = lambda *a: (ring(), ring())"
    result = desk.spawn(*words, prelude=PRELUDE + RING + patch)
    assert result.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("more", "words_of"),
    [(("--search", "notears"), "measure"), (("--search", "notears", "--method", "lap-mech", "--set", ""), "lap-mech")],
)
def test_a_search_that_cannot_be_is_refused_before_the_charge(more: tuple[str, ...], words_of: str, desk: Desk) -> None:
    file, schema = desk.write("t.csv", ROWS), desk.write_schema()
    more = tuple(word for word in more if word not in ("--set", ""))
    result = desk.discover(file, schema, *more)
    desk.check_refused(result, f"{words_of} releases no second moments", "nothing was charged. Search by tests")


@pytest.mark.parametrize("rule", ["notears", "score"])
def test_features_are_searched_by_tests_only(rule: str, desk: Desk) -> None:
    file, schema = desk.write("t.csv", "a,b\n1,2\n"), desk.write_schema(TWO_NUMBERS)
    result = desk.discover(file, schema, "--method", "measure-features", "--search", rule)
    desk.check_refused(result, "measure-features releases no second moments", "Search by tests, or take")


OTHERS = {
    "measure": ("measure", "--set", "plan=pairs"),
    "ask": ("discover", "--method", "svt-pc"),
    "direction": ("direction", "--columns", "a,b"),
    "bounds": ("schema", "bounds", "--columns", "a,b"),
}


def write_run(desk: Desk, name: str) -> tuple[tuple[object, ...], Path]:
    """Return the words of a command that spends, and the file that it writes."""
    rows, columns = ROWS, {}
    if name in ("direction", "bounds"):
        rows = "a,b\n" + "".join(f"{x / 100},{(x * 37 % 100) / 100}\n" for x in range(-100, 100))
        columns = {"columns": TWO_NUMBERS}
    file, schema = desk.write("t.csv", rows), desk.write_schema(**columns, facts="nominal_rows = 200")
    out = desk.out if name == "ask" else desk.path("found.toml" if name == "bounds" else "found.json")
    command = OTHERS[name]
    split = 2 if name == "bounds" else 1
    words = (*command[:split], file, *command[split:], "--schema", schema, "--epsilon", 20, "--noise", "exact")
    return (*words, "-o", out), out / "result.json" if name == "ask" else out


@pytest.mark.parametrize("name", OTHERS)
def test_every_command_saves_before_it_tells(name: str, desk: Desk) -> None:
    """Nobody reads its errors: the account is told there, after what was paid for has its name."""
    words, target = write_run(desk, name)
    read, write = os.pipe()
    os.close(read)
    subprocess.run(
        [sys.executable, "-m", "dagveil.cli.main", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=write,
        env={**os.environ, "DAGVEIL_LEDGER": str(desk.ledger), "PYTHONPATH": SOURCE},
        check=False,
        timeout=120,
    )
    os.close(write)
    (run,) = desk.history()
    assert run.events
    assert target.exists()
    assert not list(desk.folder.rglob("*recovery.jsonl"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", OTHERS)
def test_every_command_is_stopped(name: str, number: int, desk: Desk) -> None:
    """Even where a library swallows the signal, and however it is sent."""
    words, target = write_run(desk, name)
    once = f"""
def ring():
    signal.raise_signal({int(number)})

rung = []
before("history", lambda: rung or (rung.append(True), swallow()))
"""
    result = desk.spawn(*words, prelude=PRELUDE + RING + once)
    assert result.returncode == 130, result.stderr
    (run,) = desk.history()
    assert run.state is RunState.RELEASED
    assert not target.exists()


def test_a_ledger_that_cannot_even_be_read_after_a_charge(
    desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the run was charged is not known then, so what it released is kept."""

    def held(*_: object) -> None:
        raise LedgerError("the ledger is held by another process; nothing was drawn.")

    add = Journal.add

    def hold(journal: Journal, *answer: object) -> None:
        add(journal, *answer)  # type: ignore[arg-type]
        for name in ("record_event", "history", "close_run"):
            context.setattr(SqlLedger, name, held)

    with monkeypatch.context() as context:
        context.setattr(Journal, "add", hold)
        result = desk.run(*words)
    assert result.exit_code == 2
    assert (desk.out / "recovery.jsonl").exists()
    assert "the same command finishes it at no further cost" in result.stderr
    assert desk.run(*words).exit_code == 0
    assert len(desk.history()) == 1


def test_a_disk_that_is_full_when_the_evidence_is_saved(
    desk: Desk, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr("dagveil.evidence.bundle.Evidence.save", fail)
        result = desk.run(*words)
    assert result.exit_code == 2
    assert "What was paid for is kept in" in result.stderr
    assert desk.run(*words).exit_code == 0
    assert len(desk.history()) == 1


def test_a_free_search_tells_of_a_run_that_stopped_there(desk: Desk, words: tuple[object, ...]) -> None:
    assert desk.run(*words).exit_code == 0
    evidence = desk.path("earlier.json")
    (desk.out / "evidence.json").rename(evidence)
    desk.spawn(*words, prelude=PRELUDE + KILLED["after the answer"])
    searched = desk.run("discover", evidence, "--redraws", 0, "-o", desk.out)
    assert searched.exit_code == 0, searched.output
    assert "recovery.jsonl keeps what run 2 of measure on 'patients' released before it stopped" in searched.stderr


def test_a_run_that_is_stopped_before_it_is_noted_is_named(desk: Desk, words: tuple[object, ...]) -> None:
    patch = "SqlLedger.history = lambda *a: ring()\nSqlLedger.close_run = lambda *a: None"
    result = desk.spawn(*words, prelude=PRELUDE + RING + patch)
    assert result.returncode == 130, result.stderr
    assert "This was run 1; `dagveil budget release` gives back what was only reserved" in result.stderr
