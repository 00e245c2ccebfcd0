from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.products import FEWEST_PAIRS, MOST_WORK, pays
from dagveil.data.schema import Schema

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
    assert not pays(pairs, LEVELS, MOST_WORK)
