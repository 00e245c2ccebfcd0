"""What a person should look at in a draft: columns that are hardly variables as they stand."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dagveil.data.column import OWN_LEVEL, Boolean, Column, Numeric
from dagveil.data.draft import KEPT_TEXTS, MANY_TEXTS, ReadColumn, merge_spellings, read_columns
from dagveil.data.schema import Schema

_LONGEST_EXAMPLE: Final = 30


def find_doubts(source: Any, draft: Schema) -> dict[str, str]:
    """Say for each doubtful column what is odd, and what to do. Not private: it is for the custodian's eyes only.

    Doubtful are columns that were left out (dates, identifiers of records and of persons), columns with one value or
    none, texts that are too many to be levels, levels that differ in capitals and blanks only, and missing numbers.

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
    {'plan': "3 spellings of 2 levels, such as 'Basic ' and 'basic': merged under `spellings`; add others there"}
    """
    found = read_columns(source, draft.file, [*draft.ignore, *draft.columns])
    doubts = {name: column.unfit for name, column in found.items() if name in draft.ignore}
    doubts |= {name: _doubt(found[name], column) for name, column in draft.columns.items()}
    return {name: doubts[name] for name in found if doubts.get(name) is not None}  # type: ignore[misc]


def _doubt(found: ReadColumn, column: Column) -> str | None:
    if isinstance(column, Boolean):
        return None
    if found.numbers is not None:
        distinct = np.unique(found.numbers[np.isfinite(found.numbers)]).size
        if distinct <= 1:
            return _about_constants(distinct)
        missing = isinstance(column, Numeric) and column.missing == OWN_LEVEL
        return _about_missing(column) if missing and isinstance(column, Numeric) else None
    texts = found.texts
    if len(texts) <= 1:
        return _about_constants(len(texts))
    if len(texts) > MANY_TEXTS:
        return (
            f"{len(texts)} different texts, of which {KEPT_TEXTS} became levels: group them in the data, "
            "declare public levels, or leave the column out"
        )
    merged = merge_spellings(texts)
    several = next(((level, *others) for level, others in merged.items() if others), None)
    if several is None:
        return None
    example = " and ".join(_shorten(text) for text in sorted(several)[:2])
    return (
        f"{len(texts)} spellings of {len(merged)} levels, such as {example}: merged under `spellings`; add others there"
    )


def _about_missing(column: Numeric) -> str:
    return (
        f'has missing values: a bin of their own (missing = "{OWN_LEVEL}"); methods that add numbers up put the center '
        f"there, {column.missing_value:g}: is that right?"
    )


def _about_constants(distinct: int) -> str:
    return f"{'one value only' if distinct else 'no value'} in these rows: is it the column that you meant?"


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_EXAMPLE else text[:_LONGEST_EXAMPLE] + "…")
