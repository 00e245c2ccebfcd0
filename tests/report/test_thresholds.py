from __future__ import annotations

import re
from typing import Any

import pytest
from sample_result import model_of, write_sealed

from dagveil.errors import DagveilError
from dagveil.report.model import EDGES_IN_CELL
from dagveil.runs.result import result_from_json


def test_cuts_count_the_edges_that_stay(result: dict[str, Any]) -> None:
    cuts = {cut.least: cut for cut in model_of(result).thresholds.cuts}
    assert list(cuts) == ["50 %", "75 %", "90 %", "95 %"]
    assert [cut.kept for cut in cuts.values()] == ["7 of 7", "4 of 7", "2 of 7", "2 of 7"]
    assert cuts["50 %"].lost == "none"
    assert cuts["75 %"].lost == "bronc → dysp; lung — smoke; lung → either"


def test_shifts_tell_new_gone_and_turned_edges(result: dict[str, Any]) -> None:
    still, changed = model_of(result).thresholds.shifts
    assert still.what == "A pair may be joined if its p-value is below 0.001 (in this graph 0.01)"
    assert still.changes == "nothing changes"
    assert changed.changes == "new: asia → tub; bronc — smoke becomes bronc ← smoke; gone: dysp ← either"


def test_many_changes_are_counted(result: dict[str, Any]) -> None:
    change = result["variations"][1]["changes"][0]
    result["variations"][1]["changes"] = [change] * (EDGES_IN_CELL + 3)
    assert model_of(result).thresholds.shifts[1].changes.endswith("; and 3 more")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, "holds no searches at other levels"),
        ({"questions": 12}, "releases no evidence"),
        ({"method": {"name": "m", "calibration": "paper", "settings": {}}}, "releases no evidence"),
        ({"method": {"name": "m", "calibration": "sound", "settings": {"search": "notears"}}}, "has no levels"),
        ({"method": {"name": "m", "calibration": "sound", "settings": {}}}, "holds no searches"),
    ],
)
def test_what_is_missing_is_said(result: dict[str, Any], change: dict[str, Any], reason: str) -> None:
    del result["variations"]
    result.update(change)
    told = model_of(result).thresholds
    assert told.shifts == ()
    assert told.reason.startswith("Not available")
    assert reason in told.reason


def test_without_redraws_there_are_no_cuts(result: dict[str, Any]) -> None:
    for edge in result["graph"]["edges"]:
        edge["confidence"] = edge["arrow_confidence"] = None
    assert model_of(result).thresholds.cuts == ()


@pytest.mark.parametrize(
    ("path", "value"), [("setting", "colour"), ("before", "sideways"), ("after", 3), ("source", None)]
)
def test_unknown_variations_are_refused(result: dict[str, Any], path: str, value: Any) -> None:
    variation = result["variations"][1]
    (variation if path == "setting" else variation["changes"][0])[path] = value
    with pytest.raises(DagveilError, match=re.escape("variations[1]")):
        result_from_json(write_sealed(result))
