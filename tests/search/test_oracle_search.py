"""Searches fed by d-separation: the truth must come out, for all 543 DAGs of four nodes and for larger ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.evidence.questions import Questions
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.arrows import (
    orient_by_evidence,
    orient_by_separating_sets,
    weigh_colliders,
)
from dagveil.search.constraint.skeleton import RemovalOrder, Skeleton, SkeletonSettings, find_skeleton

SETTINGS = SkeletonSettings()
THOROUGH = SkeletonSettings(largest_order=4, sets_per_edge=100)
NOTHING = Knowledge.none()


def by_names(skeleton: Skeleton, columns: tuple[str, ...]) -> frozenset[frozenset[str]]:
    return frozenset(frozenset((columns[x], columns[y])) for x, y in skeleton.edges())


@st.composite
def dags(draw: st.DrawFn, fewest: int = 5, most: int = 6) -> Dag:
    """Random DAGs in which no node has more than three neighbours: order 2 or 3 separates everything there."""
    d = draw(st.integers(fewest, most))
    nodes = tuple("abcdef"[:d])
    order = draw(st.permutations(nodes))
    degree = dict.fromkeys(nodes, 0)
    edges = set()
    for tail, head in combinations(order, 2):
        if degree[tail] < 3 and degree[head] < 3 and draw(st.booleans()):
            edges.add((tail, head))
            degree[tail] += 1
            degree[head] += 1
    return Dag(nodes, frozenset(edges))


@pytest.mark.parametrize("order", RemovalOrder)
def test_all_skeletons_of_four_nodes(all_dags: tuple[Dag, ...], oracle: type, order: RemovalOrder) -> None:
    assert len(all_dags) == 543
    chosen = SkeletonSettings(removal_order=order)
    wrong = [
        dag for dag in all_dags if by_names(find_skeleton(oracle(dag), chosen, NOTHING), dag.nodes) != dag.skeleton()
    ]
    assert wrong == []


def test_separating_sets_separate(all_dags: tuple[Dag, ...], oracle: type) -> None:
    for dag in all_dags:
        evidence = oracle(dag)
        skeleton = find_skeleton(evidence, SETTINGS, NOTHING)
        gone = {(x, y) for x, y in combinations(range(4), 2) if not skeleton.adjacency[x, y]}
        assert set(skeleton.separators) == gone
        for (x, y), given_set in skeleton.separators.items():
            pair = frozenset((dag.nodes[x], dag.nodes[y]))
            assert (pair, frozenset(dag.nodes[z] for z in given_set)) in evidence.tested
            assert skeleton.p_values[x, y] == 1.0


def test_all_cpdags_of_four_nodes_by_evidence(all_dags: tuple[Dag, ...], oracle: type) -> None:
    wrong = []
    for dag in all_dags:
        evidence = oracle(dag)
        skeleton = find_skeleton(evidence, SETTINGS, NOTHING)
        if orient_by_evidence(evidence, skeleton, NOTHING) != dag.cpdag():
            wrong.append(dag)
    assert wrong == []


def test_all_cpdags_of_four_nodes_by_separating_sets(all_dags: tuple[Dag, ...], oracle: type) -> None:
    wrong = []
    for dag in all_dags:
        skeleton = find_skeleton(oracle(dag), SETTINGS, NOTHING)
        if orient_by_separating_sets(dag.nodes, skeleton, NOTHING) != dag.cpdag():
            wrong.append(dag)
    assert wrong == []


@settings(max_examples=60, deadline=None)
@given(dag=dags(), data=st.data())
def test_skeletons_of_larger_graphs_in_any_order_of_columns(dag: Dag, data: st.DataObject, oracle: type) -> None:
    columns = tuple(data.draw(st.permutations(dag.nodes)))
    skeleton = find_skeleton(oracle(dag, columns), THOROUGH, NOTHING)
    assert by_names(skeleton, columns) == dag.skeleton()


def random_dags(count: int, seed: int) -> list[Dag]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        order = rng.permutation(list("abcdef"))
        arcs = combinations([str(node) for node in order], 2)
        found.append(Dag(tuple("abcdef"), frozenset(arc for arc in arcs if rng.random() < 0.4)))
    return found


def test_arrows_by_evidence_on_larger_graphs(oracle: type) -> None:
    """The sets that weigh a triple are small, so a sign may be wrong; where all are right, so is the graph."""
    exact = spoken = 0
    for dag in random_dags(120, 1):
        evidence = oracle(dag)
        skeleton = find_skeleton(evidence, THOROUGH, NOTHING)
        weights = weigh_colliders(evidence, skeleton)
        colliders = dag.colliders()
        names = dag.nodes
        if all(
            weight != 0 and (weight > 0) == ((names[x], names[z], names[y]) in colliders)
            for (x, z, y), weight in weights.items()
        ):
            spoken += 1
            exact += orient_by_evidence(evidence, skeleton, NOTHING) == dag.cpdag()
    assert spoken > 80
    assert exact >= 0.98 * spoken


def test_the_climb_reaches_the_best_orientation(oracle: type) -> None:
    dag = Dag(
        tuple("abcde"), frozenset({("a", "c"), ("a", "d"), ("c", "b"), ("c", "d"), ("d", "b"), ("e", "a"), ("e", "d")})
    )
    evidence = oracle(dag)
    skeleton = find_skeleton(evidence, THOROUGH, NOTHING)
    assert orient_by_evidence(evidence, skeleton, NOTHING) == dag.cpdag()


NEEDED_TOGETHER = [
    # three parents of f: each of its three colliders alone leaves no DAG without the other two
    Dag(tuple("abcdf"), frozenset({("a", "f"), ("c", "f"), ("d", "f"), ("a", "b"), ("b", "c"), ("b", "d")})),
    # a and b have three common children: the collider at c is possible only after the one at e
    Dag(
        tuple("abcde"), frozenset({("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "d"), ("a", "e"), ("b", "e")})
    ),
]


@pytest.mark.parametrize("dag", NEEDED_TOGETHER, ids=["three parents", "three children"])
def test_colliders_that_need_each_other_are_all_found(dag: Dag, oracle: type) -> None:
    skeleton = find_skeleton(oracle(dag), THOROUGH, NOTHING)
    assert orient_by_separating_sets(dag.nodes, skeleton, NOTHING) == dag.cpdag()


def test_true_knowledge_leaves_the_truth_standing(all_dags: tuple[Dag, ...], oracle: type) -> None:
    """Tiers and arrows taken from the DAG itself: all that they direct is right, and nothing else changes."""
    rng = np.random.default_rng(3)
    for dag in all_dags[::3]:
        order = dag.order()
        cut = int(rng.integers(0, 5))
        edges = sorted(dag.edges)
        required = frozenset(edges[k] for k in rng.integers(0, len(edges), 1)) if edges else frozenset()
        knowledge = Knowledge(tuple(tier for tier in (order[:cut], order[cut:]) if tier), frozenset(), required)
        evidence = oracle(dag)
        skeleton = find_skeleton(evidence, SETTINGS, knowledge)
        assert by_names(skeleton, dag.nodes) == dag.skeleton()
        want = knowledge.orient(dag.cpdag())
        assert want.directed <= dag.edges
        assert orient_by_evidence(evidence, skeleton, knowledge) == want


def test_excluded_pairs_are_never_tested(all_dags: tuple[Dag, ...], oracle: type) -> None:
    excluded = frozenset({("a", "c"), ("c", "a"), ("b", "d"), ("d", "b")})
    knowledge = Knowledge(forbidden=excluded)
    for dag in all_dags[::5]:
        evidence = oracle(dag)
        skeleton = find_skeleton(evidence, SETTINGS, knowledge)
        asked = {pair for pair, _ in evidence.tested}
        assert not asked & {frozenset("ac"), frozenset("bd")}
        assert not by_names(skeleton, dag.nodes) & {frozenset("ac"), frozenset("bd")}


def test_required_pairs_are_kept_without_asking(oracle: type) -> None:
    dag = Dag(("a", "b", "c"), frozenset({("b", "c")}))
    evidence = oracle(dag)
    knowledge = Knowledge(required=frozenset({("a", "b")}))
    skeleton = find_skeleton(evidence, SETTINGS, knowledge)
    assert by_names(skeleton, dag.nodes) == {frozenset("ab"), frozenset("bc")}
    assert frozenset("ab") not in {pair for pair, _ in evidence.tested}


def test_a_pair_excluded_by_knowledge_is_no_collider(oracle: type) -> None:
    """x → z → y with x − y excluded: nothing was asked about x and y, so nothing speaks for a collider at z."""
    dag = Dag(("x", "y", "z"), frozenset({("x", "z"), ("z", "y")}))
    knowledge = Knowledge(forbidden=frozenset({("x", "y"), ("y", "x")}))
    skeleton = find_skeleton(oracle(dag), SETTINGS, knowledge)
    assert orient_by_separating_sets(dag.nodes, skeleton, knowledge) == dag.cpdag()


def test_a_pair_without_evidence_is_no_collider(oracle: type) -> None:
    """x → z → y where the table of x and y was never released: that is no sign of their independence."""

    class Partial(oracle):  # type: ignore[misc, valid-type]
        def answers(self, questions: Questions) -> np.ndarray:
            return ~((questions.x == 0) & (questions.y == 1))

    dag = Dag(("x", "y", "z"), frozenset({("x", "z"), ("z", "y")}))
    evidence = Partial(dag)
    skeleton = find_skeleton(evidence, SETTINGS, NOTHING)
    assert orient_by_evidence(evidence, skeleton, NOTHING) == dag.cpdag()
    assert orient_by_separating_sets(dag.nodes, skeleton, NOTHING) == dag.cpdag()


def test_an_excluded_pair_may_still_speak_about_arrows(oracle: type) -> None:
    dag = Dag(("x", "y", "z"), frozenset({("x", "z"), ("z", "y")}))
    knowledge = Knowledge(forbidden=frozenset({("x", "y"), ("y", "x")}))
    evidence = oracle(dag)
    skeleton = find_skeleton(evidence, SETTINGS, knowledge)
    assert orient_by_evidence(evidence, skeleton, knowledge) == dag.cpdag()


def test_one_and_two_columns(oracle: type) -> None:
    lone = Dag(("a",), frozenset())
    skeleton = find_skeleton(oracle(lone), SETTINGS, NOTHING)
    assert skeleton.adjacency.shape == (1, 1)
    assert orient_by_evidence(oracle(lone), skeleton, NOTHING) == Cpdag.empty(("a",))
    pair = Dag(("a", "b"), frozenset({("a", "b")}))
    skeleton = find_skeleton(oracle(pair), SETTINGS, NOTHING)
    assert np.array_equal(skeleton.adjacency, [[False, True], [True, False]])
