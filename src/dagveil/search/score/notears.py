"""Linear NOTEARS from a covariance matrix.

The loss ½ tr((I − W)ᵀ S (I − W)) needs the rows only through their second moments S, so the cost does not grow with
their number, and a noisy S released once serves every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.score.acyclicity import Acyclicity, measure_by_exponential, measure_by_log_determinant
from dagveil.search.score.quasi_newton import minimise

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class NotearsSettings:
    penalty: float = 0.1
    acyclicity: Acyclicity = Acyclicity.LOG_DETERMINANT
    cycle_tolerance: float = 1e-8
    largest_rho: float = 1e16
    most_rounds: int = 100
    eigenvalue_floor: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    matrix: Floats
    violation: float
    rounds: int
    evaluations: int


def find_weights(covariance: Floats, settings: NotearsSettings = NotearsSettings(), forbidden: Bools | None = None) -> Weights:
    d = len(covariance)
    free = ~np.eye(d, dtype=bool)
    if forbidden is not None:
        free &= ~forbidden
    S = project(covariance, settings.eigenvalue_floor)
    if settings.acyclicity is Acyclicity.EXPONENTIAL:
        return _lagrange(S, free, settings)
    if settings.acyclicity == "exp-own":
        return _lagrange_own(S, free, settings)
    return _path(S, free, settings)


def loss(S, W):
    rest = np.eye(len(S)) - W
    pulled = S @ rest
    return 0.5 * float(np.vdot(rest, pulled)), -pulled


def _lagrange(S, free, settings):
    d = len(S)
    flat = np.flatnonzero(free)
    k = len(flat)
    rho, alpha, h = 1.0, 0.0, math.inf
    x = np.zeros(2 * k)
    count = 0

    def unpack(x):
        W = np.zeros(d * d)
        W[flat] = x[:k] - x[k:]
        return W.reshape(d, d)

    def objective(x):
        W = unpack(x)
        value, g = loss(S, W)
        h, gh = measure_by_exponential(W)
        if not math.isfinite(h):
            return LARGEST, np.zeros_like(x)
        value += 0.5 * rho * h * h + alpha * h + settings.penalty * x.sum()
        g = g + (rho * h + alpha) * gh
        g = g.reshape(-1)[flat]
        return value, np.concatenate([g + settings.penalty, -g + settings.penalty])

    bounds = optimize.Bounds(np.zeros(2 * k), np.full(2 * k, np.inf))
    for r in range(1, settings.most_rounds + 1):
        while True:
            sol = optimize.minimize(objective, x, jac=True, method="L-BFGS-B", bounds=bounds)
            count += sol.nfev
            new_h, _ = measure_by_exponential(unpack(sol.x))
            if new_h > 0.25 * h and rho < settings.largest_rho:
                rho *= 10
            else:
                break
        x, h = sol.x, new_h
        alpha += rho * h
        if h <= settings.cycle_tolerance or rho >= settings.largest_rho:
            break
    return Weights(unpack(x), h, r, count)


def _lagrange_own(S, free, settings):
    d = len(S)
    flat = np.flatnonzero(free)
    k = len(flat)
    rho, alpha, h = 1.0, 0.0, math.inf
    x = np.zeros(k)
    count = 0

    def unpack(x):
        W = np.zeros(d * d)
        W[flat] = x
        return W.reshape(d, d)

    def objective(x):
        W = unpack(x)
        h, gh = measure_by_exponential(W)
        value, g = loss(S, W)
        value += 0.5 * rho * h * h + alpha * h
        g = g + (rho * h + alpha) * gh
        return value, g.reshape(-1)[flat]

    for r in range(1, settings.most_rounds + 1):
        while True:
            sol = minimise(objective, x, settings.penalty)
            count += sol.evaluations
            new_h, _ = measure_by_exponential(unpack(sol.point))
            if new_h > 0.25 * h and rho < settings.largest_rho:
                rho *= 10
            else:
                break
        x, h = sol.point, new_h
        alpha += rho * h
        if h <= settings.cycle_tolerance or rho >= settings.largest_rho:
            break
    return Weights(unpack(x), h, r, count)


def _path(S, free, settings, levels=(1.0, 0.9, 0.8, 0.7, 0.6), mus=(1.0, 0.1, 0.01, 0.001, 1e-4)):
    d = len(S)
    flat = np.flatnonzero(free)
    x = np.zeros(len(flat))
    count = 0
    def unpack(x):
        W = np.zeros(d * d)
        W[flat] = x
        return W.reshape(d, d)
    for level, mu in zip(levels, mus):
        def objective(x):
            W = unpack(x)
            h, gh = measure_by_log_determinant(W, level)
            if not math.isfinite(h):
                return h, x
            value, g = loss(S, W)
            return value + h / mu, (g + gh / mu).reshape(-1)[flat]
        m = minimise(objective, x, settings.penalty)
        x = m.point
        count += m.evaluations
    return Weights(unpack(x), measure_by_log_determinant(unpack(x))[0], len(mus), count)


def project(matrix, floor):
    symmetric = (matrix + matrix.T) / 2.0
    values, vectors = np.linalg.eigh(symmetric)
    if values[0] >= floor:
        return symmetric
    return (vectors * np.maximum(values, floor)) @ vectors.T
