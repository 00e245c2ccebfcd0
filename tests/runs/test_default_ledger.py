"""A run that names no ledger is kept by the one that the command line uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dagveil as dv
from dagveil.cli.main import group
from dagveil.errors import BudgetExceededError, MethodError
from dagveil.plans.planning import plan_measurement
from dagveil.plans.site_run import measure_planned
from dagveil.runs.bounds import find_bounds
from dagveil.runs.direction import find_direction

ROWS = {"a": np.arange(200.0) % 7, "b": np.arange(200.0) % 5}
NUMBER = dv.Numeric(bounds=(0, 10), center=4, spread=2)
SCHEMA = dv.Schema(dataset="clinic", reviewed=True, nominal_rows=200, columns={"a": NUMBER, "b": NUMBER})
PUBLIC = dv.Schema(dataset="clinic", reviewed=True, nominal_rows=200, columns={"a": NUMBER, "b": NUMBER}, public=True)
EXACT = {"noise": dv.NoiseKind.EXACT}


def plan_run(rows: Any, schema: dv.Schema, epsilon: float, **rest: Any) -> object:
    return measure_planned(rows, plan_measurement(schema, epsilon), schema=schema, **rest)


RUNS: dict[str, Callable[..., object]] = {
    "measure": dv.measure_source,
    "discover": dv.discover,
    "asked": lambda *terms, **rest: dv.discover(*terms, method="noleaks", options={"iterations": 2}, **rest),
    "bounds": lambda *terms, **rest: find_bounds(*terms, columns=["a"], **rest),
    "direction": lambda rows, schema, epsilon, **rest: find_direction(rows, schema, "a", "b", epsilon, **rest),
    "planned": plan_run,
}


def history() -> list[str]:
    return [run.dataset for run in dv.Ledger.open(dv.default_ledger()).history()]


@pytest.mark.parametrize("run", RUNS)
def test_the_default_ledger_stops_python_as_it_stops_the_command_line(run: str) -> None:
    spent = CliRunner().invoke(group, ["budget", "set", "clinic", "--epsilon", "1", "--delta", "1e-5"])
    assert spent.exit_code == 0, spent.output
    RUNS[run](ROWS, SCHEMA, 0.8, **EXACT)
    assert history() == ["clinic"]
    with pytest.raises(BudgetExceededError):
        RUNS[run](ROWS, SCHEMA, 0.8, **EXACT)
    shown = CliRunner().invoke(group, ["budget", "show", "clinic"])
    assert "1 run" in shown.output


@pytest.mark.parametrize("run", RUNS)
def test_none_at_the_callers_word_and_for_public_data(run: str) -> None:
    RUNS[run](ROWS, SCHEMA, 1, ledger=None, **EXACT)
    RUNS[run](ROWS, PUBLIC, 1, **EXACT)
    assert not Path(dv.default_ledger()).exists()


def test_seeded_noise_is_guarded_by_the_default_ledger_too() -> None:
    dv.Ledger.open(dv.default_ledger()).set_budget("clinic", dv.Budget.of(1, 1e-5))
    with pytest.raises(MethodError, match="seeded noise"):
        dv.discover(ROWS, SCHEMA, 1, noise=dv.NoiseKind.SEEDED, seed=1)


def test_a_new_default_ledger_is_for_its_owner_alone() -> None:
    dv.discover(ROWS, SCHEMA, 1, **EXACT)
    assert Path(dv.default_ledger()).stat().st_mode & 0o077 == 0


def test_the_variable_names_another_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGVEIL_LEDGER", str(tmp_path / "team.sqlite"))
    result = dv.discover(ROWS, SCHEMA, 1, **EXACT)
    assert (tmp_path / "team.sqlite").exists()
    assert not any("ledger" in warning for warning in result.receipt.warnings)
