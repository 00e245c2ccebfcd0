"""From Python and NumPy cells to Arrow arrays, such that no cell decides how another one is read."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from dagveil.data.encoding import is_text
from dagveil.data.spelling import spell_number


def to_arrow(cells: Any) -> pa.Array | pa.ChunkedArray:
    """Turn a list, array or series into an Arrow array.

    Examples
    --------
    >>> to_arrow([1, "a", True, None]).to_pylist()
    ['1', 'a', 'true', None]
    """
    if isinstance(cells, pa.Array | pa.ChunkedArray):
        return cells
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        # Arrow wants native byte order and at most 64 bits; not-a-number counts as missing later anyway
        native = np.dtype(np.float64) if cells.dtype.itemsize > 8 else cells.dtype.newbyteorder("=")
        return pa.array(np.ascontiguousarray(cells, dtype=native))
    try:
        array = pa.array(cells, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _spell_cells(cells)
    has_type = getattr(cells, "dtype", np.dtype(object)) != np.dtype(object)
    return array if has_type or _is_unambiguous(array.type, cells) else _spell_cells(cells)


def _is_unambiguous(kind: pa.DataType, cells: Iterable[Any]) -> bool:
    """Say whether the type that Arrow inferred gives every cell the code that it would have beside any other cells.

    Where no type is declared, a single record could turn the column into dates or lists, and a truth value among
    numbers is read as 1.
    """
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return not any(isinstance(cell, bool | np.bool_) for cell in cells)
    return bool(types.is_boolean(kind) or types.is_null(kind) or is_text(kind))


def _spell_cells(cells: Iterable[Any]) -> pa.Array:
    return pa.array([_spell_cell(cell) for cell in cells], type=pa.string())


def _spell_cell(cell: Any) -> str | None:
    """Write one cell as text, in the way in which levels are compared, so that it gets the code it would get anyway."""
    try:
        if cell is None or type(cell).__name__ in {"NAType", "NaTType"}:
            return None
        if isinstance(cell, bool | np.bool_):
            return "true" if cell else "false"
        if isinstance(cell, int | np.integer):
            return str(int(cell))
        if isinstance(cell, float | np.floating | decimal.Decimal):
            number = float(cell)
            return None if math.isnan(number) else spell_number(number)
        if isinstance(cell, str):
            return cell.encode().decode()
        if isinstance(cell, bytes):
            return cell.decode()
        text: str = pa.scalar(cell).cast(pa.string()).as_py()
        return text
    except Exception:
        # whatever a foreign object does here, it is only a value that no level foresees
        return f"({type(cell).__name__})"
