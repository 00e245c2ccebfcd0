"""A real cluster of processes on loopback: one master, two workers, executors that encode and add up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from engine_contract import LEVELS, MIXED, NUMBERS, SETS, gradient_plan, moment_plan, residual_plan
from table_contract import SCHEMA, as_table

from dagveil.data.engine import DatabaseTable, choose_engine
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable
from dagveil.data.table import Table
from dagveil.errors import DataError
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source
from dagveil_bench.spark_cluster import SparkCluster, start_cluster

pytestmark = pytest.mark.spark
PIECES = 6
TASKS = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with start_cluster(workers=2) as running:
        yield running
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    n = 3000
    numbers = rng.normal(0.0, 40.0, n)
    numbers[:4] = [np.nan, np.inf, -np.inf, -0.0]
    return as_table(
        {
            "colour": rng.choice(np.array(["red", "blue", "?", "", None], dtype=object), n).tolist(),
            "size": rng.choice(["low", "high"], n).tolist(),
            "smokes": rng.choice(np.array(["yes", "no", None], dtype=object), n).tolist(),
            "age": numbers.tolist(),
            "score": rng.normal(size=n).tolist(),
        }
    )


@pytest.fixture(scope="module")
def folder(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    size = rows.num_rows // PIECES
    for number in range(PIECES):
        pyarrow.parquet.write_table(rows.slice(number * size, size), place / f"{number}.parquet")
    return place


@pytest.fixture(scope="module")
def table(cluster: SparkCluster, folder: Path) -> Table:
    return choose_engine(DatabaseTable(cluster.url, str(folder))).open(SCHEMA)


def test_every_sum_equals_memory(table: Table, rows: pa.Table) -> None:
    memory = MemoryTable.from_source(rows, SCHEMA)
    assert isinstance(table, StreamedTable)
    assert table.n_rows == memory.n_rows
    direction = np.array([[0.5, 0.1], [0.2, 0.9]])

    def list_sums(one: Table) -> list[Any]:
        return [
            *(answer.tolist() for answer in one.counts_many(SETS)),
            one.outer_products(moment_plan(MIXED)).tolist(),
            one.outer_products(residual_plan()).tolist(),
            one.gradients(gradient_plan(NUMBERS)).tolist(),
            one.gradients(gradient_plan(LEVELS)).tolist(),
            one.curvature(moment_plan(NUMBERS), direction, 3.0),
            one.magnitude_counts("age", 18.0, range(3, 6)).tolist(),
            one.magnitude_counts("score", 0.25, range(-3, 3)).tolist(),
        ]

    assert list_sums(table) == list_sums(memory)


def test_too_many_distinct_rows_are_counted_on_the_cluster(cluster: SparkCluster, folder: Path, rows: pa.Table) -> None:
    opened = choose_engine(DatabaseTable(cluster.url, str(folder))).open(SCHEMA)
    assert isinstance(opened, StreamedTable)
    unheld = StreamedTable(opened._rows, SCHEMA, held_bytes=1000)
    memory = MemoryTable.from_source(rows, SCHEMA)
    for found, wanted in zip(unheld.counts_many(SETS), memory.counts_many(SETS), strict=True):
        assert found.tolist() == wanted.tolist()
    assert unheld._cube is None


def test_rows_stay_on_the_cluster(table: Table) -> None:
    with pytest.raises(DataError, match="stay on the cluster"):
        table.levelled_rows(["age"], 10)
    rng = np.random.default_rng(1)
    parts = table.split(2, lambda n_rows: rng.integers(0, 2, n_rows))
    assert sum(part.n_rows for part in parts) == table.n_rows
    assert (sum(part.counts(["colour"]) for part in parts) == table.counts(["colour"])).all()


def test_the_cluster_says_what_is_missing(cluster: SparkCluster, folder: Path) -> None:
    with pytest.raises(DataError, match="lacks 5 columns"):
        choose_engine(_frame(cluster, folder).select()).open(SCHEMA)
    with pytest.raises(DataError, match="could not do this"):
        choose_engine(DatabaseTable(cluster.url, "no_such_table")).open(SCHEMA)


def test_a_worker_lost_in_the_middle_changes_nothing(
    cluster: SparkCluster, folder: Path, rows: pa.Table, tmp_path: Path
) -> None:
    """Its tasks are done again elsewhere: the same evidence, bit for bit, and one charge."""
    schema = Schema(
        dataset="contract", columns={name: SCHEMA.columns[name] for name in ("colour", "size", "smokes")}, reviewed=True
    )
    marks = tmp_path / "marks"
    marks.mkdir()

    def dawdle(batches: Any) -> Any:
        # some of the work is done when the worker dies, the rest is under way or waiting
        import pathlib
        import time
        import uuid

        for batch in batches:
            time.sleep(1.0)
            pathlib.Path(str(marks), uuid.uuid4().hex).touch()
            yield batch

    frame = _frame(cluster, folder).repartition(TASKS)
    slow = frame.mapInArrow(dawdle, frame.schema)

    def lose_one() -> None:
        end = time.monotonic() + 300
        while len(list(marks.iterdir())) < TASKS // 3 and time.monotonic() < end:
            time.sleep(0.05)
        cluster.lose_worker()

    killer = threading.Thread(target=lose_one)
    killer.start()
    ledger = Ledger.open(tmp_path / "ledger.sqlite")
    found = measure_source(slow, schema, 1, ledger=ledger, noise=NoiseKind.SEEDED, seed=7)
    killer.join()
    wanted = measure_source(rows, schema, 1, noise=NoiseKind.SEEDED, seed=7, ledger=None)
    assert found.releases == wanted.releases
    # what the lost worker had done was done again
    assert len(list(marks.iterdir())) > TASKS
    assert ledger.account("contract").runs == 1
    assert ledger.account("contract").spent_epsilon == 1


def _frame(cluster: SparkCluster, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.master(cluster.url).getOrCreate().read.parquet(str(folder))


@pytest.mark.parametrize("rule", ["last", "any", "weigh"])
def test_persons_spread_over_partitions_count_as_in_memory(cluster: SparkCluster, tmp_path: Path, rule: str) -> None:
    import test_persons as persons

    visits, schema = persons.make_visits(), persons.declare(rule)
    folder = tmp_path / "visits.parquet"
    folder.mkdir()
    for number in range(4):
        pa.parquet.write_table(visits.take(np.arange(number, visits.num_rows, 4)), folder / f"{number}.parquet")
    table = choose_engine(DatabaseTable(cluster.url, str(folder))).open(schema, persons.KEY)
    assert persons.agree(persons.open_table(visits, schema), table)
