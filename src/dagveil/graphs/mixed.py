"""Mixed graphs: edges with a mark at each end, as in ancestral graphs."""

from __future__ import annotations

import enum
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.names import Pair, check_nodes, check_pairs, list_by_end


class Mark(enum.Enum):
    """What is known about one end of an edge."""

    TAIL = "tail"  # the node at this end is a cause of the other
    ARROW = "arrow"  # the node at this end is not a cause of the other
    CIRCLE = "circle"  # either may be true


class Edge(NamedTuple):
    """An edge between two nodes, with the mark at the end of each."""

    first: str
    second: str
    mark_at_first: Mark
    mark_at_second: Mark

    def turned(self) -> Edge:
        """Return the same edge, read from the other end."""
        return Edge(self.second, self.first, self.mark_at_second, self.mark_at_first)


class MixedGraph(msgspec.Struct, frozen=True, dict=True):
    """A graph with a mark at each end of each edge, at most one edge for each pair.

    An edge may be given from either end; it is kept with the alphabetically first node first.
    """

    nodes: tuple[str, ...]
    edges: frozenset[Edge]

    def __post_init__(self) -> None:
        force_setattr(self, "nodes", check_nodes(self.nodes))
        given = (Edge(*edge) for edge in self.edges)
        force_setattr(self, "edges", frozenset(edge if edge.first <= edge.second else edge.turned() for edge in given))
        if len(check_pairs(self.nodes, self.skeleton())) < len(self.edges):
            raise GraphError(f"{len(self.edges)} edges join fewer pairs than that; give one edge for each pair")

    @classmethod
    def of(cls, graph: Dag | Cpdag | MixedGraph) -> MixedGraph:
        """Return any graph of this package as a mixed graph; an undirected edge has two tails."""
        if isinstance(graph, MixedGraph):
            return graph
        arcs = graph.edges if isinstance(graph, Dag) else graph.directed
        pairs: frozenset[Pair] = frozenset() if isinstance(graph, Dag) else graph.undirected
        edges = {Edge(tail, head, Mark.TAIL, Mark.ARROW) for tail, head in arcs}
        edges |= {Edge(min(pair), max(pair), Mark.TAIL, Mark.TAIL) for pair in pairs}
        return cls(graph.nodes, frozenset(edges))

    def mark(self, start: str, end: str) -> Mark | None:
        """Return the mark at `end` of the edge from `start`, or None when the two are not adjacent."""
        return self._marks.get((start, end))

    def adjacent(self, node: str) -> frozenset[str]:
        """Return the nodes joined to a node by an edge."""
        try:
            return self._near[node]
        except KeyError:
            raise GraphError(f"no node is called {node!r}; the graph has: {', '.join(self.nodes)}") from None

    def skeleton(self) -> frozenset[Pair]:
        """Return the adjacent pairs."""
        return frozenset(frozenset((edge.first, edge.second)) for edge in self.edges)

    @cached_property
    def _marks(self) -> dict[tuple[str, str], Mark]:
        marks = {(edge.first, edge.second): edge.mark_at_second for edge in self.edges}
        return marks | {(edge.second, edge.first): edge.mark_at_first for edge in self.edges}

    @cached_property
    def _near(self) -> dict[str, frozenset[str]]:
        return list_by_end(self.nodes, self._marks)
