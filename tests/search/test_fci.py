"""FCI on an oracle with hidden columns: every mark is true, pairs are joined as they must be, and no mark is missed."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dagveil.graphs.cpdag import Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph
from dagveil.search.constraint.fci import find_pag
from dagveil.search.constraint.skeleton import SkeletonSettings
from separation import is_separated

SETTINGS = SkeletonSettings(largest_order=5, sets_per_edge=1000, neighbours_considered=20, false_share=1.0)


def random_dag(nodes: int, seed: int) -> Dag:
    rng = np.random.default_rng(seed)
    names = tuple("abcdefghij"[:nodes])
    order = rng.permutation(nodes)
    arcs = {(names[order[i]], names[order[j]]) for i, j in combinations(range(nodes), 2) if rng.random() < 0.35}
    return Dag(names, frozenset(arcs))


def ancestors(dag: Dag, node: str) -> set[str]:
    found = set(dag.parents(node))
    for parent in list(found):
        found |= ancestors(dag, parent)
    return found


def separable(dag: Dag, seen: tuple[str, ...], x: str, y: str) -> bool:
    rest = [name for name in seen if name not in (x, y)]
    return any(is_separated(dag, x, y, given) for size in range(len(rest) + 1) for given in combinations(rest, size))


@pytest.mark.parametrize("seed", range(40))
def test_marks_are_true_and_pairs_are_joined_unless_something_separates_them(seed: int, oracle: type[Any]) -> None:
    dag = random_dag(8, seed)
    seen = tuple(sorted(np.random.default_rng(seed).choice(dag.nodes, 6, replace=False).tolist()))
    found = find_pag(oracle(dag, seen), SETTINGS)
    apart = {frozenset(pair) for pair in combinations(seen, 2) if separable(dag, seen, *pair)}
    assert found.skeleton() == {frozenset(pair) for pair in combinations(seen, 2)} - apart
    for x, y, at_x, at_y in found.edges:
        for start, end, mark in ((y, x, at_x), (x, y, at_y)):
            assert mark is not Mark.TAIL or end in ancestors(dag, start)
            assert mark is not Mark.ARROW or end not in ancestors(dag, start)


@pytest.mark.parametrize("seed", range(12))
def test_causal_learn_finds_the_same_marks(seed: int, oracle: type[Any]) -> None:
    fci = pytest.importorskip("causallearn.search.ConstraintBased.FCI").fci
    networkx = pytest.importorskip("networkx")
    dag = random_dag(6, 100 + seed)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(6))
    place = {name: i for i, name in enumerate(dag.nodes)}
    graph.add_edges_from((place[a], place[b]) for a, b in dag.edges)
    theirs, _ = fci(np.zeros((9, 6)), "d_separation", 0.05, true_dag=graph, verbose=False, show_progress=False)
    marks = {-1: Mark.TAIL, 1: Mark.ARROW, 2: Mark.CIRCLE}
    edges = {
        Edge(dag.nodes[i], dag.nodes[j], marks[theirs.graph[i, j]], marks[theirs.graph[j, i]])
        for i, j in combinations(range(6), 2)
        if theirs.graph[i, j]
    }
    assert find_pag(oracle(dag), SETTINGS) == MixedGraph(dag.nodes, frozenset(edges))


def test_a_hidden_cause_has_two_arrowheads(oracle: type[Any]) -> None:
    dag = Dag(("a", "b", "c", "d", "h"), frozenset({("a", "b"), ("h", "b"), ("h", "c"), ("d", "c")}))
    found = find_pag(oracle(dag, ("a", "b", "c", "d")), SETTINGS)
    assert found.mark("b", "c") is found.mark("c", "b") is Mark.ARROW
    assert found.mark("b", "a") is found.mark("c", "d") is Mark.CIRCLE
