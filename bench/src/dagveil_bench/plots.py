"""Figures of studies as SVG: lines over budgets, panels side by side."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from dagveil.errors import MissingExtraError

MARKERS = "osD^vP*Xh<>"
DASHES = ("-", "--", "-.", ":")
# Wong's palette, which people with colour blindness can tell apart; markers and dashes differ besides
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#333333", "#999999")
LEVEL_DASHES = ((0, (1, 3)), (0, (6, 2)), (0, (3, 2, 1, 2)), (0, (8, 2, 2, 2)))
# of horizontal lines; colours change when all dashes have been used
LEVEL_COLOURS = ("#555555", "#aa4499", "#117733")
# half of an SVG file: digits that nobody sees, spaces, and what browsers assume anyway
_NEEDLESS = re.compile(r"(\d\d\.\d|\.\d\d)\d+|(?<=\n) +| +(?=\n)|(?<=\n[ML]) |; stroke-linejoin: miter")
_NAMES = re.compile(r'<g id="(?:line2d|text|patch|[xy]tick|[A-Za-z]*Collection)_\d+">')


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a label, heights over the ticks (None where nothing was run), and half-widths of intervals.

    With `places`, heights stand over these numbers of a logarithmic axis instead. A `width` above the usual one shows
    beneath lines that run on top of it.
    """

    label: str
    heights: Sequence[float | None]
    errors: Sequence[float | None] = ()
    places: Sequence[float] = ()
    width: float = 1.2


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes; levels are horizontal lines with their labels, such as the level of a test."""

    title: str
    lines: Sequence[Line]
    levels: Mapping[str, float] = field(default_factory=dict)


def draw_panels(
    panels: Sequence[Panel],
    ticks: Sequence[str],
    x_label: str,
    y_label: str,
    path: str | Path,
    columns: int = 2,
    limits: tuple[float, float] | None = (-0.03, 1.03),
) -> None:
    """Draw panels with common ticks and one legend, as an SVG file that is the same whenever it is drawn.

    Ticks are labels on the horizontal axis, evenly spaced; without them the axis is logarithmic, and every line says
    where its heights stand. Without limits the vertical axis starts at 0, for each panel by itself.
    """
    figures, matplotlib = _load()
    rows = -(-len(panels) // columns)
    styles = _style_levels(panels)
    plain = {"svg.hashsalt": "dagveil", "svg.fonttype": "none", "lines.solid_capstyle": "butt"}  # small files
    with matplotlib.rc_context({**plain, "font.size": 9}):
        figure, axes = figures.subplots(
            rows,
            columns,
            figsize=(4.6 * columns, 3.2 * rows + 0.8),
            squeeze=False,
            sharex=True,
            sharey=limits is not None,
        )
        for place, axis in enumerate(axes.flat):
            if place >= len(panels):
                axis.set_visible(False)
                continue
            _draw(axis, panels[place], ticks, limits, styles)
            axis.set_xlabel(x_label)
            if place + columns >= len(panels):  # nothing is drawn below it that would have the ticks
                axis.tick_params(labelbottom=True)
            if place % columns == 0:
                axis.set_ylabel(y_label)
        handles: dict[str, Any] = {}
        for axis in axes.flat:
            handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=3, frameon=False)
        figure.tight_layout(rect=(0.0, 0.04 + 0.06 * (len(handles) // 3) / rows, 1.0, 1.0))
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": "dagveil"})
        figures.close(figure)
    Path(path).write_text(_NAMES.sub("<g>", _NEEDLESS.sub(r"\1", drawn.getvalue())), encoding="utf-8")


def _style_levels(panels: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """Give every horizontal line of a figure its looks: the same in all panels, since they share one legend."""
    styles = {}
    for number, label in enumerate(dict.fromkeys(label for panel in panels for label in panel.levels)):
        turn, place = divmod(number, len(LEVEL_DASHES))
        styles[label] = {"color": LEVEL_COLOURS[turn % len(LEVEL_COLOURS)], "linestyle": LEVEL_DASHES[place]}
    return styles


def _draw(
    axis: Any,
    panel: Panel,
    ticks: Sequence[str],
    limits: tuple[float, float] | None,
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    for number, line in enumerate(panel.lines):
        places = [place for place, height in enumerate(line.heights) if height is not None]
        errors = [line.errors[place] or 0.0 if line.errors else 0.0 for place in places]
        xs = [line.places[place] for place in places] if line.places else places
        heights = [line.heights[place] or 0.0 for place in places]
        (drawn,) = axis.plot(
            xs,
            heights,
            label=line.label,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            # moved on with every round of colours, so that no two of 32 lines look alike
            linestyle=DASHES[(number + number // len(COLOURS)) % len(DASHES)],
            markersize=4,
            linewidth=line.width,
        )
        # all intervals of a line are one path, with gaps: an element for each would be most of the file
        ends = [end for y, e in zip(heights, errors, strict=True) for end in ((y - e, y + e, math.nan) if e else ())]
        across = [x for x, e in zip(xs, errors, strict=True) for _ in range(3) if e]
        axis.plot(across, ends, color=drawn.get_color(), linewidth=line.width)
    for label, height in panel.levels.items():
        axis.axhline(height, linewidth=0.8, label=label, **styles[label])
    axis.set_title(panel.title)
    if ticks:
        axis.set_xticks(range(len(ticks)), ticks)
    else:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.tick_params(labelbottom=True)
    if limits is not None:
        axis.set_ylim(*limits)
    else:
        axis.set_ylim(bottom=0.0)
    axis.grid(alpha=0.25, linewidth=0.5)


def _load() -> tuple[Any, Any]:
    try:
        matplotlib = import_module("matplotlib")
        matplotlib.use("svg")
        return import_module("matplotlib.pyplot"), matplotlib
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install './bench[plots]'") from error
