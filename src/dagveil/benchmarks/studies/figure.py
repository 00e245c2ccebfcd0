"""A study as figures: one SVG for each metric, a panel for each data set, a line for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dagveil.benchmarks.plots import Line, Panel, draw_panels
from dagveil.benchmarks.studies.metrics import Metric
from dagveil.benchmarks.studies.page import is_shown
from dagveil.benchmarks.studies.plan import Role, Study
from dagveil.benchmarks.studies.summary import Spot
from dagveil.errors import DataError

SHARE_LIMITS = (-0.03, 1.03)


def draw_study(study: Study, spots: Sequence[Spot], folder: str | Path, metrics: Sequence[Metric] = ()) -> list[Path]:
    """Draw the metrics of a study; return the files.

    Parameters
    ----------
    study
        The plan.
    spots
        Its averages.
    folder
        Where files go; it is made.
    metrics
        In place of the study's.
    """
    places = Path(folder)
    places.mkdir(parents=True, exist_ok=True)
    files = []
    for metric in metrics or study.metrics:
        panels = list_panels(study, spots, metric)
        if not panels:
            continue
        path = places / f"{study.name}-{metric.value}.svg"
        limits = SHARE_LIMITS if metric.is_share else None
        draw_panels(panels, (), "ε", metric.title, path, columns=min(3, max(2, len(panels))), limits=limits)
        files.append(path)
    if not files:
        raise DataError("no run of the store has these metrics yet; run the study first")
    return files


def list_panels(study: Study, spots: Sequence[Spot], metric: Metric) -> list[Panel]:
    """Return one panel for each data set and number of rows that has something to show.

    A method that takes its budget per round stands where its reported total is, as in publications.
    """
    reporting = {entry.title for entry in study.methods if entry.budget_setting is not None}
    several = len({spot.n_rows for spot in spots}) > 1
    panels = []
    for data, n_rows in dict.fromkeys((spot.data, spot.n_rows) for spot in spots):
        here = [s for s in spots if (s.data, s.n_rows) == (data, n_rows) and metric in s.estimates]
        lines = []
        # labels of the whole study, so that a method has the same colour in every panel
        for label in dict.fromkeys(spot.label for spot in spots if spot.role is Role.CONTENDER):
            mine = [(_place(s, label in reporting), s) for s in here if s.label == label]
            mine.sort(key=lambda pair: pair[0])
            halves = [s.estimates[metric].half_width for _, s in mine]
            lines.append(
                Line(
                    label,
                    [s.estimates[metric].mean for _, s in mine],
                    [0.0 if math.isnan(half) else half for half in halves],
                    [place for place, _ in mine],
                )
            )
        levels = {
            s.label: s.estimates[metric].mean for s in here if s.role is not Role.CONTENDER and is_shown(s.role, metric)
        }
        if any(line.heights for line in lines):
            panels.append(Panel(f"{data}, {n_rows} rows" if several else data, lines, levels))
    return panels


def _place(spot: Spot, reporting: bool) -> float:
    reported = spot.estimates.get(Metric.EPSILON_REPORTED)
    return reported.mean if reporting and reported is not None and reported.mean > 0 else spot.epsilon
