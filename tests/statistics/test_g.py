"""The G statistic against logarithms and scipy, its table of increments, and its bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from neighbours import changes, largest_change
from scipy.stats import chi2_contingency
from scipy.stats.contingency import margins

from dagveil.privacy.budget import Relation
from dagveil.statistics.g import BLOCK, DENSE_ROWS, GRID, G, tabulate_entropy
from dagveil.statistics.statistic import TableShape


def curve(t: float) -> float:
    return t * math.log(t) if t > 0 else 0.0


def step(t: float) -> float:
    """φ(t) = (t + 1) ln(t + 1) − t ln t."""
    return curve(t + 1) - curve(t)


def slow_g(table: np.ndarray) -> float:
    """2 Σ N ln(N m/(N_a N_b)), cell by cell."""
    total = 0.0
    for stratum in table:
        x_counts, y_counts = margins(stratum)
        expected = x_counts * y_counts / max(stratum.sum(), 1)
        filled = stratum > 0
        total += 2 * float((stratum[filled] * np.log(stratum[filled] / expected[filled])).sum())
    return total


@settings(max_examples=150, deadline=None)
@given(
    table=hnp.arrays(
        np.int64, st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), elements=st.integers(0, 300)
    )
)
def test_values_are_sums_of_logarithms(table: np.ndarray) -> None:
    assert int(G(20_000).values(table)) / GRID == pytest.approx(slow_g(table), abs=1e-3)


def test_it_agrees_with_scipy() -> None:
    tables = np.random.default_rng(1).integers(1, 400, (20, 1, 3, 4))
    ours = G(10_000).values(tables) / GRID
    theirs = [chi2_contingency(table[0], correction=False, lambda_="log-likelihood").statistic for table in tables]
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


@pytest.mark.parametrize("cap", [1, 2, 3, 1000, 100_000, DENSE_ROWS, DENSE_ROWS + 1, DENSE_ROWS + 10 * BLOCK + 3])
def test_increments_never_fall_and_end_at_the_steepest(cap: int) -> None:
    """The two facts that the sensitivity stands on, for the integers that are used."""
    table = tabulate_entropy(cap)
    near, far = np.arange(min(cap, 3000) + 2), np.arange(max(cap - 12 * BLOCK, 0), cap + 3 * BLOCK)
    joint = np.arange(max(min(cap, DENSE_ROWS) - 50, 0), min(cap, DENSE_ROWS) + 2 * BLOCK)
    for counts in (near, joint, far):
        increments = np.diff(table.look_up(counts))
        assert (np.diff(increments) >= 0).all()
        assert increments.min() >= 0
        assert increments.max() <= table.steepest
    assert np.diff(table.dense).min() == 0
    assert table.steepest == np.diff(table.look_up(np.array([10 * cap + 10**6, 10 * cap + 10**6 + 1])))[0]
    assert table.steepest / (2 * GRID) <= step(cap + BLOCK) + 1 / GRID


@pytest.mark.parametrize("cap", [1000, 100_000, 3 * DENSE_ROWS])
def test_the_table_follows_the_curve(cap: int) -> None:
    table = tabulate_entropy(cap)
    counts = np.unique(np.geomspace(1, cap, 500).astype(np.int64))
    exact = 2 * counts * np.log(counts)
    # rounded increments drift a little, and chords lie above the curve by at most BLOCK²/(8 t) nats
    allowed = 2 * BLOCK**2 / (8 * DENSE_ROWS) + 2e-2 if cap > DENSE_ROWS else 1e-3
    np.testing.assert_allclose(table.look_up(counts) / GRID, exact, atol=allowed)


@pytest.mark.parametrize("cap", [5, 60, 400])
def test_the_bend_covers_what_rounding_does_to_concavity(cap: int) -> None:
    table = tabulate_entropy(cap)
    increments = np.diff(table.look_up(np.arange(2 * cap + 3)))
    u, v = np.triu_indices(cap + 1)
    assert (increments[u + v] - increments[u] - increments[v]).max() <= table.bend


def test_the_bend_of_chords() -> None:
    table = tabulate_entropy(3 * DENSE_ROWS)
    u, v = np.random.default_rng(3).integers(0, 2 * DENSE_ROWS, (2, 20_000))
    u[:5000] //= 10**5  # one small and one large: the tightest

    def increments(counts: np.ndarray) -> np.ndarray:
        return table.look_up(counts + 1) - table.look_up(counts)

    assert (increments(u + v) - increments(u) - increments(v)).max() <= table.bend


def test_many_rows_still_give_g() -> None:
    n = 30 * 10**6
    table = np.array([[[n // 4 + 3000, n // 4 - 3000], [n // 4 - 3000, n // 4 + 3000]]])
    assert int(G(n).values(table)) / GRID == pytest.approx(slow_g(table), abs=0.2)


@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_the_constants_of_the_proof(n: int) -> None:
    statistic = G(n)
    assert statistic.sensitivity(Relation.ADD_REMOVE, TableShape(3, 2, 2)) / GRID == pytest.approx(
        2 * step(n - 1), abs=1e-5
    )
    # the PrivBayes bound for a binary side, 2 (ln n + (n − 1) ln(n/(n − 1))), is the same number
    privbayes = 2 * (math.log(n) + (n - 1) * math.log(n / (n - 1)))
    assert statistic.sensitivity(Relation.REPLACE_ONE, TableShape(1, 2, 5)) / GRID == pytest.approx(privbayes, abs=1e-5)
    for shape in (TableShape(1, 3, 3), TableShape(2, 2, 2)):
        assert statistic.sensitivity(Relation.REPLACE_ONE, shape) / GRID == pytest.approx(4 * step(n - 1), abs=1e-5)


def test_one_row_in_an_empty_corner_attains_the_bound() -> None:
    n = 1000
    core = np.array([[[n - 1, 0], [0, 0]]])
    for relation in Relation:
        bound = G(n).sensitivity(relation, TableShape(1, 2, 2))
        assert bound - 2 <= changes(G(n).values, core[None], relation)[0] <= bound


class TestMoreRowsThanDeclared:
    """Why replace-one is charged 4 φ(N − 1), and not 4 φ((n − 1)/2) at n = N."""

    @staticmethod
    def narrow_bound(n: int) -> float:
        return GRID * 4 * step((n - 1) / 2)

    @pytest.mark.parametrize("shape", [(1, 3, 3), (2, 2, 2), (2, 3, 3)])
    def test_the_narrow_bound_holds_up_to_the_nominal_number(self, shape: tuple[int, int, int]) -> None:
        n = 1001
        found = largest_change(G(n).values, shape, n - 1, Relation.REPLACE_ONE, np.random.default_rng(4))
        assert found <= self.narrow_bound(n) + 4

    def test_the_narrow_bound_fails_beyond_it(self) -> None:
        n = 51
        core = np.array([[[0, 0, 0], [0, 0, 2 * n], [0, 2 * n, 0]]])
        # a row of level (1, 1) goes to (0, 0): its margins hold 2n rows each, none of them in its cell
        change = changes(G(n).values, core[None], Relation.REPLACE_ONE)[0]
        assert change > self.narrow_bound(n) + 4
        assert change <= G(n).sensitivity(Relation.REPLACE_ONE, TableShape(1, 3, 3))
