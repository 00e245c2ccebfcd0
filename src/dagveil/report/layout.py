"""Layout of a graph: causes above effects, few crossings, the same picture for the same names.

The steps layers, order and coordinates are those of Sugiyama, Tagawa and Toda (1981).
"""

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, NamedTuple, TypeAlias

from dagveil.report.formatting import break_lines, measure

Arc: TypeAlias = tuple[str, str]
Spot: TypeAlias = int  # a place in a layer: the box of a node, or the point where a long edge passes
MOST_SPOTS: Final = 3000  # with more passing points than this, edges over several layers are drawn straight


@dataclass(slots=True)
class Grid:
    """Spots in layers, joined from each layer to the next.

    Spots below `n_nodes` are the nodes, in their given order; the others are points that edges pass.
    """

    n_nodes: int
    layers: list[list[Spot]]
    above: list[list[Spot]]
    below: list[list[Spot]]
    chains: dict[Arc, tuple[Spot, ...]] = field(default_factory=dict)

    def is_node(self, spot: Spot) -> bool:
        """Return whether the spot is the box of a node."""
        return spot < self.n_nodes


def order_nodes(nodes: Sequence[str], arrows: Iterable[Arc]) -> tuple[str, ...]:
    """Put causes before effects, otherwise in the given order; a cycle is opened at its least bound node."""
    index = {node: i for i, node in enumerate(nodes)}
    children: dict[str, list[str]] = {node: [] for node in nodes}
    waiting = dict.fromkeys(nodes, 0)
    for tail, head in arrows:
        children[tail].append(head)
        waiting[head] += 1
    ready = [(waiting[node], index[node], node) for node in nodes]
    heapq.heapify(ready)
    order: dict[str, None] = {}
    while ready:
        count, _, node = heapq.heappop(ready)
        if node in order or count != waiting[node]:
            continue
        order[node] = None
        for child in children[node]:
            waiting[child] -= 1
            heapq.heappush(ready, (waiting[child], index[child], child))
    return tuple(order)


def rank_nodes(order: Sequence[str], arcs: Iterable[Arc]) -> dict[str, int]:
    """Give each node a layer below all that point to it, with short edges.

    Every arc goes from an earlier to a later node of the order.
    """
    parents: dict[str, list[str]] = {node: [] for node in order}
    children: dict[str, list[str]] = {node: [] for node in order}
    for tail, head in arcs:
        parents[head].append(tail)
        children[tail].append(head)
    rank: dict[str, int] = {}
    for node in order:
        rank[node] = 1 + max((rank[parent] for parent in parents[node]), default=-1)
    # A node with more children than parents shortens the sum of edges by sinking to its children; others by rising.
    for _ in range(len(order)):
        before = dict(rank)
        for node in reversed(order):
            if len(children[node]) > len(parents[node]):
                rank[node] = min(rank[child] for child in children[node]) - 1
            elif parents[node]:
                rank[node] = 1 + max(rank[parent] for parent in parents[node])
        if rank == before:
            break
    top = min(rank.values(), default=0)
    return {node: row - top for node, row in rank.items()}


def build_grid(nodes: Sequence[str], arcs: Sequence[Arc], rank: Mapping[str, int]) -> Grid:
    """Set nodes and passing points into layers, in the order of a walk along the edges."""
    index = {node: i for i, node in enumerate(nodes)}
    depth = 1 + max((rank[node] for node in nodes), default=-1)
    grid = Grid(len(nodes), [[] for _ in range(depth)], [[] for _ in nodes], [[] for _ in nodes])
    row = [rank[node] for node in nodes]
    crowded = sum(rank[head] - rank[tail] - 1 for tail, head in arcs) > MOST_SPOTS
    for tail, head in arcs:
        chain = [index[tail]]
        if not crowded or rank[head] == rank[tail] + 1:
            for layer in range(rank[tail] + 1, rank[head]):
                chain.append(len(row))
                row.append(layer)
                grid.above.append([])
                grid.below.append([])
            for upper, lower in zip(chain, [*chain[1:], index[head]], strict=True):
                grid.below[upper].append(lower)
                grid.above[lower].append(upper)
        grid.chains[tail, head] = (*chain, index[head])
    for spot in _walk(grid):
        grid.layers[row[spot]].append(spot)
    return grid


def _walk(grid: Grid) -> list[Spot]:
    """All spots, depth first: neighbours come close together, which is a good first order."""
    seen: dict[Spot, None] = {}
    for start in range(len(grid.above)):
        stack = [start]
        while stack:
            spot = stack.pop()
            if spot not in seen:
                seen[spot] = None
                stack.extend(reversed(grid.above[spot] + grid.below[spot]))
    return list(seen)


SWEEPS: Final = 24  # barycentre sweeps at most, down and up in turn
PATIENCE: Final = 6  # sweeps without a better order after which the search stops
SWAP_ROUNDS: Final = 6  # rounds of swapping neighbours in a layer


def reduce_crossings(grid: Grid) -> None:
    """Reorder the layers of a grid in place; the result never has more crossings than the first order."""
    best = [list(layer) for layer in grid.layers]
    fewest, waited = count_crossings(grid), 0
    for sweep in range(SWEEPS):
        if fewest == 0 or waited == PATIENCE:
            break
        _sort_by_barycentre(grid, downwards=sweep % 2 == 0)
        _swap_neighbours(grid)
        found = count_crossings(grid)
        waited += 1
        if found < fewest:
            fewest, waited, best = found, 0, [list(layer) for layer in grid.layers]
    grid.layers[:] = best


def count_crossings(grid: Grid) -> int:
    """Count the pairs of edge pieces that cross."""
    total = 0
    for upper, lower in pairwise(grid.layers):
        place = {spot: i for i, spot in enumerate(lower)}
        ends: list[int] = []
        for spot in upper:
            mine = [place[end] for end in grid.below[spot]]
            total += sum(len(ends) - bisect_right(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return total


def _sort_by_barycentre(grid: Grid, *, downwards: bool) -> None:
    near = grid.above if downwards else grid.below
    rows = range(1, len(grid.layers)) if downwards else range(len(grid.layers) - 2, -1, -1)
    for row in rows:
        fixed = grid.layers[row - 1 if downwards else row + 1]
        place = {spot: i for i, spot in enumerate(fixed)}
        layer = grid.layers[row]
        centre = {spot: sum(place[end] for end in near[spot]) / len(near[spot]) for spot in layer if near[spot]}
        # Spots without a neighbour in the fixed layer keep their place; the others are sorted around them.
        moved = iter(sorted((spot for spot in layer if spot in centre), key=centre.__getitem__))
        grid.layers[row] = [next(moved) if spot in centre else spot for spot in layer]


def _swap_neighbours(grid: Grid) -> None:
    for _ in range(SWAP_ROUNDS):
        better = False
        for above, layer, below in zip([[], *grid.layers], grid.layers, [*grid.layers[1:], []], strict=False):
            up, down = ({spot: i for i, spot in enumerate(near)} for near in (above, below))
            for i in range(len(layer) - 1):
                left, right = layer[i], layer[i + 1]
                gain = _gain(grid.above[left], grid.above[right], up) + _gain(grid.below[left], grid.below[right], down)
                if gain > 0:
                    layer[i], layer[i + 1] = right, left
                    better = True
        if not better:
            break


def _gain(left: list[Spot], right: list[Spot], place: dict[Spot, int]) -> int:
    """Crossings that go away when the left and the right spot change places."""
    return sum((place[a] > place[b]) - (place[a] < place[b]) for a in left for b in right)


NODE_GAP: Final = 26.0  # free room between two boxes
LINE_GAP: Final = 16.0  # free room beside a passing edge
ROUNDS: Final = 24  # sweeps over all layers


def place_spots(grid: Grid, widths: Sequence[float]) -> list[float]:
    """Return the centre of each spot."""
    centres = [0.0] * len(grid.above)
    # the smallest places if the first stood at 0
    steps = [
        list(accumulate((_room(grid, *pair, widths) for pair in pairwise(layer)), initial=0.0)) for layer in grid.layers
    ]
    for layer, room in zip(grid.layers, steps, strict=True):
        for spot, x in zip(layer, room, strict=True):
            centres[spot] = x - room[-1] / 2
    depth = len(grid.layers)
    for sweep in range(ROUNDS):
        rows = range(depth) if sweep % 2 == 0 else range(depth - 1, -1, -1)
        for row in rows:
            _pull(grid, grid.layers[row], steps[row], centres)
    _straighten(grid, widths, centres)
    return centres


def keep_apart(wishes: Sequence[float], weights: Sequence[float], steps: Sequence[float]) -> list[float]:
    """Return the places closest to the wishes, in weighted squares, with at least the given steps between them.

    This is isotonic regression on wishes minus steps, solved by pooling adjacent violators.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for wish, weight, step in zip(wishes, weights, steps, strict=True):
        mean, mass, count = wish - step, weight, 1
        while pools and pools[-1][0] >= mean:
            other, more, members = pools.pop()
            mean = (mean * mass + other * more) / (mass + more)
            mass, count = mass + more, count + members
        pools.append((mean, mass, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    return [place + step for place, step in zip(flat, steps, strict=True)]


def _pull(grid: Grid, layer: list[Spot], steps: list[float], centres: list[float]) -> None:
    """Move the spots of one layer towards their neighbours."""
    wishes, weights = [], []
    for spot in layer:
        near = grid.above[spot] + grid.below[spot]
        # an edge piece wants to be upright; the middle of a long edge most of all
        pulls = [(1.0, 2.0, 6.0)[(not grid.is_node(spot)) + (not grid.is_node(end))] for end in near]
        weight = sum(pulls)
        wish = sum(p * centres[end] for p, end in zip(pulls, near, strict=True)) / weight if near else centres[spot]
        wishes.append(wish)
        weights.append(weight or 0.01)
    for spot, x in zip(layer, keep_apart(wishes, weights, steps), strict=True):
        centres[spot] = x


def _straighten(grid: Grid, widths: Sequence[float], centres: list[float]) -> None:
    """Make the middle of each long edge upright where its neighbours leave room."""
    left: dict[Spot, Spot] = {}
    right: dict[Spot, Spot] = {}
    for layer in grid.layers:
        for a, b in pairwise(layer):
            right[a], left[b] = b, a
    for chain in grid.chains.values():
        middle = chain[1:-1]
        if len(middle) < 2:
            continue
        low = max((centres[left[s]] + _room(grid, left[s], s, widths) for s in middle if s in left), default=-1e9)
        high = min((centres[right[s]] - _room(grid, s, right[s], widths) for s in middle if s in right), default=1e9)
        if low <= high:
            x = min(max(sum(centres[s] for s in middle) / len(middle), low), high)
            for spot in middle:
                centres[spot] = x


def _room(grid: Grid, left: Spot, right: Spot, widths: Sequence[float]) -> float:
    halves = sum(widths[spot] / 2 for spot in (left, right) if grid.is_node(spot))
    return halves + (NODE_GAP if grid.is_node(left) and grid.is_node(right) else LINE_GAP)


BOX_HEIGHT: Final = 30.0  # of a name in one line
LINE_HEIGHT: Final = 16.0
BOX_PADDING: Final = 12.0
NARROWEST_BOX: Final = 46.0
LAYER_GAP: Final = 46.0  # smallest free room between two layers; more where edges travel far sideways
WIDEST_GAP: Final = 150.0
BLOCK_GAP: Final = 34.0  # free room between parts of the graph that no edge joins
PORT_STEP: Final = 13.0  # distance between two edges at the same side of a box
USUAL_WIDTH: Final = 900.0  # parts are set side by side up to this width


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

    Positions are centres of boxes. A route has points from source to target: between two points the edge runs as a
    curve that starts and ends upright; between points above each other, as a line.
    """

    positions: Mapping[str, Point]
    boxes: Mapping[str, Size]
    routes: Mapping[Arc, tuple[Point, ...]]
    width: float
    height: float


def place_graph(nodes: Sequence[str], arrows: Sequence[Arc], lines: Sequence[Arc]) -> Layout:
    """Lay out a graph in layers.

    The source of an arrow stands above, unless the arrows form a cycle. Lines follow the order that the arrows leave
    open.
    """
    order = order_nodes(nodes, arrows)
    index = {node: i for i, node in enumerate(order)}
    edges = (*arrows, *lines)
    arcs = [edge if index[edge[0]] < index[edge[1]] else (edge[1], edge[0]) for edge in edges]
    sizes = {node: _size_box(node) for node in nodes}
    blocks = [_place_block(part, [arc for arc in arcs if arc[0] in part], sizes) for part in _find_parts(order, arcs)]
    packed = _pack(blocks)
    routes = {edge: packed.routes.get(edge) or packed.routes[edge[1], edge[0]][::-1] for edge in edges}
    return Layout({node: packed.positions[node] for node in nodes}, sizes, routes, packed.width, packed.height)


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
    halves = [widths[i] / 2 if grid.is_node(i) else 0 for i in range(len(centres))]
    left = min(x - half for x, half in zip(centres, halves, strict=True))
    right = max(x + half for x, half in zip(centres, halves, strict=True))
    centres = [x - left for x in centres]
    rows = _place_rows(grid, centres, [sizes[node].height for node in nodes])
    positions = {node: Point(centres[i], rows[rank[node]].centre) for i, node in enumerate(nodes)}
    ports = _spread_ports(grid, centres, widths)

    def route(arc: Arc) -> tuple[Point, ...]:
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

    boxes = {node: sizes[node] for node in nodes}
    return Layout(positions, boxes, {arc: route(arc) for arc in arcs}, right - left, rows[-1].bottom)


class _Row(NamedTuple):
    """A layer from the top to the bottom of its tallest box, and its middle."""

    top: float
    bottom: float
    centre: float


def _place_rows(grid: Grid, centres: Sequence[float], heights: Sequence[float]) -> list[_Row]:
    """Place each layer; edges that travel far sideways get a larger gap, so that they stay steep."""
    rows: list[_Row] = []
    top = 0.0
    for layer in grid.layers:
        bottom = top + max((heights[spot] for spot in layer if grid.is_node(spot)), default=BOX_HEIGHT)
        rows.append(_Row(top, bottom, (top + bottom) / 2))
        farthest = max((abs(centres[a] - centres[b]) for a in layer for b in grid.below[a]), default=0.0)
        top = bottom + min(WIDEST_GAP, LAYER_GAP + 0.14 * farthest)
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
