from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag, nearest_extension


def test_cpdag_of_all_dags_against_their_classes(all_classes: dict[Cpdag, list[Dag]]) -> None:
    assert len(all_classes) == 185
    for cpdag, members in all_classes.items():
        for dag in members:
            assert dag.cpdag() == cpdag


def test_extension_lands_in_the_same_class(all_classes: dict[Cpdag, list[Dag]]) -> None:
    for cpdag, members in all_classes.items():
        assert cpdag.extension() in members


def test_is_valid_on_all_partial_graphs(
    all_partial_graphs: tuple[Cpdag, ...], all_classes: dict[Cpdag, list[Dag]]
) -> None:
    for graph in all_partial_graphs:
        assert graph.is_valid() == (graph in all_classes)


def test_extension_on_all_partial_graphs(all_extensions: dict[Cpdag, list[Dag]]) -> None:
    assert {bool(dags) for dags in all_extensions.values()} == {True, False}
    for graph, dags in all_extensions.items():
        assert graph.is_extendable() == bool(dags)
        found = graph.extension()
        assert (found in dags) if dags else (found is None)


def test_nearest_extension_is_always_a_dag(all_extensions: dict[Cpdag, list[Dag]]) -> None:
    for graph, dags in all_extensions.items():
        try:
            Dag(graph.nodes, graph.directed)
        except GraphError:
            with pytest.raises(GraphError, match="cycle"):
                nearest_extension(graph.nodes, graph.directed, graph.undirected)
            continue
        dag = Dag(graph.nodes, nearest_extension(graph.nodes, graph.directed, graph.undirected))
        assert dag.skeleton() == graph.skeleton()
        assert graph.directed <= dag.edges
        assert not dags or dag in dags


@pytest.mark.parametrize("seed", range(20))
def test_larger_graphs_come_back_from_their_extension(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = tuple(f"x{position}" for position in range(25))
    order = [nodes[position] for position in rng.permutation(len(nodes))]
    dag = Dag(nodes, frozenset(pair for pair in combinations(order, 2) if rng.random() < 0.15))
    cpdag = dag.cpdag()
    other = cpdag.extension()
    assert cpdag.is_valid()
    assert cpdag.directed <= dag.edges
    assert other is not None
    assert (other.skeleton(), other.colliders()) == (dag.skeleton(), dag.colliders())


def test_adjacent_and_skeleton() -> None:
    graph = Cpdag(("a", "b", "c"), frozenset({("a", "b")}), frozenset({frozenset("bc")}))
    assert graph.adjacent("b") == {"a", "c"}
    assert graph.adjacent("a") == {"b"}
    assert graph.skeleton() == {frozenset("ab"), frozenset("bc")}
    with pytest.raises(GraphError, match="'z'"):
        graph.adjacent("z")


def test_empty_and_complete() -> None:
    names = ("a", "b", "c", "d")
    assert Cpdag.empty(names).is_valid()
    assert Cpdag.complete(names).is_valid()
    assert len(Cpdag.complete(names).undirected) == 6


@pytest.mark.parametrize(
    ("directed", "undirected", "word"),
    [
        ({("a", "b"), ("b", "a")}, set(), "reverse"),
        ({("a", "b")}, {frozenset("ab")}, "both directed and undirected"),
        (set(), {frozenset("a")}, "2 different nodes, not 1"),
        (set(), {frozenset("az")}, "unknown node 'z'"),
    ],
)
def test_refuses_edges_that_cannot_be(
    directed: frozenset[tuple[str, str]], undirected: frozenset[frozenset[str]], word: str
) -> None:
    with pytest.raises(GraphError, match=word):
        Cpdag(("a", "b"), directed, undirected)
