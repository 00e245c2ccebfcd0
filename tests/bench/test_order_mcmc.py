"""BGe, BDeu, chains over orders, and max-min hill climbing: against brute force over all graphs of four nodes."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations, product
from math import lgamma

import numpy as np
import pytest
from scipy import stats

from dagveil.errors import EvidenceError, MethodError
from dagveil.evidence.questions import Questions
from dagveil.examples.networks import LinearGaussian, sample_linear_gaussian
from dagveil.graphs.cpdag import Dag, sort_topologically
from dagveil.graphs.knowledge import Knowledge
from dagveil.local.record import Undo
from dagveil.local.reports import ReportEvidence, Reports
from dagveil.search.score.ges import greedy_equivalence_search
from dagveil.search.score.mmhc import MmhcSettings, climb_hill, find_neighbours, search_max_min
from dagveil.search.score.order_mcmc import OrderSettings, _list_choices, _run_chain, sample_orders
from dagveil_bench.bayesian_scores import BdeuScore, BgeScore, bge_of_rows
from slow_twins import score_order

NAMES = ("a", "b", "c", "d")
FREE = ~np.eye(4, dtype=bool)


def all_dags() -> list[dict[int, tuple[int, ...]]]:
    """The 543 graphs over four nodes, as parents."""
    graphs = []
    for states in product((0, 1, 2), repeat=6):
        arcs = [
            (x, y) if state == 1 else (y, x)
            for (x, y), state in zip(combinations(range(4), 2), states, strict=True)
            if state
        ]
        if sort_topologically(NAMES, {(NAMES[a], NAMES[b]) for a, b in arcs}) is not None:
            graphs.append({v: tuple(a for a, b in arcs if b == v) for v in range(4)})
    return graphs


DAGS = all_dags()


def draw_rows(n: int, seed: int) -> np.ndarray:
    weights = np.zeros((4, 4))
    weights[0, 2], weights[1, 2], weights[2, 3] = 0.8, -0.7, 0.9
    return sample_linear_gaussian(LinearGaussian(NAMES, weights, np.ones(4)), n, np.random.default_rng(seed))


def draw_codes(n: int, seed: int) -> np.ndarray:
    return np.digitize(draw_rows(n, seed), [-0.6, 0.6]).astype(np.int64)


def test_bge_is_the_product_of_predictive_densities() -> None:
    """The marginal likelihood of the complete graph, row by row from the multivariate Student distribution."""
    rows = np.random.default_rng(0).normal(size=(7, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
    weight, freedom, d = 1.5, 2.5, 3
    score = BgeScore(NAMES[:3], 7.0, rows.mean(axis=0), np.cov(rows.T, bias=True), weight, freedom)
    total = sum(score.log_marginal(v, tuple(range(v))) for v in range(d))
    alpha = freedom + d
    matrix = weight * (freedom - 1.0) / (weight + 1.0) * np.eye(d)
    mean, kappa, slow = np.zeros(d), weight, 0.0
    for row in rows:
        df = alpha - d + 1.0
        slow += stats.multivariate_t(mean, matrix * (kappa + 1.0) / (kappa * df), df).logpdf(row)
        matrix = matrix + kappa / (kappa + 1.0) * np.outer(row - mean, row - mean)
        mean = (kappa * mean + row) / (kappa + 1.0)
        kappa, alpha = kappa + 1.0, alpha + 1.0
    assert total == pytest.approx(slow)


def test_bdeu_by_hand() -> None:
    score = BdeuScore(("a", "b"), (2, 2), np.array([[0, 0], [0, 1], [1, 1]]), np.array([3.0, 1.0, 2.0]), 4.0)
    # b given a: two cases with a prior of 2 each, cells of 1
    slow = 0.0
    for table in ((3, 1), (0, 2)):
        slow += lgamma(2.0) - lgamma(2.0 + sum(table)) + sum(lgamma(1.0 + k) - lgamma(1.0) for k in table)
    assert score.log_marginal(1, (0,)) == pytest.approx(slow)


@pytest.mark.parametrize("kind", ["bge", "bdeu"])
def test_equivalent_graphs_score_alike_and_gains_are_differences(kind: str) -> None:
    if kind == "bge":
        score: BgeScore | BdeuScore = bge_of_rows(NAMES, draw_rows(200, 1))
    else:
        reports = Reports.of(draw_codes(200, 1))
        score = BdeuScore(NAMES, (3,) * 4, reports.codes, reports.counts)
    by_class: dict[object, float] = {}
    for graph in DAGS[::7]:
        dag = Dag(NAMES, frozenset((NAMES[p], NAMES[v]) for v, parents in graph.items() for p in parents))
        total = sum(score.score(v, parents) for v, parents in graph.items())
        assert by_class.setdefault(dag.cpdag(), total) == pytest.approx(total)
    gains = score.gains(Questions.of([(0, 1, (2,)), (1, 0, (2,))]))
    assert gains == pytest.approx([score.score(0, (1, 2)) - score.score(0, (2,))] * 2)


def test_bge_refuses_moments_of_another_size() -> None:
    with pytest.raises(EvidenceError, match="4 columns"):
        BgeScore(NAMES, 10.0, np.zeros(3), np.eye(3))
    with pytest.raises(EvidenceError, match="freedom"):
        BgeScore(NAMES, 10.0, np.zeros(4), np.eye(4), freedom=1.0)


@pytest.mark.parametrize("start", ["everything", "nothing"])
def test_the_best_of_all_graphs_is_found(start: str) -> None:
    score = bge_of_rows(NAMES, draw_rows(300, 2))
    best = max(sum(score.score(v, parents) for v, parents in graph.items()) for graph in DAGS)
    within = FREE if start == "everything" else np.zeros((4, 4), dtype=bool)
    sample = sample_orders(score, within, np.random.default_rng(0), OrderSettings(steps=300))
    assert sample.score == pytest.approx(best)
    assert sample.best.cpdag() == greedy_equivalence_search(score, NAMES, Knowledge.none())
    # what the skeleton lacked came one parent at a time, round by round
    assert (sample.rounds > 1) == (start == "nothing")


def test_orders_come_as_often_as_their_weight_says() -> None:
    score = bge_of_rows(NAMES, draw_rows(12, 3))
    settings = OrderSettings(steps=1)
    choices = [_list_choices(score, v, FREE, settings) for v in range(4)]
    orders = list(permutations(range(4)))
    slow = []
    for order in orders:
        place = {node: i for i, node in enumerate(order)}
        fitting = [g for g in DAGS if all(place[p] < place[v] for v, parents in g.items() for p in parents)]
        weights = [sum(score.score(v, parents) for v, parents in g.items()) for g in fitting]
        slow.append(np.logaddexp.reduce(weights))
    assert [score_order(choices, order) for order in orders] == pytest.approx(slow)
    rng = np.random.default_rng(4)
    order: list[int] = [0, 1, 2, 3]
    visits: Counter[tuple[int, ...]] = Counter()
    for _ in range(4000):
        _, _, order, _ = _run_chain(choices, order, rng, settings)
        visits[tuple(order)] += 1
    expected = np.exp(np.array(slow) - np.logaddexp.reduce(slow))
    seen = np.array([visits[order] for order in orders]) / 4000
    assert np.abs(seen - expected).sum() / 2 < 0.06
    # a chain that accepted everything would be uniform, and that is far away
    assert np.abs(1 / 24 - expected).sum() / 2 > 0.15


def test_shares_of_edges_are_posterior_probabilities() -> None:
    score = bge_of_rows(NAMES, draw_rows(15, 5))
    sample = sample_orders(score, FREE, np.random.default_rng(6), OrderSettings(steps=4000, most_rounds=1))
    total, edges = 0.0, np.zeros((4, 4))
    for order in permutations(range(4)):
        place = {node: i for i, node in enumerate(order)}
        for graph in DAGS:
            if all(place[p] < place[v] for v, parents in graph.items() for p in parents):
                weight = np.exp(sum(score.score(v, parents) for v, parents in graph.items()))
                total += weight
                for v, parents in graph.items():
                    edges[list(parents), v] += weight
    assert np.abs(sample.edges - edges / total).max() < 0.05


def test_bad_settings_of_orders() -> None:
    with pytest.raises(MethodError, match="steps"):
        OrderSettings(steps=0)
    with pytest.raises(MethodError, match="4 columns"):
        sample_orders(bge_of_rows(NAMES, draw_rows(9, 1)), np.eye(3, dtype=bool), np.random.default_rng(0))


def test_max_min_hill_climbing_finds_the_graph() -> None:
    rng = np.random.default_rng(7)
    a, b, lost_c, lost_d = rng.integers(0, 3, (4, 20_000))
    c = np.where(rng.random(20_000) < 0.7, np.minimum(a + b, 2), lost_c)
    d = np.where(rng.random(20_000) < 0.7, c, lost_d)
    reports = Reports.of(np.stack([a, b, c, d], axis=1))
    levels = (3,) * 4
    evidence = ReportEvidence(NAMES, levels, reports, Undo((np.eye(3),) * 4))
    score = BdeuScore(NAMES, levels, reports.codes, reports.counts)
    neighbours = find_neighbours(evidence, MmhcSettings(level=0.001))
    assert {(x, y) for x, y in combinations(range(4), 2) if neighbours[x, y]} == {(0, 2), (1, 2), (2, 3)}
    found = search_max_min(evidence, score, MmhcSettings(level=0.001))
    assert found.edges == {("a", "c"), ("b", "c"), ("c", "d")}


def test_hill_climbing_stays_inside_and_ends_where_no_step_gains() -> None:
    score = bge_of_rows(NAMES, draw_rows(100, 8))
    within = FREE.copy()
    within[0, 2] = within[2, 0] = False
    found = climb_hill(score, within, MmhcSettings(most_parents=1))
    assert frozenset("ac") not in found.skeleton()
    assert all(len(found.parents(name)) <= 1 for name in NAMES)
    best = climb_hill(score, FREE, MmhcSettings())
    top = sum(score.score(v, tuple(NAMES.index(p) for p in best.parents(NAMES[v]))) for v in range(4))
    for a, b in combinations(range(4), 2):
        for arc in ((a, b), (b, a)):
            names = (NAMES[arc[0]], NAMES[arc[1]])
            edges = {e for e in best.edges if frozenset(e) != frozenset(names)} | {names}
            if sort_topologically(NAMES, edges) is not None:
                dag = Dag(NAMES, frozenset(edges))
                other = sum(score.score(v, tuple(NAMES.index(p) for p in dag.parents(NAMES[v]))) for v in range(4))
                assert other <= top + 1e-6
