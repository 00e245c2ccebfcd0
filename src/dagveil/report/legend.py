"""The legend: what the signs of this drawing mean, and only those that occur."""

from __future__ import annotations

import enum
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from dagveil.report.graph import DrawnEdge, DrawnGraph, EdgeKind
from dagveil.report.labels import measure
from dagveil.report.layout import Point
from dagveil.report.svg_lines import INK, draw_line, write_length, write_text

SAMPLE: Final = 34.0
"""Length of a sample line."""
STEP: Final = 10.0
ROW: Final = 22.0
TOP: Final = 34.0
"""Distance of the first row from the graph."""
NARROWEST: Final = 420.0
"""A legend may be this wide even if the graph is narrower."""


class Legend(enum.Enum):
    """Where the legend stands."""

    BELOW = "below"
    """In the drawing, for a drawing that travels alone."""

    APART = "apart"
    """In the page, where it stays while the drawing is moved and enlarged."""


def draw_legend(graph: DrawnGraph, width: float, place: Legend = Legend.BELOW) -> tuple[Element, float, float]:
    """Draw the legend in rows up to the width of the graph; return it with its own width and height."""
    group = Element("g", {"class": "legend"})
    x, y, reach = 0.0, TOP, 0.0
    items = _list_items(graph) if place is Legend.BELOW else []
    for words, samples in items:
        room = (SAMPLE + STEP) * max(len(samples), 1) + measure(words)
        if x and x + room > max(width, NARROWEST):
            x, y = 0.0, y + ROW
        at = x
        for edge in samples:
            draw_line(group, [Point(at, y), Point(at + SAMPLE, y)], edge)
            at += SAMPLE + STEP
        if not samples:
            _draw_wedge(group, Point(at, y))
            at += SAMPLE + STEP
        group.append(write_text(words, Point(at, y), anchor="start"))
        reach = max(reach, x + room)
        x += room + SAMPLE
    return group, reach, (y + STEP if items else 0.0)


def draw_samples(graph: DrawnGraph) -> tuple[tuple[str, str], ...]:
    """Draw the legend for a page: the words of each item, and its samples as a small SVG of their own."""
    items = []
    for words, samples in _list_items(graph):
        width, height = (SAMPLE + STEP) * max(len(samples), 1), ROW
        size = {"width": write_length(width), "height": write_length(height)}
        box = f"-2 0 {size['width']} {size['height']}"
        root = Element("svg", {"class": "dagveil-graph", "viewBox": box, "aria-hidden": "true", **size})
        for i, edge in enumerate(samples):
            left = i * (SAMPLE + STEP)
            draw_line(root, [Point(left, height / 2), Point(left + SAMPLE, height / 2)], edge)
        if not samples:
            _draw_wedge(root, Point(0, height / 2))
        items.append((words, tostring(root, encoding="unicode")))
    return tuple(items)


def _list_items(graph: DrawnGraph) -> list[tuple[str, list[DrawnEdge]]]:
    """Words with their sample edges; the item without samples is about line width."""
    items: list[tuple[str, list[DrawnEdge]]] = []
    words = {
        EdgeKind.DIRECTED: "direction found",
        EdgeKind.UNDIRECTED: "joined; the direction is open, whichever end is on top",
    }
    for kind in EdgeKind:
        if any(edge.kind is kind for edge in graph.edges):
            items.append((words[kind], [DrawnEdge("", "", kind)]))
    doubtful = [kind for kind in EdgeKind if any(edge.doubtful and edge.kind is kind for edge in graph.edges)]
    if doubtful:
        hollow = [DrawnEdge("", "", kind, None, 0.0) for kind in doubtful]
        items.append(("hollow: redraws disagree about the direction", hollow))
    weak = [edge.kind for edge in graph.edges if edge.confidence is not None and edge.confidence < 0.5]
    if weak:
        dashed = [DrawnEdge("", "", kind, 0.49) for kind in EdgeKind if kind in weak]
        items.append(("dashed: found again in fewer than half of redraws", dashed))
    if any(edge.confidence is not None for edge in graph.edges):
        items.append(("thicker: higher confidence", []))
    return items


def _draw_wedge(group: Element, at: Point) -> None:
    corners = (at, Point(at.x + SAMPLE, at.y - 2.2), Point(at.x + SAMPLE, at.y + 2.2))
    points = " ".join(f"{write_length(corner.x)},{write_length(corner.y)}" for corner in corners)
    SubElement(group, "polygon", {"class": "full", "points": points, "fill": INK, "stroke": INK})
