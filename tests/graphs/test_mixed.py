from __future__ import annotations

import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph


def test_an_edge_can_be_given_from_either_end() -> None:
    edge = Edge("b", "a", Mark.CIRCLE, Mark.ARROW)
    one, other = MixedGraph(("a", "b"), frozenset({edge})), MixedGraph(("a", "b"), frozenset({edge.turned()}))
    assert one == other
    assert one.mark("b", "a") is Mark.ARROW
    assert one.mark("a", "b") is Mark.CIRCLE
    assert one.mark("a", "a") is None


def test_every_cpdag_as_a_mixed_graph(all_classes: dict[Cpdag, list[Dag]]) -> None:
    for cpdag in all_classes:
        mixed = MixedGraph.of(cpdag)
        assert mixed.skeleton() == cpdag.skeleton()
        for node in cpdag.nodes:
            assert mixed.adjacent(node) == cpdag.adjacent(node)
        for tail, head in cpdag.directed:
            assert (mixed.mark(tail, head), mixed.mark(head, tail)) == (Mark.ARROW, Mark.TAIL)
        for first, second in map(sorted, cpdag.undirected):
            assert (mixed.mark(first, second), mixed.mark(second, first)) == (Mark.TAIL, Mark.TAIL)
        assert MixedGraph.of(mixed) is mixed


def test_refuses_two_edges_for_a_pair_and_unknown_nodes() -> None:
    tail_arrow = Edge("a", "b", Mark.TAIL, Mark.ARROW)
    with pytest.raises(GraphError, match="one edge for each pair"):
        MixedGraph(("a", "b"), frozenset({tail_arrow, Edge("a", "b", Mark.ARROW, Mark.ARROW)}))
    with pytest.raises(GraphError, match="unknown node 'b'"):
        MixedGraph(("a",), frozenset({tail_arrow}))
    with pytest.raises(GraphError, match="no node"):
        MixedGraph(("a",), frozenset()).adjacent("b")
