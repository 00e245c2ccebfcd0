"""A first schema, read from the data, for a person to review.

Levels and bounds that were read from the data can reveal records. So a draft is marked as unreviewed, and it stays so
until someone has replaced what was read by what is publicly known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.column import (
    MAX_LEVEL_LENGTH,
    MISSING_LABEL,
    OTHER_LABEL,
    OWN_LEVEL,
    Boolean,
    Categorical,
    Column,
    Numeric,
)
from dagveil.data.encoding import is_text
from dagveil.data.parsing import read_numbers
from dagveil.data.reading import read_source
from dagveil.data.schema import Schema
from dagveil.data.spelling import spell_number
from dagveil.errors import DataError

FEW_NUMBERS: Final = 20
"""Whole numbers with at most so many distinct values become levels."""

MANY_TEXTS: Final = 100
"""Texts with more distinct values than this keep only the most frequent ones."""

KEPT_TEXTS: Final = 20
"""How many of them are kept."""

_SHARE_OF_NUMBERS: Final = 0.9
_NO_LEVEL: Final = "(none)"
_RESERVED: Final = frozenset({OWN_LEVEL, OTHER_LABEL, MISSING_LABEL})


def draft_schema(source: Any, dataset: str | None = None) -> Schema:
    """Draft a schema from the data itself. The draft is not private: review it before anyone else sees it.

    Parameters
    ----------
    source
        Anything that `read_source` reads.
    dataset
        The name of the data set; the name of the file if None.

    Examples
    --------
    >>> draft = draft_schema({"sex": ["f", "m", "f"], "age": [31.5, 47.0, 62.25]})
    >>> draft.columns["sex"].levels, draft.columns["age"].bounds, draft.reviewed
    (('f', 'm'), (31.5, 62.25), False)
    """
    table = read_source(source)
    if not table.column_names:
        raise DataError("the data have no columns, so there is nothing to draft; check the source")
    if dataset is None and isinstance(source, str | Path):
        dataset = name_dataset(source)
    columns = {name: _draft_column(table.column(name), name) for name in table.column_names}
    return Schema(dataset=dataset or "data", columns=columns, reviewed=False)


def name_dataset(file: str | Path) -> str:
    """Name a data set after its file.

    Examples
    --------
    >>> name_dataset("rows/patients.csv.gz")
    'patients'
    """
    return Path(file).name.partition(".")[0]


def _draft_column(cells: pa.ChunkedArray, name: str) -> Column:
    kind = value_type(cells.type)
    if pa.types.is_boolean(kind):
        return Boolean(outside="false", missing=_place_missing(cells.null_count))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _draft_numbers(read_numbers(cells, name))
    return _draft_texts(cells, name)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return what a column holds, however it is encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _draft_numbers(numbers: NDArray[np.float64]) -> Column:
    known = numbers[np.isfinite(numbers)]
    distinct, counts = np.unique(known, return_counts=True)
    if 0 < distinct.size <= FEW_NUMBERS and np.all(distinct == np.trunc(distinct)):
        levels = [spell_number(number) for number in distinct.tolist()]
        return Categorical(
            levels=tuple(levels),
            outside=levels[int(np.argmax(counts))],
            missing=_place_missing(int(np.isnan(numbers).sum())),
        )
    return _draft_numeric(known, int(np.isnan(numbers).sum()))


def _draft_numeric(numbers: NDArray[np.float64], n_missing: int) -> Numeric:
    """Draft bounds, and where there are missing values the number that stands for them, for the reviewer to see."""
    column = Numeric(bounds=_find_bounds(numbers))
    return msgspec.structs.replace(column, missing=column.missing_value) if n_missing else column


def _draft_texts(cells: pa.ChunkedArray, name: str) -> Column:
    texts = count_texts(cells, name)
    n_missing = len(cells) - sum(texts.values())
    if texts and {text.lower() for text in texts} <= {"true", "false"}:
        return Boolean(outside="false", missing=_place_missing(n_missing))
    numbers = read_numbers(pa.chunked_array([pa.array(list(texts), pa.large_string())]), name)
    counts = np.array(list(texts.values()), dtype=np.int64)
    is_number = ~np.isnan(numbers)
    if not texts or any(_is_padded(text) for text in texts):
        return _draft_levels(texts, n_missing)
    if is_number.all():
        if all(spell_number(number) == text for number, text in zip(numbers.tolist(), texts, strict=True)):
            return _draft_numbers(np.append(np.repeat(numbers, counts), np.full(n_missing, np.nan)))
        return _draft_numeric(numbers, n_missing)
    if len(texts) > FEW_NUMBERS and counts[is_number].sum() >= _SHARE_OF_NUMBERS * counts.sum():
        return _draft_numeric(numbers, n_missing)
    return _draft_levels(texts, n_missing)


def _draft_levels(texts: Mapping[str, int], n_missing: int) -> Categorical:
    usable = {text: count for text, count in texts.items() if len(text) <= MAX_LEVEL_LENGTH and text not in _RESERVED}
    frequent = sorted(usable, key=lambda text: (-usable[text], text))
    if len(frequent) > MANY_TEXTS:
        frequent = frequent[:KEPT_TEXTS]
    if not frequent:
        return Categorical(levels=(_NO_LEVEL,), outside=_NO_LEVEL)
    return Categorical(
        levels=tuple(sorted(frequent)),
        outside=frequent[0] if len(frequent) == len(texts) else OWN_LEVEL,
        missing=_place_missing(n_missing),
    )


def count_texts(cells: pa.ChunkedArray, name: str) -> dict[str, int]:
    """Count the texts of a column that is neither numbers nor booleans; empty ones are missing."""
    if not is_text(cells.type):
        try:
            cells = pc.cast(cells, pa.large_string())
        except pa.ArrowException:
            raise DataError(
                f"column {name!r} has the type {cells.type}, which holds neither text nor numbers; "
                "convert it or leave it out"
            ) from None
    counted = pc.value_counts(cells)
    try:
        pairs = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    except UnicodeDecodeError:
        raise DataError(f"column {name!r} holds text that is not encoded as UTF-8; convert the file to UTF-8") from None
    return {text: count for text, count in pairs if text}


def _place_missing(n_missing: int) -> str | None:
    return OWN_LEVEL if n_missing else None


def _find_bounds(numbers: NDArray[np.float64]) -> tuple[float, float]:
    known = numbers[np.isfinite(numbers)]
    if known.size == 0:
        return (0.0, 1.0)
    lower, upper = float(known.min()), float(known.max())
    if lower < upper:
        return (lower, upper)
    # a constant column still needs bounds that increase; growing towards zero cannot overflow
    width = max(1.0, abs(lower))
    return (lower - width, upper) if lower > 0 else (lower, upper + width)


def _is_padded(text: str) -> bool:
    # codes such as "01" are names, not numbers
    return len(text) > 1 and text[0] == "0" and text[1].isdigit()
