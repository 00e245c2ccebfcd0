"""Rows on a Spark cluster: the executors encode them and add them up, and only counts and sums come back.

An executor runs the same core on its partition (`add_batches`), and must have dagveil installed. Partial answers are
exact integers, so it does not matter how rows are spread, nor how often Spark repeats a task that was lost.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dagveil.data.distinct import WeightedRows
from dagveil.data.encoding import EncodedColumns, code_type
from dagveil.data.file_layout import PLAIN_LAYOUT, FileLayout
from dagveil.data.reading import check_names
from dagveil.data.schema import Schema
from dagveil.data.streams import Question, Sums, add_batches, batch_rows, code_batches, collect_distinct, shrink_pieces
from dagveil.errors import DataError, MissingExtraError

_ROWS_STAY: Final = (
    "this question needs rows one by one, and the rows stay on the cluster; choose a method that asks for counts or "
    "sums, or export the columns it needs"
)
_PATH_ENDINGS: Final = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")


class SparkRows:
    """The rows of a frame of Spark, which must give the same rows whenever it is computed."""

    of_persons = False

    def __init__(self, frame: Any, columns: Sequence[str]) -> None:
        check_names(list(frame.columns), columns, "the frame")
        from pyspark.sql.pandas.types import to_arrow_schema

        self._frame = frame
        try:
            self.fields = to_arrow_schema(frame.select(*map(_quote, columns)).schema)
        except Exception as error:
            raise cluster_failure(error) from None

    def select(self, columns: Iterable[str]) -> Any:
        """Return the frame of some columns."""
        return self._frame.select(*map(_quote, columns))

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Refuse: rows stay on the cluster."""
        raise DataError(_ROWS_STAY)

    def encoded(self, schema: Schema) -> Iterator[EncodedColumns]:
        """Refuse, as well."""
        raise DataError(_ROWS_STAY)

    def coded(self, schema: Schema) -> Iterator[WeightedRows]:
        """Refuse, as well."""
        raise DataError(_ROWS_STAY)

    def add_up(self, question: Question, schema: Schema) -> Sums:
        """Let the executors answer for their rows, and add the answers."""
        empty = add_batches([], self.fields, question, schema)
        work = functools.partial(sum_partition, fields=self.fields, question=question, schema=schema)
        return functools.reduce(Sums.plus, ask_executors(self.select(schema.columns), work), empty)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        names = [f"c{position}" for position in range(len(schema.columns))]
        shape = ", ".join(f"{name} int" for name in names) + ", weight bigint"
        work = functools.partial(shrink_partition, schema=schema)
        try:
            coded = self.select(schema.columns).mapInArrow(work, shape)
            grouped = coded.groupBy(*names).agg({"weight": "sum"}).limit(most + 1)
            found = grouped.toArrow()
        except Exception as error:
            raise cluster_failure(error) from None
        if found.num_rows > most:
            return None
        codes = {
            name: found.column(position).to_numpy().astype(code_type(column))
            for position, (name, column) in enumerate(schema.columns.items())
        }
        weights = found.column(len(names)).to_numpy().astype(np.float64)
        return collect_distinct([WeightedRows(codes, weights, found.num_rows)], schema, most)


def ask_executors(frame: Any, work: Callable[..., Iterator[pa.RecordBatch]]) -> Iterator[Any]:
    """Let the executors answer for their rows, and hand out their answers."""
    try:
        rows = frame.mapInArrow(work, "answer binary").collect()
    except Exception as error:
        raise cluster_failure(error) from None
    return (pickle.loads(row[0]) for row in rows)


def sum_partition(
    batches: Iterable[pa.RecordBatch], fields: pa.Schema, question: Question, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Answer a question about the rows of one partition; runs on an executor."""
    total = add_batches(gather_batches(batches, schema), fields, question, schema)
    yield pack_answer(total)


def pack_answer(answer: Any) -> pa.RecordBatch:
    """Pack an answer of an executor for `ask_executors`."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(answer)], pa.binary())], names=["answer"])


def shrink_partition(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Encode the rows of one partition and count the distinct ones; runs on an executor."""
    names = [*(f"c{position}" for position in range(len(schema.columns))), "weight"]
    for rows in shrink_pieces(code_batches(gather_batches(batches, schema), schema), schema):
        weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
        arrays = [pa.array(rows.codes[name].astype(np.int32)) for name in schema.columns]
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(weights.astype(np.int64))], names=names)


def gather_batches(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Put small batches together: Spark's are smaller than what is counted fastest."""
    most = batch_rows(len(schema.columns))
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(piece.num_rows for piece in kept) >= most:
            yield from pa.Table.from_batches(kept).combine_chunks().to_batches()
            kept = []
    if kept:
        yield from pa.Table.from_batches(kept).combine_chunks().to_batches()


def open_cluster(url: str, table: str, columns: Sequence[str], layout: FileLayout = PLAIN_LAYOUT) -> SparkRows:
    """Open a table on a cluster, or a path that its workers can read."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingExtraError("this engine needs Spark: pip install 'dagveil[spark]'") from error
    running = SparkSession.getActiveSession()
    try:
        session = (
            SparkSession.builder.master(url)
            .appName("dagveil")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        rows = SparkRows(_find_frame(session, table, layout), columns)
    except DataError:
        raise
    except Exception as error:
        raise cluster_failure(error) from None
    if running is None:
        weakref.finalize(rows, session.stop)
    return rows


def _find_frame(session: Any, table: str, layout: FileLayout) -> Any:
    name = table.lower()
    if "/" not in table and not name.endswith(_PATH_ENDINGS):
        return session.table(table)
    if not name.endswith(_PATH_ENDINGS[1:]):
        return session.read.parquet(table)
    # everything is text here, as the other engines read such files; lines that are broken are Spark's to judge
    if layout.decimal != ".":
        raise DataError("a cluster reads no decimal commas; write these numbers with a point, or the table as Parquet")
    delimiter = layout.separator_of(Path(table))
    options = {
        "header": True,
        "sep": delimiter,
        "encoding": layout.encoding,
        "escape": '"',
        "multiLine": True,
        "inferSchema": False,
    }
    return session.read.options(**options).csv(table)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def cluster_failure(error: Exception) -> Exception:
    """Say that the cluster failed, without its words: these can quote cells."""
    if isinstance(error, DataError):
        return error
    kind = type(error).__name__
    return DataError(
        f"the Spark cluster could not do this ({kind}); check its address, the table or path, and that dagveil is "
        "installed where its executors run. Its own logs say more."
    )
