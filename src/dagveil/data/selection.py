"""Which records fill the slots of a levelled table, in which order: a function of the records as a multiset.

A source's order means nothing. Equal records are numbered 0, 1, 2, …, a record and its number have a public hash, their
ticket, and the lowest fill the slots: one record more adds one and moves no other (docs/proofs/fixed-slots.md).
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Column, Numeric
from dagveil.data.distinct import find_changes, pack_rows
from dagveil.data.encoding import EncodedColumns, join_columns
from dagveil.data.schema import Schema
from dagveil.errors import DataError, SchemaError

# the largest number of slots: a mean over as many, summed up in any order, is exact to 1e-9 in float64
MOST_SLOTS: Final = 2**22


def check_slots(slots: int) -> None:
    """Refuse a number of slots that has no use."""
    if not 1 <= slots <= MOST_SLOTS:
        raise SchemaError(f"rows cannot be levelled to {slots} slots; choose between 1 and {MOST_SLOTS}")


def unit_scale(column: Column) -> tuple[float, float]:
    """Give the centre and half-width by which a column is scaled to [-1, 1]; a column with one level has width 0."""
    lower, upper = column.bounds if isinstance(column, Numeric) else (min(column.numbers), max(column.numbers))
    # halves first: the difference of two large bounds could overflow
    return upper / 2.0 + lower / 2.0, upper / 2.0 - lower / 2.0


def scale_to_unit(values: NDArray[np.float64], column: Column) -> NDArray[np.float64]:
    """Scale numbers to [-1, 1] by bounds or scores; a column with one level has 0 everywhere."""
    middle, half = unit_scale(column)
    return np.zeros(len(values)) if half == 0.0 else scale_numbers(values, middle, half)


def scale_numbers(numbers: NDArray[np.float64], center: float, width: float) -> NDArray[np.float64]:
    """Scale numbers to [−1, 1], each by itself: clipped beyond, the centre if not a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.asarray(numbers, dtype=np.float64) - center
        scaled /= width
    np.clip(scaled, -1.0, 1.0, out=scaled)
    scaled[np.isnan(scaled)] = 0.0
    return scaled


def fill_slots(name: str, slots: range) -> NDArray[np.float64]:
    """Give the filler of a column in some slots: as good as uniform in [-1, 1], yet fixed and public."""
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    mixed = np.arange(slots.start, slots.stop, dtype=np.uint64)
    # once to spread the slots and once after the column's key
    for shift in (np.uint64(0x9E3779B97F4A7C15), np.uint64(key)):
        mixed = scramble(mixed + shift)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0


def scramble(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Map 64-bit integers one to one to others that look random: the finaliser of splitmix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def level_column(values: NDArray[np.float64], name: str, column: Column, slots: int) -> NDArray[np.float64]:
    """Give a column of the levelled table: the chosen values, scaled, then filler up to the number of slots."""
    return np.concatenate([scale_to_unit(values, column), fill_slots(name, range(len(values), slots))])


Words = list[NDArray[Any]]  # the cells of rows as integers: rows are equal if all their words are
Hashes = NDArray[np.uint64]
# bytes that a hash takes while it is counted: itself, how often it occurs, and as much again for sorting
HASH_BYTES: Final = 32
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_BLOCK: Final = 2**20


def row_words(rows: EncodedColumns, schema: Schema) -> Words:
    """Return the encoded cells of rows as integers, those of all columns."""
    # the number of a record and its bin are two facts: a missing value may have a bin of its own
    bits = [rows.values[name].view(np.uint64) for name in schema.columns if name in rows.values]
    return [*pack_rows(rows.codes, schema.n_levels), *bits]


def hash_rows(words: Words) -> Hashes:
    """Return a hash of each row."""
    mixed = np.zeros(len(words[0]), dtype=np.uint64)
    for word in words:
        mixed = scramble(mixed + _STEP + word.astype(np.uint64, copy=False))
    return mixed


def choose_rows(words: Words, slots: int) -> NDArray[np.intp]:
    """Return the positions of the rows that fill the slots, in the order of the slots."""
    order, starts, hashes = _sort(words)
    if len(order) <= slots:
        return order
    counts = np.diff(starts, append=len(order))
    owners = _lowest(hashes, counts, slots)[1]
    won = np.bincount(owners, minlength=len(starts))
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    return order[rank < np.repeat(won, counts)]


def choose_from(
    read: Callable[[], Iterable[EncodedColumns]], schema: Schema, n_rows: int, slots: int, most: int
) -> EncodedColumns:
    """Return the rows that fill the slots, in any order, from rows that are not held.

    Equal rows have equal hashes, so the lowest tickets of hashes tell which rows to look at.

    `read` hands out all rows in pieces, in any order; `most` hashes are counted at once: more take more readings.
    """
    if n_rows <= slots:
        return join_columns(list(read()), schema)
    looked = slots
    while True:
        bounds, hashes = _lowest_of_hashes(
            lambda: (hash_rows(row_words(rows, schema)) for rows in read()), n_rows, looked, most
        )
        tally = _count_rows(read(), schema, np.unique(hashes))
        tickets, owners = _lowest(tally.hashes, tally.counts, slots)
        # unequal rows with equal hashes have fewer tickets than their hash has; then more of them are looked at
        if len(owners) == slots and (tickets[-1], tally.hashes[owners[-1]]) <= (bounds[-1], hashes[-1]):
            return _take(tally.rows, owners)
        if looked >= n_rows:
            raise DataError("the rows changed while they were being counted; run again on rows that nobody writes to")
        looked *= 2


@dataclass(frozen=True, slots=True, eq=False)
class _Tally:
    """Distinct rows in order, with their hashes, and how often each occurs."""

    rows: EncodedColumns
    hashes: Hashes
    counts: NDArray[np.int64]


def _sort(words: Words) -> tuple[NDArray[np.intp], NDArray[np.intp], Hashes]:
    """Return the order of rows by hash and cells, where each distinct row begins in it, and the hashes of these."""
    hashes = hash_rows(words)
    order = np.argsort(hashes, kind="stable")
    changed = find_changes([hashes], order)
    same = np.flatnonzero(~changed)
    if any((word[order[same]] != word[order[same - 1]]).any() for word in words):
        # unequal rows with equal hashes: all but never, and so this may take long
        order = np.lexsort([*words, hashes])
        changed = find_changes([hashes, *words], order)
    starts = np.flatnonzero(changed)
    return order, starts, hashes[order[starts]]


def _lowest(hashes: Hashes, counts: NDArray[np.int64], most: int) -> tuple[Hashes, NDArray[np.intp]]:
    """Return the lowest tickets, in order, and whose they are; of equal tickets the earlier row's comes first."""
    tickets, owners = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.intp)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, _BLOCK):
        items = np.arange(start, min(start + _BLOCK, total))
        found = np.searchsorted(ends, items, side="right")
        numbers = (items - (ends - counts)[found]).astype(np.uint64)
        # for one hash no two numbers have the same ticket: each step is one to one
        tickets = np.concatenate([tickets, scramble(hashes[found] + scramble(numbers))])
        owners = np.concatenate([owners, found])
        kept = np.lexsort([owners, tickets])[:most]
        tickets, owners = tickets[kept], owners[kept]
    return tickets, owners


def _lowest_of_hashes(
    read: Callable[[], Iterable[Hashes]], n_rows: int, looked: int, most: int
) -> tuple[Hashes, Hashes]:
    """Return the lowest tickets of hashes, in order, and the hashes; in shares, if these are too many to be counted."""
    tickets, hashes = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64)
    shares = -(-n_rows // most)
    for share in range(shares):
        found, counts = _count_hashes(piece[piece % np.uint64(shares) == share] for piece in read())
        lowest, owners = _lowest(found, counts, looked)
        tickets, hashes = np.concatenate([tickets, lowest]), np.concatenate([hashes, found[owners]])
        kept = np.lexsort([hashes, tickets])[:looked]
        tickets, hashes = tickets[kept], hashes[kept]
    return tickets, hashes


def _count_hashes(pieces: Iterable[Hashes]) -> tuple[Hashes, NDArray[np.int64]]:
    hashes, counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    pending: list[Hashes] = []

    def merge() -> tuple[Hashes, NDArray[np.int64]]:
        found, place = np.unique(np.concatenate([hashes, *pending]), return_inverse=True)
        total = np.bincount(place[len(counts) :], minlength=len(found))
        total[place[: len(counts)]] += counts
        pending.clear()
        return found, total

    for piece in pieces:
        pending.append(piece)
        # sorting again only after the pieces have doubled what is kept costs a logarithmic factor at most
        if sum(map(len, pending)) > max(len(hashes), _BLOCK):
            hashes, counts = merge()
    return merge()


def _count_rows(pieces: Iterable[EncodedColumns], schema: Schema, wanted: Hashes) -> _Tally:
    """Count the distinct rows that have a wanted hash."""
    kept = _Tally(join_columns([], schema), np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64))
    pending: list[EncodedColumns] = []
    for piece in pieces:
        pending.append(_take(piece, np.flatnonzero(np.isin(hash_rows(row_words(piece, schema)), wanted))))
        if sum(rows.n_rows for rows in pending) > max(len(kept.counts), _BLOCK):
            kept = _merge(kept, pending, schema)
            pending = []
    return _merge(kept, pending, schema)


def _merge(kept: _Tally, pending: list[EncodedColumns], schema: Schema) -> _Tally:
    rows = join_columns([kept.rows, *pending], schema)
    counts = np.concatenate([kept.counts, np.ones(rows.n_rows - len(kept.counts), dtype=np.int64)])
    order, starts, hashes = _sort(row_words(rows, schema))
    sums = np.add.reduceat(counts[order], starts) if len(starts) else counts
    return _Tally(_take(rows, order[starts]), hashes, sums)


def _take(rows: EncodedColumns, places: NDArray[np.intp]) -> EncodedColumns:
    codes = {name: array[places] for name, array in rows.codes.items()}
    return EncodedColumns(len(places), codes, {name: array[places] for name, array in rows.values.items()})
