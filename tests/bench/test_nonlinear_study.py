"""The study of nonlinear columns: who is run where, the page with its brackets and gaps, and the command."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagveil.privacy.receipt import Calibration
from dagveil_bench import local_data
from dagveil_bench.commands.group import bench
from dagveil_bench.nonlinear_study import (
    CONTENDERS,
    UNLIMITED,
    Contender,
    count_columns,
    list_cells,
    nonlinear_page,
)
from dagveil_bench.utility import Cell, Scores, Summary, run_cell

OURS = Contender("ours", "measure")
BINNED = Contender("in bins", "measure", binned=True)
PAPER = Contender("theirs", "pcd", Calibration.PAPER, most_columns=10, most_rows=100)
QUIET = Contender("quiet", "pcd", Calibration.PAPER, unlimited=True)


def summary(cell: Cell, f1: float, reported: float = 0.0) -> Summary:
    return Summary(cell, 4, Scores(f1, 0.25, 0.0, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0, reported), 0.0)


def test_who_would_take_too_long_is_left_out() -> None:
    cells = list_cells([OURS, BINNED, PAPER, QUIET], [("asia", 8), ("child", 20)], [100, 200], [1.0, 2.0])
    seen = {(cells[cell].title, cell.source, cell.n_rows, cell.epsilon) for cell in cells}
    both = [(network, rows, e) for network in ("asia", "child") for rows in (100, 200) for e in (1.0, 2.0)]
    wanted = {("ours", f"nonlinear {network}", rows, e) for network, rows, e in both}
    wanted |= {("in bins", f"nonlinear-binned {network}", rows, e) for network, rows, e in both}
    wanted |= {("theirs", "nonlinear asia", 100, e) for e in (1.0, 2.0)}
    wanted |= {("quiet", f"nonlinear {network}", rows, UNLIMITED) for network, rows, _ in both}
    assert seen == wanted


def test_the_page_has_what_is_reported_in_brackets_and_gaps() -> None:
    cells = list_cells([OURS, PAPER, QUIET], [("asia", 8)], [100, 200], [1.0, 2.0])
    found = []
    for cell, contender in cells.items():
        if contender is OURS and cell.epsilon == 2.0 and cell.n_rows == 200:
            continue  # a cell that was not run
        found.append(summary(cell, 0.5 + cell.epsilon / 10 if cell.epsilon < 5 else 1.0, 12.345))
    lines = nonlinear_page(found, cells, "dagveil bench nonlinear", "A title").splitlines()
    assert lines[0] == "# A title"
    assert "4 runs per cell" in lines[2]
    assert "    dagveil bench nonlinear" in lines
    few = lines.index("## asia, 100 rows")
    assert lines[few + 2 : few + 7] == [
        "| method | ε = 1 | ε = 2 | no noise |",
        "|---|---|---|---|",
        "| ours | 0.75 / 0.25 / **0.60** | 0.75 / 0.25 / **0.70** |  |",
        "| theirs | 0.75 / 0.25 / **0.60** (12.3) | 0.75 / 0.25 / **0.70** (12.3) |  |",
        # a run without noise reports nothing that means anything
        "| quiet |  |  | 0.75 / 0.25 / **1.00** |",
    ]
    many = lines.index("## asia, 200 rows")
    assert lines[many + 4] == "| ours | 0.75 / 0.25 / **0.60** |  |  |"
    assert not any(line.startswith("| theirs") for line in lines[many:])


def test_a_page_without_budgets_has_one_column() -> None:
    cells = list_cells([QUIET], [("asia", 8)], [100], [])
    lines = nonlinear_page([summary(cell, 1.0) for cell in cells], cells, "command", "A title").splitlines()
    table = lines.index("| method | no noise |")
    assert lines[table + 1 : table + 3] == ["|---|---|", "| quiet | 0.75 / 0.25 / **1.00** |"]


def test_columns_are_counted_and_cells_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_columns("child") == 20
    monkeypatch.setattr(local_data, "find_spec", lambda name: None)
    done = CliRunner().invoke(bench, ["nonlinear", "--networks", "sachs-cells", "--rows", "50"])
    assert done.exit_code == 2
    assert "needs the package 'cdt', which is not installed; install it with: pip install --no-deps cdt" in done.output


def test_the_command_writes_the_means_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "nonlinear.md"
    words = ["nonlinear", "--networks", "cancer", "--rows", "80", "--epsilons", "2", "--contenders", "2,7"]
    words += ["--runs", "2", "--seed", "3", "--workers", "1", "-o", str(page)]
    monkeypatch.setattr(sys, "argv", ["dagveil", "bench", *words])
    done = CliRunner().invoke(bench, words)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "dagveil bench nonlinear --networks cancer" in text
    cell = Cell("nonlinear-binned cancer", 80, 2.0)
    scores = [run_cell(cell, run, 3) for run in range(2)]
    means = [sum(getattr(score, name) for score in scores) / 2 for name in ("tdr", "tpr", "f1")]
    assert "| {} | {:.2f} / {:.2f} / **{:.2f}** |  |".format(CONTENDERS[1].title, *means) in text
    (published,) = [line for line in text.splitlines() if line.startswith(f"| {CONTENDERS[6].title} |")]
    assert published.endswith(") |  |")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--contenders", "99"), "choose from 1 `measure-features`; 2 `measure`, public bins"),
        (("--contenders", "first"), "'first' is not a list of positive numbers"),
        (("--networks", "mars"), "no network is called 'mars'"),
    ],
)
def test_the_command_refuses(words: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(bench, ["nonlinear", *words])
    assert done.exit_code == 2
    assert told in done.output
