"""Levelled rows: always the same number of slots, and neighbours differ in one slot only."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.selection import MOST_SLOTS, fill_slots, scale_to_unit
from dagveil.errors import DataError, SchemaError

COLUMNS: dict[str, Column] = {
    "dose": Numeric(bounds=(0, 8)),
    "colour": Categorical(levels=("red", "blue", "green"), outside="red", scores=(0.0, 1.0, 10.0)),
    "smokes": Boolean(outside="false"),
}
LEVELS: dict[str, Column] = {name: column for name, column in COLUMNS.items() if name != "dose"}

doses = st.sampled_from([0.0, 8.0, 3.5, -1e300, math.inf, math.nan, 5e-324]) | st.floats(-10, 20)
records = st.tuples(doses, st.sampled_from(["red", "blue", "green", "?"]), st.booleans())


def make_table(rows: list[tuple[Any, ...]], columns: dict[str, Column] = COLUMNS) -> MemoryTable:
    names = list(COLUMNS)
    source = {name: np.array([row[names.index(name)] for row in rows]) for name in columns}
    return MemoryTable.from_source(source, Schema(dataset="d", columns=columns, reviewed=True))


def slots_of(table: MemoryTable, slots: int) -> Counter[tuple[float, ...]]:
    levelled = table.levelled_rows(list(table.schema.columns), slots)
    assert levelled.shape == (slots, len(table.schema.columns))
    assert np.abs(levelled).max() <= 1.0
    return Counter(map(tuple, levelled.tolist()))


def distance(first: Counter[tuple[float, ...]], second: Counter[tuple[float, ...]]) -> int:
    return sum((first - second).values())


@given(
    st.lists(records, min_size=1, max_size=12),
    records,
    st.integers(1, 14),
    st.integers(0, 100),
    st.sampled_from(["add", "remove", "replace"]),
    st.sampled_from([COLUMNS, LEVELS]),
)
@settings(max_examples=300, deadline=None)
def test_neighbours_differ_in_one_slot(
    rows: list[tuple[Any, ...]],
    record: tuple[Any, ...],
    slots: int,
    place: int,
    change: str,
    columns: dict[str, Column],
) -> None:
    other = list(rows)
    if change == "add":
        other.insert(place % (len(rows) + 1), record)
    elif change == "replace":
        other[place % len(rows)] = record
    elif len(rows) > 1:
        del other[place % len(rows)]
    assert distance(slots_of(make_table(rows, columns), slots), slots_of(make_table(other, columns), slots)) <= 1


def test_counting_and_shuffling_change_no_slot() -> None:
    """Counting reduces rows to distinct ones, and a source may be read in any order: the slots stay as they are."""
    rows = [(0.0, colour, smokes) for colour, smokes in itertools.product(("green", "blue"), (True, False))] * 300
    wanted = make_table(rows, LEVELS).levelled_rows(["colour", "smokes"], 30).tolist()
    table = make_table([rows[place] for place in np.random.default_rng(0).permutation(len(rows))], LEVELS)
    assert table.levelled_rows(["colour", "smokes"], 30).tolist() == wanted
    table.counts(["colour"])
    table.split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))
    assert table.levelled_rows(["colour", "smokes"], 30).tolist() == wanted
    # questions about other columns see the same records
    assert table.levelled_rows(["smokes"], 30)[:, 0].tolist() == [row[1] for row in wanted]


def test_rows_come_first_and_filler_after() -> None:
    table = make_table([(0.0, "red", False), (8.0, "green", True), (2.0, "blue", True)])
    levelled = table.levelled_rows(["smokes", "dose"], 6)
    assert sorted(levelled[:3].tolist()) == [[-1.0, -1.0], [1.0, -0.5], [1.0, 1.0]]
    assert levelled[3:, 0].tolist() == fill_slots("smokes", range(3, 6)).tolist()
    assert levelled[3:, 1].tolist() == fill_slots("dose", range(3, 6)).tolist()


def test_filler_is_uniform_and_independent_between_columns() -> None:
    n = 20_000
    x, y = fill_slots("x", range(n)), fill_slots("y", range(n))
    for filler in (x, y):
        counts = np.histogram(filler, bins=20, range=(-1, 1))[0]
        # 19 degrees of freedom: above 60 with probability 4e-6; the sequence is fixed, so this never flickers
        assert ((counts - n / 20) ** 2 / (n / 20)).sum() < 60
        assert abs(np.corrcoef(filler[1:], filler[:-1])[0, 1]) < 4 / math.sqrt(n)
    for power in (1, 2):
        assert abs(np.corrcoef(x**power, y**power)[0, 1]) < 4 / math.sqrt(n)


def test_scales() -> None:
    wide = Numeric(bounds=(-1.7e308, 1.7e308))
    assert scale_to_unit(np.array([-math.inf, math.nan, 1.7e308]), wide).tolist() == [-1.0, 0.0, 1.0]
    assert scale_to_unit(np.zeros(2), Categorical(levels=("one",), outside="one")).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("slots", [0, -1, MOST_SLOTS + 1])
def test_useless_numbers_of_slots(slots: int) -> None:
    with pytest.raises(SchemaError, match="choose between 1 and"):
        make_table([(1.0, "red", True)]).levelled_rows(["dose"], slots)


def test_parts_and_unknown_columns_are_refused() -> None:
    table = make_table([(1.0, "red", True)] * 4)
    part = table.thin(lambda n_rows: np.ones(n_rows, dtype=np.bool_))
    with pytest.raises(DataError, match="ask the whole table"):
        part.levelled_rows(["smokes"], 2)
    with pytest.raises(SchemaError, match="has no column 'age'"):
        table.levelled_rows(["age"], 2)
