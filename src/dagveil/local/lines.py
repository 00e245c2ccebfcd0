"""Records as lines of text: CSV with a first line of names, or one JSON object per line.

A line is what ends in a line feed, and one line is one record, whatever it holds: no record can stop a stream, join the
next one or split in two. A line that cannot be read is a record of missing values. No message holds what a line says.
"""

from __future__ import annotations

import csv
import enum
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

import msgspec

from dagveil.errors import DataError

LONGEST_LINE: Final = 2**20
"""Characters of a line, beyond which it is not read as a record."""


class LineFormat(enum.Enum):
    """How records are written."""

    CSV = "csv"
    JSON = "jsonl"


def split_lines(stream: TextIO) -> Iterator[str]:
    r"""Yield lines as they come, without what ends them: a line feed, and a carriage return before it.

    Of a line that is too long to be a record only the beginning is held and yielded.

    Examples
    --------
    >>> list(split_lines(io.StringIO("a,b\r\n1,\"2\n3", newline="\n")))
    ['a,b', '1,"2', '3']
    """
    while piece := stream.readline(LONGEST_LINE + 1):
        rest = piece
        while not rest.endswith("\n") and (rest := stream.readline(LONGEST_LINE + 1)):
            pass
        yield piece.removesuffix("\n").removesuffix("\r") if piece.endswith("\n") else piece


def guess_format(lines: Iterable[str]) -> tuple[LineFormat, Iterator[str]]:
    """Look at the first line that is not blank; return the format, and all lines.

    Examples
    --------
    >>> guess_format(["a,b"])[0].value, guess_format(['{"a": 1}'])[0].value
    ('csv', 'jsonl')
    """
    source = iter(lines)
    seen = []
    for line in source:
        seen.append(line)
        if line.strip():
            break
    first = seen[-1].lstrip("\ufeff").lstrip() if seen else ""
    return LineFormat.JSON if first.startswith("{") else LineFormat.CSV, itertools.chain(seen, source)


def read_records(
    lines: Iterable[str], form: LineFormat, columns: Sequence[str], extra: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Read records, one by one as lines come.

    Parameters
    ----------
    lines
        Of text; each is one record, but for a CSV's first line of names.
    form
        How they are written.
    columns
        Names that the first line of a CSV must have; of a JSON object, missing ones are missing values.
    extra
        Names that are read if they are there.

    Examples
    --------
    >>> list(read_records(["a,b", "1,", "broken"], LineFormat.CSV, ["a", "b"]))
    [{'a': '1', 'b': None}, {'a': None, 'b': None}]
    """
    wanted = (*columns, *extra)
    return _read_json(lines, wanted) if form is LineFormat.JSON else _read_csv(lines, columns, wanted)


def check_labels(form: LineFormat, labels: Mapping[str, Sequence[str]]) -> None:
    """Refuse CSV for columns whose name or labels have a line feed, or are formulas.

    With a line feed a record would not be one line. A spreadsheet computes a text that begins like a formula, and some
    start programs; a mark before it would be another label, so that nobody could read the reports any more.

    Examples
    --------
    >>> check_labels(LineFormat.CSV, {"a": ["no", "yes"]})
    """
    split = [name for name, texts in labels.items() if any("\n" in text for text in (name, *texts))]
    if split and form is LineFormat.CSV:
        raise DataError(
            f"{len(split)} columns have a line break in their name or labels, the first is {split[0]!r}; a record is "
            "one line, so give one JSON object per line"
        )
    computed = [name for name, texts in labels.items() if any(map(_is_formula, (name, *texts)))]
    if computed and form is LineFormat.CSV:
        raise DataError(
            f"{len(computed)} columns have a name or label that a spreadsheet would compute, the first is "
            f"{computed[0]!r}; give one JSON object per line or a .parquet file instead of CSV, or rename it in the "
            "schema"
        )


def _is_formula(text: str) -> bool:
    """Tell whether a spreadsheet would compute a text; numbers and lone signs are harmless."""
    return text.startswith(("=", "@", "\t", "\r")) or (text.startswith(("+", "-")) and not set("(|!").isdisjoint(text))


class RecordWriter:
    """Writes records in the format they came in, and lets each go at once."""

    def __init__(self, stream: TextIO, form: LineFormat, columns: Sequence[str]) -> None:
        self._stream = stream
        self._form = form
        self._columns = list(columns)
        if form is LineFormat.CSV:
            self._row(self._columns)

    def write(self, record: Mapping[str, str]) -> None:
        """Write one record and flush it."""
        if self._form is LineFormat.JSON:
            self._stream.write(msgspec.json.encode({name: record[name] for name in self._columns}).decode() + "\n")
        else:
            self._row([record[name] for name in self._columns])
        self._stream.flush()

    def _row(self, cells: list[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(cells)
        self._stream.write(text.getvalue())


def _read_json(lines: Iterable[str], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        text = line.lstrip("\ufeff").strip()
        try:
            found = msgspec.json.decode(text) if len(line) <= LONGEST_LINE else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        record = found if isinstance(found, dict) else {}
        yield {name: record.get(name) for name in wanted}


def _read_csv(lines: Iterable[str], columns: Sequence[str], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    source = iter(lines)
    first = next((line for line in source if line.strip()), None)
    header = None if first is None else _split_row(first)
    if not header:
        raise DataError("there is no first line with column names; write one, or give one JSON object per line")
    header[0] = header[0].lstrip("\ufeff")
    if len(set(header)) < len(header):
        # not the names: without a header they are the cells of the first record
        raise DataError("the first line has a name more than once; write a first line with the names of the columns")
    lost = [name for name in columns if name not in header]
    if lost:
        raise DataError(
            f"the first line lacks {len(lost)} columns of the schema, the first is {lost[0]!r}; write a first line "
            "with the names of the columns, or give one JSON object per line"
        )
    places = {name: header.index(name) for name in wanted if name in header}
    for line in source:
        row = _split_row(line)
        if row is None or len(row) != len(header):
            yield dict.fromkeys(places)
        else:
            yield {name: row[place] or None for name, place in places.items()}


def _split_row(line: str) -> list[str] | None:
    """Return the cells of one line, or None if it is no row."""
    if len(line) > LONGEST_LINE:
        return None
    source = iter((line, ""))
    try:
        row = next(csv.reader(source))
    except csv.Error:
        return None
    # a quote is open at the end of the line if the reader asked for another
    return None if next(source, None) is None else row
