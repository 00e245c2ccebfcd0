"""Which records of a person count: one row per person, or rows that weigh one together (docs/proofs/persons.md).

Every record becomes a fixed number of bytes by itself. What counts of a person is a function of that person's records
as a multiset and of a key that is drawn for the run, whatever the order in which a source hands them out.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.cells import place_codes
from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.distinct import Records, Store, cell_fields, pack_cells, put_cells, row_kind, take_cells_of
from dagveil.data.encoding import (
    Codes,
    EncodedColumns,
    clip_numbers,
    empty_table,
    encode,
    find_levels,
    join_columns,
    read_declared_numbers,
)
from dagveil.data.ids import DIGEST_BYTES, NO_ORDER, hash_ids, read_order
from dagveil.data.memory import MemoryTable
from dagveil.data.records import Reducer
from dagveil.data.schema import Schema
from dagveil.data.streams import RowSource, StoredRows, StreamedTable
from dagveil.data.table import Table
from dagveil.data.weighed import COUNT_LATTICE, MOMENT_LATTICE, WeighedPiece, WeighedTable
from dagveil.errors import DataError

BUCKETS: Final = 256  # parts that persons are dealt out to by hash, where they do not fit into memory
_GRID: Final = 2**24  # steps between the bounds of a column whose mean is taken, so that sums are exact integers


class RecordLayout:
    """How a record becomes bytes: everything that may count of it, its person, its order, and a hash of all that."""

    def __init__(self, schema: Schema, key: bytes) -> None:
        self.schema = schema
        self._key = key
        self._plain = {name: column for name, column in schema.columns.items() if name not in schema.reducers}
        self._own = Schema(dataset=schema.dataset, columns=self._plain) if self._plain else None
        # what is added up over the records of a person, by what each record has; and what the last record gives
        self._sums = {f"{name}:n": f"{name}:match" for name in schema.reducers}
        self._sums |= {f"{name}:sum": f"{name}:number" for name, one in schema.reducers.items() if one.take == "mean"}
        self._lasts = [name for name, reducer in schema.reducers.items() if reducer.take == "last"]
        fields: list[tuple[Any, ...]] = [("person", "<u8", (2,)), ("own", "?"), ("kind", "u1"), ("order", "<f8")]
        fields += [field for name, column in self._plain.items() for field in cell_fields(name, column)]
        for name, reducer in schema.reducers.items():
            fields.append((f"{name}:match", "?"))
            if reducer.take == "mean":
                fields.append((f"{name}:number", "<i8"))
            if reducer.take == "last":
                fields += cell_fields(name, schema.columns[name])
        self.head = np.dtype(fields)
        # tie: a keyed hash of the head; count: how often the record occurs
        self.kind = np.dtype([("head", self.head), ("tie", "<u8", (2,)), ("count", "<i8")])

    def check_types(self, fields: pa.Schema) -> None:
        """Refuse columns of types that cannot be read, without a record."""
        self.read(empty_table(pa.schema([fields.field(name) for name in self.schema.sources])))

    def read(self, table: pa.Table) -> Records:
        """Turn rows into records: equal ones once, with their number; rows without an id as declared."""
        schema = self.schema
        if schema.person is None:
            raise DataError("the schema names no person")
        heads = np.zeros(table.num_rows, dtype=self.head)
        heads["person"], heads["own"] = hash_ids(table.column(schema.person), schema.person, self._key)
        if schema.order is not None:
            heads["kind"], heads["order"] = read_order(table.column(schema.order), schema.order, schema.order_format)
        if self._own is not None:
            put_cells(heads, encode(table, self._own))
        for name, reducer in schema.reducers.items():
            self._put_reduced(heads, table, name, reducer)
        if schema.missing_person == "drop":
            heads = heads[~heads["own"]]
        records = np.zeros(len(heads), dtype=self.kind)
        records["head"], records["tie"], records["count"] = heads, _hash_records(heads, self._key), 1
        return collapse(records)

    def _put_reduced(self, heads: Records, table: pa.Table, name: str, reducer: Reducer) -> None:
        match = np.ones(len(heads), dtype=bool)
        for column, texts in reducer.where.items():
            wanted = Categorical(levels=texts)
            match &= find_levels(table.column(column), wanted, column, np.arange(len(texts) + 2)) < len(texts)
        source, declared = reducer.source(name), self.schema.columns[name]
        if source is not None:
            cells = table.column(source)
            match &= _is_known(cells, source, declared)
            if reducer.take == "mean" and isinstance(declared, Numeric):
                clipped = clip_numbers(read_declared_numbers(cells, source, declared), declared)
                lower, upper = declared.bounds
                heads[f"{name}:number"] = np.rint((clipped - lower) / (upper - lower) * _GRID) * match
            else:
                one = Schema(dataset=self.schema.dataset, columns={name: declared})
                found = encode(pa.table({name: cells}), one)
                # what does not match must not tell equal records apart
                put_cells(heads, _fill_blank(found, ~match, name, declared))
        heads[f"{name}:match"] = match

    def fold(self, records: Records) -> Records:
        """Return one entry for each person whose records these are, all of them or a share by tie."""
        entries = np.zeros(len(records), dtype=self.entry)
        heads, counts = records["head"], records["count"]
        for field in self.head.names or ():
            entries[field] = heads[field]
        entries["tie"], entries["copies"] = records["tie"], np.where(heads["own"], counts, 1)
        # the earliest wins, and of equal records any may: so each record of a person is as likely as any other
        entries["time"] = race_times(records)
        times = np.where(heads["own"], 1, counts)
        for field, source in self._sums.items():
            entries[field] = heads[source] * times
        for name, part in itertools.product(self._lasts, _LAST_PARTS):
            entries[f"{name}:{part}"] = entries[part]
        return self.merge(entries)

    @property
    def entry(self) -> np.dtype[Any]:
        """What is kept of a person while records are folded."""
        fields: list[Any] = [(name, self.head[name]) for name in self.head.names or ()]
        fields += [("tie", "<u8", (2,)), ("time", "<f8"), ("copies", "<i8"), *((field, "<i8") for field in self._sums)]
        for name in self._lasts:
            fields += [(f"{name}:{part}", kind, *shape) for part, (kind, *shape) in _LAST_PARTS.items()]
        return np.dtype(fields)

    def merge(self, entries: Records) -> Records:
        """Merge entries of the same person; records without an id stay by themselves."""
        alone, rest = entries[entries["own"]], entries[~entries["own"]]
        if not len(rest):
            return np.asarray(alone)
        order = np.lexsort([*_rank_keys(rest, self.schema.which), *_person_keys(rest)])
        starts = np.flatnonzero(_differ(rest["person"][order]))
        merged = rest[order[starts]]
        for field in self._sums:
            merged[field] = np.add.reduceat(rest[field][order], starts)
        for name in self._lasts:
            keys = [*_rank_keys(rest, "last", f"{name}:"), rest[f"{name}:n"] == 0, *_person_keys(rest)]
            # persons stand in the same order, so each one's best record is where the person begins
            best = rest[np.lexsort(keys)[starts]]
            cells = [field for field, _ in cell_fields(name, self.schema.columns[name])]
            for field in [f"{name}:{part}" for part in _LAST_PARTS] + cells:
                merged[field] = best[field]
        both: Records = np.concatenate([alone, merged])
        return both

    def rows(self, entries: Records) -> EncodedColumns:
        """Return the rows of persons."""
        entries = np.repeat(entries, entries["copies"])
        codes: dict[str, Codes] = {}
        values: dict[str, NDArray[np.float64]] = {}
        for name, column in self.schema.columns.items():
            reducer = self.schema.reducers.get(name)
            if reducer is None or reducer.take == "last":
                found = take_cells_of(entries, [name])
                if reducer is not None:
                    found = _fill_blank(found, entries[f"{name}:n"] == 0, name, column)
            else:
                made = pa.table({name: _reduce(entries, name, reducer, column)})
                found = encode(made, Schema(dataset=self.schema.dataset, columns={name: column}))
            codes |= found.codes
            values |= found.values
        return EncodedColumns(len(entries), codes, values)

    @property
    def weighed_kind(self) -> np.dtype[Any]:
        """What is kept of a record that weighs something."""
        weights = [("count weight", "<i8"), ("moment weight", "<i8")]
        return np.dtype([*((name, self.head[name]) for name in self._cells()), *weights])

    def weigh(self, records: Records, dropped: Counter[bytes]) -> tuple[Records, int]:
        """Return records with their weights on both lattices, and the number of persons."""
        records = records[_race_order(records)]
        heads, counts = records["head"], records["count"]
        own = heads["own"]
        starts = np.flatnonzero(own | _differ(heads["person"]))
        sizes = np.diff(starts, append=len(records))
        totals = np.add.reduceat(counts, starts) if len(starts) else counts
        for place in range(len(starts)) if dropped else ():
            totals[place] += dropped[heads["person"][starts[place]].tobytes()]
        rank = np.arange(len(records)) - np.repeat(starts, sizes)
        weighed = np.zeros(len(records), dtype=self.weighed_kind)
        for name in self._cells():
            weighed[name] = heads[name]
        for field, lattice in (("count weight", COUNT_LATTICE), ("moment weight", MOMENT_LATTICE)):
            # shares of the lattice, rounded down; what is left goes to the records that come first, one each
            floors = lattice * counts // np.repeat(totals, sizes)
            left = lattice - np.add.reduceat(floors, starts) if len(starts) else floors
            shares = floors + (rank < np.repeat(left, sizes))
            # each of equal records without an id is a person
            weighed[field] = np.where(own, lattice * counts, shares)
        kept = (weighed["count weight"] > 0) | (weighed["moment weight"] > 0)
        return weighed[kept], int(counts[own].sum()) + int((~own[starts]).sum() if len(starts) else 0)

    def _cells(self) -> list[str]:
        return list(row_kind(self._plain).names or ())


# --- one record ---


def _is_known(cells: pa.ChunkedArray, name: str, column: Column) -> NDArray[np.bool_]:
    """Tell which cells hold a value, by the declaration of the column."""
    if isinstance(column, Numeric):
        return ~np.isnan(read_declared_numbers(cells, name, column))
    missing = len(place_codes(column)) - 1
    return np.asarray(find_levels(cells, column, name, np.arange(missing + 1)) != missing)


def _hash_records(heads: Records, key: bytes) -> NDArray[np.uint64]:
    size, content = heads.dtype.itemsize, heads.tobytes()
    digests = b"".join(
        hashlib.blake2b(content[start : start + size], digest_size=DIGEST_BYTES, key=key, person=b"record").digest()
        for start in range(0, len(content), size)
    )
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def collapse(records: Records) -> Records:
    """Keep equal records once, with their number; the hash covers the person too."""
    ties = records["tie"]
    order = np.lexsort([ties[:, 1], ties[:, 0]])
    starts = np.flatnonzero(_differ(ties[order]))
    kept = records[order[starts]]
    if len(starts):
        kept["count"] = np.add.reduceat(records["count"][order], starts)
    return kept


def race_times(records: Records) -> NDArray[np.float64]:
    """Return the earliest arrival of equal records, if each arrives by itself at an exponential time."""
    uniform = (records["tie"][:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.asarray(-np.log1p(-uniform) / records["count"])


def _differ(words: NDArray[Any]) -> NDArray[np.bool_]:
    changed = np.ones(len(words), dtype=bool)
    changed[1:] = (words[1:] != words[:-1]).any(axis=1)
    return changed


# --- the records of a person ---

_LAST_PARTS: Final = {"kind": ("u1",), "order": ("<f8",), "time": ("<f8",), "tie": ("<u8", (2,))}


def _person_keys(rows: Records) -> list[NDArray[Any]]:
    return [rows["person"][:, 1], rows["person"][:, 0]]


def _race_order(records: Records) -> NDArray[np.intp]:
    """Put records in the order of persons, and those of one by arrival; what has no id comes last, each by itself."""
    ties, heads = records["tie"], records["head"]
    return np.lexsort([ties[:, 1], ties[:, 0], race_times(records), *_person_keys(heads), heads["own"]])


def _rank_keys(entries: Records, which: str | None, prefix: str = "") -> list[NDArray[Any]]:
    """Return sort keys, the last one first: by the order, then by the race. A record without an order comes last."""
    tie, time = entries[f"{prefix}tie"], entries[f"{prefix}time"]
    keys = [tie[:, 1], tie[:, 0], time]
    if which == "any":
        return keys
    kind, order = entries[f"{prefix}kind"].astype(np.int8), entries[f"{prefix}order"]
    sign = 1 if which == "first" else -1
    return [*keys, sign * order, sign * kind, kind == NO_ORDER]


def _reduce(entries: Records, name: str, reducer: Reducer, column: Column) -> pa.Array:
    counts = entries[f"{name}:n"]
    if reducer.take == "any":
        return pa.array(counts > 0)
    if reducer.take == "count" or not isinstance(column, Numeric):
        return pa.array(np.minimum(counts, reducer.up_to or 0))
    lower, upper = column.bounds
    means = lower + entries[f"{name}:sum"] / np.maximum(counts, 1) / _GRID * (upper - lower)
    return pa.array(means, mask=counts == 0)


def _fill_blank(found: EncodedColumns, without: NDArray[np.bool_], name: str, column: Column) -> EncodedColumns:
    blank = encode(pa.table({name: pa.nulls(1, pa.string())}), Schema(dataset="blank", columns={name: column}))
    codes: Codes = np.where(without, blank.codes[name], found.codes[name])
    values = {key: np.where(without, blank.values[key], found.values[key]) for key in found.values}
    return EncodedColumns(found.n_rows, {name: codes}, values)


# --- all persons ---


def open_persons(rows: RowSource, schema: Schema, key: bytes, held_bytes: float) -> Table:
    """Read a source and return the table of its persons. Only a curator may hold what comes back."""
    layout = RecordLayout(schema, key)
    layout.check_types(rows.fields)
    store = Store(layout.kind, held_bytes, BUCKETS)
    for batch in rows.batches(list(schema.sources)):
        records = layout.read(pa.Table.from_batches([batch]))
        store.add(records, label_records(records))
    if schema.records == "weigh":
        return _weigh(store, layout, held_bytes)
    pieces = Store(row_kind(schema.columns), held_bytes)
    for bucket in store.read():
        entries = [layout.fold(share) for share in _read_shares(bucket, layout.kind, held_bytes)]
        merged = layout.merge(np.concatenate([np.zeros(0, layout.entry), *entries]))
        pieces.add(pack_cells(layout.rows(merged), pieces.kind))
    persons = StoredRows(pieces, pa.schema([(name, pa.string()) for name in schema.columns]), of_persons=True)
    if not pieces.spilled:
        return MemoryTable(join_columns(list(persons.encoded(schema)), schema), schema)
    return StreamedTable(persons, schema, held_bytes=int(held_bytes))


def label_records(records: Records) -> NDArray[np.intp]:
    """Return the bucket of each record: that of its person, or of itself."""
    heads = records["head"]
    first = np.where(heads["own"], records["tie"][:, 0], heads["person"][:, 0])
    return np.asarray((first % np.uint64(BUCKETS)).astype(np.intp))


def _read_shares(bucket: Callable[[], Iterator[Records]], kind: np.dtype[Any], held_bytes: float) -> Iterator[Records]:
    """Hand out the distinct records of a bucket in shares; equal ones have the same tie, so the same share."""
    size = sum(piece.nbytes for piece in bucket())
    shares = int(max(size // max(held_bytes, 1), 1)) if held_bytes < size else 1
    shares = min(shares, 1 + size // SMALLEST_SHARE)
    for share in range(shares):
        pieces = [np.zeros(0, kind)]
        for piece in bucket():
            pieces.append(piece[(piece["tie"][:, 1] % np.uint64(shares)) == share] if shares > 1 else piece)
        yield collapse(np.concatenate(pieces))


SMALLEST_SHARE: Final = 2**20


def _weigh(store: Store, layout: RecordLayout, held_bytes: float) -> WeighedTable:
    found = Store(layout.weighed_kind, held_bytes)
    n_persons = 0
    for bucket in store.read():
        kept, dropped = np.zeros(0, layout.kind), Counter[bytes]()
        for share in _read_shares(bucket, layout.kind, held_bytes):
            kept = prune(np.concatenate([kept, share]), dropped)
        weighed, persons = layout.weigh(kept, dropped)
        n_persons += persons
        found.add(weighed)

    def pieces() -> Iterator[WeighedPiece]:
        for bucket in found.read():
            for piece in bucket():
                yield weigh_piece(piece, layout.schema)

    return WeighedTable(pieces, layout.schema, n_persons)


def weigh_piece(rows: Records, schema: Schema) -> WeighedPiece:
    """Return records and their weights."""
    return WeighedPiece(take_cells_of(rows, schema.columns), rows["count weight"], rows["moment weight"])


def prune(records: Records, dropped: Counter[bytes]) -> Records:
    """Drop records that cannot weigh anything: neither among the first of a person nor frequent.

    A record weighs something if it is among the first `COUNT_LATTICE` to arrive, or occurs at least once in so many of
    its person's records, as no more than `COUNT_LATTICE` do. How many were dropped is noted by person.
    """
    if len(records) <= 2 * COUNT_LATTICE:
        return records
    records = records[_race_order(records)]
    heads = records["head"]
    starts = np.flatnonzero(heads["own"] | _differ(heads["person"]))
    kept = np.ones(len(records), dtype=bool)
    for first, size in zip(starts.tolist(), np.diff(starts, append=len(records)).tolist(), strict=True):
        if size <= 2 * COUNT_LATTICE:
            continue
        counts = records["count"][first : first + size]
        stays = np.zeros(size, dtype=bool)
        stays[:COUNT_LATTICE] = True
        stays[np.lexsort([np.arange(size), -counts])[:COUNT_LATTICE]] = True
        kept[first : first + size] = stays
        dropped[heads["person"][first].tobytes()] += int(counts[~stays].sum())
    return records[kept]
