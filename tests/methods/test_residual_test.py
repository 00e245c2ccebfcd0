"""The private test of residuals: level where regressions are noisy or miss interactions, power where rows allow it."""

from __future__ import annotations

from fractions import Fraction
from zlib import crc32

import numpy as np
import pytest

from dagveil.data.memory import MemoryTable
from dagveil.methods.pcd import partial_p_value, plan_residuals
from dagveil.methods.regressions import ReleasedFunctions
from dagveil.privacy.budget import Budget
from dagveil.privacy.release import NoisyMoments
from dagveil_bench.levels import TESTS, Design, design_schema, draw_design

TEST = "partial covariance of residuals"


def reject(design: Design, n_rows: int, epsilon: float, runs: int) -> int:
    rejected = 0
    for run in range(runs):
        columns = draw_design(n_rows, np.random.default_rng([31, run, n_rows, crc32(design.name.encode())]))
        noise = np.random.default_rng([31, run, crc32(f"{TEST} {epsilon:g}".encode())])
        rejected += TESTS[TEST](columns, design.question, Budget.of(epsilon, 1e-6), noise)
    return rejected


@pytest.mark.parametrize(("n_rows", "epsilon"), [(200, 0.1), (500, 1.0), (2000, 4.0), (2000, 1e6)])
@pytest.mark.parametrize("design", [Design.CONDITIONAL_NULL, Design.MARGINAL_NULL])
def test_level(design: Design, n_rows: int, epsilon: float) -> None:
    # at level 0.05 more than 11 of 60 happen once in 10⁴ such tests
    assert reject(design, n_rows, epsilon, 60) <= 11


def test_power() -> None:
    assert reject(Design.CONDITIONAL_POWER, 2000, 4.0, 10) >= 8
    assert reject(Design.MARGINAL_POWER, 500, 1.0, 10) >= 8


def test_noise_in_regressions_is_part_of_the_null() -> None:
    """The same exact moments: what is significant with good regressions is not with regressions from noise."""
    n_rows = 2000
    rng = np.random.default_rng(3)
    table = MemoryTable.from_source(draw_design(n_rows, rng), design_schema(n_rows))
    names = tuple(table.schema.columns)
    rows = np.stack([table.levelled_rows((name,), n_rows)[:, 0] for name in names], axis=1)
    features = np.stack(
        [part for column in rows.T for part in (np.sqrt(3) * column, np.sqrt(5) * (1.5 * column**2 - 0.5))], axis=1
    )
    question = ("x", "y", names[:4])
    found = {}
    for deviation in (0.001, 1.0):
        functions = ReleasedFunctions(names, features.mean(axis=0), np.cov(features.T), deviation)
        plan = plan_residuals(functions, table.schema, question)
        exact = table.outer_products(plan)
        values = tuple(int(value) for value in exact[np.triu_indices(len(exact))])
        cut = plan.rows
        release = NoisyMoments(
            cut.columns,
            cut.centers,
            cut.spreads,
            cut.radius_squared,
            cut.constant,
            cut.bits,
            Fraction(100),
            Fraction(200),
            values,
        )
        found[deviation] = partial_p_value(release, plan, functions, n_rows)
        assert found[deviation] == partial_p_value(release, plan, functions, n_rows)
    assert found[0.001] < 1e-6
    assert found[1.0] > 0.05


def test_leftovers_vanish_without_noise_and_grow_with_it() -> None:
    names = ("z", "x", "y")
    covariance = np.array([[1.0, 0.6, 0.6], [0.6, 1.0, 0.36], [0.6, 0.36, 1.0]])
    sizes = []
    for deviation in (0.0, 0.1, 0.5):
        functions = ReleasedFunctions(names, np.zeros(3), covariance, deviation)
        drawn = functions.draw_leftovers("x", "y", ("z",), 10**9, 400, np.random.default_rng(1))
        sizes.append(float(np.abs(drawn).mean()))
    assert sizes[0] < 1e-5
    assert sizes[0] < sizes[1] < sizes[2]
