"""The graph as a standalone SVG drawing, readable on light and dark ground and without colour."""

import enum
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from dagveil.report.formatting import FONT_SIZE, break_lines, measure, write_percent, write_plural, write_share
from dagveil.report.layout import LINE_HEIGHT, Layout, Point, place_graph
from dagveil.runs.result import SOLID, Kind, ResultEdge, ResultGraph
from dagveil.text import clean_text

LINE_WIDTHS: Final = (1.2, 4.0)  # line width at confidence 0 and 1
PLAIN_WIDTH: Final = 1.7  # line width where nothing was drawn again
PAPER, BOX, INK, RIM = "#ffffff", "#f1f5f7", "#1b2a35", "#5d7080"


class _End(enum.Enum):
    """How an end of an edge is drawn."""

    PLAIN = "plain"
    HEAD = "head"
    DOT = "dot"
    RING = "ring"  # the circle of a PAG


_END_LOOKS: Final[dict[Kind, tuple[_End, _End]]] = {
    "directed": (_End.PLAIN, _End.HEAD),
    "undirected": (_End.DOT, _End.DOT),
    "bidirected": (_End.HEAD, _End.HEAD),
    "half-directed": (_End.RING, _End.HEAD),
    "open": (_End.RING, _End.RING),
    "half-open": (_End.RING, _End.DOT),
}
_WORDS: Final[dict[Kind, str]] = {
    "directed": "direction found",
    "undirected": "joined; the direction is open, whichever end is on top",
}
_PAG_WORDS: Final[dict[Kind, str]] = {
    "directed": "a cause, maybe by way of others",
    "half-directed": "a cause, or a shared unmeasured cause",
    "bidirected": "a shared unmeasured cause",
    "open": "joined; a cause either way, or a shared unmeasured cause",
    "undirected": "rows were selected by what both cause",
    "half-open": "rows may have been selected by what the dot's end causes",
}


def draw_line(group: Element, route: Sequence[Point], edge: ResultEdge) -> None:
    """Draw the line and its end marks; both ends of a route are upright or, in the legend, level."""
    thin, thick = LINE_WIDTHS
    width = PLAIN_WIDTH if edge.confidence is None else thin + (thick - thin) * edge.confidence
    looks = _END_LOOKS[edge.kind]
    sizes = {_End.PLAIN: 0.0, _End.HEAD: 7 + 1.6 * width, _End.DOT: 3 + 0.45 * width, _End.RING: 3.5 + 0.45 * width}
    first, last = (sizes[look] - (look is _End.HEAD) for look in looks)
    tips = route[0], route[-1]
    marked = [_towards(route[0], route[1], first), *route[1:]] if first else list(route)
    marked = [*marked[:-1], _towards(tips[1], marked[-2], last)]
    style = {"class": "line", "fill": "none", "stroke": INK, "stroke-width": write_length(width)}
    if edge.confidence is not None and edge.confidence < 0.5:
        style["stroke-dasharray"] = "5 4"
    SubElement(group, "path", {"d": _path(marked), **style})
    hollow = edge.marks_at_source is None and _is_doubtful(edge)  # doubtful marks of a PAG are circles already
    look = {"class": "hollow" if hollow else "full", "fill": PAPER if hollow else INK}
    look |= {"stroke": INK, "stroke-width": "1.4"}
    for end, tip, at in zip(looks, tips, (marked[0], marked[-1]), strict=True):
        if end is _End.HEAD:
            points = _arrowhead(tip, at, sizes[end])
            SubElement(group, "polygon", {"points": points, "stroke-linejoin": "round", **look})
        elif end is not _End.PLAIN:
            own = look if end is _End.DOT else look | {"class": "hollow", "fill": PAPER}
            SubElement(group, "circle", write_lengths(cx=at.x, cy=at.y, r=sizes[end]) | own)


def _is_doubtful(edge: ResultEdge) -> bool:
    """Return whether redraws disagree about the direction: an arrow is clear if nearly all of them show it."""
    if edge.kind == "directed" and edge.forward is not None:
        return edge.forward < SOLID
    return edge.arrow_confidence is not None and edge.arrow_confidence < 0.5


def _towards(start: Point, end: Point, distance: float) -> Point:
    """Return the point at a distance from the start: upright, as edges leave boxes, or level, as in the legend."""
    if start.y == end.y:
        return Point(start.x + (distance if end.x > start.x else -distance), start.y)
    return Point(start.x, start.y + (distance if end.y > start.y else -distance))


def _arrowhead(tip: Point, before: Point, size: float) -> str:
    tip = _towards(tip, before, 1)  # the rim of the head must not reach into the box
    base = _towards(tip, before, size - 1)
    half = 0.42 * size
    x, y = (0.0, half) if tip.y == before.y else (half, 0.0)
    return write_corners([tip, (base.x - x, base.y - y), (base.x + x, base.y + y)])


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
    place = {**write_lengths(x=at.x, y=at.y), "dy": "0.35em", "text-anchor": anchor}
    written = Element("text", {"class": "name", "fill": INK, **place})
    written.text = text
    return written


def write_length(value: float) -> str:
    """Print a length with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def write_lengths(**values: float) -> dict[str, str]:
    """Print lengths as attributes."""
    return {name: write_length(value) for name, value in values.items()}


def write_corners(corners: Iterable[tuple[float, float]]) -> str:
    """Print the corners of a polygon."""
    return " ".join(f"{write_length(x)},{write_length(y)}" for x, y in corners)


SAMPLE: Final = 34.0  # length of a sample line
STEP: Final = 10.0
ROW: Final = 22.0
TOP: Final = 34.0  # distance of the first row from the graph
NARROWEST: Final = 420.0  # a legend may be this wide even if the graph is narrower


def draw_legend(items: Sequence[tuple[str, list[ResultEdge]]], width: float) -> tuple[Element, float, float]:
    """Draw the legend in rows up to the width of the graph; return it with its own width and height."""
    group = Element("g", {"class": "legend"})
    x, y, reach = 0.0, TOP, 0.0
    for words, samples in items:
        room = (SAMPLE + STEP) * max(len(samples), 1) + measure(words)
        if x and x + room > max(width, NARROWEST):
            x, y = 0.0, y + ROW
        group.append(write_text(words, _draw_samples(group, Point(x, y), samples), anchor="start"))
        reach = max(reach, x + room)
        x += room + SAMPLE
    return group, reach, (y + STEP if items else 0.0)


def draw_samples(graph: ResultGraph) -> tuple[tuple[str, str], ...]:
    """Draw the legend for a page: the words of each item, and its samples as a small SVG of their own."""
    items = []
    for words, samples in _list_items(graph):
        size = write_lengths(width=(SAMPLE + STEP) * max(len(samples), 1), height=ROW)
        box = f"-2 0 {size['width']} {size['height']}"
        root = Element("svg", {"class": "dagveil-graph", "viewBox": box, "aria-hidden": "true", **size})
        _draw_samples(root, Point(0, ROW / 2), samples)
        items.append((words, tostring(root, encoding="unicode")))
    return tuple(items)


def _list_items(graph: ResultGraph) -> list[tuple[str, list[ResultEdge]]]:
    """Words with their sample edges; the item without samples is about line width."""
    items: list[tuple[str, list[ResultEdge]]] = []
    words = _PAG_WORDS if graph.family == "pag" else _WORDS
    for kind in words:
        if any(edge.kind == kind for edge in graph.edges):
            items.append((words[kind], [ResultEdge("", "", kind)]))
    doubtful = [kind for kind in words if any(_is_doubtful(edge) and edge.kind == kind for edge in graph.edges)]
    if doubtful and graph.family != "pag":  # whose circles say so
        hollow = [ResultEdge("", "", kind, None, 0.0) for kind in doubtful]
        items.append(("hollow: redraws disagree about the direction", hollow))
    weak = [edge.kind for edge in graph.edges if edge.confidence is not None and edge.confidence < 0.5]
    if weak:
        dashed = [ResultEdge("", "", kind, 0.49) for kind in words if kind in weak]
        items.append(("dashed: found again in fewer than half of redraws", dashed))
    if any(edge.confidence is not None for edge in graph.edges):
        items.append(("thicker: higher confidence", []))
    return items


def _draw_samples(group: Element, at: Point, samples: Sequence[ResultEdge]) -> Point:
    """Draw samples side by side, or where there are none a wedge of growing width; return where they end."""
    for edge in samples:
        draw_line(group, [at, Point(at.x + SAMPLE, at.y)], edge)
        at = Point(at.x + (SAMPLE + STEP), at.y)
    if samples:
        return at
    points = write_corners([at, (at.x + SAMPLE, at.y - 2.2), (at.x + SAMPLE, at.y + 2.2)])
    SubElement(group, "polygon", {"class": "full", "points": points, "fill": INK, "stroke": INK})
    return Point(at.x + (SAMPLE + STEP), at.y)


MARGIN: Final = 18.0
EDGES_TOLD: Final = 60  # the description lists this many edges, for readers who hear the drawing
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
HALO: Final = "#f0b429"
HALO_STYLE: Final = """
.dagveil-graph .halo { fill: none; stroke: #f0b429; stroke-width: 11; stroke-opacity: .55; stroke-linecap: round; }
"""


def draw_graph(
    graph: ResultGraph,
    title: str = "Causal graph",
    note: str = "",
    legend_apart: bool = False,
    differing: Container[frozenset[str]] = (),
) -> str:
    """Draw a graph as SVG.

    Boxes are columns. A directed edge ends in an arrowhead, an undirected one has a dot at both ends. The line grows
    with the confidence of the edge. The circles of a PAG are rings. A hollow arrowhead or dot marks a direction that
    redraws disagree about.

    The note is printed above the graph: what nobody may overlook when the picture travels alone. With the legend apart,
    the page has it, where it stays while the drawing is moved and enlarged. A broad halo runs along the edges of pairs
    that another result joins differently.
    """
    arrows, lines = (
        [(edge.source, edge.target) for edge in graph.edges if (edge.kind in ("directed", "half-directed")) is directed]
        for directed in (True, False)
    )
    layout = place_graph(graph.nodes, arrows, lines)
    legend, legend_width, legend_height = draw_legend([] if legend_apart else _list_items(graph), layout.width)
    above = 2 * FONT_SIZE if note else 0
    width, height = max(layout.width, legend_width) + 2 * MARGIN, layout.height + legend_height + 2 * MARGIN + above
    style = STYLE + HALO_STYLE if differing else STYLE
    root = open_drawing("dagveil-graph", width, height, title, describe_graph(graph), style)
    if note:
        root.append(write_text(clean_text(note), Point(width / 2, MARGIN + FONT_SIZE / 2), anchor="middle"))
    left = write_length((width - layout.width) / 2)
    sheet = SubElement(root, "g", {"class": "sheet", "transform": f"translate({left} {write_length(MARGIN + above)})"})
    key = {node: i for i, node in enumerate(graph.nodes)}
    for edge in graph.edges:
        sheet.append(_draw_edge(edge, layout, key, differs=frozenset((edge.source, edge.target)) in differing))
    for node in graph.nodes:
        sheet.append(_draw_node(node, layout, key))
    legend.set("transform", f"translate({write_length(MARGIN)} {write_length(MARGIN + above + layout.height)})")
    root.append(legend)
    return tostring(root, encoding="unicode")


def open_drawing(kind: str, width: float, height: float, title: str, description: str, style: str) -> Element:
    """Return an empty drawing: its size, what screen readers say, its style sheet and its ground."""
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": kind,
            "role": "img",
            "aria-labelledby": f"{kind}-title {kind}-desc",
            **write_lengths(width=width, height=height),
            "viewBox": f"0 0 {write_length(width)} {write_length(height)}",
            "font-family": FONT,
            "font-size": write_length(FONT_SIZE),
            "style": f"--graph-width: {write_length(width)}px",  # lets a page decide how far the drawing may shrink
        },
    )
    SubElement(root, "title", {"id": f"{kind}-title"}).text = clean_text(title)
    SubElement(root, "desc", {"id": f"{kind}-desc"}).text = clean_text(description)
    SubElement(root, "style").text = style
    SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%", "fill": PAPER})
    return root


def describe_graph(graph: ResultGraph) -> str:
    """Tell the graph in words."""
    directed = f"{len(graph.arrows)} directed and {write_plural(len(graph.lines), 'undirected edge')}"
    columns = write_plural(len(graph.nodes), "column")
    head = f"{count_edges(graph)}." if graph.family == "pag" else f"{columns}; {directed}."
    told = [f"{edge.source} {edge.sign} {edge.target}" for edge in graph.edges[:EDGES_TOLD]]
    if len(graph.edges) > EDGES_TOLD:
        told.append(f"and {len(graph.edges) - EDGES_TOLD} more")
    return f"{head} {'; '.join(told)}." if told else head


def count_edges(graph: ResultGraph) -> str:
    """Count the columns, and the edges of each kind."""
    counts = [write_plural(len(graph.nodes), "column")]
    for kind in _PAG_WORDS if graph.family == "pag" else _WORDS:
        edges = sum(edge.kind == kind for edge in graph.edges)
        if edges or graph.family != "pag":
            counts.append(write_plural(edges, f"{kind} edge"))
    return ", ".join(counts)


def describe_edge(edge: ResultEdge) -> str:
    """Tell an edge and its confidence in words."""
    words = f"{edge.source} {edge.sign} {edge.target}"
    if edge.confidence is not None:
        words += f": the edge came back in {write_share(edge.confidence)} of redraws"
        if edge.arrow_confidence is not None:
            what = "this direction" if edge.kind == "directed" else "without direction"
            what = what if edge.marks_at_source is None else "with these marks"
            words += f", {what} in {write_share(edge.arrow_confidence)} of those"
    return words


def _draw_node(node: str, layout: Layout, key: Mapping[str, int]) -> Element:
    centre, size = layout.positions[node], layout.boxes[node]
    # numbers, not names, join nodes with edges: whatever a column is called, a script finds it
    group = Element("g", {"class": "node", "data-node": str(key[node])})
    SubElement(group, "title").text = clean_text(node)
    left, top = centre.x - size.width / 2, centre.y - size.height / 2
    place = write_lengths(x=left, y=top, width=size.width, height=size.height)
    SubElement(group, "rect", {"class": "box", **place, "rx": "8", "fill": BOX, "stroke": RIM})
    first, *others = break_lines(node)
    name = write_text(first, Point(centre.x, centre.y - len(others) * LINE_HEIGHT / 2), anchor="middle")
    for line in others:
        SubElement(name, "tspan", write_lengths(x=centre.x, dy=LINE_HEIGHT)).text = line
    group.append(name)
    return group


def _draw_edge(edge: ResultEdge, layout: Layout, key: Mapping[str, int], *, differs: bool) -> Element:
    ends = {"data-source": str(key[edge.source]), "data-target": str(key[edge.target])}
    share = {} if edge.confidence is None else {"data-confidence": write_percent(edge.confidence)}
    group = Element("g", {"class": "edge differs" if differs else "edge", "data-kind": edge.kind, **ends, **share})
    SubElement(group, "title").text = clean_text(describe_edge(edge))
    draw_line(group, layout.routes[edge.source, edge.target], edge)
    if differs:
        halo = Element("path", {"class": "halo", "d": group[1].get("d", ""), "fill": "none", "stroke": HALO})
        SubElement(halo, "title").text = "differs from the other result"
        group.insert(1, halo)
    return group
