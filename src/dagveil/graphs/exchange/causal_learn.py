"""Graphs for causal-learn: as its objects, and as Tetrad's text, which it reads with `txt2generalgraph`."""

from __future__ import annotations

import re
from typing import Any, Final

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import import_package, list_edges, simplify
from dagveil.graphs.mixed import Edge, Mark, MixedGraph

_LEFT: Final = {Mark.TAIL: "-", Mark.ARROW: "<", Mark.CIRCLE: "o"}
_RIGHT: Final = {Mark.TAIL: "-", Mark.ARROW: ">", Mark.CIRCLE: "o"}
_LEFT_MARKS: Final = {sign: mark for mark, sign in _LEFT.items()}
_RIGHT_MARKS: Final = {sign: mark for mark, sign in _RIGHT.items()}
_UNFIT: Final = re.compile(r"[\s;,]|[^\x00-\uffff]|[\x00-\x1f\ud800-\udfff]|^$")
_EDGE: Final = re.compile(r"\d+\.\s+(\S+)\s+([-<o])-([->o])\s+(\S+)(\s.*)?")


def to_tetrad(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as Tetrad's text."""
    for name in graph.nodes:
        if _UNFIT.search(name):
            raise GraphError(
                f"Tetrad's text cannot hold the name {name!r}: no blanks, commas, semicolons; rename the column in the "
                "data and the schema, or export to graphml, which holds any name"
            )
    lines = ["Graph Nodes:", ";".join(graph.nodes), "", "Graph Edges:"]
    for number, edge in enumerate(list_edges(MixedGraph.of(graph)), start=1):
        # arrows point to the right, as everywhere
        edge = edge.turned() if edge.mark_at_second is Mark.TAIL else edge
        lines.append(f"{number}. {edge.first} {write_marks(edge)} {edge.second}")
    return "\n".join([*lines, ""])


def write_marks(edge: Edge) -> str:
    """Return an edge's marks as three characters, such as o->."""
    return f"{_LEFT[edge.mark_at_first]}-{_RIGHT[edge.mark_at_second]}"


def from_tetrad(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from Tetrad's text."""
    lines = [line.strip() for line in text.splitlines()]
    if "Graph Nodes:" not in lines or "Graph Edges:" not in lines:
        raise GraphError("this is not Tetrad's text: it has the lines Graph Nodes: and Graph Edges:")
    after = lines[lines.index("Graph Nodes:") + 1 :]
    nodes = tuple(re.split("[;,]", after[0])) if after and after[0] and after[0] != "Graph Edges:" else ()
    edges = set()
    for line in lines[lines.index("Graph Edges:") + 1 :]:
        found = _EDGE.fullmatch(line)
        if found is None:
            if not line:
                continue
            if line.startswith(("Graph ", "Ambiguous ")):
                break
            raise GraphError(f"an edge of Tetrad's text cannot be read: {line[:80]!r}")
        edges.add(Edge(found[1], found[4], _LEFT_MARKS[found[2]], _RIGHT_MARKS[found[3]]))
    return simplify(MixedGraph(nodes, frozenset(edges)))


def to_causal_learn(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``causallearn.graph.GeneralGraph.GeneralGraph`` with the same marks."""
    general = import_package("causallearn.graph.GeneralGraph")
    endpoint = import_package("causallearn.graph.Endpoint").Endpoint
    make_edge = import_package("causallearn.graph.Edge").Edge
    make_node = import_package("causallearn.graph.GraphNode").GraphNode
    mixed = MixedGraph.of(graph)
    nodes = {name: make_node(name) for name in mixed.nodes}
    answer = general.GeneralGraph(list(nodes.values()))
    for edge in list_edges(mixed):
        first, second = endpoint[edge.mark_at_first.name], endpoint[edge.mark_at_second.name]
        answer.add_edge(make_edge(nodes[edge.first], nodes[edge.second], first, second))
    return answer
