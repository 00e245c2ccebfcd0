"""Which records fill the slots of a levelled table, and in which order: a function of the records as a multiset.

A database may hand its rows out in another order at every reading, and one record more may change that order, so a
place among the rows means nothing. Records fall into classes by a public hash of their own cells. A class of n records
has the numbers 0, …, n-1, each pair of a class and a number has a public hash, its ticket, and the lowest tickets of
all win a slot each. A class fills the slots that it has won with its lowest records by their cells. One record more
adds one ticket and moves no other: docs/proofs/levelled.md. That holds for every hash; a good one makes the records in
the slots a fair sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.distinct import pack_rows
from dagveil.data.encoding import EncodedColumns, join_columns
from dagveil.data.levelled import scramble
from dagveil.data.schema import Schema

Words = list[NDArray[Any]]
"""The cells of rows as integers: rows are the same if all their words are."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_BLOCK: Final = 2**20

CLASS_BYTES: Final = 32
"""Bytes that a class takes while it is counted: its hash, its size, and as much again while they are sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Seats:
    """How many slots each class has won; classes that won none are left out, and the others are in order."""

    classes: NDArray[np.uint64]
    numbers: NDArray[np.int64]

    def within(self, classes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell which records hold a slot, given the classes of records that are sorted."""
        place = np.searchsorted(self.classes, classes).clip(max=max(len(self.classes) - 1, 0))
        rank = np.arange(len(classes)) - np.searchsorted(classes, classes)
        return self.holds(classes) & np.asarray(rank < self.numbers[place])

    def holds(self, classes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell which records belong to a class that has won a slot."""
        return np.isin(classes, self.classes)


def row_words(encoded: EncodedColumns, schema: Schema) -> Words:
    """Return the encoded cells of rows as integers, those of all columns."""
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    # the number of a record and its bin are two facts: a missing value may have a bin of its own
    bits = [encoded.values[name].view(np.uint64) for name in schema.columns if name in encoded.values]
    return [*pack_rows(encoded.codes, levels), *bits]


def hash_rows(words: Words) -> NDArray[np.uint64]:
    """Return the class of each row."""
    mixed = np.zeros(len(words[0]), dtype=np.uint64)
    for word in words:
        mixed = scramble(mixed + _STEP + word.astype(np.uint64, copy=False))
    return mixed


def sort_rows(classes: NDArray[np.uint64], words: Words) -> NDArray[np.intp]:
    """Return the order of rows by class, and by their cells within a class."""
    order = np.argsort(classes, kind="stable")
    same = np.flatnonzero(np.diff(classes[order]) == 0)
    left, right = order[same], order[same + 1]
    # rows of a class are all but always the same, and then in order already
    if any((word[left] != word[right]).any() for word in words):
        return np.lexsort([*words, classes])
    return order


def choose_rows(words: Words, slots: int) -> NDArray[np.intp]:
    """Return the positions of the rows that fill the slots, in the order of the slots."""
    classes = hash_rows(words)
    order = sort_rows(classes, words)
    if len(order) <= slots:
        return order
    return order[win_seats(lambda: [classes], len(classes), slots, len(classes)).within(classes[order])]


def win_seats(read: Callable[[], Iterable[NDArray[np.uint64]]], n_rows: int, slots: int, most: int) -> Seats:
    """Return how many slots each class has won.

    Parameters
    ----------
    read
        Hands out the classes of all rows, in any order.
    n_rows
        How many rows these are.
    slots
        How many slots there are.
    most
        Classes that may be counted at once: more take more readings.
    """
    best = np.empty((3, 0), dtype=np.uint64)
    shares = max(1, -(-n_rows // max(most, 1)))
    for share in range(shares):
        pieces = (piece[piece % np.uint64(shares) == share] for piece in read()) if shares > 1 else read()
        classes, sizes = _count_classes(pieces)
        ends = np.cumsum(sizes)
        for start in range(0, int(ends[-1]) if len(ends) else 0, _BLOCK):
            items = np.arange(start, min(start + _BLOCK, int(ends[-1])))
            owners = np.searchsorted(ends, items, side="right")
            numbers = (items - (ends - sizes)[owners]).astype(np.uint64)
            tickets = scramble(classes[owners] + scramble(numbers))
            best = np.hstack([best, np.stack([tickets, classes[owners], numbers])])
            # the class and the number settle between equal tickets
            best = best[:, np.lexsort(best[::-1])[:slots]]
    winners, numbers_won = np.unique(best[1], return_counts=True)
    return Seats(winners, numbers_won)


def _count_classes(pieces: Iterable[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    classes, sizes = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    pending: list[NDArray[np.uint64]] = []

    def merge() -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        both = np.concatenate([classes, *pending])
        found, place = np.unique(both, return_inverse=True)
        total = np.bincount(place[len(sizes) :], minlength=len(found))
        total[place[: len(sizes)]] += sizes
        pending.clear()
        return found, total

    for piece in pieces:
        pending.append(piece)
        # as in a cube of distinct rows: sorting again costs a logarithmic factor at most
        if sum(map(len, pending)) > max(len(classes), _BLOCK):
            classes, sizes = merge()
    return merge()


def gather_rows(pieces: Iterable[EncodedColumns], schema: Schema, seats: Seats | None, slots: int) -> EncodedColumns:
    """Keep the rows that fill the slots, from pieces in any order; without seats all rows do."""
    kept: list[EncodedColumns] = []
    n_kept = 0
    for piece in pieces:
        if seats is not None:
            piece = _take(piece, np.flatnonzero(seats.holds(hash_rows(row_words(piece, schema)))))
        kept.append(piece)
        n_kept += piece.n_rows
        if seats is not None and n_kept > max(2 * slots, _BLOCK):
            kept = [_seat(kept, schema, seats)]
            n_kept = kept[0].n_rows
    return join_columns(kept, schema) if seats is None else _seat(kept, schema, seats)


def _seat(pieces: Sequence[EncodedColumns], schema: Schema, seats: Seats) -> EncodedColumns:
    rows = join_columns(pieces, schema)
    words = row_words(rows, schema)
    classes = hash_rows(words)
    order = sort_rows(classes, words)
    return _take(rows, order[seats.within(classes[order])])


def _take(rows: EncodedColumns, places: NDArray[np.intp]) -> EncodedColumns:
    codes = {name: array[places] for name, array in rows.codes.items()}
    return EncodedColumns(len(places), codes, {name: array[places] for name, array in rows.values.items()})
