"""JSON as networkx writes it: nodes and links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import UNDIRECTED, join_arcs, list_arcs, name_family
from dagveil.graphs.names import Pair


def to_node_link(graph: Dag | Cpdag, facts: Mapping[Pair, Mapping[str, Any]] | None = None) -> str:
    """Return the graph as JSON for ``networkx.node_link_graph(…, edges="edges")``.

    Parameters
    ----------
    graph
        The graph; an undirected edge becomes two arcs, as in `to_networkx`.
    facts
        More attributes, by pair of nodes.

    Examples
    --------
    >>> from_node_link(to_node_link(Cpdag.complete(("a", "b")))) == Cpdag.complete(("a", "b"))
    True
    """
    more = {} if facts is None else facts
    content = {
        "directed": True,
        "multigraph": False,
        "graph": {"family": name_family(graph)},
        "nodes": [{"id": name} for name in graph.nodes],
        "edges": [
            {"kind": kind, **more.get(frozenset((tail, head)), {}), "source": tail, "target": head}
            for tail, head, kind in list_arcs(graph)
        ],
    }
    try:
        return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
    except UnicodeEncodeError:
        raise GraphError("a node name contains an unpaired surrogate, which JSON cannot represent; rename it") from None


def from_node_link(text: str | bytes) -> Dag | Cpdag:
    """Read a graph from networkx's JSON, with the key ``edges`` or, as older versions wrote it, ``links``."""
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise GraphError("this is not JSON") from error
    try:
        nodes = [node["id"] for node in content["nodes"]]
        edges = content["edges"] if "edges" in content else content["links"]
        arcs = [(edge["source"], edge["target"], edge.get("kind")) for edge in edges]
        directed, family = content.get("directed", False), (content.get("graph") or {}).get("family")
        if not directed:
            arcs = [ends for tail, head, _ in arcs for ends in ((tail, head, UNDIRECTED), (head, tail, UNDIRECTED))]
        return join_arcs(nodes, arcs, family)
    except (KeyError, TypeError, AttributeError):
        raise GraphError(
            "this JSON is neither a dagveil result nor a graph of networkx: it needs nodes with ids, and edges with "
            "source and target"
        ) from None
