from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_twin import slow_code, slow_number, slow_value

from dagveil.data.cells import read_numbers
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.encoding import EncodedColumns, encode
from dagveil.data.schema import Schema
from dagveil.errors import DataError

WORDS = Categorical(("a", "1", "-2", "2.5", "true"), "own-level", "own-level")
FLAG = Boolean("own-level", "own-level")
NUMBER = Numeric(bounds=(-3, 3), bins=(0, 1), missing="own-level")


def encode_cells(cells: Any, column: Column) -> EncodedColumns:
    array = cells if isinstance(cells, pa.ChunkedArray) else pa.chunked_array([cells])
    return encode(pa.table({"x": array}), Schema(dataset="d", columns={"x": column}))


def check_cells(cells: pa.Array, column: Column) -> None:
    encoded = encode_cells(cells, column)
    assert encoded.codes["x"].tolist() == [slow_code(cell, column) for cell in cells.to_pylist()]
    if isinstance(column, Numeric):
        assert encoded.values["x"].tolist() == [slow_value(cell, column) for cell in cells.to_pylist()]


TEXTS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "a", "A", "1", "01", "1.0", "-2", "2.5", "true", "TRUE", "yes", "nO", " 1 ", "1_0", "1e3", "nan"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=5),
)


@settings(deadline=None)
@given(st.lists(TEXTS), st.sampled_from([WORDS, FLAG]), st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_equal_the_slow_twin(cells: list[str | None], column: Column, kind: pa.DataType) -> None:
    array = pa.array(cells, kind)
    check_cells(array, column)
    check_cells(array.dictionary_encode(), column)
    check_cells(array.cast(pa.string_view()), column)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.sampled_from([0, 1, -1, -2, 2, 127, -128]), st.integers(-128, 127))),
    st.sampled_from([WORDS, FLAG, NUMBER, Categorical(("0", "127", "128", "-128", "999999"), "0")]),
    st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
)
def test_integers_equal_the_slow_twin(cells: list[int | None], column: Column, kind: pa.DataType) -> None:
    check_cells(pa.array(cells, kind), column)
    check_cells(pa.array(cells, kind).dictionary_encode(), column)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**64 - 1, 2**64 - 2]))))
def test_unsigned_integers_do_not_wrap(cells: list[int | None]) -> None:
    for column in (
        WORDS,
        FLAG,
        Categorical(("0", str(2**64 - 1), "-1"), "0"),
        Categorical((str(2**64 - 1),), "own-level"),
    ):
        check_cells(pa.array(cells, pa.uint64()), column)


def test_integers_at_the_ends_of_their_range() -> None:
    ends = [-(2**63), -(2**63) + 1, 2**63 - 1, 2**63 - 2, 0, None]
    for column in (Categorical((str(-(2**63)),)), Categorical((str(2**63 - 1),)), Categorical((str(2**63), "0"))):
        check_cells(pa.array(ends, pa.int64()), column)


FLOATS = st.one_of(
    st.none(), st.sampled_from([0.0, -0.0, 1.0, -2.0, 2.5, 2.25]), st.floats(width=32, allow_infinity=False)
)


@settings(deadline=None)
@given(st.lists(FLOATS), st.sampled_from([WORDS, FLAG, NUMBER]), st.sampled_from([pa.float32(), pa.float64()]))
def test_floats_equal_the_slow_twin(cells: list[float | None], column: Column, kind: pa.DataType) -> None:
    check_cells(pa.array(cells, kind), column)


def test_infinities_and_not_a_number() -> None:
    cells = pa.array([math.inf, -math.inf, math.nan, None])
    assert encode_cells(cells, WORDS).codes["x"].tolist() == [5, 5, 6, 6]
    assert encode_cells(cells, NUMBER).codes["x"].tolist() == [2, 0, 3, 3]
    assert encode_cells(cells, NUMBER).values["x"].tolist() == [3, -3, 0, 0]
    assert encode_cells(cells, Categorical(("nan", "inf"), "inf")).codes["x"].tolist() == [1, 1, 1, 1]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.booleans())))
def test_booleans_equal_the_slow_twin(cells: list[bool | None]) -> None:
    for column in (WORDS, FLAG, NUMBER):
        check_cells(pa.array(cells, pa.bool_()), column)


def test_booleans_fit_capitalised_levels() -> None:
    for cells in ([True, False], ["True", "False"], ["true", "false"]):
        column = Categorical(("FALSE", "False", "True"), "own-level")
        assert encode_cells(pa.array(cells), column).codes["x"].tolist() == [2, 1]
    assert encode_cells(pa.array([True, False]), Categorical(("False", "True"), "False")).codes["x"].tolist() == [1, 0]


@settings(deadline=None)
@given(st.lists(TEXTS))
def test_numbers_in_texts_equal_the_slow_twin(cells: list[str | None]) -> None:
    ascii_cells = [cell if cell is None or cell.isascii() else "x" for cell in cells]
    check_cells(pa.array(ascii_cells, pa.string()), NUMBER)


@given(st.lists(TEXTS, min_size=1))
@settings(max_examples=50, deadline=None)
def test_a_text_is_read_the_same_whatever_stands_beside_it(cells: list[str | None]) -> None:
    array = pa.array(cells, pa.string())
    together = read_numbers(pa.chunked_array([array]), "x")
    alone = [read_numbers(pa.chunked_array([array[k : k + 1]]), "x")[0] for k in range(len(cells))]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("text", ["1", " 1.5 ", "+2", "-3e2", "1e999", "inf", "-Infinity", ".5", "5.", "nan"])
def test_texts_that_are_numbers(text: str) -> None:
    np.testing.assert_equal(read_numbers(pa.chunked_array([[text]]), "x")[0], slow_number(text))


@pytest.mark.parametrize("text", ["", "x", "1,5", "1_000", "0x10", "1 2", "--1", "5e", "é"])
def test_texts_that_are_no_numbers(text: str) -> None:
    assert math.isnan(read_numbers(pa.chunked_array([[text]]), "x")[0])


def test_other_types() -> None:
    day = Categorical(("2024-05-01",), "own-level")
    assert encode_cells(pa.array([datetime.date(2024, 5, 1), None]), day).codes["x"].tolist() == [0, 1]
    exact = pa.array([decimal.Decimal("1.00"), decimal.Decimal("2.50"), None])
    assert encode_cells(exact, WORDS).codes["x"].tolist() == [1, 3, 6]
    assert encode_cells(exact, NUMBER).values["x"].tolist() == [1.0, 2.5, 0.0]
    assert encode_cells(pa.array([b"a", b"\xff", b"", None]), WORDS).codes["x"].tolist() == [0, 5, 6, 6]
    assert encode_cells(pa.nulls(2), WORDS).codes["x"].tolist() == [6, 6]
    assert encode_cells(pa.nulls(2), NUMBER).codes["x"].tolist() == [3, 3]
    with pytest.raises(DataError, match=r"list.*convert it"):
        encode_cells(pa.array([[1], [2]]), WORDS)
    with pytest.raises(DataError, match=r"declared numeric.*convert it"):
        encode_cells(pa.array([datetime.date(2024, 5, 1)]), NUMBER)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.uint8(), pa.uint64(), pa.int64()])
def test_levels_wider_than_half_of_the_type(kind: pa.DataType) -> None:
    lowest = 0 if kind in (pa.uint8(), pa.uint64()) else -100
    column = Categorical(tuple(str(number) for number in range(lowest, 51)), "own-level", "own-level")
    check_cells(pa.array([*range(max(lowest - 5, lowest and -128), 100), None], kind), column)


DECIMALS = [
    *(pa.decimal128(38, scale) for scale in (1, 2, 20, 22, 23, 30, 36)),
    *(pa.decimal256(76, scale) for scale in (1, 20)),
    *(pa.decimal128(2, 1), pa.decimal128(18, 2), pa.decimal128(38, -2)),
]
if hasattr(pa, "decimal32"):
    DECIMALS += [pa.decimal32(9, 1), pa.decimal64(18, 1)]


@pytest.mark.parametrize("kind", DECIMALS, ids=str)
def test_decimals_are_compared_by_their_text_whatever_the_scale(kind: pa.DataType) -> None:
    column = Categorical(("0.3", "0.7", "-1.1", "4", "100", "0", "1.10", "0.70", "1E+2"), "own-level", "own-level")
    texts = ["100", "0", None] if kind.scale < 0 else ["0.3", "0.7", "-1.1", "4", None, "0", "1.1"]
    cells = pa.array([None if text is None else decimal.Decimal(text) for text in texts], kind)
    wanted = ["(missing)" if text is None else text if text in column.levels else "(other)" for text in texts]
    for array in (cells, cells.dictionary_encode() if kind.bit_width >= 128 else cells, pa.concat_arrays([cells])[0:]):
        assert [column.labels[code] for code in encode_cells(array, column).codes["x"]] == wanted


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-(10**37), 10**37), st.integers(-(2**54), 2**54), st.integers(0, 99))),
    st.sampled_from([kind for kind in DECIMALS if kind.precision >= 38 and kind.scale >= 0]),
    st.integers(0, 3),
)
def test_decimals_become_the_nearest_float(units: list[int | None], kind: pa.DataType, start: int) -> None:
    exact = decimal.Context(prec=80)
    cells = [None if unit is None else exact.scaleb(decimal.Decimal(unit), -kind.scale) for unit in units]
    wanted = [math.nan if cell is None else float(cell) for cell in cells]
    # a slice, since the numbers are read from the memory of the array
    numbers = read_numbers(pa.chunked_array([pa.array(cells, kind)[start:]]), "x")
    np.testing.assert_array_equal(numbers, wanted[start:])


def test_decimals_of_negative_scale() -> None:
    cells = pa.array([decimal.Decimal("1E+2"), None, decimal.Decimal("-12E+30")], pa.decimal128(38, -2))
    np.testing.assert_array_equal(read_numbers(pa.chunked_array([cells]), "x"), [100.0, math.nan, -1.2e31])


def as_bytes(cells: list[bytes | None]) -> list[pa.Array]:
    array = pa.array(cells, pa.binary(16))
    arrays = [array, pa.DictionaryArray.from_arrays(pa.array(range(len(cells))), array)]
    if hasattr(pa, "uuid"):
        arrays += [pa.ExtensionArray.from_storage(pa.uuid(), array)]
    return arrays


def test_one_value_of_bytes_never_decides_between_success_and_refusal() -> None:
    column = Categorical(("sixteen letters.",), "own-level", "own-level")
    for array in as_bytes([b"sixteen letters.", b"\xff" * 16, None]):
        assert encode_cells(array, column).codes["x"].tolist() == [0, 1, 2]
        assert encode_cells(array[:1], column).codes["x"].tolist() == [0]
        with pytest.raises(DataError, match="declared numeric"):
            encode_cells(array[:1], NUMBER)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())),
        *(pa.month_day_nano_interval(), pa.timestamp("s", "Nowhere/Land")),
    ],
    ids=str,
)
def test_types_without_text_are_refused_even_without_a_value(kind: pa.DataType) -> None:
    for array in (pa.chunked_array([], kind), pa.array([], kind), pa.nulls(2, kind)):
        with pytest.raises(DataError, match="cannot be compared with levels"):
            encode_cells(array, WORDS)
        with pytest.raises(DataError, match="declared numeric"):
            encode_cells(array, NUMBER)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.duration("s")),
        *(pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Berlin")),
    ],
    ids=str,
)
def test_no_time_is_refused(kind: pa.DataType) -> None:
    bits = kind.bit_width
    ends = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), None]
    array = pa.array(ends, pa.int32() if bits == 32 else pa.int64()).view(kind)
    together = encode_cells(array, WORDS).codes["x"].tolist()
    assert together == [encode_cells(array[k : k + 1], WORDS).codes["x"][0] for k in range(len(ends))]


NUMBER_LIKE = st.text("0123456789+-.eEinfatyNpxX_() ", max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBER_LIKE, min_size=1, max_size=20))
def test_texts_like_numbers_equal_the_slow_twin(cells: list[str]) -> None:
    numbers = read_numbers(pa.chunked_array([pa.array(cells)]), "x")
    np.testing.assert_array_equal(numbers, [slow_number(cell) for cell in cells])


def test_large_whole_floats_fit_the_levels_of_whole_numbers() -> None:
    column = Categorical((str(2**53), str(2**53 + 1), "1e+16"), "own-level")
    assert encode_cells(pa.array([2.0**53, 1e16]), column).codes["x"].tolist() == [0, 2]
    assert encode_cells(pa.array([2**53, 2**53 + 1, 10**16]), column).codes["x"].tolist() == [0, 1, 3]


def test_chunks_may_have_different_dictionaries() -> None:
    chunks = [pa.array(["a", "1"]).dictionary_encode(), pa.array(["1", None, "z", "a"]).dictionary_encode()]
    assert encode_cells(pa.chunked_array(chunks), WORDS).codes["x"].tolist() == [0, 1, 1, 6, 5, 0]
    assert encode_cells(pa.chunked_array(chunks), NUMBER).codes["x"].tolist() == [3, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("words", [["a", "1", "b"], ["b", "z", "1", "a"], [*map(str, range(300)), "a"]])
def test_dictionaries_in_any_order_and_width_equal_plain_texts(words: list[str]) -> None:
    """The first has the order of the levels, where indices are codes already."""
    column = Categorical(("a", "1", "b"), "own-level", "own-level")
    indices = np.random.default_rng(1).integers(0, len(words), 50)
    for kind in (np.uint8, np.int16, np.int64):
        if indices.max() <= np.iinfo(kind).max:
            array = pa.DictionaryArray.from_arrays(pa.array(indices.astype(kind)), pa.array(words))
            wanted = encode_cells(array.dictionary_decode(), column).codes["x"].tolist()
            assert encode_cells(array, column).codes["x"].tolist() == wanted


@pytest.mark.parametrize("words", [["a", "b"], ["b", "a"]])
@pytest.mark.parametrize("index", [2, 255, 256, 300, -1])
def test_indices_beyond_a_dictionary_never_become_codes_without_a_level(words: list[str], index: int) -> None:
    damaged = pa.DictionaryArray.from_arrays(pa.array([0, index], pa.int32()), pa.array(words), safe=False)
    column = Categorical(("a", "b"), "a")
    try:
        codes = encode_cells(damaged, column).codes["x"]
    except pa.ArrowIndexError:
        return
    assert codes.max() < column.n_levels


def test_many_rows_are_encoded_in_threads_to_the_same_codes() -> None:
    rng = np.random.default_rng(1)
    n_rows = 2**18 + 5
    cells = {"words": rng.choice(["a", "1", "?"], n_rows), "number": rng.normal(size=n_rows)}
    schema = Schema(dataset="d", columns={"words": WORDS, "number": NUMBER})
    table = pa.table(cells)
    together = encode(table, schema)
    for start in range(0, n_rows, 2**17):
        part = encode(table.slice(start, 2**17), schema)
        for name in cells:
            assert np.array_equal(together.codes[name][start : start + 2**17], part.codes[name])
        assert np.array_equal(together.values["number"][start : start + 2**17], part.values["number"])
    with pytest.raises(DataError, match="'number'"):
        encode(table.set_column(1, "number", pa.array([b"x"] * n_rows)), schema)


def test_many_levels_need_wider_codes() -> None:
    column = Categorical(tuple(f"v{k}" for k in range(1000)), "own-level", "own-level")
    codes = encode_cells(pa.array(["v999", "v0", "?", None]), column).codes["x"]
    assert codes.dtype == np.uint16
    assert codes.tolist() == [999, 0, 1000, 1001]
    assert encode_cells(pa.array(["a"]), WORDS).codes["x"].dtype == np.uint8


@given(st.lists(st.one_of(st.sampled_from([0.0, 1.0, 0.5, math.nan, math.inf]), st.floats(-1, 2))), st.integers(1, 40))
@settings(deadline=None)
def test_few_and_many_bins_equal_the_slow_twin(cells: list[float], bins: int) -> None:
    check_cells(pa.array(cells, pa.float64()), Numeric(bounds=(0, 1), bins=bins, missing="own-level"))
    check_cells(pa.array(cells, pa.float64()), Numeric(bounds=(0, 1), bins=300, missing="own-level"))


def test_nothing_of_the_rows_is_printed() -> None:
    assert repr(encode_cells(pa.array(["secret"]), WORDS)) == "EncodedColumns(columns=1)"
