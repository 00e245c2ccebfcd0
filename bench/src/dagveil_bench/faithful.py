"""Is a `paper` calibration faithful? Ours beside figures of the authors' programs, at the same reported epsilon.

The figures were measured once with the authors' control flow, noise and accounting, on 100 000 rows of one sample per
network and 10 to 20 runs. So ours are means over as many runs on one sample, for several samples: their figure should
look like one of ours. Their programs take an epsilon per round or node and report a total afterwards, so the epsilon
per round is looked for whose reported total lies nearest to the wanted one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dagveil.privacy.receipt import Calibration
from dagveil_bench.utility import Cell, Summary, Told, run_study

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


ROUNDING = 0.005
"""The figures have two digits."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of theirs, and ours: the mean of each sample.

    Attributes
    ----------
    cell
        What was run.
    wanted, theirs
        Reported epsilon and figure of the authors' program.
    means
        Mean skeleton F1 of our runs on each sample.
    reported
        Mean epsilon that our runs report.
    runs
        Runs on each sample.
    """

    cell: Cell
    wanted: float
    theirs: float
    means: tuple[float, ...]
    reported: float
    runs: int

    @property
    def mean(self) -> float:
        """Our mean."""
        return float(np.mean(self.means))

    @property
    def deviation(self) -> float:
        """Standard deviation of figures that each come from one sample."""
        return float(np.std(self.means, ddof=1))

    @property
    def gap(self) -> float:
        """How far our mean lies from their figure, in standard errors of that difference."""
        error = math.hypot(self.deviation * math.sqrt(1.0 + 1.0 / len(self.means)), ROUNDING)
        return (self.mean - self.theirs) / error


def compare(
    methods: Sequence[str], networks: Sequence[str], samples: int, runs: int, seed: int, workers: int, told: Told
) -> list[Comparison]:
    """Run the `paper` calibrations at the reported epsilons of the figures.

    Parameters
    ----------
    methods, networks
        Names; combinations without a figure are left out.
    samples
        Samples of each network.
    runs
        Runs on each sample.
    seed
        Of the whole study.
    workers
        Processes.
    told
        Told after each run.
    """
    wanted: list[tuple[Cell, float, float]] = []
    for method in methods:
        for network in networks:
            figures = FIGURES.get(method, {}).get(network, ())
            places = [place for place, figure in enumerate(figures) if figure is not None]
            cells = _cells(method, network, places, seed, workers, told)
            wanted += [(cell, TOTALS[i], figures[i] or 0.0) for cell, i in zip(cells, places, strict=True)]
    cells = [replace(cell, sample=sample) for cell, _, _ in wanted for sample in range(samples)]
    summaries = run_study(cells, runs, seed, workers, told)
    found = []
    for i, (cell, total, theirs) in enumerate(wanted):
        ours = summaries[i * samples : (i + 1) * samples]
        means = tuple(summary.mean.f1 for summary in ours)
        reported = float(np.mean([summary.mean.reported for summary in ours]))
        found.append(Comparison(cell, total, theirs, means, reported, runs))
    return found


def run_without_noise(
    methods: Sequence[str], networks: Sequence[str], runs: int, seed: int, workers: int, told: Told
) -> list[Summary]:
    """Run the `paper` calibrations at an epsilon at which noise no longer matters."""
    cells = [_large(method, network) for method in methods for network in networks]
    return run_study(cells, runs, seed, workers, told)


def _cells(method: str, network: str, places: Sequence[int], seed: int, workers: int, told: Told) -> list[Cell]:
    """Return the cells whose reported totals lie nearest to the wanted ones."""
    if not places:
        return []
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
