"""Is a `paper` calibration faithful? Ours beside figures of the authors' programs, at the same reported epsilon.

The figures were measured once with the authors' control flow, noise and accounting, on 100 000 rows of one sample per
network. Their programs take an epsilon per round or node and report a total afterwards, so the epsilon per round is
looked for whose reported total lies nearest to the wanted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dagveil.benchmarks.utility import Cell, Summary, Told, run_study
from dagveil.privacy.receipt import Calibration

N_ROWS = 100_000
TOTALS = (0.1, 1.0, 10.0)
LARGE = 1e6
"""Epsilon at which noise no longer matters."""

PILOT_RUNS = 4

PER_ROUND = {"svt-pc": "round_epsilon", "priv-pc": "round_epsilon", "em-pc": "node_epsilon"}
"""The setting that these methods take in place of a total."""

GRID = tuple(float(epsilon) for epsilon in np.logspace(-2.5, 1.5, 25))
"""Candidates for the epsilon of a round: Priv-PC's 21 values, and four below them that em-pc needs."""

FIGURES: Mapping[str, Mapping[str, tuple[float | None, ...]]] = {
    "svt-pc": {
        "cancer": (0.25, 0.28, 0.55),
        "earthquake": (0.27, 0.30, 0.50),
        "survey": (0.24, 0.29, 0.56),
        "asia": (0.13, 0.20, 0.28),
        "sachs": (0.13, 0.12, 0.29),
    },
    "priv-pc": {
        "cancer": (0.37, 0.47, 0.83),
        "earthquake": (0.35, 0.46, 0.97),
        "survey": (0.38, 0.59, 0.98),
        "asia": (0.28, 0.37, 0.85),
        "sachs": (0.26, 0.36, 0.50),
    },
    "em-pc": {
        "cancer": (0.51, 0.93, 0.99),
        "earthquake": (0.65, 0.95, 0.99),
        "survey": (0.93, 0.99, 1.0),
        "asia": (None, 0.62, None),
    },
    "curate": {
        "cancer": (0.30, 0.35, 0.84),
        "earthquake": (0.24, 0.29, 0.97),
        "survey": (0.34, 0.51, 0.91),
        "asia": (0.18, 0.21, 0.60),
        "sachs": (None, 0.24, 0.49),
    },
}
"""Skeleton F1 of the authors' programs at a reported epsilon near 0.1, 1 and 10."""

EXACT_F1 = {"cancer": 1.00, "earthquake": 1.00, "survey": 1.00, "asia": 0.93, "sachs": 0.84}
"""Skeleton F1 of the authors' PC without noise, Kendall's p-value at 0.10."""

EXACT_QUESTIONS = {"cancer": 54, "earthquake": 57, "survey": 55, "asia": 137}
"""Questions of the same run."""

AUTHORS_SECONDS: Mapping[str, Mapping[str, float]] = {
    "svt-pc": {"cancer": 3.9, "earthquake": 4.4, "survey": 4.1, "asia": 7.9},
    "priv-pc": {"cancer": 2.8, "earthquake": 1.7, "survey": 0.7, "asia": 2.6},
    "curate": {"cancer": 2.2, "earthquake": 4.6, "survey": 4.1, "asia": 7.2},
    "em-pc": {"cancer": 16.9, "earthquake": 15.8, "survey": 81.7},
}
"""CPU seconds of the authors' programs for one run at a very large epsilon, on another machine."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of theirs and one of ours."""

    summary: Summary
    wanted: float
    theirs: float

    @property
    def gap(self) -> float:
        """Difference in standard errors of a difference, taking their error to be as large as ours."""
        error = math.sqrt(2.0) * self.summary.f1_error
        gap = self.summary.mean.f1 - self.theirs
        return gap / error if error > 0.0 else (0.0 if abs(gap) < 0.005 else math.copysign(math.inf, gap))


def compare(
    methods: Sequence[str], networks: Sequence[str], runs: int, seed: int, workers: int, told: Told
) -> list[Comparison]:
    """Run the `paper` calibrations at the reported epsilons of the figures.

    Parameters
    ----------
    methods, networks
        Names; combinations without a figure are left out.
    runs
        Runs per cell.
    seed
        Of the whole study.
    workers
        Processes.
    told
        Told after each run.
    """
    wanted = [
        (method, network, place)
        for method in methods
        for network in networks
        for place, figure in enumerate(FIGURES.get(method, {}).get(network, ()))
        if figure is not None
    ]
    cells = []
    for method, network in dict.fromkeys((method, network) for method, network, _ in wanted):
        places = [place for m, n, place in wanted if (m, n) == (method, network)]
        cells += _cells(method, network, places, seed, workers, told)
    summaries = run_study(cells, runs, seed, workers, told)
    figures = [FIGURES[method][network][place] for method, network, place in wanted]
    return [
        Comparison(summary, TOTALS[place], figure)
        for summary, (_, _, place), figure in zip(summaries, wanted, figures, strict=True)
        if figure is not None
    ]


def run_without_noise(
    methods: Sequence[str], networks: Sequence[str], runs: int, seed: int, workers: int, told: Told
) -> list[Summary]:
    """Run the `paper` calibrations at an epsilon at which noise no longer matters."""
    cells = [_large(method, network) for method in methods for network in networks]
    return run_study(cells, runs, seed, workers, told)


def _cells(method: str, network: str, places: Sequence[int], seed: int, workers: int, told: Told) -> list[Cell]:
    """Return the cells whose reported totals lie nearest to the wanted ones."""
    plain = Cell(network, N_ROWS, 1.0, method=method, calibration=Calibration.PAPER)
    if method not in PER_ROUND:
        return [replace(plain, epsilon=TOTALS[place]) for place in places]
    grid = [replace(plain, options=((PER_ROUND[method], epsilon),)) for epsilon in GRID]
    pilot = run_study(grid, PILOT_RUNS, seed + 1, workers, told)
    reported = np.log([max(summary.mean.reported, 1e-9) for summary in pilot])
    return [grid[int(np.argmin(np.abs(reported - math.log(TOTALS[place]))))] for place in places]


def _large(method: str, network: str) -> Cell:
    options: tuple[tuple[str, float], ...] = ()
    if method in PER_ROUND:
        options = ((PER_ROUND[method], LARGE),)
    return Cell(network, N_ROWS, LARGE, method=method, calibration=Calibration.PAPER, options=options)
