from __future__ import annotations

from itertools import combinations

import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag, close


def pairs(*texts: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(text) for text in texts)


def arcs(*texts: str) -> frozenset[tuple[str, str]]:
    return frozenset((text[0], text[1]) for text in texts)


@pytest.mark.parametrize(
    ("directed", "undirected", "turned"),
    [
        (arcs("ca"), pairs("ab"), arcs("ab")),
        (arcs("ac", "cb"), pairs("ab"), arcs("ab")),
        (arcs("cb", "db"), pairs("ab", "ac", "ad"), arcs("ab")),
        (arcs("dc", "cb"), pairs("ab", "ad", "ac"), arcs("ab")),
    ],
    ids=["rule 1", "rule 2", "rule 3", "rule 4"],
)
def test_each_rule_alone(
    directed: frozenset[tuple[str, str]], undirected: frozenset[frozenset[str]], turned: frozenset[tuple[str, str]]
) -> None:
    assert close(("a", "b", "c", "d"), directed, undirected)[0] == directed | turned


def test_closure_with_background_arrows_against_all_members(all_classes: dict[Cpdag, list[Dag]]) -> None:
    """Arrows added to a CPDAG compel what all members with these arrows share: Meek's completeness, on every class."""
    for cpdag, members in all_classes.items():
        for dag in members:
            free = sorted(dag.edges - cpdag.directed)
            for size in range(len(free) + 1):
                for added in map(frozenset, combinations(free, size)):
                    rest = cpdag.undirected - {frozenset(arc) for arc in added}
                    directed, undirected = close(cpdag.nodes, cpdag.directed | added, rest)
                    obedient = [member.edges for member in members if added <= member.edges]
                    assert directed == frozenset.intersection(*obedient)
                    assert undirected == cpdag.skeleton() - {frozenset(arc) for arc in directed}


def test_order_of_nodes_does_not_matter(all_partial_graphs: tuple[Cpdag, ...]) -> None:
    for graph in all_partial_graphs:
        forward = close(graph.nodes, graph.directed, graph.undirected)
        assert close(graph.nodes[::-1], graph.directed, graph.undirected) == forward


def test_closing_twice_changes_nothing_and_keeps_the_skeleton(all_partial_graphs: tuple[Cpdag, ...]) -> None:
    for graph in all_partial_graphs:
        closed = Cpdag(graph.nodes, *close(graph.nodes, graph.directed, graph.undirected))
        assert closed.skeleton() == graph.skeleton()
        assert closed.directed >= graph.directed
        assert close(closed.nodes, closed.directed, closed.undirected) == (closed.directed, closed.undirected)


def test_an_edge_turned_both_ways_stays_undirected() -> None:
    directed, undirected = close(("a", "b", "c", "d"), arcs("ab", "dc"), pairs("bc"))
    assert (directed, undirected) == (arcs("ab", "dc"), pairs("bc"))


def test_refuses_a_pair_of_both_kinds() -> None:
    with pytest.raises(GraphError, match="both directed and undirected"):
        close(("a", "b"), arcs("ab"), pairs("ab"))
