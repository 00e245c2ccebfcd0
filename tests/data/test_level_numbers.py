"""Scores of levels: declared or 0, 1, 2, …; checked; in the digest only if declared; and in every sum."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.gradients import GradientPlan, sum_curvatures, sum_gradients
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan, quantise_rows
from dagveil.data.schema import Schema, schema_from_toml, schema_to_toml
from dagveil.errors import SchemaError

LEVELS = ("low", "middle", "high")
SCORES = (-1.5, 0.0, 4.0)


class TestDeclaring:
    def test_defaults(self) -> None:
        assert Categorical(LEVELS, "low").numbers == (0.0, 1.0, 2.0)
        assert Ordinal(LEVELS, "low", scores=SCORES).numbers == SCORES
        assert Boolean("false").numbers == (0.0, 1.0)

    def test_levels_of_their_own_stand_in_the_middle(self) -> None:
        """Other and missing values favour neither side."""
        assert Categorical(LEVELS, missing="own-level").numbers == (0.0, 1.0, 2.0, 1.0, 1.0)
        assert Categorical(("a", "b"), scores=(3, 7)).numbers == (3.0, 7.0, 5.0)
        assert Boolean(missing="own-level").numbers == (0.0, 1.0, 0.5, 0.5)

    @pytest.mark.parametrize("kind", [Categorical, Ordinal])
    @pytest.mark.parametrize(
        ("scores", "what"),
        [
            ((1.0, 2.0), "2 scores are declared for 3 levels; give one number for each level"),
            ((), "0 scores are declared for 3 levels"),
            ((1.0, 2.0, 3.0, 4.0), "4 scores are declared for 3 levels"),
            ((1.0, math.nan, 3.0), "must be finite numbers"),
            ((1.0, math.inf, 3.0), "must be finite numbers"),
            ((0.0, 1.0, -1e200), "larger than 1e\\+100; scale the scores down"),
            ((2.0, 2.0, 2.0), "could never vary; give different numbers"),
            ((0.0, -0.0, 0.0), "could never vary"),
        ],
    )
    def test_what_is_refused(self, kind: Any, scores: tuple[float, ...], what: str) -> None:
        with pytest.raises(SchemaError, match=what):
            kind(LEVELS, "low", scores=scores)

    def test_refusals_in_files_name_the_column(self) -> None:
        text = '[dataset]\nname = "d"\nreviewed = true\n[columns.size]\nkind = "ordinal"\nlevels = ["s", "l"]\n'
        with pytest.raises(SchemaError, match=r"columns\.size: 1 scores are declared for 2 levels"):
            schema_from_toml(text + "scores = [1]\n")

    def test_files_keep_them(self) -> None:
        columns = {"a": Categorical(LEVELS, scores=SCORES), "b": Ordinal(LEVELS)}
        schema = Schema(dataset="kept", columns=columns, reviewed=True)
        text = schema_to_toml(schema)
        assert text.count("scores") == 1
        assert schema_from_toml(text) == schema


class TestDigest:
    def make(self, **columns: Any) -> Schema:
        plain = {
            "a": Categorical(("x", "y"), "x"),
            "b": Ordinal(("low", "high")),
            "c": Boolean("false"),
            "d": Numeric((0, 1), bins=2),
        }
        return Schema(
            dataset="digest",
            columns={**plain, **columns},
            reviewed=True,
            nominal_rows=100,
            tiers=(("a",), ("b", "c", "d")),
        )

    def test_schemas_without_scores_keep_the_digest_that_they_always_had(self) -> None:
        """Ledgers and receipts store digests; this one was taken before there were scores."""
        assert self.make().digest() == "3cf52e6736f26b98f47084a5f69bae3dd5b41f9e66f9e0b11a88f3823dfe05e5"

    def test_scores_change_it(self) -> None:
        digests = {
            self.make(a=Categorical(("x", "y"), "x", scores=scores)).digest()
            for scores in (None, (0.0, 1.0), (1.0, 0.0), (0.0, 2.0))
        }
        assert len(digests) == 4


def make_schema(numeric: bool) -> Schema:
    columns: dict[str, Any] = {
        "size": Ordinal(LEVELS, "low", scores=SCORES),
        "kind": Categorical(("a", "b"), missing="own-level"),
        "yes": Boolean("false"),
    }
    if numeric:
        columns = {"size": columns["size"], "weight": Numeric((-3, 3)), "kind": columns["kind"], "yes": columns["yes"]}
    return Schema(dataset="mixed", columns=columns, reviewed=True)


@st.composite
def tables(draw: st.DrawFn) -> tuple[MemoryTable, np.ndarray]:
    """Draw a table and, cell by cell in plain Python, the numbers that stand for its cells."""
    schema = make_schema(draw(st.booleans()))
    n_rows = draw(st.sampled_from([0, 1, 7, 400]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    source: dict[str, list[Any]] = {
        "size": rng.choice(["low", "middle", "high", "huge"], n_rows).tolist(),
        "kind": rng.choice(["a", "b", "c", ""], n_rows).tolist(),
        "yes": rng.choice(["true", "false", "perhaps"], n_rows).tolist(),
        "weight": rng.normal(0, 2, n_rows).tolist(),
    }
    stand: dict[str, Any] = {
        "size": lambda cell: {"middle": 0.0, "high": 4.0}.get(cell, -1.5),
        "kind": lambda cell: {"a": 0.0, "b": 1.0}.get(cell, 0.5),
        "yes": lambda cell: float(cell == "true"),
        "weight": lambda cell: min(max(cell, -3.0), 3.0),
    }
    names = list(schema.columns)
    numbers = np.array([[stand[name](source[name][row]) for name in names] for row in range(n_rows)])
    table = MemoryTable.from_source({name: source[name] for name in names}, schema)
    if draw(st.booleans()):
        table.counts(names[:2])  # the first count reduces rows to distinct ones
    return table, numbers.reshape(n_rows, len(names))


def plan_for(table: MemoryTable) -> MomentPlan:
    names = tuple(table.schema.columns)
    return MomentPlan(names, (0.3,) * len(names), (1.3,) * len(names), 3.0, 1.0, 8)


def as_integers(matrix: np.ndarray) -> list[int]:
    return [int(entry) for entry in matrix.reshape(-1)]


@given(tables())
@settings(max_examples=60, deadline=None)
def test_moments_are_those_of_the_slow_twin(case: tuple[MemoryTable, np.ndarray]) -> None:
    table, numbers = case
    plan = plan_for(table)
    rows = quantise_rows(numbers, plan).astype(object)
    width = len(plan.columns) + 1
    slow = [sum(int(row[i]) * int(row[j]) for row in rows) for i in range(width) for j in range(width)]
    assert as_integers(table.outer_products(plan)) == slow


@given(tables(), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_gradients_and_curvatures_are_sums_over_single_rows(case: tuple[MemoryTable, np.ndarray], seed: int) -> None:
    """Also where distinct rows carry multiplicities: to the last integer."""
    table, numbers = case
    plan = plan_for(table)
    d = len(plan.columns)
    weights = np.random.default_rng(seed).normal(0, 0.5, (d, d))
    gradient = GradientPlan(plan, tuple(map(tuple, weights.tolist())), 1.5)
    ones = [[row[j : j + 1] for j in range(d)] for row in numbers]
    slow = sum((sum_gradients(one, gradient, n_rows=1) for one in ones), np.zeros((d, d), dtype=np.int64))
    assert (table.gradients(gradient) == slow).all()
    curvatures = [sum_curvatures(one, plan, weights, 2.0, n_rows=1) for one in ones]
    assert table.curvature(plan, weights, 2.0) == sum(curvatures)


def test_many_equal_rows() -> None:
    """Multiplicities of tens of thousands: sums that a float would round are still exact."""
    schema = make_schema(numeric=False)
    codes = {name: np.repeat(np.arange(2), (70_000, 3)) for name in schema.columns}
    table = MemoryTable.from_codes(codes, schema)
    plan = plan_for(table)
    gradient = GradientPlan(plan, ((0.0, 0.5, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)), 1.5)
    before = table.gradients(gradient)
    numbers = [np.array(column.numbers) for column in schema.columns.values()]
    single = [
        sum_gradients([column[k : k + 1] for column in numbers], gradient, n_rows=1).astype(object) for k in (0, 1)
    ]
    assert (before == 70_000 * single[0] + 3 * single[1]).all()
    assert Fraction(int(table.outer_products(plan)[0, 0])) == 70_003 * 4**8


def test_other_scores_give_other_moments() -> None:
    codes = {"size": np.array([0, 1, 2, 2]), "kind": np.array([0, 1, 0, 1]), "yes": np.array([0, 0, 1, 1])}
    schema = make_schema(numeric=False)
    plain = Schema(dataset="mixed", columns={**schema.columns, "size": Ordinal(LEVELS, "low")}, reviewed=True)
    plan = MomentPlan(("size",), (0.0,), (1.0,), 100.0, 1.0, 4)
    declared, default = (MemoryTable.from_codes(codes, s).outer_products(plan) / 4.0**4 for s in (schema, plain))
    assert declared.tolist() == [[4.0, 6.5], [6.5, 34.25]]
    assert default.tolist() == [[4.0, 5.0], [5.0, 9.0]]
