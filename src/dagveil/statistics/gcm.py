"""The generalised covariance measure: sums of residual products, their sensitivities, a p-value that knows its noise.

Under independence given the conditioning columns the products u·v of residuals have mean 0 (docs/proofs/gcm.md).
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from dagveil.errors import EvidenceError
from dagveil.statistics.kernels import Floats


def gcm_sums(u: Floats, v: Floats, bound: float) -> tuple[float, float]:
    """Return ΣR and ΣR² for R = u·v with u and v clipped to ±bound."""
    _check(bound)
    products = np.clip(u, -bound, bound) * np.clip(v, -bound, bound)
    return float(products.sum()), float(products @ products)


def gcm_sensitivities(slots: int, bound: float, residual: float = 0.0) -> tuple[float, float]:
    """Return how far one changed slot moves ΣR and ΣR² if u and v of the *other* slots move by `residual` at most."""
    _check(bound)
    step = min(residual, 2.0 * bound)
    along = bound * step + max(0.0, step * (bound - step))
    along_squares = bound**4 - max(0.0, bound - step) ** 4
    return 2.0 * bound**2 + (slots - 1) * along, bound**4 + (slots - 1) * along_squares


def gcm_p_value(total: float, squares: float, slots: int, variance_total: float, variance_squares: float) -> float:
    """Return the two-sided p-value of a noisy ΣR, given a noisy ΣR² and the variances of both noises.

    Without dependence ΣR has the variance E ΣR² and its noise adds to it. The noisy ΣR² counts as one deviation larger
    than it came: noise must not make the test see more than there is. The noise of ΣR may be normal or Laplace: the
    larger of the two p-values is returned.
    """
    own = max(squares, 0.0) + math.sqrt(variance_squares)
    if slots < 2 or own + variance_total <= 0.0:
        return 1.0
    normal = 2.0 * float(ndtr(-abs(total) / math.sqrt(own + variance_total)))
    return min(1.0, max(normal, _laplace_p_value(abs(total), math.sqrt(own), math.sqrt(variance_total / 2.0))))


def _laplace_p_value(size: float, deviation: float, scale: float) -> float:
    """Return the chance that a normal plus a Laplace variable is larger than this in size."""
    if scale == 0.0:
        return 2.0 * float(ndtr(-size / deviation))
    if deviation == 0.0:
        return math.exp(-size / scale)
    standard, ratio = size / deviation, deviation / scale
    # in logarithms: the exponentials overflow where the tails beside them vanish
    right = float(log_ndtr(standard - ratio)) + 0.5 * ratio**2 - size / scale
    left = float(log_ndtr(-standard - ratio)) + 0.5 * ratio**2 + size / scale
    return 2.0 * float(ndtr(-standard)) + math.exp(right) - math.exp(left)


def _check(bound: float) -> None:
    if not (0.0 < bound < math.inf):
        raise EvidenceError(f"residuals are clipped at {bound}, but the bound must be positive; 2 clips nothing")
