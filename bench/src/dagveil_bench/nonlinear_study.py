"""Graphs from nonlinear numeric columns: who finds them, at which budget, from how many rows.

The simulation is that of PCD (`dagveil_bench.nonlinear`) over the graphs of known networks. Methods that count levels
get the same rows in public bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagveil.privacy.receipt import Calibration
from dagveil_bench.nonlinear import nonlinear_dag
from dagveil_bench.utility import Cell, Summary

UNLIMITED = 1e9
"""An ε that stands for none: noise of this scale changes nothing."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A method in this study.

    Attributes
    ----------
    title
        As in the tables.
    method, calibration, options
        As in `Cell`.
    binned
        Whether it gets rows in public bins.
    most_columns, most_rows
        Beyond these a run takes minutes, so it is left out.
    unlimited
        Whether it is run once, without noise: a ceiling.
    """

    title: str
    method: str
    calibration: Calibration = Calibration.SOUND
    options: tuple[tuple[str, Any], ...] = ()
    binned: bool = False
    most_columns: int = 10**6
    most_rows: int = 10**9
    unlimited: bool = False


_LINEAR_TIME = (("statistic", "features"), ("largest_order", 2))

CONTENDERS = (
    Contender("`measure-features`", "measure-features"),
    Contender("`measure`, public bins", "measure", binned=True),
    Contender("`measure`, linear", "measure"),
    Contender("`pcd`, sound (gcm)", "pcd", options=(("test", "gcm"),)),
    Contender("`pcd`, sound (hsic)", "pcd", options=(("test", "hsic"),), most_columns=20, most_rows=8000),
    Contender("conditional Kendall (`svt-pc`), public bins", "svt-pc", binned=True),
    Contender("`pcd` as published", "pcd", Calibration.PAPER, _LINEAR_TIME, most_columns=20, most_rows=4000),
    Contender(
        "exact RCIT, λ = 1",
        "pcd",
        Calibration.PAPER,
        _LINEAR_TIME,
        most_columns=20,
        most_rows=4000,
        unlimited=True,
    ),
    Contender(
        "exact RCIT, λ = 0.001",
        "pcd",
        Calibration.PAPER,
        (*_LINEAR_TIME, ("penalty", 0.001)),
        most_columns=20,
        most_rows=8000,
        unlimited=True,
    ),
    Contender("`pcd`, sound (partial)", "pcd"),
)
"""In the linear form of RCIT and up to two given columns, since the exact one takes hours on larger tables."""


def list_cells(
    contenders: Sequence[Contender],
    networks: Sequence[tuple[str, int]],
    rows: Sequence[int],
    epsilons: Sequence[float],
) -> dict[Cell, Contender]:
    """Return the cells of the study: networks with their number of columns, rows, budgets."""
    cells: dict[Cell, Contender] = {}
    for network, width in networks:
        for n_rows in rows:
            for contender in contenders:
                if width > contender.most_columns or n_rows > contender.most_rows:
                    continue
                kind = "nonlinear-binned" if contender.binned else "nonlinear"
                for epsilon in (UNLIMITED,) if contender.unlimited else epsilons:
                    cell = Cell(
                        f"{kind} {network}",
                        n_rows,
                        epsilon,
                        method=contender.method,
                        calibration=contender.calibration,
                        options=contender.options,
                    )
                    cells.setdefault(cell, contender)
    return cells


def nonlinear_page(summaries: Sequence[Summary], cells: dict[Cell, Contender], command: str, title: str) -> str:
    """Write a page with one table for each network and number of rows: precision / recall / F1."""
    runs = summaries[0].runs
    parts = [
        f"# {title}",
        f"Add/remove, δ = {summaries[0].cell.delta:g}, {runs} runs per cell; ε is the total budget of a run, fixed "
        "before it, but for `pcd` as published, where it is the price of each noisy answer, as printed; what its own "
        "accounting reports is in brackets. Cells hold precision / recall / **F1** of the skeleton. Written by",
        f"    {command}",
    ]
    places = list(dict.fromkeys((_network(s.cell), s.cell.n_rows) for s in summaries))
    budgets = [e for e in dict.fromkeys(s.cell.epsilon for s in summaries) if e != UNLIMITED]
    for network, n_rows in places:
        chosen = [s for s in summaries if (_network(s.cell), s.cell.n_rows) == (network, n_rows)]
        parts.append(f"## {network}, {n_rows} rows")
        lines = ["| " + " | ".join(("method", *(f"ε = {e:g}" for e in budgets), "no noise")) + " |"]
        lines.append("|---" * (len(budgets) + 2) + "|")
        for contender in dict.fromkeys(cells[s.cell] for s in chosen):
            mine = {s.cell.epsilon: s for s in chosen if cells[s.cell] == contender}
            row = [_scores(mine.get(epsilon)) for epsilon in (*budgets, UNLIMITED)]
            lines.append(f"| {contender.title} | " + " | ".join(row) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def count_columns(network: str) -> int:
    """Return the number of columns over the graph of a network.

    Examples
    --------
    >>> count_columns("asia")
    8
    """
    return len(nonlinear_dag(network).nodes)


def _network(cell: Cell) -> str:
    return cell.source.split()[1]


def _scores(summary: Summary | None) -> str:
    if summary is None:
        return ""
    mean = summary.mean
    text = f"{mean.tdr:.2f} / {mean.tpr:.2f} / **{mean.f1:.2f}**"
    shown = summary.cell.calibration is Calibration.PAPER and summary.cell.epsilon != UNLIMITED
    return f"{text} ({mean.reported:.3g})" if shown else text
