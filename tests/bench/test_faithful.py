"""Studies of methods: what is compared with what, and the pages that come out."""

from __future__ import annotations

import math

import pytest

from dagveil.methods.catalogue import METHODS
from dagveil.papers.publication import PAPERS, require_publication
from dagveil.privacy.receipt import Calibration
from dagveil_bench import faithful
from dagveil_bench.faithful import FIGURES, LARGE, PER_ROUND, TOTALS, Comparison, compare, run_without_noise
from dagveil_bench.speed import Timing
from dagveil_bench.tables import faithful_page, methods_page, methods_speed_page
from dagveil_bench.utility import Cell, run_cell, run_study

ROWS = 3000


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


class TestGap:
    cell = Cell("cancer", ROWS, 1.0, method="curate", calibration=Calibration.PAPER)

    def test_in_standard_errors_of_the_difference(self) -> None:
        comparison = Comparison(self.cell, 1.0, 0.5, (0.5, 0.7), 1.0, 20)
        deviation = math.sqrt(0.02)
        assert comparison.deviation == pytest.approx(deviation)
        expected = 0.1 / math.hypot(deviation * math.sqrt(1.5), 0.005)
        assert comparison.gap == pytest.approx(expected)

    def test_without_spread_only_rounding_is_left(self) -> None:
        assert Comparison(self.cell, 1.0, 0.99, (1.0, 1.0), 1.0, 20).gap == pytest.approx(2.0)


class TestStudy:
    def test_figures_are_of_methods_that_have_a_paper_calibration(self) -> None:
        for method, figures in FIGURES.items():
            assert method in PAPERS
            assert all(len(row) == len(TOTALS) for row in figures.values())
            if method in PER_ROUND:
                published = require_publication(METHODS[method]).settings
                assert published is not None
                assert PER_ROUND[method] in published.__struct_fields__

    def test_totals_are_looked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(faithful, "N_ROWS", ROWS)
        found = compare(["svt-pc", "curate"], ["cancer"], 2, 1, 0, 1, silent)
        assert [(c.cell.method, c.wanted) for c in found] == [(m, t) for m in ("svt-pc", "curate") for t in TOTALS]
        for comparison in found[:3]:
            assert len(comparison.means) == 2
            assert comparison.wanted / 3 < comparison.reported < 3 * comparison.wanted
        assert [c.cell.epsilon for c in found[3:]] == list(TOTALS)
        page = faithful_page(found, run_without_noise(["svt-pc"], ["cancer"], 2, 0, 1, silent), "command")
        assert page.count("| `svt-pc` | cancer |") == 4
        assert "| 54 |" in page

    def test_without_noise_nothing_is_random(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(faithful, "N_ROWS", ROWS)
        for method in FIGURES:
            (cell,) = (faithful._large(method, "survey"),)
            assert (cell.options or (("epsilon", cell.epsilon),))[0][1] == LARGE
            # priv-pc still draws a sub-sample; on this sample it decides nothing
            shared = Cell(cell.source, ROWS, LARGE, 1e-6, method, Calibration.PAPER, cell.options, sample=4)
            scores = [run_cell(shared, run, 0) for run in range(3)]
            assert len({(s.f1, s.questions) for s in scores}) == 1

    def test_runs_share_a_sample_but_not_the_noise(self) -> None:
        cell = Cell("asia", ROWS, 0.3, method="svt-pc", sample=1)
        scores = {run_cell(cell, run, 0) for run in range(6)}
        assert len(scores) > 1
        assert run_cell(cell, 2, 0) == run_cell(cell, 2, 0)


class TestPages:
    def test_methods_side_by_side(self) -> None:
        names = [name for name in METHODS if name not in ("priv-pc-star", "measure-features")]
        summaries = run_study([Cell("cancer", ROWS, 1.0, method=name) for name in names], 1, 0, 1, silent)
        page = methods_page(summaries, "command")
        for name in names:
            assert f"| `{name}` |" in page
        assert "| priv-pc as published, claimed | 0.47 |" in page

    def test_ratios(self) -> None:
        timings = [
            Timing("asia", "causal-learn PC, χ²", 1.0),
            Timing("asia", "dagveil svt-pc, sound", 0.25),
        ]
        page = methods_speed_page(timings, "command")
        assert "| dagveil svt-pc, sound | 0.250 | 4.0 × | 7.9 s |" in page
