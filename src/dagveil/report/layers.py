"""Layers of a drawing: which row each node stands in, and the places where a long edge passes other rows.

The three steps rows, order, coordinates are those of Sugiyama, Tagawa and Toda (1981).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Arc: TypeAlias = tuple[str, str]
Spot: TypeAlias = int
"""A place in a layer: the box of a node, or the point where a long edge passes."""

MOST_SPOTS: Final = 3000
"""With more passing points than this, edges over several layers are drawn straight."""


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
    """Put causes before effects, otherwise in the given order; a cycle is opened at its least bound node.

    Examples
    --------
    >>> order_nodes(("a", "b", "c"), [("c", "a")])
    ('b', 'c', 'a')
    """
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

    Parameters
    ----------
    order
        Nodes, so that every arc goes from an earlier to a later one.
    arcs
        Edges, each from the earlier to the later node.

    Examples
    --------
    >>> rank_nodes(("a", "b", "d", "c"), [("a", "b"), ("b", "c"), ("d", "c")])
    {'a': 0, 'b': 1, 'd': 1, 'c': 2}
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
