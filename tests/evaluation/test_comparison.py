"""Two graphs side by side, against the plainest count of pairs."""

from __future__ import annotations

from itertools import combinations

import pytest

from dagveil.errors import GraphError
from dagveil.evaluation.comparison import Reading, compare_graphs, read_as
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph


def sign(graph: Cpdag, first: str, second: str) -> str:
    """Return how a pair is joined."""
    if frozenset((first, second)) in graph.undirected:
        return "—"
    return "→" if (first, second) in graph.directed else "←" if (second, first) in graph.directed else ""


def test_every_difference_is_listed_once(all_dags: tuple[Dag, ...]) -> None:
    chosen = all_dags[::37]
    for here in chosen:
        for there in chosen:
            found = compare_graphs(here, there)
            listed = {
                (item.first, item.second): (item.here, item.there)
                for items in (found.only_here, found.only_there, found.turned, found.marked)
                for item in items
            }
            ours, theirs = here.cpdag(), there.cpdag()
            wanted = {
                pair: signs
                for pair in combinations(sorted(here.nodes), 2)
                if (signs := (sign(ours, *pair), sign(theirs, *pair)))[0] != signs[1]
            }
            assert listed == wanted
            assert found.shd == len(wanted)
            assert found.same + len(found.only_here) + len(found.turned) + len(found.marked) == len(ours.skeleton())
            assert all(not item.there for item in found.only_here)
            assert all({item.here, item.there} == {"→", "←"} for item in found.turned)


def test_a_dag_stands_for_its_class_unless_it_is_taken_as_drawn() -> None:
    chain = Dag(("a", "b", "c"), frozenset({("a", "b"), ("b", "c")}))
    assert compare_graphs(chain.cpdag(), chain).shd == 0
    drawn = compare_graphs(chain.cpdag(), chain, Reading.DRAWN)
    assert (drawn.shd, drawn.skeleton.f1, len(drawn.marked)) == (2, 1.0, 2)


def test_graphs_that_cannot_be_compared() -> None:
    with pytest.raises(GraphError, match="in one graph only: c"):
        compare_graphs(Cpdag.empty(("a", "b")), Cpdag.empty(("a", "b", "c")))
    circles = MixedGraph(("a", "b"), frozenset({Edge("a", "b", Mark.CIRCLE, Mark.ARROW)}))
    with pytest.raises(GraphError, match="circles"):
        read_as(circles, Reading.CLASS)
