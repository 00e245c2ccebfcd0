"""Smooth measures of cycles: zero on weights of a DAG, positive on all others.

Both look at A = W∘W, whose entries are not negative, and each adds up closed walks with positive weights: the
exponential tr(exp A) − d = Σ tr(Aᵏ)/k!, the log-determinant −ln det(sI − A) + d ln s = Σ tr(Aᵏ)/(k sᵏ).
"""

from __future__ import annotations

import enum
import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Floats = NDArray[np.float64]

LARGEST_NORM = 600.0  # beyond this the exponential of a matrix nears the end of double precision
_COEFFICIENTS = tuple(1.0 / math.factorial(k) for k in range(17))


class Acyclicity(enum.Enum):
    """Which measure of cycles the optimisation drives to zero."""

    EXPONENTIAL = "exponential"  # NOTEARS: tr(exp(W∘W)) − d, by the augmented Lagrangian
    LOG_DETERMINANT = "log-determinant"  # DAGMA: −ln det(sI − W∘W) + d ln s, along a central path


def measure_by_exponential(weights: Floats) -> tuple[float, Floats]:
    """Return tr(exp(W∘W)) − d and its gradient; infinity and zeros where that leaves double precision."""
    excess = exponentiate(weights * weights)
    if excess is None:
        return math.inf, np.zeros_like(weights)
    gradient = excess.T * weights
    gradient += np.diag(np.diag(weights))
    gradient *= 2.0
    return float(np.trace(excess)), gradient


def measure_by_log_determinant(weights: Floats, level: float = 1.0) -> tuple[float, Floats]:
    """Return −ln det(sI − W∘W) + d ln s and its gradient, s being `level`.

    Outside of its domain, where W∘W has an eigenvalue of s or more, the value is infinite and the gradient zero.
    """
    d = len(weights)
    factors, pivots, failed = lapack.dgetrf(level * np.eye(d) - weights * weights, overwrite_a=1)
    if failed == 0:
        inverse, failed = lapack.dgetri(factors, pivots)
    # sI − A is an M-matrix, hence in the domain, exactly if its inverse has no negative entry
    if failed != 0 or not inverse.min() >= -1e-12:
        return math.inf, np.zeros_like(weights)
    value = d * math.log(level) - float(np.log(np.abs(np.diag(factors))).sum())
    return value, 2.0 * inverse.T * weights


def exponentiate(matrix: Floats) -> Floats | None:
    """Return exp(A) − I for a matrix without negative entries, or None where it would overflow.

    Taylor's sum of 16 terms after halving, then squaring as (I + X)² − I = 2X + X². No term is negative, so nothing
    cancels and even a tiny trace keeps its digits, where tr(exp A) − d would lose them.
    """
    norm = float(min(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    if not norm <= LARGEST_NORM:
        return None
    halvings = max(0, math.ceil(math.log2(norm))) if norm > 0.0 else 0
    first = matrix / 2.0**halvings
    second = first @ first
    third = second @ first
    fourth = second @ second
    c = _COEFFICIENTS
    total = c[13] * first + c[14] * second + c[15] * third + c[16] * fourth
    for k in (9, 5, 1):
        total = fourth @ total
        total += c[k] * first
        total += c[k + 1] * second
        total += c[k + 2] * third
        total += c[k + 3] * fourth
    for _ in range(halvings):
        total = total @ total + 2.0 * total
    return total
