"""Parts of a table: every row goes to one part, and a part counts exactly the rows that it was given."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema

LEVELS = {"a": 2, "b": 3, "c": 4}
SETS = [("a",), ("b", "c"), ("c", "a", "b"), ()]


def make_table(n_rows: int, levels: dict[str, int] = LEVELS) -> tuple[MemoryTable, dict[str, np.ndarray]]:
    columns = {name: Categorical(tuple(f"v{i}" for i in range(size)), "v0") for name, size in levels.items()}
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, size, n_rows).astype(np.uint8) for name, size in levels.items()}
    return MemoryTable.from_codes(codes, Schema(dataset="parts", columns=columns, reviewed=True)), codes


# few distinct rows are kept with weights, many as they are
WEIGHTED = (6000, LEVELS)
UNWEIGHTED = (60, {"a": 50, "b": 60, "c": 70})
BOTH = pytest.mark.parametrize(("n_rows", "levels"), [WEIGHTED, UNWEIGHTED], ids=["weighted", "unweighted"])


def test_the_two_tables_are_kept_in_different_ways() -> None:
    assert [make_table(*case)[0]._distinct_rows().weights is None for case in (WEIGHTED, UNWEIGHTED)] == [False, True]


@BOTH
def test_parts_add_up_to_the_whole(n_rows: int, levels: dict[str, int]) -> None:
    table, _ = make_table(n_rows, levels)
    rng = np.random.default_rng(0)
    parts = table.split(7, lambda rows: rng.integers(0, 7, rows))
    assert len(parts) == 7
    assert sum(part.n_rows for part in parts) == n_rows
    for names in SETS:
        assert (sum(part.counts(names) for part in parts) == table.counts(names)).all()
    many = [part.counts_many(SETS) for part in parts]
    for place, names in enumerate(SETS):
        assert (sum(answer[place] for answer in many) == table.counts(names)).all()


@BOTH
def test_rows_without_a_part_are_left_out(n_rows: int, levels: dict[str, int]) -> None:
    table, _ = make_table(n_rows, levels)
    chosen = np.random.default_rng(0).integers(0, 5, n_rows)
    parts = table.split(3, lambda rows: chosen)
    assert [part.n_rows for part in parts] == [int((chosen == number).sum()) for number in range(3)]
    kept = table.thin(lambda rows: chosen < 3)
    for names in SETS:
        assert (sum(part.counts(names) for part in parts) == kept.counts(names)).all()


@BOTH
def test_extreme_choices(n_rows: int, levels: dict[str, int]) -> None:
    table, _ = make_table(n_rows, levels)
    everything = table.thin(lambda rows: np.ones(rows, dtype=bool))
    nothing = table.thin(lambda rows: np.zeros(rows, dtype=bool))
    assert everything.n_rows == n_rows
    assert nothing.n_rows == 0
    for names in SETS:
        assert (everything.counts(names) == table.counts(names)).all()
        assert nothing.counts(names).sum() == 0
        assert nothing.counts(names).shape == table.counts(names).shape


def test_counts_are_those_of_the_rows_kept() -> None:
    """Rows that are all different stand in the table as they came: then a part can be counted by hand."""
    levels = {"a": 60, "b": 2}
    _, codes = make_table(60, levels)
    codes["a"] = np.random.default_rng(0).permutation(60).astype(np.uint8)
    columns = {name: Categorical(tuple(f"v{i}" for i in range(size)), "v0") for name, size in levels.items()}
    table = MemoryTable.from_codes(codes, Schema(dataset="parts", columns=columns, reviewed=True))
    keep = np.random.default_rng(0).random(60) < 0.4
    thin = table.thin(lambda rows: keep)
    counted = thin.counts(("a", "b"))
    # whichever order the rows have inside, exactly so many are kept, each at most once, and only rows that exist
    whole = table.counts(("a", "b"))
    assert counted.sum() == keep.sum() == thin.n_rows
    assert (counted <= whole).all()
    assert counted.max() == 1


def test_every_row_is_kept_as_often_as_any_other() -> None:
    """A coin for each row is a coin for each record, also for those that stand together in one weighted row."""
    table, _ = make_table(6000, {"a": 2, "b": 2})
    rng = np.random.default_rng(0)
    whole = table.counts(("a", "b"))
    tries = 400
    kept = np.zeros_like(whole)
    spread = []
    for _ in range(tries):
        drawn = table.thin(lambda rows: rng.random(rows) < 0.3).counts(("a", "b"))
        assert (drawn <= whole).all()
        kept += drawn
        spread.append(drawn)
    deviation = np.sqrt(0.3 * 0.7 * whole / tries)
    assert (np.abs(kept / tries - 0.3 * whole) < 5 * deviation).all()
    # binomial, not all or nothing
    assert np.var(spread, axis=0) == pytest.approx(0.21 * whole, rel=0.4)


def test_parts_of_parts() -> None:
    table, _ = make_table(*WEIGHTED)
    rng = np.random.default_rng(0)
    thin = table.thin(lambda rows: rng.random(rows) < 0.5)
    asked = []

    def assign(rows: int) -> np.ndarray:
        asked.append(rows)
        return rng.integers(0, 4, rows)

    parts = thin.split(4, assign)
    assert asked == [thin.n_rows]
    for names in SETS:
        assert (sum(part.counts(names) for part in parts) == thin.counts(names)).all()


@BOTH
def test_the_same_choice_gives_the_same_parts(n_rows: int, levels: dict[str, int]) -> None:
    def draw() -> list[list[int]]:
        table, _ = make_table(n_rows, levels)
        rng = np.random.default_rng(0)
        parts = table.split(3, lambda rows: rng.integers(0, 3, rows))
        return [part.counts(("c", "a", "b")).reshape(-1).tolist() for part in parts]

    assert draw() == draw()


def test_the_table_itself_stays_as_it_was() -> None:
    table, codes = make_table(*WEIGHTED)
    before = table.counts(("a", "b"))
    table.thin(lambda rows: np.zeros(rows, dtype=bool))
    assert (table.counts(("a", "b")) == before).all()
    assert table.n_rows == 6000
    by_hand = np.zeros((2, 3), dtype=int)
    np.add.at(by_hand, (codes["a"], codes["b"]), 1)
    assert (before == by_hand).all()
