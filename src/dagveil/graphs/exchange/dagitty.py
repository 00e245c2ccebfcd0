"""Graphs as dagitty writes them: DOT with types of its own, and edges whose ends are drawn."""

from __future__ import annotations

import re
from typing import Final

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.exchange.arcs import simplify, split_edges
from dagveil.graphs.exchange.statements import merge_edges, read_statements
from dagveil.graphs.marks import Mark
from dagveil.graphs.mixed import Edge, MixedGraph

TYPES: Final = frozenset({"dag", "pdag", "mag", "pag", "graph", "digraph"})

_CONNECTORS: Final = {
    "->": (Mark.TAIL, Mark.ARROW),
    "<-": (Mark.ARROW, Mark.TAIL),
    "--": (Mark.TAIL, Mark.TAIL),
    "<->": (Mark.ARROW, Mark.ARROW),
    "@->": (Mark.CIRCLE, Mark.ARROW),
    "<-@": (Mark.ARROW, Mark.CIRCLE),
    "@--": (Mark.CIRCLE, Mark.TAIL),
    "--@": (Mark.TAIL, Mark.CIRCLE),
    "@-@": (Mark.CIRCLE, Mark.CIRCLE),
}
_NOT_IN_NAMES: Final = re.compile(r'[\x00-\x1f\x7f]|\\"|\\$')


def to_dagitty(graph: Dag | Cpdag) -> str:
    """Return the graph for dagitty: a `dag`, or a `pdag` for a CPDAG.

    Examples
    --------
    >>> print(to_dagitty(Cpdag.complete(("a", "b"))), end="")
    pdag {
    "a"
    "b"
    "a" -- "b"
    }
    """
    for name in graph.nodes:
        if not name or _NOT_IN_NAMES.search(name) or name in ("graph", "node"):
            raise GraphError(
                f"dagitty cannot have a variable {name!r}: it takes no empty names, line breaks, a backslash at the "
                "end or before a quotation mark, nor the words graph and node; rename it before the export"
            )
    arcs, pairs = split_edges(graph)
    lines = [_quote(name) for name in graph.nodes]
    lines += [f"{_quote(tail)} -> {_quote(head)}" for tail, head in arcs]
    lines += [f"{_quote(first)} -- {_quote(second)}" for first, second in pairs]
    return "\n".join([f"{'dag' if isinstance(graph, Dag) else 'pdag'} {{", *lines, "}", ""])


def from_dagitty(text: str) -> Dag | Cpdag | MixedGraph:
    """Read a graph from dagitty's text; a MixedGraph if it has circles or edges with two arrowheads.

    Examples
    --------
    >>> sorted(from_dagitty("dag { x <- z -> y  x -> y }").edges)
    [('x', 'y'), ('z', 'x'), ('z', 'y')]
    """
    statements = read_statements(text, TYPES)
    edges = [Edge(first, second, *_CONNECTORS[connector]) for first, connector, second, _ in statements.edges]
    graph = simplify(MixedGraph(tuple(statements.nodes), merge_edges(edges)))
    if statements.type == "pdag" and isinstance(graph, Dag):
        return Cpdag(graph.nodes, graph.edges, frozenset())
    return graph


def _quote(name: str) -> str:
    escaped = name.replace('"', '\\"')
    return f'"{escaped}"'
