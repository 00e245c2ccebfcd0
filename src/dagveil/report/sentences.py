"""What a reader wants to know first: what is solid, what is doubtful, for whom it is private, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dagveil.report.fields import Record
from dagveil.report.formatting import write_delta, write_epsilon, write_share
from dagveil.report.graph import DrawnEdge, DrawnGraph
from dagveil.report.guarantee_status import Promise, Standing
from dagveil.runs.assemble import SOLID

MOST_NAMED: Final = 3
"""A sentence names this many edges; the table has the others."""


def tell_first(
    summary: Sequence[str],
    graph: DrawnGraph,
    doubtful: Sequence[DrawnEdge],
    promise: Promise,
    standing: Standing,
    receipt: Record,
) -> tuple[tuple[str, str], ...]:
    """Return the sentences below the graph, each with what it is about.

    Parameters
    ----------
    summary
        Of the result: how much of the graph is solid, then what would help.
    graph, doubtful
        What is drawn, and what the search found but redraws did not.
    promise, standing, receipt
        What is promised, and whether it holds.
    """
    # a graph without edges says so and why in the first line
    solid, more = (summary[0], summary[1:]) if graph.edges else (f"Nothing: {' '.join(summary)}", ())
    return (
        ("Solid", solid),
        ("Doubtful", _tell_doubts(graph, doubtful)),
        ("Private for", _tell_whom(promise, standing, receipt)),
        *(("What would help", sentence) for sentence in more),
    )


def _tell_doubts(graph: DrawnGraph, doubtful: Sequence[DrawnEdge]) -> str:
    shares = [edge.confidence for edge in graph.edges if edge.confidence is not None]
    if graph.edges and not shares:
        return "Not known: nothing was redrawn, so no edge has a confidence."
    weak = [edge for edge in graph.edges if edge.confidence is not None and edge.confidence < SOLID]
    told = []
    if weak:
        told.append(f"Drawn on weak evidence: {_name(weak)}.")
    if doubtful:
        told.append(f"Found, but not again in half of the redraws, so not drawn: {_name(doubtful)}.")
    if told:
        return " ".join(told)
    if not graph.edges:
        return "No edge was found at all."
    return f"None: every edge came back in at least {write_share(SOLID)} of redraws."


def _name(edges: Sequence[DrawnEdge]) -> str:
    """Name edges, the least confident first."""
    edges = sorted(edges, key=lambda edge: (edge.confidence or 0.0, edge.source, edge.target))
    named = [f"{edge.source} {edge.sign} {edge.target} ({write_share(edge.confidence)})" for edge in edges[:MOST_NAMED]]
    more = [f"and {len(edges) - MOST_NAMED} more"] if len(edges) > MOST_NAMED else []
    return "; ".join((*named, *more))


def _tell_whom(promise: Promise, standing: Standing, receipt: Record) -> str:
    if standing is Standing.NOT_PRIVATE:
        return "Nobody: no promise holds. The top of this page says why."
    protected = [sentence.text for sentence in promise.sentences if sentence.lead == "Who is protected"]
    # how neighbours differ stands in the promise
    whom = [text.partition("; neighbours:")[0].rstrip(".") + "." for text in protected]
    budget = f"epsilon {write_epsilon(receipt.fraction('epsilon'))}, delta {write_delta(receipt.fraction('delta'))}"
    return " ".join((*whom, f"At {budget}; the promise in full stands below."))
