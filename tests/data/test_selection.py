"""Which records fill the slots: the multiset of records decides, and one record more changes one slot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dagveil.data import selection
from dagveil.data.column import Categorical
from dagveil.data.encoding import EncodedColumns
from dagveil.data.schema import Schema
from dagveil.data.selection import choose_from, choose_rows, hash_rows
from dagveil.errors import DataError

Row = tuple[int, int]

SCHEMA = Schema(dataset="d", columns={"a": Categorical(tuple("uvwx"), "u"), "b": Categorical(tuple("xyz"), "x")})
ROW = st.tuples(st.integers(0, 3), st.integers(0, 2))
ROWS = st.lists(ROW, max_size=40)
HASHES = pytest.mark.parametrize("hashes", [2**64 - 1, 3, 1], ids=["all apart", "three", "one"])
"""How many hashes there are: few of them make unequal records collide."""


def as_words(rows: list[Row]) -> list[NDArray[np.int64]]:
    return selection.row_words(encode_rows(rows), SCHEMA)


def encode_rows(rows: list[Row]) -> EncodedColumns:
    codes = {name: np.array([row[place] for row in rows], dtype=np.uint8) for place, name in enumerate("ab")}
    return EncodedColumns(len(rows), codes, {})


def blunt_hash(hashes: int, patch: pytest.MonkeyPatch, shift: int = 0) -> None:
    patch.setattr(selection, "hash_rows", lambda words: hash_rows(words) % np.uint64(hashes) + np.uint64(shift))


def choose(rows: list[Row], slots: int) -> list[Row]:
    return [rows[place] for place in choose_rows(as_words(rows), slots)]


def choose_slowly(rows: list[Row], slots: int) -> Counter[Row]:
    """Number equal records one by one, and sort all tickets."""
    items = []
    for row, count in Counter(rows).items():
        own = int(selection.hash_rows(as_words([row]))[0])
        for number in range(count):
            salt = int(selection.scramble(np.array([number], dtype=np.uint64))[0])
            ticket = int(selection.scramble(np.array([(own + salt) % 2**64], dtype=np.uint64))[0])
            items.append((ticket, own, row))
    return Counter(row for *_, row in sorted(items)[:slots])


@HASHES
@given(rows=ROWS, record=ROW, other=ROW, slots=st.integers(1, 45))
@settings(max_examples=150, deadline=None)
def test_neighbours_differ_in_one_slot(hashes: int, rows: list[Row], record: Row, other: Row, slots: int) -> None:
    """Whatever the hash, under add/remove and under replace-one."""
    with pytest.MonkeyPatch.context() as patch:
        blunt_hash(hashes, patch)
        core, more, replaced = (Counter(choose(some, slots)) for some in (rows, [*rows, record], [*rows, other]))
        assert sum(more.values()) == sum(replaced.values()) == min(len(rows) + 1, slots)
        assert sum((core - more).values()) <= (len(rows) >= slots)
        assert sum((more - core).values()) <= 1
        assert sum((more - replaced).values()) <= 1
        assert core == choose_slowly(rows, slots)


@HASHES
@given(rows=ROWS, slots=st.integers(1, 45), most=st.integers(1, 50), seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_rows_that_are_not_held_fill_the_same_slots(
    hashes: int, rows: list[Row], slots: int, most: int, seed: int
) -> None:
    """In any order and any pieces, at every reading, however few hashes may be counted at once."""
    rng = np.random.default_rng(seed)

    def read() -> Iterator[EncodedColumns]:
        for piece in np.array_split(rng.permutation(len(rows)), rng.integers(1, 5)):
            yield encode_rows([rows[place] for place in piece])

    with pytest.MonkeyPatch.context() as patch:
        blunt_hash(hashes, patch)
        patch.setattr(selection, "_BLOCK", 7)
        found = choose_from(read, SCHEMA, len(rows), slots, most)
        again = zip(found.codes["a"].tolist(), found.codes["b"].tolist(), strict=True)
        assert Counter(again) == Counter(choose(rows, slots))
        shuffled = [rows[place] for place in rng.permutation(len(rows))]
        assert choose(shuffled, slots) == choose(rows, slots)


def test_hashes_that_collide_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of two unequal records has a second ticket that neither of them has: it must not keep others out."""
    rng = np.random.default_rng(0)
    readings = []

    def read() -> Iterator[EncodedColumns]:
        readings.append(len(rows))
        yield encode_rows(rows)

    for shift in range(200):
        blunt_hash(5, monkeypatch, shift)
        rows = [(int(a), int(b)) for a, b in rng.integers(0, [4, 3], (6, 2))]
        found = choose_from(read, SCHEMA, len(rows), 2, 100)
        pairs = zip(found.codes["a"].tolist(), found.codes["b"].tolist(), strict=True)
        assert Counter(pairs) == choose_slowly(rows, 2)
    # two readings would do if nothing collided
    assert len(readings) > 2 * 200


def test_rows_that_are_others_at_every_reading_are_refused() -> None:
    turns = itertools.count()

    def read() -> Iterator[EncodedColumns]:
        yield encode_rows([(next(turns) % 4, 0)] * 6)

    with pytest.raises(DataError, match="changed"):
        choose_from(read, SCHEMA, 6, 2, 100)


def test_places_among_the_rows_would_not_do() -> None:
    """The first rows of a source that starts elsewhere have nothing in common."""
    rows = [(place, 0) for place in range(4)] * 5 + [(place, 2) for place in range(4)] * 5
    turned = [*rows[20:], *rows[:20]]
    assert not Counter(rows[:10]) & Counter(turned[:10])
    assert choose(rows, 10) == choose(turned, 10)


def test_slots_are_a_fair_sample() -> None:
    """Rare and frequent records, and records that are all different, stand in the slots in proportion."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([0, 1, 2], [90_000, 9_000, 1_000])
    different = rng.normal(size=100_000)
    for words in ([kinds], [kinds, different.view(np.uint64)]):
        taken = choose_rows(words, 20_000)
        share = np.bincount(kinds[taken], minlength=3)
        wanted = np.array([18_000, 1_800, 200])
        # hypergeometric: five deviations
        assert (np.abs(share - wanted) < 5 * np.sqrt(wanted * 0.8)).all()
    assert abs(different[taken].mean()) < 5 / np.sqrt(20_000)


def test_numbers_are_told_apart_by_their_bits() -> None:
    """Records that differ in the last bit of a number are different records."""
    values = np.array([1.0, np.nextafter(1.0, 2.0), 1.0, -0.0, 0.0])
    assert len(set(hash_rows([values.view(np.uint64)]).tolist())) == 4
