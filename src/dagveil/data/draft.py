"""A first schema, read from the data, for a person to review.

Levels, bounds, bins, centers and spreads that were read from the data can reveal records. So a draft is marked as
unreviewed, and it stays so until someone has replaced what was read by what is publicly known.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.cells import read_numbers, spell_number
from dagveil.data.column import (
    DEFAULT_BINS,
    FALSE_WORDS,
    MAX_LEVEL_LENGTH,
    MISSING_LABEL,
    OTHER_LABEL,
    OWN_LEVEL,
    TRUE_WORDS,
    Boolean,
    Categorical,
    Column,
    Numeric,
    Ordinal,
)
from dagveil.data.encoding import is_text
from dagveil.data.reading import check_file, read_source
from dagveil.data.schema import PLAIN_LAYOUT, FileLayout, Schema, find_layout, is_delimited
from dagveil.errors import DataError

DATES: Final = "looks like dates or times: left out; make it a number such as a year or an age if you need it"
OTHER_MARK: Final = (
    "numbers with another decimal mark than `decimal` under [file] says: left out; write all numbers of the file with "
    "one mark, or name the right one with --decimal"
)
MANY_VALUES: Final = 100  # a name of persons has more distinct values than this
# distinct values of such names are at least this share of the rows: fewer are groups, such as wards or postcodes
_SHARE_OF_ROWS: Final = 0.05
_FEW_RECORDS: Final = 20
_SHARE_OF_DATES: Final = 0.9
_LARGEST_GAP: Final = 0.1
_SAME_COUNT: Final = 0.9  # of a panel nearly all persons have equally many records
_DATE: Final = re.compile(
    r"\s*(\d{4}([-./])\d{1,2}\2\d{1,2}|\d{1,2}([-./])\d{1,2}\3(\d{4}|\d{2}))([T ]+\d{1,2}:\d{2}.*)?\s*", re.ASCII
)
_MARKED: Final = re.compile(r"\s*[-+]?\d*[.,]\d+\s*", re.ASCII)


def describe_unfit_texts(texts: Mapping[str, int]) -> str | None:
    """Say why a column of texts is no variable, from how often each occurs; None if nothing speaks against it."""
    if texts and sum(_DATE.fullmatch(text) is not None for text in texts) >= _SHARE_OF_DATES * len(texts):
        return DATES
    # they are texts, so it is not the file's own mark
    marked = sum(_MARKED.fullmatch(text) is not None for text in texts)
    if len(texts) > FEW_NUMBERS and marked >= _SHARE_OF_NUMBERS * len(texts):
        return OTHER_MARK
    rows = sum(texts.values())
    if len(texts) == rows > _FEW_RECORDS:
        return _describe_names(rows)
    if len(texts) > MANY_VALUES and (len(texts) >= _SHARE_OF_ROWS * rows or _is_panel(np.array([*texts.values()]))):
        return _describe_persons(len(texts), sum(count > 1 for count in texts.values()), "texts")
    return None


def describe_unfit_numbers(numbers: NDArray[np.float64]) -> str | None:
    """Say why numbers are no variable: those that name persons or records lie evenly in their range."""
    known = numbers[np.isfinite(numbers)]
    distinct, counts = np.unique(known, return_counts=True)
    if distinct.size <= _FEW_RECORDS or np.any(distinct != np.trunc(distinct)):
        return None
    if distinct.size == known.size:
        return _describe_names(known.size) if np.ptp(distinct) < 2 * known.size or _is_even(known) else None
    recurring = int((counts > 1).sum())
    many = distinct.size >= _SHARE_OF_ROWS * known.size
    spread = many and 2 * recurring >= distinct.size and _is_even(known)
    if distinct.size > MANY_VALUES and (spread or _is_panel(counts)):
        return _describe_persons(distinct.size, recurring, "whole numbers")
    return None


def _is_panel(counts: NDArray[np.int_]) -> bool:
    """Tell whether nearly all values occur equally often, and more than once, as the ids of a panel do."""
    often = int(np.median(counts))
    return often > 1 and bool(np.mean(counts == often) >= _SAME_COUNT)


def _is_even(numbers: NDArray[np.float64]) -> bool:
    """Tell whether many numbers lie evenly in their range, by the largest gap to a uniform distribution."""
    ordered = np.sort(numbers)
    places = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    gap = float(np.abs(places - np.linspace(0.0, 1.0, ordered.size)).max())
    return ordered.size > MANY_VALUES and gap < _LARGEST_GAP


def _describe_names(number: int) -> str:
    return f"all {number} values differ: left out, since it names records; declare it if it does not"


def _describe_persons(number: int, recurring: int, what: str) -> str:
    return (
        f"{number} different {what}, {recurring} of them more than once: left out, since it seems to name persons with "
        "several records. Each record is protected, and a person with k records has k times the epsilon. To protect "
        "persons, name it under `person` in [dataset] instead of `ignore`, and say which records count"
    )


_SCALES: Final = (
    ("very low", "low", "medium", "high", "very high"),
    ("low", "moderate", "high"),
    ("low", "middle", "high"),
    ("small", "medium", "large"),
    ("none", "mild", "moderate", "severe"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("never", "former", "current"),
    ("very poor", "poor", "fair", "good", "very good", "excellent"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("i", "ii", "iii", "iv", "v"),
    ("sehr niedrig", "niedrig", "mittel", "hoch", "sehr hoch"),
    ("nie", "selten", "manchmal", "oft", "immer"),
)
_RANGE: Final = re.compile(r"\s*[<>≤≥]?\s*(\d+)\s*(?:[-–]\s*\d+|\+|to\s+\d+)?\s*", re.ASCII)
_FEWEST: Final = 3


def order_levels(levels: Collection[str]) -> tuple[str, ...] | None:
    """Put levels in order, lowest first; None where no order is seen, or two levels leave no choice."""
    if len(levels) < _FEWEST:
        return None
    starts = {level: int(match[1]) for level in levels if (match := _RANGE.fullmatch(level))}
    if len(starts) == len(levels) and len(set(starts.values())) == len(levels):
        return tuple(sorted(levels, key=starts.__getitem__))
    words = {level.strip().casefold(): level for level in levels}
    for scale in _SCALES:
        if words.keys() <= set(scale) and len(words) == len(levels):
            return tuple(words[word] for word in scale if word in words)
    return None


FEW_NUMBERS: Final = 20  # whole numbers with at most so many distinct values become levels
MANY_TEXTS: Final = 100  # texts with more distinct values than this keep only the most frequent ones
KEPT_TEXTS: Final = 20  # how many of them are kept
# words that a draft takes for missing values, in small letters and without blanks around them
MISSING_WORDS: Final = frozenset(
    ("na", "n/a", "n.a.", "nan", "null", "#n/a", "k.a.", "k. a.", "keine angabe", "missing", "-", ".", "?")
)
_SHARE_OF_NUMBERS: Final = 0.9
_NO_LEVEL: Final = "(none)"
_BOOLEAN_WORDS: Final = frozenset(word for word in (*TRUE_WORDS, *FALSE_WORDS) if word.casefold() in ("true", "false"))
_RESERVED: Final = frozenset({OWN_LEVEL, OTHER_LABEL, MISSING_LABEL})


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column as a draft reads it: texts with their counts or numbers, and words that say that a value is missing."""

    kind: pa.DataType
    numbers: NDArray[np.float64] | None
    texts: Mapping[str, int]
    missing_words: tuple[str, ...]
    n_missing: int

    @property
    def unfit(self) -> str | None:
        """Why the column is left out; None if it is not."""
        if pa.types.is_temporal(self.kind):
            return DATES
        return describe_unfit_texts(self.texts) if self.numbers is None else describe_unfit_numbers(self.numbers)


def draft_schema(
    source: Any,
    dataset: str | None = None,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Schema:
    """Draft a schema from the data itself. The draft is not private: review it before anyone else sees it.

    Columns that look like dates, or like names of records or persons, are left out: they stand under `ignore`.

    - `source`: anything that `read_source` reads.
    - `dataset`: the name of the data set; the name of the file if None.
    - `separator`, `decimal`, `encoding`: how a delimited file is written, as in `FileLayout`; None looks at its first
      lines, and takes UTF-8.

    Examples
    --------
    >>> draft = draft_schema({"sex": ["f", "m", "f"], "age": [31.5, 47.0, 62.25]})
    >>> draft.columns["sex"].levels, draft.columns["age"].bounds, draft.reviewed
    (('f', 'm'), (30.0, 64.0), False)
    """
    layout = PLAIN_LAYOUT
    if isinstance(source, str | Path) and is_delimited(Path(source)):
        check_file(Path(source))
        layout = find_layout(Path(source), separator, decimal, encoding)
    found = read_columns(source, layout)
    if not found:
        raise DataError("the data have no columns, so there is nothing to draft; check the source")
    if dataset is None and isinstance(source, str | Path):
        dataset = name_dataset(source)
    columns = {name: _draft_column(column) for name, column in found.items() if column.unfit is None}
    if not columns:
        raise DataError(
            f"all {len(found)} columns look like dates, or like names of records or persons, so no schema was written; "
            "check the source, or write the schema by hand"
        )
    numbers = [column for column in columns.values() if isinstance(column, Numeric) and column.center is not None]
    if len(numbers) == len(columns) > 1:
        # moments see more without bins where all columns are numbers; missing values take the centre
        for name, column in zip(list(columns), numbers, strict=True):
            place = column.center if column.missing == OWN_LEVEL else column.missing
            columns[name] = msgspec.structs.replace(column, bins=None, missing=place)
    ignored = tuple(name for name in found if name not in columns)
    return Schema(dataset=dataset or "data", columns=columns, reviewed=False, file=layout, ignore=ignored)


def name_dataset(file: str | Path) -> str:
    """Name a data set after its file."""
    return Path(file).name.partition(".")[0]


def read_columns(source: Any, layout: FileLayout, names: Sequence[str] | None = None) -> dict[str, ReadColumn]:
    """Read columns as a draft does."""
    table = read_source(source, names, layout=layout)
    return {name: _read_column(table.column(name), name, layout) for name in table.column_names}


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return what a column holds, however it is encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _read_column(cells: pa.ChunkedArray, name: str, layout: FileLayout) -> ReadColumn:
    kind = value_type(cells.type)
    if pa.types.is_boolean(kind):
        return ReadColumn(kind, None, {}, (), cells.null_count)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = read_numbers(cells, name)
        return ReadColumn(kind, numbers, {}, (), int(np.isnan(numbers).sum()))
    counted = count_texts(cells, name)
    words = tuple(sorted(text for text in counted if text.strip().casefold() in MISSING_WORDS))
    texts = {text: count for text, count in counted.items() if text not in words}
    n_missing = len(cells) - sum(texts.values())
    parsed = read_numbers(pa.chunked_array([layout.read_marks(pa.array(list(texts), pa.large_string()))]), name)
    counts = np.array(list(texts.values()), dtype=np.int64)
    numbers = np.repeat(parsed, counts)
    share = np.count_nonzero(~np.isnan(numbers)) / max(numbers.size, 1)
    # codes such as "01" are names, not numbers; so are true and false, and a few numbers among a few words
    named = any(text[0] == "0" and text[1:2].isdigit() for text in texts) or texts.keys() <= _BOOLEAN_WORDS
    if not texts or named or share < (_SHARE_OF_NUMBERS if len(texts) > FEW_NUMBERS else 1.0):
        return ReadColumn(kind, None, texts, words, n_missing)
    return ReadColumn(kind, np.append(numbers, np.full(n_missing, np.nan)), texts, words, n_missing)


def _draft_column(column: ReadColumn) -> Column:
    missing = OWN_LEVEL if column.n_missing else None
    if pa.types.is_boolean(column.kind):
        # nothing but false and true can stand there
        return Boolean(outside="false", missing=missing)
    places: dict[str, Any] = {"missing": missing, "missing_words": column.missing_words}
    if column.numbers is None:
        return _draft_levels(column.texts, places)
    known = column.numbers[np.isfinite(column.numbers)]
    distinct = np.unique(known)
    spelled = {spell_number(number) for number in distinct.tolist()}
    # texts such as "1.0" are no levels that a number could be compared with
    if 0 < distinct.size <= FEW_NUMBERS and np.all(distinct == np.trunc(distinct)) and set(column.texts) <= spelled:
        levels = tuple(spell_number(number) for number in distinct.tolist())
        if len(levels) < 3:
            return Categorical(levels, **places)
        even = np.unique(np.diff(distinct)).size == 1
        return Ordinal(levels, scores=None if even else tuple(distinct.tolist()), **places)
    if distinct.size < 2:
        return Numeric(_constant_bounds(known), bins=1 if column.n_missing else None, **places)
    return _draft_numeric(known, places)


def _draft_numeric(known: NDArray[np.float64], places: Mapping[str, Any]) -> Numeric:
    """Draft bounds, bins, center and spread with few digits; missing values get a bin of their own."""
    quartiles = np.quantile(known, np.arange(1, DEFAULT_BINS) / DEFAULT_BINS)
    spread = float(known.std())
    step = _plain_step(min(spread, float(np.ptp(known))) / 4)
    lower, upper = (_round_to(float(known.min()), step, math.floor), _round_to(float(known.max()), step, math.ceil))
    # where many values are the lowest one, the first edge is above it: they keep a bin of their own
    above = float(known[known > known.min()].min())
    edges = [_round_to(float(edge) if edge > known.min() else above, step, round) for edge in quartiles]
    inside = tuple(edge for edge in dict.fromkeys(edges) if lower < edge < upper)
    if not (math.isfinite(lower) and math.isfinite(upper) and math.isfinite(spread) and lower < upper):
        return Numeric((float(known.min()), float(known.max())), bins=DEFAULT_BINS, **places)
    return Numeric(
        (lower, upper),
        bins=inside or DEFAULT_BINS,
        center=_round_to(float(known.mean()), step, round),
        spread=float(f"{spread:.2g}"),
        **places,
    )


def _draft_levels(texts: Mapping[str, int], places: Mapping[str, Any]) -> Column:
    if texts and texts.keys() <= _BOOLEAN_WORDS:
        return Boolean(**places)
    usable = {text: count for text, count in texts.items() if len(text) <= MAX_LEVEL_LENGTH and text not in _RESERVED}
    merged = merge_spellings(usable)
    counts = {level: sum(usable[text] for text in (level, *others)) for level, others in merged.items()}
    frequent = sorted(merged, key=lambda level: (-counts[level], level))
    if len(frequent) > MANY_TEXTS:
        frequent = frequent[:KEPT_TEXTS]
    if not frequent:
        return Categorical(levels=(_NO_LEVEL,), outside=_NO_LEVEL)
    ordered = order_levels(frequent)
    kind = Categorical if ordered is None else Ordinal
    spellings = {level: merged[level] for level in frequent if merged[level]}
    return kind(levels=ordered or tuple(sorted(frequent)), spellings=spellings, **places)


def merge_spellings(texts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Put texts together that differ in capitals and blanks only: the most frequent one, with all others."""
    same: dict[str, list[str]] = {}
    for text in sorted(texts, key=lambda text: (-texts[text], text)):
        same.setdefault(" ".join(text.split()).casefold(), []).append(text)
    return {group[0]: tuple(group[1:]) for group in same.values()}


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


def _constant_bounds(known: NDArray[np.float64]) -> tuple[float, float]:
    if known.size == 0:
        return (0.0, 1.0)
    number = float(known[0])
    # a constant column still needs bounds that increase; growing towards zero cannot overflow
    width = max(1.0, abs(number))
    return (number - width, number) if number > 0 else (number, number + width)


def _plain_step(width: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is at most a width."""
    if not (math.isfinite(width) and width > 0):
        return width
    power = 10.0 ** math.floor(math.log10(width))
    return max((factor * power for factor in (1, 2, 5) if factor * power <= width), default=power)


def _round_to(number: float, step: float, rounding: Any) -> float:
    """Round to a multiple of a step, to the digits that the step has."""
    if not (step > 0 and math.isfinite(step) and abs(number) / step < 2**53):
        return number
    rounded = rounding(number / step) * step
    return float(f"{rounded:.12g}")


_LONGEST_EXAMPLE: Final = 30


def find_doubts(source: Any, draft: Schema) -> dict[str, str]:
    """Say for each doubtful column what is odd, and what to do. Not private: it is for the custodian's eyes only.

    Doubtful are columns that were left out (dates, identifiers of records and of persons), columns with one value or
    none, texts that are too many to be levels, levels that differ in capitals and blanks only, and missing numbers.

    - `source`: what the draft was read from.
    - `draft`: what `draft_schema` has made of it.

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
    texts, numbers = found.texts, found.numbers
    distinct = len(texts) if numbers is None else np.unique(numbers[np.isfinite(numbers)]).size
    if distinct <= 1:
        return f"{'one value only' if distinct else 'no value'} in these rows: is it the column that you meant?"
    if numbers is not None:
        return _about_missing(column) if isinstance(column, Numeric) and column.missing is not None else None
    if len(texts) > MANY_TEXTS:
        return (
            f"{len(texts)} different texts, of which {KEPT_TEXTS} became levels: group them in the data, "
            "declare public levels, or leave the column out"
        )
    merged = merge_spellings(texts)
    several = next(((level, *others) for level, others in merged.items() if others), None)
    if several is None:
        return None
    shown = (text if len(text) <= _LONGEST_EXAMPLE else text[:_LONGEST_EXAMPLE] + "…" for text in sorted(several)[:2])
    example = " and ".join(map(repr, shown))
    return (
        f"{len(texts)} spellings of {len(merged)} levels, such as {example}: merged under `spellings`; add others there"
    )


def _about_missing(column: Numeric) -> str:
    if column.missing != OWN_LEVEL:
        return f"has missing values, which count as the center, {column.missing_value:g}: is that right?"
    return (
        f'has missing values: a bin of their own (missing = "{OWN_LEVEL}"); methods that add numbers up put the center '
        f"there, {column.missing_value:g}: is that right?"
    )
