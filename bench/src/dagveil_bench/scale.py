"""How long a table that is larger than memory takes, beside DuckDB's own scan of the same files.

Seconds depend on the machine and its other work; ratios of the same run are what counts. Nothing here asserts a time.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from dagveil.data.duckdb import DuckdbSession, quote_name
from dagveil.data.engine import DatabaseTable, Engine, choose_engine
from dagveil.data.machine import peak_memory, read_bytes
from dagveil.data.schema import Schema
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import discover
from dagveil.search.settings import SearchSettings
from dagveil_bench.spark_cluster import start_cluster
from dagveil_bench.speed import draw_loading_rows, loading_schema
from dagveil_bench.tables import write_table

PIECE_ROWS = 2_000_000  # rows that are drawn and written at once
SCAN = "DuckDB's own scan, the same grouping"  # what every other time is divided by


@dataclass(frozen=True, slots=True)
class ScaleTiming:
    """Seconds of one way to count the same files, by the clock and of the processors; the latter not on a cluster."""

    program: str
    seconds: float
    processor: float | None = None
    same_counts: bool | None = None


@dataclass(frozen=True, slots=True)
class ScaleStudy:
    """What was timed, and on what."""

    rows: int
    columns: int
    file_bytes: int
    groups: int
    memory_limit: str
    peak_bytes: float
    timings: tuple[ScaleTiming, ...]

    @property
    def ratios(self) -> dict[str, tuple[float, float | None]]:
        """Seconds of every program, by the clock and of the processors, divided by those of DuckDB's own scan."""
        scan = next(timing for timing in self.timings if timing.program == SCAN)
        assert scan.processor is not None
        return {
            timing.program: (
                timing.seconds / scan.seconds,
                None if timing.processor is None else timing.processor / scan.processor,
            )
            for timing in self.timings
        }


class _Watch:
    """Takes the time, by the clock and of the processors."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def stop(self, program: str) -> ScaleTiming:
        return ScaleTiming(program, time.perf_counter() - self._clock, time.process_time() - self._processor)


def run_scale(
    rows: int, columns: int, engine: Engine, memory_limit: str, folder: Path | None, epsilon: float, told: Progress
) -> ScaleStudy:
    """Write a table to disk in pieces, and count it where it is, by DuckDB or, where that is the engine, in memory.

    With Spark, a cluster of two workers counts the same files beside DuckDB. The memory limit is for DuckDB, its own
    scan included. Files go to `folder`, None for the system's, while this runs.
    """
    schema = loading_schema(rows, columns)
    pairs = list(combinations(schema.columns, 2))
    with TemporaryDirectory(prefix="dagveil-scale-", dir=folder) as place:
        _write_pieces(Path(place), schema, rows, told)
        told("DuckDB's own scan", 0, 1)
        scan, groups = _time_scan(Path(place), schema, memory_limit)
        timings = [scan]
        own = Engine.DUCKDB if engine is Engine.SPARK else engine
        told("counting", 0, 1)
        watch = _Watch()
        counts = choose_engine(place, own, memory_limit).open(schema).counts_many(pairs)
        timings.append(watch.stop(f"dagveil, {own.value} engine, {len(pairs)} pair tables"))
        told("from files to graph", 0, 1)
        watch = _Watch()
        discover(
            *(place, schema, epsilon, 1e-6),
            settings=SearchSettings(redraws=0),
            noise=NoiseKind.EXACT,
            engine=own,
            memory_limit=memory_limit,
            ledger=None,
        )
        timings.append(watch.stop(f"dagveil, {own.value} engine, files to graph"))
        if engine is Engine.SPARK:
            told("Spark", 0, 1)
            timings.append(_time_spark(place, schema, pairs, counts))
        size = sum(path.stat().st_size for path in Path(place).iterdir())
        peak = peak_memory()
    return ScaleStudy(rows, columns, size, groups, memory_limit, peak, tuple(timings))


def _write_pieces(place: Path, schema: Schema, rows: int, told: Progress) -> None:
    starts = range(0, rows, PIECE_ROWS)
    for number, start in enumerate(starts):
        told("writing rows", number, len(starts))
        piece = draw_loading_rows(schema, min(PIECE_ROWS, rows - start), np.random.default_rng([1, number]))
        parquet.write_table(piece, place / f"part-{number:05}.parquet")


def _time_scan(place: Path, schema: Schema, memory_limit: str) -> tuple[ScaleTiming, int]:
    session = DuckdbSession(read_bytes(memory_limit))
    try:
        names = ", ".join(map(quote_name, schema.columns))
        files = str(place / "*.parquet").replace("'", "''")
        watch = _Watch()
        reader = session.read(f"SELECT {names}, count(*) FROM read_parquet('{files}') GROUP BY ALL")
        groups = sum(batch.num_rows for batch in reader)
        return watch.stop(SCAN), groups
    finally:
        session.close()


def _time_spark(
    place: str, schema: Schema, pairs: Sequence[tuple[str, ...]], counts: Sequence[NDArray[np.int64]]
) -> ScaleTiming:
    with start_cluster(workers=2, memory="2g") as cluster:
        # the session starts with the table; what is timed is the work
        table = choose_engine(DatabaseTable(cluster.url, place)).open(schema)
        start = time.perf_counter()
        found = table.counts_many(pairs)
        seconds = time.perf_counter() - start
        same = all(np.array_equal(first, second) for first, second in zip(found, counts, strict=True))
        name = f"dagveil, spark engine, two workers, {len(pairs)} pair tables"
        del table
    return ScaleTiming(name, seconds, same_counts=same)


def scale_page(study: ScaleStudy, command: str) -> str:
    """Write what was timed as a page."""
    lines = []
    for timing in study.timings:
        clock, processor = study.ratios[timing.program]
        cells = [timing.program, f"{timing.seconds:.2f}", f"{clock:.2f}"]
        cells += ["", ""] if processor is None else [f"{timing.processor:.2f}", f"{processor:.2f}"]
        lines.append([*cells, {None: "", True: "yes", False: "NO"}[timing.same_counts]])
    heads = ("program", "seconds", "beside DuckDB's own scan", "processor seconds", "beside it", "same counts")
    return "\n\n".join(
        [
            "# A table larger than memory",
            f"{study.rows:,} rows × {study.columns} columns of two to five levels, {study.file_bytes / 1e6:,.0f} MB of "
            f"Parquet, {study.groups:,} distinct rows; memory limit {study.memory_limit}, at most "
            f"{study.peak_bytes / 1e9:.2f} GB used.",
            f"`{command}`",
            write_table(heads, lines),
            "The scan groups the raw cells of all columns once. Files to graph includes noise and search. Seconds by "
            "the clock depend on what else the machine does, processor seconds hardly.",
        ]
    )
