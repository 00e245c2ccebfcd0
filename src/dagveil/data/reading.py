"""From files and frames to Arrow tables.

Reading never fails because of what one record says: a line with too few or too many cells becomes a record of missing
values. It does fail, with a next step, on files that are not what their name claims.
"""

from __future__ import annotations

import contextlib
import csv
import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagveil.data.cells import to_arrow
from dagveil.data.encoding import is_text
from dagveil.data.schema import PLAIN_LAYOUT, SEPARATORS, FileLayout, Schema, encoding_error, is_delimited
from dagveil.errors import DataError

BLOCK_BYTES: Final = (2**24, 2**30)
_BYTES: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
# characters of a line of names: a small file that is unpacked may have a line without an end
_LONGEST_LINE: Final = 2**24
ENDINGS: Final = ".csv, .csv.gz, .tsv, .tsv.gz, .parquet, .feather or .arrow"


def read_source(
    source: Any,
    columns: Sequence[str] | None = None,
    *,
    coded: Collection[str] = (),
    layout: FileLayout = PLAIN_LAYOUT,
    numbers: Collection[str] = (),
) -> pa.Table:
    """Read a file or frame into an Arrow table.

    The source is a path (.csv, .csv.gz, .tsv, .tsv.gz, .parquet, .feather, .arrow), a pyarrow Table or RecordBatch, a
    pandas or polars DataFrame, a NumPy structured array, a two-dimensional NumPy array whose columns are `columns`, or
    a mapping from names to arrays. Without `columns` all are read. `coded` ones have few distinct values, and are read
    faster and smaller as such; in `numbers` of a delimited file a decimal comma is read as one.
    """
    if isinstance(source, str | Path):
        return _read_path(Path(source), columns, coded, layout, numbers)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        check_names(source.column_names, columns, "the table")
        return source if columns is None else source.select(list(columns))
    package = type(source).__module__.partition(".")[0]
    if package == "polars" and hasattr(source, "to_arrow"):
        # not all at once: for a column of Python objects polars would hand out addresses in memory
        return _from_arrays(list(source.columns), source.to_series, columns, "the frame")
    if package == "pandas" and hasattr(source, "columns"):
        names = [str(name) for name in source.columns]
        return _from_arrays(names, lambda position: source.iloc[:, position], columns, "the frame")
    if isinstance(source, np.ndarray):
        return _from_numpy(source, columns)
    if isinstance(source, Mapping):
        arrays = list(source.values())
        return _from_arrays([str(name) for name in source], lambda position: arrays[position], columns, "the mapping")
    raise DataError(
        f"a {type(source).__module__}.{type(source).__qualname__} cannot be read as a table; give a path, a pyarrow, "
        "pandas or polars table, a NumPy array, or a mapping from names to arrays"
    )


def read_declared(source: Any, schema: Schema) -> pa.Table:
    """Read the columns that a schema declares, as it declares them, ids and orders of records too."""
    return read_source(source, schema.sources, coded=schema.coded, layout=schema.file, numbers=schema.numbers)


def check_file(path: Path) -> None:
    """Refuse a path that is no file with something in it."""
    if not path.exists():
        raise DataError(f"there is no file {path}; check the path")
    if not path.is_file():
        raise DataError(f"{path} is not a file; name one file ending in {ENDINGS}")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes); a table without rows still needs a line with the column names")


def _read_path(
    path: Path, columns: Sequence[str] | None, coded: Collection[str], layout: FileLayout, numbers: Collection[str]
) -> pa.Table:
    check_file(path)
    name = path.name.lower()
    if is_delimited(path):
        table = _read_delimited(path, layout, columns, coded)
        for position, column in enumerate(table.column_names):
            if column in numbers:
                table = table.set_column(position, column, layout.read_marks(table.column(column)))
        return table
    if name.endswith(".parquet"):
        return _read_parquet(path, columns, coded)
    if name.endswith((".feather", ".arrow")):
        return _read_arrow(path, columns)
    raise DataError(f"the format of {path.name} is not known; the name must end in {ENDINGS}")


def _read_delimited(path: Path, layout: FileLayout, columns: Sequence[str] | None, coded: Collection[str]) -> pa.Table:
    import pyarrow.csv

    header = read_header(path, layout, columns)
    wanted = header if columns is None else list(columns)
    delimiter = layout.separator_of(path)
    for block_bytes in BLOCK_BYTES:
        broken = BrokenLines()
        options = delimited_options(delimiter, header, wanted, coded, block_bytes, broken, layout.encoding)
        try:
            table = pyarrow.csv.read_csv(path, **options)
        except pa.ArrowInvalid as error:
            if is_empty(path, error, block_bytes):
                return pa.table({name: pa.array([], pa.string()) for name in wanted})
            continue
        except (OSError, UnicodeDecodeError):
            break
        # a broken line is still one record: dropping it would change the number of rows
        nulls = pa.table([pa.nulls(broken.count, field.type) for field in table.schema], schema=table.schema)
        return pa.concat_tables([table, nulls]) if broken.count else table
    raise unreadable(path)


def delimited_options(
    delimiter: str,
    header: Sequence[str],
    wanted: Sequence[str],
    coded: Collection[str],
    block_bytes: int,
    broken: BrokenLines,
    encoding: str = "utf-8",
) -> dict[str, Any]:
    """Give Arrow's options by which every delimited file is read, at once or in pieces: each cell by itself."""
    import pyarrow.csv

    few = pa.dictionary(pa.int32(), pa.string())
    return {
        "read_options": pyarrow.csv.ReadOptions(block_size=block_bytes, encoding=encoding),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            # in a file of one column an empty line is a record whose only value is missing
            ignore_empty_lines=len(header) > 1,
            invalid_row_handler=broken.add,
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            # everything is text here: "01" stays "01", and numbers are parsed cell by cell later
            column_types={name: few if name in coded else pa.string() for name in header},
            include_columns=wanted,
            null_values=[""],
            strings_can_be_null=True,
        ),
    }


class BrokenLines:
    """Counts broken lines; Arrow calls it from several threads."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, _row: object) -> str:
        """Count a line and leave it out."""
        with self._lock:
            self.count += 1
        return "skip"


def read_header(path: Path, layout: FileLayout, wanted: Iterable[str] | None = None) -> list[str]:
    """Read the column names of a delimited file, and refuse it if some that are wanted are not there."""
    delimiter = layout.separator_of(path)
    try:
        with layout.open_text(path) as lines:
            pieces = iter(lambda: lines.readline(_LONGEST_LINE), "")
            header = next((row for row in csv.reader(map(_check_line, pieces), delimiter=delimiter) if row), None)
    except UnicodeDecodeError:
        raise encoding_error(path) from None
    except (OSError, EOFError, zlib.error, csv.Error):
        raise DataError(f"the first line of {path.name} cannot be read; check that the file is complete") from None
    if header is None:
        raise DataError(f"{path.name} has no line with column names; add one")
    other = next((mark for mark in SEPARATORS if len(header) == 1 and mark in header[0]), None)
    if other is not None and wanted is not None and any(name != header[0] for name in wanted):
        raise DataError(
            f"the first line of {path.name} is one name if {SEPARATORS[delimiter]} stand between names, and it has "
            f"{SEPARATORS[other]}; if these separate cells, write separator = {json.dumps(other)} under [file] in "
            "the schema"
        )
    check_names(header, wanted, path.name)
    return header


def _check_line(line: str) -> str:
    if len(line) == _LONGEST_LINE:
        raise csv.Error("no end in sight")
    return line


def _read_parquet(path: Path, columns: Sequence[str] | None, coded: Collection[str]) -> pa.Table:
    import pyarrow.parquet

    with readable_as(path, "Parquet"):
        fields = pyarrow.parquet.read_schema(path)
        check_names(fields.names, columns, path.name)
        few = [name for name in coded if name in fields.names and is_text(fields.field(name).type)]
        wanted = None if columns is None else list(columns)
        # no columns from the names of folders: the schema's columns are those in the file
        table = pyarrow.parquet.read_table(
            path, columns=wanted, read_dictionary=few, use_pandas_metadata=False, partitioning=None
        )
        for column in table.columns:
            for chunk in column.chunks:
                check_sound(chunk)
    return table


def _read_arrow(path: Path, columns: Sequence[str] | None) -> pa.Table:
    with open_arrow(path) as reader:
        check_names(reader.schema.names, columns, path.name)
        wanted = reader.schema.names if columns is None else list(columns)
        fields = pa.schema([reader.schema.field(name) for name in wanted])
        return pa.Table.from_batches(list(arrow_batches(reader, wanted)), fields)


@contextlib.contextmanager
def open_arrow(path: Path) -> Iterator[Any]:
    """Open an Arrow file or stream. It is read and not mapped: a mapped file that gets shorter ends the process."""
    with readable_as(path, "Arrow"), pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
        yield reader


def arrow_batches(reader: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Hand out some columns of an open Arrow file or stream, batch by batch, each checked before anyone uses it."""
    found = iter(reader) if hasattr(reader, "__iter__") else map(reader.get_batch, range(reader.num_record_batches))
    for batch in found:
        chosen = batch.select(list(columns))
        for column in chosen.columns:
            check_sound(column)
        yield chosen


def check_sound(array: pa.Array) -> None:
    """Refuse an array of a damaged file, by offsets, sizes and places; text that is no UTF-8 is only a value."""
    array.validate()
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        check_sound(array.storage)
    elif pa.types.is_dictionary(kind):
        check_sound(array.indices)
        check_sound(array.dictionary)
        ends = pc.min_max(array.indices)
        if ends["min"].is_valid and not 0 <= ends["min"].as_py() <= ends["max"].as_py() < len(array.dictionary):
            raise pa.ArrowIndexError("beyond the dictionary")
    else:
        # a text of bytes that are no UTF-8 would not pass as a text
        array.view(_BYTES.get(kind, kind)).validate(full=True)


@contextlib.contextmanager
def readable_as(path: Path, form: str) -> Iterator[None]:
    """Turn failures of Arrow into an error that quotes no cell."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise DataError(
            f"{path.name} is damaged, or asks for more memory than there is; write it again from its source, or choose "
            "the engine duckdb (--engine duckdb)"
        ) from None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise DataError(
            f"{path.name} cannot be read as {form}: it is damaged, incomplete or of another format; "
            "write it again from its source"
        ) from None


def _from_numpy(array: np.ndarray[Any, Any], columns: Sequence[str] | None) -> pa.Table:
    if array.dtype.names is not None:
        fields = list(array.dtype.names)
        return _from_arrays(fields, lambda position: array[fields[position]], columns, "the array")
    if array.ndim != 2:
        raise DataError(f"the array has {array.ndim} dimensions; give a structured array or one with 2 dimensions")
    if columns is None or len(columns) != array.shape[1]:
        wanted = "no names" if columns is None else f"{len(columns)} names"
        raise DataError(
            f"the array has {array.shape[1]} columns and {wanted} were given; "
            "give an array with one column for each name, in order"
        )
    return _from_arrays(list(columns), lambda position: array[:, position], columns, "the array")


def _from_arrays(names: list[str], take: Callable[[int], Any], columns: Sequence[str] | None, place: str) -> pa.Table:
    check_names(names, columns, place)
    wanted = names if columns is None else list(columns)
    arrays = [to_arrow(take(names.index(name))) for name in wanted]
    if len({len(array) for array in arrays}) > 1:
        raise DataError(f"the columns of {place} have different lengths; give one cell per row in every column")
    return pa.table(dict(zip(wanted, arrays, strict=True)))


def check_names(found: Sequence[str], wanted: Iterable[str] | None, place: str) -> None:
    """Refuse repeated names and lost columns."""
    twice = [name for name, times in Counter(found).items() if times > 1]
    if twice:
        # not the names: without a header they are the cells of the first record
        first, second, *_ = (position for position, name in enumerate(found, start=1) if name == twice[0])
        raise DataError(
            f"{place} has {len(twice)} column names more than once, the first in columns {first} and {second}; rename "
            "them, or add a first line with names if there is none"
        )
    lost = [name for name in wanted or () if name not in found]
    if lost:
        raise DataError(
            f"{place} lacks {len(lost)} column{'s' * (len(lost) > 1)} of the schema, the first is {lost[0]!r}; "
            "add them to the data, or remove them from the schema"
        )


def is_empty(path: Path, error: pa.ArrowInvalid, block_bytes: int) -> bool:
    """Say whether a file is empty or larger blocks may help; Arrow's words can quote cells, and are never shown."""
    reason = str(error)
    if "straddl" in reason and block_bytes != BLOCK_BYTES[-1]:
        return False
    if "Empty CSV file" in reason:
        return True
    raise (encoding_error(path) if "UTF8" in reason or "UTF-8" in reason else unreadable(path)) from None


def unreadable(path: Path) -> DataError:
    """Return the error for a delimited file that no reader takes."""
    return DataError(
        f"{path.name} cannot be read as a delimited file; check its quotes and that the file is complete "
        "(a cell may hold at most 1 GB)"
    )
