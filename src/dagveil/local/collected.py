"""Collected reports as files: from labels to codes, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dagveil.data.reading import read_source
from dagveil.errors import DataError
from dagveil.local.device import NOT_PRIVATE
from dagveil.local.lines import LineFormat, check_labels
from dagveil.local.protocol import Protocol
from dagveil.local.store import ReportStore

Integers = NDArray[np.int64]

STORE_ENDINGS: Final = (".db", ".sqlite")
DIGEST_KEY: Final = b"dagveil-protocol"
"""In the metadata of a Parquet file: the digest of the protocol of its reports."""


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """Reports as codes, and whether their noise was secret."""

    codes: Integers
    private: bool


class LabelReader:
    """Turns labels into codes: exactly those of the protocol, since a report has no other.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> from dagveil.data.schema import Schema
    >>> from dagveil.local.planning import plan_protocol
    >>> from dagveil.local.protocol import Mechanism
    >>> schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")})
    >>> LabelReader(plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0)).read({"a": "true", "b": "false"}, 1)
    [1, 0]
    """

    def __init__(self, protocol: Protocol) -> None:
        self._codes = {
            column.name: {label: code for code, label in enumerate(column.labels)} for column in protocol.columns
        }

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

    Parameters
    ----------
    source
        A collector's store (.db, .sqlite), a file of labels (.parquet, .csv and the others that tables come in), or a
        table of labels.
    protocol
        Of the reports.
    """
    if isinstance(source, str | Path) and Path(source).suffix.lower() in STORE_ENDINGS:
        with ReportStore.open(source) as store:
            if store.protocol.digest() != protocol.digest():
                raise DataError(f"{source} holds reports of another protocol; give the one they were made with")
            return Collected(store.codes(), private=True)
    names = list(protocol.names)
    table = read_source(source)
    stated = (table.schema.metadata or {}).get(DIGEST_KEY)
    if stated is not None and stated != protocol.digest().encode():
        raise DataError("these reports were made with another protocol; give the one they were made with")
    private = NOT_PRIVATE not in table.column_names
    table = read_source(table, names)
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
