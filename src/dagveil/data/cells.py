"""From Python, NumPy and pandas cells to Arrow arrays, such that no cell decides how another one is read.

A declared type, such as that of a NumPy array of floats, is a public fact and is kept. Where no type is declared, Arrow
would infer one from all cells together: one record could then change the scale of all decimals, or turn whole numbers
into floats. So Arrow may convert such a column only if all its cells have the same plain type, for which its array
means the same as the texts of the cells one by one. In all other cases every cell is written as text by itself.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagveil.data.spelling import spell_decimal, spell_number
from dagveil.errors import DataError

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
    """Turn a list, array or series into an Arrow array.

    Examples
    --------
    >>> to_arrow([1, "a", True, None]).to_pylist()
    ['1', 'a', 'true', None]
    """
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
