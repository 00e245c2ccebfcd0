"""The commands on the page about budgets run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.cli.main import group

PAGE = Path(__file__).resolve().parents[2] / "docs" / "budgets.md"


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = [line.removeprefix("$ dagveil ") for block in blocks for line in block.splitlines()]
    assert len(commands) == 3
    for command in commands:
        done = CliRunner().invoke(group, shlex.split(command))
        assert done.exit_code == 0, f"{command}\n{done.output}"


def test_every_command_on_the_page_exists() -> None:
    named = set(re.findall(r"\bdagveil (budget [a-z]+|discover|export|compare)\b", PAGE.read_text(encoding="utf-8")))
    assert {"budget grant", "budget limit", "budget revoke", "budget verify"} <= named
    for command in sorted(named):
        assert CliRunner().invoke(group, [*command.split(), "-h"]).exit_code == 0, command
