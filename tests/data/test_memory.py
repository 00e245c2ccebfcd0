from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_contract import TableContract

from dagveil.data.column import Categorical, Numeric
from dagveil.data.distinct import WeightedRows, _unpack_word, count_cells, mix_codes, shrink_rows
from dagveil.data.memory import MemoryTable
from dagveil.data.products import bundle_columns
from dagveil.data.schema import Schema
from dagveil.data.table import MAX_CELLS
from dagveil.errors import DataError, SchemaError


class TestMemoryTable(TableContract):
    def make(self, source: Any, schema: Schema) -> MemoryTable:
        return MemoryTable.from_source(source, schema)


def simulated(n_rows: int, sizes: list[int], skew: float = 3.0) -> tuple[dict[str, np.ndarray], Schema]:
    rng = np.random.default_rng(7)
    codes = {f"c{k}": (rng.random(n_rows) ** skew * size).astype(int) for k, size in enumerate(sizes)}
    columns = {f"c{k}": Categorical(tuple(f"v{i}" for i in range(size)), "v0") for k, size in enumerate(sizes)}
    return codes, Schema(dataset="simulated", columns=columns)


def brute(codes: dict[str, np.ndarray], columns: tuple[str, ...], schema: Schema) -> np.ndarray:
    counts = np.zeros([schema.columns[name].n_levels for name in columns], dtype=np.int64)
    np.add.at(counts, tuple(codes[name] for name in columns), 1)
    return counts


@pytest.mark.parametrize(
    ("sizes", "skew"),
    [
        ([2, 3, 4, 2], 3.0),  # few distinct rows: counted from multiplicities
        ([300, 2, 700], 1.0),  # codes of 16 bits, nearly all rows distinct: counted from the rows
        ([1, 1, 5], 1.0),  # constant columns
        ([1000] * 7, 40.0),  # 2**69 possible rows: two words, few distinct
        ([1000] * 14, 1.0),  # three words, all rows distinct
    ],
)
def test_large_tables_equal_brute_force(sizes: list[int], skew: float) -> None:
    codes, schema = simulated(20_000, sizes, skew)
    table = MemoryTable.from_codes(codes, schema)
    pairs = list(itertools.combinations(codes, 2))
    for pair, answer in zip(pairs, table.counts_many(pairs), strict=True):
        np.testing.assert_array_equal(answer, brute(codes, pair, schema))
        np.testing.assert_array_equal(table.counts(pair), answer)


@pytest.mark.parametrize("sizes", [[2, 3, 4, 2], [2] * 8, [1, 256], [300, 2, 40], [7, 50, 60, 70]])
def test_the_table_of_all_columns_equals_brute_force(sizes: list[int]) -> None:
    """It is counted without distinct rows, in whatever order of columns; the last has too many cells for that."""
    codes, schema = simulated(70_000, sizes)
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    rows = WeightedRows({name: array.astype(np.uint16) for name, array in codes.items()}, None, 70_000)
    assert (count_cells(rows, levels) is not None) is (math.prod(sizes) <= 2**18)
    for columns in (tuple(codes), tuple(reversed(codes))):
        table = MemoryTable.from_codes(codes, schema)
        (answer,) = table.counts_many([columns])
        np.testing.assert_array_equal(answer, brute(codes, columns, schema))
        assert table._distinct_rows().n_rows <= 70_000  # distinct rows are made later
        np.testing.assert_array_equal(table.counts_many([columns])[0], answer)
        np.testing.assert_array_equal(table.counts_many([columns, columns[:1]])[0], answer)


@pytest.mark.parametrize(
    "sizes", [[1, 256], [256, 1], [2] * 8, [1, 257], [1, 1, 2**16], [2**16, 1], [1, 2**16, 1], [2, 2**16]]
)
def test_mixed_codes_may_fill_their_type(sizes: list[int]) -> None:
    digits = [np.array([0, size - 1, size // 2], dtype=np.uint16) for size in sizes]
    places = [0, 0, 0]
    for size, digit in zip(sizes, digits, strict=True):
        places = [place * size + int(code) for place, code in zip(places, digit, strict=True)]
    assert mix_codes(digits, sizes).tolist() == places


def test_distinct_rows_are_kept_only_if_they_pay() -> None:
    for sizes, skew, pays in [([2, 3, 4, 2], 3.0, True), ([1000] * 7, 40.0, True), ([1000] * 7, 1.0, False)]:
        codes, schema = simulated(20_000, sizes, skew)
        rows = WeightedRows({name: array.astype(np.uint16) for name, array in codes.items()}, None, 20_000)
        small = shrink_rows(rows, {name: column.n_levels for name, column in schema.columns.items()})
        assert (small.weights is not None) is pays
        if pays:
            assert small.weights is not None
            assert small.weights.sum() == 20_000
            seen = set(zip(*(array.tolist() for array in small.codes.values()), strict=True))
            assert seen == set(zip(*(array.tolist() for array in codes.values()), strict=True))
            assert len(seen) == small.n_rows


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**6)), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_mixed_codes_are_row_major_positions(columns: list[tuple[int, int]]) -> None:
    sizes = [size for size, _ in columns]
    digits = [np.array([number % size], dtype=np.uint16) for size, number in columns]
    position = 0
    for size, digit in zip(sizes, digits, strict=True):
        position = position * size + int(digit[0])
    assert mix_codes(digits, sizes).tolist() == [position]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4), max_size=20),
    st.integers(0, 10**6),
)
def test_bundles_cover_every_question_once(questions: list[list[str]], n_rows: int) -> None:
    levels = {name: 3 + position for position, name in enumerate("abcdefgh")}
    bundles = bundle_columns(questions, levels, n_rows=n_rows)
    members = sorted(position for bundle in bundles for position in bundle.members)
    assert members == [position for position, columns in enumerate(questions) if columns]
    for bundle in bundles:
        cells = math.prod(levels[name] for name in bundle.columns)
        asked = [math.prod(levels[name] for name in questions[position]) for position in bundle.members]
        assert all(set(questions[position]) <= set(bundle.columns) for position in bundle.members)
        assert cells <= max([2**16, *asked])


def test_bundles_save_passes() -> None:
    names = [f"c{k}" for k in range(20)]
    assert len(bundle_columns(list(itertools.combinations(names, 2)), dict.fromkeys(names, 3), n_rows=10**6)) < 20


def test_a_table_that_is_too_large_is_refused_before_it_is_counted() -> None:
    codes, schema = simulated(10, [1000, 1000, 1000])
    with pytest.raises(SchemaError, match=f"limit is {MAX_CELLS}"):
        MemoryTable.from_codes(codes, schema).counts(["c0", "c1", "c2"])


def test_ready_codes_are_checked() -> None:
    codes, schema = simulated(10, [2, 2])
    for bad in (
        {"c0": codes["c0"]},
        {"c0": codes["c0"], "c1": codes["c1"][:5]},
        {"c0": codes["c0"], "c1": codes["c1"] + 2},
        {"c0": codes["c0"], "c1": codes["c1"] - 2},
    ):
        with pytest.raises(DataError, match="code"):
            MemoryTable.from_codes(bad, schema)
    numeric = Schema(dataset="n", columns={"x": Numeric(bounds=(0, 1))})
    with pytest.raises(DataError, match="from_source"):
        MemoryTable.from_codes({"x": np.zeros(3, int)}, numeric)


def test_nothing_of_the_rows_is_printed() -> None:
    codes, schema = simulated(12_345, [2, 2])
    assert repr(MemoryTable.from_codes(codes, schema)) == "MemoryTable(dataset='simulated', columns=2)"


@pytest.mark.parametrize("n_rows", [0, 1, 2**16 * 9 + 3])
def test_words_are_taken_apart_as_they_were_put_together(n_rows: int) -> None:
    """More levels than a narrow word holds, and one column that nearly fills one."""
    sizes = [5, 300, 2, 1, 1000, 7, 3, 256]
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, size, n_rows).astype(np.uint8 if size <= 256 else np.uint16) for size in sizes]
    for array, size in zip(codes, sizes, strict=True):
        array[:1] = size - 1
    found = _unpack_word(mix_codes(codes, sizes), sizes, [array.dtype for array in codes])
    assert all(np.array_equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(found, codes, strict=True))
