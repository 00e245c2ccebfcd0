"""How a delimited file is written: declared in the schema, and found by drafts from the first lines of a file.

A run never looks at rows to find out how to read them: one record could change how all others are read.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dagveil.errors import DataError, SchemaError

SEPARATORS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMALS: Final = (".", ",")
ENCODINGS: Final = ("utf-8", "latin-1", "cp1252")
FIRST_LINES: Final = 1000  # lines that a draft looks at
_LONGEST_LINE: Final = 2**20
_SHARE_OF_LINES: Final = 0.9
_COMMA_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*", re.ASCII)
_POINT_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]+\.[0-9]+\s*", re.ASCII)
_DIGITS_AND_MARKS: Final = r"^\s*[+-]?[0-9.,]*(?:[eE][+-]?[0-9]+)?\s*$"


class FileLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a delimited file is written. Other sources have types and encodings of their own, and do not ask."""

    separator: str | None = None  # one of SEPARATORS; None means a comma, or a tab in a .tsv file
    decimal: str = "."  # a point or a comma; the other one makes a text that is no number
    encoding: str = "utf-8"  # one of ENCODINGS; utf-8 with or without a byte order mark

    def __post_init__(self) -> None:
        if self.separator is not None and self.separator not in SEPARATORS:
            raise SchemaError(f"file.separator is {self.separator!r}; write one of {', '.join(map(repr, SEPARATORS))}")
        if self.decimal not in DECIMALS:
            raise SchemaError(f'file.decimal is {self.decimal!r}; write "." or ","')
        if self.encoding not in ENCODINGS:
            raise SchemaError(f"file.encoding is {self.encoding!r}; write one of {', '.join(ENCODINGS)}")
        if self.decimal == "," and self.separator == ",":
            raise SchemaError("file: a comma cannot separate cells and stand in numbers; declare another separator")

    @property
    def words(self) -> str:
        """What differs from an ordinary CSV file, in words; empty if nothing does."""
        facts = [] if self.separator is None else [f"{SEPARATORS[self.separator]} between cells"]
        facts += ["a comma in numbers"] if self.decimal == "," else []
        facts += [] if self.encoding == "utf-8" else [f"encoded as {self.encoding}"]
        return ", ".join(facts)

    def separator_of(self, path: Path) -> str:
        """Give the separator of a file, by declaration and name alone."""
        return self.separator or usual_separator(path)

    def open_text(self, path: Path) -> IO[Any]:
        """Open a file as text, a byte order mark aside."""
        opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        opened: IO[Any] = opener(path, "rt", encoding=encoding, newline="")
        return opened

    def read_marks(self, cells: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Write numbers with a decimal comma as all others write them, each cell by itself; words stay as they are."""
        if self.decimal == ".":
            return cells
        # a point becomes a mark that no number has: 1.234 could be a thousand or one and a bit
        written = pc.replace_substring(pc.replace_substring(cells, ".", "_"), ",", ".")
        return pc.if_else(pc.match_substring_regex(cells, _DIGITS_AND_MARKS), written, cells)


PLAIN_LAYOUT: Final = FileLayout()  # what a file is unless something else is declared


def usual_separator(path: Path) -> str:
    """Give the separator that the name of a file promises."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def is_delimited(path: Path) -> bool:
    """Tell whether a file is delimited text, by its name alone."""
    return path.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))


def find_layout(
    path: Path, separator: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> FileLayout:
    """Find out, for a draft, how a file is written from its first lines; what is given is not looked for."""
    layout = FileLayout(separator=separator, encoding=encoding or "utf-8", decimal=decimal or ".")
    lines = list(_read_lines(path, layout))
    if separator is None:
        found = max(SEPARATORS, key=lambda mark: (_count_columns(lines, mark), mark == usual_separator(path)))
        separator = None if found == usual_separator(path) else found
    layout = msgspec.structs.replace(layout, separator=separator, decimal=".")
    mark = layout.separator_of(path)
    if len(next(csv.reader(lines[:1], delimiter=mark), [])) < 2:
        raise DataError(
            f"{path.name} has one column only if {SEPARATORS[mark]} stand between cells, and a graph needs two: give "
            f"the right separator (--separator, in Python separator=): one of {', '.join(map(repr, SEPARATORS))}. "
            "Nothing was written"
        )
    if decimal is None:
        decimal = "," if mark != "," and _has_comma_numbers(lines, mark) else "."
    return msgspec.structs.replace(layout, decimal=decimal)


def _read_lines(path: Path, layout: FileLayout) -> Iterator[str]:
    try:
        with layout.open_text(path) as file:
            pieces = iter(lambda: file.readline(_LONGEST_LINE), "")
            yield from itertools.islice((line for line in pieces if line.strip()), FIRST_LINES)
    except UnicodeDecodeError:
        raise encoding_error(path) from None
    except (OSError, EOFError, zlib.error):
        raise DataError(f"the first lines of {path.name} cannot be read; check that the file is complete") from None


def _count_columns(lines: list[str], mark: str) -> int:
    """Count the columns of a separator; one if the lines do not agree on their number."""
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=mark) if row]
    except csv.Error:
        return 1
    agreed = sum(width == widths[0] for width in widths) if widths else 0
    return widths[0] if agreed >= _SHARE_OF_LINES * len(widths) and agreed else 1


def _has_comma_numbers(lines: list[str], mark: str) -> bool:
    try:
        cells = [cell for row in itertools.islice(csv.reader(lines, delimiter=mark), 1, None) for cell in row]
    except csv.Error:
        return False
    commas, points = (
        sum(form.fullmatch(cell) is not None for cell in cells) for form in (_COMMA_NUMBER, _POINT_NUMBER)
    )
    return commas > points


def encoding_error(path: Path) -> DataError:
    """Say that a file is not UTF-8, and what to do."""
    return DataError(
        f'{path.name} is not encoded as UTF-8, or as declared; write encoding = "cp1252" (Windows) or "latin-1" under '
        "[file] in the schema, or give a draft --encoding; or convert the file, for example with "
        f"`iconv -f CP1252 -t UTF-8 {path.name} > utf8-{path.name}`"
    )
