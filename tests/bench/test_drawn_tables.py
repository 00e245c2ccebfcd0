"""Random tables of numbers, levels and missing values, and the searches without privacy that stand beside them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.stats import kstest

from dagveil.data.column import OWN_LEVEL, PAIRWISE, Categorical, Ordinal
from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.errors import MethodError
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.methods.measure_mixed import is_mixed
from dagveil_bench.drawn_tables import (
    COMPLETE,
    MOST_PARENTS,
    check_drawn,
    choose_missing,
    declare_mixed,
    draw_graph,
    draw_mixed,
    draw_table,
)
from dagveil_bench.exact_searches import ChiSquare, ConditionalGaussian, Pillai, search_exactly
from dagveil_bench.studies.datasets import sample_source


def test_half_of_the_columns_are_numbers_of_variance_one() -> None:
    rng = np.random.default_rng(1)
    dag = draw_graph(10, rng)
    assert all(len(dag.parents(name)) <= MOST_PARENTS for name in dag.nodes)
    drawn = draw_mixed(dag, 2000, True, rng)
    numbers = [column for column in drawn.values() if column.dtype.kind == "f"]
    assert len(numbers) == 5
    assert [float(column.std()) for column in numbers] == pytest.approx([1.0] * 5)
    assert is_mixed(declare_mixed(drawn, 2000, None))
    assert not is_mixed(declare_mixed(drawn, 2000, 3))


def test_a_network_is_the_same_at_all_rows() -> None:
    few, many = (
        draw_mixed(draw_graph(10, np.random.default_rng(2)), rows, True, np.random.default_rng(3))
        for rows in (4000, 40000)
    )
    for name, column in few.items():
        assert column.dtype == many[name].dtype
        if column.dtype.kind == "f":
            assert np.corrcoef(column, few["c1"])[0, 1] == pytest.approx(
                np.corrcoef(many[name], many["c1"])[0, 1], abs=0.06
            )
        else:
            shares = [np.bincount(codes, minlength=4) / len(codes) for codes in (column, many[name])]
            assert shares[0] == pytest.approx(shares[1], abs=0.04)


@pytest.mark.parametrize(("first", "second"), [("mixed 10", "mixed 10 3"), ("ordinal-bent 10", "unordered-bent 10")])
def test_rows_do_not_depend_on_what_is_declared(first: str, second: str) -> None:
    drawn = [draw_table(source, 500, np.random.default_rng(1)) for source in (first, second)]
    assert drawn[0].rows.equals(drawn[1].rows)
    assert drawn[0].dag == drawn[1].dag
    assert drawn[0].schema != drawn[1].schema


def test_levels_are_declared_in_order_or_not() -> None:
    for source, kind in (("ordinal 10", Ordinal), ("unordered 10", Categorical)):
        columns = draw_table(source, 500, np.random.default_rng(1)).schema.columns.values()
        assert all(isinstance(column, kind) and 2 <= column.n_levels <= 10 for column in columns)


@pytest.mark.parametrize("mechanism", ["MCAR", "MAR"])
def test_three_quarters_of_the_columns_lose_about_the_share_wanted(mechanism: str) -> None:
    rows = draw_table("mixed 10", 5000, np.random.default_rng(1)).rows
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    gone = choose_missing(columns, mechanism, 0.3, np.random.default_rng(1))
    assert len(gone) == 8
    assert all(0.12 < chosen.mean() < 0.48 for chosen in gone.values())
    assert np.mean([chosen.mean() for chosen in gone.values()]) == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("network", ["cancer", "mixed"])
def test_what_is_left_of_the_rows_is_the_same_whatever_is_said_of_missing_values(network: str) -> None:
    whole, *others = (
        draw_table(f"missing {network} MAR 0.3 {way}", 500, np.random.default_rng(1))
        for way in (COMPLETE, OWN_LEVEL, PAIRWISE)
    )
    assert others[0].rows.equals(others[1].rows)
    for name in whole.rows.column_names:
        left = others[0].rows[name]
        said = {drawn.schema.columns[name].missing for drawn in others}
        assert said == ({OWN_LEVEL, PAIRWISE} if left.null_count else {whole.schema.columns[name].missing})
        assert left.filter(left.is_valid()).equals(whole.rows[name].filter(left.is_valid()))
    table, dag = sample_source(f"missing {network} MAR 0.3 {PAIRWISE}", 500, np.random.default_rng(1))
    assert (table.n_rows, dag) == (500, whole.dag)


@pytest.mark.parametrize(
    "source", ["mixed", "mixed 5", "mixed 10 3 1", "ordinal ten", "missing asia MNAR 0.1 pairwise", "missing"]
)
def test_what_cannot_be_drawn_is_refused_with_an_example(source: str) -> None:
    with pytest.raises(MethodError, match=r"needs .*: '"):
        check_drawn(source)


def test_likelihood_ratios_of_numbers_beside_levels_keep_their_level_and_see_effects() -> None:
    p_values, power = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        group = rng.integers(3, size=500)
        noise = rng.standard_normal((3, 500))
        columns = {"g": group, "x": group + noise[0], "y": group + noise[1], "z": (noise[0] + noise[2] > 0).astype(int)}
        test = ConditionalGaussian(columns)
        p_values.append(test.p_value(("x", "y", ("g",))))
        power.append(test.p_value(("x", "z", ("g",))))
    assert kstest(p_values, "uniform").pvalue > 0.001
    assert np.mean(np.array(power) < 0.01) > 0.9


def test_a_chi_square_test_keeps_its_level_given_another_column() -> None:
    p_values = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        z = rng.integers(3, size=600)
        x, y = ((rng.random(600) < (1 + z) / 5).astype(int) for _ in range(2))
        p_values.append(ChiSquare({"x": x, "y": y, "z": z}).p_value(("x", "y", ("z",))))
    assert kstest(p_values, "uniform").pvalue > 0.001


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("PC, conditional Gaussian", "mixed 10"),
        ("PC, conditional Gaussian", "missing mixed MAR 0.3 pairwise"),
        ("PC, χ²", "missing child MAR 0.3 pairwise"),
    ],
)
def test_searches_without_privacy_find_most_of_a_graph(name: str, source: str) -> None:
    drawn = draw_table(source, 4000, np.random.default_rng(1))
    found = search_exactly(name, drawn.rows, {"level": 0.001, "largest": 2})
    assert skeleton_f1(found, drawn.dag) > 0.7


def test_mvpc_finds_a_graph() -> None:
    pytest.importorskip("causallearn")
    drawn = draw_table("missing mixed MCAR 0.1 pairwise", 3000, np.random.default_rng(1))
    assert 0.3 < skeleton_f1(search_exactly("MVPC", drawn.rows, {"most_rows": 2000}), drawn.dag) <= 1.0


def test_pillai_sees_an_effect_and_no_other() -> None:
    pytest.importorskip("pgmpy")
    rng = np.random.default_rng(1)
    x = rng.standard_normal(300)
    test = Pillai({"x": x, "y": (x + rng.standard_normal(300) > 0).astype(int), "z": rng.standard_normal(300)})
    assert test.p_value(("x", "y", ())) < 1e-6
    assert test.p_value(("z", "y", ())) > 0.01


def test_a_setting_that_no_search_has_is_refused() -> None:
    with pytest.raises(MethodError, match="there are level, largest, most_rows"):
        search_exactly("PC, χ²", draw_table("mixed 10", 10, np.random.default_rng(1)).rows, {"levels": 0.1})


def test_plans_travel_to_other_processes() -> None:
    plan = MixedPlan(("a",), (3,), ("x",), (0.0,), (1.0,), (2,), 2.0, 1.0, 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert pickle.loads(pickle.dumps(MixedPairs(plan, (("a", "x"),)))).rows == MixedPairs(plan, (("a", "x"),)).rows
