"""`pc`: exact tests, no noise, and no guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import chi2_contingency

from dagveil.cli.main import group
from dagveil.data.memory import MemoryTable
from dagveil.errors import MethodError
from dagveil.examples.networks import gaussian_schema, load_network, random_linear_gaussian, sample_linear_gaussian
from dagveil.papers.publication import g_p_value
from dagveil.papers.spirtes2000 import chi_square_p_value
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil.runs.result import Result


def run_pc(table: MemoryTable, **more: Any) -> Result:
    more.setdefault("ledger", None)
    return discover(table, table.schema, 1, method="pc", calibration=Calibration.NONE, **more)


def joined(result: Result) -> set[frozenset[str]]:
    return {frozenset((edge.source, edge.target)) for edge in result.graph.edges}


@pytest.mark.parametrize("test", ["g", "chi-square"])
def test_the_network_comes_back(test: str, sampled: Any) -> None:
    result = run_pc(sampled("survey", 100_000), options={"test": test})
    assert joined(result) == {frozenset(edge) for edge in load_network("survey").dag().edges}
    assert result.reported is None
    assert any(f"Exact {test} tests at 0.01" in finding for finding in result.findings)


@pytest.mark.parametrize("test", ["fisher-z", "rcit"])
def test_numbers(test: str) -> None:
    rng = np.random.default_rng(1)
    model = random_linear_gaussian(4, 0.4, rng)
    rows = sample_linear_gaussian(model, 400, rng)
    schema = gaussian_schema(model, 400)
    table = MemoryTable.from_source(dict(zip(schema.columns, rows.T, strict=True)), schema)
    found = joined(run_pc(table, options={"test": test}, noise=NoiseKind.SEEDED, seed=0))
    names = list(schema.columns)
    true = {frozenset((names[i], names[j])) for i, j in zip(*np.nonzero(model.weights), strict=True)}
    assert len(found ^ true) <= 1
    with pytest.raises(MethodError, match="does not take these columns; set test=fisher-z or rcit"):
        run_pc(table, options={"test": "g"})


def test_chi_square_against_scipy_and_strata() -> None:
    rng = np.random.default_rng(0)
    tables = rng.integers(1, 40, (2, 3, 4))
    one = chi2_contingency(tables[0], correction=False)
    assert chi_square_p_value(tables[:1]) == pytest.approx(one.pvalue)
    assert chi_square_p_value(tables) == pytest.approx(g_p_value(tables), abs=0.05)
    assert chi_square_p_value(np.zeros((2, 2, 1), dtype=np.int64)) == 1.0


def test_guarded_data_are_refused_and_other_calibrations_too(sampled: Any) -> None:
    table = sampled("cancer", 2000, public=False)
    ledger = MemoryLedger()
    ledger.set_budget(table.schema.dataset, Budget.of(5, 1e-5))
    with pytest.raises(MethodError, match="has a lifetime budget"):
        run_pc(table, ledger=ledger)
    assert ledger.history() == ()
    for calibration in (Calibration.SOUND, Calibration.PAPER):
        with pytest.raises(MethodError, match=f"pc has no {calibration.value} calibration, because it adds no noise"):
            discover(table, table.schema, 1, method="pc", calibration=calibration, ledger=ledger)
    for name in ("svt-pc", "noleaks", "lap-mech"):  # the last two lack another calibration for another reason
        with pytest.raises(MethodError, match=f"{name} has no none calibration, because it was meant to be private"):
            discover(table, table.schema, 1, method=name, calibration=Calibration.NONE, ledger=ledger)
    assert ledger.history() == ()
    result = run_pc(table, ledger=ledger, accept_no_guarantee=True)
    assert ledger.account(table.schema.dataset).unbounded
    assert not result.receipt.guaranteed
    assert any("adds no noise" in words for words in result.receipt.words())


def test_a_test_that_does_not_take_the_columns_is_refused_before_anything_is_reserved(sampled: Any) -> None:
    table = sampled("cancer", 2000)
    ledger = MemoryLedger()
    for test in ("fisher-z", "rcit"):
        with pytest.raises(MethodError, match=f"the test '{test}' does not take these columns; set test=g or chi-sq"):
            run_pc(table, ledger=ledger, options={"test": test})
    assert ledger.history() == ()


def test_the_command_needs_no_epsilon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        "sample cancer --rows 2000 --seed 1 -o cancer.csv",
        "discover cancer.csv --schema cancer.toml --method pc --calibration none -o out",
        "methods pc",
    ):
        done = CliRunner().invoke(group, line.split())
        assert done.exit_code == 0, done.output
    assert "guarantee: none" in done.output
    assert "test (default by rule)" in done.output
    assert "No guarantee" in (tmp_path / "out" / "report.html").read_text().replace("no guarantee", "No guarantee")
