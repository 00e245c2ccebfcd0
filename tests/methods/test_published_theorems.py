"""Theorems 3 and 6 to 9 of Priv-PC: how far one record moves what they bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import rankdata

from dagveil.papers.publication import PUBLISHED_KENDALL_CONSTANT, published_scores
from published_bounds import (
    published_conditional_kendall_sensitivity,
    published_conditional_spearman_sensitivity,
    published_kendall_sensitivity,
    published_spearman_sensitivity,
)

Rows = NDArray[np.float64]


def kendall(rows: Rows) -> float:
    """Return 2|C − D|/(n(n − 1)), definition 5."""
    x, y = (np.sign(column[:, None] - column) for column in rows.T)
    return abs(float((x * y).sum())) / (len(rows) * (len(rows) - 1))


def spearman(rows: Rows, printed: bool) -> float:
    """Return ρ of definition 7, over n(n − 1) as printed or n(n² − 1) as usual."""
    n = len(rows)
    squares = float(((rankdata(rows[:, 0]) - rankdata(rows[:, 1])) ** 2).sum())
    return abs(1.0 - 6.0 * squares / (n * (n - 1) * (1 if printed else n + 1)))


def conditional_spearman(blocks: list[Rows]) -> float:
    """Return definition 8 with the usual ρ; a block of one row weighs nothing."""
    kept = [(len(rows) - 1, spearman(rows, printed=False)) for rows in blocks if len(rows) > 1]
    return sum(w * rho for w, rho in kept) / math.sqrt(sum(w for w, _ in kept))


def opposed(n_rows: int) -> tuple[Rows, Rows]:
    """Return rows in perfect order, and the same with one more record that contradicts all others."""
    order = np.arange(n_rows, dtype=float)
    rows = np.column_stack([order, order])
    return rows, np.vstack([rows, [n_rows, -1.0]])


@pytest.mark.parametrize("n_rows", [4, 10, 100])
def test_theorem_6_breaks(n_rows: int) -> None:
    before, after = opposed(n_rows)
    change = abs(kendall(after) - kendall(before))
    assert change == pytest.approx(4 / (n_rows + 1))
    assert change > published_kendall_sensitivity(n_rows)


def test_theorem_6_holds_for_three_rows() -> None:
    before, after = opposed(3)
    assert abs(kendall(after) - kendall(before)) <= published_kendall_sensitivity(3)


def test_theorem_3_is_theorem_7_with_large_blocks() -> None:
    n = 10_000
    assert published_conditional_kendall_sensitivity(n + 1) == pytest.approx(PUBLISHED_KENDALL_CONSTANT / math.sqrt(n))
    # the proof's own form: 27/(4 sqrt(c2 (n - k))) + 9/(2 c1 sqrt(c2 (n - k)))
    c2 = 9 * 20 / (2 * (2 * 20 + 5))
    expected = 27 / (4 * math.sqrt(c2 * (n - 7))) + 9 / (2 * 20 * math.sqrt(c2 * (n - 7)))
    assert published_conditional_kendall_sensitivity(n, 7, 20) == pytest.approx(expected)


def test_theorem_7_breaks_in_one_block() -> None:
    """Levels in perfect order, and a record that contradicts them all: 5.25/√n."""
    n = 400
    before = np.zeros((1, n + 2, n + 2), dtype=np.int64)
    before[0, range(1, n + 1), range(1, n + 1)] = 1
    after = before.copy()
    after[0, n + 1, 0] = 1
    change = float(published_scores(before) - published_scores(after))
    assert change > 1.1 * published_conditional_kendall_sensitivity(n, 1, n)
    assert change == pytest.approx(5.25 / math.sqrt(n), rel=0.05)


@pytest.mark.parametrize("n_rows", [100, 10_000])
def test_theorem_7_breaks_with_blocks_of_one_row(n_rows: int) -> None:
    """One block of two rows that agree, all others of one: a record that disagrees takes the statistic from 1 to 0."""
    before = np.zeros((n_rows - 1, 2, 2), dtype=np.int64)
    before[:, 0, 0] = 1
    before[0, 1, 1] = 1
    after = before.copy()
    after[1] = [[0, 1], [1, 0]]
    scores = [float(published_scores(tables, as_printed=True)) for tables in (before, after)]
    assert scores == [1.0, 0.0]
    assert scores[0] > 2 * PUBLISHED_KENDALL_CONSTANT / math.sqrt(n_rows)


def test_theorem_7_holds_for_two_levels_in_one_block() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        table = rng.integers(5, 60, (1, 2, 2))
        n = int(table.sum())
        for place in range(4):
            more = table.copy()
            more[0, place // 2, place % 2] += 1
            change = abs(float(published_scores(more) - published_scores(table)))
            assert change <= published_conditional_kendall_sensitivity(n, 1, n)


def test_theorem_8_breaks_as_printed() -> None:
    """Reversed rows: the printed ρ is 2n + 1, and one more row adds 2."""
    rows = np.column_stack([np.arange(100.0), -np.arange(100.0)])
    change = spearman(rows, printed=True) - spearman(rows[:-1], printed=True)
    assert change == pytest.approx(2.0)
    assert change > published_spearman_sensitivity(99)


@pytest.mark.parametrize("n_rows", [5, 20, 100])
def test_theorem_8_holds_for_the_usual_coefficient(n_rows: int) -> None:
    before, after = opposed(n_rows)
    worst = abs(spearman(after, printed=False) - spearman(before, printed=False))
    assert worst == pytest.approx(min(6 / (n_rows + 2), 1.0), abs=1e-9)
    rng = np.random.default_rng(n_rows)
    for _ in range(200):
        rows = rng.normal(size=(n_rows + 1, 2))
        worst = max(worst, abs(spearman(rows, printed=False) - spearman(rows[:-1], printed=False)))
    assert worst <= published_spearman_sensitivity(n_rows)


def test_theorem_9_holds_for_the_usual_coefficient() -> None:
    """Blocks of any size, single rows too: a record moves one block, whose weight times ρ moves by about 7."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(2000):
        sizes = rng.integers(1, 12, rng.integers(1, 8))
        if sizes.sum() == len(sizes):
            continue
        blocks = [opposed(size - 1)[1] if rng.random() < 0.5 and size > 1 else opposed(size)[0] for size in sizes]
        place = int(rng.integers(len(blocks)))
        more = [*blocks]
        more[place] = np.vstack([blocks[place], [99.0, rng.choice([-99.0, 99.0, 0.5])]])
        change = abs(conditional_spearman(more) - conditional_spearman(blocks))
        worst = max(worst, change / published_conditional_spearman_sensitivity(sizes.sum(), len(sizes)))
    assert 0.1 < worst <= 1.0
