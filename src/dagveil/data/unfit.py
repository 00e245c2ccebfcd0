"""Columns that a draft leaves out: dates, names of records, and names of persons with several records.

Not a value of such a column may stand in a schema: it would name somebody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

DATES: Final = "looks like dates or times: left out; make it a number such as a year or an age if you need it"

MANY_VALUES: Final = 100
"""A name of persons has more distinct values than this."""

_SHARE_OF_ROWS: Final = 0.05
"""Distinct values of such names are at least this share of the rows: fewer are groups, such as wards or postcodes."""

_FEW_RECORDS: Final = 20
_SHARE_OF_DATES: Final = 0.9
_LARGEST_GAP: Final = 0.1
_DATE: Final = re.compile(
    r"\s*(\d{4}([-./])\d{1,2}\2\d{1,2}|\d{1,2}([-./])\d{1,2}\3(\d{4}|\d{2}))([T ]+\d{1,2}:\d{2}.*)?\s*", re.ASCII
)


def tell_unfit_texts(texts: Mapping[str, int]) -> str | None:
    """Say why a column of texts is no variable, from how often each occurs; None if nothing speaks against it.

    Examples
    --------
    >>> tell_unfit_texts({f"P{k:04}": 1 + k % 3 for k in range(500)})[:47]
    '500 different texts, 333 of them more than once'
    """
    if texts and sum(_DATE.fullmatch(text) is not None for text in texts) >= _SHARE_OF_DATES * len(texts):
        return DATES
    rows = sum(texts.values())
    if len(texts) == rows > _FEW_RECORDS:
        return _tell_names(rows)
    if len(texts) > MANY_VALUES and len(texts) >= _SHARE_OF_ROWS * rows:
        return _tell_persons(len(texts), sum(count > 1 for count in texts.values()), "texts")
    return None


def tell_unfit_numbers(numbers: NDArray[np.float64]) -> str | None:
    """Say why a column of numbers is no variable; None if nothing speaks against it.

    Whole numbers that name persons or records are spread evenly over their range, running or drawn at random.
    Measurements, counts and amounts are not.
    """
    known = numbers[np.isfinite(numbers)]
    distinct, counts = np.unique(known, return_counts=True)
    if distinct.size <= _FEW_RECORDS or np.any(distinct != np.trunc(distinct)):
        return None
    if distinct.size == known.size:
        return _tell_names(known.size) if np.ptp(distinct) < 2 * known.size or _is_even(known) else None
    recurring = int((counts > 1).sum())
    many = distinct.size > MANY_VALUES and distinct.size >= _SHARE_OF_ROWS * known.size
    if many and 2 * recurring >= distinct.size and _is_even(known):
        return _tell_persons(distinct.size, recurring, "whole numbers")
    return None


def _is_even(numbers: NDArray[np.float64]) -> bool:
    """Tell whether many numbers lie evenly in their range, by the largest gap to a uniform distribution."""
    ordered = np.sort(numbers)
    places = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    gap = float(np.abs(places - np.linspace(0.0, 1.0, ordered.size)).max())
    return ordered.size > MANY_VALUES and gap < _LARGEST_GAP


def _tell_names(number: int) -> str:
    return f"all {number} values differ: left out, since it names records; declare it if it does not"


def _tell_persons(number: int, recurring: int, what: str) -> str:
    return (
        f"{number} different {what}, {recurring} of them more than once: left out, since it seems to name persons with "
        "several records. Each record is protected, and a person with k records has k times the epsilon: make a table "
        "with one row per person first"
    )
