"""Level and power of private tests as a page and as a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dagveil_bench.levels import CLAIMS, DELTA, LEVEL, UNLIMITED, Design, Trial
from dagveil_bench.plots import Line, Panel, draw_panels


def levels_page(found: Mapping[Trial, bool], command: str, figure: str | None) -> str:
    """Write tables of rejections: errors where independence is true, power where it is false."""
    trials = list(found)
    runs = 1 + max(trial.run for trial in trials)
    parts = [
        "# Level and power of private tests of independence",
        f"Share of {runs} samples in which independence was rejected at level {LEVEL:g}. ε is the whole budget of one "
        f"test (δ = {float(DELTA):g}; regressions or features included), add/remove. The standard error at the level "
        f"is {standard_error(LEVEL, runs):.3f}; **bold** is above the level by more than that. Written by",
        f"    {command}",
        "What each test claims:\n\n"
        + "\n".join(
            f"- {test}: {CLAIMS[test]}" for test in dict.fromkeys(trial.test for trial in trials) if test in CLAIMS
        ),
    ]
    if figure:
        parts.append(f"![Rejections over budgets]({figure.rsplit('/', 1)[-1]})")
    budgets = _budgets(trials)
    for n_rows in dict.fromkeys(trial.n_rows for trial in trials):
        for design in Design:
            shares = rejections(found, n_rows, design)
            lines = ["| " + " | ".join(("test", *(f"ε = {e:g}" for e in budgets), "no noise")) + " |"]
            lines.append("|---" * (len(budgets) + 2) + "|")
            for test in dict.fromkeys(test for test, _ in shares):
                row = [_show(shares.get((test, epsilon)), design, runs) for epsilon in (*budgets, UNLIMITED)]
                lines.append(f"| {test} | " + " | ".join(row) + " |")
            what = "type I error" if design.is_null else "power"
            parts += [f"## {n_rows} rows: {design.value}, {what}", "\n".join(lines)]
    return "\n\n".join(parts)


def draw_levels(found: Mapping[Trial, bool], path: str) -> None:
    """Draw rejections over budgets: one row of panels for each number of rows, one panel for each design."""
    trials = list(found)
    budgets = (*_budgets(trials), UNLIMITED)
    panels = []
    for n_rows in dict.fromkeys(trial.n_rows for trial in trials):
        for design in Design:
            shares = rejections(found, n_rows, design)
            tests = dict.fromkeys(test for test, _ in shares)
            lines = [Line(test, [shares.get((test, epsilon)) for epsilon in budgets]) for test in tests]
            panels.append(Panel(f"n = {n_rows}: {design.value}", lines, {"level": LEVEL} if design.is_null else {}))
    ticks = [*(f"{epsilon:g}" for epsilon in budgets[:-1]), "none"]
    draw_panels(panels, ticks, "ε of one test", "rejected", path, columns=len(Design))


def rejections(found: Mapping[Trial, bool], n_rows: int, design: Design) -> dict[tuple[str, float], float]:
    """Return the share of rejections by test and budget."""
    gathered: dict[tuple[str, float], list[bool]] = {}
    for trial, rejected in found.items():
        if (trial.n_rows, trial.design) == (n_rows, design):
            gathered.setdefault((trial.test, trial.epsilon), []).append(rejected)
    return {key: sum(values) / len(values) for key, values in gathered.items()}


def standard_error(share: float, runs: int) -> float:
    """Return the standard error of a share of so many runs, as if the share were at least one run away from 0 and 1.

    Examples
    --------
    >>> standard_error(0.5, 100)
    0.05
    """
    inside = min(max(share, 1.0 / runs), 1.0 - 1.0 / runs)
    return math.sqrt(inside * (1.0 - inside) / runs)


def _budgets(trials: Sequence[Trial]) -> tuple[float, ...]:
    return tuple(dict.fromkeys(trial.epsilon for trial in trials if trial.epsilon != UNLIMITED))


def _show(share: float | None, design: Design, runs: int) -> str:
    if share is None:
        return ""
    above = design.is_null and share > LEVEL + standard_error(LEVEL, runs)
    return f"**{share:.3f}**" if above else f"{share:.3f}"
