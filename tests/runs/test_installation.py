"""What `dagveil doctor` finds: what is missing is named with its remedy, and what fails is not called healthy."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import dagveil as dv
from dagveil.cli.main import group
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs import installation
from dagveil.runs.installation import EXTRAS, check_installation, required_packages

ROOT = Path(__file__).parents[2]


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"docs", "test"}


def test_all_is_there(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    found = check_installation(place)
    assert found.healthy
    assert found.ledger.state == "missing"
    assert not place.exists()
    dv.Ledger.open(place).set_budget("patients", dv.Budget.of(1, 0))
    assert check_installation(place).ledger.said == "answers; 1 data set"
    assert {finding.subject for finding in found.packages} == set(required_packages("dagveil"))


def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("polars", "scipy"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = check_installation(tmp_path / "none.sqlite")
    frames = next(finding for finding in found.extras if finding.subject == "frames")
    assert (frames.state, frames.said.split(".")[0]) == (
        "missing",
        "lacks polars; run pip install 'dagveil[frames]'",
    )
    assert not found.healthy
    assert next(finding for finding in found.packages if finding.subject == "scipy").state == "failed"


def test_what_fails_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(kind: NoiseKind) -> None:
        raise OSError("no entropy")

    monkeypatch.setattr(installation, "noise_source", broken)
    found = check_installation(tmp_path / "none.sqlite")
    assert found.engines[0].said == "OSError: no entropy"
    assert not found.healthy
    (tmp_path / "text.sqlite").write_text("no ledger at all")
    assert check_installation(tmp_path / "text.sqlite").ledger.state == "failed"


def test_a_password_is_not_shown() -> None:
    found = check_installation("postgresql://clerk:hunter2@127.0.0.1:1/books")
    assert found.ledger.state == "failed"
    assert "hunter2" not in repr(found)


def test_the_command(tmp_path: Path) -> None:
    done = CliRunner(env={"DAGVEIL_LEDGER": str(tmp_path / "l.sqlite")}).invoke(group, ["doctor"])
    assert done.exit_code == 0, done.output
    assert "All that is needed is there." in done.output
    (tmp_path / "l.sqlite").write_text("no ledger at all")
    done = CliRunner(env={"DAGVEIL_LEDGER": str(tmp_path / "l.sqlite")}).invoke(group, ["doctor", "--json"])
    assert done.exit_code == 1
    assert '"state": "failed"' in done.output


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "dagveil", "--version"], capture_output=True, text=True, check=True)
    assert dv.__version__ in done.stdout
