"""Statistics of rows of numbers and of levelled rows, each with its declared sensitivity, ready to be searched."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from dagveil.audit.batches import (
    BatchMeasure,
    batch_curvatures,
    batch_feature_residuals,
    batch_features,
    batch_gradients,
    batch_magnitudes,
    batch_moments,
    batch_rank_scores,
    batch_residual_moments,
    batch_residual_products,
    batch_residual_sums,
    batch_ridge_residuals,
    batch_root_hsic,
)
from dagveil.audit.records import Domain, look_at_records
from dagveil.audit.search import AuditedStatistic, Floats, Look, Norm, join_looks
from dagveil.data.additive import AdditiveFunction
from dagveil.data.column import Numeric
from dagveil.data.features import Basis, FeaturePlan, sum_feature_products
from dagveil.data.gradients import GradientPlan, sum_curvatures, sum_gradients
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan, sum_outer_products
from dagveil.data.residuals import ResidualPlan, sum_residual_products
from dagveil.data.schema import Schema
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import counts_squared_sensitivity
from dagveil.statistics.features import feature_moments_squared_sensitivity
from dagveil.statistics.gcm import gcm_sensitivities, gcm_sums
from dagveil.statistics.gradients import curvature_squared_sensitivity, gradient_squared_sensitivity
from dagveil.statistics.hsic import paired_root_hsic_sensitivity, root_hsic, root_hsic_sensitivity
from dagveil.statistics.kernels import kernel_features
from dagveil.statistics.moments import moments_squared_sensitivity
from dagveil.statistics.residual_ranks import residual_rank_score, residual_rank_sensitivity
from dagveil.statistics.residuals import residual_sensitivity, ridge_residuals, ridge_residuals_by_features

COLUMNS: Final = 3
RADIUS_SQUARED: Final = 9.0
BITS: Final = 8
LATTICE: Final = 3

SLOTS: Final = 12
"""Levelled rows; the slot that changes is one of them."""

BANDWIDTH: Final = 0.5
"""Of all kernels."""

SLOT: Final = (Relation.REPLACE_ONE,)
"""One slot takes another value, whatever the relation."""

BOUND: Final = 2.0
"""Where residuals are cut."""

MAGNITUDE_BOUND: Final = 4.0
EXPONENTS: Final = range(-4, 4)
"""Columns that are counted by magnitude, and the powers of two that they are counted by."""

_NAMES: Final = tuple("abc")
_ROWS: Final = MomentPlan(_NAMES, (0.0,) * COLUMNS, (1.0,) * COLUMNS, RADIUS_SQUARED, 1.0, BITS)


def _triangle(matrix: np.ndarray) -> Floats:
    """Return the upper triangle; the diagonal has noise of twice the variance, so it weighs 1/√2."""
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, math.sqrt(0.5), 1.0))


def _split(rows: Floats) -> list[Floats]:
    return [np.ascontiguousarray(column) for column in rows.T]


def _sums_of_rows() -> list[AuditedStatistic]:
    features = FeaturePlan(_NAMES, (0.0,) * COLUMNS, (3.0,) * COLUMNS, Basis.LEGENDRE, 2, RADIUS_SQUARED, 1.0, BITS)
    functions = AdditiveFunction(0.1, ((0.5, -0.2),)), AdditiveFunction(-0.3, ((0.9,),))
    residuals = ResidualPlan(("b", "c"), ("a",), functions, (0.0, 0.1), (0.5, 0.4))
    return [
        AuditedStatistic(
            "second moments",
            "statistics.moments.moments_squared_sensitivity",
            look_at_records(
                lambda rows: _triangle(sum_outer_products(_split(rows), _ROWS, n_rows=len(rows))),
                COLUMNS,
                math.sqrt(RADIUS_SQUARED),
                lambda relation: math.sqrt(moments_squared_sensitivity(relation, _ROWS)),
                batch=batch_moments(_ROWS),
            ),
        ),
        AuditedStatistic(
            "second moments of features",
            "statistics.features.feature_moments_squared_sensitivity",
            look_at_records(
                lambda rows: _triangle(sum_feature_products(_split(rows), features, n_rows=len(rows))),
                COLUMNS,
                3.0,
                lambda relation: math.sqrt(feature_moments_squared_sensitivity(relation, features)),
                batch=batch_features(features),
            ),
        ),
        AuditedStatistic(
            "second moments of residuals of public functions",
            "statistics.moments.moments_squared_sensitivity",
            look_at_records(
                lambda rows: _triangle(sum_residual_products(_split(rows), residuals, n_rows=len(rows))),
                COLUMNS,
                1.0,
                lambda relation: math.sqrt(moments_squared_sensitivity(relation, residuals.rows)),
                domain=Domain.BOUNDED,  # columns come scaled to [-1, 1]
                batch=batch_residual_moments(residuals),
            ),
        ),
        AuditedStatistic(
            "sum of clipped gradients",
            "statistics.gradients.gradient_squared_sensitivity",
            join_looks([_look_at_gradients(np.zeros((3, 3))), _look_at_gradients(np.diag([2.0, 2.0, 0.0]))]),
        ),
        AuditedStatistic("sum of clipped curvatures", "statistics.gradients.curvature_squared_sensitivity", _curvature),
        AuditedStatistic(
            "counts by magnitude",
            "statistics.contingency.counts_squared_sensitivity",
            look_at_records(
                _count_magnitudes,
                2,
                MAGNITUDE_BOUND,
                lambda relation: math.sqrt(counts_squared_sensitivity(relation, 2, LATTICE)),
                batch=batch_magnitudes(MAGNITUDE_BOUND, EXPONENTS, LATTICE),
            ),
        ),
    ]


def _look_at_gradients(weights: Floats) -> Look:
    plan = GradientPlan(_ROWS, tuple(map(tuple, weights.tolist())), clip=5.0)
    return look_at_records(
        lambda rows: sum_gradients(_split(rows), plan, n_rows=len(rows)).reshape(-1).astype(np.float64),
        COLUMNS,
        math.sqrt(RADIUS_SQUARED),
        lambda relation: math.sqrt(gradient_squared_sensitivity(relation, plan)),
        batch=batch_gradients(plan),
    )


_DIRECTION: Final = np.array([[0.0, 1.0, 0.5], [0.0, 0.0, -1.0], [0.2, 0.0, 0.0]])
_curvature = look_at_records(
    lambda rows: np.array([sum_curvatures(_split(rows), _ROWS, _DIRECTION, 4.0, n_rows=len(rows))], dtype=np.float64),
    COLUMNS,
    math.sqrt(RADIUS_SQUARED),
    lambda relation: math.sqrt(curvature_squared_sensitivity(_ROWS, 4.0)),
    batch=batch_curvatures(_ROWS, _DIRECTION, 4.0),
)


def _count_magnitudes(rows: Floats) -> Floats:
    """Return the counts of two columns by powers of two, as the engine gives them."""
    columns = {name: Numeric(bounds=(-MAGNITUDE_BOUND, MAGNITUDE_BOUND)) for name in "ab"}
    schema = Schema(dataset="audit", columns=columns, reviewed=True, public=True)
    table = MemoryTable.from_source(dict(zip("ab", _split(rows), strict=True)), schema)
    counts = [table.magnitude_counts(name, 0.0, EXPONENTS) for name in "ab"]
    return LATTICE * np.concatenate(counts).astype(np.float64)


def _kernel_statistics() -> list[AuditedStatistic]:
    kernel = kernel_features(BANDWIDTH, 2.0)
    permutations = np.random.default_rng(0).permuted(np.tile(np.arange(SLOTS), (20, 1)), axis=1)
    none = permutations[:0]

    def roots(rows: Floats) -> Floats:
        return root_hsic(kernel.map(rows[:, 0]), kernel.map(rows[:, 1]), permutations)[1:]

    def root(rows: Floats) -> Floats:
        return root_hsic(kernel.map(rows[:, 0]), kernel.map(rows[:, 1]), none)

    def declare_roots(relation: Relation) -> float:
        return root_hsic_sensitivity(SLOTS, kernel, kernel)

    def declare_root(relation: Relation) -> float:
        return paired_root_hsic_sensitivity(SLOTS, kernel, kernel)

    sizes, place = (SLOTS - 1,), "statistics.hsic."
    return [
        AuditedStatistic(
            "root HSIC, permuted",
            place + "root_hsic_sensitivity",
            look_at_records(
                roots,
                2,
                1.0,
                declare_roots,
                Norm.LARGEST,
                sizes,
                Domain.BOUNDED,
                lambda tables: batch_root_hsic(kernel, permutations)(tables)[:, 1:],
            ),
            SLOT,
        ),
        AuditedStatistic(
            "root HSIC, pairs as they are",
            place + "paired_root_hsic_sensitivity",
            look_at_records(
                root, 2, 1.0, declare_root, Norm.LARGEST, sizes, Domain.BOUNDED, batch_root_hsic(kernel, none)
            ),
            SLOT,
        ),
        AuditedStatistic(
            "residual of another slot",
            "statistics.residuals.residual_sensitivity",
            join_looks(
                [
                    _look_at_residuals(ridge, twin(penalty, BANDWIDTH), penalty)
                    for ridge, twin in (
                        (ridge_residuals, batch_ridge_residuals),
                        (ridge_residuals_by_features, batch_feature_residuals),
                    )
                    for penalty in (0.1, 1.0)
                ]
            ),
            SLOT,
        ),
    ]


def _look_at_residuals(
    ridge: Callable[[Floats, Floats, float, float], Floats], batch: BatchMeasure, penalty: float
) -> Look:
    """Return the search for the residuals of the slots that do not change themselves."""
    return look_at_records(
        lambda rows: ridge(rows[:, :1], rows[:, 1], penalty, BANDWIDTH)[:-1],
        2,
        1.0,
        lambda relation: residual_sensitivity(SLOTS, penalty),
        Norm.LARGEST,
        (SLOTS - 1,),
        Domain.BOUNDED,
        batch,
    )


def _residual_statistics() -> list[AuditedStatistic]:
    declared = gcm_sensitivities(SLOTS, BOUND)

    def products(rows: Floats) -> Floats:
        """Return both sums, each as a part of what is declared for it."""
        return np.array(gcm_sums(rows[:, 0], rows[:, 1], BOUND)) / declared

    def sums(rows: Floats) -> Floats:
        return np.asarray(np.clip(rows, -BOUND, BOUND).sum(axis=0))

    def ranks(rows: Floats) -> Floats:
        return np.array([residual_rank_score(rows[:, 0], rows[:, 1])])

    sizes = (SLOTS - 1,)
    return [
        AuditedStatistic(
            "sums of residual products and of their squares",
            "statistics.gcm.gcm_sensitivities",
            look_at_records(
                products,
                2,
                BOUND,
                lambda relation: 1.0,
                Norm.LARGEST,
                sizes,
                Domain.BOUNDED,
                batch_residual_products(BOUND, declared),
            ),
            SLOT,
        ),
        AuditedStatistic(
            "sums of clipped residuals",
            "curator.residual_sums",
            look_at_records(
                sums,
                2,
                BOUND,
                lambda relation: 2.0 * BOUND,
                Norm.LARGEST,
                sizes,
                Domain.BOUNDED,
                batch_residual_sums(BOUND),
            ),
            SLOT,
        ),
        AuditedStatistic(
            "rank score of residuals",
            "statistics.residual_ranks.residual_rank_sensitivity",
            look_at_records(
                ranks,
                2,
                1.0,
                lambda relation: residual_rank_sensitivity(SLOTS),
                Norm.LARGEST,
                sizes,
                Domain.BOUNDED,
                batch_rank_scores,
            ),
            SLOT,
        ),
    ]


def number_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of rows of numbers, and those of levelled rows."""
    return (*_sums_of_rows(), *_kernel_statistics(), *_residual_statistics())
