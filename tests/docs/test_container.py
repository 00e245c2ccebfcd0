"""The container's definition fits the repository: what it copies is enough to build, and what it starts exists."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.cli.main import group
from dagveil.runs.run import default_ledger

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def words_of(instruction: str) -> list[str]:
    """Return what stands behind an instruction, all of its lines together."""
    return [word for line in LINES if line.startswith(f"{instruction} ") for word in line.split()[1:]]


def test_what_the_build_reads_is_copied() -> None:
    copied = {name for line in LINES if line.startswith("COPY ") for name in line.split()[1:-1]}
    needed = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml"}
    needed |= {
        PROJECT["tool"]["hatch"]["version"]["path"],
        *PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    }
    assert {name for name in needed if name.split("/")[0] not in copied} == set()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for name in copied:
        assert (ROOT / name).exists()
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)


def test_extras_and_python_are_known() -> None:
    (extras,) = re.findall(r"/src\[([a-z,]+)\]", " ".join(words_of("RUN")))
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    (version,) = re.findall(r"python:(\d+\.\d+)", " ".join(words_of("FROM")))
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


def test_it_starts_a_command_with_a_ledger_beside_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (entry,), (command,) = (re.findall(r"\w+", " ".join(words_of(name))) for name in ("ENTRYPOINT", "CMD"))
    assert entry in PROJECT["project"]["scripts"]
    (name, place), (folder,) = " ".join(words_of("ENV")).split("="), words_of("WORKDIR")
    assert Path(place).parent == Path(folder)
    monkeypatch.setenv(name, str(tmp_path / "ledger.sqlite"))
    assert Path(default_ledger()).parent == tmp_path
    assert CliRunner().invoke(group, [command, "--help"]).exit_code == 0
