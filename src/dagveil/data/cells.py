"""From Python, NumPy and pandas cells to Arrow arrays, such that no cell decides how another one is read.

A declared type is a public fact and is kept. Elsewhere Arrow would infer one from all cells, so that one record could
change how all are read: it converts a column only if all cells have one plain type, else each is written as text.
"""

import datetime
import decimal
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.column import (
    FALSE_WORDS,
    MISSING_LABEL,
    OTHER_LABEL,
    OWN_LEVEL,
    TRUE_WORDS,
    Boolean,
    LevelColumn,
    marks_missing,
)
from dagveil.errors import DataError

_NUMBER: Final = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"
_TRUTHS: Final = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
_LARGEST_EXACT_INTEGER: Final = 2**53
_LARGEST_EXACT_POWER: Final = 22
_WIDEST_PRECISION: Final = 38


def read_numbers(cells: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Read cells as float64; missing cells and texts that are no number become not-a-number."""
    chunks = [_read_chunk(chunk, name) for chunk in list_chunks(cells)]
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def list_chunks(cells: pa.ChunkedArray) -> list[pa.Array]:
    """Give the chunks, at least one: a type that is refused must be refused without a record too."""
    return cells.chunks or [cells.combine_chunks()]


def simplify_type(array: pa.Array) -> pa.Array:
    """Turn types that few functions of Arrow accept into plain ones; no conversion can fail because of a value."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name.startswith("arrow."):
        return simplify_type(array.storage)
    if pa.types.is_string_view(kind):
        return pc.cast(array, pa.large_string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pc.cast(array, pa.large_binary())
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return pc.cast(array, pa.decimal128(_WIDEST_PRECISION, kind.scale))
    return array


def take_cells(table: NDArray[Any], indices: pa.Array, within: bool = False) -> NDArray[Any]:
    """Look up every index in a table, to be read only; `within` if all are known to lie there."""
    # unlike numpy, Arrow needs no wide copy of narrow indices
    taken: NDArray[Any] = pc.take(pa.array(table), indices, boundscheck=not within).to_numpy(zero_copy_only=False)
    return taken


def _read_chunk(array: pa.Array, name: str) -> NDArray[np.float64]:
    array = simplify_type(array)
    kind = array.type
    if pa.types.is_dictionary(kind):
        table = np.append(_read_chunk(array.dictionary, name), np.nan)
        indices = pc.fill_null(pc.cast(array.indices, pa.int64()), len(table) - 1)
        return take_cells(table, indices)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _parse_texts(array)
    if pa.types.is_decimal(kind):
        return _read_decimals(array)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind):
        array = pc.cast(array, pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataError(f"column {name!r} is declared numeric and has the type {kind}; convert it to numbers")
    # casts between numbers cannot fail with safe=False: large integers are rounded to the nearest float
    return _to_floats(pc.cast(array, pa.float64(), safe=False))


def _to_floats(array: pa.Array) -> NDArray[np.float64]:
    if array.null_count:
        array = pc.fill_null(array, float("nan"))
    floats: NDArray[np.float64] = array.to_numpy(zero_copy_only=False)
    return floats


def _read_decimals(array: pa.Array) -> NDArray[np.float64]:
    """Give the float nearest to every decimal, whatever its scale. Arrow's own cast can be off by one place."""
    scale = array.type.scale
    if array.type.bit_width != 128 or not 0 <= scale <= _LARGEST_EXACT_POWER or len(array) == 0:
        return _read_written(array)
    words = np.frombuffer(array.buffers()[1], dtype="<i8")[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[::2], words[1::2]
    # dividing one exact float by another rounds to the nearest, as reading the text does
    numbers: NDArray[np.float64] = low / 10.0**scale
    wide = (high != low >> 63) | (low >= _LARGEST_EXACT_INTEGER) | (low <= -_LARGEST_EXACT_INTEGER)
    if array.null_count:
        missing = pc.is_null(array).to_numpy(zero_copy_only=False)
        numbers[missing] = np.nan
        wide &= ~missing
    if wide.any():
        numbers[wide] = _read_written(array.filter(pa.array(wide)))
    return numbers


def _read_written(decimals: pa.Array) -> NDArray[np.float64]:
    return _to_floats(pc.cast(pc.cast(decimals, pa.large_string()), pa.float64()))


def _parse_texts(array: pa.Array) -> NDArray[np.float64]:
    """Parse each text by itself, after trimming: as a number, or as 1 or 0 for true or false."""
    texts = pc.ascii_trim_whitespace(array)
    # a pattern decides for each text, so that Arrow is asked only about numbers and need not fail
    is_number = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False).to_numpy(zero_copy_only=False)
    if is_number.all():
        return _cast_texts(texts)
    truths = np.array([*_TRUTHS.values(), np.nan])
    found = pc.index_in(texts, value_set=pa.array(list(_TRUTHS), type=texts.type))
    numbers = take_cells(truths, pc.fill_null(found, len(truths) - 1)).copy()
    numbers[is_number] = _cast_texts(texts.filter(pa.array(is_number)))
    return numbers


def _cast_texts(texts: pa.Array) -> NDArray[np.float64]:
    if len(texts) == 0:
        return np.empty(0)
    try:
        numbers: NDArray[np.float64] = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
        return numbers
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return np.array([np.nan])
    # halving would find a text that Arrow refuses without judging the others differently
    half = len(texts) // 2
    return np.concatenate([_cast_texts(texts[:half]), _cast_texts(texts[half:])])


_PLAIN_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?", flags=re.ASCII)
_LONGEST_PLAIN: Final = 400


def spell_levels(column: LevelColumn) -> Mapping[str, int]:
    """Give every accepted text with the position of the level that it stands for; words for missing ones come last.

    Positions are those of `place_codes`. A truth value in the data has the text "true" or "false"; a level called True
    or TRUE accepts it too.
    """
    if isinstance(column, Boolean):
        spellings = dict.fromkeys(FALSE_WORDS, 0) | dict.fromkeys(TRUE_WORDS, 1)
    else:
        spellings = {level: position for position, level in enumerate(column.levels)}
    for level, texts in (column.spellings or {}).items():
        spellings.update(dict.fromkeys(texts, column.levels.index(level)))
    spellings.update(dict.fromkeys(column.missing_words or (), len(column.levels) + 1))
    for word in ("true", "false"):
        for text in (word.capitalize(), word.upper()):
            if text in spellings:
                spellings.setdefault(word, spellings[text])
    return spellings


def place_codes(column: LevelColumn) -> tuple[int, ...]:
    """Give the code of every level, then the code of outside values, then that of missing values."""
    labels = column.labels
    outside = labels.index(OTHER_LABEL if column.outside == OWN_LEVEL else column.outside)
    if column.missing is None:
        missing = outside
    else:
        missing = labels.index(MISSING_LABEL if marks_missing(column) else column.missing)
    return (*range(len(column.levels)), outside, missing)


def spell_number(number: float) -> str:
    """Write a number as levels name it: whole numbers without a point, others with the fewest digits."""
    # adding zero turns -0.0 into 0.0
    return repr(float(number) + 0.0).removesuffix(".0")


def spell_decimal(number: decimal.Decimal) -> str:
    """Write a decimal as levels name it: plainly, without closing zeros, whatever its scale."""
    if not number.is_finite():
        return spell_number(float(number))
    if number == 0:
        return "0"
    if abs(number.adjusted()) > _LONGEST_PLAIN:
        # far beyond the longest level; the plain text could fill the memory
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").removesuffix(".") if "." in text else text


def is_integer_text(text: str) -> bool:
    """Say whether a level is the text of a whole number."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 25 and str(int(text)) == text


def is_float_text(text: str) -> bool:
    """Say whether a level is the text of a number."""
    try:
        number = float(text)
    except ValueError:
        return False
    return number == number and spell_number(number) == text


def is_decimal_text(text: str) -> bool:
    """Say whether a level is the plain text of a decimal."""
    return _PLAIN_DECIMAL.fullmatch(text) is not None and spell_decimal(decimal.Decimal(text)) == text


# the first entry that holds all types of a column (apart from None) says how it is stored
_PLAIN: Final[tuple[tuple[frozenset[type], pa.DataType], ...]] = (
    (frozenset(), pa.null()),
    (frozenset({str}), pa.large_string()),
    (frozenset({bool}), pa.bool_()),
    (frozenset({int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32}), pa.int64()),
    (frozenset({float, np.float64}), pa.float64()),
)
_TIMES: Final = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_FAILURES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def to_arrow(cells: Any) -> pa.Array | pa.ChunkedArray:
    """Turn a list, array or series into an Arrow array."""
    if isinstance(cells, pa.Array | pa.ChunkedArray):
        return cells
    if isinstance(cells, np.ma.MaskedArray):
        array = to_arrow(cells.data)
        return pc.if_else(pa.array(np.ma.getmaskarray(cells)), pa.scalar(None, array.type), array)
    if isinstance(cells, np.ndarray):
        return _from_numpy(cells)
    kind = getattr(cells, "dtype", None)
    if isinstance(kind, np.dtype):
        return _from_numpy(np.asarray(cells))
    if type(kind).__name__ == "CategoricalDtype":
        return _from_categories(getattr(cells, "array", cells))
    if hasattr(cells, "to_arrow") and str(kind) != "Object":
        return cells.to_arrow()
    if type(kind).__name__ == "DatetimeTZDtype" or hasattr(getattr(cells, "array", cells), "__arrow_array__"):
        return _keep_type(cells)
    return _from_numpy(np.asarray(cells)) if hasattr(cells, "__array__") else _from_objects(cells)


def _from_numpy(cells: np.ndarray[Any, Any]) -> pa.Array:
    if cells.ndim != 1:
        raise DataError(f"a column has {cells.ndim} dimensions; give a list or array with one cell per row")
    if cells.dtype.kind in "biuf":
        # Arrow wants native byte order and at most 64 bits; not-a-number counts as missing later anyway
        native = np.dtype(np.float64) if cells.dtype.itemsize > 8 else cells.dtype.newbyteorder("=")
        return pa.array(np.ascontiguousarray(cells, dtype=native))
    return _from_objects(cells) if cells.dtype.hasobject else _keep_type(cells)


def _keep_type(cells: Any) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.array(cells, from_pandas=True)
    except _FAILURES:
        return _spell_cells(list(cells))


def _from_objects(cells: Iterable[Any]) -> pa.Array:
    try:
        cells = list(cells)
    except TypeError:
        raise DataError(f"a column is a single {type(cells).__name__}; give a list with one cell per row") from None
    kinds = set(map(type, cells)) - {type(None)}
    plain = next((stored for types, stored in _PLAIN if kinds <= types), None)
    if plain is not None:
        try:
            return pa.array(cells, type=plain, from_pandas=True)
        except _FAILURES:
            pass  # an integer of more than 64 bits, or a text that is no valid Unicode
    return _spell_cells(cells)


def _from_categories(values: Any) -> pa.Array:
    """Convert a pandas Categorical. The type of its categories may come from the data, so it is not kept."""
    if len(values.categories) == 0:
        return pa.nulls(len(values))
    codes = np.asarray(values.codes)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=codes < 0), _from_objects(values.categories.astype(object))
    )


def _spell_cells(cells: list[Any]) -> pa.Array:
    try:
        return pa.array([cell if type(cell) is str else _spell_cell(cell) for cell in cells], type=pa.large_string())
    except UnicodeEncodeError:
        return pa.array([_spell_cell(cell) for cell in cells], type=pa.large_string())


def _spell_cell(cell: Any) -> str | None:
    """Write one cell as text, in the way in which levels are compared, so that it gets the code it would get anyway."""
    try:
        if isinstance(cell, pa.Scalar):
            cell = cell.as_py()
        if cell is None or cell is np.ma.masked or type(cell).__name__ in {"NAType", "NaTType"}:
            return None
        if isinstance(cell, bool | np.bool_):
            return "true" if cell else "false"
        if isinstance(cell, int | np.integer):
            return str(int(cell))
        if isinstance(cell, float | np.floating):
            number = float(cell)
            return None if math.isnan(number) else spell_number(number)
        if isinstance(cell, decimal.Decimal):
            return None if cell.is_nan() else spell_decimal(cell)
        if isinstance(cell, str):
            return cell.encode().decode()
        if isinstance(cell, bytes | bytearray):
            return cell.decode()
        if isinstance(cell, _TIMES):
            if isinstance(cell, np.datetime64 | np.timedelta64) and np.isnat(cell):
                return None
            # only these: Arrow's inference can crash the interpreter on a list of NumPy scalars of several types
            text: str | None = pa.scalar(cell).cast(pa.string()).as_py()
            return text
    except Exception:
        pass
    # whatever a foreign object is or does, it is only a value that no level foresees
    return f"({type(cell).__name__})"
