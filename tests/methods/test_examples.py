"""Small examples of what the functions of methods/ return."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.methods import measure_features
from dagveil.methods.curate import allocate
from dagveil.methods.measure import MOMENT_SEARCH, fit_levels, prefers_joint, scale_levels
from dagveil.methods.measure_moments import BITS, choose_radius, describe_coarse_bits, spread_of
from dagveil.methods.measure_notears import widen_levels
from dagveil.methods.method import method_named, method_origin, read_plugins
from dagveil.methods.noleaks import Schedule, describe_direction, epsilon_at, iterations_allowed, shares
from dagveil.methods.pcd import default_penalty
from dagveil.methods.regressions import ReleasedFunctions
from dagveil.privacy.budget import Budget
from dagveil.privacy.release import NoisyMagnitudes


def test_read_plugins() -> None:
    assert read_plugins("dagveil.nothing", lambda name, found: found).names == ()


def test_method_named() -> None:
    assert method_named("measure").cost == "one to three releases"


def test_method_origin() -> None:
    assert method_origin("measure") is None


def test_allocate() -> None:
    found = allocate([10, 60], 1.0, [0, 0], 100.0, (0.2, 0.2), (1.0, 1.0))
    assert (bool(found[0] >= found[1] >= 0), bool((np.array([10, 60]) * found**2).sum() <= 1.0)) == (True, True)


def test_scale_levels() -> None:
    assert scale_levels(Boolean(outside="false"), np.array([0.5, 0.5])) == (0.5, 0.5)


def test_fit_levels() -> None:
    assert [fit_levels(MOMENT_SEARCH, columns).conditional_level for columns in (8, 40, 1000)] == [0.01, 0.01, 0.0004]


def test_prefers_joint() -> None:
    columns = {name: Boolean(outside="false") for name in "abcdefghijkl"}
    small = Schema(dataset="few", columns={name: columns[name] for name in "abcd"}, reviewed=True)
    assert [
        prefers_joint(Budget.of(1, 1e-6), schema) for schema in (small, Schema(dataset="many", columns=columns))
    ] == [True, False]


def test_choose_degree() -> None:
    assert [measure_features.choose_degree(20, rows, 0.05) for rows in (1000, 50_000, 1_000_000)] == [1, 2, 3]


def test_choose_radius_of_features() -> None:
    assert (measure_features.choose_radius(40, 1000, 0.05), measure_features.choose_radius(40, 10**8, 0.05)) == (
        0.75,
        2.0,
    )


def test_describe_coarse_bits() -> None:
    assert describe_coarse_bits(BITS) == ""


def test_choose_radius() -> None:
    assert (choose_radius(20, 1000, 0.05), choose_radius(3, 1_000_000, 0.05)) == (15.0, 18.0)


def test_spread_of() -> None:
    size = NoisyMagnitudes("x", 0.0, -1, 1, Fraction(1), (500, 500, 0))
    assert round(spread_of(size, 100.0), 2) == 0.74


def test_widen_levels() -> None:
    assert (widen_levels(Boolean(outside="false"), 0.5, 0.5), widen_levels(Boolean(outside="false"), 0.04, 0.2)) == (
        (0.5, 0.8),
        (0.04, 0.48),
    )


def test_epsilon_at() -> None:
    assert [round(epsilon_at(Schedule.MULTIPLICATIVE, 0.1, k, 4), 4) for k in range(4)] == [0.1, 0.0562, 0.0316, 0.0178]


def test_iterations_allowed() -> None:
    assert (
        round(iterations_allowed(Schedule.ADDITIVE, 1.0, 0.1), 2),
        round(iterations_allowed(Schedule.UNIFORM, 1.0, 0.1)),
    ) == (7.0, 10)


def test_shares() -> None:
    assert [round(share, 3) for share in shares(Schedule.ADDITIVE, 0.1, 2)] == [0.308, 0.692]


def test_tell_direction() -> None:
    assert (
        describe_direction(Schedule.MULTIPLICATIVE, 0.1)
        == "Later iterations get less budget than earlier ones: this schedule falls for an initial epsilon below 1."
    )


def test_default_penalty() -> None:
    assert round(default_penalty(10_000), 6) == 0.001


def test_released_functions() -> None:
    functions = ReleasedFunctions(("x", "y"), np.array([0.0, 0.5]), np.array([[1.0, 0.6], [0.6, 1.0]]), 0.0)
    assert (round(functions.function("y", ()).constant, 3), round(functions.function("y", ("x",)).series[0][0], 3)) == (
        0.289,
        0.599,
    )
