from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Dag
from separation import is_separated


def iterate_paths(dag: Dag, path: tuple[str, ...], end: str) -> Iterator[tuple[str, ...]]:
    if path[-1] == end:
        yield path
        return
    for node in dag.parents(path[-1]) | dag.children(path[-1]):
        if node not in path:
            yield from iterate_paths(dag, (*path, node), end)


def find_descendants(dag: Dag, node: str) -> set[str]:
    return {node}.union(*(find_descendants(dag, child) for child in dag.children(node)))


def is_open(dag: Dag, path: tuple[str, ...], given: frozenset[str]) -> bool:
    for before, node, after in zip(path, path[1:], path[2:], strict=False):
        if {before, after} <= dag.parents(node):
            if not find_descendants(dag, node) & given:
                return False
        elif node in given:
            return False
    return True


def test_against_the_enumeration_of_paths(all_dags: tuple[Dag, ...]) -> None:
    answers = set()
    for dag in all_dags:
        for x, y in combinations(dag.nodes, 2):
            paths = list(iterate_paths(dag, (x,), y))
            others = [node for node in dag.nodes if node not in (x, y)]
            for given in (frozenset(s) for size in range(3) for s in combinations(others, size)):
                slow = not any(is_open(dag, path, given) for path in paths)
                assert is_separated(dag, x, y, given) == is_separated(dag, y, x, given) == slow
                answers.add(slow)
    assert answers == {True, False}


def test_a_descendant_opens_a_collider() -> None:
    dag = Dag(("a", "b", "m", "z", "w"), frozenset({("a", "m"), ("b", "m"), ("m", "z"), ("z", "w")}))
    assert is_separated(dag, "a", "b")
    assert not is_separated(dag, "a", "b", {"w"})


@pytest.mark.parametrize(("x", "y", "given"), [("a", "a", ()), ("a", "b", ("a",)), ("a", "z", ()), ("a", "b", ("z",))])
def test_refuses_questions_without_sense(x: str, y: str, given: tuple[str, ...]) -> None:
    with pytest.raises(GraphError):
        is_separated(Dag(("a", "b"), frozenset()), x, y, given)
