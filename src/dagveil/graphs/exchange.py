"""Graphs to and from the formats of other programs: networkx, DOT, GraphML, causal-learn."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any
from xml.sax.saxutils import escape

from dagveil.errors import GraphError, MissingExtraError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.marks import Mark
from dagveil.graphs.mixed import Edge, MixedGraph
from dagveil.graphs.names import Arc, Pair

DIRECTED = "directed"
UNDIRECTED = "undirected"

DOT_HEADS = {Mark.TAIL: "none", Mark.ARROW: "normal", Mark.CIRCLE: "odot"}
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_networkx(graph: Dag | Cpdag) -> Any:
    """Return a ``networkx.DiGraph``; each arc has the attribute ``kind``, "directed" or "undirected".

    An undirected edge becomes two arcs. The graph's attribute ``family`` is "dag" or "cpdag".

    Examples
    --------
    >>> to_networkx(Dag(("a", "b"), frozenset({("a", "b")}))).edges["a", "b"]
    {'kind': 'directed'}
    """
    networkx = _import("networkx", "graphs")
    answer = networkx.DiGraph(family=_name_family(graph))
    answer.add_nodes_from(graph.nodes)
    answer.add_edges_from((tail, head, {"kind": kind}) for tail, head, kind in _list_arcs(graph))
    return answer


def from_networkx(graph: Any) -> Dag | Cpdag:
    """Return the Dag or Cpdag of a networkx graph.

    An undirected edge is two arcs, one each way; all edges of an undirected networkx graph are undirected. The
    graph's attribute ``family`` ("dag" or "cpdag") decides what comes back; without it, a graph in which all edges
    are directed is a Dag.

    Examples
    --------
    >>> import networkx
    >>> from_networkx(networkx.DiGraph([("a", "b")]))
    Dag(nodes=('a', 'b'), edges=frozenset({('a', 'b')}))
    """
    nodes = tuple(graph.nodes)
    arcs = {(tail, head) for tail, head in graph.edges()}
    if not graph.is_directed():
        arcs |= {(head, tail) for tail, head in arcs}
    undirected = frozenset(frozenset(arc) for arc in arcs if arc[::-1] in arcs)
    for tail, head, kind in graph.edges(data="kind"):
        if kind is not None and kind != (UNDIRECTED if frozenset((tail, head)) in undirected else DIRECTED):
            raise GraphError(
                f"the arc from {tail!r} to {head!r} is of the kind {kind!r}, which does not fit its reverse; "
                "an undirected edge is two arcs, one each way, and a directed edge is one"
            )
    directed = frozenset(arc for arc in arcs if frozenset(arc) not in undirected)
    family = graph.graph.get("family", "cpdag" if undirected else "dag")
    if family == "dag" and not undirected:
        return Dag(nodes, directed)
    if family == "cpdag":
        return Cpdag(nodes, directed, undirected)
    raise GraphError(
        f"the graph calls itself {family!r} and has {len(undirected)} undirected edges; "
        "set its attribute family to 'dag' (no undirected edges) or 'cpdag'"
    )


def to_dot(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph in the DOT language of Graphviz.

    Nodes have numbers as identifiers and their names as labels, because DOT cannot write every name as an identifier.

    Examples
    --------
    >>> print(to_dot(Dag(("a", "b"), frozenset({("a", "b")}))), end="")
    digraph {
      n0 [label="a"];
      n1 [label="b"];
      n0 -> n1;
    }
    """
    mixed = MixedGraph.of(graph)
    key = {name: f"n{position}" for position, name in enumerate(mixed.nodes)}
    lines = [f"  {key[name]} [label={_quote(name)}];" for name in mixed.nodes]
    for edge in _sort(mixed):
        edge = edge.turned() if edge.mark_at_second is Mark.TAIL else edge
        match edge.mark_at_first, edge.mark_at_second:
            case (Mark.TAIL, Mark.ARROW):
                style = ""
            case (Mark.TAIL, Mark.TAIL):
                style = " [dir=none]"
            case (first, second):
                style = f" [dir=both, arrowtail={DOT_HEADS[first]}, arrowhead={DOT_HEADS[second]}]"
        lines.append(f"  {key[edge.first]} -> {key[edge.second]}{style};")
    return "\n".join(["digraph {", *lines, "}", ""])


def to_graphml(graph: Dag | Cpdag) -> str:
    """Return the graph as GraphML: names as the node attribute ``name``, ``kind`` on each arc as in `to_networkx`.

    Examples
    --------
    >>> "a &amp; b" in to_graphml(Cpdag.empty(("a & b",)))
    True
    """
    for name in graph.nodes:
        if NOT_IN_XML.search(name):
            raise GraphError(f"the node {name!r} has a character that XML cannot hold; rename it before the export")
    key = {name: f"n{position}" for position, name in enumerate(graph.nodes)}
    nodes = [f'    <node id="{key[name]}"><data key="name">{_escape(name)}</data></node>' for name in graph.nodes]
    edges = [
        f'    <edge source="{key[tail]}" target="{key[head]}"><data key="kind">{kind}</data></edge>'
        for tail, head, kind in _list_arcs(graph)
    ]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
            '  <key id="family" for="graph" attr.name="family" attr.type="string"/>',
            '  <key id="name" for="node" attr.name="name" attr.type="string"/>',
            '  <key id="kind" for="edge" attr.name="kind" attr.type="string"/>',
            '  <graph edgedefault="directed">',
            f'    <data key="family">{_name_family(graph)}</data>',
            *nodes,
            *edges,
            "  </graph>",
            "</graphml>",
            "",
        ]
    )


def to_causal_learn(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``causallearn.graph.GeneralGraph.GeneralGraph`` with the same marks."""
    general = _import("causallearn.graph.GeneralGraph", "peers")
    endpoint = _import("causallearn.graph.Endpoint", "peers").Endpoint
    make_edge = _import("causallearn.graph.Edge", "peers").Edge
    make_node = _import("causallearn.graph.GraphNode", "peers").GraphNode
    mixed = MixedGraph.of(graph)
    nodes = {name: make_node(name) for name in mixed.nodes}
    answer = general.GeneralGraph(list(nodes.values()))
    for edge in _sort(mixed):
        first, second = endpoint[edge.mark_at_first.name], endpoint[edge.mark_at_second.name]
        answer.add_edge(make_edge(nodes[edge.first], nodes[edge.second], first, second))
    return answer


def _name_family(graph: Dag | Cpdag) -> str:
    return "dag" if isinstance(graph, Dag) else "cpdag"


def _list_arcs(graph: Dag | Cpdag) -> list[tuple[str, str, str]]:
    """Return (tail, head, kind) in a fixed order, an undirected edge twice."""
    arcs: frozenset[Arc] = graph.edges if isinstance(graph, Dag) else graph.directed
    pairs: frozenset[Pair] = frozenset() if isinstance(graph, Dag) else graph.undirected
    listed = [(tail, head, DIRECTED) for tail, head in arcs]
    for first, second in map(sorted, pairs):
        listed += [(first, second, UNDIRECTED), (second, first, UNDIRECTED)]
    return sorted(listed)


def _sort(mixed: MixedGraph) -> list[Edge]:
    return sorted(mixed.edges, key=lambda edge: (edge.first, edge.second))


def _quote(name: str) -> str:
    """Return a name as a DOT label: in a label, unlike in an identifier, a doubled backslash stands for one."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _escape(name: str) -> str:
    # A bare carriage return would come back as a line feed from any XML reader.
    return escape(name, {"\r": "&#13;"})


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"the package {package!r} is not installed; install it with: pip install 'dagveil[{extra}]'"
        ) from error
