"""Graphs for networkx, and the formats that it reads and writes: GML, which DoWhy prefers, GraphML and its JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import UNDIRECTED, import_package, join_arcs, list_arcs, list_edges, name_family
from dagveil.graphs.mixed import Edge, Mark, MixedGraph

PAG: Final = "pag"
_NOT_IN_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_networkx(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``networkx.DiGraph``; each arc has the attribute ``kind``, "directed" or "undirected".

    An undirected edge becomes two arcs. The graph's attribute ``family`` is "dag" or "cpdag". A mixed graph is a
    ``networkx.Graph`` of the family "pag": each edge has the attributes ``first``, ``second``, ``mark_at_first`` and
    ``mark_at_second``.
    """
    networkx = import_package("networkx")
    if isinstance(graph, MixedGraph):
        mixed = networkx.Graph(family=PAG)
        mixed.add_nodes_from(graph.nodes)
        for edge in list_edges(graph):
            marks = {"mark_at_first": edge.mark_at_first.value, "mark_at_second": edge.mark_at_second.value}
            mixed.add_edge(edge.first, edge.second, first=edge.first, second=edge.second, **marks)
        return mixed
    answer = networkx.DiGraph(family=name_family(graph))
    answer.add_nodes_from(graph.nodes)
    answer.add_edges_from((tail, head, {"kind": kind}) for tail, head, kind in list_arcs(graph))
    return answer


def from_networkx(graph: Any, labels: tuple[str, ...] = ()) -> Dag | Cpdag | MixedGraph:
    """Return the Dag or Cpdag of a networkx graph, whose nodes are called by the first of `labels` that they have.

    An undirected edge is two arcs, one each way; all edges of an undirected networkx graph are undirected. The
    graph's attribute ``family`` ("dag" or "cpdag") decides what comes back; without it, a graph in which all edges
    are directed is a Dag.
    """
    names = {
        node: str(next((facts[label] for label in labels if label in facts), node)) if labels else node
        for node, facts in graph.nodes(data=True)
    }
    if graph.graph.get("family") == PAG:
        return _read_marks(tuple(names.values()), (facts for _, _, facts in graph.edges(data=True)))
    arcs = [(names[tail], names[head], kind) for tail, head, kind in graph.edges(data="kind")]
    return _join(names.values(), arcs, graph.is_directed(), graph.graph.get("family"))


def _read_marks(nodes: tuple[str, ...], edges: Iterable[dict[str, Any]]) -> MixedGraph:
    try:
        read = [
            Edge(str(one["first"]), str(one["second"]), Mark(one["mark_at_first"]), Mark(one["mark_at_second"]))
            for one in edges
        ]
    except (KeyError, ValueError):
        raise GraphError(
            "an edge of this PAG lacks first, second, mark_at_first or mark_at_second, or its mark is not tail, arrow "
            "or circle; write it again"
        ) from None
    return MixedGraph(nodes, frozenset(read))


def _join(nodes: Iterable[Any], arcs: Iterable[Any], directed: bool, family: Any) -> Dag | Cpdag:
    if not directed:
        arcs = [ends for tail, head, _ in arcs for ends in ((tail, head, UNDIRECTED), (head, tail, UNDIRECTED))]
    return join_arcs(nodes, arcs, family)


def to_gml(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as GML: names as labels, ``kind`` on each arc as in `to_networkx`."""
    return "\n".join((*import_package("networkx").generate_gml(to_networkx(graph)), ""))


def from_gml(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from GML; the name of a node is its label if it has one, otherwise its number."""
    return _read(text, "GML", import_package("networkx").parse_gml, ("label",), label="id")


def to_graphml(graph: Dag | Cpdag | MixedGraph) -> str:
    """Return the graph as GraphML: names as identifiers, ``kind`` on each arc as in `to_networkx`."""
    for name in graph.nodes:
        if _NOT_IN_XML.search(name):
            raise GraphError(f"the node {name!r} has a character that XML cannot hold; rename it before the export")
    return "\n".join((*import_package("networkx").generate_graphml(to_networkx(graph)), ""))


def from_graphml(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from GraphML.

    The name of a node is its attribute ``name`` or ``label`` if it has one, otherwise its identifier.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise GraphError("this GraphML declares a document type, which no graph needs; take the declaration out")
    return _read(text, "GraphML", import_package("networkx").parse_graphml, ("name", "label"))


def _read(text: str, form: str, parse: Any, labels: tuple[str, ...], **options: Any) -> Dag | Cpdag | MixedGraph:
    """Let networkx read a text."""
    try:
        graph = parse(text, **options)
    except Exception as error:  # whatever it trips over, the text is no graph
        raise GraphError(f"this {form} cannot be read: {error or type(error).__name__}") from error
    return from_networkx(graph, labels)


def to_node_link(graph: Any) -> str:
    """Return a networkx graph as JSON for ``networkx.node_link_graph(…, edges="edges")``."""
    content = import_package("networkx").node_link_data(graph, edges="edges")
    try:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    except UnicodeEncodeError:
        raise GraphError("a node name contains an unpaired surrogate, which JSON cannot represent; rename it") from None


def from_node_link(text: str | bytes) -> Dag | Cpdag | MixedGraph:
    """Read a graph from networkx's JSON, with the key ``edges`` or, as older versions wrote it, ``links``."""
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise GraphError("this is not JSON") from error
    try:
        nodes = [node["id"] for node in content["nodes"]]
        edges = content["edges"] if "edges" in content else content["links"]
        if (content.get("graph") or {}).get("family") == PAG:
            return _read_marks(tuple(nodes), edges)
        arcs = [(edge["source"], edge["target"], edge.get("kind")) for edge in edges]
        return _join(nodes, arcs, content.get("directed", False), (content.get("graph") or {}).get("family"))
    except (KeyError, TypeError, AttributeError):
        raise GraphError(
            "this JSON is neither a dagveil result nor a graph of networkx: it needs nodes with ids, and edges with "
            "source and target"
        ) from None
