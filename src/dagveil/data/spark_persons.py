"""Persons on a Spark cluster: executors hash records, gather each person's, and answer for the persons they have.

What leaves the executors is answers only. The key goes to them, so that all choose the same records, however often
Spark repeats a task.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.distinct import WeightedRows
from dagveil.data.encoding import EncodedColumns
from dagveil.data.moments import OuterProducts
from dagveil.data.persons import (
    RecordLayout,
    collapse,
    label_records,
    put_cells,
    row_kind,
    take_cells_of,
    weigh_piece,
)
from dagveil.data.schema import Schema
from dagveil.data.spark import SparkRows, ask_executors, cluster_failure, gather_batches, pack_answer
from dagveil.data.store import Records
from dagveil.data.streams import Question, StreamedTable, Sums, add_encoded, collect_distinct, keep_codes, shrink_pieces
from dagveil.data.table import Table, table_shapes
from dagveil.data.weighed import WeighedTable


def open_spark_persons(rows: SparkRows, schema: Schema, key: bytes) -> Table:
    """Return the table of persons of a frame."""
    RecordLayout(schema, key).check_types(rows.fields)
    pack = functools.partial(pack_records, schema=schema, key=key)
    fold = functools.partial(fold_records, schema=schema, key=key)

    def fold_group(table: pa.Table) -> pa.Table:  # Spark counts the arguments of what it is given
        return fold(table)

    try:
        packed = rows.select(schema.sources).mapInArrow(pack, "bucket int, records binary")
        frame = packed.groupBy("bucket").applyInArrow(fold_group, "persons bigint, rows binary")
    except Exception as error:
        raise cluster_failure(error) from None
    if schema.records == "weigh":
        return SparkWeighedTable(frame, schema, key, rows)
    return StreamedTable(PersonFrame(frame, schema, rows), schema)


class PersonFrame(SparkRows):
    """A frame of persons, whose rows are encoded and packed."""

    of_persons = True

    def __init__(self, frame: Any, schema: Schema, records: SparkRows) -> None:
        self._frame = frame
        self._records = records  # its session ends with it
        self._whole = schema
        self.fields = pa.schema([(name, pa.string()) for name in schema.columns])

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Let the executors answer for their persons, and add the answers."""
        work = functools.partial(sum_persons, fields=self.fields, question=question, whole=self._whole, schema=schema)
        empty = add_encoded([], self.fields, question, schema)
        return functools.reduce(Sums.plus, ask_executors(self._frame, work), empty)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        work = functools.partial(shrink_persons, whole=self._whole, schema=schema, most=most)
        pieces = list(ask_executors(self._frame, work))
        return None if any(piece is None for piece in pieces) else collect_distinct(pieces, schema, most)


class SparkWeighedTable(WeighedTable):
    """Weighed records on a cluster: executors add up what they have."""

    def __init__(self, frame: Any, schema: Schema, key: bytes, records: SparkRows) -> None:
        self._frame = frame
        self._records = records  # its session ends with it
        self._key = key
        try:
            persons = sum(row[0] for row in frame.select("persons").collect())
        except Exception as error:
            raise cluster_failure(error) from None
        super().__init__(lambda: iter(()), schema, persons)

    def counts_many(self, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Answer many `counts` together, in one pass."""
        totals = [np.zeros(shape, dtype=np.int64) for shape in table_shapes(self.schema, column_sets)]
        for answers in self._ask("counts_many", list(map(tuple, column_sets))):
            for total, own in zip(totals, answers, strict=True):
                total += own
        return totals

    def outer_products(self, query: OuterProducts) -> NDArray[np.int64]:
        """Sum weighted outer products."""
        total = super().outer_products(query)
        for (own,) in self._ask("outer_products", query):
            total += own
        return total

    def magnitude_counts(self, column: str, center: float, exponents: range) -> NDArray[np.int64]:
        """Sum weights by how far a number lies from the centre, in powers of two."""
        total = super().magnitude_counts(column, center, exponents)
        for (own,) in self._ask("magnitude_counts", column, center, exponents):
            total += own
        return total

    def _ask(self, name: str, *arguments: Any) -> Iterator[list[NDArray[np.int64]]]:
        question = Question(name, arguments)
        work = functools.partial(sum_weighed, question=question, schema=self.schema, key=self._key)
        return ask_executors(self._frame, work)


# --- on the executors ---


def pack_records(batches: Iterable[pa.RecordBatch], schema: Schema, key: bytes) -> Iterator[pa.RecordBatch]:
    """Turn the rows of a partition into records, by bucket of their persons."""
    layout = RecordLayout(schema, key)
    for batch in gather_batches(batches, schema):
        records = layout.read(pa.Table.from_batches([batch]))
        labels = label_records(records)
        found = np.unique(labels)
        packed = [records[labels == label].tobytes() for label in found]
        yield pa.RecordBatch.from_arrays(
            [pa.array(found, pa.int32()), pa.array(packed, pa.binary())], names=["bucket", "records"]
        )


def fold_records(table: pa.Table, schema: Schema, key: bytes) -> pa.Table:
    """Turn the records of a bucket into rows of persons, or into weighed records."""
    layout = RecordLayout(schema, key)
    records = collapse(_unpack(table.column("records").to_pylist(), layout.kind))
    if schema.records == "weigh":
        rows, persons = layout.weigh(records, Counter())
    else:
        encoded = layout.rows(layout.fold(records))
        persons, rows = encoded.n_rows, np.zeros(encoded.n_rows, dtype=row_kind(schema))
        put_cells(rows, encoded)
    return pa.table({"persons": pa.array([persons], pa.int64()), "rows": pa.array([rows.tobytes()], pa.binary())})


def sum_persons(
    batches: Iterable[pa.RecordBatch], fields: pa.Schema, question: Question, whole: Schema, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Answer a question about the persons of a partition."""
    yield pack_answer(add_encoded(_read_rows(batches, whole, schema), fields, question, schema))


def shrink_persons(
    batches: Iterable[pa.RecordBatch], whole: Schema, schema: Schema, most: int
) -> Iterator[pa.RecordBatch]:
    """Count the distinct persons of a partition."""
    pieces = shrink_pieces(keep_codes(_read_rows(batches, whole, schema)), schema)
    yield pack_answer(collect_distinct(pieces, schema, most))


def sum_weighed(
    batches: Iterable[pa.RecordBatch], question: Question, schema: Schema, key: bytes
) -> Iterator[pa.RecordBatch]:
    """Answer a question about the weighed records of a partition."""
    kind = RecordLayout(schema, key).weighed_kind
    pieces = [weigh_piece(rows, schema) for rows in _unpack_rows(batches, kind)]
    table = WeighedTable(lambda: iter(pieces), schema, 0)
    yield pack_answer(question.ask(table))


def _read_rows(batches: Iterable[pa.RecordBatch], whole: Schema, schema: Schema) -> Iterator[EncodedColumns]:
    return (take_cells_of(rows, schema.columns) for rows in _unpack_rows(batches, row_kind(whole)))


def _unpack_rows(batches: Iterable[pa.RecordBatch], kind: np.dtype[Any]) -> Iterator[Records]:
    return (_unpack([blob], kind) for batch in batches for blob in batch.column("rows").to_pylist())


def _unpack(blobs: Sequence[bytes], kind: np.dtype[Any]) -> Records:
    return np.frombuffer(b"".join(blobs), dtype=kind).copy()
