"""Random networks of numbers and levels: what is drawn, and the page that compares ways to measure them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.methods.measure_mixed import is_mixed
from dagveil_bench.mixed import (
    ANCHORS,
    EPSILONS,
    MATRIX,
    MOST_PARENTS,
    Case,
    Score,
    declare,
    draw_graph,
    draw_rows,
    list_cases,
    mixed_page,
    run_case,
)
from dagveil_bench.mixed_anchors import ConditionalGaussian, Pillai


def test_half_of_the_columns_are_numbers_of_variance_one() -> None:
    rng = np.random.default_rng(1)
    dag = draw_graph(10, rng)
    assert all(len(dag.parents(name)) <= MOST_PARENTS for name in dag.nodes)
    drawn = draw_rows(dag, 2000, True, rng)
    numbers = [column for column in drawn.values() if column.dtype.kind == "f"]
    assert len(numbers) == 5
    assert [float(column.std()) for column in numbers] == pytest.approx([1.0] * 5)
    assert is_mixed(declare(drawn, 2000, None))
    assert not is_mixed(declare(drawn, 2000, 3))


def test_a_case_scores_its_graph() -> None:
    skeleton, marked = run_case(Case(10, 5000, False, 10.0, MATRIX, 1))
    assert skeleton > 0.7
    assert 0.0 <= marked <= skeleton


def test_the_page_has_every_cell_and_the_means() -> None:
    cases = list(list_cases(2, 1, (MATRIX, "3 bins", *ANCHORS), (10,), (2000, 3000)))
    found: dict[tuple[Any, ...], Score] = {}
    for c in cases:
        falls = c.rows == 3000 and c.way == MATRIX and c.epsilon == 10.0
        score = found.setdefault((c.columns, c.rows, c.curved, c.epsilon, c.way), Score())
        score.skeleton.append(0.4 if falls else 0.5)
        score.marked.append(0.25)
    page = mixed_page(found, 2, "dagveil bench mixed")
    in_cells, without_noise, falling = 4 * 2 * len(EPSILONS), 4 * 3 + 2, 2
    assert page.count("0.50 / 0.25") == in_cells + without_noise - falling
    assert page.count("0.500 ± 0.000 / 0.250 ± 0.000") == 2 * len(EPSILONS) - 1 + 3
    assert "falls in 4 of 14 steps" in page
    assert page.count("-0.100 ± 0.000") == 4


def test_a_network_is_the_same_at_all_rows() -> None:
    few, many = (
        draw_rows(draw_graph(10, np.random.default_rng(2)), rows, True, np.random.default_rng(3))
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


@pytest.mark.parametrize("way", ["no noise", "conditional Gaussian"])
def test_anchors_find_most_of_a_graph(way: str) -> None:
    assert run_case(Case(10, 5000, False, 0.0, way, 1))[0] > 0.8


def test_pillai_sees_an_effect_and_no_other() -> None:
    pytest.importorskip("pgmpy")
    rng = np.random.default_rng(1)
    x = rng.standard_normal(300)
    test = Pillai({"x": x, "y": (x + rng.standard_normal(300) > 0).astype(int), "z": rng.standard_normal(300)})
    assert test.p_value(("x", "y", ())) < 1e-6
    assert test.p_value(("z", "y", ())) > 0.01


def test_plans_travel_to_other_processes() -> None:
    plan = MixedPlan(("a",), (3,), ("x",), (0.0,), (1.0,), (2,), 2.0, 1.0, 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert pickle.loads(pickle.dumps(MixedPairs(plan, (("a", "x"),)))).rows == MixedPairs(plan, (("a", "x"),)).rows
