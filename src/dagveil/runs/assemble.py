"""What results are written from: graphs with confidences, the schema's public facts, knowledge in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.runs.result import NearMiss, ResultEdge, ResultGraph, SchemaSummary
from dagveil.search.confidence import Shares

SOLID = 0.8
"""Edges below this share of redraws rest on weak evidence."""

FAINT = 0.3
"""Noise is told of if half of the pairs are not seen below this V."""

MOST_ALTERNATIVES = 3
"""Alternatives that are told of."""

NEAR_MISS = 0.2
"""Pairs outside the graph that came up in at least this share of redraws are reported."""


def write_graph(graph: Cpdag, shares: Shares, knowledge: Knowledge) -> ResultGraph:
    """Write a graph with the shares of redraws that had its edges."""
    edges = []
    for a, b in [*graph.directed, *(sorted(pair) for pair in graph.undirected)]:
        pair, directed = frozenset((a, b)), (a, b) in graph.directed
        own = shares.of_arrow(a, b) if directed else shares.of_line(pair)
        edges.append(
            ResultEdge(
                a, b, "directed" if directed else "undirected", shares.of_pair(pair), own, *shares.of_joins(a, b)
            )
        )
    edges.sort(key=lambda edge: (edge.source, edge.target))
    return ResultGraph(graph.nodes, "cpdag" if knowledge == Knowledge.none() else "mpdag", tuple(edges))


def near_misses(graph: Cpdag, shares: Shares, found: Cpdag) -> tuple[NearMiss, ...]:
    """List the pairs outside the graph that came up in some redraws or in the first search, most often first."""
    drawn, doubtful = graph.skeleton(), found.skeleton()
    misses = []
    for pair in {*shares.adjacent, *doubtful} - drawn:
        share = shares.of_pair(pair)
        if share is not None and (share >= NEAR_MISS or pair in doubtful):
            a, b = sorted(pair)
            misses.append(NearMiss(a, b, share, pair in doubtful))
    return tuple(sorted(misses, key=lambda miss: (-miss.confidence, miss.source, miss.target)))


def tell_solidity(
    graph: ResultGraph,
    misses: tuple[NearMiss, ...],
    false_edges: float | None,
    visible: float | None,
    alternatives: Sequence[tuple[str, str, str, float]] = (),
) -> tuple[str, ...]:
    """Say in a few sentences how much of a graph is solid.

    Parameters
    ----------
    graph, misses, false_edges
        Of the result.
    visible
        Cramér's V that half of the pairs must exceed to be seen.
    alternatives
        What `find_alternatives` found.
    """
    edges = graph.edges
    weak = sum(edge.confidence is not None and edge.confidence < SOLID for edge in edges)
    doubtful = sum(miss.found for miss in misses)
    said = [f"{len(edges)} edge{'' if len(edges) == 1 else 's'} among {len(graph.nodes)} columns"]
    if false_edges is not None:
        said.append(f"about {false_edges:.1f} would appear if nothing depended on anything")
    if weak:
        said.append(f"{weak} rest{'s' if weak == 1 else ''} on weak evidence (below {SOLID:.0%} of redraws)")
    if doubtful:
        said.append(f"{doubtful} more {'is' if doubtful == 1 else 'are'} doubtful and not drawn (below one half)")
    sentences = ["; ".join(said) + "."]
    if visible is not None and (not edges or visible > FAINT):
        seen = "no dependence could be seen" if visible >= 1.0 else f"a dependence is seen above V = {visible:.2f}"
        sentences.append(
            f"{'Noise hides all but strong dependences' if edges else 'Nothing stood out from noise and chance'}: "
            f"for half of the pairs {seen} (Cramér's V, from 0 to 1). A larger epsilon, fewer columns or levels, or "
            "more rows show more: `dagveil plan SCHEMA.toml --explore` tells how much."
        )
    sentences += [
        f"{x} is joined to {y} or to {z} in {share:.0%} of redraws, but to neither in half of them, so no edge is "
        f"drawn: {y} and {z} tell much the same, and the evidence does not say whose edge it is."
        for x, y, z, share in alternatives[:MOST_ALTERNATIVES]
    ]
    lines = sum(edge.kind == "undirected" for edge in edges)
    if edges and 2 * lines > len(edges):
        sentences.append(
            f"{lines} of {len(edges)} edges have no arrow: nothing that is drawn tells cause from effect there. If you "
            "know which columns come first, search again, for free, with --knowledge FILE.toml that lists tiers."
        )
    return tuple(sentences)


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
