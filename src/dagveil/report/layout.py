"""Layout of a graph: causes above effects, few crossings, the same picture for the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from dagveil.report.coordinates import place_spots
from dagveil.report.crossings import reduce_crossings
from dagveil.report.labels import break_lines, measure
from dagveil.report.layers import Arc, Grid, build_grid, order_nodes, rank_nodes

BOX_HEIGHT: Final = 30.0
"""Of a name in one line."""
LINE_HEIGHT: Final = 16.0
BOX_PADDING: Final = 12.0
NARROWEST_BOX: Final = 46.0
LAYER_GAP: Final = 46.0
"""Smallest free room between two layers; more where edges travel far sideways."""
WIDEST_GAP: Final = 150.0
BLOCK_GAP: Final = 34.0
"""Free room between parts of the graph that no edge joins."""
PORT_STEP: Final = 13.0
"""Distance between two edges at the same side of a box."""
USUAL_WIDTH: Final = 900.0
"""Parts are set side by side up to this width."""


class Point(NamedTuple):
    """A place in the drawing, in pixels from the top left."""

    x: float
    y: float


class Size(NamedTuple):
    """Of a box, in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands.

    Parameters
    ----------
    positions
        Centre of each node's box.
    boxes
        Size of each node's box.
    routes
        For each edge, points from source to target. Between two points the edge runs as a curve that starts and
        ends upright; between points above each other, as a line.
    width, height
        Size of the drawing.
    """

    positions: Mapping[str, Point]
    boxes: Mapping[str, Size]
    routes: Mapping[Arc, tuple[Point, ...]]
    width: float
    height: float


def place_graph(nodes: Sequence[str], arrows: Sequence[Arc], lines: Sequence[Arc]) -> Layout:
    """Lay out a graph in layers.

    Parameters
    ----------
    nodes
        Names.
    arrows
        Directed edges (source, target); the source stands above, unless the arrows form a cycle.
    lines
        Undirected edges, as two names each; they follow the order that the arrows leave open.

    Examples
    --------
    >>> layout = place_graph(("lung", "smoke"), [("smoke", "lung")], [])
    >>> layout.positions["smoke"].y < layout.positions["lung"].y
    True
    """
    order = order_nodes(nodes, arrows)
    index = {node: i for i, node in enumerate(order)}
    edges = (*arrows, *lines)
    arcs = [edge if index[edge[0]] < index[edge[1]] else (edge[1], edge[0]) for edge in edges]
    sizes = {node: _size_box(node) for node in nodes}
    blocks = [_place_block(part, [arc for arc in arcs if arc[0] in part], sizes) for part in _find_parts(order, arcs)]
    packed = _pack(blocks)
    routes = {edge: packed.routes.get(edge) or packed.routes[edge[1], edge[0]][::-1] for edge in edges}
    return Layout(
        MappingProxyType({node: packed.positions[node] for node in nodes}),
        MappingProxyType(sizes),
        MappingProxyType(routes),
        packed.width,
        packed.height,
    )


def _size_box(node: str) -> Size:
    lines = break_lines(node)
    width = max(NARROWEST_BOX, max(map(measure, lines)) + 2 * BOX_PADDING)
    return Size(width, BOX_HEIGHT + (len(lines) - 1) * LINE_HEIGHT)


def _find_parts(order: Sequence[str], arcs: Sequence[Arc]) -> list[dict[str, None]]:
    """Return the connected parts, the larger first; names keep their order (a dict is an ordered set)."""
    near: dict[str, list[str]] = {node: [] for node in order}
    for tail, head in arcs:
        near[tail].append(head)
        near[head].append(tail)
    parts: list[dict[str, None]] = []
    seen: set[str] = set()
    for node in order:
        if node in seen:
            continue
        found, stack = {node}, [node]
        while stack:
            fresh = [other for other in near[stack.pop()] if other not in found]
            found.update(fresh)
            stack.extend(fresh)
        seen |= found
        parts.append(dict.fromkeys(name for name in order if name in found))
    return sorted(parts, key=len, reverse=True)


def _place_block(part: Mapping[str, None], arcs: Sequence[Arc], sizes: Mapping[str, Size]) -> Layout:
    """Lay out one connected part with its top left at 0, 0."""
    nodes = tuple(part)
    rank = rank_nodes(nodes, arcs)
    grid = build_grid(nodes, arcs, rank)
    reduce_crossings(grid)
    widths = [sizes[node].width for node in nodes]
    centres = place_spots(grid, widths)
    left = min(x - (widths[i] / 2 if grid.is_node(i) else 0) for i, x in enumerate(centres))
    right = max(x + (widths[i] / 2 if grid.is_node(i) else 0) for i, x in enumerate(centres))
    centres = [x - left for x in centres]
    rows = _place_rows(grid, centres, [sizes[node].height for node in nodes])
    positions = {node: Point(centres[i], rows[rank[node]].centre) for i, node in enumerate(nodes)}
    ports = _spread_ports(grid, centres, widths)
    routes = {arc: _route(arc, grid, centres, rows, rank, ports, sizes) for arc in arcs}
    return Layout(positions, {node: sizes[node] for node in nodes}, routes, right - left, rows[-1].bottom)


class _Row(NamedTuple):
    """A layer from the top to the bottom of its tallest box."""

    top: float
    bottom: float

    @property
    def centre(self) -> float:
        return (self.top + self.bottom) / 2


def _place_rows(grid: Grid, centres: Sequence[float], heights: Sequence[float]) -> list[_Row]:
    """Place each layer; edges that travel far sideways get a larger gap, so that they stay steep."""
    rows: list[_Row] = []
    top = 0.0
    for layer in grid.layers:
        rows.append(_Row(top, top + max((heights[spot] for spot in layer if grid.is_node(spot)), default=BOX_HEIGHT)))
        farthest = max((abs(centres[a] - centres[b]) for a in layer for b in grid.below[a]), default=0.0)
        top = rows[-1].bottom + min(WIDEST_GAP, LAYER_GAP + 0.14 * farthest)
    return rows


def _spread_ports(grid: Grid, centres: Sequence[float], widths: Sequence[float]) -> dict[tuple[int, int], float]:
    """Give each edge its own place at a box: the key is (node, next spot on the edge)."""
    # A straight edge of a crowded drawing passes no spots, so the chains say who is next and not the grid.
    upper: dict[int, set[int]] = {}
    lower: dict[int, set[int]] = {}
    for chain in grid.chains.values():
        lower.setdefault(chain[0], set()).add(chain[1])
        upper.setdefault(chain[-1], set()).add(chain[-2])
    ports: dict[tuple[int, int], float] = {}
    for side in (upper, lower):
        for node, ends in side.items():
            step = min(PORT_STEP, (widths[node] - 16) / max(len(ends) - 1, 1))
            for i, end in enumerate(sorted(ends, key=lambda spot: (centres[spot], spot))):
                ports[node, end] = centres[node] + step * (i - (len(ends) - 1) / 2)
    return ports


def _route(
    arc: Arc,
    grid: Grid,
    centres: Sequence[float],
    rows: Sequence[_Row],
    rank: Mapping[str, int],
    ports: Mapping[tuple[int, int], float],
    sizes: Mapping[str, Size],
) -> tuple[Point, ...]:
    chain = grid.chains[arc]
    (above, below), (start, end) = (rows[rank[node]] for node in arc), (sizes[node].height / 2 for node in arc)
    x = ports[chain[0], chain[1]]
    points = [Point(x, above.centre + start), Point(x, above.bottom)]
    for row, spot in enumerate(chain[1:-1], start=rank[arc[0]] + 1):
        points += [Point(centres[spot], rows[row].top), Point(centres[spot], rows[row].bottom)]
    x = ports[chain[-1], chain[-2]]
    points += [Point(x, below.top), Point(x, below.centre - end)]
    # a box as tall as its layer needs no way out of it, nor into it
    tall = [sizes[node].height > row.bottom - row.top - 0.1 for node, row in zip(arc, (above, below), strict=True)]
    del points[len(points) - 2 : len(points) - 2 + tall[1]], points[1 : 1 + tall[0]]
    return tuple(points)


def _pack(blocks: Sequence[Layout]) -> Layout:
    """Set the blocks on shelves from left to right, as wide as the widest or as a page."""
    widest = max((USUAL_WIDTH, *(block.width for block in blocks)))
    positions: dict[str, Point] = {}
    boxes: dict[str, Size] = {}
    routes: dict[Arc, tuple[Point, ...]] = {}
    x = y = shelf = width = 0.0
    for block in blocks:
        if x and x + block.width > widest:
            x, y, shelf = 0.0, y + shelf + BLOCK_GAP, 0.0
        positions |= {node: Point(at.x + x, at.y + y) for node, at in block.positions.items()}
        routes |= {arc: tuple(Point(at.x + x, at.y + y) for at in route) for arc, route in block.routes.items()}
        boxes |= block.boxes
        width, shelf = max(width, x + block.width), max(shelf, block.height)
        x += block.width + BLOCK_GAP
    return Layout(positions, boxes, routes, width, y + shelf)
