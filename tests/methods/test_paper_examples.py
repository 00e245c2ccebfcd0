"""Small examples of what the functions of papers/ return."""

from __future__ import annotations

import math

import numpy as np

from dagveil.papers.bhattacharjee2024 import published_p_value_constant, solve_opt
from dagveil.papers.publication import (
    advanced_composition,
    g_p_value,
    published_p_value_sensitivity,
    published_p_values,
    readings_of,
)
from dagveil.papers.spirtes2000 import chi_square_p_value
from dagveil.papers.wang2020 import SparseVector, optimal_rate, program_rate
from dagveil.papers.xu2017 import JointTests, greedy_distance, number_scores
from dagveil.papers.zhang2023 import (
    Rcit,
    RcitSettings,
    exact_rcit,
    feature_rcit,
    kendall_p_value,
    published_hsic_bound,
    published_p_value_range,
    published_residual_bound,
    published_residual_hsic_bound,
)
from published_bounds import (
    PublishedLaw,
    error_bound,
    most_tests,
    published_conditional_kendall_sensitivity,
    published_constants,
    published_median_noise,
    sieve_and_examine,
    type_one_bound,
    type_two_bound,
)


def test_published_p_value_constant() -> None:
    assert [round(published_p_value_constant(block), 3) for block in (2, 10)] == [0.513, 0.042]


def test_error_bound() -> None:
    assert round(error_bound(0.1, 100.0, 0.2, 0.1), 4) == 0.1177


def test_solve_opt() -> None:
    found = solve_opt([10, 30, 30, 10], 1.0, 1e-12, 100.0, (0.2, 0.2), (1.0, 1.0))
    assert [round(float(epsilon), 4) for epsilon in found] == [0.0336, 0.0019, 0.0019, 0.0019]


def test_published_p_values() -> None:
    assert round(float(published_p_values(np.array([[[30, 20], [20, 30]]]))), 4) == 0.0682


def test_published_p_value_sensitivity() -> None:
    assert round(published_p_value_sensitivity(100_000), 5) == 0.00757


def test_g_p_value() -> None:
    assert round(g_p_value(np.array([[[30, 20], [20, 30]]])), 4) == 0.0448


def test_advanced_composition() -> None:
    assert round(advanced_composition(0.1, 10, 1e-3), 3) == 1.281


def test_readings_of() -> None:
    assert ([reading.value for reading in readings_of("pcd")], dict(readings_of("measure"))) == (["paper"], {})


def test_chi_square_p_value() -> None:
    assert round(chi_square_p_value(np.array([[[30, 20], [20, 30]]])), 4) == 0.0455


def test_published_conditional_kendall_sensitivity() -> None:
    assert round(published_conditional_kendall_sensitivity(100_001, 1), 5) == 0.01423
    assert round(published_conditional_kendall_sensitivity(100_001, 1, 10) * 100_000**0.5, 2) == 5.37


def test_sparse_vector() -> None:
    assert SparseVector(0.0, 8, 1.0, 0.0, 1.0, np.random.default_rng(0)).scale == 16.0


def test_optimal_rate() -> None:
    assert (round(optimal_rate(0.1), 2), round(optimal_rate(3.0), 2)) == (0.05, 0.89)


def test_program_rate() -> None:
    assert (round(program_rate(0.1), 2), round(program_rate(10.0), 2), round(optimal_rate(10.0), 2)) == (
        0.05,
        0.05,
        1.0,
    )


def test_type_one_bound() -> None:
    assert round(type_one_bound(1.0, 1.0, 20.0, 4.0, 1.0), 4) == 0.0183


def test_type_two_bound() -> None:
    assert round(type_two_bound(1.0, 1.0, 6.0, 4.0, 1.0), 4) == 0.0146


def test_sieve_and_examine() -> None:
    rng = np.random.default_rng(0)
    assert sieve_and_examine([0.1, 0.9, 0.2], [0.1, 0.8, 0.3].__getitem__, 0.5, 0.1, 0.25, 1e6, 1.0, rng) == 1


def test_published_constants() -> None:
    assert published_constants(PublishedLaw.LAPLACE, 1.0, math.exp(-14)) == (0.5, 7.0)


def test_published_median_noise() -> None:
    rng = np.random.default_rng(1)
    assert published_median_noise([3, 4, 4], 0, 10, 1.0, 1e-6, PublishedLaw.LAPLACE, rng) != 0


def test_greedy_distance() -> None:
    assert [greedy_distance(np.array([table]), 2.706) for table in ([[30, 20], [20, 30]], [[25, 25], [25, 25]])] == [
        -4,
        13,
    ]


def test_most_tests() -> None:
    assert (most_tests(5, 1), 5**2 * 4**0) == (100, 25)


def test_number_scores() -> None:
    assert number_scores([5, 2, -3]) == [-5, -2, 1, -3]


def test_joint_tests() -> None:
    assert round(JointTests(np.array([[30.0, 20.0], [20.0, 30.0]])).p_value(0, 1, []), 4) == 0.0448


def test_exact_rcit() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    assert exact_rcit(x, x**2, None, RcitSettings(), rng).p_value == 0.0


def test_feature_rcit() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    assert feature_rcit(x, x**2, None, RcitSettings(), rng).p_value == 0.0


def test_published_hsic_bound() -> None:
    assert round(published_hsic_bound(1000), 4) == 0.012


def test_published_residual_hsic_bound() -> None:
    assert round(published_residual_hsic_bound(1000, 1.0, 0.5, 0.5), 5) == 0.00205


def test_published_residual_bound() -> None:
    assert published_residual_bound(400, 1.0) == 0.02


def test_published_p_value_range() -> None:
    answer = Rcit(0.5, 0.1, np.array([0.01, 0.05, 0.2, 0.3]), 0.5, 0.5, 0)
    assert published_p_value_range(answer, 1000, RcitSettings()) == (0.5, 0.5)


def test_kendall_p_value() -> None:
    numbers = np.arange(9.0)
    assert (round(kendall_p_value(numbers, -numbers, None), 6), kendall_p_value(numbers, numbers, numbers)) == (
        8.7e-05,
        None,
    )
