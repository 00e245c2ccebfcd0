"""What nobody foresaw: no traceback, no data; and help that helps."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from desk import ROWS, SECRET, Desk

from dagveil._version import __version__
from dagveil.cli.main import group
from dagveil.evidence.bundle import Evidence, load_evidence


def list_commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from list_commands(inner, (*path, name))


COMMANDS = dict(list_commands(group))


class TestUnexpected:
    @pytest.fixture
    def words(self, desk: Desk) -> tuple[object, ...]:
        file, schema = desk.write("t.csv", ROWS), desk.write_schema()
        return ("discover", file, "--schema", schema, "--epsilon", 1, "--redraws", 0, "-o", desk.out)

    @pytest.fixture(params=[ValueError, KeyError, OSError, RuntimeError, MemoryError, UnicodeError])
    def broken(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
        def fail(*_: object, **__: object) -> None:
            raise request.param(f"could not convert {SECRET}")

        monkeypatch.setattr("dagveil.runs.discovery.measure_source", fail)
        return request.param

    def test_the_message_is_withheld(self, desk: Desk, words: tuple[object, ...], broken: type[Exception]) -> None:
        result = desk.run(*words)
        assert result.exit_code == 3
        assert result.stdout == ""
        assert f"({broken.__name__})" in result.stderr
        assert "DAGVEIL_DEBUG=1" in result.stderr
        assert SECRET not in result.output
        assert "Traceback" not in result.output
        desk.check_nothing_spent()

    def test_debugging_shows_it(self, desk: Desk, words: tuple[object, ...], broken: type[Exception]) -> None:
        result = desk.run(*words, DAGVEIL_DEBUG="1")
        assert isinstance(result.exception, broken)
        assert SECRET in str(result.exception)

    def test_a_refusal_is_no_bug_also_when_debugging(self, desk: Desk, words: tuple[object, ...]) -> None:
        result = desk.run(*words, "--delta", 0, "--set", "plan=pairs", DAGVEIL_DEBUG="1")
        desk.check_refused(result, "needs delta above 0", "1e-6")

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, click.Abort])
    def test_stopped(
        self, desk: Desk, words: tuple[object, ...], kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(*_: object, **__: object) -> None:
            raise kind

        monkeypatch.setattr("dagveil.cli.discover.search_evidence", stop)
        result = desk.run(*words, "--noise", "exact")
        assert result.exit_code == 130
        assert "Stopped. What was already charged stays charged" in result.stderr
        assert (desk.out / "evidence.json").exists()
        (run,) = desk.history()
        assert run.events


@pytest.mark.parametrize("command", ["measure", "discover"])
def test_paid_evidence_survives_a_full_disk(desk: Desk, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(evidence: Evidence, path: str | Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    target = desk.out if command == "discover" else desk.out / "evidence.json"
    words = ("--schema", desk.write_schema(), "--epsilon", 1, "--noise", "exact", "-o", target)
    with monkeypatch.context() as full:
        full.setattr(Evidence, "save", fail)
        result = desk.run(command, desk.write("t.csv", ROWS), *words)
    assert result.exit_code == 2
    assert "No space left on device; make room" in result.stderr
    (recovery,) = desk.out.glob("*recovery.jsonl")
    assert f"What was paid for is kept in {recovery}: the same command finishes it" in result.stderr
    (run,) = desk.history()
    again = desk.run(command, desk.path("t.csv"), *words)
    assert again.exit_code == 0, again.output
    assert load_evidence(desk.out / "evidence.json").receipt.events == run.events
    assert [one.events for one in desk.history()] == [run.events]
    assert not recovery.exists()


class TestProcess:
    """The same, as a process of its own: exit codes and streams are what scripts see."""

    def test_from_sample_to_report(self, desk: Desk) -> None:
        assert desk.spawn("sample", "sachs", "--rows", 3000, "-o", "sachs.parquet").returncode == 0
        # arrows must not stop a run on a terminal that cannot write them
        run = desk.spawn(
            *("discover", "sachs.parquet", "--schema", "sachs.toml", "--epsilon", 20, "--redraws", 2, "-o", "out"),
            PYTHONIOENCODING="ascii",
        )
        assert run.returncode == 0, run.stderr
        assert "edges among 11 columns" in run.stdout
        assert "?" in run.stdout
        assert "Who is protected" in run.stdout
        assert "spent epsilon 20" in run.stderr
        desk.read_result()
        drawn = (desk.out / "report.html").read_bytes()
        redrawn = desk.spawn("report", "out/result.json")
        assert redrawn.returncode == 0, redrawn.stderr
        assert (desk.out / "report.html").read_bytes() == drawn

    def test_refused(self, desk: Desk) -> None:
        desk.write("t.csv", "")
        desk.write_schema()
        run = desk.spawn("discover", "t.csv", "--schema", "schema.toml", "--epsilon", 1)
        assert run.returncode == 2
        assert run.stdout == ""
        assert run.stderr.startswith("Error: t.csv is empty")
        assert run.stderr.count("\n") == 1
        desk.check_nothing_spent()

    def test_unexpected(self, desk: Desk) -> None:
        """A library that fails with a cell in its message, in a process where nothing else is in the way."""
        desk.write("t.csv", ROWS)
        desk.write_schema()
        broken = (
            "from dagveil.data.memory import MemoryTable\n"
            "def fail(*_, **__):\n"
            f"    raise ValueError('bad cell {SECRET[:6]}' '{SECRET[6:]}')\n"
            "MemoryTable.from_source = fail\n"
        )
        words = ("discover", "t.csv", "--schema", "schema.toml", "--epsilon", 1)
        run = desk.spawn(*words, prelude=broken)
        assert run.returncode == 3
        assert SECRET not in run.stdout + run.stderr
        assert "Traceback" not in run.stderr
        assert "(ValueError)" in run.stderr
        debugged = desk.spawn(*words, prelude=broken, DAGVEIL_DEBUG="1")
        assert debugged.returncode == 1
        assert "Traceback" in debugged.stderr
        assert f"bad cell {SECRET}" in debugged.stderr
        desk.check_nothing_spent()

    def test_usage(self, desk: Desk) -> None:
        run = desk.spawn("discover")
        assert run.returncode == 2
        assert run.stderr.startswith("Usage: dagveil discover")
        assert "Missing argument 'FILE'" in run.stderr


class TestHelp:
    @pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_every_command_explains_itself(self, desk: Desk, path: tuple[str, ...], flag: str) -> None:
        result = desk.run(*path, flag)
        assert result.exit_code == 0
        command = COMMANDS[path]
        assert command.help
        assert len(command.help) > 30
        for line in result.stdout.splitlines():
            # a summary that is cut off in the list of commands helps nobody
            assert not (line.startswith("  ") and line.endswith("...")), line
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, option.name

    def test_commands_stand_in_the_order_of_use(self, desk: Desk) -> None:
        text = desk.run("-h").stdout
        found = re.findall(r"^  (schema|budget|discover|measure|report|sample|bench) ", text, re.MULTILINE)
        assert found == ["schema", "budget", "discover", "measure", "report", "sample", "bench"]
        assert "A first run:" in text

    def test_no_command_shows_the_help(self, desk: Desk) -> None:
        assert "A first run:" in desk.run().output

    def test_version(self, desk: Desk) -> None:
        assert desk.run("--version").stdout == f"dagveil, version {__version__}\n"

    def test_a_misspelt_command(self, desk: Desk) -> None:
        result = desk.run("discovr", "t.csv")
        assert result.exit_code == 2
        assert "No such command 'discovr'" in result.stderr


class TestBench:
    @pytest.mark.parametrize(
        ("words", "what"),
        [
            (("--method", "europe"), "europe"),
            (("--epsilons", "-1"), "not a list of positive numbers such as 0.1,1,10"),
            (("--epsilons", "1,,2"), "not a list of positive numbers"),
            (("--epsilons", "nan"), "not a list of positive numbers"),
            (("--seed", -1), "x>=0"),
        ],
    )
    def test_refusals(self, desk: Desk, words: tuple[object, ...], what: str) -> None:
        result = desk.run("bench", "wide", "--levels", "3", "--numbers", "none", "--rows", 100, *words)
        desk.check_refused(result, what, "")

    def test_an_output_that_cannot_be_written(self, desk: Desk) -> None:
        desk.write("file", "")
        result = desk.run("bench", "wide", "-o", desk.path("file") / "page.md")
        desk.check_refused(result, "cannot write", "choose another place")

    def test_a_small_measurement(self, desk: Desk) -> None:
        words = ("--levels", "3", "--numbers", "none", "--rows", 500)
        result = desk.run("bench", "wide", *words, "-o", desk.path("deep/page.md"))
        assert result.exit_code == 0, result.output
        assert desk.path("deep/page.md").read_text(encoding="utf-8") == result.stdout
        assert "500" in result.stdout
