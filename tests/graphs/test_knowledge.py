from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dagveil.errors import KnowledgeError
from dagveil.graphs.cpdag import Cpdag, Dag, close
from dagveil.graphs.knowledge import Knowledge

NODES = ("a", "b", "c", "d")
ARCS = st.frozensets(st.sampled_from(sorted(permutations(NODES, 2))), max_size=4)
TIERS = st.dictionaries(st.sampled_from(NODES), st.integers(0, 2)).map(
    lambda tier_of: tuple(tuple(node for node in NODES if tier_of.get(node) == tier) for tier in range(3))
)
KNOWLEDGE = st.builds(Knowledge, tiers=TIERS, forbidden=ARCS, required=ARCS)


def obeys(dag: Dag, knowledge: Knowledge) -> bool:
    """The slow twin: read the three lists one by one."""
    tier_of = {node: number for number, tier in enumerate(knowledge.tiers) for node in tier}
    for cause, effect in dag.edges:
        if (cause, effect) in knowledge.forbidden:
            return False
        if cause in tier_of and effect in tier_of and tier_of[cause] > tier_of[effect]:
            return False
    return knowledge.required <= dag.edges


def assume_sound(knowledge: Knowledge) -> None:
    try:
        knowledge.check(NODES)
    except KnowledgeError:
        assume(False)


def extensions(graph: Cpdag, all_dags: tuple[Dag, ...]) -> list[Dag]:
    target = graph.extension()
    assert target is not None
    return [
        dag
        for dag in all_dags
        if dag.skeleton() == graph.skeleton() and graph.directed <= dag.edges and dag.colliders() == target.colliders()
    ]


def test_allows_excludes_requires() -> None:
    knowledge = Knowledge(
        tiers=(("a",), ("b", "c")), forbidden=frozenset({("a", "b"), ("b", "c")}), required=frozenset({("a", "d")})
    )
    knowledge.check(NODES)
    assert not knowledge.allows("b", "a")  # against the tiers
    assert knowledge.excludes("a", "b")
    assert knowledge.excludes("b", "a")
    assert knowledge.allows("c", "b")
    assert not knowledge.allows("b", "c")
    assert not knowledge.excludes("b", "c")
    assert knowledge.allows("a", "d")
    assert not knowledge.allows("d", "a")  # the reverse is required
    assert knowledge.requires("d", "a")
    assert not knowledge.requires("a", "c")
    assert knowledge.allows("d", "b")  # d is in no tier
    assert knowledge.allows("b", "d")


def test_no_knowledge_allows_everything() -> None:
    knowledge = Knowledge.none()
    knowledge.check(NODES)
    assert all(knowledge.allows(x, y) and not knowledge.excludes(x, y) for x, y in permutations(NODES, 2))


@pytest.mark.parametrize(
    ("knowledge", "words"),
    [
        (Knowledge(tiers=(("a", "z"),)), "1 unknown columns: z"),
        (Knowledge(forbidden=frozenset({("a", "z")})), "unknown columns: z"),
        (Knowledge(required=frozenset({("z", "a")})), "unknown columns: z"),
        (Knowledge(tiers=(("a",), ("b", "a"))), "more than once in the tiers: a"),
        (Knowledge(tiers=(("a", "a"),)), "more than once"),
        (Knowledge(forbidden=frozenset({("a", "a")})), "itself"),
        (Knowledge(forbidden=frozenset({("a", "b")}), required=frozenset({("a", "b")})), "both required and forbidden"),
        (Knowledge(tiers=(("a",), ("b",)), required=frozenset({("b", "a")})), "'b' is in tier 2 and 'a' .* tier 1"),
        (Knowledge(required=frozenset({("a", "b"), ("b", "c"), ("c", "a")})), "3 required edges run in a circle"),
        (Knowledge(required=frozenset({("a", "b"), ("b", "a")})), "circle"),
        (Knowledge(forbidden=frozenset({("b", "a"), ("c", "b"), ("a", "c")})), "can run in a circle"),
        (Knowledge(tiers=(("a",), ("b",)), forbidden=frozenset({("d", "b"), ("a", "d")})), "can run in a circle"),
    ],
)
def test_contradictions_are_refused(knowledge: Knowledge, words: str) -> None:
    with pytest.raises(KnowledgeError, match=words):
        knowledge.check(NODES)
    with pytest.raises(KnowledgeError):
        knowledge.orient(Cpdag.complete(NODES))


def test_a_circle_that_is_broken_by_an_excluded_pair_is_no_contradiction() -> None:
    Knowledge(forbidden=frozenset({("b", "a"), ("c", "b"), ("a", "c"), ("c", "a")})).check(NODES)


def test_no_knowledge_changes_no_valid_cpdag(all_classes: dict[Cpdag, list[Dag]]) -> None:
    for cpdag in all_classes:
        assert Knowledge.none().orient(cpdag) == cpdag


def test_no_knowledge_still_makes_any_graph_valid(all_partial_graphs: tuple[Cpdag, ...]) -> None:
    for graph in all_partial_graphs:
        repaired = Knowledge.none().orient(graph)
        assert repaired.is_valid()
        assert repaired.skeleton() == graph.skeleton()


@settings(max_examples=150, deadline=None)
@given(knowledge=KNOWLEDGE, data=st.data())
def test_consistent_knowledge_against_all_members(
    knowledge: Knowledge, data: st.DataObject, all_classes: dict[Cpdag, list[Dag]]
) -> None:
    """When members of the class obey the knowledge, the result is exactly what these members share."""
    assume_sound(knowledge)
    fitting = [(cpdag, [dag for dag in members if obeys(dag, knowledge)]) for cpdag, members in all_classes.items()]
    cpdag, obedient = data.draw(st.sampled_from([(cpdag, dags) for cpdag, dags in fitting if dags]))
    found = knowledge.orient(cpdag)
    assert found.skeleton() == cpdag.skeleton()
    assert found.directed == frozenset.intersection(*(dag.edges for dag in obedient))


@settings(max_examples=300, deadline=None)
@given(knowledge=KNOWLEDGE, data=st.data())
def test_any_graph_becomes_one_that_obeys(
    knowledge: Knowledge, data: st.DataObject, all_partial_graphs: tuple[Cpdag, ...], all_dags: tuple[Dag, ...]
) -> None:
    assume_sound(knowledge)
    graph = data.draw(st.sampled_from(all_partial_graphs))
    found = knowledge.orient(graph)
    expected = {pair for pair in graph.skeleton() if not knowledge.excludes(*pair)}
    assert found.skeleton() == expected | {frozenset(arc) for arc in knowledge.required}
    assert found.is_extendable()
    assert close(found.nodes, found.directed, found.undirected) == (found.directed, found.undirected)
    members = extensions(found, all_dags)
    assert members
    assert all(obeys(dag, knowledge) for dag in members)
    assert knowledge.orient(found) == found


def test_knowledge_overthrows_a_collider_and_what_rested_on_it() -> None:
    collider = Cpdag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}), frozenset())
    found = Knowledge(forbidden=frozenset({("a", "b")})).orient(collider)
    assert found.directed == {("b", "a")}
    assert found.undirected == {frozenset("bc")}


def test_tiers_can_make_a_collider_that_data_denied() -> None:
    chain = Cpdag(("a", "b", "c"), frozenset(), frozenset({frozenset("ab"), frozenset("bc")}))
    found = Knowledge(tiers=(("a", "c"), ("b",))).orient(chain)
    assert found.directed == {("a", "b"), ("c", "b")}


def test_excluded_edges_go_and_required_edges_come() -> None:
    knowledge = Knowledge(forbidden=frozenset({("a", "b"), ("b", "a")}), required=frozenset({("c", "d")}))
    found = knowledge.orient(Cpdag(NODES, frozenset(), frozenset({frozenset("ab")})))
    assert found == Cpdag(NODES, frozenset({("c", "d")}), frozenset())
