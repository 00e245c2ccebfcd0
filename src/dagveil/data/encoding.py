"""From cells to codes and numbers, by the schema alone.

Each cell is mapped by itself: what happens to one record never depends on another. So nothing here may try a fast
conversion of a whole column and treat *all* cells differently when one of them fails.
"""

import decimal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.cells import (
    is_decimal_text,
    is_float_text,
    is_integer_text,
    list_chunks,
    place_codes,
    read_numbers,
    simplify_type,
    spell_levels,
    take_cells,
)
from dagveil.data.column import Column, LevelColumn, Numeric, marks_missing
from dagveil.data.schema import Schema
from dagveil.errors import DataError

Codes = NDArray[np.unsignedinteger[Any]]  # codes of one column, as 8-bit or 16-bit integers
_FEW_CUTS: Final = 16
_WIDEST_LOOKUP: Final = 65536
_MANY_ROWS: Final = 2**18
_NARROW_TABLE: Final = 256


@dataclass(frozen=True, slots=True)
class EncodedColumns:
    """The codes of every column, and the clipped numbers of the numeric ones. Holds rows: for engines only."""

    n_rows: int
    codes: Mapping[str, Codes]
    values: Mapping[str, NDArray[np.float64]]

    def __repr__(self) -> str:
        return f"EncodedColumns(columns={len(self.codes)})"


def encode(table: pa.Table, schema: Schema) -> EncodedColumns:
    """Encode the columns of an Arrow table as the schema says.

    Text is compared exactly. Whole numbers and floats are compared with levels by their shortest text, so 1 and 1.0
    are both the level "1"; decimals by their plain text without closing zeros. An empty text is a missing value.
    """

    def encode_column(name: str) -> tuple[Codes, NDArray[np.float64] | None]:
        column = schema.columns[name]
        if not isinstance(column, Numeric):
            return find_levels(table.column(name), column, name, places=np.array(place_codes(column))), None
        numbers = read_declared_numbers(table.column(name), name, column)
        clipped = clip_numbers(numbers, column)
        return bin_numbers(numbers, clipped, column), clipped

    names = list(schema.columns)
    if table.num_rows < _MANY_ROWS:
        found = list(map(encode_column, names))
    else:
        # Arrow and numpy release the interpreter lock, so two threads help
        with ThreadPoolExecutor(max_workers=2) as pool:
            found = list(pool.map(encode_column, names))
    return EncodedColumns(
        n_rows=table.num_rows,
        codes={name: codes for name, (codes, _) in zip(names, found, strict=True)},
        values={name: values for name, (_, values) in zip(names, found, strict=True) if values is not None},
    )


def check_types(fields: pa.Schema, schema: Schema) -> None:
    """Refuse columns of types that cannot be read, without a record."""
    encode(empty_table(fields), schema)


def empty_table(fields: pa.Schema) -> pa.Table:
    """Return a table without rows."""
    try:
        return fields.empty_table()
    except pa.ArrowNotImplementedError:
        raise DataError("a column is of a type that Arrow cannot make, such as a union; convert it to text") from None


def join_columns(pieces: Sequence[EncodedColumns], schema: Schema) -> EncodedColumns:
    """Put encoded rows below each other."""
    codes: dict[str, Codes] = {}
    values = {}
    for name, column in schema.columns.items():
        codes[name] = np.concatenate([np.empty(0, code_type(column)), *(piece.codes[name] for piece in pieces)])
        if isinstance(column, Numeric):
            found = (piece.values[name] for piece in pieces if name in piece.values)
            values[name] = np.concatenate([np.empty(0), *found])
    return EncodedColumns(n_rows=sum(piece.n_rows for piece in pieces), codes=codes, values=values)


def is_text(kind: pa.DataType) -> bool:
    """Say whether a type holds text, possibly through a dictionary."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def code_type(column: Column) -> type[np.uint8] | type[np.uint16]:
    """Give the narrowest type that holds the codes of a column (at most 1002 of them)."""
    return np.uint8 if column.n_levels <= 256 else np.uint16


def find_levels(cells: pa.ChunkedArray, column: LevelColumn, name: str, places: NDArray[np.int64]) -> Codes:
    """Map cells to codes; `places` are those of `place_codes`, or 0, 1, 2, … to tell all cases apart."""
    # one look-up table does both steps: cell -> level position -> code
    narrow: Codes = places.astype(np.uint8 if places.max(initial=0) < 256 else np.uint16)
    lookup = _Lookup(spell_levels(column), narrow, name)
    return np.concatenate([lookup.encode(chunk) for chunk in list_chunks(cells)])


class _Lookup:
    """Maps Arrow arrays to codes; what becomes of a cell depends on the type of the array, never on other cells."""

    def __init__(self, spellings: Mapping[str, int], places: Codes, name: str) -> None:
        self.spellings = spellings
        self.places = places
        self.name = name
        self.outside = len(places) - 2
        self.missing = len(places) - 1
        self._dictionary: pa.Array | None = None
        self._codes: Codes = places[:0]

    def encode(self, array: pa.Array) -> Codes:
        array = simplify_type(array)
        kind = array.type
        if pa.types.is_dictionary(kind):
            return self._through_dictionary(array)
        if pa.types.is_null(kind):
            return np.full(len(array), self.places[self.missing], dtype=self.places.dtype)
        if pa.types.is_boolean(kind):
            positions = [self.spellings.get(word, self.outside) for word in ("false", "true")] + [self.missing]
            return self._take(pc.cast(array, pa.int8()), positions)
        if pa.types.is_integer(kind):
            return self._from_integers(array)
        if pa.types.is_floating(kind):
            return self._from_floats(array)
        if pa.types.is_decimal(kind):
            return self._from_decimals(array)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._from_texts(array, str)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            # bytes are compared as bytes: a cast to text would fail on a single bad cell
            return self._from_texts(array, str.encode)
        if not has_written_form(kind):
            raise DataError(
                f"column {self.name!r} has the type {kind}, which cannot be compared with levels; "
                "convert it to text or numbers"
            )
        return self._from_texts(pc.cast(array, pa.large_string()), str)

    def _through_dictionary(self, array: pa.DictionaryArray) -> Codes:
        # chunks of one column mostly share their dictionary
        if self._dictionary is None or not array.dictionary.equals(self._dictionary):
            self._dictionary = array.dictionary
            self._codes = np.append(self.encode(array.dictionary), self.places[self.missing])
        table, indices = self._codes, array.indices
        if indices.null_count:
            return take_cells(table, pc.fill_null(pc.cast(indices, pa.int64()), len(table) - 1))
        narrow: Codes = indices.to_numpy(zero_copy_only=False).astype(np.uint8)
        # a damaged file can hold indices beyond its dictionary: no code may come of those that has no level
        if len(table) > _NARROW_TABLE or narrow.max(initial=0) > len(table) - 2:
            return take_cells(table, indices)
        if np.array_equal(table[:-1], np.arange(len(table) - 1)):
            return narrow.astype(table.dtype, copy=False)
        return take_cells(table, pa.array(narrow), within=True)

    def _from_texts(self, array: pa.Array, form: Callable[[str], Any]) -> Codes:
        known = [form(text) for text in self.spellings] + [form("")]
        positions = [*self.spellings.values(), self.missing]
        return self._search(array, pa.array(known, type=array.type), positions)

    def _from_integers(self, array: pa.Array) -> Codes:
        levels = {int(text): position for text, position in self.spellings.items() if is_integer_text(text)}
        limits = np.iinfo(array.type.to_pandas_dtype())
        levels = {number: position for number, position in levels.items() if limits.min <= number <= limits.max}
        if not levels or max(levels) - min(levels) > _WIDEST_LOOKUP:
            return self._search(array, pa.array(list(levels), type=array.type), list(levels.values()))
        # clip to one place beyond the levels on each side, so that a small table answers for every integer
        low, high = max(min(levels) - 1, limits.min), min(max(levels) + 1, limits.max)
        positions = [levels.get(number, self.outside) for number in range(low, high + 1)]
        numbers = pc.fill_null(array, low).to_numpy(zero_copy_only=False)
        # the width of the table need not fit into a narrow signed type
        wide = numbers.dtype if high - low <= limits.max else np.dtype(np.int64)
        offsets = (np.clip(numbers, low, high).astype(wide, copy=False) - wide.type(low)).astype(np.intp)
        codes: Codes = self.places[np.array(positions)][offsets]
        if array.null_count:
            codes[pc.is_null(array).to_numpy(zero_copy_only=False)] = self.places[self.missing]
        return codes

    def _from_floats(self, array: pa.Array) -> Codes:
        levels = {float(text): position for text, position in self.spellings.items() if is_float_text(text)}
        numbers = read_numbers(pa.chunked_array([array]), self.name)
        keys = np.array(sorted(levels))
        if not keys.size:
            found = np.full(len(numbers), self.outside)
        else:
            nearest = np.searchsorted(keys, numbers).clip(max=keys.size - 1)
            positions = np.array([levels[key] for key in keys.tolist()])
            found = np.where(keys[nearest] == numbers, positions[nearest], self.outside)
        found[np.isnan(numbers)] = self.missing
        codes: Codes = self.places[found]
        return codes

    def _from_decimals(self, array: pa.Array) -> Codes:
        # the scale is the same for all cells, so equal decimals are those with equal plain texts
        levels: dict[decimal.Decimal, int] = {}
        for text, position in self.spellings.items():
            if is_decimal_text(text) and _fits(number := decimal.Decimal(text), array.type):
                levels[number] = position
        return self._search(array, pa.array(list(levels), type=array.type), list(levels.values()))

    def _search(self, array: pa.Array, known: pa.Array, positions: list[int]) -> Codes:
        found = pc.index_in(array, value_set=known)
        if array.null_count:
            found = pc.if_else(pc.is_null(array), pa.scalar(len(positions), pa.int32()), found)
        return self._take(found, [*positions, self.missing, self.outside])

    def _take(self, found: pa.Array, positions: list[int]) -> Codes:
        # the last position stands for null
        return take_cells(self.places[np.array(positions)], pc.fill_null(found, len(positions) - 1))


def has_written_form(kind: pa.DataType) -> bool:
    """Say whether Arrow writes every value of a type as text. The type alone decides, never a cell."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None:
        try:
            pc.cast(pa.nulls(1, kind), pa.large_string())
        except pa.ArrowException:
            return False  # a time zone that this machine does not know
    return bool(types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_duration(kind))


def _fits(number: decimal.Decimal, kind: pa.DataType) -> bool:
    try:
        pa.scalar(number, type=kind)
    except pa.ArrowException:
        return False
    return True


def read_declared_numbers(cells: pa.ChunkedArray, name: str, column: Numeric) -> NDArray[np.float64]:
    """Read cells as numbers; those that the declaration takes for missing become not-a-number."""
    numbers = read_numbers(cells, name)
    for missing in column.missing_numbers:
        numbers = np.where(numbers == missing, np.nan, numbers)
    return numbers


def clip_numbers(numbers: NDArray[np.float64], column: Numeric) -> NDArray[np.float64]:
    """Put the declared number for missing values and clip everything to the bounds."""
    clipped: NDArray[np.float64] = np.clip(numbers, *column.bounds)
    clipped[np.isnan(clipped)] = column.missing_value
    return clipped


def bin_numbers(numbers: NDArray[np.float64], clipped: NDArray[np.float64], column: Numeric) -> Codes:
    """Give the bin of every number, from the numbers as read and as clipped."""
    cuts = column.cuts
    codes: Codes
    if len(cuts) <= _FEW_CUTS:
        # a comparison per cut is several times faster than a search
        codes = np.zeros(len(numbers), dtype=np.uint8)
        for cut in cuts:
            codes += clipped >= cut
    else:
        codes = np.searchsorted(np.array(cuts), clipped, side="right").astype(code_type(column))
    if marks_missing(column):
        codes[np.isnan(numbers)] = len(cuts) + 1
    return codes
