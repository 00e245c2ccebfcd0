"""A private test of residuals whose null law knows the regressions' own noise.

Both columns are predicted by functions of released moments. What is left of them, and polynomials of what was fitted,
have their second moments released for each question. The partial covariance of the two residuals given the predictions
is compared with all that noise can make of it: sampling, the noise of this release, and regression functions that are
wrong because the moments behind them were noisy. The last is simulated, which costs nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.curator import Question
from dagveil.data.column import Numeric
from dagveil.data.fixed_slots import unit_scale
from dagveil.data.residuals import RESIDUAL_SPREAD, ResidualPlan
from dagveil.data.schema import Schema
from dagveil.methods.regressions import ReleasedFunctions
from dagveil.privacy.release import NoisyMoments

Floats = NDArray[np.float64]

DRAWS = 200
"""Simulations of regressions that noise has led astray."""

SEED = 20230207
"""Of these simulations; they are post-processing, and the same question must get the same answer."""

SCALED_MEAN_SPREAD = 1.0
"""How far the mean of a scaled residual is from 0, usually; noisy means are shrunk accordingly."""

CAUTION = 1.1
"""The standard error is taken this much larger: it is right to first order only."""

SMALLEST_SPREAD = 0.1
"""Floor for the spread of a column in half-widths of its bounds, where only noise tells it."""


def plan_residuals(functions: ReleasedFunctions, schema: Schema, question: Question) -> ResidualPlan:
    """Return what is to be measured for a question, from public and released facts."""
    x, y, given = question
    return ResidualPlan(
        (x, y),
        given,
        (functions.function(x, given), functions.function(y, given)),
        (functions.function(x, ()).constant, functions.function(y, ()).constant),
        (_spread(functions, schema, x), _spread(functions, schema, y)),
    )


def partial_p_value(release: NoisyMoments, plan: ResidualPlan, functions: ReleasedFunctions, rows: int) -> float:
    """Return the p-value of a zero partial covariance of the residuals, all noise counted.

    Parameters
    ----------
    release
        Noisy moments of `plan`.
    plan
        What was measured.
    functions
        The regressions, with the noise of their moments.
    rows
        Nominal number of rows.
    """
    deviation = release.deviation / rows
    mean, of_mean = _shrink_means(release, rows)
    covariance = release.matrix[1:, 1:] / rows - np.outer(mean, mean)
    np.fill_diagonal(covariance, np.maximum(np.diag(covariance), math.sqrt(2.0) * deviation))
    left, right = _residual_directions(covariance, deviation)
    lengths = float(left @ left), float(right @ right)
    value = float(left @ covariance @ right)
    spreads = [
        max(float(side @ covariance @ side), math.sqrt(2.0) * deviation * length)
        for side, length in zip((left, right), lengths, strict=True)
    ]
    noise = deviation**2 * (lengths[0] * lengths[1] + float(left @ right) ** 2)
    means = [of_mean * length for length in lengths]
    centring = float(left @ mean) ** 2 * means[1] + float(right @ mean) ** 2 * means[0] + means[0] * means[1]
    error = CAUTION * math.sqrt(spreads[0] * spreads[1] / rows + noise + centring)
    leftovers = np.zeros(1)
    if plan.given:
        unit = (RESIDUAL_SPREAD * plan.spreads[0]) * (RESIDUAL_SPREAD * plan.spreads[1])
        leftovers = functions.draw_leftovers(*plan.pair, plan.given, rows, DRAWS, np.random.default_rng(SEED)) / unit
    size = abs(value)
    tails = special.ndtr(-(size - leftovers) / error) + special.ndtr(-(size + leftovers) / error)
    return float(np.minimum(tails, 1.0).mean())


def _shrink_means(release: NoisyMoments, rows: int) -> tuple[Floats, float]:
    """Return means of coordinates, shrunk where noise hides them, and the variance that is left in each."""
    noisy = release.matrix[0, 1:] / (release.constant * rows)
    variance = (release.deviation / (release.constant * rows)) ** 2
    share = SCALED_MEAN_SPREAD**2 / (SCALED_MEAN_SPREAD**2 + variance)
    return share * noisy, share * variance


def _residual_directions(covariance: Floats, deviation: float) -> tuple[Floats, Floats]:
    """Return what is left of the first two coordinates after regression on the others."""
    size = len(covariance)
    left, right = np.eye(size)[0], np.eye(size)[1]
    if size > 2:
        values, vectors = np.linalg.eigh(covariance[2:, 2:])
        floor = max(deviation * math.sqrt(size - 2), 1e-4)
        inverse = (vectors / np.maximum(values, floor)) @ vectors.T
        left[2:] = -inverse @ covariance[2:, 0]
        right[2:] = -inverse @ covariance[2:, 1]
    return left, right


def _spread(functions: ReleasedFunctions, schema: Schema, name: str) -> float:
    """Return the spread of a column in half-widths of its bounds: declared, or else from released moments."""
    column = schema.columns[name]
    _, half = unit_scale(column)
    if isinstance(column, Numeric) and column.spread is not None and half > 0.0:
        return column.spread / half
    return max(functions.spread(name), SMALLEST_SPREAD)
