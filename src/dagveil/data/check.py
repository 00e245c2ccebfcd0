"""Whether data fit their schema: exact counts, for the custodian's eyes only."""

import secrets
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.cells import place_codes, read_numbers
from dagveil.data.column import MISSING_LABEL, Column, Numeric, marks_missing
from dagveil.data.draft import MISSING_WORDS
from dagveil.data.encoding import bin_numbers, clip_numbers, find_levels, is_text, read_declared_numbers
from dagveil.data.ids import KEY_BYTES, NO_ORDER, hash_ids, read_order
from dagveil.data.reading import read_declared
from dagveil.data.schema import Schema

CUSTODIAN_WARNING: Final = (
    "For the custodian's eyes only: these are exact counts of the records, not private ones. Do not publish them."
)

_NO_ID: Final = MISSING_WORDS | {"none", "unknown", "unbekannt"}
_DATES: Final = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%Y%m%d")
"""Ways to write dates that are tried on cells that the declared way does not read."""


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """How the cells of one column fit its declaration. Exact counts, for the custodian's eyes only."""

    name: str
    outside: int  # cells that are no declared level, or texts that are no number
    missing: int
    clipped: int  # numbers beyond the bounds
    unused: tuple[str, ...]  # labels that no record has
    place_for_missing: str | None  # None if the declaration does not say
    cells: int = 0
    numeric: bool = False

    @property
    def fits(self) -> bool:
        """Whether every cell is where the declaration expects it."""
        return not (self.outside or self.clipped or (self.missing and self.place_for_missing is None))

    def words(self) -> str:
        """Say it in one line."""
        goes = "treated as outside" if self.place_for_missing is None else f"counted as {self.place_for_missing}"
        counted = (
            (self.outside, f"no numbers, {goes}" if self.numeric else "outside"),
            (self.missing, f"missing ({self.missing / max(self.cells, 1):.1%}), {goes}"),
            (self.clipped, "clipped"),
        )
        facts = [f"{count} {word}" for count, word in counted if count]
        if self.cells and self.missing == self.cells:
            facts.append("no cell holds a value, so leave the column out")
        if self.unused:
            facts.append(f"{len(self.unused)} level{'s' * (len(self.unused) > 1)} without a record")
        return f"{self.name}: {', '.join(facts) or 'fits'}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a source fits its schema. Exact counts, not private: for the custodian's eyes only."""

    n_rows: int
    columns: tuple[ColumnCheck, ...]
    persons: tuple[str, ...] = ()  # what is to be said about persons and their records

    @property
    def fits(self) -> bool:
        """Whether every cell of every column is where its declaration expects it."""
        return all(column.fits for column in self.columns)

    def words(self) -> tuple[str, ...]:
        """Say it in lines of text, the warning first."""
        misfits = sum(not column.fits for column in self.columns)
        closing = "Every value has a declared place."
        if misfits:
            closing = (
                f"{'1 column holds' if misfits == 1 else f'{misfits} columns hold'} values that the schema does not "
                "foresee. A run still works: it puts them where the schema says."
            )
        columns = (column.words() for column in self.columns)
        return (CUSTODIAN_WARNING, f"{self.n_rows} rows", *self.persons, *columns, closing)


def check_source(source: Any, schema: Schema) -> CheckReport:
    """Compare a source with a schema. The report holds exact counts: it is for the custodian's eyes only.

    Examples
    --------
    >>> from dagveil.data.column import Categorical
    >>> schema = Schema(dataset="demo", columns={"x": Categorical(levels=("a", "b"), outside="b")})
    >>> check_source({"x": ["a", "c", "a"]}, schema).columns[0].words()
    'x: 1 outside, 1 level without a record'
    """
    table = read_declared(source, schema)
    checks = []
    for name, column in schema.columns.items():
        read = schema.reducers[name].source(name) if name in schema.reducers else name
        if read is not None:
            checks.append(_check_column(table.column(read), name, column))
    return CheckReport(n_rows=table.num_rows, columns=tuple(checks), persons=_check_persons(table, schema))


def _check_persons(table: pa.Table, schema: Schema) -> tuple[str, ...]:
    """Say how many records persons have, and what is odd about ids and orders. No id is quoted."""
    if schema.person is None:
        return ()
    key = secrets.token_bytes(KEY_BYTES)
    words, missing = hash_ids(table.column(schema.person), schema.person, key)
    ids = words[~missing].view(np.int64)
    distinct, counts = np.unique(ids, axis=0, return_counts=True)
    if not counts.size:
        return (f"persons: no record has an id in {schema.person!r}; check that it is the column of ids",)
    found = [
        f"persons: {counts.size}, with {counts.min()} to {counts.max()} records, {np.median(counts):g} in the middle; "
        f"{int((counts > 1).sum())} have more than one"
    ]
    lost = int(missing.sum())
    if lost:
        fate = "are left out" if schema.missing_person == "drop" else "are persons of their own"
        much = " That is a fifth of all, or more: is it the column of ids?" if 5 * lost >= len(missing) else ""
        found.append(f"persons: {lost} records have no id and {fate}.{much}")
    spelled = sorted({form(word) for word in _NO_ID for form in (str.lower, str.upper, str.capitalize)})
    unnamed = hash_ids(pa.chunked_array([spelled]), schema.person, key)[0].view(np.int64)
    if many := int(counts[np.isin(distinct[:, 0], unnamed[:, 0])].sum()):
        found.append(
            f'persons: {many} records have an id such as "NA" or "unknown", and count as those of one person; if it '
            "means that the id is missing, empty these cells"
        )
    if counts.size == 1 and counts[0] > 1:
        found.append("persons: all records have the same id, so the table of persons has one row; name another column")
    elif counts.max() == 1:
        found.append("persons: every id occurs once, so a row is a person; only the words of the promise change")
    return (*found, *_check_order(table, schema, ids, ~missing))


def _check_order(table: pa.Table, schema: Schema, ids: NDArray[np.int64], known: NDArray[np.bool_]) -> tuple[str, ...]:
    if schema.order is None:
        return ()
    found = []
    cells = table.column(schema.order)
    kinds, numbers = read_order(cells, schema.order, schema.order_format)
    unread = cells.filter(pa.array(kinds == NO_ORDER))
    if len(unread):
        found.append(
            f"order: {len(unread)} cells of {schema.order!r} are missing or written in another way, and come last; "
            'dates are read as 2024-05-31, or as order_format says, such as "%d.%m.%Y"'
        )
        fits = {form: int((read_order(unread, schema.order, form)[0] != NO_ORDER).sum()) for form in _DATES}
        best = max(_DATES, key=fits.__getitem__)
        if fits[best]:
            advice = f'declare order_format = "{best}"' if len(unread) == len(cells) else "write all dates in one way"
            found.append(f'order: {fits[best]} of these {len(unread)} are dates such as "{best}" reads; {advice}')
    if len(set(kinds.tolist()) - {NO_ORDER}) > 1:
        found.append(f"order: {schema.order!r} has numbers and dates, which cannot be compared; write all in one way")
    places = np.column_stack([ids, kinds[known], numbers[known].view(np.int64)])
    ties = int((np.unique(places, axis=0, return_counts=True)[1] > 1).sum())
    if ties:
        found.append(f"order: {ties} times several records of a person have the same place; a hash decides there")
    return tuple(found)


def _check_column(cells: pa.ChunkedArray, name: str, column: Column) -> ColumnCheck:
    if isinstance(column, Numeric):
        return _check_numbers(cells, name, column)
    # distinct numbers for levels, outside and missing keep the three cases apart
    n_declared = len(column.levels)
    found = find_levels(cells, column, name, places=np.arange(n_declared + 2))
    cases = np.bincount(found, minlength=n_declared + 2)
    used = {place_codes(column)[case] for case in np.flatnonzero(cases[:n_declared]).tolist()}
    return ColumnCheck(
        name=name,
        outside=int(cases[n_declared]),
        missing=int(cases[n_declared + 1]),
        clipped=0,
        unused=tuple(level for code, level in enumerate(column.levels) if code not in used),
        place_for_missing=MISSING_LABEL if marks_missing(column) else column.missing,
        cells=len(cells),
    )


def _check_numbers(cells: pa.ChunkedArray, name: str, column: Numeric) -> ColumnCheck:
    numbers = read_declared_numbers(cells, name, column)
    unknown = int(np.isnan(numbers).sum())
    coded = int(np.isin(read_numbers(cells, name), column.missing_numbers).sum())
    outside = unknown - coded - _count_missing(cells, column) if is_text(cells.type) else 0
    used = np.bincount(bin_numbers(numbers, clip_numbers(numbers, column), column), minlength=column.n_levels)
    declared = column.missing is not None or column.center is not None
    place = MISSING_LABEL if marks_missing(column) else f"{column.missing_value:g}" if declared else None
    return ColumnCheck(
        name=name,
        outside=outside,
        missing=unknown - outside,
        clipped=int(((numbers < column.bounds[0]) | (numbers > column.bounds[1])).sum()),
        unused=tuple(label for label, count in zip(column.labels, used, strict=True) if count == 0),
        place_for_missing=place,
        cells=len(cells),
        numeric=True,
    )


def _count_missing(cells: pa.ChunkedArray, column: Numeric) -> int:
    """Count the texts that say that a number is missing, rather than say something else."""
    raw = pc.cast(cells, pa.large_string())
    texts = pc.ascii_lower(pc.ascii_trim_whitespace(raw))
    words = pa.array(column.missing_words or (), type=pa.large_string())
    # words that are numbers were counted already
    words = words.filter(pa.array(np.isnan(read_numbers(pa.chunked_array([words]), "missing_words"))))
    empty = pa.array(["", "nan"], type=pa.large_string())
    said = pc.or_(pc.is_in(texts, value_set=empty), pc.is_in(raw, value_set=words))
    return int(cells.null_count + (pc.sum(said).as_py() or 0))
