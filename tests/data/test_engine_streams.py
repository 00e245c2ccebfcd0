"""Tables whose rows arrive in batches answer as memory does, whatever the batches are."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_contract import LEVELS, EngineContract, list_answers, moment_plan, repeated_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from table_contract import SCHEMA, as_source, as_table

from dagveil.audit.sensitivity import ShuffledRows
from dagveil.data.column import Categorical, Numeric
from dagveil.data.distinct import Cube, WeightedRows
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.data.streams import ArrowRows, StreamedTable
from dagveil.errors import DataError, SchemaError


class TestSmallBatches(EngineContract):
    def make(self, source: Any, schema: Schema) -> StreamedTable:
        return StreamedTable(ArrowRows(source, most_rows=3 if source.num_rows < 100 else 700), schema)


class TestShuffled(EngineContract):
    """The rows come in another order, and in other batches, at every reading: answers and parts are memory's."""

    def make(self, source: Any, schema: Schema) -> StreamedTable:
        return StreamedTable(ShuffledRows(source, np.random.default_rng(7)), schema)


class TestNothingHeld(EngineContract):
    """The rows are shuffled, every count is a reading of them, and parts are on disk."""

    def make(self, source: Any, schema: Schema) -> StreamedTable:
        return StreamedTable(ShuffledRows(source, np.random.default_rng(7)), schema, held_bytes=0)

    def test_parts_equal_memory(self) -> None:
        pytest.skip("a position is one in a reading here: as random, but other rows than memory would choose")

    def test_a_table_with_repeated_rows_equals_memory(self) -> None:
        source = repeated_rows()
        assert list_answers(self.make(source, SCHEMA)) == list_answers(MemoryTable.from_source(source, SCHEMA))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=12), max_size=6),
    st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_a_cube_is_the_counted_set_of_rows(pieces: list[list[tuple[int, int]]], most: int) -> None:
    cube = Cube({"a": 5, "b": 3}, most)
    fits = True
    for piece in pieces:
        codes = {name: np.array([row[k] for row in piece], dtype=np.uint8) for k, name in enumerate("ab")}
        fits = cube.add(WeightedRows(codes, None, len(piece))) and fits
    wanted: dict[tuple[int, int], int] = {}
    for piece in pieces:
        for row in piece:
            wanted[row] = wanted.get(row, 0) + 1
    found = cube.rows()
    assert (found is not None) is (len(wanted) <= most)
    assert fits or found is None
    if found is not None:
        assert found.weights is not None
        rows = list(zip(found.codes["a"].tolist(), found.codes["b"].tolist(), strict=True))
        assert rows == sorted(wanted)
        assert found.weights.tolist() == [wanted[row] for row in rows]


def test_a_cube_of_more_than_one_word() -> None:
    """Seven columns of a thousand levels need two words."""
    rng = np.random.default_rng(0)
    names = [f"c{k}" for k in range(7)]
    table = {name: (rng.random(5000) ** 40 * 1000).astype(np.uint16) for name in names}
    cube = Cube(dict.fromkeys(names, 1000), 10**6)
    for start in range(0, 5000, 900):
        codes = {name: array[start : start + 900] for name, array in table.items()}
        assert cube.add(WeightedRows(codes, None, len(codes["c0"])))
    found = cube.rows()
    assert found is not None
    assert found.weights is not None
    wanted = sorted(zip(*(array.tolist() for array in table.values()), strict=True))
    rows = list(zip(*(array.tolist() for array in found.codes.values()), strict=True))
    assert rows == sorted(set(wanted))
    assert found.weights.tolist() == [wanted.count(row) for row in rows]


class CountedRows(ArrowRows):
    """Notes how often the rows are read."""

    passes = 0

    def batches(self, columns: Any) -> Any:
        self.passes += 1
        yield from super().batches(columns)


def test_distinct_rows_are_held_and_read_once() -> None:
    rows = CountedRows(as_table(as_source([("red", "low", "t", 1.0, 1.0)] * 50)))
    table = StreamedTable(rows, SCHEMA)
    assert rows.passes == 0
    table.counts(["colour"])
    table.counts_many([("size",), ("size", "age")])
    assert table.n_rows == 50
    assert rows.passes == 1
    unheld = StreamedTable(CountedRows(as_table(as_source([]))), SCHEMA, held_bytes=0)
    assert unheld.counts_many([("size",), ("size", "age")])[0].tolist() == [0, 0]


class GrowingRows(ArrowRows):
    """Somebody adds a row between two passes."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table)
        self.whole = table

    def batches(self, columns: Any) -> Any:
        yield from super().batches(columns)
        self._table = pa.concat_tables([self._table, self.whole.slice(0, 1)])


def test_rows_that_change_are_refused() -> None:
    table = StreamedTable(GrowingRows(as_table(as_source([("red", "low", "t", 1.0, 1.0)] * 9))), SCHEMA)
    assert table.outer_products(moment_plan(("age",)))[0, 0] > 0
    with pytest.raises(DataError, match="changed"):
        table.magnitude_counts("age", 0.0, range(2))


def test_types_that_cannot_be_read_are_refused_when_the_table_is_opened() -> None:
    schema = Schema(dataset="d", columns={"x": Categorical(("a",))})
    with pytest.raises(DataError, match="cannot be compared"):
        StreamedTable(ArrowRows(pa.table({"x": [[1, 2]]})), schema)


def test_more_rows_than_a_plan_can_add_are_refused() -> None:
    plan = MomentPlan(("x",), (0.0,), (1.0,), radius_squared=2.0**40, constant=0.0, bits=0)
    schema = Schema(dataset="d", columns={"x": Numeric(bounds=(0, 1))})
    table = StreamedTable(ArrowRows(pa.table({"x": [0.5]})), schema)
    table._n_rows = plan.max_rows() + 1
    with pytest.raises(DataError, match="changed"):
        table.outer_products(plan)
    table = StreamedTable(ArrowRows(pa.table({"x": [0.5]})), schema)
    table._note_rows = lambda n_rows: setattr(table, "_n_rows", plan.max_rows() + 1)  # type: ignore[method-assign]
    with pytest.raises(DataError, match="sums at most"):
        table.outer_products(plan)


def test_parts_have_counts_only() -> None:
    source = as_table(as_source([("red", "low", "t", 1.0, 1.0)] * 9))
    for table in (StreamedTable(ArrowRows(source), SCHEMA, held_bytes=0), MemoryTable.from_source(source, SCHEMA)):
        part = table.thin(lambda n_rows: np.ones(n_rows, dtype=bool))
        assert part.outer_products(moment_plan(LEVELS)).shape == (3, 3)
        with pytest.raises(SchemaError, match="numeric"):
            part.outer_products(moment_plan(("age",)))
        with pytest.raises(DataError, match="cannot be levelled"):
            part.levelled_rows(["size"], 3)


def test_dealt_rows_that_cannot_be_written_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = StreamedTable(ArrowRows(as_table(as_source([("red", "low", "t", 1.0, 1.0)] * 9))), SCHEMA, held_bytes=0)

    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    with pytest.raises(DataError, match="TMPDIR"):
        table.split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))


def test_rows_that_change_while_they_are_dealt_out_are_refused() -> None:
    table = StreamedTable(GrowingRows(as_table(as_source([("red", "low", "t", 1.0, 1.0)] * 9))), SCHEMA, held_bytes=0)
    with pytest.raises(DataError, match="changed"):
        table.split(2, lambda n_rows: np.zeros(n_rows, dtype=np.int64))


def test_nothing_of_the_rows_is_printed() -> None:
    table = StreamedTable(ArrowRows(as_table(as_source([]))), SCHEMA)
    assert repr(table) == "StreamedTable(dataset='contract', columns=5)"
