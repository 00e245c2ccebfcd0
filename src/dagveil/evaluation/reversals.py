"""The distance of the study of local privacy: missing, redundant and reversed edges count 1 each."""

from __future__ import annotations

from dagveil.evaluation.skeleton import check_same_nodes
from dagveil.graphs.dag import Dag
from dagveil.graphs.mixed import Mark, MixedGraph


def count_wrong_edges(found: MixedGraph, truth: Dag) -> int:
    """Return missing, redundant and reversed edges together.

    An edge is reversed if it has an arrowhead at the true cause. An edge without a direction, or with a circle there,
    leaves the question open and counts 0, so graphs with any marks can be compared with one DAG.

    Examples
    --------
    >>> from dagveil.graphs.cpdag import Cpdag
    >>> truth = Dag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}))
    >>> found = Cpdag(("a", "b", "c"), frozenset({("b", "a")}), frozenset({frozenset("ac")}))
    >>> count_wrong_edges(MixedGraph.of(found), truth)
    3
    """
    check_same_nodes(found, truth)
    differing = len(found.skeleton() ^ truth.skeleton())
    return differing + sum(found.mark(effect, cause) is Mark.ARROW for cause, effect in truth.edges)
