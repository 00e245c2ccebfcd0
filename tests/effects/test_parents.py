"""Readings of a graph are those that its DAGs have, and the sets that identify effects do, by brute force."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from dagveil.effects.parents import (
    descendants,
    explain_refusal,
    find_optimal_set,
    list_readings,
    separates_back_doors,
)
from dagveil.errors import DagveilError, GraphError, MethodError
from dagveil.graphs.cpdag import Cpdag, Dag, sort_topologically

NAMES = ("a", "b", "c", "d", "e")


def random_dag(rng: np.random.Generator, size: int, share: float = 0.5) -> Dag:
    names = tuple(rng.permutation(NAMES[:size]).tolist())
    edges = [arc for arc in combinations(names, 2) if rng.random() < share]
    return Dag(NAMES[:size], frozenset(edges))


def members(graph: Cpdag) -> list[Dag]:
    """All DAGs with this skeleton, these arrows and no other unshielded collider, found by trying every direction."""
    loose = [tuple(sorted(pair)) for pair in graph.undirected]
    wanted = graph.extension()
    assert wanted is not None
    found = []
    for turns in product((False, True), repeat=len(loose)):
        arcs = graph.directed | {(b, a) if turn else (a, b) for (a, b), turn in zip(loose, turns, strict=True)}
        if sort_topologically(graph.nodes, arcs) is not None:
            dag = Dag(graph.nodes, frozenset(arcs))
            if dag.colliders() == wanted.colliders():
                found.append(dag)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_parent_sets_are_those_of_the_dags_of_the_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, 5, share=(0.4, 0.7)[seed % 2])
    graph = dag.cpdag()
    class_of = members(graph)
    for x, y in (("a", "b"), ("c", "e")):
        readings = list_readings(graph, x, y)
        assert {one.parents for one in readings} == {each.parents(x) for each in class_of}
        assert len({one.parents for one in readings}) == len(readings)
        for one in readings:
            same = [each for each in class_of if each.parents(x) == one.parents]
            if one.adjustment is None:
                assert y in one.parents
                continue
            if one.why_nothing is not None:
                # parents are a valid set, and no DAG has a path
                assert not any(y in descendants(each, x) for each in same)
                continue
            for each in same:
                # the optimal set does not hang on which DAG of the reading is taken
                assert find_optimal_set(each, x, y) == one.adjustment[0]
                for adjust in one.adjustment:
                    assert separates_back_doors(each, x, y, adjust)
                    assert not adjust & descendants(each, x) or y not in descendants(each, x)


@pytest.mark.parametrize("seed", range(20))
def test_identified_effects_are_those_of_a_linear_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, 5, share=0.6)
    weights = np.zeros((5, 5))
    for tail, head in dag.edges:
        weights[NAMES.index(tail), NAMES.index(head)] = rng.uniform(0.5, 1.5)
    reach = np.linalg.inv(np.eye(5) - weights)
    covariance = reach.T @ np.diag(rng.uniform(0.5, 2.0, 5)) @ reach
    known = Cpdag(dag.nodes, dag.edges, frozenset())
    for x, y in combinations(range(5), 2):
        (reading,) = list_readings(known, NAMES[x], NAMES[y])
        for adjust in reading.adjustment or ():
            given = [x, *(NAMES.index(name) for name in sorted(adjust))]
            slope = np.linalg.solve(covariance[np.ix_(given, given)], covariance[given, y])[0]
            assert slope == pytest.approx(reach[x, y], abs=1e-9)


def test_background_arrows_leave_fewer_readings() -> None:
    triangle = Cpdag.complete(("a", "b", "c"))
    assert len(list_readings(triangle, "a", "b")) == 4
    # a → b, and closed under the rules nothing else: c before a means c before b
    partly = Cpdag(("a", "b", "c"), frozenset({("a", "b")}), frozenset({frozenset("ac"), frozenset("bc")}))
    assert {one.parents for one in list_readings(partly, "a", "b")} == {frozenset(), frozenset("c")}


def test_sets_that_do_not_identify_are_refused_with_a_reason() -> None:
    chain = Cpdag(("x", "m", "y", "z"), frozenset({("x", "m"), ("m", "y"), ("z", "x"), ("z", "y")}), frozenset())
    assert explain_refusal(chain, "x", "y", frozenset("z")) is None
    assert "hides the effect" in str(explain_refusal(chain, "x", "y", frozenset({"m", "z"})))
    assert "z would close it" in str(explain_refusal(chain, "x", "y", frozenset()))
    assert "the cause or the effect itself" in str(explain_refusal(chain, "x", "y", frozenset("x")))
    assert "no column" in str(explain_refusal(chain, "x", "y", frozenset("q")))


def test_impossible_graphs_and_pairs_are_refused() -> None:
    circle = Cpdag(("a", "b", "c"), frozenset({("a", "b"), ("b", "c"), ("c", "a")}), frozenset())
    with pytest.raises(GraphError, match="circle"):
        list_readings(circle, "a", "b")
    names = ("a", "b", "c", "d")
    square = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    with pytest.raises(GraphError, match="no DAG"):
        list_readings(Cpdag(names, frozenset(), frozenset(map(frozenset, square))), "a", "b")
    with pytest.raises(MethodError, match="both 'a'"):
        list_readings(Cpdag.empty(names), "a", "a")
    with pytest.raises(DagveilError, match="no column is called 'q'"):
        list_readings(Cpdag.empty(names), "a", "q")
    many = tuple(f"c{i}" for i in range(12))
    with pytest.raises(MethodError, match="more than 256 parent sets"):
        list_readings(Cpdag.complete(many), "c0", "c1")
