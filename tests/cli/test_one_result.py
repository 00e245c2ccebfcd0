"""A run writes its result as JSON once; report, drawing and terminal read the result itself, from one model."""

from __future__ import annotations

from typing import Any

import pytest
from desk import ROWS, Desk

from dagveil.cli import discover, report
from dagveil.runs.result import Result


def count_calls(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[Any]:
    inner, calls = getattr(place, name), []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return inner(*given, **named)

    monkeypatch.setattr(place, name, counted)
    return calls


@pytest.mark.parametrize("method", ["measure", "svt-pc"])
def test_a_run_writes_json_once_and_builds_one_model(desk: Desk, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    written = count_calls(monkeypatch, Result, "to_json")
    built = count_calls(monkeypatch, discover, "build_model")
    table, schema = desk.write("rows.csv", ROWS), desk.write_schema()
    run = desk.run("discover", table, "--schema", schema, "--epsilon", 1, "--method", method, "-o", desk.out)
    assert run.exit_code == 0, run.output
    assert {path.name for path in desk.out.iterdir()} >= {"result.json", "graph.svg", "report.html"}
    assert (len(written), len(built)) == (1, 1)
    built = count_calls(monkeypatch, report, "build_model")
    again = desk.run("report", desk.out / "result.json", "--card", desk.out / "card.json")
    assert again.exit_code == 0, again.output
    assert (len(written), len(built)) == (1, 1)
