"""Rows that were dealt out to parts and are too many to be held: their codes, on disk.

The source is read once. Reading it again for every part would need an order that stays, which databases do not promise:
one record could then stand in several parts, or in none.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.distinct import WeightedRows, shrink_rows
from dagveil.data.encoding import Codes, code_type
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streams import Question, Sums, collect_distinct
from dagveil.errors import DataError


class Spool:
    """Coded rows in a file without a name, which is gone with the process, sorted by part within each piece.

    Parameters
    ----------
    pieces
        The codes of all rows.
    schema
        Declarations of the columns.
    labels
        The part of each row, in the order in which the pieces have them.
    parts
        How many parts there are; rows with a larger label are left out.
    """

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


class PartRows:
    """The rows of one part of a spool, for counts.

    Parameters
    ----------
    spool
        Where they are.
    part
        The number of the part.
    fields
        Names and types of the columns in the source.
    """

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

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        levels = {name: column.n_levels for name, column in schema.columns.items()}
        return collect_distinct((shrink_rows(rows, levels) for rows in self.coded(schema)), schema, most)
