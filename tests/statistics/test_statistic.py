"""The contract of every plug-in statistic, above all: no neighbour that a search can find exceeds the sensitivity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from neighbours import TINY, Shape, changes, largest_change, largest_change_of_all
from scipy.stats import norm

from dagveil.errors import EvidenceError
from dagveil.privacy.budget import Relation
from dagveil.statistics.statistic import STATISTIC_NAMES, TableShape, statistic_named
from slow_twins import one_sided_p_value_slope

LARGE: list[Shape] = [(1, 2, 2), (2, 2, 2), (1, 2, 3), (2, 3, 2), (1, 3, 3), (3, 3, 4)]


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("name", STATISTIC_NAMES)
class TestSensitivity:
    @pytest.mark.parametrize("nominal_rows", [1, 3, 8, 1000])
    @pytest.mark.parametrize(("shape", "most_rows"), TINY)
    def test_no_small_neighbour_exceeds_it(
        self, name: str, relation: Relation, shape: Shape, most_rows: int, nominal_rows: int
    ) -> None:
        statistic = statistic_named(name, nominal_rows)
        found = largest_change_of_all(statistic.values, shape, most_rows, relation)
        assert found <= statistic.sensitivity(relation, TableShape(*shape))

    @pytest.mark.parametrize("n_rows", [30, 3000])
    @pytest.mark.parametrize("shape", LARGE)
    def test_the_search_comes_close_and_stays_below(
        self, name: str, relation: Relation, shape: Shape, n_rows: int
    ) -> None:
        statistic = statistic_named(name, n_rows)
        found = largest_change(statistic.values, shape, n_rows, relation, np.random.default_rng(1))
        bound = statistic.sensitivity(relation, TableShape(*shape))
        assert found <= bound
        if n_rows == 3000:
            # the range of χ² with more than two levels is not crossed by one record: half of it is
            loose = name == "chi-square" and min(shape[1:]) > 2
            assert found >= (0.45 if loose else 0.8) * bound

    @pytest.mark.parametrize("shape", [(1, 2, 2), (1, 3, 3), (2, 2, 3)])
    def test_more_rows_than_the_nominal_number_are_safe(self, name: str, relation: Relation, shape: Shape) -> None:
        statistic = statistic_named(name, 50)
        for n_rows in (60, 500, 20_000):
            found = largest_change(statistic.values, shape, n_rows, relation, np.random.default_rng(2), starts=2)
            assert found <= statistic.sensitivity(relation, TableShape(*shape))

    def test_constant_columns_have_a_positive_sensitivity(self, name: str, relation: Relation) -> None:
        statistic = statistic_named(name, 50)
        assert statistic.sensitivity(relation, TableShape(2, 1, 3)) >= 1
        assert largest_change_of_all(statistic.values, (2, 1, 3), 5, relation) == 0

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_random_cores(self, name: str, relation: Relation, data: st.DataObject) -> None:
        shape = data.draw(st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(2, 4)))
        most = data.draw(st.sampled_from([2, 20, 5000, 10**6]))
        core = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, most)))
        statistic = statistic_named(name, data.draw(st.sampled_from([1, 10, 5000])))
        change = changes(statistic.values, core[None], relation)[0]
        assert change <= statistic.sensitivity(relation, TableShape(*shape))


@pytest.mark.parametrize("name", STATISTIC_NAMES)
class TestContract:
    def test_values_are_whole_numbers_of_at_least_nothing(self, name: str) -> None:
        tables = np.random.default_rng(3).integers(0, 40, (7, 5, 3, 2, 4))
        values = statistic_named(name, 900).values(tables)
        assert values.shape == (7, 5)
        assert values.dtype == np.int64
        assert values.min() >= 0

    def test_a_batch_is_its_tables_one_by_one(self, name: str) -> None:
        statistic = statistic_named(name, 900)
        for levels in ((2, 2), (3, 4)):
            tables = np.random.default_rng(4).integers(0, 40, (9, 2, *levels))
            assert statistic.values(tables).tolist() == [int(statistic.values(table)) for table in tables]

    def test_nothing_and_single_rows_are_no_dependence(self, name: str) -> None:
        statistic = statistic_named(name, 900)
        tables = np.zeros((2, 3, 2, 3), dtype=np.int64)
        tables[1, :, 1, 2] = 1
        assert statistic.values(tables).tolist() == [0, 0]

    def test_other_integer_types_give_the_same(self, name: str) -> None:
        statistic = statistic_named(name, 900)
        tables = np.random.default_rng(5).integers(0, 200, (6, 2, 3, 3))
        for kind in (np.uint8, np.int32, np.uint32):
            np.testing.assert_array_equal(statistic.values(tables.astype(kind)), statistic.values(tables))

    def test_neither_exchange_of_the_columns_nor_reversal_matters(self, name: str) -> None:
        statistic = statistic_named(name, 900)
        tables = np.random.default_rng(6).integers(0, 30, (40, 2, 3, 4))
        np.testing.assert_array_equal(statistic.values(tables), statistic.values(np.swapaxes(tables, -1, -2)))
        np.testing.assert_array_equal(statistic.values(tables), statistic.values(tables[..., ::-1, :]))

    def test_it_bears_its_name(self, name: str) -> None:
        assert statistic_named(name, 900).name == name

    def test_only_chi_square_refuses_noise(self, name: str) -> None:
        for relation in Relation:
            refusal = statistic_named(name, 900).refusal(relation)
            assert (refusal is not None) == (name == "chi-square")

    @pytest.mark.parametrize("shape", [(1, 2, 2), (3, 3, 2), (2, 4, 3)])
    def test_the_critical_value_has_its_level(self, name: str, shape: Shape) -> None:
        """20 000 tables of independent columns; the deviation of the rate is 0.0015."""
        rng = np.random.default_rng(7)
        n_rows, strata = 3000, shape[0]
        p, q = rng.dirichlet(np.full(shape[1], 5.0)), rng.dirichlet(np.full(shape[2], 5.0))
        cells = np.broadcast_to(p[:, None] * q / strata, shape).reshape(-1)
        tables = rng.multinomial(n_rows, cells, size=20_000).reshape(-1, *shape)
        statistic = statistic_named(name, n_rows)
        ties = (1 - (p**3).sum()) * (1 - (q**3).sum())
        critical = statistic.critical_value(0.05, n_rows, TableShape(*shape), ties)
        assert 0.04 < float((statistic.values(tables) > critical).mean()) < 0.06

    def test_a_smaller_level_asks_for_more(self, name: str) -> None:
        statistic, shape = statistic_named(name, 900), TableShape(2, 2, 3)
        criticals = [statistic.critical_value(level, 900.0, shape) for level in (0.5, 0.1, 0.01, 1e-6)]
        assert criticals == sorted(criticals)
        assert criticals[0] > 0


def test_unknown_names_and_sizes_are_refused() -> None:
    with pytest.raises(EvidenceError, match=r"'gamma'.*kendall, spearman, g, chi-square, mutual-information"):
        statistic_named("gamma", 100)
    with pytest.raises(EvidenceError, match="at least 1"):
        statistic_named("g", 0)


def test_p_values_are_as_steep_as_stated() -> None:
    at = np.linspace(-6, 6, 200_001)
    one_sided = np.abs(np.diff(norm.sf(np.abs(at))) / np.diff(at)).max()
    assert 0.999 * one_sided_p_value_slope() < one_sided <= one_sided_p_value_slope() * (1 + 1e-9)
