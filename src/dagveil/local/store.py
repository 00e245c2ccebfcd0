"""Where the collector keeps reports: one SQLite file, written in whole batches.

A batch is one row: its id and its codes, packed. Writing is durable before it returns (write-ahead log, full
synchronisation), so what was acknowledged survives a kill. No times and no addresses are kept.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagveil.data.reading import read_source
from dagveil.errors import DataError
from dagveil.local.channel import Integers
from dagveil.local.device import NOT_PRIVATE
from dagveil.local.protocol import Protocol, protocol_from_json
from dagveil.local.reports import LineFormat, check_labels

STORE_FORMAT: Final = "dagveil-reports 1"
WAIT_SECONDS: Final = 10.0

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, reports INTEGER NOT NULL, codes BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS totals (batches INTEGER NOT NULL, reports INTEGER NOT NULL);
"""
STORE_ENDINGS: Final = (".db", ".sqlite")
DIGEST_KEY: Final = b"dagveil-protocol"  # in the metadata of a Parquet file: the digest of the protocol of its reports


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Reports that came together, packed; the id makes it safe to send them twice."""

    id: UUID
    n_reports: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class Totals:
    """How much is stored."""

    batches: int
    reports: int


class ReportStore:
    """Reports of one protocol in one file."""

    def __init__(self, connection: sqlite3.Connection, protocol: Protocol) -> None:
        self._connection = connection
        self.protocol = protocol
        self._type = np.dtype("u1") if max(protocol.levels) <= 256 else np.dtype("<u2")

    @classmethod
    def open(cls, path: str | Path, protocol: Protocol | None = None) -> ReportStore:
        """Open a store; with a protocol it is made if it does not exist, without one it must."""
        if protocol is None and not Path(path).is_file():
            raise DataError(f"there is no store {path}; give the file that `dagveil local collect --store` writes")
        try:
            # one connection, used by one thread at a time
            connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                return cls(connection, _settle(connection, protocol, str(path)))
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise DataError(
                f"{path} cannot be used as a store of reports ({error}); check the path, its rights and the disk"
            ) from None

    def pack(self, batch: UUID, reports: Sequence[Sequence[int]] | Integers) -> Batch:
        """Pack checked codes."""
        codes = np.asarray(reports, dtype=self._type)
        return Batch(batch, len(codes), codes.tobytes())

    def append(self, batches: Sequence[Batch]) -> list[bool]:
        """Store batches in one transaction, durable when this returns; tell of each whether it is stored now.

        A batch that is stored already counts as stored; false means that its id belongs to a batch with other reports.
        """
        run = self._connection.execute
        kept = []
        new_batches = new_reports = 0
        run("BEGIN IMMEDIATE")
        try:
            for batch in batches:
                row = (batch.id.bytes, batch.n_reports, batch.packed)
                if run("INSERT OR IGNORE INTO batches (id, reports, codes) VALUES (?, ?, ?)", row).rowcount == 1:
                    new_batches, new_reports = new_batches + 1, new_reports + batch.n_reports
                    kept.append(True)
                else:
                    (codes,) = run("SELECT codes FROM batches WHERE id = ?", row[:1]).fetchone()
                    kept.append(codes == batch.packed)
            run("UPDATE totals SET batches = batches + ?, reports = reports + ?", (new_batches, new_reports))
            run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise
        return kept

    def room(self) -> int | None:
        """Return the bytes that are free on the store's disk, or None for a store in memory."""
        place = self._connection.execute("PRAGMA database_list").fetchone()[2]
        return shutil.disk_usage(Path(place).parent).free if place else None

    def totals(self) -> Totals:
        """Count what is stored."""
        return Totals(*self._connection.execute("SELECT batches, reports FROM totals").fetchone())

    def read(self) -> Iterator[tuple[UUID, Integers]]:
        """Go through the batches; codes in the shape (reports, columns)."""
        width = len(self.protocol.columns)
        levels = np.array(self.protocol.levels)
        try:
            for key, packed in self._connection.execute("SELECT id, codes FROM batches ORDER BY number"):
                codes = np.frombuffer(packed, dtype=self._type).reshape(-1, width).astype(np.int64)
                if (codes >= levels).any():
                    raise ValueError
                yield UUID(bytes=key), codes
        except (sqlite3.Error, ValueError):
            raise DataError("the store holds what no collector wrote: it is damaged; use a backup") from None

    def codes(self) -> Integers:
        """Return all reports, in the shape (reports, columns)."""
        return np.concatenate([np.empty((0, len(self.protocol.columns)), np.int64), *(c for _, c in self.read())])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> ReportStore:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _settle(connection: sqlite3.Connection, protocol: Protocol | None, path: str) -> Protocol:
    """Set the file up, or check whose reports it holds."""
    run = connection.execute
    if protocol is not None:
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            run(statement)
        if run("SELECT count(*) FROM facts").fetchone() == (0,):
            facts = (("format", STORE_FORMAT.encode()), ("protocol", protocol.to_json()))
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
            run("INSERT INTO totals VALUES (0, 0)")
        run("COMMIT")
    facts_found = dict(run("SELECT name, value FROM facts").fetchall())
    if facts_found.get("format") != STORE_FORMAT.encode():
        raise DataError(f"{path} is no store of reports that this program knows; choose another file")
    kept = protocol_from_json(facts_found["protocol"])
    if protocol is not None and kept.digest() != protocol.digest():
        raise DataError(
            f"{path} holds reports of another protocol (digest {kept.digest()[:12]}…, not {protocol.digest()[:12]}…); "
            "choose another file: reports of two protocols must not be mixed"
        )
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """Reports as codes, and whether their noise was secret."""

    codes: Integers
    private: bool


class LabelReader:
    """Turns labels into codes: exactly those of the protocol, since a report has no other."""

    def __init__(self, protocol: Protocol) -> None:
        self._codes = {one.name: {label: code for code, label in enumerate(one.labels)} for one in protocol.columns}

    def read(self, report: Mapping[str, Any], place: int) -> list[int]:
        """Return the codes of a report; `place` is its number, for messages."""
        codes = []
        for name, known in self._codes.items():
            label = report.get(name)
            code = known.get(label) if isinstance(label, str) else None
            if code is None:
                raise DataError(
                    f"record {place} is no report: its column {name!r} holds no label of the protocol. Nothing of this "
                    "record was sent. Randomise records first, with `dagveil local randomise`"
                )
            codes.append(code)
        return codes


def read_reports(source: str | Path | pa.Table, protocol: Protocol) -> Collected:
    """Read collected reports.

    - `source`: a collector's store (.db, .sqlite), a file of labels (.parquet, .csv and the others that tables come
      in), or a table of labels.
    """
    if isinstance(source, str | Path) and Path(source).suffix.lower() in STORE_ENDINGS:
        with ReportStore.open(source) as store:
            if store.protocol.digest() != protocol.digest():
                raise DataError(f"{source} holds reports of another protocol; give the one they were made with")
            return Collected(store.codes(), private=True)
    table = read_source(source)
    stated = (table.schema.metadata or {}).get(DIGEST_KEY)
    if stated is not None and stated != protocol.digest().encode():
        raise DataError("these reports were made with another protocol; give the one they were made with")
    private = NOT_PRIVATE not in table.column_names
    table = read_source(table, list(protocol.names))
    codes = [_find_codes(table.column(column.name), column.name, column.labels) for column in protocol.columns]
    return Collected(np.stack(codes, axis=1), private)


def label_reports(codes: Integers, protocol: Protocol) -> pa.Table:
    """Return reports as a table of labels that names its protocol."""
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array(codes[:, j], pa.int32()), pa.array(column.labels, pa.string()))
        for j, column in enumerate(protocol.columns)
    ]
    return pa.table(arrays, names=list(protocol.names)).replace_schema_metadata({DIGEST_KEY: protocol.digest()})


def export_reports(store: ReportStore, path: Path) -> int:
    """Write all reports of a store to a .parquet or .csv file; return their number."""
    from pyarrow import csv, parquet

    schema = label_reports(np.empty((0, len(store.protocol.columns)), np.int64), store.protocol).schema
    written = 0
    if path.suffix.lower() == ".csv":
        check_labels(LineFormat.CSV, {column.name: column.labels for column in store.protocol.columns})
        schema = pa.schema([pa.field(name, pa.string()) for name in schema.names])
        writer: Any = csv.CSVWriter(str(path), schema)
    elif path.suffix.lower() == ".parquet":
        writer = parquet.ParquetWriter(str(path), schema)
    else:
        raise DataError(f"the output {path.name} must end in .parquet or .csv")
    with writer:
        for codes in _join_batches(store):
            written += len(codes)
            table = label_reports(codes, store.protocol)
            writer.write_table(table if path.suffix.lower() == ".parquet" else table.cast(schema))
    return written


def _join_batches(store: ReportStore, most: int = 100_000) -> Iterator[Integers]:
    """Yield the reports in blocks of about so many."""
    waiting: list[Integers] = []
    for _, codes in store.read():
        waiting.append(codes)
        if sum(map(len, waiting)) >= most:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _find_codes(cells: pa.ChunkedArray, name: str, labels: tuple[str, ...]) -> Integers:
    if pa.types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type)
    found = None
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        found = pc.index_in(cells, value_set=pa.array(labels, cells.type))
    elif len(cells) == 0:
        return np.empty(0, dtype=np.int64)
    if found is None or found.null_count:
        unknown = len(cells) if found is None else found.null_count
        raise DataError(
            f"{unknown} of {len(cells)} reports hold no label of the protocol in column {name!r}; give reports that "
            "`dagveil local randomise` or `dagveil local export` wrote, and their protocol"
        )
    codes: Integers = found.to_numpy().astype(np.int64)
    return codes
