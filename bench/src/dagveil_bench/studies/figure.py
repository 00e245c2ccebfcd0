"""A study as figures: one SVG for each metric, a panel for each part of the study, a line for each method."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dagveil.errors import DataError
from dagveil_bench.plots import Line, Panel, draw_panels
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.page import figure_name, is_shown
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.summary import Axis, Spot, choose_axis

SHARE_LIMITS = (-0.03, 1.03)
CHAMPION_WIDTH = 2.8  # of the line of the method that a study is about: it shows where others run on top of it


def draw_study(study: Study, spots: Sequence[Spot], folder: str | Path, metrics: Sequence[Metric] = ()) -> list[Path]:
    """Draw the metrics of a study, or chosen ones, into a folder, which is made; return the files."""
    places = Path(folder)
    places.mkdir(parents=True, exist_ok=True)
    axis = choose_axis(spots)
    ticks = list(dict.fromkeys(spot.data for spot in spots)) if axis is Axis.DATA else []
    name = {Axis.BUDGET: study.task.axis, Axis.ROWS: "rows", Axis.DATA: ""}[axis]
    files = []
    for metric in metrics or study.metrics:
        panels = list_panels(study, spots, metric)
        if not panels:
            continue
        path = places / figure_name(study, metric)
        limits = SHARE_LIMITS if metric.is_share else None
        draw_panels(panels, ticks, name, metric.title, path, columns=min(3, max(2, len(panels))), limits=limits)
        files.append(path)
    if not files:
        raise DataError("no run of the store has these metrics yet; run the study first")
    return files


def list_panels(study: Study, spots: Sequence[Spot], metric: Metric) -> list[Panel]:
    """Return the panels that have something to show: one for each data set and number of rows, over budgets.

    A method that takes its budget per round stands where its reported total is, as in publications. With one budget the
    panels are over numbers of rows, or over data sets.
    """
    axis = choose_axis(spots)
    several = len({spot.n_rows for spot in spots}) > 1
    parts: dict[str, list[Spot]] = {}
    for spot in spots:
        match axis:
            case Axis.BUDGET:
                title = f"{spot.data}, {spot.n_rows} rows" if several else spot.data
            case Axis.ROWS:
                (budget,) = {other.epsilon for other in spots if other.role is Role.CONTENDER}
                title = f"{spot.data}, {study.task.axis} = {budget:g}"
            case Axis.DATA:
                title = f"{spot.n_rows} rows"
        parts.setdefault(title, []).append(spot)
    panels = []
    for title, mine in parts.items():
        here = [spot for spot in mine if metric in spot.estimates and is_shown(spot.role, metric)]
        panel = (
            _over_budgets(study, spots, here, metric) if axis is Axis.BUDGET else _over_parts(spots, here, metric, axis)
        )
        if any(line.heights for line in panel.lines):
            panels.append(replace(panel, title=title))
    return panels


def _over_budgets(study: Study, spots: Sequence[Spot], here: Sequence[Spot], metric: Metric) -> Panel:
    """Draw contenders over budgets, and the others as levels."""
    reporting = {entry.title for entry in study.methods if entry.budget_setting is not None}
    lines = []
    # labels of the whole study, so that a method has the same colour in every panel
    for label in _labels(spots, lambda spot: spot.role is Role.CONTENDER):
        mine = [(_place(spot, label in reporting), spot) for spot in here if spot.label == label]
        mine.sort(key=lambda pair: pair[0])
        line = _line(label, [spot for _, spot in mine], metric, [place for place, _ in mine])
        lines.append(replace(line, width=CHAMPION_WIDTH) if label == study.champion else line)
    levels = {spot.label: spot.estimates[metric].mean for spot in here if spot.role is not Role.CONTENDER}
    return Panel("", lines, levels)


def _over_parts(spots: Sequence[Spot], here: Sequence[Spot], metric: Metric, axis: Axis) -> Panel:
    """Draw everyone over numbers of rows, or over data sets, where ceilings and floors change as well."""
    lines = []
    ticks = list(dict.fromkeys(spot.data for spot in spots))
    for label in _labels(spots, lambda spot: is_shown(spot.role, metric)):
        mine = [spot for spot in here if spot.label == label]
        if axis is Axis.ROWS:
            mine.sort(key=lambda spot: spot.n_rows)
            lines.append(_line(label, mine, metric, [float(spot.n_rows) for spot in mine]))
            continue
        line = _line(label, mine, metric, ())
        known = dict(zip((spot.data for spot in mine), zip(line.heights, line.errors, strict=True), strict=True))
        pairs = [known.get(tick, (None, None)) for tick in ticks] if mine else []
        lines.append(Line(label, [height for height, _ in pairs], [error for _, error in pairs]))
    return Panel("", lines)


def _line(label: str, spots: Sequence[Spot], metric: Metric, places: Sequence[float]) -> Line:
    halves = [spot.estimates[metric].half_width for spot in spots]
    heights = [spot.estimates[metric].mean for spot in spots]
    return Line(label, heights, [0.0 if math.isnan(half) else half for half in halves], places)


def _labels(spots: Sequence[Spot], chosen: Callable[[Spot], bool]) -> list[str]:
    return list(dict.fromkeys(spot.label for spot in spots if chosen(spot)))


def _place(spot: Spot, reporting: bool) -> float:
    reported = spot.estimates.get(Metric.EPSILON_REPORTED)
    return reported.mean if reporting and reported is not None and reported.mean > 0 else spot.epsilon
