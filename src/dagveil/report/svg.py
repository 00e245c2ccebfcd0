"""The graph as a standalone SVG drawing, readable on light and dark ground and without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

import msgspec

from dagveil.report.graph import DrawnEdge, DrawnGraph, EdgeKind, read_graph
from dagveil.report.labels import FONT_SIZE, clean_text, measure, shorten
from dagveil.report.layout import BOX_HEIGHT, Layout, Point, place_graph
from dagveil.report.wording import write_plural, write_share

MARGIN: Final = 18.0
LINE_WIDTHS: Final = (1.2, 4.0)
"""Line width at confidence 0 and 1."""
PLAIN_WIDTH: Final = 1.7
"""Line width where nothing was redrawn."""
EDGES_TOLD: Final = 60
"""The description lists this many edges, for readers who hear the drawing."""

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PAPER, BOX, INK, RIM = "#ffffff", "#f1f5f7", "#1b2a35", "#5d7080"
# Colours stand in attributes, which every viewer knows; the style sheet only changes them for dark screens.
STYLE: Final = """
.dagveil-graph .edge:hover .line, .dagveil-graph .edge:hover .full { stroke: #0b6472; }
.dagveil-graph .edge:hover .full { fill: #0b6472; }
@media screen and (prefers-color-scheme: dark) {
  .dagveil-graph .paper { fill: #12181d; }
  .dagveil-graph .box { fill: #1d272f; stroke: #8da0b0; }
  .dagveil-graph .name { fill: #e8eef2; }
  .dagveil-graph .line, .dagveil-graph .full { stroke: #c9d5dd; }
  .dagveil-graph .full { fill: #c9d5dd; }
  .dagveil-graph .hollow { fill: #12181d; stroke: #c9d5dd; }
  .dagveil-graph .edge:hover .line, .dagveil-graph .edge:hover .full { stroke: #62c8d6; }
  .dagveil-graph .edge:hover .full { fill: #62c8d6; }
}
"""


def draw_graph(graph: Mapping[str, Any] | msgspec.Struct | DrawnGraph, title: str = "Causal graph") -> str:
    """Draw a graph as SVG.

    Boxes are columns. A directed edge ends in an arrowhead, an undirected one has a dot at both ends. The line grows
    with the confidence of the edge. A hollow arrowhead or dot marks a direction that fewer than half of the redraws
    confirm.

    Parameters
    ----------
    graph
        The field `graph` of a result, decoded or frozen.
    title
        Title for screen readers and tooltips.

    Examples
    --------
    >>> draw_graph({"nodes": ["a", "b"], "edges": []})[:4]
    '<svg'
    """
    drawn = read_graph(graph)
    layout = place_graph(
        drawn.nodes,
        [(edge.source, edge.target) for edge in drawn.arrows],
        [(edge.source, edge.target) for edge in drawn.lines],
    )
    legend, legend_width, legend_height = _draw_legend(drawn, layout.width)
    width, height = max(layout.width, legend_width) + 2 * MARGIN, layout.height + legend_height + 2 * MARGIN
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "dagveil-graph",
            "role": "img",
            "aria-labelledby": "dagveil-graph-title dagveil-graph-desc",
            "width": _number(width),
            "height": _number(height),
            "viewBox": f"0 0 {_number(width)} {_number(height)}",
            "font-family": FONT,
            "font-size": _number(FONT_SIZE),
        },
    )
    SubElement(root, "title", {"id": "dagveil-graph-title"}).text = clean_text(title)
    SubElement(root, "desc", {"id": "dagveil-graph-desc"}).text = clean_text(describe_graph(drawn))
    SubElement(root, "style").text = STYLE
    SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%", "fill": PAPER})
    sheet = SubElement(root, "g", {"transform": f"translate({_number((width - layout.width) / 2)} {_number(MARGIN)})"})
    for edge in drawn.edges:
        sheet.append(_draw_edge(edge, layout))
    for node in drawn.nodes:
        sheet.append(_draw_node(node, layout))
    legend.set("transform", f"translate({_number(MARGIN)} {_number(MARGIN + layout.height)})")
    root.append(legend)
    return tostring(root, encoding="unicode")


def describe_graph(graph: DrawnGraph) -> str:
    """Tell the graph in words.

    Examples
    --------
    >>> describe_graph(DrawnGraph(("a", "b"), (DrawnEdge("a", "b", EdgeKind.UNDIRECTED),)))
    '2 columns; 0 directed and 1 undirected edge. a — b.'
    """
    head = f"{write_plural(len(graph.nodes), 'column')}; {len(graph.arrows)} directed and "
    head += f"{write_plural(len(graph.lines), 'undirected edge')}."
    told = [f"{edge.source} {edge.sign} {edge.target}" for edge in graph.edges[:EDGES_TOLD]]
    if len(graph.edges) > EDGES_TOLD:
        told.append(f"and {len(graph.edges) - EDGES_TOLD} more")
    return f"{head} {'; '.join(told)}." if told else head


def describe_edge(edge: DrawnEdge) -> str:
    """Tell an edge and its confidence in words.

    Examples
    --------
    >>> describe_edge(DrawnEdge("a", "b", EdgeKind.DIRECTED, 0.5)).replace("\\xa0", " ")
    'a → b: the edge came back in 50 % of redraws'
    """
    words = f"{edge.source} {edge.sign} {edge.target}"
    if edge.confidence is not None:
        words += f": the edge came back in {write_share(edge.confidence)} of redraws"
        if edge.arrow_confidence is not None:
            what = "this direction" if edge.kind is EdgeKind.DIRECTED else "without direction"
            words += f", {what} in {write_share(edge.arrow_confidence)} of those"
    return words


def _draw_node(node: str, layout: Layout) -> Element:
    centre, width = layout.positions[node], layout.box_widths[node]
    group = Element("g", {"class": "node"})
    SubElement(group, "title").text = clean_text(node)
    box = {
        "class": "box",
        "x": _number(centre.x - width / 2),
        "y": _number(centre.y - BOX_HEIGHT / 2),
        "width": _number(width),
        "height": _number(BOX_HEIGHT),
        "rx": "8",
        "fill": BOX,
        "stroke": RIM,
    }
    SubElement(group, "rect", box)
    group.append(_write(shorten(node), centre, anchor="middle"))
    return group


def _draw_edge(edge: DrawnEdge, layout: Layout) -> Element:
    group = Element("g", {"class": "edge"})
    SubElement(group, "title").text = clean_text(describe_edge(edge))
    _draw_line(group, layout.routes[edge.source, edge.target], edge)
    return group


def _draw_line(group: Element, route: Sequence[Point], edge: DrawnEdge) -> None:
    """Draw the line and its end marks; both ends of a route are upright or, in the legend, level."""
    width = _line_width(edge.confidence)
    directed = edge.kind is EdgeKind.DIRECTED
    size = 7 + 1.6 * width if directed else 3 + 0.45 * width
    marked = route if directed else [_towards(route[0], route[1], size), *route[1:]]
    tip = marked[-1]
    marked = [*marked[:-1], _towards(tip, marked[-2], size - 1 if directed else size)]
    style = {"class": "line", "fill": "none", "stroke": INK, "stroke-width": _number(width)}
    SubElement(group, "path", {"d": _path(marked), **style})
    look = {"class": "hollow" if edge.doubtful else "full", "fill": PAPER if edge.doubtful else INK, "stroke": INK}
    look["stroke-width"] = "1.4"
    if directed:
        SubElement(group, "polygon", {"points": _arrowhead(tip, marked[-1], size), "stroke-linejoin": "round", **look})
    else:
        for at in (marked[0], marked[-1]):
            SubElement(group, "circle", {"cx": _number(at.x), "cy": _number(at.y), "r": _number(size), **look})


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
    return " ".join(f"{_number(corner.x)},{_number(corner.y)}" for corner in corners)


def _path(route: Sequence[Point]) -> str:
    parts = [f"M{_number(route[0].x)} {_number(route[0].y)}"]
    for start, end in zip(route, route[1:], strict=False):
        x, y, middle = _number(end.x), _number(end.y), _number((start.y + end.y) / 2)
        if abs(start.x - end.x) < 0.05 or start.y == end.y:
            parts.append(f"L{x} {y}")
        else:
            parts.append(f"C{_number(start.x)} {middle} {x} {middle} {x} {y}")
    return "".join(parts)


def _draw_legend(graph: DrawnGraph, width: float) -> tuple[Element, float, float]:
    """Explain the signs that occur; return the legend with its size."""
    items: list[tuple[str, list[DrawnEdge]]] = []
    sure = [edge for edge in graph.edges if not edge.doubtful]
    if any(edge.kind is EdgeKind.DIRECTED for edge in sure):
        items.append(("direction found", [DrawnEdge("", "", EdgeKind.DIRECTED)]))
    if any(edge.kind is EdgeKind.UNDIRECTED for edge in sure):
        items.append(("joined, direction open", [DrawnEdge("", "", EdgeKind.UNDIRECTED)]))
    kinds = [kind for kind in EdgeKind if any(edge.doubtful and edge.kind is kind for edge in graph.edges)]
    if kinds:
        hollow = [DrawnEdge("", "", kind, None, 0.0) for kind in kinds]
        items.append(("hollow: confirmed by fewer than half of redraws", hollow))
    group = Element("g", {"class": "legend"})
    x, y, reach, sample = 0.0, 34.0, 0.0, 34.0
    if any(edge.confidence is not None for edge in graph.edges):
        items.append(("thicker: higher confidence", []))
    for words, samples in items:
        room = sample * max(len(samples), 1) + 10 * len(samples) + measure(words)
        if x and x + room > max(width, 420):
            x, y = 0.0, y + 22
        at = x
        for edge in samples:
            _draw_line(group, [Point(at, y), Point(at + sample, y)], edge)
            at += sample + 10
        if not samples:
            wedge = f"{_number(at)},{_number(y)} {_number(at + sample)},{_number(y - 2.2)} {_number(at + sample)},{_number(y + 2.2)}"
            SubElement(group, "polygon", {"class": "full", "points": wedge, "fill": INK, "stroke": INK})
            at += sample + 10
        group.append(_write(words, Point(at, y), anchor="start"))
        x += room + 34
        reach = max(reach, x - 34)
    return group, reach, (y + 8 if items else 0.0)


def _write(text: str, at: Point, anchor: str) -> Element:
    place = {"x": _number(at.x), "y": _number(at.y), "dy": "0.35em", "text-anchor": anchor}
    written = Element("text", {"class": "name", "fill": INK, **place})
    written.text = text
    return written


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
