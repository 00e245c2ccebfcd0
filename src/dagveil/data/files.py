"""Files and folders of them, handed out in batches, each cell read as the memory engine reads it."""

import csv
import glob
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from dagveil.data import reading
from dagveil.data.encoding import is_text
from dagveil.data.reading import check_file
from dagveil.data.schema import PLAIN_LAYOUT, SEPARATORS, FileLayout, Schema, encoding_error, usual_separator
from dagveil.data.streams import RowSource, batch_rows
from dagveil.errors import DataError

# how many times more memory than its file a table takes while it is read, by how the name of the file ends
_SWELLING: Final = {
    ".csv": 4.0,
    ".csv.gz": 30.0,
    ".tsv": 4.0,
    ".tsv.gz": 30.0,
    ".parquet": 15.0,
    ".feather": 3.0,
    ".arrow": 3.0,
}


_ARROW: Final = (".feather", ".arrow")


def known_ending(path: Path) -> str | None:
    """Tell how a file is written, by its name alone."""
    return next((ending for ending in _SWELLING if path.name.lower().endswith(ending)), None)


def list_files(place: str | Path) -> list[Path]:
    """List the files of a path, folder or pattern by name, subfolders too; names with . or _ first are passed over."""
    text = str(place)
    if Path(text).is_dir():
        parts = {path: path.relative_to(text).parts for path in Path(text).rglob("*") if path.is_file()}
        found = [path for path, names in parts.items() if not any(name.startswith((".", "_")) for name in names)]
    elif not Path(text).exists() and any(mark in text for mark in "*?["):
        found = [Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file()]
    else:
        reading.check_file(Path(text))
        found = [Path(text)]
    files = sorted(found)
    if not files:
        raise DataError(f"there are no files in {text}; check the folder or the pattern")
    strange = [path for path in files if known_ending(path) is None]
    if strange:
        raise DataError(f"the format of {strange[0].name} is not known; the name must end in {reading.ENDINGS}")
    return files


def foresee_bytes(files: Sequence[Path]) -> float:
    """Guess how much memory the rows of some files take while they are read, from the sizes of the files."""
    return sum(path.stat().st_size * _SWELLING[known_ending(path) or ".arrow"] for path in files)


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of a file: what shows that somebody wrote to it."""
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


class FileRows(RowSource):
    """The rows of one or more files, in the order of the files, which may have more columns than the schema."""

    def __init__(self, files: Sequence[Path], schema: Schema) -> None:
        self.files = list(files)
        self._schema = schema
        self._coded = frozenset(schema.coded)
        self._numbers = frozenset(schema.numbers)
        self._stamps = [_stamp(path) for path in files]
        found = [self._file_fields(path) for path in self.files]
        self.all_names = [names for names, _ in found]
        self.all_fields = [fields for _, fields in found]
        self.fields = self.all_fields[0]

    @property
    def same_types(self) -> bool:
        """Whether all files have the same types."""
        return all(fields.equals(self.fields) for fields in self.all_fields)

    def check_unchanged(self) -> None:
        """Refuse files that were written to since they were opened."""
        for path, stamp in zip(self.files, self._stamps, strict=True):
            if not path.exists() or _stamp(path) != stamp:
                raise DataError(f"{path.name} changed during the run; run again on files that nobody writes to")

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in the order of the files."""
        self.check_unchanged()
        for path in self.files:
            ending = known_ending(path)
            if ending == ".parquet":
                yield from _parquet_batches(path, columns, [name for name in columns if name in self._coded])
            elif ending in _ARROW:
                yield from _arrow_batches(path, columns)
            else:
                broken = yield from _delimited_batches(path, self._schema.file, columns, self._numbers)
                # a broken line is still one record: dropping it would change the number of rows
                if broken:
                    nothing = [pa.nulls(broken, pa.string()) for _ in columns]
                    yield pa.RecordBatch.from_arrays(nothing, names=list(columns))
        self.check_unchanged()

    def _file_fields(self, path: Path) -> tuple[list[str], pa.Schema]:
        """Return all names of a file, and the types of the columns that are read."""
        reading.check_file(path)
        ending = known_ending(path)
        if ending == ".parquet":
            with reading.readable_as(path, "Parquet"):
                return self._choose_fields(path, parquet.read_schema(path))
        if ending in _ARROW:
            with reading.open_arrow(path) as reader:
                return self._choose_fields(path, reader.schema)
        columns = self._schema.sources
        header = reading.read_header(path, self._schema.file, columns)
        return header, pa.schema([(name, pa.string()) for name in columns])

    def _choose_fields(self, path: Path, fields: pa.Schema) -> tuple[list[str], pa.Schema]:
        columns = self._schema.sources
        reading.check_names(fields.names, columns, path.name)
        return list(fields.names), pa.schema([fields.field(name).remove_metadata() for name in columns])


def _parquet_batches(path: Path, columns: Sequence[str], coded: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with reading.readable_as(path, "Parquet"):
        fields = parquet.read_schema(path)
        few = [name for name in coded if is_text(fields.field(name).type)]
        with parquet.ParquetFile(path, read_dictionary=few) as file:
            most = batch_rows(len(columns))
            for batch in file.iter_batches(most, columns=list(columns), use_pandas_metadata=False):
                for column in batch.columns:
                    reading.check_sound(column)
                yield batch


def _arrow_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    most = batch_rows(len(columns))
    with reading.open_arrow(path) as reader:
        for batch in reading.arrow_batches(reader, columns):
            for start in range(0, batch.num_rows, most):
                yield batch.slice(start, most)


def _delimited_batches(path: Path, layout: FileLayout, columns: Sequence[str], numbers: Collection[str]) -> Any:
    """Hand out the rows of a delimited file; returns the number of its broken lines."""
    import pyarrow.csv

    header = reading.read_header(path, layout)
    delimiter = layout.separator_of(path)
    done = 0
    for block_bytes in reading.BLOCK_BYTES:
        broken = reading.BrokenLines()
        options = reading.delimited_options(delimiter, header, columns, (), block_bytes, broken, layout.encoding)
        try:
            with pyarrow.csv.open_csv(path, **options) as reader:
                passed = 0
                for batch in reader:
                    # after a cell that was too large the file is read again, past the rows that were handed out
                    fresh = batch.slice(min(max(done - passed, 0), batch.num_rows))
                    passed += batch.num_rows
                    if fresh.num_rows:
                        done += fresh.num_rows
                        yield _read_marks(fresh, layout, numbers)
                return broken.count
        except pa.ArrowInvalid as error:
            if reading.is_empty(path, error, block_bytes):
                return broken.count
        except (OSError, UnicodeDecodeError):
            break
    raise reading.unreadable(path)


def _read_marks(batch: pa.RecordBatch, layout: FileLayout, numbers: Collection[str]) -> pa.RecordBatch:
    columns = [
        layout.read_marks(cells) if name in numbers else cells
        for name, cells in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def read_names(path: str | Path) -> tuple[tuple[str, ...], FileLayout]:
    """Return the names in a file, and for a delimited file what separates them. Of its text only one line is read."""
    path = Path(path)
    check_file(path)
    ending = known_ending(path)
    try:
        if ending == ".parquet":
            return tuple(parquet.read_schema(path).names), PLAIN_LAYOUT
        if ending in _ARROW:
            with pa.OSFile(str(path)) as file:
                return tuple(pa.ipc.open_file(file).schema.names), PLAIN_LAYOUT
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read; check that it is whole, and that its ending is right") from error
    if ending is None:
        raise DataError(f"{path.name} has no ending of a table that is read; name its columns instead")
    try:
        with PLAIN_LAYOUT.open_text(path) as file:
            line = str(file.readline()).lstrip("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError:
        raise encoding_error(path) from None
    mark = max(SEPARATORS, key=lambda each: (line.count(each), each == usual_separator(path)))
    names = tuple(name.strip() for name in next(csv.reader([line], delimiter=mark), []) if name.strip())
    if not names:
        raise DataError(f"the first line of {path.name} names no columns; name them yourself")
    return names, PLAIN_LAYOUT if mark == usual_separator(path) else FileLayout(separator=mark)
