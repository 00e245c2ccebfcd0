"""The command line starts light: what `--version`, `--help` and `import dagveil` import is counted, not timed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

import dagveil
from dagveil.cli import main as front
from dagveil.cli.main import ADDED, TABLE, group

COUNT = """
import sys
{act}
ours = [name for name in sys.modules if name == "dagveil" or name.startswith("dagveil.")]
foreign = [name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names]
print(len(ours), len(foreign) - len(ours), file=sys.stderr)
"""

RUN = """
from dagveil.cli.main import group
try:
    group({words!r}, prog_name="dagveil")
except SystemExit:
    pass
"""


def count_modules(act: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", COUNT.format(act=act)], capture_output=True, text=True, check=True)
    ours, foreign = map(int, done.stderr.split()[-2:])
    return ours, foreign


@pytest.mark.parametrize("word", ["--version", "--help"])
def test_version_and_help_import_next_to_nothing(word: str) -> None:
    ours, foreign = count_modules(RUN.format(words=[word]))
    assert ours <= 10
    assert foreign < 60


def test_the_package_imports_next_to_nothing() -> None:
    ours, foreign = count_modules("import dagveil")
    assert ours <= 3
    assert foreign < 10


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "dagveil", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dagveil, version")


def test_every_public_name_is_found() -> None:
    for name in dagveil.__all__:
        assert getattr(dagveil, name) is not None
    assert set(dagveil.__all__) <= set(dir(dagveil))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dagveil.nothing  # noqa: B018


@pytest.mark.parametrize("name", TABLE)
def test_the_line_of_help_is_that_of_the_command(name: str) -> None:
    command = group.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(200) == TABLE[name][1]


def test_commands_of_other_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "run" in CliRunner().invoke(group, ["bench", "--help"]).output
    monkeypatch.setattr(front, "find_entry", lambda name: None)
    refused = CliRunner().invoke(group, ["bench", "run", "headline"])
    assert refused.exit_code == 2
    assert f"`dagveil bench` is not installed; {ADDED['bench'][1]}" in refused.stderr
    assert CliRunner().invoke(group, ["nothing"]).exit_code == 2
