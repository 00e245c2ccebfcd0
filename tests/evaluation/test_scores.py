from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagveil.errors import GraphError
from dagveil.evaluation.comparison import (
    arrow_precision,
    arrow_recall,
    cpdag_shd,
    marked_edge_f1,
    rate_skeleton,
    skeleton_f1,
)
from dagveil.graphs.cpdag import Cpdag, Dag

NODES = ("a", "b", "c", "d")
EMPTY, FULL = Cpdag.empty(NODES), Cpdag.complete(NODES)


def make_graph(kinds: tuple[str, ...]) -> Cpdag:
    pairs = list(zip(combinations(NODES, 2), kinds, strict=True))
    directed = {pair if kind == ">" else pair[::-1] for pair, kind in pairs if kind in "<>"}
    return Cpdag(NODES, frozenset(directed), frozenset(frozenset(pair) for pair, kind in pairs if kind == "-"))


KINDS = st.tuples(*[st.sampled_from(" -<>")] * 6)


@given(found=KINDS, truth=KINDS)
def test_every_score_against_the_marks_pair_by_pair(found: tuple[str, ...], truth: tuple[str, ...]) -> None:
    """The slow twin reads one mark for each pair and never builds a set of edges."""
    graph, real = make_graph(found), make_graph(truth)
    both = list(zip(found, truth, strict=True))
    hits = sum(f != " " and t != " " for f, t in both)
    n_found, n_true = sum(f != " " for f in found), sum(t != " " for t in truth)
    rates = rate_skeleton(graph, real)
    assert (rates.hits, rates.extra, rates.missed) == (hits, n_found - hits, n_true - hits)
    assert rates.absent == sum(f == t == " " for f, t in both)
    assert rates.hits + rates.extra + rates.missed + rates.absent == 6
    if n_found:
        assert rates.precision == hits / n_found
    if n_true:
        assert rates.recall == hits / n_true
    if n_true < 6:
        assert rates.fpr == (n_found - hits) / (6 - n_true)
    if n_found < 6:
        assert rates.omission == (n_true - hits) / (6 - n_found)
    if hits:
        precision, recall = rates.precision, rates.recall
        assert skeleton_f1(graph, real) == pytest.approx(2 * precision * recall / (precision + recall))

    assert cpdag_shd(graph, real) == cpdag_shd(real, graph) == sum(f != t for f, t in both)
    same = sum(f == t != " " for f, t in both)
    if n_found + n_true:
        assert marked_edge_f1(graph, real) == pytest.approx(2 * same / (n_found + n_true))
    arrows = sum(f == t and f in "<>" for f, t in both)
    if any(f in "<>" for f in found):
        assert arrow_precision(graph, real) == arrows / sum(f in "<>" for f in found)
    if any(t in "<>" for t in truth):
        assert arrow_recall(graph, real) == arrows / sum(t in "<>" for t in truth)


def test_empty_graphs_agree_perfectly() -> None:
    rates = rate_skeleton(EMPTY, EMPTY)
    assert (rates.precision, rates.recall, rates.f1, rates.fpr) == (1.0, 1.0, 1.0, 0.0)
    assert marked_edge_f1(EMPTY, EMPTY) == arrow_precision(EMPTY, EMPTY) == arrow_recall(EMPTY, EMPTY) == 1.0
    assert cpdag_shd(EMPTY, EMPTY) == 0


def test_nothing_found_and_everything_found() -> None:
    nothing, everything = rate_skeleton(EMPTY, FULL), rate_skeleton(FULL, EMPTY)
    assert (nothing.precision, nothing.recall, nothing.f1, nothing.fpr) == (1.0, 0.0, 0.0, 0.0)
    assert (everything.precision, everything.recall, everything.f1, everything.fpr) == (0.0, 1.0, 0.0, 1.0)
    assert marked_edge_f1(EMPTY, FULL) == marked_edge_f1(FULL, EMPTY) == 0.0
    assert cpdag_shd(EMPTY, FULL) == 6


@pytest.mark.parametrize(("found", "truth"), list(product("-<>", repeat=2)))
def test_one_edge_of_each_kind(found: str, truth: str) -> None:
    graph, real = make_graph((found, *" " * 5)), make_graph((truth, *" " * 5))
    assert skeleton_f1(graph, real) == 1.0
    assert marked_edge_f1(graph, real) == float(found == truth)
    assert cpdag_shd(graph, real) == int(found != truth)


def test_a_dag_can_be_compared_and_the_order_of_nodes_is_nothing() -> None:
    dag = Dag(NODES[::-1], frozenset({("a", "b")}))
    assert skeleton_f1(dag, make_graph(("-", *" " * 5))) == 1.0
    assert cpdag_shd(dag.cpdag(), make_graph(("-", *" " * 5))) == 0


@pytest.mark.parametrize("score", [skeleton_f1, marked_edge_f1, arrow_precision, arrow_recall, cpdag_shd])
def test_refuses_graphs_over_other_nodes(score: object) -> None:
    with pytest.raises(GraphError, match="2 nodes are in one graph only: d, z"):
        score(EMPTY, Cpdag.empty(("a", "b", "c", "z")))  # type: ignore[operator]
