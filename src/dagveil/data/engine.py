"""Which engine counts a table, and how it is opened; tables in SQLite and PostgreSQL."""

from __future__ import annotations

import enum
import math
import secrets
import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from dagveil.data import duckdb
from dagveil.data.cells import to_arrow
from dagveil.data.column import Numeric
from dagveil.data.distinct import WeightedRows
from dagveil.data.duckdb import quote_name
from dagveil.data.encoding import check_types
from dagveil.data.files import FileRows, foresee_bytes, list_files
from dagveil.data.ids import KEY_BYTES
from dagveil.data.machine import available_memory, read_bytes
from dagveil.data.memory import MemoryTable
from dagveil.data.persons import open_persons
from dagveil.data.reading import BLOCK_BYTES, BrokenLines, check_names, delimited_options, read_source
from dagveil.data.schema import Schema
from dagveil.data.streams import HELD_BYTES, ArrowRows, RowSource, StreamedTable, collect_distinct, encode_batch
from dagveil.data.table import Table
from dagveil.errors import DataError, MissingExtraError, SchemaError

if TYPE_CHECKING:
    from dagveil.data.spark import SparkRows

_FETCHED: Final = 2**14
_WEIGHT: Final = "dagveil weight"


def is_postgres(place: str) -> bool:
    """Tell whether a place is the URL of a PostgreSQL server."""
    return place.startswith(("postgresql://", "postgres://"))


class SqliteTable(RowSource):
    """An SQLite table or view; each cell is read by itself, and all rows as of when it was opened."""

    def __init__(self, path: Path, table: str, columns: Sequence[str]) -> None:
        self._path = path
        self._table = table
        if not path.is_file():
            raise DataError(f"there is no database {path}; check the path")
        self._connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        weakref.finalize(self, self._connection.close)
        # a text that is no UTF-8 is a value that no level foresees, not a failure
        self._connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        try:
            self._connection.execute("BEGIN")
            # this reads, so that the transaction has begun
            found = self._connection.execute(f"SELECT * FROM {quote_name(table)} LIMIT 1").description
        except sqlite3.Error:
            raise DataError(f"{path.name} has no table {table!r}, or is no SQLite database; check both names") from None
        check_names([entry[0] for entry in found], columns, f"table {table!r}")
        self.fields = pa.schema([(name, pa.string()) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in any order: an index may be read instead of the table."""
        names = ", ".join(map(quote_name, columns))
        try:
            cursor = self._connection.execute(f"SELECT {names} FROM {quote_name(self._table)}")
            while rows := cursor.fetchmany(_FETCHED):
                arrays = [to_arrow(list(cells)) for cells in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
        except sqlite3.Error:
            raise DataError(f"{self._path.name} failed while rows were read; check that it is complete") from None


class PostgresTable(RowSource):
    """A PostgreSQL table or view; cells are read as the server writes them, all rows as of when it was opened."""

    def __init__(self, url: str, table: str, columns: Sequence[str]) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("PostgreSQL needs psycopg: pip install 'dagveil[postgres]'") from error
        self._failures = psycopg.Error
        self._busy = False
        self._place = ".".join(map(quote_name, table.split(".")))
        try:
            self._connection = psycopg.connect(url, client_encoding="UTF8")
            self._connection.read_only = True
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            found = self._connection.execute(f"SELECT * FROM {self._place} LIMIT 0").description or []
        except psycopg.Error:
            # the server's words may hold a password
            raise DataError(
                f"the PostgreSQL server does not answer, or its database has no table {table!r}; check the URL, the "
                "name and your rights"
            ) from None
        check_names([entry.name for entry in found], columns, f"table {table!r}")
        self.fields = pa.schema([(name, pa.string()) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in any order: a server may begin anywhere, and read in parallel."""
        yield from self._read(f"SELECT {_texts(columns)} FROM {self._place}", columns)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows; the server groups them if all columns have levels."""
        if any(isinstance(column, Numeric) for column in schema.columns.values()):
            return super().distinct(schema, most)
        columns = list(schema.columns)
        places = ", ".join(str(position + 1) for position in range(len(columns)))
        query = f"SELECT {_texts(columns)}, count(*) AS {quote_name(_WEIGHT)} FROM {self._place} GROUP BY {places}"
        return collect_distinct(self._weigh(query, schema), schema, most)

    def _weigh(self, query: str, schema: Schema) -> Iterator[WeightedRows]:
        for batch in self._read(query, [*schema.columns, _WEIGHT]):
            encoded = encode_batch(batch, schema)
            weights = batch.column(_WEIGHT).cast(pa.int64()).to_numpy().astype(np.float64)
            yield WeightedRows(encoded.codes, weights, encoded.n_rows)

    def _read(self, query: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.csv

        if self._busy:
            raise DataError("the table is being read already, and a connection does one thing at a time; open it again")
        self._busy = True
        try:
            # a reading that stops early is cancelled, and only the savepoint is rolled back: the rows stay the same
            with (
                self._connection.transaction(),
                self._connection.cursor() as cursor,
                cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)") as sent,
            ):
                for block in _whole_records(sent):
                    options = delimited_options(",", columns, columns, (), len(block), BrokenLines())
                    options["read_options"].column_names = list(columns)
                    yield from pyarrow.csv.read_csv(pa.BufferReader(block), **options).to_batches()
        except (self._failures, pa.ArrowException):
            raise DataError(
                "the PostgreSQL server failed while rows were read; run again (a row may take at most 1 GB as text)"
            ) from None
        finally:
            self._busy = False


def _whole_records(sent: Iterable[Any]) -> Iterator[bytes]:
    """Put what a COPY sends together to blocks that end with a record, however large a cell is."""
    block = bytearray()
    within = False
    for piece in sent:
        block += piece
        # a line that ends between quotes goes on
        within ^= bytes(piece).count(b'"') % 2 == 1
        if len(block) >= BLOCK_BYTES[0] and not within and block.endswith(b"\n"):
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _texts(columns: Sequence[str]) -> str:
    """Write columns as texts that are compared by their bytes, whatever the collation of the database."""
    return ", ".join(f'({quote_name(name)})::text COLLATE "C" AS {quote_name(name)}' for name in columns)


_SHARE: Final = 0.5  # share of the available memory that rows, or DuckDB, may take if nobody says otherwise
_UNKNOWN_MEMORY: Final = 4e9
_HELD_SHARE: Final = 8
# share of the memory limit that DuckDB gets; the rest is for batches and for what is held of the rows
_DUCKDB_SHARE: Final = 0.7
_TOO_LARGE: Final = (
    "the rows do not fit into memory; choose the engine duckdb (--engine duckdb), which holds a batch at a time"
)
_SQLITE_HEAD: Final = b"SQLite format 3\x00"


class Engine(enum.Enum):
    """Where rows are held and counted."""

    AUTO = "auto"
    """Memory while the rows fit, DuckDB beyond; Spark for what is on a cluster."""

    MEMORY = "memory"
    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table of a database, as a source.

    - `place`: a DuckDB or SQLite file, the postgresql:// URL of a server, or the spark:// URL of a cluster.
    - `table`: name of the table. On a cluster it may also be the path of Parquet or CSV files that all workers can
      read.
    """

    place: str
    table: str

    def __repr__(self) -> str:
        # a URL may hold a password
        return f"DatabaseTable(table={self.table!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A source of rows with the engine that counts it; nothing has been read yet."""

    source: Any  # path, folder, pattern, frame, array, `DatabaseTable`, a frame of Spark, or an open table
    engine: Engine
    memory_limit: int | None = None  # in bytes; None leaves half of what is available

    def __repr__(self) -> str:
        return f"Rows({self.engine.value})"

    @property
    def held(self) -> bool:
        """Whether the rows are in memory already."""
        return isinstance(self.source, MemoryTable)

    @property
    def is_open(self) -> bool:
        """Whether the source is a table that somebody has opened."""
        return isinstance(self.source, MemoryTable | StreamedTable)

    def open(self, schema: Schema, key: bytes | None = None) -> Table:
        """Open the rows. Only a curator may hold what comes back.

        The key decides which records of a person count, where the schema leaves that to a hash; None draws a fresh one.
        """
        source = self.source
        if isinstance(source, MemoryTable | StreamedTable):
            if source.schema != schema:
                raise SchemaError(
                    f"the table was opened with another schema than the one given for {schema.dataset!r}; give the "
                    "table's own schema, or open the table again"
                )
            return source
        if schema.person is not None:
            return self._open_persons(schema, secrets.token_bytes(KEY_BYTES) if key is None else key)
        if self.engine is Engine.MEMORY:
            return _open_in_memory(source, schema)
        limit = self._limit()
        rows = _open_cluster(source, schema) if self.engine is Engine.SPARK else _open_rows(source, schema, limit)
        return StreamedTable(rows, schema, held_bytes=min(HELD_BYTES, limit // _HELD_SHARE))

    def _limit(self) -> int:
        return self.memory_limit or int(_SHARE * (available_memory() or _UNKNOWN_MEMORY))

    def _open_persons(self, schema: Schema, key: bytes) -> Table:
        """Open the table of persons: their records are read once, and grouped in memory or on disk."""
        if self.engine is Engine.SPARK:
            from dagveil.data.spark import open_spark_persons

            return open_spark_persons(_open_cluster(self.source, schema), schema, key)
        limit = self._limit()
        held = math.inf if self.engine is Engine.MEMORY else min(HELD_BYTES, limit // _HELD_SHARE)
        try:
            return open_persons(_open_records(self.source, schema, limit), schema, key, held)
        except MemoryError:
            raise DataError(_TOO_LARGE) from None


def choose_engine(source: Any, engine: Engine | str = Engine.AUTO, memory_limit: str | int | None = None) -> Rows:
    """Settle which engine counts a source, from public facts: its kind and the sizes of its files.

    - `source`: as in `Rows`.
    - `engine`: an engine, or `auto`.
    - `memory_limit`: such as 8GB, for DuckDB and for what is held in memory.

    Examples
    --------
    >>> choose_engine({"x": [1, 2]}).engine
    <Engine.MEMORY: 'memory'>
    """
    if isinstance(source, Rows):
        return source
    try:
        engine = Engine(engine)
    except ValueError:
        names = ", ".join(member.value for member in Engine)
        raise DataError(f"there is no engine {engine!r}; choose one of {names}") from None
    limit = None if memory_limit is None else read_bytes(str(memory_limit))
    if isinstance(source, MemoryTable | StreamedTable):
        return Rows(source, Engine.MEMORY if isinstance(source, MemoryTable) else Engine.DUCKDB, limit)
    if isinstance(source, str) and "://" in source:
        raise DataError("a database or cluster needs the name of a table too: --table NAME, in Python DatabaseTable")
    clustered = is_clustered(source)
    if clustered is not (engine is Engine.SPARK) and engine is not Engine.AUTO:
        raise DataError(
            "rows on a cluster are counted there: choose the engine spark or auto"
            if clustered
            else "the engine spark needs a frame of Spark, or a spark:// URL with --table"
        )
    if clustered:
        return Rows(source, Engine.SPARK, limit)
    if engine is Engine.AUTO:
        engine = _suit(source, limit)
    return Rows(source, engine, limit)


def is_clustered(source: Any) -> bool:
    """Tell whether a source is a frame of Spark, or a table on a cluster."""
    if isinstance(source, DatabaseTable):
        return source.place.startswith(("spark://", "local["))
    return type(source).__module__.partition(".")[0] == "pyspark"


def _suit(source: Any, limit: int | None) -> Engine:
    """Choose memory or DuckDB by the size of files alone."""
    if isinstance(source, DatabaseTable):
        return Engine.DUCKDB
    if not isinstance(source, str | Path) or not duckdb.is_installed():
        return Engine.MEMORY
    room = _SHARE * (available_memory() or _UNKNOWN_MEMORY) if limit is None else limit
    return Engine.MEMORY if foresee_bytes(list_files(source)) <= room else Engine.DUCKDB


def _open_in_memory(source: Any, schema: Schema) -> MemoryTable:
    try:
        files = list_files(source) if isinstance(source, str | Path) else []
        if isinstance(source, DatabaseTable) or len(files) > 1:
            rows = FileRows(files, schema) if files else _open_database(source, schema, _UNKNOWN_MEMORY)
            return MemoryTable.from_batches(rows.batches(list(schema.columns)), schema)
        return MemoryTable.from_source(files[0] if files else source, schema)
    except MemoryError:
        raise DataError(_TOO_LARGE) from None


def _open_records(source: Any, schema: Schema, limit: float) -> RowSource:
    """Open records one by one, by the readers of all engines."""
    if isinstance(source, DatabaseTable):
        return _open_database(source, schema, limit)
    if isinstance(source, str | Path):
        return FileRows(list_files(source), schema)
    return ArrowRows(read_source(source, schema.sources))


def _open_rows(source: Any, schema: Schema, limit: float) -> RowSource:
    if isinstance(source, DatabaseTable) or not isinstance(source, str | Path):
        return _open_records(source, schema, limit)
    session = duckdb.DuckdbSession(int(_DUCKDB_SHARE * limit))
    rows = duckdb.DuckdbFiles(list_files(source), schema, session)
    for fields in rows.all_fields:
        check_types(fields, schema)
    return rows


def _open_cluster(source: Any, schema: Schema) -> SparkRows:
    from dagveil.data.spark import SparkRows, open_cluster

    columns = list(schema.sources)
    if isinstance(source, DatabaseTable):
        return open_cluster(source.place, source.table, columns, schema.file)
    return SparkRows(source, columns)


def _open_database(source: DatabaseTable, schema: Schema, limit: float) -> RowSource:
    columns = schema.sources
    if is_postgres(source.place):
        return PostgresTable(source.place, source.table, columns)
    if "://" in source.place:
        raise DataError(
            f"databases of the kind {source.place.partition('://')[0]!r} cannot be read; give a DuckDB or SQLite file, "
            "or a postgresql:// or spark:// URL"
        )
    path = Path(source.place)
    try:
        if not path.is_file():
            raise FileNotFoundError
        with path.open("rb") as file:
            head = file.read(len(_SQLITE_HEAD))
    except OSError:
        raise DataError(f"there is no database {path} that can be read; check the path") from None
    if head == _SQLITE_HEAD:
        return SqliteTable(path, source.table, columns)
    return duckdb.DuckdbTable(path, source.table, columns, duckdb.DuckdbSession(int(_DUCKDB_SHARE * limit)))
