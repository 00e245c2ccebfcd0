"""Rows on a Spark cluster: the executors encode them and add them up, and only counts and sums come back.

An executor runs the same core on its partition (`add_encoded`), and must have dagveil installed. Partial answers are
exact integers, so it does not matter how rows are spread, nor how often Spark repeats a task that was lost. Where
persons are protected, executors hash records and gather each person's; they get the key, so that all choose the same.
"""

import functools
import pickle
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data import streams
from dagveil.data.distinct import Records, WeightedRows, pack_cells, row_kind, take_cells_of
from dagveil.data.encoding import EncodedColumns
from dagveil.data.persons import RecordLayout, collapse, label_records, weigh_piece
from dagveil.data.reading import check_names
from dagveil.data.schema import PLAIN_LAYOUT, FileLayout, Schema
from dagveil.data.table import Table
from dagveil.data.weighed import WeighedTable
from dagveil.errors import DataError, MissingExtraError

_ROWS_STAY: Final = (
    "this question needs rows one by one, and the rows stay on the cluster; choose a method that asks for counts or "
    "sums, or export the columns it needs"
)
_PATH_ENDINGS: Final = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
_Read = Callable[[Iterable[pa.RecordBatch], Schema], Iterator[EncodedColumns]]


class SparkRows(streams.RowSource):
    """The rows of a frame of Spark, which must give the same rows whenever it is computed."""

    def __init__(self, frame: Any, columns: Sequence[str]) -> None:
        check_names(list(frame.columns), columns, "the frame")
        from pyspark.sql.pandas.types import to_arrow_schema

        self._frame = frame
        self._read: _Read = read_partition
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

    def add_up(self, question: streams.Question, schema: Schema) -> streams.Sums:
        """Let the executors answer for their rows, and add the answers."""
        empty = streams.add_encoded([], self.fields, question, schema)
        work = functools.partial(sum_partition, read=self._read, fields=self.fields, question=question, schema=schema)
        return functools.reduce(streams.add_sums, ask_executors(self.select(schema.columns), work), empty)

    def distinct(self, schema: Schema, most: int) -> WeightedRows | None:
        """Return the distinct coded rows in the order of their codes; None if there are more than `most`."""
        names = [f"c{position}" for position in range(len(schema.columns))]
        shape = ", ".join(f"{name} int" for name in names) + ", weight bigint"
        work = functools.partial(shrink_partition, read=self._read, schema=schema)
        try:
            coded = self.select(schema.columns).mapInArrow(work, shape)
            grouped = coded.groupBy(*names).agg({"weight": "sum"}).limit(most + 1)
            found = grouped.toArrow()
        except Exception as error:
            raise cluster_failure(error) from None
        if found.num_rows > most:
            return None
        return streams.collect_distinct([streams.read_coded(found, schema)], schema, most)


def ask_executors(frame: Any, work: Callable[..., Iterator[pa.RecordBatch]]) -> Iterator[Any]:
    """Let the executors answer for their rows, and hand out their answers."""
    try:
        rows = frame.mapInArrow(work, "answer binary").collect()
    except Exception as error:
        raise cluster_failure(error) from None
    return (pickle.loads(row[0]) for row in rows)


def read_partition(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[EncodedColumns]:
    """Encode the rows of one partition; runs on an executor."""
    return (streams.encode_batch(batch, schema) for batch in gather_batches(batches, schema))


def sum_partition(
    batches: Iterable[pa.RecordBatch], read: _Read, fields: pa.Schema, question: streams.Question, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Answer a question about the rows of one partition; runs on an executor."""
    yield pack_answer(streams.add_encoded(read(batches, schema), fields, question, schema))


def pack_answer(answer: Any) -> pa.RecordBatch:
    """Pack an answer of an executor for `ask_executors`."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(answer)], pa.binary())], names=["answer"])


def shrink_partition(batches: Iterable[pa.RecordBatch], read: _Read, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Count the distinct coded rows of one partition; runs on an executor."""
    names = [*(f"c{position}" for position in range(len(schema.columns))), "weight"]
    for rows in streams.shrink_pieces(streams.keep_codes(read(batches, schema)), schema):
        weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
        arrays = [pa.array(rows.codes[name].astype(np.int32)) for name in schema.columns]
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(weights.astype(np.int64))], names=names)


def gather_batches(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Put small batches together: Spark's are smaller than what is counted fastest."""
    most = streams.batch_rows(len(schema.columns))
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
    form = {"sep": layout.separator_of(Path(table)), "encoding": layout.encoding, "escape": '"'}
    return session.read.options(header=True, multiLine=True, inferSchema=False, **form).csv(table)


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
    return streams.StreamedTable(PersonFrame(frame, schema, rows), schema)


class PersonFrame(SparkRows):
    """A frame of persons, whose rows are encoded and packed."""

    of_persons = True

    def __init__(self, frame: Any, schema: Schema, records: SparkRows) -> None:
        self._frame = frame
        self._records = records  # its session ends with it
        self._read = functools.partial(read_persons, kind=row_kind(schema.columns))
        self.fields = pa.schema([(name, pa.string()) for name in schema.columns])

    def select(self, columns: Iterable[str]) -> Any:
        """Return the frame: its rows are packed."""
        return self._frame


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

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> Iterator[list[NDArray[np.int64]]]:
        question = streams.Question(name, arguments)
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
        rows = pack_cells(layout.rows(layout.fold(records)), row_kind(schema.columns))
        persons = len(rows)
    return pa.table({"persons": pa.array([persons], pa.int64()), "rows": pa.array([rows.tobytes()], pa.binary())})


def sum_weighed(
    batches: Iterable[pa.RecordBatch], question: streams.Question, schema: Schema, key: bytes
) -> Iterator[pa.RecordBatch]:
    """Answer a question about the weighed records of a partition."""
    kind = RecordLayout(schema, key).weighed_kind
    pieces = [weigh_piece(rows, schema) for rows in _unpack_rows(batches, kind)]
    table = WeighedTable(lambda: iter(pieces), schema, 0)
    yield pack_answer(question.ask(table)[:-1])


def read_persons(batches: Iterable[pa.RecordBatch], schema: Schema, kind: np.dtype[Any]) -> Iterator[EncodedColumns]:
    """Return some columns of the persons of a partition."""
    return (take_cells_of(rows, schema.columns) for rows in _unpack_rows(batches, kind))


def _unpack_rows(batches: Iterable[pa.RecordBatch], kind: np.dtype[Any]) -> Iterator[Records]:
    return (_unpack([blob], kind) for batch in batches for blob in batch.column("rows").to_pylist())


def _unpack(blobs: Sequence[bytes], kind: np.dtype[Any]) -> Records:
    return np.frombuffer(b"".join(blobs), dtype=kind).copy()
