from __future__ import annotations

import msgspec
import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Dag


def test_four_nodes_have_543_dags(all_dags: tuple[Dag, ...]) -> None:
    assert len(set(all_dags)) == 543


def test_order_puts_parents_first(all_dags: tuple[Dag, ...]) -> None:
    for dag in all_dags:
        place = {node: position for position, node in enumerate(dag.order())}
        assert set(place) == set(dag.nodes)
        assert all(place[tail] < place[head] for tail, head in dag.edges)


def test_parents_children_and_colliders_against_the_edges(all_dags: tuple[Dag, ...]) -> None:
    for dag in all_dags:
        for node in dag.nodes:
            assert dag.parents(node) == {tail for tail, head in dag.edges if head == node}
            assert dag.children(node) == {head for tail, head in dag.edges if tail == node}
        slow = {
            (a, m, b)
            for a in dag.nodes
            for m in dag.nodes
            for b in dag.nodes
            if a < b and {(a, m), (b, m)} <= dag.edges and not {(a, b), (b, a)} & dag.edges
        }
        assert dag.colliders() == slow


@pytest.mark.parametrize(
    ("nodes", "edges", "word"),
    [
        (("a", "b", "c"), {("a", "b"), ("b", "c"), ("c", "a")}, "cycle"),
        (("a", "b"), {("a", "b"), ("b", "a")}, "reverse"),
        (("a", "b"), {("a", "a")}, "itself"),
        (("a", "b"), {("a", "z")}, "unknown node 'z'"),
        (("a", "b", "a"), set(), "more than once"),
        ((1, 2), set(), "strings"),
        ("ab", set(), "single string"),
        (("a", "b"), {"ab"}, "pair"),
        (("a", "b"), {("a", "b", "c")}, "pair"),
    ],
)
def test_refuses_what_is_not_a_dag(nodes: tuple[str, ...], edges: frozenset[tuple[str, str]], word: str) -> None:
    with pytest.raises(GraphError, match=word):
        Dag(nodes, edges)


def test_unknown_node_is_refused() -> None:
    with pytest.raises(GraphError, match="no node is called 'z'"):
        Dag(("a",), frozenset()).parents("z")


def test_is_frozen_hashable_and_takes_any_collection() -> None:
    dag = Dag(["a", "b"], [("a", "b")])  # type: ignore[arg-type]
    assert dag == Dag(("a", "b"), frozenset({("a", "b")}))
    assert hash(dag) == hash(Dag(("a", "b"), frozenset({("a", "b")})))
    with pytest.raises(AttributeError):
        dag.nodes = ()  # type: ignore[misc]


def test_survives_json_and_json_cannot_smuggle_a_cycle_in() -> None:
    dag = Dag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}))
    text = msgspec.json.encode(dag)
    assert msgspec.json.decode(text, type=Dag) == dag
    assert set(msgspec.json.decode(text)) == {"nodes", "edges"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"nodes": ["a", "b"], "edges": [["a", "b"], ["b", "a"]]}', type=Dag)


def test_graphs_without_edges_or_nodes() -> None:
    assert Dag((), frozenset()).order() == ()
    assert Dag(("a",), frozenset()).cpdag().skeleton() == frozenset()
