"""Additive noise: what a regression on the cause leaves is independent of the cause (ANM).

Hoyer and others, Nonlinear causal discovery with additive noise models, 2008. Kernel ridge regression, and the
normalised Hilbert-Schmidt independence criterion, with public features: linear in the rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.search.pairwise.reci import scale_to_unit
from dagveil.statistics.hsic import root_hsic
from dagveil.statistics.kernels import kernel_features, median_bandwidth
from dagveil.statistics.residuals import ridge_residuals_by_features

Floats = NDArray[np.float64]

PENALTY: Final = 1e-3
BANDWIDTH: Final = 0.5
"""Of the regression, on columns that are scaled to [-1, 1]."""

NARROWEST: Final = 0.02
"""Smallest bandwidth of the criterion: columns with few values have a median distance of 0 or close to it."""


def compare_residuals(first: Floats, second: Floats) -> float:
    """Return how far second depends on what it leaves of first, less the same the other way round.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.uniform(-1, 1, 500)
    >>> compare_residuals(cause, cause**2 + rng.uniform(-0.2, 0.2, 500)) > 0
    True
    """
    x, y = (2.0 * scale_to_unit(column) - 1.0 for column in (first, second))
    return residual_dependence(y, x) - residual_dependence(x, y)


def residual_dependence(given: Floats, target: Floats) -> float:
    """Return the normalised criterion of a column and of what a regression on it leaves of another, between 0 and 1.

    Both columns lie in [-1, 1].
    """
    left = ridge_residuals_by_features(given[:, None], target, PENALTY, BANDWIDTH)
    return normalised_hsic(given, left)


def normalised_hsic(u: Floats, v: Floats) -> float:
    """Return the criterion divided by its geometric mean of each column with itself; 0 if one is constant.

    Examples
    --------
    >>> round(normalised_hsic(np.arange(5.0) / 4, np.arange(5.0) / 4), 9)
    1.0
    """
    features = [
        kernel_features(max(median_bandwidth(column[:, None]), NARROWEST), 4.0).map(column) for column in (u, v)
    ]
    none = np.empty((0, len(u)), dtype=np.intp)
    joint, own_u, own_v = (float(root_hsic(features[a], features[b], none)[0]) for a, b in ((0, 1), (0, 0), (1, 1)))
    return joint**2 / (own_u * own_v) if own_u > 1e-12 and own_v > 1e-12 else 0.0
