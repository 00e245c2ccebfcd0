"""What every engine must answer bit for bit as memory does. A test inherits `EngineContract` and defines `make`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from table_contract import ROW, ROWS, SCHEMA, TableContract, as_source, as_table, shared

from dagveil.data.gradients import GradientPlan
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import AdditiveFunction, Basis, FeaturePlan, MomentPlan, ResidualPlan
from dagveil.data.table import Table

NUMBERS = ("score", "age")
MIXED = ("score", "colour", "age")
LEVELS = ("colour", "size")
SETS = [("colour",), ("age", "colour"), ("size", "smokes", "score"), ()]


def moment_plan(columns: tuple[str, ...]) -> MomentPlan:
    return MomentPlan(columns, (0.5,) * len(columns), (2.0,) * len(columns), 6.0, 1.0, 9)


def gradient_plan(columns: tuple[str, ...]) -> GradientPlan:
    weights = tuple(tuple(0.0 if i == j else 0.3 * (i - j) for j in range(len(columns))) for i in range(len(columns)))
    return GradientPlan(moment_plan(columns), weights, 1.7)


def residual_plan() -> ResidualPlan:
    function = AdditiveFunction(0.1, ((0.4, -0.2),))
    return ResidualPlan(("score", "age"), ("size",), (function, function), (0.0, 0.1), (0.5, 0.6))


def list_answers(table: Table) -> list[list[Any]]:
    """Ask everything that has no random part."""
    direction = np.array([[0.5, 0.1], [0.2, 0.9]])
    features = FeaturePlan(NUMBERS, (0.0, 40.0), (4.0, 45.0), Basis.LEGENDRE, 2, 9.0, 1.0, 8)
    return [
        [table.n_rows],
        *(answer.tolist() for answer in table.counts_many(SETS)),
        table.outer_products(moment_plan(MIXED)).tolist(),
        table.outer_products(moment_plan(LEVELS)).tolist(),
        table.outer_products(features).tolist(),
        table.outer_products(residual_plan()).tolist(),
        table.gradients(gradient_plan(NUMBERS)).tolist(),
        table.gradients(gradient_plan(LEVELS)).tolist(),
        [table.curvature(moment_plan(NUMBERS), direction, 3.0)],
        [table.curvature(moment_plan(LEVELS), direction, 3.0)],
        table.magnitude_counts("age", 18.0, range(3, 6)).tolist(),
        table.magnitude_counts("score", 0.25, range(-3, 3)).tolist(),
        table.levelled_rows(MIXED, 7).tolist(),
        table.levelled_rows(MIXED, 40).tolist(),
    ]


def list_parts(table: Table, seed: int) -> list[Any]:
    """Deal rows out by seeded positions, and thin and deal out a part again."""
    rng = np.random.default_rng(seed)
    parts = table.split(3, lambda n_rows: rng.integers(0, 4, n_rows))
    thin = table.thin(lambda n_rows: rng.random(n_rows) < 0.6)
    again = thin.split(2, lambda n_rows: rng.integers(0, 2, n_rows))
    found: list[Any] = []
    for part in (*parts, thin, *again):
        found += [part.n_rows, *(answer.tolist() for answer in part.counts_many(SETS))]
        found.append(part.outer_products(moment_plan(LEVELS)).tolist())
    return found


def repeated_rows() -> pa.Table:
    """Return a table of few distinct rows."""
    rng = np.random.default_rng(3)
    return as_table(
        {
            "colour": rng.choice(["red", "blue", "x"], 6000).tolist(),
            "size": rng.choice(["low", "high"], 6000).tolist(),
            "smokes": rng.choice(["yes", "no"], 6000).tolist(),
            "age": rng.choice([3.0, 20.0, 70.0], 6000).tolist(),
            "score": rng.choice([-1.0, 0.0, 9.0], 6000).tolist(),
        }
    )


class EngineContract(TableContract):
    """Everything of `TableContract`, and the same answers as `MemoryTable`."""

    @given(rows=ROWS)
    @shared(25)
    def test_every_answer_equals_memory(self, rows: list[tuple[Any, ...]]) -> None:
        source = as_table(as_source(rows))
        memory = MemoryTable.from_source(source, SCHEMA)
        assert list_answers(self.make(source, SCHEMA)) == list_answers(memory)

    @given(rows=ROWS, seed=st.integers(0, 2**32))
    @shared(25)
    def test_parts_equal_memory(self, rows: list[tuple[Any, ...]], seed: int) -> None:
        source = as_table(as_source(rows))
        memory = MemoryTable.from_source(source, SCHEMA)
        assert list_parts(self.make(source, SCHEMA), seed) == list_parts(memory, seed)

    @given(rows=ROWS, seed=st.integers(0, 2**32))
    @shared(25)
    def test_every_record_stands_in_one_part(self, rows: list[tuple[Any, ...]], seed: int) -> None:
        table = self.make(as_table(as_source(rows)), SCHEMA)
        rng = np.random.default_rng(seed)
        names = tuple(SCHEMA.columns)
        parts = table.split(3, lambda n_rows: rng.integers(0, 3, n_rows))
        assert sum(part.n_rows for part in parts) == len(rows)
        for _ in range(2):
            together = sum(part.counts(names) for part in parts)
            np.testing.assert_array_equal(together, table.counts(names))
        asked = [[part.counts((name,)).tolist() for name in names] for part in parts]
        again = [[part.counts((name,)).tolist() for name in names] for part in parts]
        assert asked == again

    @given(rows=ROWS, record=ROW, slots=st.integers(1, 31), place=st.integers(0, 29), replace=st.booleans())
    @shared(40)
    def test_slots_of_neighbours_differ_in_one(
        self, rows: list[tuple[Any, ...]], record: tuple[Any, ...], slots: int, place: int, replace: bool
    ) -> None:
        other = list(rows)
        if replace and rows:
            other[place % len(rows)] = record
        else:
            other.insert(place % (len(rows) + 1), record)
        found = [
            Counter(map(tuple, self.make(as_table(as_source(some)), SCHEMA).levelled_rows(MIXED, slots).tolist()))
            for some in (rows, other)
        ]
        assert sum((found[0] - found[1]).values()) <= 1

    def test_a_table_with_repeated_rows_equals_memory(self) -> None:
        """Memory keeps the distinct rows of this one, in the order of their codes."""
        source = repeated_rows()
        memory, table = MemoryTable.from_source(source, SCHEMA), self.make(source, SCHEMA)
        assert memory._distinct_rows().n_rows < 3000
        assert list_answers(table) == list_answers(memory)
        assert list_parts(table, 5) == list_parts(memory, 5)
