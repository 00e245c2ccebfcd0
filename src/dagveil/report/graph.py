"""The graph of a result, read and checked for drawing."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dagveil.errors import DataError
from dagveil.report.fields import Record

EVEN: Final = 0.5
"""Below this share of redraws the end marks of an edge are drawn hollow."""


class EdgeKind(enum.Enum):
    """What an edge says about direction."""

    DIRECTED = "directed"
    UNDIRECTED = "undirected"


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """One edge; confidences and shares are of redraws, or None if nothing was redrawn.

    `forward`, `backward` and `line` are the shares of all redraws with source → target, with target → source, and
    with an edge that has no arrow.
    """

    source: str
    target: str
    kind: EdgeKind
    confidence: float | None = None
    arrow_confidence: float | None = None
    forward: float | None = None
    backward: float | None = None
    line: float | None = None

    @property
    def sign(self) -> str:
        """An arrow or a line."""
        return "→" if self.kind is EdgeKind.DIRECTED else "—"

    @property
    def doubtful(self) -> bool:
        """Whether this kind and direction came back in fewer than half of the redraws that had the edge."""
        return self.arrow_confidence is not None and self.arrow_confidence < EVEN


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """Nodes and edges of a result."""

    nodes: tuple[str, ...]
    edges: tuple[DrawnEdge, ...]
    family: str = "cpdag"

    @property
    def arrows(self) -> tuple[DrawnEdge, ...]:
        """The directed edges."""
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.DIRECTED)

    @property
    def lines(self) -> tuple[DrawnEdge, ...]:
        """The undirected edges."""
        return tuple(edge for edge in self.edges if edge.kind is EdgeKind.UNDIRECTED)


def read_graph(graph: Mapping[str, Any] | msgspec.Struct | DrawnGraph) -> DrawnGraph:
    """Read the field `graph` of a result.

    Parameters
    ----------
    graph
        The decoded JSON, or the frozen record with the same fields.

    Examples
    --------
    >>> graph = read_graph({"nodes": ["a", "b"], "edges": [{"source": "a", "target": "b", "kind": "directed"}]})
    >>> graph.edges[0].sign
    '→'
    """
    if isinstance(graph, DrawnGraph):
        return graph
    content = msgspec.to_builtins(graph) if isinstance(graph, msgspec.Struct) else graph
    record = Record.of(content, "graph")
    nodes = record.texts("nodes")
    if len(set(nodes)) < len(nodes):
        raise DataError(f"graph.nodes has {len(nodes) - len(set(nodes))} repeated names; write the result again")
    edges = tuple(_read_edge(edge) for edge in record.records("edges"))
    _check_ends(nodes, edges)
    return DrawnGraph(nodes, edges, record.text("family", "cpdag"))


def _read_edge(record: Record) -> DrawnEdge:
    try:
        kind = EdgeKind(record.text("kind"))
    except ValueError:
        kinds = " or ".join(kind.value for kind in EdgeKind)
        raise DataError(f"{record.place}.kind is not {kinds}; use a newer dagveil, or write the result again") from None
    return DrawnEdge(
        record.text("source"),
        record.text("target"),
        kind,
        record.share("confidence"),
        *(record.share(name) for name in ("arrow_confidence", "forward", "backward", "line")),
    )


def read_line(record: Record) -> DrawnEdge:
    """Read a pair outside the graph."""
    return DrawnEdge(record.text("source"), record.text("target"), EdgeKind.UNDIRECTED, record.share("confidence"))


def _check_ends(nodes: tuple[str, ...], edges: tuple[DrawnEdge, ...]) -> None:
    known = set(nodes)
    seen: set[frozenset[str]] = set()
    for i, edge in enumerate(edges):
        pair = frozenset((edge.source, edge.target))
        if not pair <= known:
            raise DataError(f"graph.edges[{i}] ends at a node that is not in graph.nodes; write the result again")
        if len(pair) < 2:
            raise DataError(f"graph.edges[{i}] joins a node to itself; write the result again")
        if pair in seen:
            raise DataError(f"graph.edges[{i}] joins a pair that another edge joins already; write the result again")
        seen.add(pair)
