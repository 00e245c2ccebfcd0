"""All runs of a study in one Parquet file, with plan, versions and hardware: to publish, to read, to go on from."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import csv, parquet

from dagveil.errors import DataError
from dagveil_bench.studies.jobs import list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Study
from dagveil_bench.studies.store import COLUMNS, FACTS, Session, Store

PARQUET = ".parquet"
STUDY = b"dagveil.study"
SESSIONS = b"dagveil.sessions"

_KINDS = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64()}
_SCHEMA = pa.schema(
    [(name, _KINDS[kind.split()[0]]) for name, kind in FACTS]
    + [(metric.column, pa.float64()) for metric in Metric]
    + [("is_planned", pa.bool_())]
)


def results_beside(store: Path) -> Path:
    """Return the Parquet file that belongs to a store; a store that has that name itself is refused."""
    if store.suffix == PARQUET:
        raise DataError(
            f"{store} cannot be a store: runs are kept in SQLite while a study goes on, and in Parquet when it ends; "
            f"choose {store.with_suffix('.sqlite')}, or go on from those runs with --from {store}"
        )
    return store.with_suffix(PARQUET)


def write_results(store: Store, path: str | Path) -> int:
    """Write all runs, one row each, to a .parquet or .csv file; return how many.

    `is_planned` tells runs that the study still has from those of an earlier form of it. A Parquet file has the plan,
    and versions and hardware of every session, in its metadata. A file that is there stays whole until the new one is.
    """
    path = Path(path)
    study = store.study()
    planned = {job.key for job in list_jobs(study)}
    rows = [(*row, row[0] in planned) for row in store.rows()]
    columns = [[row[place] for row in rows] for place in range(len(_SCHEMA))]
    metadata = {STUDY: study.to_json().encode(), SESSIONS: msgspec.json.encode(store.sessions())}
    runs = pa.table(columns, schema=_SCHEMA.with_metadata(metadata))
    part = path.with_name(path.name + ".part")
    if path.suffix == PARQUET:
        parquet.write_table(runs, part, compression="zstd", compression_level=9)
    else:
        csv.write_csv(runs, part)
    part.replace(path)
    return len(rows)


def open_results(path: str | Path) -> Store:
    """Open a store, or the Parquet file of one: a copy of it in memory."""
    if Path(path).suffix != PARQUET:
        return Store(path)
    try:
        runs = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path} as Parquet: {error}; choose another file") from error
    metadata = runs.schema.metadata or {}
    facts = {name for name, _ in FACTS}
    if not {STUDY, SESSIONS} <= metadata.keys() or not facts <= set(runs.column_names):
        raise DataError(f"{path} has no runs of a study; `dagveil bench export STORE -o {path}` writes such a file")
    try:
        study = msgspec.json.decode(metadata[STUDY], type=Study)
        sessions = msgspec.json.decode(metadata[SESSIONS], type=list[Session])
    except msgspec.DecodeError as error:
        raise DataError(f"the plan in {path} cannot be read: {error}; use the dagveil that wrote it") from error
    store = Store(":memory:", create=True)
    store.put_study(study)
    try:
        store.absorb(sessions, _list_rows(runs))
    except (IndexError, TypeError, sqlite3.Error) as error:
        raise DataError(f"{path} is damaged: {error}; write it anew with `dagveil bench export`") from error
    return store


def _list_rows(runs: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield rows in the order of COLUMNS; a metric that is newer than the file has no numbers."""
    missing = [None] * len(runs)
    columns = [runs[name].to_pylist() if name in runs.column_names else missing for name in COLUMNS]
    return zip(*columns, strict=True)
