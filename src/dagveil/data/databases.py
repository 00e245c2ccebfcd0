"""Tables of SQLite and PostgreSQL databases, read in place and never written to."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from dagveil.data.cells import to_arrow
from dagveil.data.column import Numeric
from dagveil.data.distinct import WeightedRows
from dagveil.data.duckdb import quote_name
from dagveil.data.reading import BLOCK_BYTES, BrokenLines, check_names, delimited_options
from dagveil.data.schema import Schema
from dagveil.data.streams import LocalRows, collect_distinct, encode_batch
from dagveil.errors import DataError, MissingExtraError

_FETCHED: Final = 2**14
_WEIGHT: Final = "dagveil weight"


def is_postgres(place: str) -> bool:
    """Tell whether a place is the URL of a PostgreSQL server."""
    return place.startswith(("postgresql://", "postgres://"))


class SqliteTable(LocalRows):
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


class PostgresTable(LocalRows):
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
