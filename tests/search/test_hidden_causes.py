"""Searches that allow for hidden causes: on an oracle, on sampled rows, with knowledge, and by redraws."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dagveil.errors import MethodError
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.graphs.pag import Edge, Mark, MixedGraph, find_class
from dagveil.search.confidence import Shares, agree_on_marks
from dagveil.search.constraint.ancestral import orient_ancestral
from dagveil.search.constraint.skeleton import SkeletonSettings, find_skeleton
from dagveil.search.settings import ArrowRule, SearchRule, SearchSettings
from dagveil_bench.hidden_causes import project_dag

SETTINGS = SkeletonSettings(largest_order=5, sets_per_edge=1000, neighbours_considered=20, false_share=1.0)


def random_dag(nodes: int, seed: int) -> Dag:
    rng = np.random.default_rng(seed)
    names = tuple("abcdefghij"[:nodes])
    order = rng.permutation(nodes)
    arcs = {(names[order[i]], names[order[j]]) for i, j in combinations(range(nodes), 2) if rng.random() < 0.3}
    return Dag(names, frozenset(arcs))


def search(evidence: Any, knowledge: Knowledge = NO_KNOWLEDGE, **settings: Any) -> MixedGraph:
    skeleton = find_skeleton(evidence, SETTINGS, Knowledge(required=knowledge.required))
    return orient_ancestral(evidence, skeleton, SETTINGS, knowledge, **settings)


@pytest.mark.parametrize("seed", range(40))
def test_an_oracle_gives_the_true_pag(seed: int, oracle: type[Any]) -> None:
    dag = random_dag(8, seed)
    seen = tuple(sorted(np.random.default_rng(seed).choice(dag.nodes, 6, replace=False).tolist()))
    truth = find_class(project_dag(dag, set(dag.nodes) - set(seen)))
    assert search(oracle(dag, seen)).edges == truth.edges


M_GRAPH = Dag(("a", "b", "c", "d", "h"), frozenset({("a", "b"), ("h", "b"), ("h", "c"), ("d", "c")}))
SEEN = ("a", "b", "c", "d")


def test_tiers_put_an_arrowhead_at_the_later_column(oracle: type[Any]) -> None:
    chain = Dag(("a", "b", "c"), frozenset({("a", "b"), ("b", "c")}))
    plain = search(oracle(chain))
    assert plain.mark("a", "b") is Mark.CIRCLE
    ordered = search(oracle(chain), Knowledge(tiers=(("a",), ("b", "c"))))
    assert ordered.mark("a", "b") is Mark.ARROW
    assert ordered.mark("b", "a") is Mark.CIRCLE  # the earlier column may still share a hidden cause
    assert (ordered.mark("b", "c"), ordered.mark("c", "b")) == (Mark.ARROW, Mark.TAIL)  # since b is no collider


def test_a_required_edge_is_a_cause_and_a_forbidden_one_none(oracle: type[Any]) -> None:
    chain = Dag(("a", "b", "c"), frozenset({("a", "b"), ("b", "c")}))
    found = search(oracle(chain), Knowledge(required=frozenset({("c", "b")}), forbidden=frozenset({("b", "a")})))
    assert (found.mark("c", "b"), found.mark("b", "c")) == (Mark.ARROW, Mark.TAIL)
    assert found.mark("a", "b") is Mark.ARROW
    both = Knowledge(forbidden=frozenset({("a", "b"), ("b", "a")}))
    found = search(oracle(chain), both)
    assert found.mark("a", "b") is found.mark("b", "a") is Mark.ARROW  # only a hidden cause is left


def test_doubtful_evidence_leaves_circles(oracle: type[Any]) -> None:
    found = search(oracle(M_GRAPH, SEEN), doubt=11.0)  # more than any triple may weigh
    assert all({edge.mark_at_first, edge.mark_at_second} == {Mark.CIRCLE} for edge in found.edges)
    assert search(oracle(M_GRAPH, SEEN)).mark("b", "c") is Mark.ARROW


def test_selected_rows_keep_their_separations(oracle: type[Any]) -> None:
    """With selection each triple speaks for itself; without hidden structure both searches agree."""
    assert search(oracle(M_GRAPH, SEEN), selection=True) == search(oracle(M_GRAPH, SEEN))


def shares_of(*graphs: MixedGraph) -> Shares:
    marks: Counter[tuple[str, str, Mark]] = Counter()
    for graph in graphs:
        for edge in graph.edges:
            marks[edge.first, edge.second, edge.mark_at_second] += 1
            marks[edge.second, edge.first, edge.mark_at_first] += 1
    adjacent = Counter(pair for graph in graphs for pair in graph.skeleton())
    kinds = Counter(edge for graph in graphs for edge in graph.edges)
    return Shares(len(graphs), adjacent, Counter(), tuple(graph.skeleton() for graph in graphs), marks, kinds)


def mixed(*edges: tuple[str, str, str]) -> MixedGraph:
    marks = {"-": Mark.TAIL, ">": Mark.ARROW, "<": Mark.ARROW, "o": Mark.CIRCLE}
    return MixedGraph(("a", "b", "c"), frozenset(Edge(x, y, marks[s[0]], marks[s[1]]) for x, s, y in edges))


COLLIDER = mixed(("a", "o>", "b"), ("b", "<o", "c"))
OPEN = mixed(("a", "oo", "b"), ("b", "oo", "c"))


def test_marks_need_half_of_the_redraws() -> None:
    assert agree_on_marks(COLLIDER, shares_of(COLLIDER, COLLIDER, OPEN)) == COLLIDER
    assert agree_on_marks(COLLIDER, shares_of(COLLIDER, OPEN, OPEN)) == OPEN
    assert agree_on_marks(COLLIDER, shares_of(mixed(), mixed(), COLLIDER)) == mixed()
    assert agree_on_marks(COLLIDER, Shares.none()) == COLLIDER


def test_a_mark_without_its_collider_is_not_drawn() -> None:
    alone = mixed(("a", "o>", "b"))
    assert agree_on_marks(COLLIDER, shares_of(COLLIDER, alone, alone)) == mixed(("a", "oo", "b"))
    known = Knowledge(tiers=(("a",), ("b",)))
    assert agree_on_marks(alone, shares_of(alone), known) == alone


def test_majorities_that_contradict_each_other_leave_a_circle() -> None:
    first = mixed(("a", "->", "b"), ("b", "->", "c"), ("a", "oo", "c"))
    second = mixed(("a", "->", "b"), ("b", "->", "c"), ("a", "<>", "c"))
    known = Knowledge(required=frozenset({("a", "b"), ("b", "c")}))
    drawn = agree_on_marks(second, shares_of(first, second, second), known)
    assert drawn.mark("c", "a") is Mark.CIRCLE or drawn.mark("b", "a") is not Mark.TAIL


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"selection_bias": True}, "ask for hidden causes too"),
        ({"hidden_causes": True, "search": SearchRule.SCORE}, "takes all causes for measured"),
        ({"hidden_causes": True, "search": SearchRule.NOTEARS}, "takes all causes for measured"),
        ({"hidden_causes": True, "arrows": ArrowRule.SEPARATING_SETS}, "weighed by evidence"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(chosen: dict[str, Any], why: str) -> None:
    with pytest.raises(MethodError, match=why):
        SearchSettings(**chosen)
