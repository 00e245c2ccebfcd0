"""Greedy equivalence search against brute force: its steps, its gains, its bookkeeping and what it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy import special

from dagveil.errors import DagveilError
from dagveil.evidence.bundle import independence_from
from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import LocalScore, noise_aware_score, table_penalties
from dagveil.graphs.cpdag import Cpdag, Dag, list_bits, sort_topologically
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.release import NoisyCounts
from dagveil.search.score.ges import (
    MOST_REPEATS,
    GesSettings,
    Step,
    greedy_equivalence_search,
    surroundings_of,
)
from dagveil.search.score.hybrid import search_by_score
from dagveil.search.score.operators import (
    Kind,
    Operator,
    Pattern,
    find_parents,
    insert_cliques,
    list_deletes,
    list_turns,
)
from separation import is_separated

NOTHING = Knowledge.none()
FREE = GesSettings(most_parents=10)


class SetScore:
    """An exact score: local scores are differences of a function of sets, so equivalent DAGs score alike."""

    def __init__(self, columns: tuple[str, ...], worth: dict[frozenset[int], float]) -> None:
        self.columns = columns
        self.worth = worth

    @classmethod
    def drawn(cls, columns: tuple[str, ...], rng: np.random.Generator, lean: float = 0.3) -> SetScore:
        """Draw one in which edges are worth little on average, so that neither all nor none of them come."""
        sets = [frozenset(s) for k in range(len(columns) + 1) for s in combinations(range(len(columns)), k)]
        return cls(columns, {s: float(rng.normal() - lean * len(s) * (len(s) - 1) / 2) for s in sets})

    @classmethod
    def gaussian(cls, columns: tuple[str, ...], covariance: np.ndarray, n_rows: float) -> SetScore:
        """Return BIC of a linear model on an exact covariance."""
        worth = {frozenset[int](): 0.0}
        for k in range(1, len(columns) + 1):
            for s in combinations(range(len(columns)), k):
                likelihood = -n_rows / 2 * np.linalg.slogdet(covariance[np.ix_(s, s)])[1]
                worth[frozenset(s)] = float(likelihood - k * (k - 1) / 4 * np.log(n_rows))
        return cls(columns, worth)

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        return self.worth[frozenset((node, *parents))] - self.worth[frozenset(parents)] - self.worth[frozenset((node,))]

    def gains(self, questions: Questions) -> np.ndarray:
        return np.array(
            [
                self.score(x, (y, *given)) - self.score(x, tuple(given))
                for x, y, given in zip(
                    questions.x.tolist(), questions.y.tolist(), questions.given.tolist(), strict=True
                )
            ]
        )

    def of_dag(self, dag: Dag) -> float:
        place = {name: i for i, name in enumerate(self.columns)}
        return sum(self.score(place[v], tuple(place[p] for p in dag.parents(v))) for v in dag.nodes)

    def of_pattern(self, pattern: Pattern) -> float:
        parents = find_parents(pattern.into, pattern.flat)
        assert parents is not None
        return sum(self.score(v, tuple(list_bits(mask))) for v, mask in enumerate(parents))


def pattern_of(dag: Dag) -> Pattern:
    place = {name: i for i, name in enumerate(dag.nodes)}
    return Pattern.of_parents([sum(1 << place[p] for p in dag.parents(v)) for v in dag.nodes])


def possible_operators(pattern: Pattern, kind: Kind, most_parents: int = 10) -> Iterator[tuple[Operator, Pattern]]:
    """List every operator of a kind, with nothing remembered from before."""
    for x, y in permutations(range(len(pattern.into)), 2):
        adjacent = pattern.near[x] >> y & 1
        found: Iterator[Operator] = iter(())
        if kind is Kind.INSERT and not adjacent:
            cliques = insert_cliques(pattern, x, y, most_parents)
            found = (Operator(Kind.INSERT, x, y, clique) for clique in cliques)
        elif kind is Kind.DELETE and (pattern.into[y] | pattern.flat[y]) >> x & 1:
            found = list_deletes(pattern, x, y)
        elif kind is Kind.TURN and (pattern.into[x] | pattern.flat[x]) >> y & 1:
            found = list_turns(pattern, x, y, most_parents)
        for operator in found:
            if operator.is_open(pattern):
                after = operator.apply(pattern)
                assert after is not None
                yield operator, after


def reach_by_members(dag: Dag, kind: Kind) -> Iterator[Dag]:
    """Change one edge of one DAG in every way."""
    for a, b in permutations(dag.nodes, 2):
        if kind is Kind.INSERT and frozenset((a, b)) not in dag.skeleton():
            edges = dag.edges | {(a, b)}
        elif kind is Kind.DELETE and (a, b) in dag.edges:
            edges = dag.edges - {(a, b)}
        elif kind is Kind.TURN and (a, b) in dag.edges:
            edges = dag.edges - {(a, b)} | {(b, a)}
        else:
            continue
        if sort_topologically(dag.nodes, edges) is not None:
            yield Dag(dag.nodes, frozenset(edges))


def test_classes_of_all_dags_of_four_nodes(all_dags: tuple[Dag, ...]) -> None:
    for dag in all_dags:
        pattern = pattern_of(dag)
        assert pattern.cpdag(dag.nodes) == dag.cpdag()
        parents = find_parents(pattern.into, pattern.flat)
        assert parents is not None
        assert Pattern.of_parents(parents) == pattern


def test_a_square_without_arrows_has_no_dag() -> None:
    assert find_parents([0] * 4, [0b1010, 0b0101, 0b1010, 0b0101]) is None


@pytest.mark.parametrize("kind", Kind)
def test_steps_lead_where_some_member_of_the_class_leads(all_dags: tuple[Dag, ...], kind: Kind) -> None:
    """The conditions on cliques and ways are exact: no class is missed, and none is reached that should not be."""
    members: dict[Pattern, list[Dag]] = {}
    for dag in all_dags:
        members.setdefault(pattern_of(dag), []).append(dag)
    assert len(members) == 185
    for pattern, dags in members.items():
        wanted = {pattern_of(after) for dag in dags for after in reach_by_members(dag, kind)} - {pattern}
        assert {after for _, after in possible_operators(pattern, kind)} == wanted


@pytest.mark.parametrize("kind", Kind)
def test_gains_are_differences_of_scores(all_dags: tuple[Dag, ...], kind: Kind) -> None:
    rng = np.random.default_rng(5)
    score = SetScore.drawn(tuple("abcd"), rng)
    for pattern in {pattern_of(dag) for dag in all_dags}:
        for operator, after in possible_operators(pattern, kind):
            x, y, mask = operator.family(pattern)
            direct = float(score.gains(Questions.of([(x, y, tuple(list_bits(mask)))]))[0])
            start = float(score.gains(Questions.of([(x, y, tuple(list_bits(operator.base(pattern))))]))[0])
            traded = 0.0
            for sign, (a, b, z, held) in operator.exchanges(pattern):
                after_z = score.gains(Questions.of([(a, b, tuple(list_bits(held | 1 << z)))]))[0]
                before_z = score.gains(Questions.of([(a, b, tuple(list_bits(held)))]))[0]
                traded += sign * float(after_z - before_z)
            gain = {Kind.INSERT: direct, Kind.DELETE: -direct, Kind.TURN: traded}[kind]
            assert gain == pytest.approx(score.of_pattern(after) - score.of_pattern(pattern), abs=1e-9)
            if kind is not Kind.DELETE:
                assert start + traded == pytest.approx(direct, abs=1e-9)


def population(dag: Dag, rng: np.random.Generator, weakest: float = 0.05) -> np.ndarray:
    """Covariance of a linear model on a DAG in which no dependence nearly cancels: there search must be right."""
    names = dag.nodes
    place = {name: i for i, name in enumerate(names)}
    while True:
        weights = np.zeros((len(place), len(place)))
        for a, b in dag.edges:
            weights[place[b], place[a]] = rng.choice([-1, 1]) * rng.uniform(0.5, 1.0)
        inverse = np.linalg.inv(np.eye(len(place)) - weights)
        covariance = np.asarray(inverse @ inverse.T)
        partial = []
        for k in range(2, len(names) + 1):
            for nodes in combinations(range(len(names)), k):
                precision = np.linalg.inv(covariance[np.ix_(nodes, nodes)])
                for i, j in combinations(range(k), 2):
                    rest = {names[v] for v in nodes} - {names[nodes[i]], names[nodes[j]]}
                    if not is_separated(dag, names[nodes[i]], names[nodes[j]], rest):
                        partial.append(abs(precision[i, j]) / np.sqrt(precision[i, i] * precision[j, j]))
        if min(partial, default=1.0) > weakest:
            return covariance


def test_from_the_population_comes_the_best_of_all_dags(all_dags: tuple[Dag, ...]) -> None:
    """An exhaustive search is the twin, and both find the truth."""
    rng = np.random.default_rng(7)
    for dag in all_dags[::2]:
        score = SetScore.gaussian(dag.nodes, population(dag, rng), 1e6)
        best = max(all_dags, key=score.of_dag)
        assert greedy_equivalence_search(score, dag.nodes, NOTHING, FREE) == best.cpdag() == dag.cpdag()


def random_dag(size: int, share: float, rng: np.random.Generator) -> Dag:
    names = tuple("abcdefghijkl"[:size])
    order = [str(name) for name in rng.permutation(list(names))]
    return Dag(names, frozenset(arc for arc in combinations(order, 2) if rng.random() < share))


def test_larger_populations_and_any_order_of_columns() -> None:
    rng = np.random.default_rng(8)
    for _ in range(6):
        dag = random_dag(7, 0.3, rng)
        covariance = population(dag, rng, 0.003)
        for _ in range(2):
            order = rng.permutation(7)
            names = tuple(dag.nodes[i] for i in order)
            score = SetScore.gaussian(names, covariance[np.ix_(order, order)], 1e9)
            found = greedy_equivalence_search(score, names, NOTHING, FREE)
            assert (found.directed, found.undirected) == (dag.cpdag().directed, dag.cpdag().undirected)


def search_steps(score: LocalScore, columns: tuple[str, ...], *more: Any, start: Cpdag | None = None) -> list[Step]:
    """Return every step of the search."""
    steps: list[Step] = []
    greedy_equivalence_search(score, columns, *more, start=start, steps=steps)
    return steps


def no_edges(size: int) -> Pattern:
    """Return the class of the DAG without edges."""
    return Pattern((0,) * size, (0,) * size)


def climb_slowly(score: SetScore, settings: GesSettings) -> list[Pattern]:
    """Greedy search that lists everything anew before each step."""
    pattern = no_edges(len(score.columns))
    seen = {pattern}
    taken: list[Pattern] = []
    improved = True
    while improved:
        improved = False
        for kind in settings.phases:
            while True:
                after = [p for _, p in possible_operators(pattern, kind, settings.most_parents) if p not in seen]
                gains = [score.of_pattern(p) - score.of_pattern(pattern) for p in after]
                if not gains or max(gains) <= 1e-9:
                    break
                pattern = after[int(np.argmax(gains))]
                seen.add(pattern)
                taken.append(pattern)
                improved = True
    return taken


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most_parents", [2, 5])
def test_only_what_a_step_touched_is_listed_again(seed: int, most_parents: int) -> None:
    """The same steps as those of a search that remembers nothing, on scores without any structure."""
    columns = tuple("abcdef")
    score = SetScore.drawn(columns, np.random.default_rng(seed))
    settings = GesSettings(most_parents=most_parents)
    steps = search_steps(score, columns, NOTHING, settings)
    assert [step.pattern for step in steps] == climb_slowly(score, settings)


@pytest.mark.parametrize("seed", range(6))
def test_every_step_raises_the_score_and_leads_to_a_cpdag(seed: int) -> None:
    columns = tuple("abcdefg")
    score = SetScore.drawn(columns, np.random.default_rng(100 + seed), lean=0.0)
    before = no_edges(7)
    steps = search_steps(score, columns, NOTHING, FREE)
    assert {step.operator.kind for step in steps} >= {Kind.INSERT}
    for step in steps:
        assert step.gain > 0
        assert score.of_pattern(step.pattern) - score.of_pattern(before) == pytest.approx(step.gain, abs=1e-9)
        assert step.pattern.cpdag(columns).is_valid()
        before = step.pattern


@pytest.mark.parametrize("most_parents", [1, 2, 3])
def test_nodes_get_no_more_parents_than_allowed(most_parents: int) -> None:
    columns = tuple("abcdefg")
    score = SetScore.drawn(columns, np.random.default_rng(3), lean=-1.0)
    found = greedy_equivalence_search(score, columns, NOTHING, GesSettings(most_parents=most_parents))
    dag = found.extension()
    assert dag is not None
    assert max(len(dag.parents(v)) for v in columns) == most_parents


def test_bounds_stop_the_search_where_it_is() -> None:
    columns = tuple("abcdef")
    score = SetScore.drawn(columns, np.random.default_rng(3))
    steps = search_steps(score, columns, NOTHING, FREE)
    assert search_steps(score, columns, NOTHING, GesSettings(most_parents=10, most_steps=2)) == steps[:2]
    for wrong in ({"most_parents": 0}, {"most_steps": -1}):
        with pytest.raises(DagveilError):
            GesSettings(**wrong)


def test_knowledge_is_obeyed() -> None:
    rng = np.random.default_rng(11)
    for seed in range(25):
        columns = tuple("abcdef")
        score = SetScore.drawn(columns, np.random.default_rng(200 + seed))
        order = [str(name) for name in rng.permutation(list(columns))]
        knowledge = Knowledge(
            tiers=(tuple(order[:2]), tuple(order[2:])),
            forbidden=frozenset({(order[2], order[3]), (order[3], order[2])}),
            required=frozenset({(order[0], order[5])}),
        )
        found = greedy_equivalence_search(score, columns, knowledge, FREE)
        assert found.is_extendable()
        assert (order[0], order[5]) in found.directed
        assert frozenset(order[2:4]) not in found.skeleton()
        assert all(knowledge.allows(cause, effect) for cause, effect in found.directed)


def test_true_knowledge_leaves_the_truth_standing(all_dags: tuple[Dag, ...]) -> None:
    rng = np.random.default_rng(12)
    for dag in all_dags[1::4]:
        order = dag.order()
        knowledge = Knowledge((order[:2], order[2:]), required=frozenset(sorted(dag.edges)[:1]))
        score = SetScore.gaussian(dag.nodes, population(dag, rng), 1e6)
        assert greedy_equivalence_search(score, dag.nodes, knowledge, FREE) == knowledge.orient(dag.cpdag())


def test_edges_come_only_where_they_may() -> None:
    columns = tuple("abcdef")
    score = SetScore.drawn(columns, np.random.default_rng(3), lean=-1.0)
    within = np.triu(np.random.default_rng(4).random((6, 6)) < 0.5, 1)
    within = within | within.T
    found = greedy_equivalence_search(score, columns, NOTHING, FREE, within)
    allowed = {frozenset((columns[a], columns[b])) for a, b in zip(*np.nonzero(within), strict=True)}
    assert found.skeleton()
    assert found.skeleton() <= allowed


def test_a_start_at_the_truth_stays_there(all_dags: tuple[Dag, ...]) -> None:
    rng = np.random.default_rng(13)
    for dag in all_dags[::20]:
        score = SetScore.gaussian(dag.nodes, population(dag, rng), 1e6)
        assert search_steps(score, dag.nodes, NOTHING, FREE, start=dag.cpdag()) == []
        complete = Cpdag.complete(dag.nodes)
        assert greedy_equivalence_search(score, dag.nodes, NOTHING, FREE, start=complete) == dag.cpdag()
    square = Cpdag(tuple("abcd"), frozenset(), frozenset(frozenset(pair) for pair in ("ab", "bc", "cd", "da")))
    with pytest.raises(DagveilError, match="no DAG"):
        search_steps(score, tuple("abcd"), NOTHING, FREE, start=square)


class Partial(SetScore):
    """A score that knows nothing of any question in which a and b occur together."""

    def gains(self, questions: Questions) -> np.ndarray:
        found = super().gains(questions)
        nodes = np.column_stack([questions.x, questions.y, questions.given])
        found[(nodes == 0).any(axis=1) & (nodes == 1).any(axis=1)] = np.nan
        return found


def test_nothing_rests_on_what_is_not_known() -> None:
    columns = tuple("abcdef")
    for seed in range(10):
        score = Partial(columns, SetScore.drawn(columns, np.random.default_rng(seed)).worth)
        before = no_edges(6)
        for step in search_steps(score, columns, NOTHING, FREE):
            assert np.isfinite(step.gain)
            assert {step.operator.x, step.operator.y} != {0, 1}
            before = step.pattern
        assert not before.near[0] & 0b10


def test_one_column_and_two() -> None:
    assert greedy_equivalence_search(SetScore.drawn(("a",), np.random.default_rng(1)), ("a",), NOTHING) == Cpdag.empty(
        ("a",)
    )
    pair = SetScore.gaussian(("a", "b"), np.array([[1.0, 0.5], [0.5, 1.0]]), 100)
    assert greedy_equivalence_search(pair, ("a", "b"), NOTHING).undirected == {frozenset("ab")}


def moments(dag: Dag, rng: np.random.Generator, deviation: float = 1e-4) -> MomentEvidence:
    matrix = population(dag, rng)
    return MomentEvidence(NoisyCovariance(dag.nodes, matrix, deviation, 1e5, 0.0, np.zeros(len(matrix))))


def test_moments_give_the_truth_back(all_dags: tuple[Dag, ...]) -> None:
    """Exact moments, read with the noise that they could have had."""
    rng = np.random.default_rng(21)
    right = [search_by_score(moments(dag, rng), NOTHING) == dag.cpdag() for dag in all_dags[::4]]
    assert np.mean(right) > 0.97


def test_inside_a_skeleton_nothing_else_comes() -> None:
    rng = np.random.default_rng(22)
    dag = random_dag(6, 0.5, rng)
    evidence = moments(dag, rng)
    assert search_by_score(evidence, NOTHING).skeleton()  # without a room it is free: it needs no graph of the tests
    less = Dag(dag.nodes, frozenset(sorted(dag.edges)[1:])).cpdag()
    assert search_by_score(evidence, NOTHING, less, room="skeleton").skeleton() <= less.skeleton()
    assert search_by_score(evidence, NOTHING, dag.cpdag(), room="skeleton") == dag.cpdag()
    with pytest.raises(DagveilError, match="tested"):
        search_by_score(evidence, NOTHING, room="skeleton")


def test_a_weak_edge_joins_parts_but_closes_no_ring() -> None:
    """An edge that no other way explains needs the level of a test only; one beside other ways needs the penalty."""
    weak = 0.012  # T is about 14 at 100 000 rows: clear for a test, too little for the penalty
    chain = np.eye(4)
    chain[0, 1] = chain[1, 0] = chain[1, 2] = chain[2, 1] = 0.5
    chain[0, 2] = chain[2, 0] = 0.25 + weak
    chain[2, 3] = chain[3, 2] = weak
    names = tuple("abcd")
    evidence = MomentEvidence(NoisyCovariance(names, chain, 1e-6, 1e5, 0.0, np.zeros(len(chain))))
    tested = Cpdag(names, frozenset(), frozenset(frozenset(pair) for pair in ("ab", "bc", "ac", "cd")))
    inside = search_by_score(evidence, NOTHING, tested, room="skeleton")
    assert inside.skeleton() == {frozenset("ab"), frozenset("bc"), frozenset("cd")}
    assert search_by_score(evidence, NOTHING).skeleton() == {frozenset("ab"), frozenset("bc")}


class Rough:
    """A score whose gains do not add up, inside blocks of four columns; nothing joins two blocks."""

    def __init__(self, blocks: int, seed: int) -> None:
        self.columns = tuple(f"c{k}" for k in range(4 * blocks))
        self.seed = seed
        self.asked: list[tuple[int, int, tuple[int, ...]]] = []

    def score(self, node: int, parents: tuple[int, ...]) -> float:
        raise NotImplementedError

    def gains(self, questions: Questions) -> np.ndarray:
        found = []
        for x, y, given in zip(questions.x.tolist(), questions.y.tolist(), questions.given.tolist(), strict=True):
            self.asked.append((x, y, tuple(sorted(given))))
            inside = len({node // 4 for node in (x, y, *given)}) == 1
            rng = np.random.default_rng([self.seed, min(x, y), max(x, y), *sorted(given)])
            found.append(float(rng.normal()) if inside else -1.0)
        return np.array(found)


def test_many_small_circles_do_not_multiply() -> None:
    """No class is visited twice, but blocks that go round in circles have more classes together than time allows."""
    score = Rough(blocks=12, seed=5)
    steps = search_steps(score, score.columns, NOTHING, GesSettings(most_steps=5000))
    taken: Counter[object] = Counter()
    before = no_edges(len(score.columns))
    for step in steps:
        taken[surroundings_of(step.operator, before)] += 1
        before = step.pattern
    assert max(taken.values()) == MOST_REPEATS
    assert len(steps) < 5000


def test_answers_are_remembered() -> None:
    """A question may come up for either of its heads, and by itself: that is all."""
    score = Rough(blocks=5, seed=2)
    search_steps(score, score.columns, NOTHING, GesSettings(most_steps=200))
    assert max(Counter(score.asked).values()) <= 3
    assert len(score.asked) < 1.1 * len(set(score.asked))
    assert all(x < y and not {x, y} & set(given) for x, y, given in score.asked)


@pytest.mark.parametrize("seed", range(3))
def test_sparse_graphs_take_the_same_steps_as_slowly(seed: int) -> None:
    """Most nodes are far from each other here, so most edges are weighed as arrays."""
    rng = np.random.default_rng(seed)
    d = 14
    weights = np.triu(rng.random((d, d)) < 1.2 / d, 1) * rng.uniform(0.5, 1.0, (d, d))
    spread = np.linalg.inv(np.eye(d) - weights)
    names = tuple(f"c{k}" for k in range(d))
    covariance = NoisyCovariance(names, spread.T @ spread, 0.01, 500.0, 0.0, np.zeros(d))
    score = noise_aware_score(MomentEvidence(covariance))
    settings = GesSettings(most_parents=3, phases=(Kind.INSERT,))
    steps = search_steps(score, score.columns, NOTHING, settings)
    assert len(steps) > 5
    pattern = no_edges(d)
    known: dict[tuple[int, int, int], float] = {}

    def gain(x: int, y: int, mask: int) -> float:
        key = (min(x, y), max(x, y), mask)
        if key not in known:
            known[key] = float(score.gains(Questions.of([(key[0], key[1], tuple(list_bits(mask)))]))[0])
        return known[key]

    for step in steps:
        x, y = step.operator.x, step.operator.y
        assert gain(x, y, step.operator.clique | pattern.into[y]) > 0.0
        # edges whose direct gain is their whole gain: no exchange comes in
        plain = [
            gain(o.x, o.y, o.clique | pattern.into[o.y])
            for o, _ in possible_operators(pattern, Kind.INSERT, 3)
            if not o.exchanges(pattern)
        ]
        assert step.gain >= max(plain) - 1e-9
        pattern = step.pattern
    assert all(
        gain(o.x, o.y, o.clique | pattern.into[o.y]) < 1e-6
        for o, _ in possible_operators(pattern, Kind.INSERT, 3)
        if not o.exchanges(pattern)
    )


def test_shared_conditioning_sets_change_no_answer() -> None:
    """Sets that many questions share are decomposed once; one question at a time is the slow twin."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(300, 9))
    covariance = NoisyCovariance(tuple("abcdefghi"), rows.T @ rows / 300, 0.05, 300.0, 0.1, np.zeros(9))
    evidence = MomentEvidence(covariance)
    asked = [(x, y, given) for x, y in combinations(range(5), 2) for given in ((5, 6, 7), (8, 5, 6), (6, 7, 8))]
    together = evidence.test(Questions.of(asked))
    alone = [evidence.test(Questions.of([question])) for question in asked]
    assert together.statistic == pytest.approx([float(one.statistic[0]) for one in alone])
    assert together.p_value == pytest.approx(special.chdtrc(1.0, together.statistic))


def test_penalties_of_tables_are_those_of_each_pair() -> None:
    rng = np.random.default_rng(2)
    shapes = (2, 4, 3)
    releases = tuple(
        NoisyCounts((a, b), (m, k), 1, Fraction(90), tuple(rng.integers(20, 90, m * k).tolist()))
        for (a, m), (b, k) in combinations(zip("abc", shapes, strict=True), 2)
    )
    evidence = independence_from(tuple("abc"), releases)
    assert isinstance(evidence, PairEvidence)
    c = evidence.covariance
    found = table_penalties(evidence)
    for x, y in permutations(range(3), 2):
        first, second = (np.linalg.eigvalsh(c.spread[i, : c.size[i], : c.size[i]]) for i in (x, y))
        widened = 1.0 + c.n_rows * c.noise[x, y] * np.outer(first, second)
        assert found[x, y] == pytest.approx(np.log1p(c.n_rows / widened).sum())
    assert (np.diag(found) == 0).all()
