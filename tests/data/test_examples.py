"""Small examples of what the functions of data/ return."""

from __future__ import annotations

import decimal
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa

from dagveil.data.cells import place_codes, read_numbers, spell_decimal, spell_levels, spell_number, to_arrow
from dagveil.data.column import Boolean, Categorical, Numeric
from dagveil.data.distinct import Cube, WeightedRows, count_cells, mix_codes, pays_to_shrink
from dagveil.data.draft import describe_unfit_texts, merge_spellings, name_dataset, order_levels
from dagveil.data.duckdb import quote_name, write_code
from dagveil.data.encoding import encode
from dagveil.data.engine import is_postgres
from dagveil.data.files import known_ending
from dagveil.data.machine import available_memory, peak_memory, read_bytes
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import AdditiveFunction, Basis, FeaturePlan, MomentPlan, choose_bits
from dagveil.data.products import bundle_columns, pays, widest_table
from dagveil.data.reading import read_source
from dagveil.data.schema import FileLayout, Schema, parse_toml, schema_from_toml, tidy_dataset
from dagveil.data.selection import fill_slots, scale_to_unit, unit_scale
from dagveil.data.streams import ArrowRows, StreamedTable, batch_rows
from dagveil.data.table import table_shape
from dagveil.errors import SchemaError


def test_read_numbers() -> None:
    assert repr(read_numbers(pa.chunked_array([["1.5", "true", "?"]]), "x").tolist()) == "[1.5, 1.0, nan]"


def test_spell_levels() -> None:
    assert spell_levels(Boolean())["YES"] == 1


def test_place_codes() -> None:
    assert place_codes(Categorical(levels=("a", "b"), outside="b", missing="own-level")) == (0, 1, 1, 2)


def test_spell_number() -> None:
    assert (spell_number(3.0), spell_number(0.1)) == ("3", "0.1")


def test_spell_decimal() -> None:
    assert (spell_decimal(decimal.Decimal("0.30")), spell_decimal(decimal.Decimal("1E+2"))) == ("0.3", "100")


def test_to_arrow() -> None:
    assert to_arrow([1, "a", True, None]).to_pylist() == ["1", "a", "true", None]


def test_is_postgres() -> None:
    assert (is_postgres("postgresql://ann@host/claims"), is_postgres("claims.sqlite")) == (True, False)


def test_mix_codes() -> None:
    assert mix_codes([np.array([0, 1], np.uint8), np.array([2, 0], np.uint8)], [2, 3]).tolist() == [2, 3]


def test_count_cells() -> None:
    rows = WeightedRows({"a": np.array([0, 1, 1], np.uint8), "b": np.array([0, 0, 0], np.uint8)}, None, 3)
    assert count_cells(rows, {"a": 2, "b": 2}).tolist() == [[1, 0], [2, 0]]


def test_pays_to_shrink() -> None:
    assert (pays_to_shrink(100, 10_000), pays_to_shrink(6_000, 10_000), pays_to_shrink(10, 100)) == (True, False, False)


def test_cube() -> None:
    cube = Cube({"a": 3}, most=10)
    for codes in ([2, 0], [2]):
        _ = cube.add(WeightedRows({"a": np.array(codes, np.uint8)}, None, len(codes)))
    rows = cube.rows()
    assert (rows.codes["a"].tolist(), rows.weights.tolist()) == ([0, 2], [1.0, 2.0])


def test_describe_unfit_texts() -> None:
    assert (
        describe_unfit_texts({f"P{k:04}": 1 + k % 3 for k in range(500)})[:47]
        == "500 different texts, 333 of them more than once"
    )


def test_order_levels() -> None:
    assert (
        order_levels(["high", "Low", "medium"]),
        order_levels(["80+", "0-9", "10-19"]),
        order_levels(["f", "m", "x"]),
    ) == (("Low", "medium", "high"), ("0-9", "10-19", "80+"), None)


def test_name_dataset() -> None:
    assert name_dataset("rows/patients.csv.gz") == "patients"


def test_merge_spellings() -> None:
    assert merge_spellings({"Basic": 9, "basic ": 1, "plus": 3}) == {"Basic": ("basic ",), "plus": ()}


def test_encode() -> None:
    schema = Schema(dataset="demo", columns={"x": Categorical(levels=("a", "b"), outside="b")})
    assert encode(pa.table({"x": ["a", "?", None]}), schema).codes["x"].tolist() == [0, 1, 1]


def test_file_layout() -> None:
    assert FileLayout(separator=";", decimal=",").words == "semicolons between cells, a comma in numbers"


def test_known_ending() -> None:
    assert (known_ending(Path("rows.csv.gz")), known_ending(Path("rows.xlsx"))) == (".csv.gz", None)


def test_available_memory() -> None:
    assert (available_memory() or 1) > 0


def test_peak_memory() -> None:
    assert peak_memory() > 0


def test_read_bytes() -> None:
    assert (read_bytes("8GB"), read_bytes("512 MiB")) == (8000000000, 536870912)


def test_memory_table() -> None:
    schema = Schema(dataset="demo", columns={"x": Boolean(outside="false"), "y": Boolean(outside="false")})
    table = MemoryTable.from_source({"x": [True, True, False], "y": [1, 0, 0]}, schema)
    assert table.counts(["x", "y"]).tolist() == [[1, 0], [1, 1]]


def test_moment_plan() -> None:
    plan = MomentPlan(columns=("x",), centers=(0.0,), spreads=(1.0,), radius_squared=4.0, constant=1.0, bits=3)
    assert plan.rows.norm_squared_bound() == 320


def test_choose_bits() -> None:
    assert (choose_bits(6000.0, 24.5, 10**6, most=10), choose_bits(6000.0, 24.5, 10**10, most=10)) == (10, 7)


def test_feature_plan() -> None:
    plan = FeaturePlan(("x",), (0.0,), (2.0,), Basis.LEGENDRE, degree=2, radius_squared=8.0, constant=1.0, bits=3)
    assert (plan.rows.columns, plan.rows.norm_squared_bound()) == (("x^1", "x^2"), 576)


def test_expand_features() -> None:
    plan = FeaturePlan(("x",), (0.0,), (2.0,), Basis.LEGENDRE, degree=2, radius_squared=8.0, constant=1.0, bits=3)
    assert plan.expand(np.array([[-9.0, 0.0, 1.0]])).round(3).tolist() == [
        [-1.732, 0.0, 0.866],
        [2.236, -1.118, -0.28],
    ]


def test_widest_table() -> None:
    assert (widest_table(1000), widest_table(10**5), widest_table(10**9)) == (256, 3125, 65536)


def test_bundle_columns() -> None:
    assert [
        bundle.columns for bundle in bundle_columns([("a", "b"), ("b", "c")], {"a": 2, "b": 2, "c": 2}, n_rows=9999)
    ] == [("a", "b", "c")]


def test_pays() -> None:
    assert pays(list(combinations("abcdefghijkl", 2)), dict.fromkeys("abcdefghijkl", 2), 1000)


def test_quote_name() -> None:
    assert quote_name('a"b') == '"a""b"'


def test_write_code() -> None:
    assert write_code("x", pa.float64(), Numeric(bounds=(0, 2), bins=2)).text.count("WHEN") == 2
    assert write_code("x", pa.string(), Numeric(bounds=(0, 2), bins=2)) is None


def test_read_source() -> None:
    assert read_source({"a": [1, 2], "b": ["x", "y"]}, ["b"]).column_names == ["b"]


def test_additive_function() -> None:
    assert AdditiveFunction(0.25, ((0.5,),)).values(np.array([[-1.0], [1.0]])).tolist() == [-0.25, 0.75]


def test_parse_toml() -> None:
    assert parse_toml("a.b = 1", SchemaError, "the schema") == {"a": {"b": 1}}


def test_tidy_dataset() -> None:
    assert tidy_dataset(" visits ") == "visits"


def test_schema_from_toml() -> None:
    text = """
    [dataset]
    name = "demo"
    reviewed = true
    [columns.smokes]
    kind = "boolean"
    """
    assert schema_from_toml(text).dataset == "demo"


def test_unit_scale() -> None:
    assert unit_scale(Numeric(bounds=(0, 20))) == (10.0, 10.0)


def test_scale_to_unit() -> None:
    assert scale_to_unit(np.array([0.0, 5.0, 99.0]), Numeric(bounds=(0, 20))).tolist() == [-1.0, -0.5, 1.0]


def test_fill_slots() -> None:
    filler = fill_slots("age", range(1000))
    assert (bool(abs(filler.mean()) < 0.1), bool((filler[10:] == fill_slots("age", range(10, 1000))).all())) == (
        True,
        True,
    )


def test_streamed_table() -> None:
    schema = Schema(dataset="demo", columns={"x": Boolean(outside="false")})
    assert StreamedTable(ArrowRows(pa.table({"x": [True, False, True]}), most_rows=2), schema).counts(
        ["x"]
    ).tolist() == [1, 2]


def test_batch_rows() -> None:
    assert (batch_rows(1000), batch_rows(16)) == (8388, 524288)


def test_table_shape() -> None:
    schema = Schema(dataset="demo", columns={"smokes": Boolean(outside="false"), "age": Numeric(bounds=(0, 90))})
    assert table_shape(schema, ["smokes", "age"]) == (2, 4)
