"""The graph as a standalone SVG drawing, readable on light and dark ground and without colour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

import msgspec

from dagveil.report.formatting import write_percent, write_plural, write_share
from dagveil.report.graph import DrawnEdge, DrawnGraph, EdgeKind, read_graph
from dagveil.report.labels import FONT_SIZE, break_lines
from dagveil.report.layout import Layout, Point, place_graph
from dagveil.report.legend import Legend, draw_legend
from dagveil.report.svg_lines import BOX, PAPER, RIM, draw_line, write_length, write_lines, write_text
from dagveil.text import clean_text

MARGIN: Final = 18.0
EDGES_TOLD: Final = 60
"""The description lists this many edges, for readers who hear the drawing."""

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
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


def draw_graph(
    graph: Mapping[str, Any] | msgspec.Struct | DrawnGraph,
    title: str = "Causal graph",
    note: str = "",
    legend_place: Legend = Legend.BELOW,
) -> str:
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
    note
        Printed above the graph: what nobody may overlook when the picture travels alone.
    legend_place
        Whether the legend is part of the drawing.

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
    legend, legend_width, legend_height = draw_legend(drawn, layout.width, legend_place)
    above = 2 * FONT_SIZE if note else 0
    width, height = max(layout.width, legend_width) + 2 * MARGIN, layout.height + legend_height + 2 * MARGIN + above
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "dagveil-graph",
            "role": "img",
            "aria-labelledby": "dagveil-graph-title dagveil-graph-desc",
            "width": write_length(width),
            "height": write_length(height),
            "viewBox": f"0 0 {write_length(width)} {write_length(height)}",
            "font-family": FONT,
            "font-size": write_length(FONT_SIZE),
            "style": f"--graph-width: {write_length(width)}px",  # lets a page decide how far the drawing may shrink
        },
    )
    SubElement(root, "title", {"id": "dagveil-graph-title"}).text = clean_text(title)
    SubElement(root, "desc", {"id": "dagveil-graph-desc"}).text = clean_text(describe_graph(drawn))
    SubElement(root, "style").text = STYLE
    SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%", "fill": PAPER})
    if note:
        root.append(write_text(clean_text(note), Point(width / 2, MARGIN + FONT_SIZE / 2), anchor="middle"))
    left = write_length((width - layout.width) / 2)
    sheet = SubElement(root, "g", {"class": "sheet", "transform": f"translate({left} {write_length(MARGIN + above)})"})
    key = {node: i for i, node in enumerate(drawn.nodes)}
    for edge in drawn.edges:
        sheet.append(_draw_edge(edge, layout, key))
    for node in drawn.nodes:
        sheet.append(_draw_node(node, layout, key))
    legend.set("transform", f"translate({write_length(MARGIN)} {write_length(MARGIN + above + layout.height)})")
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
    >>> describe_edge(DrawnEdge("a", "b", EdgeKind.DIRECTED, 0.5))
    'a → b: the edge came back in 50 % of redraws'
    """
    words = f"{edge.source} {edge.sign} {edge.target}"
    if edge.confidence is not None:
        words += f": the edge came back in {write_share(edge.confidence)} of redraws"
        if edge.arrow_confidence is not None:
            what = "this direction" if edge.kind is EdgeKind.DIRECTED else "without direction"
            words += f", {what} in {write_share(edge.arrow_confidence)} of those"
    return words


def _draw_node(node: str, layout: Layout, key: Mapping[str, int]) -> Element:
    centre, size = layout.positions[node], layout.boxes[node]
    # numbers, not names, join nodes with edges: whatever a column is called, a script finds it
    group = Element("g", {"class": "node", "data-node": str(key[node])})
    SubElement(group, "title").text = clean_text(node)
    box = {
        "class": "box",
        "x": write_length(centre.x - size.width / 2),
        "y": write_length(centre.y - size.height / 2),
        "width": write_length(size.width),
        "height": write_length(size.height),
        "rx": "8",
        "fill": BOX,
        "stroke": RIM,
    }
    SubElement(group, "rect", box)
    group.append(write_lines(break_lines(node), centre))
    return group


def _draw_edge(edge: DrawnEdge, layout: Layout, key: Mapping[str, int]) -> Element:
    ends = {"data-source": str(key[edge.source]), "data-target": str(key[edge.target])}
    share = {} if edge.confidence is None else {"data-confidence": write_percent(edge.confidence)}
    group = Element("g", {"class": "edge", "data-kind": edge.kind.value, **ends, **share})
    SubElement(group, "title").text = clean_text(describe_edge(edge))
    draw_line(group, layout.routes[edge.source, edge.target], edge)
    return group
