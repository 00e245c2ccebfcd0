"""The polish after NOTEARS: a slow twin of the score, the valley it leaves, knowledge, order of columns, level."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import moment_penalties
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.score.linear import (
    MOST_PARENTS,
    MOST_POLISHED,
    PENALTY_WEIGHT,
    SLACK,
    LinearScore,
    find_linear_dag,
    polish,
    reachable,
)
from dagveil.search.score.notears import (
    NotearsSettings,
    find_weights,
    forbidden_entries,
    is_acyclic,
    pose,
    weights_to_dag,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def correlations_of(weights: Floats, errors: Floats | None = None) -> Floats:
    """Population correlations of a linear model: no unit is left that could tell a direction."""
    spread = np.linalg.inv(np.eye(len(weights)) - weights)
    covariance = spread.T @ np.diag(np.ones(len(weights)) if errors is None else errors) @ spread
    size = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(size, size))


def noisy_of(matrix: Floats, deviation: float = 1e-4, n_rows: float = 1e5) -> NoisyCovariance:
    names = tuple(f"x{i}" for i in range(len(matrix)))
    ridge = deviation * math.sqrt(len(matrix))
    return NoisyCovariance(names, matrix, deviation, n_rows, ridge, np.zeros(len(matrix)))


def draw_noisy(d: int, seed: int, deviation: float = 0.01) -> NoisyCovariance:
    rng = np.random.default_rng(seed)
    weights = np.triu(np.where(rng.random((d, d)) < 0.5, rng.uniform(-1.0, 1.0, (d, d)), 0.0), 1)
    order = rng.permutation(d)
    gauss = rng.standard_normal((d, d)) / math.sqrt(2.0)
    matrix = correlations_of(weights)[np.ix_(order, order)] + deviation * (gauss + gauss.T)
    # as in a release: no variance is below the noise
    np.fill_diagonal(matrix, np.maximum(np.diag(matrix), math.sqrt(2.0) * deviation))
    return noisy_of(matrix, deviation)


def search(
    noisy: NoisyCovariance, knowledge: Knowledge | None = None, unitless: Bools | None = None
) -> set[tuple[int, int]]:
    d = len(noisy.columns)
    known = knowledge or Knowledge.none()
    required = [(int(cause[1:]), int(effect[1:])) for cause, effect in sorted(known.required)]
    forbidden = forbidden_entries(noisy.columns, known)
    whole = np.ones(d, dtype=bool) if unitless is None else unitless
    return set(find_linear_dag(noisy, np.ones(d), whole, forbidden, required))


def skeleton(edges: set[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in edges}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from([0.0, 0.01, 0.1]))
def test_the_score_adds_up_the_tests_of_parents(seed: int, d: int, deviation: float) -> None:
    """Without slack each parent's gain is the noise-aware Fisher z given the parents before it."""
    noisy = draw_noisy(d, seed, deviation)
    evidence = MomentEvidence(noisy)
    ridged = noisy.matrix + noisy.ridge * np.eye(d)
    if np.linalg.eigvalsh(ridged).min() < 2.0 * max(deviation, 1e-3):
        return  # the slow twin floors eigenvalues elsewhere
    size = np.abs(ridged) / np.sqrt(np.outer(np.diag(ridged), np.diag(ridged)))
    order = sorted(range(1, d), key=lambda parent: -size[parent, 0])
    slow = 0.0
    for i, parent in enumerate(order):
        statistic = float(evidence.test(Questions.of([(parent, 0, tuple(order[:i]))])).statistic[0])
        slow += (statistic - PENALTY_WEIGHT * float(moment_penalties(noisy)[parent, 0])) / 2.0
    fast = LinearScore(noisy, np.zeros((d, d))).local(0, frozenset(order))
    # degrees of freedom count all parents here, and those before there: some of 100 000
    assert fast == pytest.approx(slow, rel=1e-3, abs=1e-3)


def test_without_noise_and_slack_equivalent_graphs_score_alike() -> None:
    matrix = correlations_of(np.array([[0, 0.5, 0], [0, 0, 0.4], [0, 0, 0.0]]))
    noisy = NoisyCovariance(("a", "b", "c"), matrix, 0.0, 1e5, 0.0, np.zeros(3))
    score = LinearScore(noisy, np.zeros((3, 3)))
    chains = [[(0, 1), (1, 2)], [(1, 0), (1, 2)], [(2, 1), (1, 0)]]
    totals = []
    for edges in chains:
        graph = np.zeros((3, 3), dtype=bool)
        graph[tuple(np.array(edges).T)] = True
        totals.append(score.total(graph))
    assert totals == pytest.approx([totals[0]] * 3)


def test_slack_takes_away_what_others_nearly_explain() -> None:
    """A direct effect of a tenth of what goes through another column counts without slack, and not with it."""
    matrix = correlations_of(np.array([[0.0, 0.7, 0.03], [0.0, 0.0, 0.7], [0.0, 0.0, 0.0]]))
    with_edge, without = frozenset({0, 1}), frozenset({1})
    strict, lenient = (LinearScore(noisy_of(matrix), np.full((3, 3), slack)) for slack in (SLACK, 0.0))
    assert lenient.local(2, with_edge) > lenient.local(2, without)
    assert strict.local(2, with_edge) < strict.local(2, without)
    assert not strict.connected_pairs()[0, 2]
    assert lenient.connected_pairs()[0, 2]


# two causes, their common effect and its two effects, all rare: Earthquake in the large
ALARM = np.array(
    [
        [0.0, 0.0, 0.75, 0.0, 0.0],
        [0.0, 0.0, 0.28, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.38, 0.52],
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0],
    ]
)


def test_a_turned_edge_of_a_collider_is_repaired() -> None:
    errors = np.array([1.0, 1.0, 1.0 - 0.75**2 - 0.28**2, 1.0 - 0.38**2, 1.0 - 0.52**2])
    # released variances differ: rare columns shrink
    scales = np.array([0.26, 0.41, 0.33, 0.76, 0.41])
    noisy = noisy_of(correlations_of(ALARM, errors) * np.outer(scales, scales), 1e-4)
    problem = pose(noisy, np.ones(5))
    weights = find_weights(problem.covariance, NotearsSettings(penalty=problem.penalty))
    stuck = skeleton(set(weights_to_dag(weights, problem.threshold, problem.scales)))
    truth = skeleton({(0, 2), (1, 2), (2, 3), (2, 4)})
    assert frozenset((0, 1)) in stuck  # else this test shows nothing
    found = search(noisy)
    assert skeleton(found) == truth
    assert {(0, 2), (1, 2)} <= found


def test_columns_with_units_keep_what_notears_finds() -> None:
    noisy = draw_noisy(6, 3)
    problem = pose(noisy, np.ones(6))
    weights = find_weights(problem.covariance, NotearsSettings(penalty=problem.penalty))
    plain = set(weights_to_dag(weights, problem.threshold, problem.scales))
    assert search(noisy, unitless=np.zeros(6, dtype=bool)) == plain
    one = np.arange(6) == 0
    assert {edge for edge in plain if 0 not in edge} == {edge for edge in search(noisy, unitless=one) if 0 not in edge}


def test_wide_tables_keep_what_notears_finds() -> None:
    d = MOST_POLISHED + 1
    # the floor of the threshold hides an effect of 0.04 from NOTEARS, not from the polish
    matrix = np.eye(d)
    matrix[0, 1] = matrix[1, 0] = 0.04
    assert search(noisy_of(matrix, 1e-5)) == set()
    assert skeleton(search(noisy_of(matrix[:5, :5], 1e-5))) == {frozenset((0, 1))}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 7), st.sampled_from([0.001, 0.05, 1.0]))
def test_polishing_never_lowers_the_score_and_makes_no_cycle(seed: int, d: int, deviation: float) -> None:
    rng = np.random.default_rng(seed)
    score = LinearScore(draw_noisy(d, seed, deviation), np.full((d, d), SLACK))
    order = rng.permutation(d)
    start = np.triu(rng.random((d, d)) < 0.4, 1)[np.ix_(order, order)]
    room = (rng.random((d, d)) < 0.8) & ~np.eye(d, dtype=bool)
    fixed = start & (rng.random((d, d)) < 0.2)
    found = polish(start, score, room, fixed)
    assert is_acyclic(found)
    assert (found >= fixed).all()
    assert not (found & ~start & ~room).any()
    assert (found.sum(axis=0) <= np.maximum(start.sum(axis=0), MOST_PARENTS)).all()
    assert score.total(found) >= score.total(start) - 1e-6
    again = polish(found, score, room, fixed)
    assert (again == found).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_no_single_change_is_left_that_would_raise_the_score(seed: int) -> None:
    d = 4
    score = LinearScore(draw_noisy(d, seed), np.full((d, d), SLACK))
    nothing = np.zeros((d, d), dtype=bool)
    found = polish(nothing, score, ~np.eye(d, dtype=bool), nothing)
    best = score.total(found)
    for a, b in combinations(range(d), 2):
        for pair in ((False, False), (True, False), (False, True)):
            moved = found.copy()
            moved[a, b], moved[b, a] = pair
            if is_acyclic(moved):
                assert score.total(moved) <= best + 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_reachable_equals_powers_of_the_graph(seed: int) -> None:
    graph = np.random.default_rng(seed).random((6, 6)) < 0.25
    power = total = np.eye(6)
    for _ in range(6):
        power = power @ graph
        total = total + power
    assert (reachable(graph) == (total > 0)).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_knowledge_is_respected(seed: int) -> None:
    noisy = draw_noisy(6, seed)
    knowledge = Knowledge(
        tiers=(("x4", "x3"), ("x0", "x1", "x2", "x5")),
        forbidden=frozenset({("x0", "x1"), ("x1", "x0")}),
        required=frozenset({("x3", "x5")}),
    )
    found = search(noisy, knowledge)
    assert (3, 5) in found
    assert all(knowledge.allows(f"x{cause}", f"x{effect}") for cause, effect in found)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_columns_does_not_matter(seed: int) -> None:
    noisy = draw_noisy(6, seed, 0.003)
    order = np.random.default_rng(seed).permutation(6)
    moved = noisy_of(noisy.matrix[np.ix_(order, order)], 0.003)
    assert {(int(order[a]), int(order[b])) for a, b in search(moved)} == search(noisy)


@pytest.mark.parametrize(("deviation", "n_rows"), [(0.05, 1e5), (1e-4, 1e4), (0.01, 1e4)])
def test_independent_columns_stay_apart(deviation: float, n_rows: float) -> None:
    false = 0
    for seed in range(20):
        noisy = noisy_of(np.eye(10), deviation, n_rows).redraw(np.random.default_rng(seed))
        false += bool(search(noisy))
    assert false <= 3  # tables with any false edge; about 1 at a level of 0.05


def test_garbage_gives_some_dag() -> None:
    for seed in range(10):
        gauss = np.random.default_rng(seed).standard_normal((5, 5))
        noisy = noisy_of(gauss + gauss.T, 2.0, 50.0)
        np.fill_diagonal(noisy.matrix, np.maximum(np.diag(noisy.matrix), 3.0))
        graph = np.zeros((5, 5), dtype=bool)
        for edge in search(noisy):
            graph[edge] = True
        assert is_acyclic(graph)
