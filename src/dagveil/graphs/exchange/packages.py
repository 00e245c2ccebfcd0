"""Graphs as objects of other packages: networkx, causal-learn, pgmpy, DoWhy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dagveil.errors import MissingExtraError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import (
    UNDIRECTED,
    join_arcs,
    list_arcs,
    list_edges,
    name_family,
    simplify,
    split_edges,
)
from dagveil.graphs.exchange.extending import Extension, choose_dag
from dagveil.graphs.marks import Mark
from dagveil.graphs.mixed import Edge, MixedGraph


def to_networkx(graph: Dag | Cpdag) -> Any:
    """Return a ``networkx.DiGraph``; each arc has the attribute ``kind``, "directed" or "undirected".

    An undirected edge becomes two arcs. The graph's attribute ``family`` is "dag" or "cpdag".

    Examples
    --------
    >>> to_networkx(Dag(("a", "b"), frozenset({("a", "b")}))).edges["a", "b"]
    {'kind': 'directed'}
    """
    networkx = _import("networkx")
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


def to_dowhy(graph: Dag | Cpdag, extension: Extension = Extension.REFUSE) -> Any:
    """Return the ``networkx.DiGraph`` of a DAG, for ``dowhy.CausalModel`` and ``dowhy.gcm``.

    Parameters
    ----------
    graph
        A graph; undirected edges are refused unless an extension is asked for.
    extension
        Which DAG of a CPDAG to take. The choice is arbitrary, so it is never made silently.
    """
    dag = choose_dag(graph, extension)
    answer = _import("networkx").DiGraph()
    answer.add_nodes_from(dag.nodes)
    answer.add_edges_from(sorted(dag.edges))
    return answer


def to_pgmpy(graph: Dag | Cpdag) -> Any:
    """Return a ``pgmpy.base.DAG``, or a ``pgmpy.base.PDAG`` for a CPDAG."""
    base = _import("pgmpy.base")
    arcs, pairs = split_edges(graph)
    answer = base.DAG(arcs) if isinstance(graph, Dag) else base.PDAG(directed_ebunch=arcs, undirected_ebunch=pairs)
    answer.add_nodes_from(graph.nodes)
    return answer


def write_pgmpy(graph: Dag | Cpdag) -> str:
    """Return a Python program that makes what `to_pgmpy` returns: pgmpy has no file format without probabilities.

    Examples
    --------
    >>> print(write_pgmpy(Dag(("a", "b"), frozenset({("a", "b")}))), end="")
    from pgmpy.base import DAG
    <BLANKLINE>
    graph = DAG([('a', 'b')])
    graph.add_nodes_from(['a', 'b'])
    """
    arcs, pairs = split_edges(graph)
    if isinstance(graph, Dag):
        kind, made = "DAG", f"DAG({arcs!r})"
    else:
        kind, made = "PDAG", f"PDAG(directed_ebunch={arcs!r}, undirected_ebunch={pairs!r})"
    return f"from pgmpy.base import {kind}\n\ngraph = {made}\ngraph.add_nodes_from({list(graph.nodes)!r})\n"


def to_causal_learn(graph: Dag | Cpdag | MixedGraph) -> Any:
    """Return a ``causallearn.graph.GeneralGraph.GeneralGraph`` with the same marks."""
    general = _import("causallearn.graph.GeneralGraph")
    endpoint = _import("causallearn.graph.Endpoint").Endpoint
    make_edge = _import("causallearn.graph.Edge").Edge
    make_node = _import("causallearn.graph.GraphNode").GraphNode
    mixed = MixedGraph.of(graph)
    nodes = {name: make_node(name) for name in mixed.nodes}
    answer = general.GeneralGraph(list(nodes.values()))
    for edge in list_edges(mixed):
        first, second = endpoint[edge.mark_at_first.name], endpoint[edge.mark_at_second.name]
        answer.add_edge(make_edge(nodes[edge.first], nodes[edge.second], first, second))
    return answer


def from_causal_learn(graph: Any) -> Dag | Cpdag | MixedGraph:
    """Return the graph of a ``GeneralGraph``; a MixedGraph if it has circles or edges with two arrowheads."""
    edges = set()
    for edge in graph.get_graph_edges():
        marks = [Mark[end.name] for end in (edge.get_endpoint1(), edge.get_endpoint2())]
        edges.add(Edge(edge.get_node1().get_name(), edge.get_node2().get_name(), marks[0], marks[1]))
    return simplify(MixedGraph(tuple(graph.get_node_names()), frozenset(edges)))


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("causallearn", "causal-learn")
        raise MissingExtraError(f"{package} is not installed; install it with: pip install {package}") from error
