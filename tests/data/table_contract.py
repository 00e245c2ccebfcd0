"""What every table engine must do. A test of an engine inherits `TableContract` and says how to make one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow_twin import slow_counts, slow_value, subsets

from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.mixed import MixedPlan
from dagveil.data.moments import MomentPlan, quantise_rows
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.errors import SchemaError

SCHEMA = Schema(
    dataset="contract",
    columns={
        "colour": Categorical(
            levels=("red", "blue", "green"),
            outside="own-level",
            missing="own-level",
            spellings={"red": ("RED", "rot"), "blue": ("blau",)},
            missing_words=("n/a",),
        ),
        "size": Ordinal(levels=("low", "high"), outside="high"),
        "smokes": Boolean(outside="false", missing="true", spellings={"true": ("ja",)}, missing_words=("?",)),
        "age": Numeric(bounds=(0, 90), bins=(18, 65), missing="own-level", missing_words=("-9", "99.5")),
        "score": Numeric(bounds=(-4, 4), center=0.5, spread=1.0),
    },
)

NUMBERS = st.one_of(
    st.none(),
    st.sampled_from(
        [0.0, -0.0, 18.0, 65.0, 90.0, -4.0, 4.0, 0.5, -9.0, 99.5, math.inf, -math.inf, math.nan, 1e308, 5e-324]
    ),
    st.floats(-100, 100),
)
ROW = st.tuples(
    st.sampled_from(["red", "blue", "green", "RED", "rot", "Rot", "n/a", "", None, "x" * 1000]),
    st.sampled_from(["low", "high", "middle", None]),
    st.sampled_from(["true", "F", "Yes", "0", "maybe", "ja", "?", "tRuE", "", None]),
    NUMBERS,
    NUMBERS,
)
ROWS = st.lists(ROW, max_size=30)


def shared(examples: int) -> settings:
    """Settings of a test that several classes inherit, which is what Hypothesis would warn of."""
    checks = [HealthCheck.differing_executors, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks)


def as_source(rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {name: [row[position] for row in rows] for position, name in enumerate(SCHEMA.columns)}


def as_table(source: dict[str, list[Any]]) -> pa.Table:
    types = [pa.string(), pa.string(), pa.string(), pa.float64(), pa.float64()]
    return pa.table({name: pa.array(source[name], kind) for name, kind in zip(SCHEMA.columns, types, strict=True)})


class TableContract:
    """Inherit this, and define `make`."""

    def make(self, source: Any, schema: Schema) -> Table:
        raise NotImplementedError

    @given(rows=ROWS)
    @shared(40)
    def test_counts_equal_brute_force(self, rows: list[tuple[Any, ...]]) -> None:
        source = as_source(rows)
        table = self.make(as_table(source), SCHEMA)
        questions = subsets(list(SCHEMA.columns), 3)
        together = table.counts_many(questions)
        for columns, answer in zip(questions, together, strict=True):
            wanted = slow_counts(source, SCHEMA, columns)
            assert answer.dtype == np.int64
            np.testing.assert_array_equal(table.counts(columns), wanted)
            np.testing.assert_array_equal(answer, wanted)

    @given(rows=ROWS, position=st.integers(0, 29))
    @shared(30)
    def test_a_record_moves_one_cell_by_one(self, rows: list[tuple[Any, ...]], position: int) -> None:
        if not rows:
            return
        fewer = rows[: position % len(rows)] + rows[position % len(rows) + 1 :]
        names = tuple(SCHEMA.columns)
        change = self.make(as_table(as_source(rows)), SCHEMA).counts(names)
        change = change - self.make(as_table(as_source(fewer)), SCHEMA).counts(names)
        assert sorted(change[change != 0].tolist()) == [1]

    def test_counts_follow_the_order_of_the_columns(self) -> None:
        table = self.make(
            as_table(as_source([("red", "low", "true", 1.0, 1.0), ("blue", "high", "f", 2.0, 2.0)])), SCHEMA
        )
        np.testing.assert_array_equal(table.counts(["colour", "size"]), table.counts(["size", "colour"]).T)
        forth, back = table.counts_many([("colour", "size"), ("size", "colour")])
        np.testing.assert_array_equal(forth, back.T)
        assert forth.shape == (5, 2)

    def test_many_counts_are_independent_arrays(self) -> None:
        table = self.make(as_table(as_source([("red", "low", "true", 1.0, 1.0)])), SCHEMA)
        first, second = table.counts_many([("size",), ("size",)])
        first += 7
        assert second.tolist() == [1, 0]
        assert table.counts_many([]) == []

    def test_an_empty_table_counts_zero(self) -> None:
        table = self.make(as_table(as_source([])), SCHEMA)
        assert table.n_rows == 0
        assert table.counts([]).shape == ()
        assert table.counts(["colour", "age"]).tolist() == np.zeros((5, 4), int).tolist()
        assert table.outer_products(_plan(("age",), radius=4.0)).tolist() == [[0, 0], [0, 0]]
        assert table.magnitude_counts("age", 0.0, range(2)).tolist() == [0, 0]

    def test_unknown_and_repeated_columns_are_refused(self) -> None:
        table = self.make(as_table(as_source([])), SCHEMA)
        with pytest.raises(SchemaError, match="no column 'weight'"):
            table.counts(["weight"])
        with pytest.raises(SchemaError, match="twice"):
            table.counts(["age", "age"])
        with pytest.raises(SchemaError, match="list of names"):
            table.counts("age")
        with pytest.raises(SchemaError, match="not numeric"):
            table.magnitude_counts("colour", 0.0, range(2))
        with pytest.raises(SchemaError, match="no column"):
            table.magnitude_counts("weight", 0.0, range(2))

    @given(rows=ROWS, radius=st.sampled_from([0.0, 0.3, 4.0, 100.0]))
    @shared(30)
    def test_moments_equal_integer_sums(self, rows: list[tuple[Any, ...]], radius: float) -> None:
        source = as_source(rows)
        plan = _plan(("score", "age"), radius)
        answer = self.make(as_table(source), SCHEMA).outer_products(plan)
        wanted = [[0] * 3 for _ in range(3)]
        for score, age in zip(source["score"], source["age"], strict=True):
            row = [[slow_value(score, SCHEMA.columns["score"]), slow_value(age, SCHEMA.columns["age"])]]  # type: ignore[arg-type]
            vector = quantise_rows(np.array(row), plan)[0].tolist()
            for i in range(3):
                for j in range(3):
                    wanted[i][j] += vector[i] * vector[j]
        assert answer.dtype == np.int64
        assert answer.tolist() == wanted

    @given(rows=ROWS, radius=st.sampled_from([0.3, 4.0, 100.0]))
    @shared(30)
    def test_mixed_moments_equal_integer_sums(self, rows: list[tuple[Any, ...]], radius: float) -> None:
        source = as_source(rows)
        levels = ("age", "colour", "size")
        sizes = tuple(SCHEMA.columns[name].n_levels for name in levels)
        plan = MixedPlan(levels, sizes, ("score",), (0.25,), (1.5,), (2,), radius_squared=radius, constant=1.5, bits=8)
        answer = self.make(as_table(source), SCHEMA).outer_products(plan)
        wanted = np.zeros_like(answer)
        for place in range(len(rows)):
            alone = {name: [cells[place]] for name, cells in source.items()}
            codes = [float(slow_counts(alone, SCHEMA, (name,)).argmax()) for name in levels]
            number = slow_value(source["score"][place], SCHEMA.columns["score"])  # type: ignore[arg-type]
            row = plan.expand([np.array([value]) for value in (*codes, number)])
            vector = quantise_rows(row.T, plan.rows)[0]
            wanted += np.outer(vector, vector)
        assert answer.dtype == np.int64
        np.testing.assert_array_equal(answer, wanted)

    @given(rows=ROWS)
    @shared(30)
    def test_missing_numbers_are_marked(self, rows: list[tuple[Any, ...]]) -> None:
        """A number that is missing, and none that is the declared one for it, comes as not-a-number."""
        source = as_source(rows)
        plan = MixedPlan((), (), ("age",), (45.0,), (20.0,), (1,), 9.0, 1.0, 8, ("age",))
        answer = self.make(as_table(source), SCHEMA).outer_products(plan)
        wanted = np.zeros_like(answer)
        for cell in source["age"]:
            missing = slow_counts({"age": [cell]}, SCHEMA, ("age",)).argmax() == SCHEMA.columns["age"].n_levels - 1
            number = math.nan if missing else slow_value(cell, SCHEMA.columns["age"])  # type: ignore[arg-type]
            vector = quantise_rows(plan.expand([np.array([number])]).T, plan.rows)[0]
            assert (vector[2] > 0) == missing == (vector[1] == 0 and vector[2] > 0)
            wanted += np.outer(vector, vector)
        np.testing.assert_array_equal(answer, wanted)

    @given(rows=ROWS, center=st.sampled_from([0.0, 0.5, -3.0]), start=st.integers(-5, 3), size=st.integers(1, 8))
    @shared(30)
    def test_magnitudes_equal_brute_force(
        self, rows: list[tuple[Any, ...]], center: float, start: int, size: int
    ) -> None:
        source = as_source(rows)
        wanted = [0] * size
        for cell in source["score"]:
            distance = abs(slow_value(cell, SCHEMA.columns["score"]) - center)  # type: ignore[arg-type]
            wanted[next((k for k in range(size - 1) if distance <= 2.0 ** (start + k)), size - 1)] += 1
        table = self.make(as_table(source), SCHEMA)
        assert table.magnitude_counts("score", center, range(start, start + size)).tolist() == wanted

    @pytest.mark.parametrize(("center", "exponents"), [(0.0, range(0)), (0.0, range(0, 4, 2)), (math.nan, range(3))])
    def test_bad_magnitudes_are_refused(self, center: float, exponents: range) -> None:
        with pytest.raises(SchemaError, match="magnitude"):
            self.make(as_table(as_source([])), SCHEMA).magnitude_counts("age", center, exponents)

    def test_bounds_near_the_largest_float_do_not_overflow(self) -> None:
        schema = Schema(dataset="huge", columns={"x": Numeric(bounds=(-1.7e308, 1.7e308))})
        table = self.make(read_source({"x": [-math.inf, 0.0, math.inf]}), schema)
        assert table.magnitude_counts("x", -1.7e308, range(4)).tolist() == [1, 0, 0, 2]
        assert table.counts(["x"]).sum() == 3
        plan = MomentPlan(("x",), (-1.7e308,), (1e-300,), radius_squared=9.0, constant=1.0, bits=4)
        assert np.trace(table.outer_products(plan)) <= 3 * plan.norm_squared_bound()


def _plan(columns: tuple[str, ...], radius: float) -> MomentPlan:
    width = len(columns)
    return MomentPlan(columns, (0.25,) * width, (1.5,) * width, radius_squared=radius, constant=1.5, bits=10)
