"""Tables that are larger than memory: the rows arrive in batches, and the answers of the batches are added.

Every batch becomes a `MemoryTable`, which is asked the same question. Each record is encoded by itself and every answer
is a sum of exact integers over records, so engines that stream agree with the memory engine bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.column import Numeric
from dagveil.data.distinct import Cube, Store, WeightedRows, pack_cells, shrink_rows, take_cells_of
from dagveil.data.encoding import EncodedColumns, check_types, code_type, encode, join_columns
from dagveil.data.gradients import GradientPlan, weighs_exactly
from dagveil.data.memory import MemoryTable, check_rows_are_units
from dagveil.data.moments import MomentPlan, OuterProducts
from dagveil.data.schema import Schema
from dagveil.data.selection import HASH_BYTES, check_slots, choose_from
from dagveil.data.table import Table, check_columns, check_exponents, table_shape
from dagveil.errors import DataError, SchemaError

BATCH_CELLS: Final = 2**23  # cells of one batch: about 64 MB of numbers
_FEWEST_BATCH_ROWS: Final = 2**12


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a table whose answer is a sum over records: the method that answers it, and its arguments."""

    name: str
    arguments: tuple[Any, ...]

    def ask(self, table: Table) -> Sums:
        """Return the answer and the number of rows as arrays that may be added."""
        answer = getattr(table, self.name)(*self.arguments)
        answers = answer if isinstance(answer, list) else [answer]
        # a Python integer has no largest value, so it must not become a machine's
        return [each if isinstance(each, np.ndarray) else np.array(each, object) for each in (*answers, table.n_rows)]


Sums = list[NDArray[Any]]  # the answer of some rows, and at the end their number


def add_sums(one: Sums, other: Sums) -> Sums:
    """Add the answers of different rows."""
    return [first + second for first, second in zip(one, other, strict=True)]


def batch_rows(width: int) -> int:
    """Return how many rows of so many columns make a batch."""
    return max(BATCH_CELLS // max(width, 1), _FEWEST_BATCH_ROWS)


def encode_batch(batch: pa.RecordBatch, schema: Schema) -> EncodedColumns:
    """Encode a batch by the encoder of all engines."""
    return encode(pa.Table.from_batches([batch]), schema)


def add_encoded(pieces: Iterable[EncodedColumns], fields: pa.Schema, question: Question, schema: Schema) -> Sums:
    """Add up the answers of pieces; a table without rows has an answer too, by the types of its columns."""
    empty = pa.table({name: pa.array([], fields.field(name).type) for name in schema.columns})
    tables = (MemoryTable(piece, schema) for piece in itertools.chain([encode(empty, schema)], pieces))
    return functools.reduce(add_sums, map(question.ask, tables))


def collect_distinct(pieces: Iterable[WeightedRows], schema: Schema, most: int) -> WeightedRows | None:
    """Return the distinct rows of all pieces in the order of their codes; None as soon as there are too many."""
    cube = Cube(schema.n_levels, most)
    for piece in pieces:
        if not cube.add(piece):
            return None
    return cube.rows()


def read_coded(found: pa.Table | pa.RecordBatch, schema: Schema) -> WeightedRows:
    """Return coded rows that another program has counted: the codes of all columns, and at last the weights."""
    codes = {
        name: found.column(position).to_numpy(zero_copy_only=False).astype(code_type(column), copy=False)
        for position, (name, column) in enumerate(schema.columns.items())
    }
    weights = found.column(len(codes)).to_numpy(zero_copy_only=False).astype(np.float64)
    return WeightedRows(codes=codes, weights=weights, n_rows=found.num_rows)


def shrink_pieces(pieces: Iterable[WeightedRows], schema: Schema) -> Iterator[WeightedRows]:
    """Reduce each piece of coded rows to its distinct rows, where that pays."""
    levels = schema.n_levels
    return (shrink_rows(rows, levels) for rows in pieces)


def keep_codes(pieces: Iterable[EncodedColumns]) -> Iterator[WeightedRows]:
    """Keep the codes of encoded rows."""
    return (WeightedRows(codes=piece.codes, weights=None, n_rows=piece.n_rows) for piece in pieces)


class RowSource:
    """Where rows come from: the same ones every time, in any order, on which no answer may depend.

    Inherit, and give `fields` and `batches`, or `encoded` where rows are encoded already.
    """

    fields: pa.Schema  # names and types of the columns
    of_persons = False  # whether a row is a person already

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows."""
        raise NotImplementedError

    def encoded(self, schema: Schema) -> Iterator[EncodedColumns]:
        """Hand out the codes and numbers of all rows."""
        return (encode_batch(batch, schema) for batch in self.batches(list(schema.columns)))

    def coded(self, schema: Schema) -> Iterator[WeightedRows]:
        """Hand out the codes of all rows."""
        return keep_codes(self.encoded(schema))

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Answer a question about all rows; the schema declares the columns that it reads."""
        return add_encoded(self.encoded(schema), self.fields, question, schema)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        return collect_distinct(shrink_pieces(self.coded(schema), schema), schema, most)


class ArrowRows(RowSource):
    """Rows of an Arrow table, handed out in pieces."""

    def __init__(self, table: pa.Table, most_rows: int | None = None) -> None:
        self._table = table
        self._most_rows = most_rows
        self.fields = table.schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in order."""
        chosen = self._table.select(list(columns))
        yield from chosen.to_batches(max_chunksize=self._most_rows or batch_rows(len(columns)))


class StoredRows(RowSource):
    """Encoded rows in a bucket of a store, in memory or in a file."""

    def __init__(self, store: Store, fields: pa.Schema, *, of_persons: bool, bucket: int = 0) -> None:
        self._store = store
        self._bucket = bucket
        self.fields = fields
        self.of_persons = of_persons

    def encoded(self, schema: Schema) -> Iterator[EncodedColumns]:
        """Hand out the codes of all rows, and their numbers if the store has any."""
        return (take_cells_of(rows, schema.columns) for rows in self._store.bucket(self._bucket))


HELD_BYTES: Final = 10**9  # bytes that distinct rows, or codes of rows, may take in memory
_FEWEST_HASHES: Final = 2**16
_CHANGED: Final = "the rows changed while they were being counted; run again on rows that nobody writes to"


class StreamedTable:
    """Exact counts and sums of rows that arrive in batches. Only the curator may hold one.

    On the first count the rows are reduced to the distinct ones, if these are few enough to be held; otherwise every
    call reads all rows once. Which of the two happens changes time and memory, never an answer.
    """

    lattice = 1

    def __init__(self, rows: RowSource, schema: Schema, *, held_bytes: int = HELD_BYTES) -> None:
        self._rows = rows
        self.schema = schema
        self._held_bytes = held_bytes
        self._n_rows: int | None = None
        self._cube: MemoryTable | None = None
        self._cube_tried = False
        self._slots: dict[int, MemoryTable] = {}
        self._is_part = False
        if not rows.of_persons:
            check_rows_are_units(schema)
        # a type that cannot be read is refused now, as the memory engine does, not in the middle of a run
        check_types(rows.fields, schema)

    def __repr__(self) -> str:
        return f"StreamedTable(dataset={self.schema.dataset!r}, columns={len(self.schema.columns)})"

    @property
    def n_rows(self) -> int:
        """The exact number of rows: as sensitive as any other count."""
        numeric = all(isinstance(column, Numeric) for column in self.schema.columns.values())
        # where columns have levels, counts will be asked for, and one pass serves both
        if self._n_rows is None and (numeric or self._distinct() is None):
            self._add_up("counts", [()], [])
        assert self._n_rows is not None
        return self._n_rows

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Count rows by the codes of some columns, in the shape (levels of columns[0], levels of columns[1], …)."""
        table_shape(self.schema, columns)
        return self.counts_many([tuple(columns)])[0]

    def counts_many(self, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Answer many `counts` together: from distinct rows, or in one pass over all rows."""
        for columns in column_sets:
            table_shape(self.schema, columns)
        if not column_sets:
            return []
        cube = self._distinct()
        if cube is not None:
            return cube.counts_many(column_sets)
        read = [name for columns in column_sets for name in columns]
        return self._add_up("counts_many", [list(map(tuple, column_sets))], read)

    def outer_products(self, query: OuterProducts) -> NDArray[np.int64]:
        """Sum the outer products of the vectors that a query makes of rows, exactly, the constant first."""
        (total,) = self._add_up("outer_products", [query], query.columns)
        query.rows.check_rows(self.n_rows)
        return total

    def gradients(self, plan: GradientPlan) -> NDArray[np.int64]:
        """Sum the clipped gradients of all rows, in fixed point, in the shape (d, d)."""
        cube = self._levels_only(plan.rows.columns)
        if cube is not None and weighs_exactly(plan.cap(), cube.n_rows):
            return cube.gradients(plan)
        (total,) = self._add_up("gradients", [plan], plan.rows.columns)
        plan.check_rows(self.n_rows)
        return total

    def curvature(self, plan: MomentPlan, direction: NDArray[np.float64], cap: float) -> int:
        """Sum the clipped squared lengths of all rows' images under a direction, in fixed point."""
        cube = self._levels_only(plan.columns)
        if cube is not None:
            return cube.curvature(plan, direction, cap)
        return int(self._add_up("curvature", [plan, direction, cap], plan.columns)[0])

    def levelled_rows(self, columns: Sequence[str], slots: int) -> NDArray[np.float64]:
        """Give the chosen rows in [-1, 1], then filler; the first call reads all rows twice or more."""
        check_columns(self.schema, columns)
        check_slots(slots)
        if self._is_part:
            raise DataError("a part of a table has counts only, so it cannot be levelled; ask the whole table")
        if slots not in self._slots:
            self._slots = {slots: self._fill(slots)}
        return self._slots[slots].levelled_rows(columns, slots)

    def magnitude_counts(self, column: str, center: float, exponents: range) -> NDArray[np.int64]:
        """Count rows with 2**(k-1) < |x - center| <= 2**k for every k; the first and the last cell are open-ended."""
        check_exponents(center, exponents)
        (total,) = self._add_up("magnitude_counts", [column, center, exponents], [column])
        return total

    def thin(self, keep: Callable[[int], NDArray[np.bool_]]) -> Table:
        """Return the table of some rows; `keep`, given the number of rows, says which. Counts only."""
        return self.split(1, lambda n_rows: np.where(keep(n_rows), 0, 1))[0]

    def split(self, parts: int, assign: Callable[[int], NDArray[np.int64]]) -> Sequence[Table]:
        """Deal the rows out to parts; `assign`, given the number of rows, gives each row its part.

        Positions mean what they mean in memory, rows in the order of their codes, if the distinct rows or the codes of
        all rows can be held. If not, codes go to disk, and a position is one in the single reading that this takes.
        """
        held = self._distinct()
        if held is None and self.n_rows * self._row_bytes() <= self._held_bytes:
            pieces = [EncodedColumns(piece.n_rows, piece.codes, {}) for piece in self._rows.coded(self.schema)]
            joined = join_columns(pieces, self.schema)
            held = MemoryTable.from_distinct(WeightedRows(joined.codes, None, joined.n_rows), self.schema)
        if held is not None:
            return held.split(parts, assign)
        labels = np.minimum(assign(self.n_rows), parts).astype(np.min_scalar_type(parts))
        kind = np.dtype([(f"{name}:code", code_type(column)) for name, column in self.schema.columns.items()])
        store = Store(kind, 0, parts, "rows that were dealt out")
        first = 0
        for piece in self._rows.coded(self.schema):
            own = labels[first : first + piece.n_rows]
            first += piece.n_rows
            if len(own) < piece.n_rows:
                break
            rows = pack_cells(EncodedColumns(piece.n_rows, piece.codes, {}), kind)
            store.add(rows[own < parts], own[own < parts])
        if first != len(labels):
            raise DataError(_CHANGED)
        return [self._part(store, number, int(np.count_nonzero(labels == number))) for number in range(parts)]

    def _part(self, store: Store, number: int, n_rows: int) -> StreamedTable:
        rows = StoredRows(store, self._rows.fields, of_persons=self._rows.of_persons, bucket=number)
        part = StreamedTable(rows, self.schema, held_bytes=self._held_bytes)
        part._is_part = True
        part._n_rows = n_rows
        return part

    def _fill(self, slots: int) -> MemoryTable:
        """Return the rows that fill the slots."""
        most = max(self._held_bytes // HASH_BYTES, _FEWEST_HASHES)
        return MemoryTable(choose_from(self._encoded, self.schema, self.n_rows, slots, most), self.schema)

    def _encoded(self) -> Iterator[EncodedColumns]:
        n_rows = 0
        for piece in self._rows.encoded(self.schema):
            n_rows += piece.n_rows
            yield piece
        self._note_rows(n_rows)

    def _row_bytes(self) -> int:
        return sum(np.dtype(code_type(column)).itemsize for column in self.schema.columns.values())

    def _narrow(self, columns: Iterable[str]) -> Schema:
        """Return a schema of some columns, in the order of the table; at least one, which is needed to count rows."""
        asked = set(columns) or {next(iter(self.schema.columns))}
        kept = {name: column for name, column in self.schema.columns.items() if name in asked}
        return Schema(dataset=self.schema.dataset, columns=kept)

    def _add_up(self, name: str, arguments: Sequence[Any], columns: Sequence[str]) -> list[NDArray[Any]]:
        check_columns(self.schema, columns)
        narrow = self._narrow(columns)
        numeric = [column for column in narrow.columns if isinstance(narrow.columns[column], Numeric)]
        if self._is_part and numeric and name not in ("counts", "counts_many"):
            raise SchemaError(f"a part of a table has counts only, and {numeric[0]!r} is numeric; ask the whole table")
        *answers, n_rows = self._rows.add_up(Question(name, tuple(arguments)), narrow)
        self._note_rows(int(n_rows))
        return answers

    def _note_rows(self, n_rows: int) -> None:
        if self._n_rows is not None and self._n_rows != n_rows:
            raise DataError(_CHANGED)
        self._n_rows = n_rows

    def _levels_only(self, columns: Sequence[str]) -> MemoryTable | None:
        check_columns(self.schema, columns)
        if any(isinstance(self.schema.columns[name], Numeric) for name in columns):
            return None
        return self._distinct()

    def _distinct(self) -> MemoryTable | None:
        if not self._cube_tried:
            # codes and a multiplicity, as much again while they are sorted, and the order
            cells = math.prod(column.n_levels for column in self.schema.columns.values())
            most = min(self._held_bytes // (2 * (self._row_bytes() + 8) + 24), cells)
            found = self._rows.distinct(self.schema, most)
            self._cube_tried = True
            if found is not None:
                self._cube = MemoryTable.from_distinct(found, self.schema)
                self._note_rows(self._cube.n_rows)
        return self._cube
