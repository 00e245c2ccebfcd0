from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data import products
from dagveil.data.column import Categorical
from dagveil.data.distinct import WeightedRows
from dagveil.data.memory import MemoryTable
from dagveil.data.products import FEWEST_PAIRS, MOST_INDICATORS, count_pairs, pays
from dagveil.data.schema import Schema
from dagveil.errors import SchemaError

NAMES = tuple("abcdefghijkl")
LEVELS = {name: 1 + position % 4 for position, name in enumerate(NAMES)}


def make_table(n_rows: int, seed: int) -> tuple[MemoryTable, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, LEVELS[name], n_rows) for name in NAMES}
    columns = {name: Categorical(tuple(f"l{k}" for k in range(LEVELS[name])), "l0") for name in NAMES}
    return MemoryTable.from_codes(codes, Schema(dataset="t", columns=columns, reviewed=True)), codes


@pytest.mark.parametrize(("n_rows", "repeat"), [(0, 1), (1, 1), (9000, 1), (300, 40)])
def test_one_product_equals_counting_by_hand(n_rows, repeat):
    table, codes = make_table(n_rows, 3)
    if repeat > 1:  # repeated rows are kept once, with a weight
        codes = {name: np.tile(code, repeat) for name, code in codes.items()}
        table = MemoryTable.from_codes(codes, table.schema)
    pairs = [*combinations(NAMES, 2), ("c", "a")]
    assert pays(pairs, LEVELS, n_rows)
    for (first, second), counts in zip(pairs, table.counts_many(pairs), strict=True):
        slow = np.zeros((LEVELS[first], LEVELS[second]), dtype=np.int64)
        np.add.at(slow, (codes[first], codes[second]), 1)
        np.testing.assert_array_equal(counts, slow)
        assert counts.dtype == np.int64


def test_it_is_left_alone_where_it_does_not_pay():
    pairs = list(combinations(NAMES, 2))
    assert not pays(pairs[: FEWEST_PAIRS - 1], LEVELS, 10)
    assert not pays([*pairs, ("a", "b", "c")], LEVELS, 10)
    assert not pays(pairs, dict.fromkeys(NAMES, 40), 10**7)
    assert not pays(pairs, dict.fromkeys(NAMES, MOST_INDICATORS), 10)


def count_slowly(rows, first, second, levels):
    slow = np.zeros((levels[first], levels[second]), dtype=np.int64)
    weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
    np.add.at(slow, (rows.codes[first], rows.codes[second]), weights.astype(np.int64))
    return slow


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.integers(0, 60),
    st.sampled_from([None, 1, 2**23, 2**40]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_tables_are_exact_whatever_rows_weigh(sizes, n_rows, heaviest, seed):
    rng = np.random.default_rng(seed)
    levels = {NAMES[k]: size for k, size in enumerate(sizes)}
    codes = {name: rng.integers(0, size, n_rows).astype(np.uint8) for name, size in levels.items()}
    weights = None if heaviest is None else rng.integers(1, heaviest, n_rows, endpoint=True).astype(np.float64)
    rows = WeightedRows(codes=codes, weights=weights, n_rows=n_rows)
    tables = count_pairs(rows, levels)
    for first, second in permutations(levels, 2):
        np.testing.assert_array_equal(tables.table(first, second), count_slowly(rows, first, second, levels))


@pytest.mark.parametrize(("block_words", "most_indicators"), [(1, 400), (2**17, 0)])
@pytest.mark.parametrize("n_rows", [1, 64, 1024, 5003])
def test_blocks_and_floating_point_give_the_same_tables(monkeypatch, block_words, most_indicators, n_rows):
    """Bits in many blocks, the last one not full, and products of floats in place of bits."""
    monkeypatch.setattr(products, "_BLOCK_WORDS", block_words)
    monkeypatch.setattr(products, "_MOST_BIT_INDICATORS", most_indicators)
    rng = np.random.default_rng(n_rows)
    codes = {name: rng.integers(0, size, n_rows).astype(np.uint8) for name, size in LEVELS.items()}
    rows = WeightedRows(codes=codes, weights=None, n_rows=n_rows)
    tables = count_pairs(rows, LEVELS)
    for first, second in permutations(NAMES[:5], 2):
        np.testing.assert_array_equal(tables.table(first, second), count_slowly(rows, first, second, LEVELS))


def test_what_was_counted_serves_later_questions():
    table, _ = make_table(5000, 5)
    pairs = list(combinations(NAMES, 2))
    fresh = make_table(5000, 5)[0]
    table.counts_many(pairs)
    few = [("b", "h"), ("l", "a")]
    for held, counted in zip(table.counts_many(few), fresh.counts_many(few), strict=True):
        np.testing.assert_array_equal(held, counted)
    held = table.counts_many(few)
    held[0][:] = -1  # an answer is the asker's own
    assert (table.counts_many(few)[0] >= 0).all()


def test_pairs_of_some_columns_then_of_others():
    table, codes = make_table(3000, 6)
    some, all_pairs = list(combinations(NAMES[:11], 2)), list(combinations(NAMES, 2))
    table.counts_many(some)
    for (first, second), counts in zip(all_pairs, table.counts_many(all_pairs), strict=True):
        slow = np.zeros((LEVELS[first], LEVELS[second]), dtype=np.int64)
        np.add.at(slow, (codes[first], codes[second]), 1)
        np.testing.assert_array_equal(counts, slow)


def test_bad_questions_are_refused_though_pairs_are_held():
    table, _ = make_table(5000, 5)
    table.counts_many(list(combinations(NAMES, 2)))
    for wrong in [("a", "a")], [("a", "nobody")], ["ab"]:
        with pytest.raises(SchemaError):
            table.counts_many(wrong)
