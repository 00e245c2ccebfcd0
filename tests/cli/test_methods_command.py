"""`dagveil methods`: the list, and everything about one method."""

from __future__ import annotations

import re

import msgspec
import pytest
from desk import Desk

from dagveil.methods.method import METHODS
from dagveil.papers.publication import readings_of
from dagveil.privacy.receipt import Calibration

every_name = pytest.mark.parametrize("name", METHODS)


def told(desk: Desk, *words: str) -> str:
    """Return what the command prints, without line breaks."""
    result = desk.run("methods", *words, COLUMNS="200")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return re.sub(r"\s+", " ", result.stdout)


def test_the_list_has_every_method(desk: Desk) -> None:
    text = told(desk)
    for method in METHODS.values():
        assert f"{method.name} " in text
    for heading in ("method", "what it does", "data", "spends on", "calibrations"):
        assert heading in text
    for calibration in (Calibration.PAPER, Calibration.PROGRAM):
        known = sum(calibration in readings_of(name) for name in METHODS)
        assert len(re.findall(rf"sound, (?:paper, )?{calibration.value}\b|sound, {calibration.value}\b", text)) == known
    assert "Every method is sound by default" in text


@every_name
def test_everything_about_one(desk: Desk, name: str) -> None:
    method = METHODS[name]
    text = told(desk, name)
    assert f"{name}: {method.title}" in text
    assert "guarantee: (epsilon, delta) as given" in text
    assert ("paper: " in text) == (method.paper is not None)
    if method.paper is not None:
        assert method.paper in text
    kinds = [method.settings]
    for calibration, reading in readings_of(name).items():
        assert f"--calibration {calibration.value} claims nothing here, because {reading.flaw}" in text
        kinds.append(reading.settings)
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            (meaning,) = re.findall(rf" {field.name} \(default [^)]*\): (\w[^()]*)", text)[:1]
            assert len(meaning) > 5
    assert "<" not in text  # no default is shown as a Python object


def test_defaults_are_shown_as_they_are_set(desk: Desk) -> None:
    text = told(desk, "em-pc")
    assert "order_shares (default 0.4,0.3,0.3): Shares of the budget" in text
    assert "node_limit (default by rule): Nodes that may be treated" in text
    assert "settings of --calibration program" in text


def test_unknown_names(desk: Desk) -> None:
    result = desk.run("methods", "magic")
    desk.check_refused(
        result,
        "no method is called 'magic'",
        "choose one of measure, measure-ges, measure-notears, measure-features, em-pc",
    )


def test_nothing_is_spent_and_no_ledger_is_made(desk: Desk) -> None:
    told(desk)
    told(desk, "curate")
    assert not desk.ledger.exists()
