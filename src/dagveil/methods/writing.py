"""What results are written from: graphs with confidences, the schema's public facts, knowledge in words."""

from __future__ import annotations

from typing import Any

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.result import NearMiss, ResultEdge, ResultGraph, SchemaSummary
from dagveil.search.confidence import Shares

NEAR_MISS = 0.2
"""Pairs outside the graph that came up in at least this share of redraws are reported."""


def write_graph(graph: Cpdag, shares: Shares, knowledge: Knowledge) -> ResultGraph:
    """Write a graph with the shares of redraws that had its edges."""
    edges = [
        ResultEdge(a, b, "directed", shares.of_pair(frozenset((a, b))), shares.of_arrow(a, b))
        for a, b in graph.directed
    ]
    for pair in graph.undirected:
        a, b = sorted(pair)
        edges.append(ResultEdge(a, b, "undirected", shares.of_pair(pair), shares.of_line(pair)))
    edges.sort(key=lambda edge: (edge.source, edge.target))
    return ResultGraph(graph.nodes, "cpdag" if knowledge == Knowledge.none() else "mpdag", tuple(edges))


def near_misses(graph: Cpdag, shares: Shares) -> tuple[NearMiss, ...]:
    """List the pairs outside the graph that came up in some redraws, most often first."""
    found = graph.skeleton()
    misses = []
    for pair in shares.adjacent:
        share = shares.of_pair(pair)
        if pair not in found and share is not None and share >= NEAR_MISS:
            a, b = sorted(pair)
            misses.append(NearMiss(a, b, share))
    return tuple(sorted(misses, key=lambda miss: (-miss.confidence, miss.source, miss.target)))


def summarise(schema: Schema) -> SchemaSummary:
    """Return the public facts of a schema that a reader of a result needs."""
    columns: dict[str, dict[str, Any]] = {}
    for name, column in schema.columns.items():
        kind = type(column).__name__.lower()
        facts: dict[str, Any] = {"kind": kind, "levels": column.n_levels}
        if isinstance(column, Numeric):
            facts["bounds"] = list(column.bounds)
        columns[name] = facts
    return SchemaSummary(schema.dataset, schema.digest(), schema.reviewed, schema.unit, schema.nominal_rows, columns)


def tell_knowledge(knowledge: Knowledge) -> tuple[str, ...]:
    """Say background knowledge in words, if there is any."""
    parts = []
    if knowledge.tiers:
        parts.append("tiers " + " before ".join("{" + ", ".join(tier) + "}" for tier in knowledge.tiers))
    for word, arcs in (("forbidden", knowledge.forbidden), ("required", knowledge.required)):
        if arcs:
            parts.append(f"{word} " + ", ".join(f"{cause} → {effect}" for cause, effect in sorted(arcs)))
    return (f"Background knowledge in force: {'; '.join(parts)}.",) if parts else ()
