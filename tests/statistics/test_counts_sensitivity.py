"""Declared sensitivities of counts against every pair of neighbours of a small domain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Relation
from dagveil.statistics.contingency import (
    centre_counts,
    changed_cells,
    counts_sensitivity,
    counts_squared_sensitivity,
    interactions_squared_sensitivity,
    margins_squared_sensitivity,
    split_cliques,
)

LEVELS = {"a": 2, "b": 3, "c": 2}
RECORDS = list(product(*(range(count) for count in LEVELS.values())))
MOST_ROWS = 3

QUESTIONS = {
    "one column": [("a",)],
    "pairs": [("a", "b"), ("a", "c"), ("b", "c")],
    "a pair twice": [("a", "b"), ("b", "a")],
    "pairs and the triple": [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")],
    "everything": [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("c", "b", "a")],
}


def all_tables(most_rows: int) -> list[tuple[int, ...]]:
    """Every table of up to so many rows, as the sorted positions of its records."""
    return [rows for n in range(most_rows + 1) for rows in combinations_with_replacement(range(len(RECORDS)), n)]


def all_neighbours(relation: Relation) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every pair of neighbours of the domain; each unordered pair of tables once or twice."""
    tables = all_tables(MOST_ROWS)
    pairs = []
    for rows in tables:
        if relation is Relation.ADD_REMOVE and len(rows) < MOST_ROWS:
            pairs += [(rows, tuple(sorted((*rows, record)))) for record in range(len(RECORDS))]
        if relation is Relation.REPLACE_ONE:
            for gone in set(rows):
                left = list((Counter(rows) - Counter([gone])).elements())
                pairs += [(rows, tuple(sorted((*left, record)))) for record in range(len(RECORDS)) if record != gone]
    return pairs


@pytest.fixture(scope="module")
def answers(make_schema: Callable[..., Schema]) -> dict[str, dict[tuple[int, ...], np.ndarray]]:
    """The real engine's answers to each question, for every table."""
    schema = make_schema(LEVELS)
    found: dict[str, dict[tuple[int, ...], np.ndarray]] = {name: {} for name in QUESTIONS}
    for rows in all_tables(MOST_ROWS):
        matrix = np.array([RECORDS[row] for row in rows], dtype=int).reshape(len(rows), len(LEVELS))
        table = MemoryTable.from_codes(dict(zip(LEVELS, matrix.T, strict=True)), schema)
        for name, sets in QUESTIONS.items():
            found[name][rows] = np.concatenate([counts.reshape(-1) for counts in table.counts_many(sets)])
    return found


@pytest.mark.parametrize("lattice", [1, 64])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("relation", Relation)
def test_the_largest_change_is_the_declared_one(
    answers: dict[str, dict[tuple[int, ...], np.ndarray]], relation: Relation, question: str, lattice: int
) -> None:
    counts = answers[question]
    changes = [lattice * (counts[one] - counts[other]) for one, other in all_neighbours(relation)]
    n_tables = len(QUESTIONS[question])
    assert max(int(change @ change) for change in changes) == counts_squared_sensitivity(relation, n_tables, lattice)
    assert max(int(np.count_nonzero(change)) for change in changes) == changed_cells(relation, n_tables)
    assert max(int(np.abs(change).sum()) for change in changes) == lattice * counts_sensitivity(relation, n_tables)


def test_the_number_of_rows_moves_by_one_or_not_at_all(answers: dict[str, dict[tuple[int, ...], np.ndarray]]) -> None:
    added = {len(two) - len(one) for one, two in all_neighbours(Relation.ADD_REMOVE)}
    replaced = {len(two) - len(one) for one, two in all_neighbours(Relation.REPLACE_ONE)}
    assert added == {1}
    assert replaced == {0}
    assert counts_squared_sensitivity(Relation.ADD_REMOVE, 1) == 1
    assert counts_squared_sensitivity(Relation.REPLACE_ONE, 1) >= 0


@pytest.mark.parametrize("relation", Relation)
def test_counts_by_magnitude_move_like_tables(relation: Relation) -> None:
    schema = Schema(dataset="sizes", columns={name: Numeric(bounds=(-100, 100)) for name in "xy"}, reviewed=True)
    values = [-100.0, -1.0, 0.0, 0.3, 7.0, np.nan, np.inf]
    records = list(product(values, repeat=2))
    exponents = range(-3, 6)

    def count(rows: list[tuple[float, float]]) -> np.ndarray:
        source = {name: np.array([row[k] for row in rows]) for k, name in enumerate("xy")}
        table = MemoryTable.from_source(source, schema)
        return np.concatenate([table.magnitude_counts(name, 0.5, exponents) for name in "xy"])

    single = [count([record]) for record in records]
    nothing = [np.zeros_like(single[0])]
    others = nothing if relation is Relation.ADD_REMOVE else single
    changes = [one - other for one, other in product(single, others)]
    assert max(int(change @ change) for change in changes) == counts_squared_sensitivity(relation, 2)
    # counts of several rows are sums of counts of single rows, so single rows tell all
    np.testing.assert_array_equal(count(records), np.sum(single, axis=0))


def test_sensitivities_are_exact_fractions() -> None:
    for relation in Relation:
        value = counts_squared_sensitivity(relation, 3, 1024)
        assert isinstance(value, Fraction)
        assert value == counts_squared_sensitivity(relation, 3) * 1024**2


def largest_change(relation: Relation, column_sets: list[tuple[str, ...]], levels: dict[str, int]) -> Fraction:
    """Largest squared change of centred tables, in counts, over every record and every replacement.

    Centring is linear, so the change does not depend on the other records.
    """
    place = {name: position for position, name in enumerate(levels)}
    shapes = [tuple(levels[name] for name in columns) for columns in column_sets]
    scale = np.lcm.reduce([math.prod(shape) for shape in shapes])

    def centred(record: tuple[int, ...]) -> np.ndarray:
        found = []
        for columns, shape in zip(column_sets, shapes, strict=True):
            one = np.zeros(shape, dtype=np.int64)
            one[tuple(record[place[name]] for name in columns)] = 1
            found.append(centre_counts(one[None]).reshape(-1) * (scale // math.prod(shape)))
        return np.concatenate(found)

    single = np.array([centred(record) for record in product(*(range(count) for count in levels.values()))])
    others = np.zeros_like(single[:1]) if relation is Relation.ADD_REMOVE else single
    return Fraction(int(max(((single - other) ** 2).sum(axis=1).max() for other in others)), int(scale) ** 2)


@pytest.mark.parametrize(
    "counts", [(1, 1), (1, 4), (2, 2), (2, 3), (3, 3), (5, 7), (2,) * 6, (2, 2, 3, 4), (3, 3, 1, 2)]
)
@pytest.mark.parametrize("relation", Relation)
def test_all_pairs_of_some_columns_move_exactly_as_declared(relation: Relation, counts: tuple[int, ...]) -> None:
    """So a bound 10 % smaller, or smaller at all, would be refuted."""
    levels = {f"c{place}": count for place, count in enumerate(counts)}
    pairs = list(combinations(levels, 2))
    assert interactions_squared_sensitivity(relation, pairs, levels) == largest_change(relation, pairs, levels)


@pytest.mark.parametrize("counts", [(2, 2, 2, 2), (2, 3, 2, 4), (3, 3, 3, 3), (1, 2, 2, 3)])
@pytest.mark.parametrize("relation", Relation)
def test_no_replacement_moves_any_set_of_pairs_further(relation: Relation, counts: tuple[int, ...]) -> None:
    """Every set of pairs of four columns, against every replacement of a record."""
    levels = dict(zip("abcd", counts, strict=True))
    for chosen in product([False, True], repeat=6):
        pairs = [pair for pair, taken in zip(combinations(levels, 2), chosen, strict=True) if taken]
        if not pairs:
            continue
        declared = interactions_squared_sensitivity(relation, pairs, levels)
        largest = largest_change(relation, pairs, levels)
        alone = sum(interactions_squared_sensitivity(relation, [pair], levels) for pair in pairs)
        assert largest <= declared <= alone
        # four columns have few cycles that are no cliques
        assert largest >= Fraction(9, 10) * declared or len(pairs) in (4, 5)
        # no order of names or of pairs changes what neighbours can do
        turned = [(b, a) for a, b in reversed(pairs)]
        assert largest <= interactions_squared_sensitivity(relation, turned, levels) <= alone


@pytest.mark.parametrize("counts", [(2, 2, 2), (2, 3, 5), (3, 3, 3), (1, 2, 2), (4, 2, 3)])
@pytest.mark.parametrize("relation", Relation)
def test_one_triple_moves_exactly_as_declared(relation: Relation, counts: tuple[int, ...]) -> None:
    levels = dict(zip("abc", counts, strict=True))
    triple = [("a", "b", "c")]
    assert interactions_squared_sensitivity(relation, triple, levels) == largest_change(relation, triple, levels)


@pytest.mark.parametrize("relation", Relation)
def test_no_neighbour_moves_pairs_and_triples_further(relation: Relation) -> None:
    rng = np.random.default_rng(7)
    for _ in range(40):
        levels = {name: int(rng.integers(1, 4)) for name in "abcde"}
        sets = [one for size in (2, 3) for one in combinations(levels, size) if rng.random() < 0.5]
        if not sets:
            continue
        declared = interactions_squared_sensitivity(relation, sets, levels)
        largest = largest_change(relation, sets, levels)
        assert largest <= declared
        assert relation is Relation.REPLACE_ONE or largest == declared


@pytest.mark.parametrize("counts", [(1,), (2,), (2, 2, 2), (3, 1, 4), (2, 3, 5)])
@pytest.mark.parametrize("relation", Relation)
def test_rows_and_centred_margins_move_exactly_as_declared(relation: Relation, counts: tuple[int, ...]) -> None:
    """Every record and every replacement: so a bound 10 % smaller, or smaller at all, would be refuted."""
    scale = int(np.lcm.reduce(counts))

    def measure(record: tuple[int, ...]) -> np.ndarray:
        one_hot = [np.eye(count, dtype=np.int64)[level] for count, level in zip(counts, record, strict=True)]
        margins = [centre_counts(one[None])[0] * (scale // len(one)) for one in one_hot]
        return np.concatenate([[scale], *margins])

    single = [measure(record) for record in product(*map(range, counts))]
    others = [np.zeros_like(single[0])] if relation is Relation.ADD_REMOVE else single
    largest = max(int(((one - other) ** 2).sum()) for one in single for other in others)
    assert Fraction(largest, scale**2) == margins_squared_sensitivity(relation, counts)


def test_margins_as_one_total_and_contrasts_need_less_noise() -> None:
    """Deviation of d one-way tables over that of one total and d centred tables: docs/proofs/counts.md has this."""
    gains = {
        d: round(float(d / margins_squared_sensitivity(Relation.ADD_REMOVE, [2] * d)) ** 0.5, 2) for d in (8, 20, 100)
    }
    assert gains == {8: 1.26, 20: 1.35, 100: 1.4}


def test_larger_sets_of_pairs_of_yes_no_columns_stay_above_their_largest_cut() -> None:
    rng = np.random.default_rng(5)
    for trial in range(30):
        d = int(rng.integers(5, 9))
        levels = {f"c{place}": 2 for place in range(d)}
        pairs = [pair for pair in combinations(levels, 2) if rng.random() < (0.3, 0.6, 0.9)[trial % 3]]
        if trial % 4 == 0:
            pairs += [(b, a) for a, b in pairs[::2]]  # asked for twice, in the other order
        if not pairs:
            continue
        declared = interactions_squared_sensitivity(Relation.REPLACE_ONE, pairs, levels)
        largest = largest_change(Relation.REPLACE_ONE, pairs, levels)
        assert largest <= declared <= len(pairs)
        assert declared <= Fraction(8, 7) * largest


def test_pairs_split_into_cliques() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        names = list("abcdefghijkl"[: int(rng.integers(2, 13))])
        pairs = {pair for pair in combinations(names, 2) if rng.random() < 0.6}
        partners = {
            name: sum(1 << k for k, other in enumerate(names) if {(name, other), (other, name)} & pairs)
            for name in names
        }
        found = [tuple(sorted(pair)) for clique in split_cliques(partners) for pair in combinations(clique, 2)]
        assert sorted(found) == sorted(pairs)


def test_the_price_of_all_pairs_no_longer_adds_up_what_cannot_come_together() -> None:
    """Deviation of the noise before and after, for d columns of r levels: docs/proofs/counts.md has this table."""
    gains = {}
    for r, d in ((2, 3), (2, 8), (2, 20), (3, 8), (4, 8)):
        levels = {f"c{place}": r for place in range(d)}
        pairs = list(combinations(levels, 2))
        before = len(pairs) * interactions_squared_sensitivity(Relation.REPLACE_ONE, pairs[:1], levels)
        gains[r, d] = round(
            float(before / interactions_squared_sensitivity(Relation.REPLACE_ONE, pairs, levels)) ** 0.5, 2
        )
    assert gains == {(2, 3): 1.22, (2, 8): 1.32, (2, 20): 1.38, (3, 8): 1.18, (4, 8): 1.13}


def test_centring_takes_out_exactly_the_margins() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        shape = tuple(rng.integers(1, 6, 2))
        counts = rng.integers(0, 50, shape)
        centred = centre_counts(counts[None])[0]
        left = shape[0] * np.eye(shape[0], dtype=int) - 1
        right = shape[1] * np.eye(shape[1], dtype=int) - 1
        np.testing.assert_array_equal(centred, left @ counts @ right)
        assert not centred.sum(axis=0).any()
        assert not centred.sum(axis=1).any()
        # whatever depends on one column alone leaves no trace
        flat = counts + rng.integers(0, 9, (shape[0], 1)) + rng.integers(0, 9, (1, shape[1]))
        np.testing.assert_array_equal(centre_counts(flat[None])[0], centred)
