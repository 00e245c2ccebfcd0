"""The adjusted linear effect from noisy second moments: how much the effect moves per unit of the cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.moments import NoisyCovariance, covariance_from_moments
from dagveil.privacy.release import NoisyMoments

Floats = NDArray[np.float64]

DRAWS = 20_000
"""Normal rows that are drawn to see what shrinking rows to the ball does to a slope."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The effect of one unit of the cause, in units of the effect, with the parts of its variance.

    `bent` is what shrinking rows to the ball changed, if rows are about normal: it is taken out of `value`, and its
    size is counted as a deviation besides.
    """

    value: float
    sampling: float
    noise: float
    bent: float

    @property
    def variance(self) -> float:
        """Variance of the slope."""
        return self.sampling + self.noise + self.bent**2


def estimate_slope(release: NoisyMoments, cause: str, effect: str, adjust: Sequence[str]) -> Slope:
    """Estimate the slope of the effect on the cause, adjusting for these columns."""
    covariance = covariance_from_moments(release)
    place = {name: i for i, name in enumerate(covariance.columns)}
    given = [place[cause], *(place[name] for name in adjust)]
    outcome = place[effect]
    scale = release.spreads[outcome] / release.spreads[given[0]]
    value, sampling, noise = _regress(covariance, given, outcome)
    bent = _bend(release, covariance, given, outcome)
    return Slope((value - bent) * scale, sampling * scale**2, noise * scale**2, abs(bent) * scale)


def _regress(covariance: NoisyCovariance, given: list[int], outcome: int) -> tuple[float, float, float]:
    matrix, sigma = covariance.matrix, covariance.deviation
    values, vectors = np.linalg.eigh(matrix[np.ix_(given, given)])
    inverse = (vectors / np.maximum(values, max(sigma, 1e-9))) @ vectors.T
    slopes = inverse @ matrix[given, outcome]
    u, v = np.zeros(len(matrix)), np.zeros(len(matrix))
    u[given], v[given], v[outcome] = inverse[0], -slopes, 1.0
    residual = max(float(v @ matrix @ v), 0.0)
    # the row of the constant, whose noise enters by the means
    mean_u, mean_v = float(u @ covariance.means), float(v @ covariance.means)
    uu, vv, uv = u @ u + mean_u**2, v @ v + mean_v**2, u @ v + mean_u * mean_v
    freedom = max(covariance.n_rows - len(given) - 1.0, 1.0)
    return float(slopes[0]), residual * float(inverse[0, 0]) / freedom, float(sigma**2 * (uu * vv + uv**2))


def _bend(release: NoisyMoments, covariance: NoisyCovariance, given: list[int], outcome: int) -> float:
    """Return by how much shrinking rows to the ball changes the slope of normal rows with these moments."""
    rng = np.random.default_rng(1)  # post-processing: the same evidence gives the same answer
    values, vectors = np.linalg.eigh(covariance.matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rows = rng.standard_normal((DRAWS, len(values))) @ root.T + covariance.means * release.constant
    length = np.sqrt((rows**2).sum(axis=1))
    shrunk = rows * np.minimum(1.0, np.sqrt(release.radius_squared) / np.maximum(length, 1e-12))[:, None]
    return _slope(shrunk, given, outcome) - _slope(rows, given, outcome)


def _slope(rows: Floats, given: list[int], outcome: int) -> float:
    matrix = np.cov(rows, rowvar=False)
    return float(np.linalg.lstsq(matrix[np.ix_(given, given)], matrix[given, outcome], rcond=None)[0][0])
