"""Graphs for networkx."""

from __future__ import annotations

from typing import Any

from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import UNDIRECTED, import_package, join_arcs, list_arcs, name_family


def to_networkx(graph: Dag | Cpdag) -> Any:
    """Return a ``networkx.DiGraph``; each arc has the attribute ``kind``, "directed" or "undirected".

    An undirected edge becomes two arcs. The graph's attribute ``family`` is "dag" or "cpdag".

    Examples
    --------
    >>> to_networkx(Dag(("a", "b"), frozenset({("a", "b")}))).edges["a", "b"]
    {'kind': 'directed'}
    """
    networkx = import_package("networkx")
    answer = networkx.DiGraph(family=name_family(graph))
    answer.add_nodes_from(graph.nodes)
    answer.add_edges_from((tail, head, {"kind": kind}) for tail, head, kind in list_arcs(graph))
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
    arcs = list(graph.edges(data="kind"))
    if not graph.is_directed():
        arcs = [ends for tail, head, _ in arcs for ends in ((tail, head, UNDIRECTED), (head, tail, UNDIRECTED))]
    return join_arcs(graph.nodes, arcs, graph.graph.get("family"))
