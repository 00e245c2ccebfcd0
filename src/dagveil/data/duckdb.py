"""Rows that DuckDB groups: Parquet files in place, and tables of DuckDB databases.

DuckDB counts the distinct coded rows, within a memory limit and spilling to a private folder. Everything else, and
counts where DuckDB cannot give the encoder's answer or fails, is streamed: the answer is the same.
"""

import enum
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dagveil.data.cells import is_integer_text, place_codes, spell_levels
from dagveil.data.column import Column, LevelColumn, Numeric, marks_missing
from dagveil.data.distinct import WeightedRows, shrink_rows
from dagveil.data.encoding import code_type, is_text
from dagveil.data.files import FileRows, known_ending
from dagveil.data.reading import check_names
from dagveil.data.schema import Schema
from dagveil.data.streams import RowSource, batch_rows, collect_distinct, encode_batch, read_coded
from dagveil.errors import DataError, MissingExtraError

MOST_BRANCHES: Final = 64  # a CASE with more branches than this would cost more than it saves


class TextRule(enum.Enum):
    """How texts are compared."""

    PLAIN = "plain"  # as they are, where no collation can stand in the way: faster
    BYTES = "bytes"  # their bytes


@dataclass(frozen=True, slots=True)
class CodeExpression:
    """An SQL expression for the code of a cell, and the values of its parameters."""

    text: str
    values: tuple[str | bytes, ...]


def quote_name(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


# An expression exists only where its value is the encoder's for every cell of the type; the type alone decides, never
# a cell. Elsewhere rows are streamed and encoded here. Texts are compared byte by byte, by the encoder and by a CASE
# alike; a column of a database may carry a collation that takes different texts for equal, so the bytes are taken out
# first. Whole numbers are compared with levels that are written as such and lie in the range of the type. Cuts lie
# strictly inside the bounds, so clipping moves no number across a cut, and the code is how many cuts are at most x; a
# cut is written with the digits that read back as the same float. Not-a-number is asked for first, since databases
# sort it above infinity.
def write_code(name: str, kind: pa.DataType, column: Column, rule: TextRule = TextRule.BYTES) -> CodeExpression | None:
    """Write the code of a column in DuckDB's SQL, or None where it must be computed here."""
    cell = quote_name(name)
    found = _bin(cell, kind, column) if isinstance(column, Numeric) else _level(cell, kind, column, rule)
    if found is None:
        return None
    branches, values, otherwise = found
    if len(branches) > MOST_BRANCHES:
        return None
    target = "UTINYINT" if code_type(column) is np.uint8 else "USMALLINT"
    cases = " ".join(f"WHEN {condition} THEN {code}" for condition, code in branches)
    return CodeExpression(f"CAST(CASE {cases} ELSE {otherwise} END AS {target})", values)


_Branches = tuple[list[tuple[str, int]], tuple[str | bytes, ...], int]


def _bin(cell: str, kind: pa.DataType, column: Numeric) -> _Branches | None:
    types = pa.types
    if types.is_boolean(kind):
        number = f"CAST(CAST({cell} AS TINYINT) AS DOUBLE)"
    elif types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        number = f"CAST({cell} AS DOUBLE)"
    else:
        return None
    cuts = column.cuts
    missing = len(cuts) + 1 if marks_missing(column) else sum(cut <= column.missing_value for cut in cuts)
    coded = "".join(f" OR {number} = CAST('{code!r}' AS DOUBLE)" for code in column.missing_numbers)
    branches = [(f"{cell} IS NULL OR isnan({number}){coded}", missing)]
    bins = zip(reversed(cuts), range(len(cuts), 0, -1), strict=True)
    return [*branches, *((f"{number} >= CAST('{cut!r}' AS DOUBLE)", code) for cut, code in bins)], (), 0


def _level(cell: str, kind: pa.DataType, column: LevelColumn, rule: TextRule) -> _Branches | None:
    places = place_codes(column)
    outside, missing = places[-2], places[-1]
    spellings = spell_levels(column)
    if pa.types.is_boolean(kind):
        no, yes = (places[spellings[word]] if word in spellings else outside for word in ("false", "true"))
        return [(f"{cell} IS NULL", missing), (cell, yes)], (), no
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        numbers = {int(text): places[spelled] for text, spelled in spellings.items() if is_integer_text(text)}
        inside = [(number, code) for number, code in numbers.items() if limits.min <= number <= limits.max]
        branches = [(f"{cell} = {number}", code) for number, code in inside]
        return [(f"{cell} IS NULL", missing), *branches], (), outside
    if is_text(kind):
        plain = rule is TextRule.PLAIN
        text = cell if plain else f"encode({cell})"
        values = tuple(spelled if plain else spelled.encode() for spelled in spellings)
        branches = [(f"{text} = ?", places[position]) for position in spellings.values()]
        empty = f"{cell} = ''" if plain else f"octet_length({text}) = 0"
        return [(f"{cell} IS NULL OR {empty}", missing), *branches], values, outside
    return None


_HOPELESS: Final = 0.95  # share of distinct rows among the first ones above which grouping is not tried
_PROBED: Final = 2**17


def is_installed() -> bool:
    """Tell whether the package duckdb is there."""
    from importlib.util import find_spec

    return find_spec("duckdb") is not None


class DuckdbSession:
    """A connection with a memory limit in bytes and a private folder; it installs nothing and only reads."""

    def __init__(self, memory_limit: int) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError("this engine needs DuckDB: pip install 'dagveil[duckdb]'") from error
        # for this user only, since rows that are grouped may be spilled here
        self._folder = tempfile.mkdtemp(prefix="dagveil-duckdb-")
        options: dict[str, Any] = {
            "memory_limit": f"{memory_limit // 1000}KB",
            "temp_directory": self._folder,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self.failures = duckdb.Error
        self._connection = duckdb.connect(":memory:", config=options)
        self._closer = weakref.finalize(self, _close, self._connection, self._folder, os.getpid())

    def close(self) -> None:
        """Close the connection and remove the private folder."""
        self._closer()

    def run(self, query: str) -> None:
        """Execute a statement."""
        self._connection.execute(query)

    def read(self, query: str, values: Sequence[Any] = (), rows: int = 2**16) -> pa.RecordBatchReader:
        """Return the rows of a query, in batches."""
        found = self._connection.sql(query, params=list(values)) if values else self._connection.sql(query)
        reader = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
        return reader(rows)


def _close(connection: Any, folder: str, owner: int) -> None:
    # a forked process must not pull the folder away from its parent
    if os.getpid() == owner:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


class DuckdbFiles(FileRows):
    """Files of rows; those in Parquet are grouped by DuckDB in place."""

    def __init__(self, files: Sequence[Path], schema: Schema, session: DuckdbSession) -> None:
        super().__init__(files, schema)
        self._session = session

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        self.check_unchanged()
        batches = self.batches(list(schema.columns))
        if self._can_group() and not _is_hopeless(batches, schema, most):
            for _ in batches:
                pass  # Arrow refuses a damaged file, of which DuckDB would make other rows
            files = ", ".join(f"'{_quote_text(str(path))}'" for path in self.files)
            # no columns from the names of folders: the schema's columns are those in the files
            place = f"read_parquet([{files}], hive_partitioning = false)"
            try:
                pieces = group_rows(self._session, place, self.fields, schema, TextRule.PLAIN)
                if pieces is not None:
                    return collect_distinct(pieces, schema, most)
            except self._session.failures:
                pass  # such as texts that are no UTF-8, or too little memory: streaming bears both
        return super().distinct(schema, most)

    def _can_group(self) -> bool:
        """Tell whether DuckDB finds the same columns in the files; it does not tell capitals from small letters."""
        if not self.same_types or any(known_ending(path) != ".parquet" for path in self.files):
            return False
        names = self.all_names
        if any(found != names[0] for found in names) or len({name.lower() for name in names[0]}) < len(names[0]):
            return False
        return not any(mark in str(path) for path in self.files for mark in "*?[")


class DuckdbTable(RowSource):
    """A table or view of a DuckDB database; its schema stands before a dot if it is not the default one."""

    def __init__(self, path: Path, table: str, columns: Sequence[str], session: DuckdbSession) -> None:
        self._session = session
        self._place = ".".join(quote_name(part) for part in ("rows", *table.split(".")))
        try:
            session.run(f"ATTACH '{_quote_text(str(path))}' AS \"rows\" (TYPE duckdb, READ_ONLY)")
            fields = session.read(f"SELECT * FROM {self._place} LIMIT 0").schema
        except session.failures:
            raise DataError(
                f"{path.name} has no table {table!r}, or is no DuckDB database, or another program writes to it; "
                "check both names, and close the other program"
            ) from None
        check_names(fields.names, columns, f"table {table!r}")
        self.fields = pa.schema([fields.field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in any order: a view has none."""
        names = ", ".join(map(quote_name, columns))
        try:
            yield from self._session.read(f"SELECT {names} FROM {self._place}", rows=batch_rows(len(columns)))
        except self._session.failures:
            raise DataError("the database failed while rows were read; check that it is complete") from None

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        if not _is_hopeless(self.batches(list(schema.columns)), schema, most):
            try:
                pieces = group_rows(self._session, self._place, self.fields, schema, TextRule.BYTES)
                if pieces is not None:
                    return collect_distinct(pieces, schema, most)
            except self._session.failures:
                pass
        return super().distinct(schema, most)


def _is_hopeless(batches: Iterator[pa.RecordBatch], schema: Schema, most: int) -> bool:
    """Tell from the first rows whether nearly all rows are distinct, and more than may be held."""
    first = next(batches, None)
    if first is None or first.num_rows <= min(most, _PROBED // 2):
        return False
    encoded = encode_batch(first.slice(0, _PROBED), schema)
    rows = shrink_rows(WeightedRows(encoded.codes, None, encoded.n_rows), schema.n_levels)
    return rows.n_rows > _HOPELESS * encoded.n_rows


def group_rows(
    session: DuckdbSession, place: str, fields: pa.Schema, schema: Schema, rule: TextRule
) -> Iterator[WeightedRows] | None:
    """Let DuckDB count the distinct coded rows; None where a column's code has no expression."""
    expressions = [write_code(name, fields.field(name).type, column, rule) for name, column in schema.columns.items()]
    found = [expression for expression in expressions if expression is not None]
    if len(found) < len(expressions):
        return None
    # Smallest and largest numbers in Parquet files leave not-a-number out, and DuckDB would fold conditions by them.
    floats = any(pa.types.is_floating(fields.field(name).type) for name in schema.columns)
    session.run(f"SET disabled_optimizers = '{'statistics_propagation' if floats else ''}'")
    codes = ", ".join(f"{expression.text} AS c{position}" for position, expression in enumerate(found))
    grouped = ", ".join(str(position + 1) for position in range(len(found)))
    query = f"SELECT {codes}, count(*) AS weight FROM {place} GROUP BY {grouped}"
    values = [value for expression in found for value in expression.values]
    return (read_coded(batch, schema) for batch in session.read(query, values))


def _quote_text(text: str) -> str:
    return text.replace("'", "''")
