"""Tables of SQLite and PostgreSQL databases, read in place and never written to."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from dagveil.data.cells import to_arrow
from dagveil.data.column import Numeric
from dagveil.data.distinct import WeightedRows
from dagveil.data.pushdown import quote_name
from dagveil.data.reading import BLOCK_BYTES, BrokenLines, check_names, delimited_options
from dagveil.data.schema import Schema
from dagveil.data.streams import LocalRows, collect_distinct, encode_batch
from dagveil.errors import DataError, MissingExtraError

_FETCHED: Final = 2**14
_WEIGHT: Final = "dagveil weight"


def is_postgres(place: str) -> bool:
    """Tell whether a place is the URL of a PostgreSQL server.

    Examples
    --------
    >>> is_postgres("postgresql://ann@host/claims"), is_postgres("claims.sqlite")
    (True, False)
    """
    return place.startswith(("postgresql://", "postgres://"))


class SqliteTable(LocalRows):
    """A table or view of an SQLite database. Cells have types of their own there, and each is read by itself.

    Parameters
    ----------
    path
        The database.
    table
        Name of the table.
    columns
        Columns of the schema; the table may have more.
    """

    def __init__(self, path: Path, table: str, columns: Sequence[str]) -> None:
        self._path = path
        self._table = table
        if not path.is_file():
            raise DataError(f"there is no database {path}; check the path")
        try:
            with self._connect() as connection:
                found = connection.execute(f"SELECT * FROM {quote_name(table)} LIMIT 0").description
        except sqlite3.Error:
            raise DataError(f"{path.name} has no table {table!r}, or is no SQLite database; check both names") from None
        check_names([entry[0] for entry in found], columns, f"table {table!r}")
        self._fields = pa.schema([(name, pa.string()) for name in columns])

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(str(self._path.absolute()))}?mode=ro", uri=True)
        # a text that is no UTF-8 is a value that no level foresees, not a failure
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return connection

    @property
    def fields(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._fields

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in the order in which the table has them."""
        names = ", ".join(map(quote_name, columns))
        connection = self._connect()
        try:
            cursor = connection.execute(f"SELECT {names} FROM {quote_name(self._table)}")
            while rows := cursor.fetchmany(_FETCHED):
                arrays = [to_arrow(list(cells)) for cells in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
        except sqlite3.Error:
            raise DataError(f"{self._path.name} failed while rows were read; check that it is complete") from None
        finally:
            connection.close()


class PostgresTable(LocalRows):
    """A table or view of a PostgreSQL database. Every cell is read as the text that the server writes for it.

    All questions see the same rows, those of the moment at which the table was opened.

    Parameters
    ----------
    url
        postgresql://user@host/database.
    table
        Name of the table, with its schema before a dot if that is not on the search path.
    columns
        Columns of the schema; the table may have more.
    """

    def __init__(self, url: str, table: str, columns: Sequence[str]) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError("PostgreSQL needs psycopg: pip install 'dagveil[postgres]'") from error
        self._failures = psycopg.Error
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
        self._fields = pa.schema([(name, pa.string()) for name in columns])

    @property
    def fields(self) -> pa.Schema:
        """Names and types of the columns: all texts."""
        return self._fields

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in the order in which the server has them."""
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

        options = delimited_options(",", columns, columns, (), BLOCK_BYTES[-1] // 64, BrokenLines())
        try:
            with (
                self._connection.cursor() as cursor,
                cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER true, FORCE_QUOTE *)") as rows,
                pyarrow.csv.open_csv(io.BufferedReader(_CopiedBytes(rows), 2**20), **options) as reader,
            ):
                yield from reader
        except (self._failures, pa.ArrowException):
            raise DataError("the PostgreSQL server failed while rows were read; run again") from None


def _texts(columns: Sequence[str]) -> str:
    """Write columns as texts that are compared by their bytes, whatever the collation of the database."""
    return ", ".join(f'({quote_name(name)})::text COLLATE "C" AS {quote_name(name)}' for name in columns)


class _CopiedBytes(io.RawIOBase):
    """What a COPY sends, as a file."""

    def __init__(self, rows: Any) -> None:
        self._rows = iter(rows)
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            found = next(self._rows, None)
            if found is None:
                return 0
            self._left = bytes(found)
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
