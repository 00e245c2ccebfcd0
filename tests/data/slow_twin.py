"""What the engines do, written cell by cell in plain Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dagveil.data.column import Boolean, Column, Numeric
from dagveil.data.schema import Schema


def slow_number(cell: Any) -> float:
    if cell is None:
        return math.nan
    if isinstance(cell, str):
        if cell.strip() in {"true", "True", "TRUE", "false", "False", "FALSE"}:
            return float(cell.strip().lower() == "true")
        try:
            return math.nan if "_" in cell else float(cell.strip())
        except ValueError:
            return math.nan
    return float(cell)


def slow_declared(cell: Any, column: Numeric) -> float:
    number = slow_number(cell)
    return math.nan if any(slow_number(word) == number for word in column.missing_words or ()) else number


def slow_value(cell: Any, column: Numeric) -> float:
    number = slow_declared(cell, column)
    if math.isnan(number):
        if isinstance(column.missing, float):
            return column.missing
        if column.center is not None:
            return column.center
        return (column.bounds[0] + column.bounds[1]) / 2
    return min(max(number, column.bounds[0]), column.bounds[1])


def slow_label(cell: Any, column: Column) -> str:
    if isinstance(column, Numeric):
        if column.missing == "own-level" and math.isnan(slow_declared(cell, column)):
            return "(missing)"
        value = slow_value(cell, column)
        return column.labels[sum(cut <= value for cut in column.cuts)]
    empty = cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))
    if empty or (isinstance(cell, str) and cell in (column.missing_words or ())):
        if column.missing is None:
            return "(other)" if column.outside == "own-level" else column.outside
        return "(missing)" if column.missing == "own-level" else column.missing
    if isinstance(cell, bool):
        cell = "true" if cell else "false"
    elif isinstance(cell, float) and cell == int(cell):
        cell = str(int(cell))
    text = str(cell)
    for level, texts in (column.spellings or {}).items():
        if text in texts:
            return level
    if isinstance(column, Boolean):
        if text in {text.lower(), text.upper(), text.capitalize()}:
            if text.lower() in {"true", "t", "yes", "1"}:
                return "true"
            if text.lower() in {"false", "f", "no", "0"}:
                return "false"
    elif text in column.levels:
        return text
    return "(other)" if column.outside == "own-level" else column.outside


def slow_code(cell: Any, column: Column) -> int:
    return column.labels.index(slow_label(cell, column))


def slow_counts(source: Mapping[str, Sequence[Any]], schema: Schema, columns: Sequence[str]) -> np.ndarray:
    counts = np.zeros([len(schema.columns[name].labels) for name in columns], dtype=np.int64)
    n_rows = len(next(iter(source.values())))
    for row in range(n_rows):
        counts[tuple(slow_code(source[name][row], schema.columns[name]) for name in columns)] += 1
    return counts


def subsets(names: Sequence[str], largest: int) -> list[tuple[str, ...]]:
    return [some for size in range(largest + 1) for some in itertools.combinations(names, size)]
