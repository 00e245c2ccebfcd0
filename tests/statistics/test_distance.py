"""The distance to the other decision: against a plain search, its Lipschitz constant, and the published distance."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from neighbours import all_tables, changes, largest_change_of_all
from scipy.special import chdtri, xlogy

from dagveil.papers.xu2017 import greedy_distance
from dagveil.privacy.budget import Relation
from dagveil.statistics.distance import REACH, ExactDistance, exact_distance
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.statistic import TableShape

LEVEL = 0.1
CRITICAL = float(chdtri(1, LEVEL))
STATISTIC = ExactDistance(LEVEL, Kendall(100))
SQUARE = TableShape(1, 2, 2)

Cells = tuple[int, int, int, int]


def mirrored(cells: Cells) -> Cells:
    """Return one of the eight tables that differ by the names of levels and columns only."""
    a, b, c, d = cells
    names = ((a, b, c, d), (b, a, d, c), (c, d, a, b), (d, c, b, a))
    return min(*names, *((one, three, two, four) for one, two, three, four in names))


@cache
def signed(cells: Cells) -> int:
    return exact_distance(np.array(cells).reshape(2, 2), CRITICAL)


@cache
def value(cells: Cells) -> int:
    return int(STATISTIC.values(np.array(cells).reshape(1, 2, 2)))


def signed_of(tables: np.ndarray) -> np.ndarray:
    return np.array([signed(mirrored(tuple(cells))) for cells in tables.reshape(-1, 4).tolist()])


def value_of(tables: np.ndarray) -> np.ndarray:
    return np.array([value(mirrored(tuple(cells))) for cells in tables.reshape(-1, 4).tolist()])


def walk_all(most_rows: int) -> np.ndarray:
    """Return the signed distance of every table of at most so many rows, by walking back from the other side."""
    side = most_rows + REACH + 1
    a, b, c, d = np.indices((side,) * 4)
    n = a + b + c + d
    margins = (a + b, c + d, a + c, b + d)
    g = 2 * (sum(xlogy(cell, cell) for cell in (a, b, c, d)) - sum(xlogy(m, m) for m in margins) + xlogy(n, n))
    dependent = g > CRITICAL
    found = np.full(n.shape, REACH)
    for here in (False, True):
        reached = dependent != here
        for steps in range(1, REACH):
            wider = reached.copy()
            for axis in range(4):
                inner, outer = [slice(None)] * 4, [slice(None)] * 4
                inner[axis], outer[axis] = slice(1, None), slice(None, -1)
                wider[tuple(inner)] |= reached[tuple(outer)]
                wider[tuple(outer)] |= reached[tuple(inner)]
            found[wider & ~reached & (dependent == here)] = steps
            reached = wider
    return np.where(dependent, -found, found)


def test_the_distance_is_that_of_a_plain_walk() -> None:
    walked = walk_all(12)
    seen = set()
    for n_rows in range(13):
        tables = all_tables((1, 2, 2), n_rows)
        cells = tables.reshape(-1, 4)
        expected = walked[tuple(cells.T)]
        assert signed_of(tables).tolist() == expected.tolist()
        seen |= set(expected.tolist())
    # the walk had something to find: both sides, near and far
    assert seen == {-6, -5, -4, -3, -2, -1, 1, 2, 3, 4}


def test_names_of_levels_and_columns_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        table = rng.multinomial(60, rng.dirichlet(np.ones(4))).reshape(2, 2)
        alike = {exact_distance(other, CRITICAL) for other in (table, table[::-1], table[:, ::-1], table.T)}
        assert len(alike) == 1


@pytest.mark.parametrize(("relation", "bound"), [(Relation.ADD_REMOVE, 1), (Relation.REPLACE_ONE, 2)])
def test_one_record_moves_the_value_by_its_sensitivity_at_most(relation: Relation, bound: int) -> None:
    assert STATISTIC.sensitivity(relation, SQUARE) == bound
    assert largest_change_of_all(value_of, (1, 2, 2), 14, relation) == bound


def test_the_signed_distance_itself_moves_by_two() -> None:
    """Between +1 and −1 there is no table: the published score has sensitivity 2, not 1, even with exact distances."""
    assert largest_change_of_all(signed_of, (1, 2, 2), 14, Relation.ADD_REMOVE) == 2


@pytest.mark.parametrize("n_rows", [150, 9000])
def test_tables_near_the_border_are_no_exception(n_rows: int) -> None:
    rng = np.random.default_rng(0)
    cores = []
    for _ in range(8):
        p, q = rng.uniform(0.1, 0.9, 2)
        expected = np.outer([p, 1 - p], [q, 1 - q])
        tilt = np.sqrt(CRITICAL / n_rows) * np.sqrt(p * (1 - p) * q * (1 - q)) * np.array([[1, -1], [-1, 1]])
        cores.append(np.rint(n_rows * np.maximum(expected + tilt, 0)).astype(np.int64)[None])
    stack = np.stack(cores)
    moved = changes(value_of, stack, Relation.ADD_REMOVE)
    assert moved.max() == 1
    assert set(np.sign(signed_of(stack)).tolist()) == {-1, 1}


def test_values_follow_the_proof() -> None:
    for cells in [(25, 25, 25, 25), (30, 20, 20, 30), (90, 0, 0, 90), (0, 0, 0, 0), (7, 3, 1, 9)]:
        distance = signed(cells)
        f = distance - 1 if distance > 0 else distance
        assert value(cells) == REACH - f
        assert -REACH <= f <= REACH - 1
        says_dependent = value(cells) > STATISTIC.critical_value(0.01, 100.0, SQUARE)
        assert says_dependent == (distance < 0)
    assert signed((90, 0, 0, 90)) == -REACH


def test_batches_and_larger_tables() -> None:
    batch = np.array([[[[25, 25], [25, 25]]], [[[30, 20], [20, 30]]]])
    assert STATISTIC.values(batch).tolist() == [value((25, 25, 25, 25)), value((30, 20, 20, 30))]
    kendall = Kendall(100)
    for shape in [(2, 2, 2), (1, 2, 3)]:
        table = np.arange(np.prod(shape)).reshape(shape)
        declared = TableShape(*shape)
        assert STATISTIC.values(table) == kendall.values(table)
        assert STATISTIC.critical_value(0.01, 50.0, declared, 0.5) == kendall.critical_value(0.01, 50.0, declared, 0.5)
        for relation in Relation:
            assert STATISTIC.sensitivity(relation, declared) == kendall.sensitivity(relation, declared)


def test_one_record_moves_the_published_distance_by_dozens() -> None:
    """Exactly independent tables of 9000 rows: one record turns the greedy walk into the other direction."""
    worst = 0
    for p, q in product((0.5, 0.3, 0.2, 0.1), repeat=2):
        table = np.rint(9000 * np.outer([p, 1 - p], [q, 1 - q])).astype(np.int64)
        before = greedy_distance(table[None], CRITICAL)
        for i, j in product(range(2), repeat=2):
            table[i, j] += 1
            worst = max(worst, abs(greedy_distance(table[None], CRITICAL) - before))
            table[i, j] -= 1
    assert worst >= 100


def test_the_greedy_walk_counts_the_records_it_removes() -> None:
    """It is never shorter than the exact distance, which may also add records."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        table = rng.multinomial(40, rng.dirichlet(np.full(4, 2.0))).reshape(2, 2)
        exact, greedy = exact_distance(table, CRITICAL), greedy_distance(table[None], CRITICAL)
        assert np.sign(exact) == np.sign(greedy)
        assert abs(greedy) >= min(abs(exact), REACH)


def slow_greedy(tables: np.ndarray, critical: float) -> int:
    """Remove, one by one, the record whose removal moves G² the most, trying every cell each time."""

    def g(counts: np.ndarray) -> float:
        margins = (
            xlogy(counts.sum(axis=1), counts.sum(axis=1)).sum() + xlogy(counts.sum(axis=2), counts.sum(axis=2)).sum()
        )
        rows = counts.sum(axis=(1, 2))
        return 2 * float(xlogy(counts, counts).sum() - margins + xlogy(rows, rows).sum())

    counts = tables.copy()
    rising = g(counts) <= critical
    steps = 0
    while counts.any():
        reached = {}
        for cell in map(tuple, np.argwhere(counts)):
            counts[cell] -= 1
            reached[cell] = g(counts)
            counts[cell] += 1
        best = max(reached, key=lambda cell: reached[cell] if rising else -reached[cell])
        counts[best] -= 1
        steps += 1
        if (reached[best] > critical) == rising:
            break
    return steps if rising else -steps


@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 2, 2), (2, 3, 2)])
def test_the_greedy_walk_against_its_slow_twin(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    freedom = shape[0] * (shape[1] - 1) * (shape[2] - 1)
    critical = float(chdtri(freedom, LEVEL))
    signs = set()
    for alpha in (1.0, 1.0, 5.0, 5.0, 50.0, 50.0):
        # weights without symmetry: where two cells are equally good the walks may part
        shares = rng.dirichlet(np.full(int(np.prod(shape)), alpha))
        table = rng.multinomial(70, shares).reshape(shape)
        walked = greedy_distance(table, critical)
        assert walked == slow_greedy(table, critical)
        signs.add(np.sign(walked))
    assert signs == {-1, 1}
