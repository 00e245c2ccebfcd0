"""Distances between graphs."""

from __future__ import annotations

from dagveil.evaluation.skeleton import check_same_nodes
from dagveil.graphs.cpdag import Cpdag


def cpdag_shd(found: Cpdag, truth: Cpdag) -> int:
    """Return the structural Hamming distance: the number of pairs of nodes that are not joined in the same way.

    A pair counts 1 when it is adjacent in one graph only, when it is directed in one and undirected in the other, and
    when it is directed in opposite ways.

    Examples
    --------
    >>> cpdag_shd(Cpdag.empty(("a", "b", "c")), Cpdag.complete(("a", "b", "c")))
    3
    """
    check_same_nodes(found, truth)
    turned = {frozenset(arc) for arc in found.directed ^ truth.directed}
    return len(turned | (found.undirected ^ truth.undirected))
