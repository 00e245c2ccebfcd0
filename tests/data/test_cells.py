"""No cell decides how another one is read, whatever they are and wherever they come from."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagveil.data.cells import to_arrow
from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.data.encoding import encode
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema
from dagveil.errors import DataError

D = decimal.Decimal
NAMES = ("0", "1", "2", "0.1", "0.3", "0.7", "1.5", "true", "x", "100", str(2**53), str(2**53 + 1), str(2**64), "1e+16")
DAYS = ("2024-05-01", "2024-05-01 12:00:00.000000", "2024-05-01 12:00:00.000000000", "2024-05-01 00:00:00.000000")
SCHEMA = Schema(
    dataset="cells",
    columns={
        "word": Categorical((*NAMES, *DAYS), "own-level", "own-level"),
        "step": Ordinal(("0.3", "1", "-2", "50"), "1", "own-level"),
        "flag": Boolean("own-level", "own-level"),
        "size": Numeric(bounds=(0, 2), bins=(0.1, 0.3, 0.7, 1.5), missing="own-level"),
        "wide": Numeric(bounds=(-1e30, 1e30), center=0, spread=1e16),
    },
)


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("secret")

    def __str__(self) -> str:
        raise RuntimeError("secret")


ODD: tuple[Any, ...] = (
    *(None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.float32("nan"), D("NaN"), D("sNaN"), np.ma.masked),
    *(True, False, np.True_, 0, 1, -2, 50, 2**53, 2**53 + 1, 2**63, 2**64, -(2**63), 2**70, 10**400, 10**5000),
    *(np.int8(-2), np.uint8(50), np.int64(2**53 + 1), np.uint64(2**64 - 1), np.uint64(1)),
    *(0.0, -0.0, 0.1, 0.3, 0.7, 1.5, 1e16, 2.0**53, 1e22, math.inf, -math.inf, 5e-324, 1.7e308),
    *(np.float16(1.5), np.float16(0.3), np.float32(0.3), np.float64(0.3), np.longdouble("0.3")),
    *(D("0.3"), D("0.30"), D("0.7"), D("1"), D("1E+2"), D("1e-20"), D("-0.0"), D("0E-900"), D("1E+999999")),
    *(D("9007199254740993"), D(10) ** 50, D("0.1000000000000000055511151231257827"), D("Infinity")),
    *("", "x", "0.3", " 0.3 ", "1.0", "true", "TRUE", "nan", "inf", "1e400", "\ud800", np.str_("x"), "é"),
    *(b"1", b"\xff", bytearray(b"x"), 1j, np.complex64(1), fractions.Fraction(3, 10), uuid.UUID(int=1)),
    *(datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12), datetime.time(1), datetime.timedelta(1)),
    *(datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC), datetime.datetime(1, 1, 1), datetime.date(9999, 1, 1)),
    *(pd.Timestamp("2024-05-01 12:00"), pd.Timestamp("2024-05-01", tz="Europe/Berlin"), pd.Timedelta(1)),
    *(np.datetime64("2024-05-01"), np.datetime64("2024-05-01T12", "h"), np.timedelta64(1, "s"), pd.Period("2024")),
    *([1], [], [[1]], {"a": 1}, {}, (1, 2), {1}, np.array([1]), np.array(1), object(), Ellipsis, Hostile(), int),
    *(pa.scalar(1), pa.scalar("x"), pa.scalar(D("0.3")), pd.Interval(0, 1)),
)
CELLS = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.decimals(),
    st.decimals(-10, 10, places=2),
    st.text(max_size=3),
    st.sampled_from([0.1, 0.3, 0.7, 1.5]).map(lambda number: D(repr(number))),
)


def as_objects(cells: list[Any]) -> np.ndarray:
    array = np.empty(len(cells), dtype=object)
    for position, cell in enumerate(cells):
        array[position] = cell
    return array


def as_masked(cells: list[Any]) -> np.ma.MaskedArray:
    return np.ma.MaskedArray(as_objects(cells), mask=[cell is None for cell in cells])


def as_square(cells: list[Any]) -> np.ndarray:
    return np.stack([as_objects(cells)] * len(SCHEMA.columns), axis=1)


def as_structured(cells: list[Any]) -> np.ndarray:
    array = np.empty(len(cells), dtype=[(name, object) for name in SCHEMA.columns])
    for name in SCHEMA.columns:
        array[name] = as_objects(cells)
    return array


def in_columns(form: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda cells: {name: form(cells) for name in SCHEMA.columns}


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "lists": in_columns(list),
    "tuples": in_columns(tuple),
    "iterators": in_columns(iter),
    "object arrays": in_columns(as_objects),
    "masked arrays": in_columns(as_masked),
    "two-dimensional": as_square,
    "structured": as_structured,
    "pandas objects": lambda cells: pd.DataFrame(
        in_columns(lambda some: pd.Series(as_objects(some), dtype=object))(cells)
    ),
    "polars objects": lambda cells: pl.DataFrame(in_columns(lambda some: pl.Series(some, dtype=pl.Object))(cells)),
}


def encode_source(source: Any) -> list[tuple[Any, ...]]:
    """Give all that is known of each record once it is encoded."""
    encoded = encode(read_source(source, list(SCHEMA.columns)), SCHEMA)
    columns = [array.tolist() for array in (*encoded.codes.values(), *encoded.values.values())]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@given(cells=st.lists(CELLS, min_size=1, max_size=6))
@example(cells=[D("0.3"), D("1e-20")])
@example(cells=[2**53, 0.5])
@example(cells=[2**53 + 1, D("0.5")])
@example(cells=[np.float16(1.5), 1])
@example(cells=[pd.Timestamp("2024-05-01 12:00"), "x"])
@example(cells=list(ODD))
@settings(max_examples=60, deadline=None)
def test_cells_together_are_read_as_cells_alone(form: Callable[[list[Any]], Any], cells: list[Any]) -> None:
    assert encode_source(form(cells)) == [encode_source(form([cell]))[0] for cell in cells]


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_every_container_reads_a_cell_alike(form: Callable[[list[Any]], Any]) -> None:
    assert encode_source(form(list(ODD))) == encode_source(FORMS["lists"](list(ODD)))


KINDS = tuple({type(cell): cell for cell in ODD}.values())


@pytest.mark.parametrize("one", KINDS, ids=[type(cell).__name__ for cell in KINDS])
def test_every_pair_of_kinds(one: Any) -> None:
    alone = [encode_source(FORMS["lists"]([cell]))[0] for cell in (one, *KINDS)]
    for other, wanted in zip(KINDS, alone[1:], strict=True):
        assert encode_source(FORMS["lists"]([one, other])) == [alone[0], wanted]


# pandas takes equal cells, such as 1 and True, for one category; these are all different
CATEGORIES = (D("0.3"), D("0.7"), D("1e-20"), "x", "0.3", pd.Timestamp("2024-05-01 12:00"), 2**53 + 1, 1.5)


@given(cells=st.lists(st.sampled_from(CATEGORIES), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_categories_together_are_read_as_categories_alone(cells: list[Any]) -> None:
    def form(some: list[Any]) -> Any:
        # the index holds the cells as they are, whereas a conversion of the series would merge types
        categories = pd.Index(as_objects(list(dict.fromkeys(some))), dtype=object)
        codes = [list(categories).index(cell) for cell in some]
        return in_columns(lambda _: pd.Series(pd.Categorical.from_codes(codes, categories)))(some)

    assert encode_source(form(cells)) == [encode_source(form([cell]))[0] for cell in cells]
    inferred = pd.Series(as_objects(cells), dtype=object).astype("category")
    if inferred.cat.categories.dtype != np.float64:
        assert encode_source(pd.DataFrame(dict.fromkeys(SCHEMA.columns, inferred))) == encode_source(form(cells))


@pytest.mark.parametrize(
    ("cells", "odd"),
    [
        ([D("0.3")] * 5000, D("1e-20")),
        ([2**53] * 50, 0.5),
        ([2**53 + 1] * 50, D("0.5")),
        ([np.float16(1.5)] * 50, 1),
    ],
)
def test_one_record_more_changes_one_count(cells: list[Any], odd: Any) -> None:
    for form in FORMS.values():
        before, after = encode_source(form(cells)), encode_source(form([*cells, odd]))
        assert after[:-1] == before
        assert SCHEMA.columns["word"].labels[before[0][0]] != "(other)"


def test_categories() -> None:
    for cells in (["b", None, "a"], [2, None, 1], [0.5, None, 0.25], [True, None, False], [D("2"), None, D("0.10")]):
        series = pd.Series(as_objects(cells), dtype=object).astype("category")
        assert to_arrow(series).to_pylist() == to_arrow(series.array).to_pylist()
        assert [None if cell is None else str(cell) for cell in to_arrow(series).to_pylist()] == [
            {D("2"): "2", D("0.10"): "0.1"}.get(cell, str(cell)) if cell is not None else None for cell in cells
        ]
    assert to_arrow(pd.Series([None, None], dtype="category")).to_pylist() == [None, None]


def test_cells_that_crash_the_inference_of_arrow_are_outside_values() -> None:
    crash = [np.datetime64("NaT"), np.complex64(1)]
    assert to_arrow(crash).to_pylist() == [None, "(complex64)"]
    assert to_arrow([crash, "x"]).to_pylist() == ["(list)", "x"]


def test_masked_cells_are_missing() -> None:
    mask = [False, True]
    assert to_arrow(np.ma.MaskedArray([1, 2], mask=mask)).to_pylist() == [1, None]
    assert to_arrow(np.ma.MaskedArray([0.5, 2], mask=mask)).to_pylist() == [0.5, None]
    assert to_arrow(np.ma.MaskedArray(["a", "b"], mask=mask)).to_pylist() == ["a", None]
    assert to_arrow(np.ma.MaskedArray([True, False])).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, None, 2], pa.int64()),
        ([np.int64(1), 2], pa.int64()),
        ([0.5, None, math.nan], pa.float64()),
        ([True, None], pa.bool_()),
        (["a", None], pa.large_string()),
        ([None], pa.null()),
        ([1, 0.5], pa.large_string()),
        ([D("0.5")], pa.large_string()),
        ([np.float32(0.5)], pa.large_string()),
        (np.array([0.5], np.float32), pa.float32()),
        (np.array([1], np.int8), pa.int8()),
        (pd.Series([1, None], dtype="Int16"), pa.int16()),
        (pl.Series([1], dtype=pl.Int16), pa.int16()),
        (pa.array([D("0.5")]), pa.decimal128(1, 1)),
    ],
)
def test_declared_and_plain_types_are_kept(cells: Any, kind: pa.DataType) -> None:
    assert to_arrow(cells).type == kind


def test_what_is_no_column_is_refused() -> None:
    with pytest.raises(DataError, match="single int"):
        to_arrow(3)
    with pytest.raises(DataError, match="2 dimensions"):
        to_arrow(np.zeros((2, 2)))
