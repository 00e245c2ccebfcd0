"""Progress where there is no output."""

from __future__ import annotations

import pytest

from dagveil.cli import output


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 0.0, 30.0, 61.0, 90.0, 180.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.show_progress(lines=True) as told:
        for done in (0, 1, 2, 3, 4):
            told("runs", done, 10)
    # lines after 61 and 180 seconds; the others came too soon
    assert capsys.readouterr().err.splitlines() == [
        "runs: 2 of 10, about 4 minutes left",
        "runs: 4 of 10, about 4 minutes left",
    ]


def test_short_work_stays_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with output.show_progress() as told:
        told("runs", 0, 10)
        told("runs", 10, 10)
    assert capsys.readouterr().err == ""
