"""Statistics of many small tables at once: each the twin of a statistic of one table, and equal to it table by table.

A search for neighbours measures millions of tables of a few rows, and calling the statistic itself would take hours.
The twins only rank the tables: the pair that a search reports is measured by the statistic itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.search import Floats
from dagveil.data.features import FeaturePlan, quantise_features
from dagveil.data.gradients import GradientPlan, _clip_products, _products
from dagveil.data.moments import MomentPlan, quantise_rows, scale_rows
from dagveil.data.residuals import ResidualPlan, expand_residuals
from dagveil.statistics.kernels import KernelFeatures, kernel_features
from dagveil.statistics.residuals import clip_residuals

BatchMeasure = Callable[[Floats], Floats]
"""From tables (batch, rows, columns) to the numbers of each, (batch, k)."""


def measure_each(measure: Callable[[Floats], Floats]) -> BatchMeasure:
    """Return the twin of a statistic that has none: one table after the other."""
    return lambda tables: np.stack([measure(table) for table in tables])


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
