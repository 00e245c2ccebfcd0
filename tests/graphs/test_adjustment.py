"""Adjustment in PAGs against brute force: all small DAGs with hidden nodes that have the PAG."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest

from dagveil.errors import GraphError
from dagveil.graphs.adjustment import find_adjustment
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.pag import Edge, Mark, MixedGraph, find_class
from dagveil_bench.hidden_causes import project_dag
from separation import is_separated

SEEN = ("a", "b", "c", "d")


def descendants(dag: Dag, node: str) -> set[str]:
    found = {node}
    for child in dag.children(node):
        found |= descendants(dag, child)
    return found


def adjusts(dag: Dag, x: str, y: str, given: frozenset[str]) -> bool:
    """Tell whether a set adjusts in a DAG: nothing forbidden in it, and no path left but the causal ones."""
    if y not in descendants(dag, x):  # a zero effect is found if nothing joins the two
        return is_separated(dag, x, y, given)
    causal = {node for node in descendants(dag, x) - {x} if y in descendants(dag, node)}
    forbidden = set().union(*(descendants(dag, node) for node in causal)) | {x}
    if given & forbidden:
        return False
    cut = Dag(dag.nodes, frozenset(arc for arc in dag.edges if not (arc[0] == x and arc[1] in causal)))
    return is_separated(cut, x, y, given)


@pytest.fixture(scope="module")
def members() -> dict[MixedGraph, list[Dag]]:
    """DAGs over four seen nodes and up to two hidden common causes of pairs, by their PAG."""
    found: dict[MixedGraph, list[Dag]] = defaultdict(list)
    pairs = list(combinations(SEEN, 2))
    rng = np.random.default_rng(0)
    for _ in range(6000):
        order = rng.permutation(4)
        arcs = {(SEEN[order[i]], SEEN[order[j]]) for i, j in combinations(range(4), 2) if rng.random() < 0.45}
        hidden = ("h", "k")[: rng.integers(3)]
        for name in hidden:
            first, second = pairs[rng.integers(len(pairs))]
            arcs |= {(name, first), (name, second)}
        dag = Dag((*SEEN, *hidden), frozenset(arcs))
        found[find_class(project_dag(dag, hidden))].append(dag)
    return {pag: list(dict.fromkeys(dags)) for pag, dags in found.items()}


def test_a_set_that_is_given_adjusts_in_every_member_and_where_none_is_none_does(
    members: dict[MixedGraph, list[Dag]],
) -> None:
    given = refused = zero = 0
    for pag, dags in members.items():
        for x in SEEN:
            for y in SEEN:
                if x == y:
                    continue
                answer = find_adjustment(pag, x, y)
                if answer.zero:
                    zero += 1
                    assert all(y not in descendants(dag, x) for dag in dags)
                elif answer.columns is not None:
                    given += 1
                    assert all(adjusts(dag, x, y, answer.columns) for dag in dags), (pag, x, y)
                elif len(dags) >= 20:  # enough members to hold one against each set
                    refused += 1
                    rest = [name for name in SEEN if name not in (x, y)]
                    sets = [frozenset(s) for size in range(3) for s in combinations(rest, size)]
                    assert not any(all(adjusts(dag, x, y, s) for dag in dags) for s in sets), (pag, x, y, answer)
    assert min(given, refused, zero) > 20


def test_the_reason_names_the_edge_in_doubt() -> None:
    pag = MixedGraph(("x", "y"), frozenset({Edge("x", "y", Mark.CIRCLE, Mark.ARROW)}))
    assert "does not tell whether x causes y" in find_adjustment(pag, "x", "y").reason
    invisible = MixedGraph(("x", "y"), frozenset({Edge("x", "y", Mark.TAIL, Mark.ARROW)}))
    assert "x and y may share an unmeasured cause" in find_adjustment(invisible, "x", "y").reason
    assert find_adjustment(pag, "y", "x").zero


def test_refuses_unknown_and_equal_columns() -> None:
    pag = MixedGraph(("x", "y"), frozenset())
    with pytest.raises(GraphError, match="two different columns"):
        find_adjustment(pag, "x", "x")
    with pytest.raises(GraphError, match="no node is called 'z'"):
        find_adjustment(pag, "x", "z")
