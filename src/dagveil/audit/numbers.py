"""Statistics of rows of numbers and of levelled rows, each with its declared sensitivity, ready to be searched."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.records import BatchMeasure, Domain, look_at_records
from dagveil.audit.search import AuditedStatistic, Floats, Look, Norm, join_looks
from dagveil.data.additive import AdditiveFunction
from dagveil.data.column import Numeric
from dagveil.data.features import Basis, FeaturePlan, quantise_features, sum_feature_products
from dagveil.data.gradients import GradientPlan, _clip_products, _products, sum_curvatures, sum_gradients
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import MomentPlan, quantise_rows, scale_rows, sum_outer_products
from dagveil.data.residuals import ResidualPlan, expand_residuals, sum_residual_products
from dagveil.data.schema import Schema
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import counts_squared_sensitivity
from dagveil.statistics.features import feature_moments_squared_sensitivity
from dagveil.statistics.gcm import gcm_sensitivities, gcm_sums
from dagveil.statistics.gradients import curvature_squared_sensitivity, gradient_squared_sensitivity
from dagveil.statistics.hsic import paired_root_hsic_sensitivity, root_hsic, root_hsic_sensitivity
from dagveil.statistics.kernels import KernelFeatures, kernel_features
from dagveil.statistics.moments import moments_squared_sensitivity
from dagveil.statistics.residual_ranks import residual_rank_score, residual_rank_sensitivity
from dagveil.statistics.residuals import (
    clip_residuals,
    residual_sensitivity,
    ridge_residuals,
    ridge_residuals_by_features,
)


def _by_row(quantise: Callable[[Floats], NDArray[np.int64]]) -> BatchMeasure:
    """Return the twin of a sum of outer products of rows, of which the upper triangle counts.

    The diagonal has noise of twice the variance, so it weighs 1/√2.
    """

    def measure(tables: Floats) -> Floats:
        batch, n_rows, width = tables.shape
        vectors = quantise(tables.reshape(-1, width))
        vectors = vectors.reshape(batch, n_rows, vectors.shape[1]).astype(np.float64)
        products = np.matmul(vectors.transpose(0, 2, 1), vectors)
        rows, columns = np.triu_indices(vectors.shape[2])
        return np.asarray(products[:, rows, columns] * np.where(rows == columns, math.sqrt(0.5), 1.0))

    return measure


def batch_moments(plan: MomentPlan) -> BatchMeasure:
    """Return the twin of second moments."""
    return _by_row(lambda rows: quantise_rows(rows, plan))


def batch_features(plan: FeaturePlan) -> BatchMeasure:
    """Return the twin of second moments of features."""
    return _by_row(lambda rows: quantise_features(rows, plan))


def batch_residual_moments(plan: ResidualPlan) -> BatchMeasure:
    """Return the twin of second moments of residuals of public functions."""
    return _by_row(lambda rows: quantise_rows(expand_residuals(rows.T, plan).T, plan.rows))


def batch_gradients(plan: GradientPlan) -> BatchMeasure:
    """Return the twin of a sum of clipped gradients."""
    weights = np.array(plan.weights)

    def measure(tables: Floats) -> Floats:
        batch, n_rows, width = tables.shape
        z = _scale(tables, plan.rows)
        left, right = _clip_products(z, z - _products(z, weights, plan.rows), plan)
        left, right = (part.T.reshape(batch, n_rows, width) for part in (left, right))
        return np.asarray(np.matmul(left.transpose(0, 2, 1), right).reshape(batch, width**2))

    return measure


def batch_curvatures(plan: MomentPlan, direction: Floats, cap: float) -> BatchMeasure:
    """Return the twin of a sum of clipped curvatures."""

    def measure(tables: Floats) -> Floats:
        z = _scale(tables, plan)
        squares = np.zeros(z.shape[1])
        for column in _products(z, direction, plan):
            squares += np.square(column)
        integers = np.floor(np.minimum(squares, cap) * 2.0**plan.bits)
        return np.asarray(integers.reshape(tables.shape[:2]).sum(axis=1)[:, None])

    return measure


def _scale(tables: Floats, plan: MomentPlan) -> Floats:
    columns = np.ascontiguousarray(tables.reshape(-1, tables.shape[2]).T)
    return scale_rows(columns, plan, np.empty_like(columns))


def batch_magnitudes(bound: float, exponents: range, lattice: int) -> BatchMeasure:
    """Return the twin of counts by magnitude around 0, of columns that are cut to ± bound; missing counts as 0."""

    def measure(tables: Floats) -> Floats:
        sizes = np.abs(np.clip(np.nan_to_num(tables, nan=0.0, posinf=np.inf, neginf=-np.inf), -bound, bound))
        mantissas, powers = np.frexp(sizes)
        powers = np.where(sizes == 0.0, exponents[0], powers - (mantissas == 0.5))
        cells = np.clip(powers, exponents[0], exponents[-1]) - exponents[0]
        counts = (cells[..., None] == np.arange(len(exponents))).sum(axis=1)
        return np.asarray(lattice * counts.reshape(len(tables), -1), dtype=np.float64)

    return measure


def batch_root_hsic(kernel: KernelFeatures, permutations: NDArray[np.intp]) -> BatchMeasure:
    """Return the twin of root HSIC: for the pairs as they are, then for each permutation of the first column.

    The squared length of a cross-covariance is the sum over products of Gram matrices: few rows make these small.
    """

    def measure(tables: Floats) -> Floats:
        batch, slots, _ = tables.shape
        grams = []
        for column in (0, 1):
            features = kernel.map(tables[:, :, column].reshape(-1)).reshape(batch, slots, -1)
            centred = features - features.mean(axis=1, keepdims=True)
            grams.append(np.matmul(centred, centred.transpose(0, 2, 1)))
        every = np.vstack([np.arange(slots)[None], permutations])
        squares = np.empty((batch, len(every)))
        for place, order in enumerate(every):
            squares[:, place] = np.einsum("bij,bij->b", grams[0][:, order][:, :, order], grams[1])
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)) / slots)

    return measure


def batch_ridge_residuals(penalty: float, bandwidth: float) -> BatchMeasure:
    """Return the twin of `ridge_residuals` of the second column given the first; the last slot is left out."""

    def measure(tables: Floats) -> Floats:
        given, target = tables[:, :, 0], tables[:, :, 1]
        slots = given.shape[1]
        grams = np.exp(-0.5 / bandwidth**2 * (given[:, :, None] - given[:, None, :]) ** 2)
        ridge = 0.5 * slots * penalty
        solved = np.linalg.solve(grams + ridge * np.eye(slots), target[:, :, None])[:, :, 0]
        return clip_residuals(target, ridge * solved)[:, :-1]

    return measure


def batch_feature_residuals(penalty: float, bandwidth: float) -> BatchMeasure:
    """Return the twin of `ridge_residuals_by_features`, in the same way.

    (ΦᵀΦ + r)⁻¹Φᵀ = Φᵀ(ΦΦᵀ + r)⁻¹, and there are fewer slots than features.
    """
    kernel = kernel_features(bandwidth, 2.0)

    def measure(tables: Floats) -> Floats:
        batch, slots, _ = tables.shape
        target = tables[:, :, 1]
        features = kernel.map(tables[:, :, 0].reshape(-1)).reshape(batch, slots, -1)
        ridge = 0.5 * slots * penalty
        grams = np.matmul(features, features.transpose(0, 2, 1)) + ridge * np.eye(slots)
        solved = np.linalg.solve(grams, target[:, :, None])[:, :, 0]
        return clip_residuals(target, ridge * solved)[:, :-1]

    return measure


def batch_residual_products(bound: float, declared: tuple[float, float]) -> BatchMeasure:
    """Return the twin of the sums of residual products and of their squares, each over what is declared for it."""

    def measure(tables: Floats) -> Floats:
        products = np.clip(tables, -bound, bound).prod(axis=2)
        return np.column_stack([products.sum(axis=1), (products**2).sum(axis=1)]) / declared

    return measure


def batch_residual_sums(bound: float) -> BatchMeasure:
    """Return the twin of the sums of clipped residuals."""
    return lambda tables: np.asarray(np.clip(tables, -bound, bound).sum(axis=1))


_RANKED: Final = 12.0
"""The factor of Spearman's correlation by centred midranks, over the cube of the slots."""


def batch_rank_scores(tables: Floats) -> Floats:
    """Measure the twin of the rank score of residuals: the second column's sizes against the first column."""
    column, sizes = tables[:, :, 0], np.abs(tables[:, :, 1])
    slots = column.shape[1]
    centred = [_centre_midranks(values) for values in (column, np.abs(column), sizes)]
    products = [np.abs((ranks * centred[2]).sum(axis=1)) for ranks in centred[:2]]
    return np.asarray((_RANKED * (products[0] + products[1]) / slots**3)[:, None])


def _centre_midranks(values: Floats) -> Floats:
    """Return midranks less their mean: half the sum of the signs of differences to the other slots."""
    return np.asarray(0.5 * np.sign(values[:, :, None] - values[:, None, :]).sum(axis=2))


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
            "curator.kernel_questions.KernelQuestions.gcm",
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
