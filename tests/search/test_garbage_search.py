"""Searches fed by nonsense: the answer may be wrong, it must still be a graph that means something."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import KnowledgeError
from dagveil.evidence.questions import Answers, Questions
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.confidence import Shares, redraw_graphs
from dagveil.search.constraint.arrows import orient_by_evidence, orient_by_separating_sets
from dagveil.search.constraint.skeleton import RemovalOrder, Skeleton, SkeletonSettings, find_skeleton

NOTHING = Knowledge.none()
NAMES = ("u", "v", "w", "x", "y", "z")


class Garbage:
    """Random p-values that depend on the names in a question and on nothing else; some questions have no answer."""

    def __init__(self, columns: tuple[str, ...], seed: int, dependent: float = 0.6, known: float = 1.0) -> None:
        self._columns = columns
        self.seed = seed
        self.dependent = dependent
        self.known = known

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    def _draw(self, questions: Questions, purpose: int) -> np.ndarray:
        values = []
        for x, y, given_set in zip(questions.x, questions.y, questions.given, strict=True):
            pair = sorted(NAMES.index(self._columns[k]) for k in (x, y))
            rest = sorted(NAMES.index(self._columns[k]) for k in given_set)
            values.append(np.random.default_rng([self.seed, purpose, *pair, 99, *rest]).random())
        return np.array(values)

    def association(self) -> np.ndarray:
        d = len(self._columns)
        x, y = np.triu_indices(d, 1)
        matrix = np.zeros((d, d))
        matrix[x, y] = matrix[y, x] = self._draw(Questions(x, y, np.empty((len(x), 0), dtype=np.intp)), 6)
        return matrix

    def strength(self, questions: Questions) -> np.ndarray:
        return self._draw(questions, 1)

    def test(self, questions: Questions) -> Answers:
        draw = self._draw(questions, 2)
        p_value = np.where(draw < self.dependent, draw * 1e-4, draw)
        return Answers(-2 * np.log(p_value), np.ones(len(questions)), p_value)

    def answers(self, questions: Questions) -> np.ndarray:
        return self._draw(questions, 3) < self.known

    def joint(self, questions: Questions) -> np.ndarray:
        return self._draw(questions, 4) < 0.5

    def odds(self, questions: Questions) -> np.ndarray:
        return np.full(len(questions), -np.inf)

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((draws, len(questions)))

    def redraw(self, rng: np.random.Generator) -> Garbage:
        return Garbage(self._columns, int(rng.integers(2**31)), self.dependent, self.known)


def both_graphs(evidence: Garbage, knowledge: Knowledge, restarts: int = 3) -> tuple[Cpdag, Cpdag, Skeleton]:
    skeleton = find_skeleton(evidence, SkeletonSettings(), knowledge)
    climbed = orient_by_evidence(evidence, skeleton, knowledge, restarts)
    return climbed, orient_by_separating_sets(evidence.columns, skeleton, knowledge), skeleton


garbage = st.builds(
    Garbage,
    st.integers(2, 6).map(lambda d: NAMES[:d]),
    st.integers(0, 2**31),
    st.floats(0.0, 1.0),
    st.sampled_from([1.0, 0.8, 0.3]),
)


@settings(max_examples=120, deadline=None)
@given(garbage)
def test_the_graph_is_always_a_valid_cpdag(evidence: Garbage) -> None:
    climbed, separated, skeleton = both_graphs(evidence, NOTHING)
    for graph in (climbed, separated):
        assert graph.is_valid()
        assert graph.nodes == evidence.columns
        assert len(graph.skeleton()) == int(skeleton.adjacency.sum()) // 2
    np.testing.assert_array_equal(skeleton.adjacency, skeleton.adjacency.T)
    assert not skeleton.adjacency.diagonal().any()


@st.composite
def consistent_knowledge(draw: st.DrawFn, columns: tuple[str, ...]) -> Knowledge:
    """Tiers, forbidden and required edges; those that contradict themselves are drawn again."""
    arcs = list(permutations(columns, 2))
    order = draw(st.permutations(columns))
    cut = draw(st.integers(0, len(columns)))
    knowledge = Knowledge(
        tuple(tier for tier in (tuple(order[:cut]), tuple(order[cut:])) if tier) if draw(st.booleans()) else (),
        frozenset(draw(st.lists(st.sampled_from(arcs), max_size=4))),
        frozenset(draw(st.lists(st.sampled_from(arcs), max_size=2))),
    )
    try:
        knowledge.check(columns)
    except KnowledgeError:
        return Knowledge(knowledge.tiers)
    return knowledge


@settings(max_examples=120, deadline=None)
@given(garbage, st.data())
def test_knowledge_is_obeyed_whatever_the_data_say(evidence: Garbage, data: st.DataObject) -> None:
    knowledge = data.draw(consistent_knowledge(evidence.columns))
    climbed, separated, _ = both_graphs(evidence, knowledge)
    for graph in (climbed, separated):
        assert graph.is_extendable()
        assert knowledge.required <= graph.directed
        assert all(knowledge.allows(cause, effect) for cause, effect in graph.directed)
        for pair in graph.undirected:
            assert all(knowledge.allows(cause, effect) for cause, effect in permutations(pair, 2))
        assert knowledge.orient(graph) == graph


@settings(max_examples=40, deadline=None)
@given(garbage, st.data(), st.sampled_from(RemovalOrder))
def test_skeletons_do_not_depend_on_the_order_of_columns(
    evidence: Garbage, data: st.DataObject, order: RemovalOrder
) -> None:
    columns = tuple(data.draw(st.permutations(evidence.columns)))
    turned = Garbage(columns, evidence.seed, evidence.dependent, evidence.known)
    chosen = SkeletonSettings(removal_order=order)
    one, other = (find_skeleton(e, chosen, NOTHING) for e in (evidence, turned))
    graphs = [
        {frozenset((e.columns[x], e.columns[y])) for x, y in s.edges()} for e, s in ((evidence, one), (turned, other))
    ]
    assert graphs[0] == graphs[1]
    separators = [
        {
            frozenset((e.columns[x], e.columns[y])): frozenset(e.columns[z] for z in given_set)
            for (x, y), given_set in s.separators.items()
        }
        for e, s in ((evidence, one), (turned, other))
    ]
    assert separators[0] == separators[1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.95), st.sampled_from(RemovalOrder))
def test_conditioning_never_takes_a_component_apart(seed: int, share: float, order: RemovalOrder) -> None:
    """Everything depends marginally and looks separated by anything else: the graph must stay connected."""
    evidence = Garbage(NAMES, seed)

    def answer(questions: Questions) -> Answers:
        draw = evidence._draw(questions, 5)
        p_value = np.zeros(len(questions)) if questions.order == 0 else np.where(draw < share, 0.5 + draw / 2, 0.0)
        return Answers(np.zeros(len(questions)), np.ones(len(questions)), p_value)

    evidence.test = answer  # type: ignore[method-assign]
    skeleton = find_skeleton(evidence, SkeletonSettings(removal_order=order), NOTHING)
    reached, fresh = {0}, {0}
    while fresh:
        fresh = {int(z) for node in fresh for z in np.flatnonzero(skeleton.adjacency[node])} - reached
        reached |= fresh
    assert reached == set(range(len(NAMES)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3), st.sampled_from(RemovalOrder))
def test_a_triangle_loses_one_edge_at_most(p_values: list[float], order: RemovalOrder) -> None:
    """Each edge looks separated by the third node; carrying out one separation forbids the others."""
    evidence = Garbage(NAMES[:3], int(1e6 * p_values[0]))

    def answer(questions: Questions) -> Answers:
        if questions.order == 0:
            p = np.zeros(len(questions))
        else:
            p = np.array([p_values[int(z)] for z in questions.given[:, 0]])
        return Answers(np.zeros(len(questions)), np.ones(len(questions)), p)

    evidence.test = answer  # type: ignore[method-assign]
    skeleton = find_skeleton(evidence, SkeletonSettings(removal_order=order), NOTHING)
    assert len(skeleton.edges()) == 2
    ((pair, (separator,)),) = skeleton.separators.items()
    assert separator not in pair


def test_shares_add_up_and_repeat() -> None:
    evidence = Garbage(NAMES, 5, dependent=0.7)
    told: list[tuple[int, int]] = []

    def find(tests: Garbage) -> Cpdag:
        return both_graphs(tests, NOTHING, restarts=1)[0]

    shares = redraw_graphs(evidence, find, 12, lambda stage, done, total: told.append((done, total)))  # type: ignore[arg-type]
    again = redraw_graphs(evidence, find, 12, lambda *_: None)  # type: ignore[arg-type]
    assert shares == again
    assert told == [(done, 12) for done in range(1, 13)]
    assert shares.redraws == 12
    assert shares.adjacent
    for a, b in combinations(NAMES, 2):
        pair = frozenset((a, b))
        share = shares.of_pair(pair)
        assert share is not None
        assert 0 <= share <= 1
        if share:
            parts = (shares.of_arrow(a, b), shares.of_arrow(b, a), shares.of_line(pair))
            assert all(part is not None and part >= 0 for part in parts)
            assert abs(sum(part for part in parts if part is not None) - 1) < 1e-12
        else:
            assert shares.of_arrow(a, b) is shares.of_line(pair) is None


def test_no_redraw_has_no_shares() -> None:
    none = Shares.none()
    assert none == Shares(0, Counter(), Counter())
    assert none.of_pair(frozenset("ab")) is None
    assert none.of_arrow("a", "b") is None
    assert none.of_line(frozenset("ab")) is None
