"""`auto`: public facts choose the method, the result says so, and a reload keeps it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dagveil as dv
from dagveil.data.column import Boolean, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Choice
from dagveil.forecast import choose as room
from dagveil.forecast.choose import AUTO_MODELS, TIE, TrialOutcome, choose_method

SCHEMA = Schema(
    dataset="clinic",
    columns={name: Boolean(outside="false") for name in "abcd"},
    reviewed=True,
    nominal_rows=2000,
)
QUICK = dv.SearchSettings(redraws=2)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave slow methods out of every trial."""
    monkeypatch.setattr(room, "AUTO_SECONDS", 0.4)


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    table = {name: rng.random(2000) < 0.5 for name in "abcd"}
    table["b"] = np.where(rng.random(2000) < 0.7, table["a"], table["b"])
    return table


class TestChoosing:
    def test_it_is_the_same_every_time_and_reads_no_rows(self) -> None:
        first, again = choose_method(SCHEMA, 1), choose_method(SCHEMA, 1)
        assert first == again
        assert first.models == AUTO_MODELS
        scores = {candidate.method: candidate.f1 for candidate in first.candidates}
        assert scores[first.method] >= max(scores.values()) - TIE
        assert first.method in first.why
        assert "no row was read" in first.why

    @pytest.mark.parametrize(
        ("scores", "chosen"),
        [
            ({"measure": 0.8, "measure-ges": 0.8, "em-pc": 0.7}, "measure"),
            ({"measure": 0.8, "measure-ges": 0.81, "em-pc": 0.7}, "measure"),
            ({"measure": 0.8, "measure-ges": 0.85, "em-pc": 0.7}, "measure-ges"),
            ({"measure": 0.8, "measure-ges": 0.85, "em-pc": 0.86}, "measure-ges"),
            ({"measure": 0.8, "measure-ges": 0.85, "em-pc": 0.9}, "em-pc"),
        ],
    )
    def test_the_highest_wins_and_ties_go_to_the_first(
        self, monkeypatch: pytest.MonkeyPatch, scores: dict[str, float], chosen: str
    ) -> None:
        outcomes = [TrialOutcome(name, 0, f1) for name, f1 in scores.items() for _ in range(AUTO_MODELS)]
        monkeypatch.setattr(room, "AUTO_SECONDS", 100.0)
        monkeypatch.setattr(room, "run_trials", lambda *_: outcomes)
        assert choose_method(SCHEMA, 1).method == chosen

    def test_only_what_releases_evidence_can_be_measured(self) -> None:
        found = choose_method(SCHEMA, 1, releasing_only=True)
        assert {candidate.method for candidate in found.candidates} <= {
            "measure",
            "measure-ges",
            "measure-notears",
            "lap-mech",
        }

    def test_without_rows_it_is_the_default(self) -> None:
        found = choose_method(Schema(dataset="rowless", columns=SCHEMA.columns, reviewed=True), 1)
        assert (found.method, found.candidates) == ("measure", ())
        assert "no nominal number of rows" in found.why

    def test_many_columns_are_not_rehearsed(self) -> None:
        columns = {f"x{k}": Numeric(bounds=(0.0, 1.0)) for k in range(900)}
        found = choose_method(Schema(dataset="wide", columns=columns, reviewed=True, nominal_rows=1000), 1)
        assert (found.method, found.candidates) == ("measure", ())
        assert found.left_out

    def test_nothing_fits(self) -> None:
        with pytest.raises(MethodError, match="at least 2"):
            choose_method(Schema(dataset="one", columns={"a": Boolean()}, reviewed=True, nominal_rows=9), 1)


class TestRuns:
    def test_the_choice_is_recorded_and_survives(self, rows: dict[str, np.ndarray], tmp_path: Path) -> None:
        chosen = choose_method(SCHEMA, 1, releasing_only=True)
        result = dv.discover(rows, SCHEMA, 1, method="auto", settings=QUICK, noise=dv.NoiseKind.EXACT, ledger=None)
        assert result.choice == chosen
        assert result.method.name == chosen.method
        assert chosen.why in result.findings
        result.save(tmp_path / "result.json")
        assert dv.load_result(tmp_path / "result.json").choice == chosen
        dv.write_report(result, tmp_path / "report.html")
        assert "Method auto" in (tmp_path / "report.html").read_text(encoding="utf-8")

    def test_evidence_carries_it_to_every_search(self, rows: dict[str, np.ndarray], tmp_path: Path) -> None:
        evidence = dv.measure_source(rows, SCHEMA, 1, method="auto", noise=dv.NoiseKind.EXACT, ledger=None)
        evidence.save(tmp_path / "evidence.json")
        found = dv.search_evidence(tmp_path / "evidence.json", QUICK)
        assert found.choice is not None
        assert found.choice == evidence.choice
        assert found.choice.why in found.findings

    def test_a_method_that_asks_records_it_too(self, rows: dict[str, np.ndarray]) -> None:
        made = Choice("svt-pc", "Method auto: svt-pc, for this test.")
        result = dv.discover(rows, SCHEMA, 1, method=made, noise=dv.NoiseKind.EXACT, ledger=None)
        assert result.choice == made
        assert result.findings[0] == made.why
        assert result.method.name == "svt-pc"

    def test_a_named_method_records_none(self, rows: dict[str, np.ndarray]) -> None:
        assert dv.discover(rows, SCHEMA, 1, settings=QUICK, noise=dv.NoiseKind.EXACT, ledger=None).choice is None

    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            ({"options": {"plan": "joint"}}, "settings cannot be given"),
            ({"calibration": dv.Calibration.PAPER}, "among sound methods"),
        ],
    )
    def test_what_speaks_of_a_named_method_is_refused(
        self, rows: dict[str, np.ndarray], arguments: dict[str, object], what: str
    ) -> None:
        with pytest.raises(MethodError, match=what):
            dv.discover(rows, SCHEMA, 1, method="auto", ledger=None, **arguments)  # type: ignore[arg-type]

    def test_a_draft_is_refused_before_anything_is_rehearsed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "choose_method", None)
        draft = Schema(dataset="draft", columns=SCHEMA.columns, nominal_rows=100)
        with pytest.raises(dv.DagveilError, match="unreviewed"):
            dv.discover({}, draft, 1, method="auto", ledger=None)

    def test_a_plan_names_its_method(self) -> None:
        from dagveil.plans.planning import plan_measurement

        with pytest.raises(MethodError, match="plan --explore"):
            plan_measurement(SCHEMA, 1, method="auto")
