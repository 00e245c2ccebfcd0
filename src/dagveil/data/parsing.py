"""From cells to floats, each cell by itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.errors import DataError

_NUMBER: Final = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))$"
_TRUTHS: Final = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
_LARGEST_EXACT_INTEGER: Final = 2**53
_LARGEST_EXACT_POWER: Final = 22
_WIDEST_PRECISION: Final = 38


def read_numbers(cells: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Read cells as float64; missing cells and texts that are no number become not-a-number.

    Examples
    --------
    >>> read_numbers(pa.chunked_array([["1.5", "true", "?"]]), "x").tolist()
    [1.5, 1.0, nan]
    """
    chunks = [_read_chunk(chunk, name) for chunk in list_chunks(cells)]
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def list_chunks(cells: pa.ChunkedArray) -> list[pa.Array]:
    """Give the chunks, at least one: a type that is refused must be refused without a record too."""
    return cells.chunks or [cells.combine_chunks()]


def simplify_type(array: pa.Array) -> pa.Array:
    """Turn types that few functions of Arrow accept into plain ones with the same values.

    No conversion here can fail because of a value.
    """
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
