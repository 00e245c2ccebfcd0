"""An exploration as curves over epsilon (SVG, legible on dark ground and without colour), as a page, in notebooks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from dagveil.forecast import recommendation
from dagveil.forecast.explore import Exploration
from dagveil.forecast.recommendation import Curve
from dagveil.report.formatting import measure, shorten, write_epsilon, write_number
from dagveil.report.html import open_templates, read_template
from dagveil.report.layout import Point
from dagveil.report.svg import PAPER, RIM, open_drawing, write_corners, write_length, write_lengths, write_text
from dagveil.text import clean_text

SHEET: Final = (460.0, 300.0)  # width and height between the axes, in pixels
# room for the labels of the upright axis, for the title, for the labels of the other, and before the legend
LEFT, TOP, BELOW, GAP = 62.0, 46.0, 62.0, 26.0
ROW: Final = 21.0  # height of a row of the legend
WIDEST_NAME: Final = 220.0  # a name in the legend that is wider is shortened
SHIFT: Final = 3.0  # pixels by which intervals of neighbouring curves stand apart
HEIGHTS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Wong's palette, which people with colour blindness can tell apart; markers and dashes differ besides
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#5d7080")
_Place: TypeAlias = tuple[float, float]
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
STYLE: Final = """
@media screen and (prefers-color-scheme: dark) {
  .dagveil-curve .paper { fill: #12181d; }
  .dagveil-curve .name { fill: #e8eef2; }
  .dagveil-curve .rule { stroke: #55677a; }
}
"""


@dataclass(frozen=True, slots=True)
class _Axes:
    """Where numbers stand on the sheet."""

    first: float
    last: float

    def across(self, epsilon: float) -> float:
        if self.last <= self.first:
            return LEFT + SHEET[0] / 2
        share = (math.log(epsilon) - math.log(self.first)) / (math.log(self.last) - math.log(self.first))
        # a little room on both sides, so that no interval touches the axis
        return LEFT + SHEET[0] * (0.05 + 0.9 * share)

    def up(self, height: float) -> float:
        return TOP + SHEET[1] * (1.0 - height)


def draw_exploration(found: Exploration) -> str:
    """Draw the curves of an exploration as SVG.

    Each method has a colour, a dash and a marker of its own. Upright strokes are 95 % intervals of means. The level
    line is the wanted accuracy, the upright one the recommended epsilon.
    """
    epsilons = [float(point.epsilon) for point in found.curves[0].points]
    axes = _Axes(epsilons[0], epsilons[-1])
    names = [shorten(curve.method, WIDEST_NAME) for curve in found.curves]
    width = LEFT + SHEET[0] + GAP + 46.0 + max(measure(name) for name in (*names, "wanted F1"))
    height = max(TOP + SHEET[1] + BELOW, TOP + ROW * (len(names) + 2.5))
    title = f"Expected skeleton F1 of {found.dataset} over epsilon, on synthetic tables"
    root = open_drawing("dagveil-curve", width, height, title, describe_exploration(found), STYLE)
    head = f"{found.columns} columns, {found.nominal_rows} rows, {found.models} synthetic tables"
    root.append(write_text(head, Point(LEFT, TOP / 2), anchor="start"))
    _draw_axes(root, axes, epsilons)
    _draw_wish(root, axes, found)
    for number, curve in enumerate(found.curves):
        _draw_curve(root, axes, curve, number, len(found.curves))
    _draw_legend(root, names)
    return tostring(root, encoding="unicode")


def describe_exploration(found: Exploration) -> str:
    """Describe the curves in words."""
    told = []
    for curve in found.curves:
        points = [point for point in curve.points if point.f1 is not None]
        heights = [f"{write_number(point.f1)} at {write_epsilon(point.epsilon)}" for point in points]
        told.append(f"{curve.method}: {', '.join(heights) or 'no run ended well'}")
    return f"Mean skeleton F1 by epsilon. {'; '.join(told)}."


def _draw_axes(root: Element, axes: _Axes, epsilons: Sequence[float]) -> None:
    group = SubElement(root, "g", {"class": "axes"})
    right, bottom = LEFT + SHEET[0], axes.up(0.0)
    for height in HEIGHTS:
        _rule(group, (LEFT, axes.up(height)), (right, axes.up(height)), "0.4")
        group.append(write_text(f"{height:g}", Point(LEFT - 9, axes.up(height)), anchor="end"))
    for number in epsilons:
        place = axes.across(number)
        _rule(group, (place, bottom), (place, bottom + 5), "1")
        group.append(write_text(f"{number:g}", Point(place, bottom + 17), anchor="middle"))
    _rule(group, (LEFT, TOP), (LEFT, bottom), "1")
    group.append(write_text("epsilon", Point(LEFT + SHEET[0] / 2, bottom + 40), anchor="middle"))
    label = write_text("expected skeleton F1", Point(0, 0), anchor="middle")
    label.set("transform", f"translate(16 {write_length(TOP + SHEET[1] / 2)}) rotate(-90)")
    group.append(label)


def _draw_wish(root: Element, axes: _Axes, found: Exploration) -> None:
    advice = found.recommendation
    group = SubElement(root, "g", {"class": "wanted"})
    SubElement(group, "title").text = f"wanted F1 {advice.wanted_f1:g}"
    level = axes.up(advice.wanted_f1)
    _rule(group, (LEFT, level), (LEFT + SHEET[0], level), "1.2", "4 4")
    if advice.reached:
        place = axes.across(float(advice.epsilon))
        _rule(group, (place, level), (place, axes.up(0.0)), "1.2", "4 4")


def _draw_curve(root: Element, axes: _Axes, curve: Curve, number: int, count: int) -> None:
    group = SubElement(root, "g", {"class": "curve"})
    SubElement(group, "title").text = clean_text(curve.method)
    colour, dash = _look(number)
    shift = SHIFT * (number - (count - 1) / 2)
    places = []
    for point in curve.points:
        if point.f1 is not None and point.low is not None and point.high is not None:
            places.append(Point(axes.across(float(point.epsilon)) + shift, axes.up(point.f1)))
            _stroke(group, (places[-1].x, axes.up(point.low)), (places[-1].x, axes.up(point.high)), colour, "1")
    route = "".join(f"{'L' if i else 'M'}{write_length(p.x)} {write_length(p.y)}" for i, p in enumerate(places))
    line = {"d": route, "fill": "none", "stroke": colour, "stroke-width": "1.7"}
    if places:
        SubElement(group, "path", line | ({"stroke-dasharray": dash} if dash else {}))
    for place in places:
        _mark(group, place, number)


def _draw_legend(root: Element, names: Sequence[str]) -> None:
    left = LEFT + SHEET[0] + GAP
    group = SubElement(root, "g", {"class": "legend"})
    for number, name in enumerate((*names, "wanted F1")):
        middle = TOP + ROW * (number + 0.5)
        if number < len(names):
            colour, dash = _look(number)
            _stroke(group, (left, middle), (left + 34, middle), colour, "1.7", dash)
            _mark(group, Point(left + 17, middle), number)
        else:
            _rule(group, (left, middle), (left + 34, middle), "1.2", "4 4")
        group.append(write_text(name, Point(left + 42, middle), anchor="start"))


def _look(number: int) -> tuple[str, str]:
    """Return colour and dash; dashes move on with every round of colours."""
    return COLOURS[number % len(COLOURS)], DASHES[(number + number // len(COLOURS)) % len(DASHES)]


def _rule(group: Element, start: _Place, end: _Place, width: str, dash: str = "") -> None:
    _stroke(group, start, end, RIM, width, dash).set("class", "rule")


def _stroke(group: Element, start: _Place, end: _Place, colour: str, width: str, dash: str = "") -> Element:
    ends = write_lengths(x1=start[0], y1=start[1], x2=end[0], y2=end[1])
    look = {"stroke": colour, "stroke-width": width} | ({"stroke-dasharray": dash} if dash else {})
    return SubElement(group, "line", ends | look)


# outlines of markers: disc, square, triangle, diamond, triangle upside down
_CORNERS: Final[tuple[Callable[[float], list[tuple[float, float]]], ...]] = (
    lambda r: [(r * math.cos(k * math.pi / 8), r * math.sin(k * math.pi / 8)) for k in range(16)],
    lambda r: [(-r, -r), (r, -r), (r, r), (-r, r)],
    lambda r: [(0, -1.3 * r), (1.2 * r, r), (-1.2 * r, r)],
    lambda r: [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
    lambda r: [(-1.2 * r, -r), (1.2 * r, -r), (0, 1.3 * r)],
)


def _mark(group: Element, at: Point, number: int) -> None:
    colour, _ = _look(number)
    corners = _CORNERS[number % len(_CORNERS)](3.4)
    points = write_corners((at.x + x, at.y + y) for x, y in corners)
    # every second round of markers is hollow
    fill = colour if (number // len(_CORNERS)) % 2 == 0 else PAPER
    SubElement(group, "polygon", {"points": points, "fill": fill, "stroke": colour, "stroke-width": "1.3"})


def render_exploration(found: Exploration) -> str:
    """Return the page: words, curves and numbers. The same exploration gives the same page, byte for byte."""
    points = found.curves[0].points
    template = open_templates().get_template("exploration.html.j2")
    return template.render(
        found=found,
        epsilons=[write_epsilon(point.epsilon) for point in points],
        rows=tabulate(found.curves),
        weakest=[write_number(point.weakest.typical) for point in points],
        scale=points[0].weakest.scale,
        density=write_number(found.density),
        drawing=Markup(draw_exploration(found)),  # ElementTree has escaped the names
        style=Markup(read_template("report.css")),
    )


def draw_exploration_inline(found: Exploration) -> str:
    """Return curves and words as HTML for a notebook."""
    drawing = Markup(draw_exploration(found))
    words = Markup("").join(
        Markup('<p style="max-width: 60em">{}</p>').format(clean_text(sentence))
        for sentence in (*found.recommendation.words, *found.notes)
    )
    return str(Markup('<div style="overflow-x: auto">{}</div>{}').format(drawing, words))


def tabulate(curves: tuple[Curve, ...]) -> list[tuple[str, list[str]]]:
    """Return each method with its means and intervals as text, by epsilon."""
    return [(curve.method, [write_point(point) for point in curve.points]) for curve in curves]


def write_point(point: recommendation.Point) -> str:
    """Print a mean with its interval; a dash if a run failed."""
    if point.f1 is None or point.low is None or point.high is None:
        return "–"
    return f"{point.f1:.2f} ({point.low:.2f}–{point.high:.2f})"
