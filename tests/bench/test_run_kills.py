"""A small round of kills: every charge leaves its evidence, its result or a recovery file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagveil_bench import run_kills as kills


def test_nothing_is_lost(tmp_path: Path) -> None:
    found = kills.run_kills(8, tmp_path)
    assert found.lost == ()
    assert found.kills == found.uncharged + found.saved + found.kept == 8
    assert "Charges without either, or charged twice: 0." in found.words


def test_a_charge_that_left_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "LATEST", 100.0)  # nothing is killed

    def hide(out: Path) -> None:
        """Return nothing, as if the evidence were gone."""

    monkeypatch.setattr(kills, "_read_paid", hide)
    found = kills.run_kills(1, tmp_path)
    assert found.lost == ("run 3 of measure in ledger-0.sqlite was charged and left nothing",)
