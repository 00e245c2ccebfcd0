"""Tables that are larger than memory: the rows arrive in batches, and the answers of the batches are added.

Every batch becomes a `MemoryTable`, which is asked the very same question. Each record is encoded by itself, and every
answer is a sum of exact integers over records, so the sum over batches is the answer for the whole table, whatever the
batches are. That is why engines that stream agree with the memory engine bit for bit.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.distinct import Cube, WeightedRows, shrink_rows
from dagveil.data.encoding import Codes, EncodedColumns, code_type, encode
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import DataError

BATCH_CELLS: Final = 2**23  # cells of one batch: about 64 MB of numbers
_FEWEST_BATCH_ROWS: Final = 2**12


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a table whose answer is a sum over records: the method that answers it, and its arguments."""

    name: str
    arguments: tuple[Any, ...]

    def ask(self, table: MemoryTable) -> list[NDArray[Any]]:
        """Return the answer as arrays that may be added."""
        answer = getattr(table, self.name)(*self.arguments)
        if isinstance(answer, list):
            return answer
        # a Python integer has no largest value, so it must not become a machine's
        return [answer if isinstance(answer, np.ndarray) else np.array(answer, dtype=object)]


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The answer of some rows, and their number."""

    answers: list[NDArray[Any]]
    n_rows: int

    def plus(self, other: Sums) -> Sums:
        """Add the answer of other rows."""
        added = [first + second for first, second in zip(self.answers, other.answers, strict=True)]
        return Sums(added, self.n_rows + other.n_rows)


class RowSource(Protocol):
    """Where rows come from: the same rows every time, in an order that may be another one every time.

    Databases promise no order. One record more, or another session, may change it, and no answer may depend on it.
    """

    @property
    def fields(self) -> pa.Schema:
        """Names and types of the columns."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows."""

    def coded(self, schema: Schema) -> Iterator[WeightedRows]:
        """Hand out the codes of all rows."""

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Answer a question about all rows; the schema declares the columns that it reads."""

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""


def batch_rows(width: int) -> int:
    """Return how many rows of so many columns make a batch."""
    return max(BATCH_CELLS // max(width, 1), _FEWEST_BATCH_ROWS)


def encode_batch(batch: pa.RecordBatch, schema: Schema) -> EncodedColumns:
    """Encode a batch by the encoder of all engines."""
    return encode(pa.Table.from_batches([batch]), schema)


def add_batches(batches: Iterable[pa.RecordBatch], fields: pa.Schema, question: Question, schema: Schema) -> Sums:
    """Add up the answers of batches; a table without rows has an answer too, by the types of its columns."""
    empty = pa.table({name: pa.array([], fields.field(name).type) for name in schema.columns})
    total = Sums(question.ask(MemoryTable(encode(empty, schema), schema)), 0)
    for batch in batches:
        table = MemoryTable(encode_batch(batch, schema), schema)
        total = total.plus(Sums(question.ask(table), table.n_rows))
    return total


def collect_distinct(pieces: Iterable[WeightedRows], schema: Schema, most: int) -> WeightedRows | None:
    """Return the distinct rows of all pieces in the order of their codes; None as soon as there are too many."""
    cube = Cube({name: column.n_levels for name, column in schema.columns.items()}, most)
    for piece in pieces:
        if not cube.add(piece):
            return None
    return cube.rows()


def shrink_pieces(pieces: Iterable[WeightedRows], schema: Schema) -> Iterator[WeightedRows]:
    """Reduce each piece of coded rows to its distinct rows, where that pays."""
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    return (shrink_rows(rows, levels) for rows in pieces)


def code_batches(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[WeightedRows]:
    """Encode batches, and keep the codes."""
    for batch in batches:
        encoded = encode_batch(batch, schema)
        yield WeightedRows(codes=encoded.codes, weights=None, n_rows=encoded.n_rows)


class LocalRows:
    """What sources have in common that hand rows out to this process. Inherit, and give `fields` and `batches`."""

    fields: pa.Schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows."""
        raise NotImplementedError

    def coded(self, schema: Schema) -> Iterator[WeightedRows]:
        """Hand out the codes of all rows."""
        return code_batches(self.batches(list(schema.columns)), schema)

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Answer a question about all rows; the schema declares the columns that it reads."""
        return add_batches(self.batches(list(schema.columns)), self.fields, question, schema)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        return collect_distinct(shrink_pieces(self.coded(schema), schema), schema, most)


class ArrowRows(LocalRows):
    """Rows of an Arrow table, handed out in pieces."""

    def __init__(self, table: pa.Table, most_rows: int | None = None) -> None:
        self._table = table
        self._most_rows = most_rows
        self.fields = table.schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows, in order."""
        chosen = self._table.select(list(columns))
        yield from chosen.to_batches(max_chunksize=self._most_rows or batch_rows(len(columns)))


class Spool:
    """Coded rows in a file without a name, by part within each piece; a label of `parts` or more leaves a row out."""

    def __init__(self, pieces: Iterable[WeightedRows], schema: Schema, labels: NDArray[Any], parts: int) -> None:
        self._types = {name: np.dtype(code_type(column)) for name, column in schema.columns.items()}
        self._ends: list[NDArray[np.intp]] = []
        self._starts: list[int] = []
        first = size = 0
        try:
            with tempfile.TemporaryFile(prefix="dagveil-") as file:
                for piece in pieces:
                    own = labels[first : first + piece.n_rows]
                    first += piece.n_rows
                    order = np.argsort(own, kind="stable")
                    # where the rows of each part begin, and where those of the last end
                    self._ends.append(np.searchsorted(own[order], np.arange(parts + 1)))
                    self._starts.append(size)
                    for name, kind in self._types.items():
                        column = piece.codes[name][order[: self._ends[-1][-1]]].astype(kind, copy=False)
                        size += file.write(column.tobytes())
                file.flush()
                self._bytes: NDArray[np.uint8] = (
                    np.memmap(file, dtype=np.uint8, mode="r") if size else np.empty(0, dtype=np.uint8)
                )
        except OSError:
            raise DataError(
                f"rows that were dealt out could not be written to {tempfile.gettempdir()}; make room there, set "
                "TMPDIR to a larger disk, or raise the memory limit"
            ) from None
        if first != len(labels):
            raise DataError("the rows changed while they were being counted; run again on rows that nobody writes to")

    def read(self, part: int, columns: Sequence[str]) -> Iterator[WeightedRows]:
        """Hand out some columns of the rows of one part."""
        for start, ends in zip(self._starts, self._ends, strict=True):
            n_rows, below, held = int(ends[part + 1] - ends[part]), int(ends[part]), int(ends[-1])
            codes: dict[str, Codes] = {}
            place = start
            for name, kind in self._types.items():
                if name in columns:
                    begin = place + below * kind.itemsize
                    codes[name] = self._bytes[begin : begin + n_rows * kind.itemsize].view(kind)
                place += held * kind.itemsize
            yield WeightedRows(codes=codes, weights=None, n_rows=n_rows)


class PartRows(LocalRows):
    """The rows of one part of a spool, for counts."""

    def __init__(self, spool: Spool, part: int, fields: pa.Schema) -> None:
        self._spool = spool
        self._part = part
        self.fields = fields

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Refuse: a part has codes only."""
        raise DataError("a part of a table has counts only; ask the whole table")

    def coded(self, schema: Schema) -> Iterator[WeightedRows]:
        """Hand out the codes of all rows."""
        return self._spool.read(self._part, list(schema.columns))

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Answer a question about all rows; the schema declares the columns that it reads."""
        nothing = {name: np.empty(0, code_type(column)) for name, column in schema.columns.items()}
        pieces = itertools.chain([WeightedRows(nothing, None, 0)], self.coded(schema))
        sums = (Sums(question.ask(MemoryTable.from_distinct(rows, schema)), rows.n_rows) for rows in pieces)
        total = next(sums)
        for one in sums:
            total = total.plus(one)
        return total
