"""Residuals of kernel ridge regression, and how far one slot moves those of the others (docs/proofs/residuals.md).

Regression minimises ½λ‖w‖² + mean (w·φ(z) − x)² over feature maps of length at most 1, with |x| ≤ 1. Predictions are
clipped to [−1, 1], so residuals lie in [−2, 2].
"""

import math
from typing import Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from dagveil.errors import EvidenceError
from dagveil.statistics.kernels import Floats, check_bandwidth, gaussian_gram, kernel_features

FREQUENCIES: Final = 128  # frequencies of the features of several given columns; each has a cosine and a sine
SEED: Final = 0  # public: frequencies may be known to everyone


SMALLEST_PENALTY: Final = 1e-9
"""Below this a solver may give up on some tables and not on others, and that it does so would be an answer."""


def ridge_residuals(given: Floats, target: Floats, penalty: float, bandwidth: float) -> Floats:
    """Return the residuals of kernel ridge regression with a Gaussian kernel: exact, cubic in the rows."""
    ridge = _ridge(len(given), penalty)
    gram = gaussian_gram(given, bandwidth)
    gram[np.diag_indices_from(gram)] += ridge
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return clip_residuals(target, ridge * cho_solve(factor, target, check_finite=False))


def ridge_residuals_by_features(given: Floats, target: Floats, penalty: float, bandwidth: float) -> Floats:
    """Return residuals of the same regression with public Fourier features: linear in the rows.

    This is kernel ridge regression with another kernel, whose features have length 1 too: the same sensitivity.
    """
    return residuals_of_features(fourier_features(given, bandwidth), target, penalty)


def residuals_of_features(features: Floats, target: Floats, penalty: float) -> Floats:
    """Return the residuals of linear ridge regression on the rows of a feature matrix."""
    ridge = _ridge(len(features), penalty)
    products = features.T @ features
    products[np.diag_indices_from(products)] += ridge
    factor = cho_factor(products, lower=True, overwrite_a=True, check_finite=False)
    weights = cho_solve(factor, features.T @ target, check_finite=False)
    return clip_residuals(target, target - features @ weights)


def fourier_features(given: Floats, bandwidth: float) -> Floats:
    """Return features of length 1 whose products are close to the Gaussian kernel.

    One column has the certified features of `kernel_features`. Several have frequencies from a scrambled Sobol sequence
    with a public seed, transformed to normal ones.
    """
    check_bandwidth(bandwidth)
    n_rows, width = given.shape
    if width == 1:
        return kernel_features(bandwidth, 2.0).map(given[:, 0])
    # half a second of imports that only regressions on several columns need
    from scipy.stats import qmc

    # `seed`, since SciPy before 1.15 knows no `rng`
    points = qmc.Sobol(width, seed=np.random.default_rng(SEED)).random(FREQUENCIES)
    angles = given @ (ndtri(points).T / bandwidth)
    features = np.empty((n_rows, 2 * FREQUENCIES))
    np.cos(angles, out=features[:, :FREQUENCIES])
    np.sin(angles, out=features[:, FREQUENCIES:])
    features /= math.sqrt(FREQUENCIES)
    return features


def residual_sensitivity(slots: int, penalty: float) -> float:
    """Return how far one changed slot moves the residual of any *other* slot: min(2, 4(1 + W)/(mλ + 4)).

    W = √((m − 1)/(2mλ)) bounds what the other slots predict. The changed slot's own residual moves by up to 4.
    """
    _ridge(slots, penalty)
    largest = math.sqrt((slots - 1) / (2.0 * slots * penalty))
    return min(2.0, 4.0 * (1.0 + largest) / (slots * penalty + 4.0))


def clip_residuals(target: Floats, residuals: Floats) -> Floats:
    """Return the residuals that are left when predictions are clipped to [−1, 1]."""
    return target - np.clip(target - residuals, -1.0, 1.0)


def _ridge(slots: int, penalty: float) -> float:
    """Return mλ/2, what is added to the diagonal, or refuse a penalty with which rounding could decide."""
    if not (SMALLEST_PENALTY <= penalty < math.inf):
        raise EvidenceError(
            f"the penalty is {penalty:g}, but must be at least {SMALLEST_PENALTY:g}; the published one is 1"
        )
    return 0.5 * slots * penalty


def residual_rank_score(column: Floats, residuals: Floats) -> float:
    """Return |ρ(c, |r|)| + |ρ(|c|, |r|)|: how the size of residuals goes with the column, and with its distance from 0.

    ρ is 12/m³ Σ (R − (m+1)/2)(S − (m+1)/2) with midranks R and S: Spearman's, where no values are tied.
    """
    sizes = np.abs(residuals)
    return abs(_rank_correlation(column, sizes)) + abs(_rank_correlation(np.abs(column), sizes))


def residual_rank_sensitivity(slots: int) -> float:
    """Return 12 (m − 1)/m²: what one slot moves `residual_rank_score` by if it moves no other residual, at most.

    Attained; the proof is in docs/proofs/rank-score.md.
    """
    return 12.0 * (slots - 1) / slots**2


def _rank_correlation(first: Floats, second: Floats) -> float:
    m = len(first)
    left, right = (find_midranks(values) - (m + 1) / 2.0 for values in (first, second))
    return 12.0 * float(left @ right) / m**3


def find_midranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    midranks: Floats = np.cumsum(counts) - (counts - 1) / 2.0
    return midranks[place]
