"""Which records fill the slots: the multiset of records decides, and one record more changes one slot."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dagveil.data import selection
from dagveil.data.selection import choose_rows, hash_rows, win_seats

Row = tuple[int, int]

rows_of_few_kinds = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=40)
SHARP, COARSE, BLUNT = "sharp", "coarse", "blunt"
HASHES = pytest.mark.parametrize("sharpness", [SHARP, COARSE, BLUNT])


def as_words(rows: list[Row]) -> list[NDArray[np.int64]]:
    return [np.array([row[place] for row in rows], dtype=np.int64) for place in range(2)]


def blunt_hash(sharpness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make different records collide, or all of them."""
    classes = {SHARP: 2**64 - 1, COARSE: 3, BLUNT: 1}[sharpness]
    honest = hash_rows
    monkeypatch.setattr(selection, "hash_rows", lambda words: honest(words) % np.uint64(classes))


def chosen(rows: list[Row], slots: int) -> list[Row]:
    return [rows[place] for place in selection.choose_rows(as_words(rows), slots)] if rows else []


def slow_chosen(rows: list[Row], slots: int) -> Counter[Row]:
    """Sort all pairs of class and number, and let each class give its lowest records."""
    classes: dict[int, list[Row]] = {}
    for row in rows:
        classes.setdefault(int(selection.hash_rows(as_words([row]))[0]), []).append(row)
    items = []
    for key, members in classes.items():
        for number in range(len(members)):
            salt = int(selection.scramble(np.array([number], dtype=np.uint64))[0])
            ticket = int(selection.scramble(np.array([(key + salt) % 2**64], dtype=np.uint64))[0])
            items.append((ticket, key, number))
    won = Counter(key for _, key, _ in sorted(items)[:slots])
    # records are compared by their last word first
    return Counter(row for key, number in won.items() for row in sorted(classes[key], key=lambda r: r[::-1])[:number])


@HASHES
@given(rows=rows_of_few_kinds, record=st.tuples(st.integers(0, 3), st.integers(0, 2)), slots=st.integers(1, 45))
@settings(max_examples=150, deadline=None)
def test_one_record_more_changes_one_slot(sharpness: str, rows: list[Row], record: Row, slots: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        blunt_hash(sharpness, patch)
        before, after = Counter(chosen(rows, slots)), Counter(chosen([*rows, record], slots))
        assert sum(after.values()) == min(len(rows) + 1, slots)
        assert sum((before - after).values()) <= (len(rows) >= slots)
        assert sum((after - before).values()) <= 1
        assert before == slow_chosen(rows, slots)


@HASHES
@given(rows=rows_of_few_kinds, slots=st.integers(1, 45), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_order_of_reading_changes_nothing(sharpness: str, rows: list[Row], slots: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        blunt_hash(sharpness, patch)
        shuffled = [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))]
        assert chosen(rows, slots) == chosen(shuffled, slots)


def test_places_among_the_rows_would_not_do() -> None:
    """The first rows of a source that starts elsewhere have nothing in common: what the test above would find."""
    rows = [(place, 0) for place in range(40)]
    turned = [*rows[20:], *rows[:20]]
    assert not Counter(rows[:10]) & Counter(turned[:10])
    assert Counter(chosen(rows, 10)) == Counter(chosen(turned, 10))


@given(rows=rows_of_few_kinds, slots=st.integers(1, 45), most=st.integers(1, 9), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_more_readings_of_fewer_classes_win_the_same(rows: list[Row], slots: int, most: int, seed: int) -> None:
    classes = hash_rows(as_words(rows))
    rng = np.random.default_rng(seed)

    def read() -> list[NDArray[np.uint64]]:
        return np.array_split(rng.permutation(classes), 3)

    one, many = (win_seats(read, len(rows), slots, limit) for limit in (len(rows) + 1, most))
    assert one.classes.tolist() == many.classes.tolist()
    assert one.numbers.tolist() == many.numbers.tolist()


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
