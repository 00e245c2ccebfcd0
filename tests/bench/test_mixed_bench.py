"""Random networks of numbers and levels: what is drawn, and the page that compares ways to measure them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dagveil.data.mixed import MixedPairs, MixedPlan
from dagveil.methods.measure_mixed import is_mixed
from dagveil_bench.mixed import (
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
    cases = list(list_cases(1, 1, (MATRIX, "3 bins"), (10,), (2000,)))
    found = {(c.columns, c.rows, c.curved, c.epsilon, c.way): Score([0.5], [0.25]) for c in cases}
    page = mixed_page(found, 1, "dagveil bench mixed")
    assert page.count("0.50 / 0.25") == 2 * 2 * len(EPSILONS)
    assert page.count("0.500 / 0.250") == 2 * len(EPSILONS)


def test_plans_travel_to_other_processes() -> None:
    plan = MixedPlan(("a",), (3,), ("x",), (0.0,), (1.0,), (2,), 2.0, 1.0, 10)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert pickle.loads(pickle.dumps(MixedPairs(plan, (("a", "x"),)))).rows == MixedPairs(plan, (("a", "x"),)).rows
