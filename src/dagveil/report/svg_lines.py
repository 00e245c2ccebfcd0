"""Pen strokes of the drawing: lines with their end marks, and text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final
from xml.etree.ElementTree import Element, SubElement

from dagveil.report.graph import DrawnEdge, EdgeKind
from dagveil.report.layout import LINE_HEIGHT, Point

LINE_WIDTHS: Final = (1.2, 4.0)
"""Line width at confidence 0 and 1."""
PLAIN_WIDTH: Final = 1.7
"""Line width where nothing was redrawn."""
PAPER, BOX, INK, RIM = "#ffffff", "#f1f5f7", "#1b2a35", "#5d7080"


def draw_line(group: Element, route: Sequence[Point], edge: DrawnEdge) -> None:
    """Draw the line and its end marks; both ends of a route are upright or, in the legend, level."""
    width = _line_width(edge.confidence)
    directed = edge.kind is EdgeKind.DIRECTED
    size = 7 + 1.6 * width if directed else 3 + 0.45 * width
    marked = route if directed else [_towards(route[0], route[1], size), *route[1:]]
    tip = marked[-1]
    marked = [*marked[:-1], _towards(tip, marked[-2], size - 1 if directed else size)]
    style = {"class": "line", "fill": "none", "stroke": INK, "stroke-width": write_length(width)}
    if edge.confidence is not None and edge.confidence < 0.5:
        style["stroke-dasharray"] = "5 4"
    SubElement(group, "path", {"d": _path(marked), **style})
    look = {"class": "hollow" if edge.doubtful else "full", "fill": PAPER if edge.doubtful else INK}
    look |= {"stroke": INK, "stroke-width": "1.4"}
    if directed:
        SubElement(group, "polygon", {"points": _arrowhead(tip, marked[-1], size), "stroke-linejoin": "round", **look})
    else:
        for at in (marked[0], marked[-1]):
            SubElement(
                group, "circle", {"cx": write_length(at.x), "cy": write_length(at.y), "r": write_length(size), **look}
            )


def _line_width(confidence: float | None) -> float:
    if confidence is None:
        return PLAIN_WIDTH
    thin, thick = LINE_WIDTHS
    return thin + (thick - thin) * confidence


def _towards(start: Point, end: Point, distance: float) -> Point:
    """Return the point at a distance from the start: upright, as edges leave boxes, or level, as in the legend."""
    if start.y == end.y:
        return Point(start.x + (distance if end.x > start.x else -distance), start.y)
    return Point(start.x, start.y + (distance if end.y > start.y else -distance))


def _arrowhead(tip: Point, before: Point, size: float) -> str:
    tip = _towards(tip, before, 1)  # the rim of the head must not reach into the box
    base = _towards(tip, before, size - 1)
    half = 0.42 * size
    if tip.y == before.y:
        corners = [tip, Point(base.x, base.y - half), Point(base.x, base.y + half)]
    else:
        corners = [tip, Point(base.x - half, base.y), Point(base.x + half, base.y)]
    return " ".join(f"{write_length(corner.x)},{write_length(corner.y)}" for corner in corners)


def _path(route: Sequence[Point]) -> str:
    parts = [f"M{write_length(route[0].x)} {write_length(route[0].y)}"]
    for start, end in pairwise(route):
        x, y, middle = write_length(end.x), write_length(end.y), write_length((start.y + end.y) / 2)
        if abs(start.x - end.x) < 0.05 or start.y == end.y:
            parts.append(f"L{x} {y}")
        else:
            parts.append(f"C{write_length(start.x)} {middle} {x} {middle} {x} {y}")
    return "".join(parts)


def write_text(text: str, at: Point, anchor: str) -> Element:
    """Write a text whose middle or start, as the anchor says, is at a point."""
    place = {"x": write_length(at.x), "y": write_length(at.y), "dy": "0.35em", "text-anchor": anchor}
    written = Element("text", {"class": "name", "fill": INK, **place})
    written.text = text
    return written


def write_lines(lines: Sequence[str], at: Point) -> Element:
    """Write lines of text around a point."""
    written = write_text(lines[0], Point(at.x, at.y - (len(lines) - 1) * LINE_HEIGHT / 2), anchor="middle")
    for line in lines[1:]:
        SubElement(written, "tspan", {"x": write_length(at.x), "dy": write_length(LINE_HEIGHT)}).text = line
    return written


def write_length(value: float) -> str:
    """Print a length with one decimal at most.

    Examples
    --------
    >>> write_length(12.04), write_length(0.25)
    ('12', '0.2')
    """
    return f"{value:.1f}".removesuffix(".0")
