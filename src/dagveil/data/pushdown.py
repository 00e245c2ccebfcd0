"""Codes of columns as SQL expressions, so that a database groups rows by codes instead of by raw cells.

An expression exists only where its value is the encoder's for every cell of the type. Where there is none, rows are
streamed and encoded here. The type alone decides, never a cell.

- *Texts* are compared byte by byte, by the encoder and by a CASE alike. A column of a database may carry a collation
  that takes different texts for equal; there the bytes are taken out first.
- *Whole numbers* are compared with those levels that are written as whole numbers and lie in the range of the type.
- *Numbers in bins.* The cuts lie strictly inside the bounds, so clipping to the bounds moves no number across a cut,
  and the code is how many cuts are at most x. Not-a-number is asked for first, since databases sort it above infinity.
  A cut is written with the digits that read back as the same float.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dagveil.data.cells import is_integer_text, place_codes, spell_levels
from dagveil.data.column import OWN_LEVEL, Column, LevelColumn, Numeric
from dagveil.data.encoding import code_type, is_text

MOST_BRANCHES: Final = 64  # a CASE with more branches than this would cost more than it saves


class TextRule(enum.Enum):
    """How texts are compared."""

    PLAIN = "plain"  # as they are, where no collation can stand in the way: faster
    BYTES = "bytes"  # their bytes


@dataclass(frozen=True, slots=True)
class CodeExpression:
    """An SQL expression for the code of a cell, and the values of its parameters."""

    text: str
    values: tuple[str | bytes, ...]


def quote_name(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def write_code(name: str, kind: pa.DataType, column: Column, rule: TextRule = TextRule.BYTES) -> CodeExpression | None:
    """Write the code of a column in DuckDB's SQL, or None where it must be computed here."""
    cell = quote_name(name)
    found = _bin(cell, kind, column) if isinstance(column, Numeric) else _level(cell, kind, column, rule)
    if found is None:
        return None
    branches, values, otherwise = found
    if len(branches) > MOST_BRANCHES:
        return None
    target = "UTINYINT" if code_type(column) is np.uint8 else "USMALLINT"
    cases = " ".join(f"WHEN {condition} THEN {code}" for condition, code in branches)
    return CodeExpression(f"CAST(CASE {cases} ELSE {otherwise} END AS {target})", values)


_Branches = tuple[list[tuple[str, int]], tuple[str | bytes, ...], int]


def _bin(cell: str, kind: pa.DataType, column: Numeric) -> _Branches | None:
    types = pa.types
    if types.is_boolean(kind):
        number = f"CAST(CAST({cell} AS TINYINT) AS DOUBLE)"
    elif types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        number = f"CAST({cell} AS DOUBLE)"
    else:
        return None
    cuts = column.cuts
    missing = len(cuts) + 1 if column.missing == OWN_LEVEL else sum(cut <= column.missing_value for cut in cuts)
    coded = "".join(f" OR {number} = CAST('{code!r}' AS DOUBLE)" for code in column.missing_numbers)
    branches = [(f"{cell} IS NULL OR isnan({number}){coded}", missing)]
    for position in range(len(cuts), 0, -1):
        branches.append((f"{number} >= CAST('{cuts[position - 1]!r}' AS DOUBLE)", position))
    return branches, (), 0


def _level(cell: str, kind: pa.DataType, column: LevelColumn, rule: TextRule) -> _Branches | None:
    places = place_codes(column)
    outside, missing = places[-2], places[-1]
    spellings = spell_levels(column)
    if pa.types.is_boolean(kind):
        no, yes = (places[spellings[word]] if word in spellings else outside for word in ("false", "true"))
        return [(f"{cell} IS NULL", missing), (cell, yes)], (), no
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        numbers = {int(text): places[spelled] for text, spelled in spellings.items() if is_integer_text(text)}
        inside = [(number, code) for number, code in numbers.items() if limits.min <= number <= limits.max]
        branches = [(f"{cell} = {number}", code) for number, code in inside]
        return [(f"{cell} IS NULL", missing), *branches], (), outside
    if is_text(kind):
        plain = rule is TextRule.PLAIN
        text = cell if plain else f"encode({cell})"
        values = tuple(spelled if plain else spelled.encode() for spelled in spellings)
        branches = [(f"{text} = ?", places[position]) for position in spellings.values()]
        empty = f"{cell} = ''" if plain else f"octet_length({text}) = 0"
        return [(f"{cell} IS NULL OR {empty}", missing), *branches], values, outside
    return None
