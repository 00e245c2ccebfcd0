"""Names of the columns of a file, without looking at any row."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from dagveil.data.file_layout import PLAIN_LAYOUT, SEPARATORS, FileLayout, encoding_error, usual_separator
from dagveil.data.files import FileForm, file_form
from dagveil.data.reading import check_file
from dagveil.errors import DataError


def read_header(path: str | Path) -> tuple[tuple[str, ...], FileLayout]:
    """Return the names in a file, and for a delimited file what separates them. Of its text only one line is read."""
    path = Path(path)
    check_file(path)
    form = file_form(path)
    try:
        if form is FileForm.PARQUET:
            return tuple(parquet.read_schema(path).names), PLAIN_LAYOUT
        if form is FileForm.ARROW:
            with pa.OSFile(str(path)) as file:
                return tuple(pa.ipc.open_file(file).schema.names), PLAIN_LAYOUT
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read; check that it is whole, and that its ending is right") from error
    if form is None:
        raise DataError(f"{path.name} has no ending of a table that is read; name its columns instead")
    try:
        with PLAIN_LAYOUT.open_text(path) as file:
            line = str(file.readline()).lstrip("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise encoding_error(path) from None
    mark = max(SEPARATORS, key=lambda each: (line.count(each), each == usual_separator(path)))
    names = tuple(name.strip() for name in next(csv.reader([line], delimiter=mark), []))
    names = tuple(name for name in names if name)
    if not names:
        raise DataError(f"the first line of {path.name} names no columns; name them yourself")
    return names, PLAIN_LAYOUT if mark == usual_separator(path) else FileLayout(separator=mark)
