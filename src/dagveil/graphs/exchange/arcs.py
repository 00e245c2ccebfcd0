"""Graphs as lists of arcs, which most formats have: an undirected edge is two arcs, one each way."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from dagveil.errors import GraphError, MissingExtraError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag, sort_topologically
from dagveil.graphs.mixed import Edge, Mark, MixedGraph
from dagveil.graphs.names import Arc, Pair, check_arcs

DIRECTED: Final = "directed"
UNDIRECTED: Final = "undirected"


def name_family(graph: Dag | Cpdag) -> str:
    """Return "dag" or "cpdag"."""
    return "dag" if isinstance(graph, Dag) else "cpdag"


def split_edges(graph: Dag | Cpdag) -> tuple[list[Arc], list[Arc]]:
    """Return the directed edges, and the undirected ones with their ends in alphabetical order; both sorted."""
    arcs: frozenset[Arc] = graph.edges if isinstance(graph, Dag) else graph.directed
    pairs: frozenset[Pair] = frozenset() if isinstance(graph, Dag) else graph.undirected
    return sorted(arcs), sorted((min(pair), max(pair)) for pair in pairs)


def list_arcs(graph: Dag | Cpdag) -> list[tuple[str, str, str]]:
    """Return (tail, head, kind) in a fixed order, an undirected edge twice."""
    arcs, pairs = split_edges(graph)
    listed = [(tail, head, DIRECTED) for tail, head in arcs]
    for first, second in pairs:
        listed += [(first, second, UNDIRECTED), (second, first, UNDIRECTED)]
    return sorted(listed)


def list_edges(mixed: MixedGraph) -> list[Edge]:
    """Return the edges in a fixed order."""
    return sorted(mixed.edges, key=lambda edge: (edge.first, edge.second))


def join_arcs(
    nodes: Iterable[str], arcs: Iterable[tuple[str, str, str | None]], family: str | None = None
) -> Dag | Cpdag:
    """Return the graph of some arcs.

    Arcs are (tail, head, kind); the kind is "directed", "undirected" or not told. If the family is not told, directed
    edges without a cycle are a Dag.
    """
    names = tuple(nodes)
    kinds = {(tail, head): kind for tail, head, kind in arcs}
    undirected = frozenset(frozenset(arc) for arc in kinds if arc[::-1] in kinds and arc[0] != arc[1])
    for (tail, head), kind in kinds.items():
        if kind is not None and kind != (UNDIRECTED if frozenset((tail, head)) in undirected else DIRECTED):
            raise GraphError(
                f"the arc from {tail!r} to {head!r} is of the kind {kind!r}, which does not fit its reverse; "
                "an undirected edge is two arcs, one each way, and a directed edge is one"
            )
    directed = frozenset(arc for arc in kinds if frozenset(arc) not in undirected)
    if family is None:
        acyclic = not undirected and sort_topologically(names, check_arcs(names, directed)) is not None
        family = "dag" if acyclic else "cpdag"
    if family == "dag" and not undirected:
        return Dag(names, directed)
    if family == "cpdag":
        return Cpdag(names, directed, undirected)
    raise GraphError(
        f"the graph calls itself {family!r} and has {len(undirected)} undirected edges; "
        "set its attribute family to 'dag' (no undirected edges) or 'cpdag'"
    )


def simplify(mixed: MixedGraph) -> Dag | Cpdag | MixedGraph:
    """Return a graph of directed and undirected edges as a Dag or Cpdag, and any other as it is."""
    arcs: list[tuple[str, str, str | None]] = []
    for edge in mixed.edges:
        match edge.mark_at_first, edge.mark_at_second:
            case (Mark.TAIL, Mark.ARROW):
                arcs.append((edge.first, edge.second, DIRECTED))
            case (Mark.ARROW, Mark.TAIL):
                arcs.append((edge.second, edge.first, DIRECTED))
            case (Mark.TAIL, Mark.TAIL):
                arcs += [(edge.first, edge.second, UNDIRECTED), (edge.second, edge.first, UNDIRECTED)]
            case _:
                return mixed
    return join_arcs(mixed.nodes, arcs)


def import_package(module: str) -> Any:
    """Import a module of another package, or say how to install that."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("causallearn", "causal-learn")
        raise MissingExtraError(f"{package} is not installed; install it with: pip install {package}") from error
