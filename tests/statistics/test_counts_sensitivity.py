"""Declared sensitivities of counts against every pair of neighbours of a small domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import (
    centre_counts,
    changed_cells,
    counts_sensitivity,
    counts_squared_sensitivity,
    interaction_squared_sensitivity,
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


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 2), (2, 3), (3, 3), (4, 2), (5, 7)])
@pytest.mark.parametrize("relation", Relation)
def test_no_record_moves_an_interaction_further(relation: Relation, shape: tuple[int, int]) -> None:
    """Centring is linear, so the change of a table does not depend on the other records: all changes can be listed."""
    cells = []
    for i, j in product(range(shape[0]), range(shape[1])):
        one = np.zeros(shape, dtype=np.int64)
        one[i, j] = 1
        cells.append(centre_counts(one))
    changes = cells if relation is Relation.ADD_REMOVE else [a - b for a in cells for b in cells]
    largest = max(int((change**2).sum()) for change in changes)
    declared = interaction_squared_sensitivity(relation, shape)
    assert largest == declared
    assert declared == 0 or largest > 0.9 * declared  # a bound 10 % smaller would be refuted


def test_centring_takes_out_exactly_the_margins() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        shape = tuple(rng.integers(1, 6, 2))
        counts = rng.integers(0, 50, shape)
        centred = centre_counts(counts)
        left = shape[0] * np.eye(shape[0], dtype=int) - 1
        right = shape[1] * np.eye(shape[1], dtype=int) - 1
        np.testing.assert_array_equal(centred, left @ counts @ right)
        assert not centred.sum(axis=0).any()
        assert not centred.sum(axis=1).any()
        # whatever depends on one column alone leaves no trace
        flat = counts + rng.integers(0, 9, (shape[0], 1)) + rng.integers(0, 9, (1, shape[1]))
        np.testing.assert_array_equal(centre_counts(flat), centred)
