"""Scores that look at the direction of edges, not only at their presence."""

from __future__ import annotations

from dagveil.evaluation.skeleton import check_same_nodes, rate
from dagveil.graphs.cpdag import Cpdag


def marked_edge_f1(found: Cpdag, truth: Cpdag) -> float:
    """Return the F1 score of the edges with their marks.

    An edge is a hit when it is in both graphs and of the same kind: directed the same way, or undirected in both.
    Every other edge of the found graph is a false one, and every other edge of the true graph a missed one. The score
    is 1 when neither graph has an edge.

    Examples
    --------
    >>> found = Cpdag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}), frozenset())
    >>> truth = Cpdag(("a", "b", "c"), frozenset(), frozenset({frozenset("ab"), frozenset("bc")}))
    >>> marked_edge_f1(found, truth)
    0.0
    """
    check_same_nodes(found, truth)
    hits = len(found.directed & truth.directed) + len(found.undirected & truth.undirected)
    return rate(2 * hits, len(found.skeleton()) + len(truth.skeleton()), empty=1.0)


def arrow_precision(found: Cpdag, truth: Cpdag) -> float:
    """Return the share of the found arrows that are compelled in the truth; 1 when no arrow is found."""
    check_same_nodes(found, truth)
    return rate(len(found.directed & truth.directed), len(found.directed), empty=1.0)


def arrow_recall(found: Cpdag, truth: Cpdag) -> float:
    """Return the share of the truth's compelled arrows that are found; 1 when it has none."""
    check_same_nodes(found, truth)
    return rate(len(found.directed & truth.directed), len(truth.directed), empty=1.0)
