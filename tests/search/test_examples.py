"""Small examples of what the functions of search/ return."""

from __future__ import annotations

import math

import numpy as np

from dagveil.evidence.moments import NoisyCovariance
from dagveil.graphs.cpdag import list_bits
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.pc import prune
from dagveil.search.constraint.skeleton import count_discoveries, list_neighbours
from dagveil.search.score.ges import mask_of, places_of
from dagveil.search.score.linear import LinearScore, parents_of, polish, reachable
from dagveil.search.score.notears import (
    NotearsSettings,
    acyclic_threshold,
    exponentiate,
    find_weights,
    forbidden_entries,
    is_acyclic,
    measure_by_exponential,
    measure_by_log_determinant,
    measure_loss,
    minimise,
    pose,
    raise_eigenvalues,
    weights_to_dag,
)
from dagveil.search.score.operators import Pattern, find_parents


def test_prune() -> None:
    sweep = prune("abc", lambda question: question[:2] == ("a", "c"), 1, Knowledge.none())
    assert (sweep.skeleton.edges(), sweep.asked) == ([(0, 1), (1, 2)], (5, 2))


def test_list_neighbours() -> None:
    assert list_neighbours(np.array([[False, True], [True, False]])) == [[1], [0]]


def test_list_bits() -> None:
    assert list_bits(0b1101) == [0, 2, 3]


def test_count_discoveries() -> None:
    assert count_discoveries(np.array([[0.001, 0.2, 0.9]]), 0.1).tolist() == [1]


def test_measure_by_exponential() -> None:
    assert measure_by_exponential(np.array([[0.0, 3.0], [0.0, 0.0]]))[0] == 0.0


def test_measure_by_log_determinant() -> None:
    value, _ = measure_by_log_determinant(np.array([[0.0, 0.5], [0.5, 0.0]]))
    assert round(value, 6) == round(-math.log(1 - 0.0625), 6)


def test_exponentiate() -> None:
    assert exponentiate(np.array([[1.0]])).round(6).tolist() == [[1.718282]]


def test_places_of() -> None:
    assert places_of(0b1010, 4).tolist() == [1, 3]


def test_mask_of() -> None:
    assert mask_of(np.array([False, True, False, True])) == 10


def test_linear_score() -> None:
    noisy = NoisyCovariance(("a", "b"), np.array([[1.0, 0.5], [0.5, 1.0]]), 0.0, 1000.0, 0.0, np.zeros(2))
    score = LinearScore(noisy, np.zeros((2, 2)))
    assert (round(score.local(1, frozenset({0}))), round(score.local(0, frozenset({1})))) == (140, 140)


def test_parents_of() -> None:
    assert repr(parents_of(np.array([[False, True], [False, False]]), 1)) == "frozenset({0})"


def test_polish() -> None:
    noisy = NoisyCovariance(("a", "b"), np.array([[1.0, 0.5], [0.5, 1.0]]), 0.0, 1000.0, 0.0, np.zeros(2))
    nothing = np.zeros((2, 2), dtype=bool)
    assert (
        repr(polish(nothing, LinearScore(noisy, np.zeros((2, 2))), ~np.eye(2, dtype=bool), nothing).sum())
        == "np.int64(1)"
    )


def test_reachable() -> None:
    assert reachable(np.array([[False, True, False], [False, False, True], [False, False, False]]))[0].tolist() == [
        True,
        True,
        True,
    ]


def test_minimise() -> None:
    assert minimise(lambda x: (float((x - 3.0) @ (x - 3.0)), 2.0 * (x - 3.0)), np.zeros(2), 2.0).point.round(
        6
    ).tolist() == [2.0, 2.0]


def test_find_weights() -> None:
    covariance = np.array([[1.0, 2.0], [2.0, 5.0]])
    assert find_weights(covariance, NotearsSettings(penalty=0.0)).matrix.round(2).tolist() == [[0.0, 2.0], [0.0, 0.0]]


def test_forbidden_entries() -> None:
    assert forbidden_entries("ab", Knowledge(tiers=(("a",), ("b",)))).tolist() == [[True, False], [True, True]]


def test_raise_eigenvalues() -> None:
    assert raise_eigenvalues(np.diag([2.0, -1.0]), 0.5).tolist() == [[2.0, 0.0], [0.0, 0.5]]


def test_measure_loss() -> None:
    assert measure_loss(np.eye(2), np.zeros((2, 2)))[0] == 1.0


def test_pattern_of_parents() -> None:
    assert Pattern.of_parents([0, 0b1, 0b10]).flat == (2, 5, 2)
    assert Pattern.of_parents([0, 0, 0b11]).into == (0, 0, 3)


def test_find_parents() -> None:
    assert find_parents([0, 0b1, 0], [0, 0b100, 0b10]) == [0, 1, 2]


def test_weights_to_dag() -> None:
    assert weights_to_dag(np.array([[0.0, 0.9, 0.0], [0.4, 0.0, 0.5], [0.0, 0.2, 0.0]]), 0.3) == [(0, 1), (1, 2)]


def test_acyclic_threshold() -> None:
    assert acyclic_threshold(np.array([[0.0, 0.9], [0.4, 0.0]]), 0.3, np.zeros((2, 2), dtype=bool)) == 0.4


def test_is_acyclic() -> None:
    assert not (is_acyclic(np.array([[False, True], [True, False]])))


def test_pose() -> None:
    noisy = NoisyCovariance(("a", "b"), np.eye(2), 0.01, 1000.0, 0.0, np.zeros(2))
    problem = pose(noisy, np.ones(2))
    assert (round(problem.penalty, 3), round(problem.threshold, 3)) == (0.078, 0.05)
