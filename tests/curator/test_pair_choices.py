"""Choices of pairs: no neighbour moves a score by more than a record, and choices have their law."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from operator import mul

import numpy as np
import pytest
from spies import SpyRun, make_schema

from dagveil.curator import Curator
from dagveil.curator.pair_choices import Expectation, Forest, distances_in_records
from dagveil.curator.questions import RECORD
from dagveil.data.memory import MemoryTable
from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import ExponentialChoice, GaussianFilter, gaussian_cost, pure_cost, zcdp_cost
from dagveil.privacy.mechanisms.exponential import choose_in_turn
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.contingency import centre_counts, interactions_squared_sensitivity

NEIGHBOURS = 4000


def expect(centre: np.ndarray, moves: tuple[np.ndarray, ...] = (), slack: float = 0.0) -> Expectation:
    """Expect something of one pair."""
    return Expectation([0], centre[None], tuple(move[None] for move in moves), np.array([slack]))


def distance_in_records(exact: np.ndarray, expected: Expectation, squared_sensitivity: Fraction) -> int:
    (score,) = distances_in_records(exact[None], expected, squared_sensitivity)
    return score


def distance_in_fractions(exact: np.ndarray, expected: Expectation, squared_sensitivity: Fraction) -> int:
    """Return the score of one pair as docs/proofs/pair-choices.md writes it, in fractions: the twin of the vectors."""
    centre, *moves = (
        [round(value) for value in (table[0] * exact.size).reshape(-1).tolist()]
        for table in (expected.centre, *expected.moves)
    )
    beyond = [value - public for value, public in zip(exact.reshape(-1).tolist(), centre, strict=True)]
    own = sum(value**2 for value in beyond)
    best = Fraction(own)
    for step in moves:
        along = sum(map(mul, beyond, step))
        length = sum(map(mul, step, step))
        if along > 0:
            best = min(
                best, Fraction(own - 2 * along + length) if along >= length else own - Fraction(along**2, length)
            )
    scaled = best * RECORD**2 / (exact.size**2 * squared_sensitivity)
    slack = float(expected.slack[0]) / math.sqrt(squared_sensitivity)
    return math.isqrt(math.floor(scaled)) - math.floor(slack * RECORD)


def random_expectation(rng: np.random.Generator, shape: tuple[int, int], rows: float) -> Expectation:
    centre, *moves = (_centred(rng.normal(0.0, rows / 5, shape)) for _ in range(1 + int(rng.integers(0, 3))))
    return expect(centre, tuple(moves), float(rng.random() * rows**0.5))


def _centred(table: np.ndarray) -> np.ndarray:
    table = table - table.mean(axis=0)
    return table - table.mean(axis=1, keepdims=True)


def largest_move(relation: Relation, shrunk: Fraction, seed: int) -> float:
    """Largest change of a score, in records, over random tables, expectations and neighbours; near ones included."""
    rng = np.random.default_rng(seed)
    largest = 0.0
    for _ in range(NEIGHBOURS):
        shape = (int(rng.integers(1, 5)), int(rng.integers(2, 5)))
        counts = rng.integers(0, int(rng.choice([2, 10, 1000])), shape)
        other = counts.copy()
        added, removed = (tuple(rng.integers(0, shape)) for _ in range(2))
        other[added] += 1
        if relation is Relation.REPLACE_ONE:
            counts[removed] += 1
        sensitivity = interactions_squared_sensitivity(relation, [("a", "b")], {"a": shape[0], "b": shape[1]})
        expected = random_expectation(rng, shape, float(counts.sum()) + 1.0)
        if rng.random() < 0.5:  # expect the table itself, so that all of a neighbour's move shows
            expected = replace(expected, centre=_centred(counts.astype(float))[None])
        if not sensitivity:
            continue
        first, second = (
            distance_in_records(centre_counts(table[None])[0], expected, sensitivity * shrunk)
            for table in (counts, other)
        )
        largest = max(largest, abs(first - second) / RECORD)
    return largest


@pytest.mark.parametrize("relation", Relation)
def test_no_neighbour_moves_a_score_by_more_than_a_record(relation: Relation) -> None:
    found = largest_move(relation, Fraction(1), 1)
    assert 0.98 < found <= 1.0


@pytest.mark.parametrize("relation", Relation)
def test_a_sensitivity_too_small_by_a_tenth_is_caught(relation: Relation) -> None:
    assert largest_move(relation, Fraction(81, 100), 1) > 1.05


def test_a_distance_is_that_to_the_nearest_segment() -> None:
    table = np.array([[3, -3], [-3, 3]], dtype=np.int64) * 4  # 3 counts in each cell, in the unit of a quarter
    cross = np.array([[1.0, -1.0], [-1.0, 1.0]])
    nothing, some, all_of_it, beyond = (0.0, 2.0, 3.0, 8.0)

    def distance(*moves: float) -> float:
        steps = tuple(move * cross for move in moves)
        return distance_in_records(table, expect(np.zeros((2, 2)), steps), Fraction(1)) / RECORD

    assert distance() == distance(nothing) == distance(-1.0) == 6.0
    assert distance(some) == 2.0
    assert distance(all_of_it) == distance(beyond) == 0.0
    assert distance(some, beyond) == 0.0
    across = distance_in_records(table, expect(np.zeros((2, 2)), (np.array([[4.0, 0.0], [0.0, 0.0]]),)), Fraction(1))
    assert across == math.isqrt(27 * RECORD**2)


def test_pairs_that_close_a_circle_are_not_allowed() -> None:
    pairs = list(combinations("abcd", 2))
    forest = Forest(pairs)  # ab, ac, ad, bc, bd, cd
    assert forest.allowed([]).tolist() == list(range(6))
    assert [pairs[i] for i in forest.allowed([0, 3])] == [("a", "d"), ("b", "d"), ("c", "d")]
    assert forest.allowed([0, 5, 2]).tolist() == []


@pytest.mark.parametrize("rows", [3, 1000, 10**5, 10**9, 10**17])
def test_scores_in_vectors_are_those_in_fractions(rows: int) -> None:
    rng = np.random.default_rng(rows)
    for _ in range(60):
        shape = (int(rng.integers(1, 5)), int(rng.integers(2, 12)))
        pairs = int(rng.integers(1, 6))
        exact = centre_counts(rng.integers(0, rows, (pairs, *shape)) // 1000 * int(rng.choice([1, 1000])))
        alone = [random_expectation(rng, shape, float(rows)) for _ in range(pairs)]
        models = min(len(one.moves) for one in alone)
        together = Expectation(
            range(pairs),
            np.concatenate([one.centre for one in alone]),
            tuple(np.concatenate([one.moves[k] for one in alone]) for k in range(models)),
            np.concatenate([one.slack for one in alone]),
        )
        sensitivity = Fraction(int(rng.integers(1, 50)), int(rng.integers(1, 50)))
        assert distances_in_records(exact, together, sensitivity) == [
            distance_in_fractions(table, replace(one, moves=one.moves[:models]), sensitivity)
            for table, one in zip(exact, alone, strict=True)
        ]


def test_choices_in_turn_have_the_product_of_their_laws() -> None:
    scores, epsilon, draws = [0, 2, 3, 80], Fraction(1), 30_000
    noise = noise_source(NoiseKind.SEEDED, 4)
    found = dict.fromkeys(permutations(range(4), 2), 0)

    def allowed(chosen: object) -> list[int]:
        return [place for place in range(4) if place not in list(chosen)]  # type: ignore[call-overload]

    for _ in range(draws):
        first, second = choose_in_turn(scores, 1, epsilon, 2, allowed, noise, lambda event: None)
        found[first, second] += 1
    weights = np.exp([float(score) / 2 for score in scores])
    for (first, second), count in found.items():
        rest = sum(weight for place, weight in enumerate(weights) if place != first)
        expected = draws * weights[first] / weights.sum() * weights[second] / rest
        assert abs(count - expected) <= 5 * math.sqrt(expected) + 1


def test_a_round_costs_as_much_as_its_choices() -> None:
    one, many = ExponentialChoice("choice", Fraction(1, 3)), ExponentialChoice("choices", Fraction(1, 3), 7)
    for price in (pure_cost, zcdp_cost, gaussian_cost):
        alone, together = price(one), price(many)
        assert alone is not None
        assert together == 7 * alone


def open_small(epsilon: float = 1.0) -> tuple[Curator, list[tuple[str, str]], list[Expectation]]:
    schema = make_schema(a=2, b=3, c=2, d=2)
    rng = np.random.default_rng(2)
    codes = {name: rng.integers(0, column.n_levels, 2000) for name, column in schema.columns.items()}
    codes["c"] = codes["a"]
    table = MemoryTable.from_codes(codes, schema)
    accounting = GaussianFilter(Budget.of(epsilon, 1e-6))
    curator = Curator(table, Relation.ADD_REMOVE, accounting, SpyRun([]), noise_source(NoiseKind.SEEDED, 3))
    pairs = list(combinations(schema.columns, 2))
    shapes = {pair: tuple(schema.columns[name].n_levels for name in pair) for pair in pairs}
    return curator, pairs, [replace(expect(np.zeros(shapes[pair])), places=[i]) for i, pair in enumerate(pairs)]


def test_the_pair_that_depends_is_chosen_and_the_round_is_charged_once() -> None:
    curator, pairs, expected = open_small()
    chosen = curator.open_pairs(pairs).choose_forest(pairs, expected, 2, Fraction(1, 2), "choices")
    assert chosen[0] == ("a", "c")
    assert len(chosen) == 2
    (event,) = curator.events
    assert isinstance(event, ExponentialChoice)
    assert event.draws == 2
    price = gaussian_cost(event)
    assert price is not None
    assert Fraction(99, 100) / 2 < price / curator.accounting.total <= Fraction(1, 2)


def test_a_round_that_nothing_is_left_for_ends_early() -> None:
    curator, pairs, expected = open_small()
    chosen = curator.open_pairs(pairs).choose_forest(pairs, expected, 5, Fraction(1, 2), "choices")
    assert len(chosen) == 3  # a tree of four columns
    assert curator.events[0].draws == 5  # type: ignore[union-attr]


def test_what_cannot_be_chosen_is_refused_before_a_charge() -> None:
    curator, pairs, expected = open_small()
    with pytest.raises(BudgetError, match="not opened"):
        curator.open_pairs(pairs[:2]).choose_forest(pairs, expected, 1, Fraction(1, 2), "choices")
    choices = curator.open_pairs(pairs)
    choices.choose_forest(pairs, expected, 1, Fraction(2, 3), "choices")
    with pytest.raises(BudgetExceededError):
        choices.choose_forest(pairs, expected, 1, Fraction(2, 3), "choices")
    for wrong in (expected[1:], [*expected, expected[0]]):
        with pytest.raises(BudgetError, match="every pair, once"):
            choices.choose_forest(pairs, wrong, 1, Fraction(1, 10), "choices")
    assert len(curator.events) == 1


@pytest.mark.parametrize("centre", [np.full((2, 2), np.nan), np.full((2, 2), np.inf), np.zeros((3, 2, 2)), np.zeros(4)])
def test_an_expectation_that_is_no_table_of_numbers_is_refused(centre: np.ndarray) -> None:
    exact = np.zeros((2, 2), dtype=np.int64)
    with pytest.raises(BudgetError, match="in the shape"):
        distance_in_records(exact, expect(centre), Fraction(1, 4))
    with pytest.raises(BudgetError, match="in the shape"):
        distance_in_records(exact, expect(np.zeros((2, 2)), (centre,)), Fraction(1, 4))


def test_an_expectation_beyond_64_bits_moves_no_score_further() -> None:
    """Rounded into a machine word it would wrap around, and one record would move the score by thousands."""
    cross = np.array([[1.0, -1.0], [-1.0, 1.0]])
    expected = expect(3e18 * cross, (1000.0 * cross,))
    tables = np.array([[[0, 0], [0, 0]], [[0, 1], [0, 0]]])
    first, second = (
        distance_in_records(table, expected, Fraction(1, 4)) for table in centre_counts(tables.astype(np.int64))
    )
    assert abs(first - second) <= RECORD
