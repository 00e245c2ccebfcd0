"""Small examples of what the functions of statistics/ return."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dagveil.data.moments import MomentPlan
from dagveil.privacy.budget import Relation
from dagveil.statistics import g, kendall
from dagveil.statistics.chi_square import ChiSquare
from dagveil.statistics.contingency import (
    centre_counts,
    counts_sensitivity,
    counts_squared_sensitivity,
    interactions_squared_sensitivity,
    margins_squared_sensitivity,
    split_cliques,
)
from dagveil.statistics.distance import ExactDistance, exact_distance
from dagveil.statistics.g import GRID, G, MutualInformation, chi_square_quantile, tabulate_entropy
from dagveil.statistics.gcm import gcm_p_value, gcm_sensitivities, gcm_sums
from dagveil.statistics.kendall import Kendall, count_concordance, normal_quantile
from dagveil.statistics.kernels import (
    factor_gram,
    gaussian_gram,
    kernel_features,
    median_bandwidth,
    paired_root_hsic_sensitivity,
    root_hsic,
    root_hsic_sensitivity,
)
from dagveil.statistics.moments import moments_squared_sensitivity
from dagveil.statistics.reconciled import PartTest, Reconciled, part_p_values, part_statistics, votes
from dagveil.statistics.residuals import (
    find_midranks,
    residual_rank_score,
    residual_rank_sensitivity,
    residual_sensitivity,
    ridge_residuals,
    ridge_residuals_by_features,
)
from dagveil.statistics.spearman import Spearman, sum_rank_products
from dagveil.statistics.statistic import TableShape, statistic_named
from slow_twins import exact_gcm, exact_hsic, one_sided_p_value_slope


def test_chi_square() -> None:
    assert int(ChiSquare(100).values(np.array([[[30, 20], [20, 30]]]))) / kendall.GRID == 4.0


def test_chi_square_sensitivity() -> None:
    assert ChiSquare(1000).sensitivity(Relation.ADD_REMOVE, TableShape(1, 2, 2)) // kendall.GRID == 1000


def test_counts_squared_sensitivity() -> None:
    assert (
        counts_squared_sensitivity(Relation.ADD_REMOVE, 28),
        counts_squared_sensitivity(Relation.REPLACE_ONE, 28),
    ) == (Fraction(28, 1), Fraction(56, 1))


def test_counts_sensitivity() -> None:
    assert (counts_sensitivity(Relation.ADD_REMOVE, 1), counts_sensitivity(Relation.REPLACE_ONE, 1)) == (1, 2)


def test_centre_counts() -> None:
    assert (centre_counts(np.array([[[3, 0], [0, 1]]])).tolist(), centre_counts(np.array([[3, 1]])).tolist()) == (
        [[[4, -4], [-4, 4]]],
        [[2, -2]],
    )


def test_margins_squared_sensitivity() -> None:
    assert [str(margins_squared_sensitivity(relation, [2, 2, 3])) for relation in Relation] == ["8/3", "6"]


def test_interactions_squared_sensitivity() -> None:
    pairs, levels = [("a", "b"), ("a", "c"), ("b", "c")], {"a": 2, "b": 2, "c": 2}
    assert [str(interactions_squared_sensitivity(relation, pairs, levels)) for relation in Relation] == ["3/4", "2"]


def test_split_cliques() -> None:
    assert split_cliques({"c": 0b1110, "a": 0b0101, "b": 0b0011, "d": 0b0001}) == [["c", "a", "b"], ["c", "d"]]


def test_exact_distance() -> None:
    assert repr(ExactDistance(0.1, Kendall(100)).values(np.array([[[25, 25], [25, 25]]]))) == "array(4)"


def test_exact_distance2() -> None:
    assert (
        exact_distance(np.array([[25, 25], [25, 25]]), 2.706),
        exact_distance(np.array([[30, 20], [20, 30]]), 2.706),
    ) == (13, -4)


def test_tabulate_entropy() -> None:
    table = tabulate_entropy(100)
    assert (table.look_up(np.array([1, 10, 100])) / g.GRID).round(3).tolist() == [0.0, 46.052, 921.034]


def test_g() -> None:
    assert round(float(G(100).values(np.array([[[30, 20], [20, 30]]]))) / g.GRID, 3) == 4.027


def test_g_sensitivity() -> None:
    assert [round(G(100_000).sensitivity(relation, TableShape(3, 2, 2)) / g.GRID, 2) for relation in Relation] == [
        25.03,
        50.05,
    ]


def test_chi_square_quantile() -> None:
    assert round(chi_square_quantile(0.05, TableShape(1, 2, 2)), 3) == 3.841


def test_mutual_information() -> None:
    steps = float(MutualInformation(100).values(np.array([[[50, 0], [0, 50]]])))
    assert round(steps / GRID / (2 * 100), 4) == 0.6931


def test_gcm_sums() -> None:
    assert gcm_sums(np.array([1.0, 3.0]), np.array([0.5, -1.0]), bound=2.0) == (-1.5, 4.25)


def test_gcm_sensitivities() -> None:
    assert gcm_sensitivities(100, 2.0) == (8.0, 16.0)


def test_gcm_p_value() -> None:
    assert (round(gcm_p_value(20.0, 100.0, 100, 0.0, 0.0), 4), round(gcm_p_value(20.0, 80.0, 100, 20.0, 0.0), 4)) == (
        0.0455,
        0.0462,
    )


def test_exact_gcm() -> None:
    signs = np.tile([1.0, -1.0], 50)
    assert (exact_gcm(signs, np.repeat([1.0, -1.0], 50)), exact_gcm(signs, signs) < 1e-20) == (1.0, True)


def test_root_hsic() -> None:
    signs = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    assert repr(root_hsic(signs, signs, np.array([[0, 2, 1, 3]]))) == "array([1., 0.])"


def test_root_hsic_sensitivity() -> None:
    features = kernel_features(0.25, 2.0)
    assert round(1000 * root_hsic_sensitivity(1000, features, features), 3) == 3.996


def test_paired_root_hsic_sensitivity() -> None:
    features = kernel_features(0.25, 2.0)
    assert round(1000 * paired_root_hsic_sensitivity(1000, features, features), 3) == 2.447


def test_exact_hsic() -> None:
    assert round(exact_hsic(np.eye(3), np.eye(3)), 3) == 0.5


def test_kendall() -> None:
    assert repr(Kendall(100).values(np.array([[[30, 20], [20, 30]]]))) == "array(22478)"


def test_kendall_sensitivity() -> None:
    assert [Kendall(100).sensitivity(relation, TableShape(3, 2, 2)) / kendall.GRID for relation in Relation] == [
        4.5,
        9.0,
    ]


def test_count_concordance() -> None:
    assert repr(count_concordance(np.array([[2, 0, 0], [0, 0, 3]]))) == "array(6)"


def test_normal_quantile() -> None:
    assert round(normal_quantile(0.05), 3) == 1.96


def test_kernel_features_map() -> None:
    features = kernel_features(0.5, 2.0).map(np.array([-1.0, 0.25, 1.0]))
    assert (
        repr(np.round(features @ features.T, 3))
        == "array([[1.   , 0.044, 0.   ],\n       [0.044, 1.   , 0.325],\n       [0.   , 0.325, 1.   ]])"
    )


def test_kernel_features() -> None:
    features = kernel_features(bandwidth=0.5, reach=2.0)
    assert (2 * len(features.frequencies) - 1, round(features.diameter**2, 3)) == (19, 1.999)


def test_median_bandwidth() -> None:
    assert round(median_bandwidth(np.array([[0.0], [1.0], [3.0]])), 6) == 2.0


def test_gaussian_gram() -> None:
    assert (
        repr(np.round(gaussian_gram(np.array([[0.0], [1.0]]), 1.0), 3))
        == "array([[1.   , 0.607],\n       [0.607, 1.   ]])"
    )


def test_factor_gram() -> None:
    assert factor_gram(np.linspace(-1, 1, 500)[:, None], 0.5).shape == (500, 14)


def test_moments_squared_sensitivity() -> None:
    plan = MomentPlan(columns=("x",), centers=(0.0,), spreads=(1.0,), radius_squared=3.0, constant=1.0, bits=0)
    assert (
        moments_squared_sensitivity(Relation.ADD_REMOVE, plan),
        moments_squared_sensitivity(Relation.REPLACE_ONE, plan),
    ) == (Fraction(8, 1), Fraction(16, 1))


def test_part_p_values() -> None:
    assert part_p_values(np.array([[[[30, 10], [10, 30]]], [[[0, 0], [0, 5]]]]), PartTest.CHI_SQUARE).round(
        6
    ).tolist() == [8e-06, 1.0]


def test_votes() -> None:
    assert votes(np.array([[[[30, 10], [10, 30]]], [[[20, 20], [20, 20]]]]), PartTest.G, 0.01) == 1


def test_part_statistics() -> None:
    assert part_statistics(np.array([[[[20, 20], [20, 20]]], [[[40, 0], [0, 40]]]]), PartTest.G).tolist() == [
        1048576,
        0,
    ]


def test_reconciled() -> None:
    assert Reconciled(PartTest.G, 40).name == "reconciled-g"


def test_reconciled_critical_value() -> None:
    assert Reconciled(PartTest.G, 40).critical_value(0.01, 10_000, None) == 6.5


def test_ridge_residuals() -> None:
    rows = np.linspace(-1, 1, 50)
    assert float(np.abs(ridge_residuals(rows[:, None], np.sin(3 * rows), 1e-4, 0.5)).max()) < 0.05


def test_ridge_residuals_by_features() -> None:
    rows = np.linspace(-1, 1, 50)
    assert float(np.abs(ridge_residuals_by_features(rows[:, None], np.sin(3 * rows), 1e-4, 0.5)).max()) < 0.05


def test_residual_sensitivity() -> None:
    assert round(residual_sensitivity(1000, 1.0), 5) == 0.0068


def test_residual_rank_score() -> None:
    assert residual_rank_score(np.array([-1.0, -0.5, 0.5, 1.0]), np.zeros(4)) == 0.0


def test_residual_rank_sensitivity() -> None:
    assert residual_rank_sensitivity(1000) == 0.011988


def test_find_midranks() -> None:
    assert find_midranks(np.array([0.5, 0.1, 0.5])).tolist() == [2.5, 1.0, 2.5]


def test_spearman() -> None:
    assert int(Spearman(100).values(np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]))) / kendall.GRID == 2.0


def test_spearman_sensitivity() -> None:
    assert [Spearman(100).sensitivity(relation, TableShape(3, 4, 4)) // kendall.GRID for relation in Relation] == [
        5,
        10,
    ]


def test_sum_rank_products() -> None:
    assert repr(sum_rank_products(np.array([[2, 0], [0, 3]]))) == "array(30)"


def test_table_shape() -> None:
    assert TableShape(strata=4, x_levels=2, y_levels=3) == TableShape(strata=4, x_levels=2, y_levels=3)


def test_statistic_named() -> None:
    assert statistic_named("kendall", 1000) == Kendall(nominal_rows=1000)


def test_one_sided_p_value_slope() -> None:
    assert round(one_sided_p_value_slope(), 4) == 0.3989
