"""The search for neighbours: it covers every line of the guarantees, comes close to each bound, and exceeds none."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dagveil.audit.doors import READERS
from dagveil.audit.examination import NAMES_OF_STATISTICS
from dagveil.audit.search import (
    AuditedStatistic,
    Domain,
    Effort,
    Norm,
    RecordSearch,
    TableSearch,
    _all_tables,
    _extremes,
)
from dagveil.audit.sensitivity import audited_statistics, search_statistic
from dagveil.methods.asking import ASKABLE
from dagveil.privacy.budget import Relation
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.statistic import TableShape

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
STATISTICS = {statistic.name: statistic for statistic in audited_statistics()}
PLACES = [(name, relation) for name, statistic in STATISTICS.items() for relation in statistic.relations]

LOOSE = {
    "number of rows": 0.0,  # under replace-one it does not move at all
    "root HSIC, permuted": 0.4,  # the bound holds for all permutations together
    "root HSIC, pairs as they are": 0.6,
    "residual of another slot": 0.3,
    "rank score of residuals": 0.5,
    "sum of clipped gradients": 0.7,  # two records can hardly oppose each other
    "score in records": 0.7,
}
"""How close the search must come, where that is not at least 0.9."""


def declared_functions() -> set[str]:
    """Read the sensitivity functions from the columns of that name in the guarantees."""
    found: set[str] = set()
    column = None
    for line in GUARANTEES.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            column = None
        elif "sensitivity function" in cells:
            column = cells.index("sensitivity function")
        elif column is not None:
            found |= {name for name in re.findall(r"`([a-z_.A-Z]+)`", cells[column]) if "." in name}
    return found


def test_the_registry_covers_every_sensitivity_function_of_the_guarantees() -> None:
    declared = declared_functions()
    assert len(declared) >= 20
    assert {statistic.function for statistic in STATISTICS.values()} == declared


def test_names_lead_to_statistics() -> None:
    named = {name for door in READERS.values() for name in door.statistics}
    named |= {NAMES_OF_STATISTICS.get(name, name) for name in ASKABLE}
    assert named == set(STATISTICS)


@pytest.mark.parametrize(("name", "relation"), PLACES)
def test_no_neighbour_exceeds_the_declared_sensitivity(name: str, relation: Relation) -> None:
    finding = search_statistic(STATISTICS[name], relation, 600)
    assert finding.holds
    assert finding.ratio >= LOOSE.get(name, 0.9)
    assert finding.pairs >= 40
    assert finding.pair


def test_a_smaller_bound_is_broken() -> None:
    """Ten per cent less than declared, and the same search finds neighbours beyond it."""
    for name in (
        "tables of counts",
        "kendall",
        "g",
        "second moments",
        "interactions of pairs",
        "distance of a pair's table",
    ):
        honest = STATISTICS[name]

        def look(*arguments: object, honest: AuditedStatistic = honest) -> object:
            found, declared = honest.look(*arguments)
            return found, 0.9 * declared

        for relation in Relation:
            assert not search_statistic(AuditedStatistic(name, honest.function, look), relation, 600).holds


def test_more_effort_tries_more() -> None:
    assert Effort.QUICK.pairs < Effort.FULL.pairs
    assert Effort.QUICK.runs < Effort.FULL.runs
    few, many = (search_statistic(STATISTICS["kendall"], Relation.ADD_REMOVE, pairs) for pairs in (200, 60_000))
    assert few.pairs < many.pairs
    assert few.ratio <= many.ratio


class TestTables:
    @pytest.mark.parametrize("relation", Relation)
    def test_small_tables_against_pairs_one_by_one(self, relation: Relation) -> None:
        """The slow twin goes through all pairs of small tables and asks of each whether they are neighbours."""
        statistic, shape = Kendall(8), (1, 2, 2)
        tables = [np.array(cells).reshape(shape) for cells in product(range(4), repeat=4) if sum(cells) <= 4]
        worst = 0
        for one, other in product(tables, repeat=2):
            apart = np.abs(one - other).sum()
            same = one.sum() == other.sum()
            if (relation is Relation.ADD_REMOVE and apart == 1) or (
                relation is Relation.REPLACE_ONE and apart == 2 and same
            ):
                worst = max(worst, abs(int(statistic.values(one)) - int(statistic.values(other))))
        search = TableSearch(
            lambda stack: statistic.values(stack)[:, None].astype(float), shape, Norm.LARGEST, relation
        )
        for n_rows in range(4):
            cores = _all_tables(shape, n_rows)
            search._try(cores[(cores < 4).all(axis=(1, 2, 3))])
        assert search.best == worst
        assert worst <= statistic.sensitivity(relation, TableShape(*shape))

    def test_all_tables_are_all(self) -> None:
        tables = _all_tables((2, 2), 3)
        assert len(tables) == 20
        assert len(np.unique(tables.reshape(-1, 4), axis=0)) == 20
        assert set(tables.sum(axis=(1, 2)).tolist()) == {3}

    def test_extremes_have_single_records_constant_columns_and_empty_strata(self) -> None:
        tables = _extremes((2, 2, 3), 30)
        assert (tables.sum(axis=(2, 3)) == 1).all(axis=1).any()
        assert (tables.sum(axis=(2, 3)) == 0).any()
        assert ((tables.sum(axis=(1, 3)) == 0).any(axis=1) & (tables.sum(axis=(1, 2, 3)) > 10)).any()

    def test_records_stay_in_their_part(self) -> None:
        """A weight on the second part would be seen if a replaced record could change its part."""
        weights = np.array([[1.0, 1.0], [100.0, 100.0]])
        searches = [
            TableSearch(
                lambda stack: (stack * weights).sum(axis=(1, 2))[:, None],
                (2, 2),
                Norm.LARGEST,
                Relation.REPLACE_ONE,
                parts=parts,
            )
            for parts in (1, 2)
        ]
        free, kept = (search.run(300, (5,), np.random.default_rng(0)).change for search in searches)
        assert free == 99.0
        assert kept == 0.0


class TestRecords:
    @pytest.mark.parametrize(("relation", "length"), [(Relation.ADD_REMOVE, 5.0), (Relation.REPLACE_ONE, 10.0)])
    def test_a_clipped_sum(self, relation: Relation, length: float) -> None:
        """One record adds a vector of length at most 5; two opposite ones lie 10 apart."""

        def measure(rows: np.ndarray) -> np.ndarray:
            lengths = np.maximum(np.linalg.norm(np.nan_to_num(rows), axis=1, keepdims=True), 5.0)
            return (5.0 * np.nan_to_num(rows) / lengths).sum(axis=0)

        found = RecordSearch(measure, 3, 5.0, Norm.SQUARES, relation).run(400, (0, 3), np.random.default_rng(0))
        assert 0.999 * length < found.change <= length * (1 + 1e-9)

    def test_bounded_values_stay_inside(self) -> None:
        seen: list[float] = []

        def measure(rows: np.ndarray) -> np.ndarray:
            seen.append(float(np.abs(rows).max(initial=0.0)))
            return rows.sum(axis=0)

        search = RecordSearch(measure, 2, 1.0, Norm.LARGEST, Relation.REPLACE_ONE, Domain.BOUNDED)
        assert search.run(600, (3,), np.random.default_rng(0)).change == pytest.approx(2.0)
        assert max(seen) <= 1.0

    def test_any_value_includes_what_is_not_a_number(self) -> None:
        seen = set()

        def measure(rows: np.ndarray) -> np.ndarray:
            seen.update({"nan"} if np.isnan(rows).any() else {"inf"} if np.isinf(rows).any() else set())
            return np.zeros(1)

        RecordSearch(measure, 2, 1.0, Norm.LARGEST, Relation.ADD_REMOVE, Domain.ANY).run(
            60, (2,), np.random.default_rng(0)
        )
        assert seen == {"nan", "inf"}
