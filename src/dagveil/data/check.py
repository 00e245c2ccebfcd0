"""Whether data fit their schema: exact counts, for the custodian's eyes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagveil.data.cells import place_codes, read_numbers
from dagveil.data.column import MISSING_LABEL, OWN_LEVEL, Column, Numeric
from dagveil.data.encoding import bin_numbers, clip_numbers, find_levels, is_text, read_declared_numbers
from dagveil.data.reading import read_declared
from dagveil.data.schema import Schema

CUSTODIAN_WARNING: Final = (
    "For the custodian's eyes only: these are exact counts of the records, not private ones. Do not publish them."
)


@dataclass(frozen=True, slots=True)
class ColumnCheck:
    """How the cells of one column fit its declaration. Exact counts, for the custodian's eyes only."""

    name: str
    outside: int  # cells that are no declared level, or texts that are no number
    missing: int
    clipped: int  # numbers beyond the bounds
    unused: tuple[str, ...]  # labels that no record has
    place_for_missing: str | None  # None if the declaration does not say

    @property
    def fits(self) -> bool:
        """Whether every cell is where the declaration expects it."""
        return not (self.outside or self.clipped or (self.missing and self.place_for_missing is None))

    def words(self) -> str:
        """Say it in one line."""
        goes = "treated as outside" if self.place_for_missing is None else f"counted as {self.place_for_missing}"
        facts = [
            f"{count} {word}"
            for count, word in (
                (self.outside, "outside"),
                (self.missing, f"missing, {goes}"),
                (self.clipped, "clipped"),
            )
            if count
        ]
        if self.unused:
            facts.append(f"{len(self.unused)} levels without a record")
        return f"{self.name}: {', '.join(facts) or 'fits'}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How a source fits its schema. Exact counts, not private: for the custodian's eyes only."""

    n_rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def fits(self) -> bool:
        """Whether every cell of every column is where its declaration expects it."""
        return all(column.fits for column in self.columns)

    def words(self) -> tuple[str, ...]:
        """Say it in lines of text, the warning first."""
        misfits = sum(not column.fits for column in self.columns)
        closing = (
            "Every value has a declared place."
            if self.fits
            else f"{'1 column holds' if misfits == 1 else f'{misfits} columns hold'} values that the schema does not "
            "foresee. A run still works: it puts them where the schema says."
        )
        return (CUSTODIAN_WARNING, f"{self.n_rows} rows", *(column.words() for column in self.columns), closing)


def check_source(source: Any, schema: Schema) -> CheckReport:
    """Compare a source with a schema. The report holds exact counts: it is for the custodian's eyes only.

    Examples
    --------
    >>> from dagveil.data.column import Categorical
    >>> schema = Schema(dataset="demo", columns={"x": Categorical(levels=("a", "b"), outside="b")})
    >>> check_source({"x": ["a", "c", "a"]}, schema).columns[0].words()
    'x: 1 outside, 1 levels without a record'
    """
    table = read_declared(source, schema)
    checks = tuple(_check_column(table.column(name), name, column) for name, column in schema.columns.items())
    return CheckReport(n_rows=table.num_rows, columns=checks)


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
        place_for_missing=MISSING_LABEL if column.missing == OWN_LEVEL else column.missing,
    )


def _check_numbers(cells: pa.ChunkedArray, name: str, column: Numeric) -> ColumnCheck:
    numbers = read_declared_numbers(cells, name, column)
    unknown = int(np.isnan(numbers).sum())
    coded = int(np.isin(read_numbers(cells, name), column.missing_numbers).sum())
    outside = unknown - coded - _count_missing(cells, column) if is_text(cells.type) else 0
    used = np.bincount(bin_numbers(numbers, clip_numbers(numbers, column), column), minlength=column.n_levels)
    return ColumnCheck(
        name=name,
        outside=outside,
        missing=unknown - outside,
        clipped=int(((numbers < column.bounds[0]) | (numbers > column.bounds[1])).sum()),
        unused=tuple(label for label, count in zip(column.labels, used, strict=True) if count == 0),
        place_for_missing=_place_missing(column),
    )


def _place_missing(column: Numeric) -> str | None:
    """Say where missing numbers go; None if the declaration does not say."""
    if column.missing == OWN_LEVEL:
        return MISSING_LABEL
    return None if column.missing is None and column.center is None else f"{column.missing_value:g}"


def _count_missing(cells: pa.ChunkedArray, column: Numeric) -> int:
    """Count the texts that say that a number is missing, rather than say something else."""
    raw = pc.cast(cells, pa.large_string())
    texts = pc.ascii_lower(pc.ascii_trim_whitespace(raw))
    words = column.missing_words or ()
    # words that are numbers were counted already
    words = tuple(word for word in words if np.isnan(read_numbers(pa.chunked_array([[word]]), "missing_words")[0]))
    said = pc.or_(
        pc.is_in(texts, value_set=pa.array(["", "nan"], type=pa.large_string())),
        pc.is_in(raw, value_set=pa.array(words, type=pa.large_string())),
    )
    return int(cells.null_count + (pc.sum(said).as_py() or 0))
