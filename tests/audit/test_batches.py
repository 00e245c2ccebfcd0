"""Twins that measure many tables at once, against the statistics themselves, table by table."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest

from dagveil.audit import numbers, sensitivity
from dagveil.audit.search import Domain, Found, Norm, RecordSearch
from dagveil.audit.sensitivity import (
    MOST_ROWS,
    audited_statistics,
    batch_distances,
    batch_scores,
    batch_smooth_sensitivity,
    batch_votes,
    search_statistic,
    tabulate_distances,
)
from dagveil.curator.gate import Gate
from dagveil.curator.questions import QuestionSession, Sample
from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import PureFilter
from dagveil.privacy.mechanisms.smooth_median import smooth_sensitivity
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.distance import ExactDistance
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.reconciled import PartTest, Reconciled
from dagveil.statistics.statistic import TableShape, statistic_named

OF_ROWS = [
    "second moments",
    "second moments of features",
    "second moments of levels beside numbers",
    "second moments of chosen pairs",
    "second moments of residuals of public functions",
    "sum of clipped gradients",
    "sum of clipped curvatures",
    "counts by magnitude",
    "root HSIC, permuted",
    "root HSIC, pairs as they are",
    "residual of another slot",
    "sums of residual products and of their squares",
    "sums of clipped residuals",
    "rank score of residuals",
]


def draw_tables(search: RecordSearch, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Draw tables of all kinds, with ties, bounds and, where these may come in, what is not a number."""
    tables = [search._draw_core(turn, n_rows, rng) for turn in range(24)]
    odd = search._draw_records(rng)
    for place, table in enumerate(tables):
        if n_rows:
            table[-1] = odd[place % len(odd)]
    return np.stack(tables)


@pytest.mark.parametrize("name", OF_ROWS)
def test_twins_of_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search over rows has a twin, and it measures what the statistic measures."""
    compared = 0

    def compare(self: RecordSearch, pairs: int, sizes: tuple[int, ...], rng: np.random.Generator) -> Found:
        nonlocal compared
        assert self.batch is not None
        slots = {size + (1 if size > 6 else 0) for size in sizes}
        for n_rows in slots:
            tables = draw_tables(self, n_rows, rng)
            slow = np.stack([self.measure(table) for table in tables])
            # the square of a root that is nil rounds to 1e-16 or so
            assert self.batch(tables) == pytest.approx(slow, rel=1e-9, abs=2e-8)
            compared += len(tables)
        return Found(0.0, 1, "")

    monkeypatch.setattr(RecordSearch, "run", compare)
    statistic = next(one for one in numbers.number_statistics() if one.name == name)
    for relation in statistic.relations:
        search_statistic(statistic, relation, 100)
    assert compared >= 24


def test_every_statistic_of_rows_is_compared() -> None:
    assert [one.name for one in numbers.number_statistics()] == OF_ROWS


def test_what_is_reported_is_measured_by_the_statistic() -> None:
    """A twin that boasts can mislead the search, but not what it says."""

    def measure(rows: np.ndarray) -> np.ndarray:
        return rows.sum(axis=0)

    def boast(tables: np.ndarray) -> np.ndarray:
        return 3.0 * tables.sum(axis=1)

    search = RecordSearch(measure, 2, 1.0, Norm.LARGEST, Relation.ADD_REMOVE, Domain.BOUNDED, boast)
    assert search.run(500, (2,), np.random.default_rng(0)).change == pytest.approx(1.0)


@pytest.mark.parametrize("relation", Relation)
def test_walks_side_by_side_find_what_single_ones_find(relation: Relation) -> None:
    """A peak that no candidate stands on: the walk must climb to it."""

    def measure(rows: np.ndarray) -> np.ndarray:
        return np.exp(-4.0 * ((rows - 0.37) ** 2).sum(axis=1)).sum(keepdims=True)

    def batch(tables: np.ndarray) -> np.ndarray:
        return np.exp(-4.0 * ((tables - 0.37) ** 2).sum(axis=2)).sum(axis=1)[:, None]

    for twin in (None, batch):
        search = RecordSearch(measure, 2, 1.0, Norm.LARGEST, relation, Domain.BOUNDED, twin)
        assert search.run(3000, (0, 2), np.random.default_rng(1)).change > 0.98


def test_distances_are_those_of_the_statistic() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(4, 0.5), size=60)
    tables = np.stack([rng.multinomial(rng.integers(0, MOST_ROWS + 1), share) for share in shares])
    corners = np.array([[0, 0, 0, 0], [MOST_ROWS, 0, 0, 0], [0, 15, 16, 0], [8, 8, 8, 7], [1, 0, 0, MOST_ROWS - 1]])
    tables = np.vstack([tables, corners]).reshape(-1, 1, 2, 2)
    slow = ExactDistance(sensitivity.DISTANCE_LEVEL, Kendall(60)).values(tables)
    assert batch_distances(sensitivity.DISTANCE_LEVEL)(tables)[:, 0].tolist() == slow.tolist()


def test_distances_are_known_for_all_tables_that_are_searched() -> None:
    known = tabulate_distances(sensitivity.DISTANCE_LEVEL)
    assert known.shape == (MOST_ROWS + 1,) * 4
    assert sensitivity.DISTANCE_ROWS == MOST_ROWS - 1
    statistic = next(one for one in audited_statistics() if one.name == "exact distance")
    for relation in Relation:
        assert search_statistic(statistic, relation, 20_000).pairs >= 20_000


@pytest.mark.parametrize("test", PartTest)
def test_votes_are_those_of_the_statistic(test: PartTest) -> None:
    rng = np.random.default_rng(0)
    statistic = Reconciled(test, 3)
    tables = rng.integers(0, 9, (100, 3, 2, 2))
    tables[::7, 1] = 0
    slow = [int(statistic.values(table[:, None])) for table in tables]
    assert batch_votes(statistic)(tables)[:, 0].tolist() == slow
    assert len(set(slow)) > 1


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("name", ["kendall", "g"])
def test_scores_are_those_of_an_interview(name: str, relation: Relation) -> None:
    """The slow twin counts rows of a table and scores them through an interview's own code."""
    rng = np.random.default_rng(0)
    shape = TableShape(2, 2, 2)
    columns = {column: Categorical(("v0", "v1"), "v0") for column in "sxy"}
    schema = Schema(dataset="audit", columns=columns, reviewed=True, nominal_rows=30)
    statistic = statistic_named(name, 30)
    batch, slow = [], []
    for _ in range(30):
        codes = {column: (rng.random(31) < rng.random()).astype(np.uint8) for column in columns}
        table = MemoryTable.from_codes(codes, schema)
        gate = Gate(PureFilter(Budget.of(1, 0)), Mock(), noise_source(NoiseKind.SEEDED, 0))
        interview = QuestionSession(table, relation, statistic, gate)
        slow.append(interview._score(("x", "y", ("s",)), Sample(table, [table])))
        batch.append(table.counts(("s", "x", "y")))
    assert batch_scores(statistic, relation, shape)(np.stack(batch))[:, 0].tolist() == slow
    assert len(set(slow)) > 10


@pytest.mark.parametrize("size", [1, 2, 3, 6, 11])
def test_smooth_sensitivities_are_those_of_the_mechanism(size: int) -> None:
    lists = np.random.default_rng(size).integers(0, 13, (40, size))
    slow = [float(smooth_sensitivity(values, 0, 12, sensitivity.MEDIAN_BETA)) for values in lists.tolist()]
    assert batch_smooth_sensitivity(lists, 0, 12, float(sensitivity.MEDIAN_BETA)) == pytest.approx(slow, rel=1e-12)


def test_each_place_of_a_list_is_replaced() -> None:
    lists = np.array([[1, 2], [3, 4]])
    others = sensitivity._replace_each(lists, (0, 9))
    expected = [[0, 2], [9, 2], [1, 0], [1, 9], [0, 4], [9, 4], [3, 0], [3, 9]]
    assert others.tolist() == expected


def test_a_mechanism_with_too_little_smoothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the smooth sensitivity, and the same search finds lists beyond it."""

    def halve(function: Callable[..., object]) -> Callable[..., object]:
        return lambda *facts: function(*facts) / 2

    monkeypatch.setattr(sensitivity, "smooth_sensitivity", halve(sensitivity.smooth_sensitivity))
    monkeypatch.setattr(sensitivity, "batch_smooth_sensitivity", halve(sensitivity.batch_smooth_sensitivity))
    statistic = next(one for one in audited_statistics() if one.name == "median of parts")
    assert search_statistic(statistic, Relation.ADD_REMOVE, 600).ratio > 1.5
