"""What a person should look at in a draft: columns that are hardly variables as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.column import Column, Numeric
from dagveil.data.draft import FEW_NUMBERS, KEPT_TEXTS, MANY_TEXTS, count_texts, value_type
from dagveil.data.parsing import read_numbers
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema

_DATE: Final = re.compile(
    r"\s*(\d{4}([-./])\d{1,2}\2\d{1,2}|\d{1,2}([-./])\d{1,2}\3(\d{4}|\d{2}))([T ]+\d{1,2}:\d{2}.*)?\s*", re.ASCII
)
_DATES: Final = "looks like dates or times: leave the column out, or make it a number such as a year or an age"
_SHARE_OF_DATES: Final = 0.9
_LONGEST_EXAMPLE: Final = 30


def find_doubts(source: Any, draft: Schema) -> dict[str, str]:
    """Say for each doubtful column what is odd, and what to do. Not private: it is for the custodian's eyes only.

    Doubtful are dates and times, identifiers, columns with one value or none, texts that are too many to be levels, and
    levels that differ in capitals and blanks only.

    Parameters
    ----------
    source
        What the draft was read from.
    draft
        What `draft_schema` has made of it.

    Examples
    --------
    >>> from dagveil.data.draft import draft_schema
    >>> rows = {"plan": ["basic", "Basic ", "plus"], "age": [31, 47, 31]}
    >>> find_doubts(rows, draft_schema(rows))
    {'plan': "3 spellings of 2 levels, such as 'Basic ' and 'basic': make them the same in the data"}
    """
    table = read_source(source, list(draft.columns))
    found = {name: _doubt(table.column(name), name, column) for name, column in draft.columns.items()}
    return {name: doubt for name, doubt in found.items() if doubt is not None}


def _doubt(cells: pa.ChunkedArray, name: str, column: Column) -> str | None:
    if pa.types.is_temporal(value_type(cells.type)):
        return _DATES
    if isinstance(column, Numeric):
        return _about_numbers(read_numbers(cells, name))
    return _about_texts(count_texts(cells, name))


def _about_numbers(numbers: NDArray[np.float64]) -> str | None:
    known = numbers[np.isfinite(numbers)]
    distinct = np.unique(known)
    if distinct.size <= 1:
        return _about_constants(distinct.size)
    # incomes may all differ as well; identifiers lie close to each other
    is_running = (
        distinct.size == known.size and np.all(distinct == np.trunc(distinct)) and np.ptp(distinct) < 2 * known.size
    )
    return _about_identifiers(known.size) if is_running else None


def _about_texts(texts: Mapping[str, int]) -> str | None:
    if texts and sum(_DATE.fullmatch(text) is not None for text in texts) >= _SHARE_OF_DATES * len(texts):
        return _DATES
    if len(texts) <= 1:
        return _about_constants(len(texts))
    if len(texts) == sum(texts.values()) > FEW_NUMBERS:
        return _about_identifiers(len(texts))
    if len(texts) > MANY_TEXTS:
        return (
            f"{len(texts)} different texts, of which {KEPT_TEXTS} became levels: group them in the data, "
            "declare public levels, or leave the column out"
        )
    same: dict[str, list[str]] = {}
    for text in sorted(texts):
        same.setdefault(text.strip().casefold(), []).append(text)
    several = [group for group in same.values() if len(group) > 1]
    if not several or same.keys() <= {"true", "false"}:
        return None
    example = " and ".join(_shorten(text) for text in several[0][:2])
    return f"{len(texts)} spellings of {len(same)} levels, such as {example}: make them the same in the data"


def _about_identifiers(number: int) -> str:
    return f"all {number} values differ: leave the column out if it names records"


def _about_constants(distinct: int) -> str:
    return f"{'one value only' if distinct else 'no value'} in these rows: is it the column that you meant?"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_EXAMPLE else text[:_LONGEST_EXAMPLE] + "…")
