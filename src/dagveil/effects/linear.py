"""The adjusted linear effect from noisy second moments: how much the effect moves per unit of the cause.

Rows were shrunk to a ball before they were summed, which bends slopes. So the covariance of normal rows is sought whose
shrunk rows have the released moments, and slopes are read from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.moments import covariance_from_moments
from dagveil.privacy.release import NoisyMoments

Floats = NDArray[np.float64]

DRAWS, STEPS = 20_000, 12
"""Normal rows that are drawn to see what shrinking does, and steps of the search for what was shrunk."""

DOUBT = 0.25
"""Share of what shrinking bent, as far as normal rows tell, that counts as a deviation: rows need not be normal."""


@dataclass(frozen=True, slots=True)
class Slope:
    """The effect of one unit of the cause, in units of the effect, with the parts of its variance.

    `bent` is by how much shrinking rows to the ball had moved the slope, as far as normal rows tell.
    """

    value: float
    sampling: float
    noise: float
    bent: float

    @property
    def variance(self) -> float:
        """Variance of the slope."""
        return self.sampling + self.noise + (DOUBT * self.bent) ** 2


def estimate_slope(release: NoisyMoments, cause: str, effect: str, adjust: Sequence[str]) -> Slope:
    """Estimate the slope of the effect on the cause, adjusting for these columns."""
    covariance = covariance_from_moments(release)
    place = {name: i for i, name in enumerate(covariance.columns)}
    given = [place[cause], *(place[name] for name in adjust)]
    outcome = place[effect]
    whole = find_unshrunk(release)
    sigma = covariance.deviation
    values, vectors = np.linalg.eigh(whole[np.ix_(given, given)])
    inverse = (vectors / np.maximum(values, max(sigma, 1e-9))) @ vectors.T
    slopes = inverse @ whole[given, outcome]
    u, v = np.zeros(len(whole)), np.zeros(len(whole))
    u[given], v[given], v[outcome] = inverse[0], -slopes, 1.0
    residual = max(float(v @ whole @ v), 0.0)
    # noise is that of shrunk rows, and grows with what is undone
    grown = np.sqrt(np.diag(whole) / np.diag(covariance.matrix))
    u, v = u * grown, v * grown
    # the row of the constant, whose noise enters by the means
    mean_u, mean_v = float(u @ covariance.means), float(v @ covariance.means)
    uu, vv, uv = u @ u + mean_u**2, v @ v + mean_v**2, u @ v + mean_u * mean_v
    noise = float(sigma**2 * (uu * vv + uv**2))
    freedom = max(covariance.n_rows - len(given) - 1.0, 1.0)
    scale = release.spreads[outcome] / release.spreads[given[0]]
    bent = float(slopes[0]) - _slope(covariance.matrix, given, outcome)
    sampling = residual * float(inverse[0, 0]) / freedom
    return Slope(float(slopes[0]) * scale, sampling * scale**2, noise * scale**2, abs(bent) * scale)


@lru_cache(maxsize=8)
def find_unshrunk(release: NoisyMoments) -> Floats:
    """Return the covariance of normal rows whose rows, shrunk to the ball, have the released one."""
    covariance = covariance_from_moments(release)
    rng = np.random.default_rng(1)  # post-processing: the same evidence gives the same answer
    normal = rng.standard_normal((DRAWS, len(covariance.columns)))
    normal = normal - normal.mean(axis=0)
    normal = normal @ np.linalg.inv(np.linalg.cholesky(np.cov(normal, rowvar=False, bias=True))).T
    radius, means = np.sqrt(release.radius_squared), covariance.means * release.constant
    released = _positive(covariance.matrix)
    found = released
    for _ in range(STEPS):
        values, vectors = np.linalg.eigh(found)
        rows = normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T + means
        length = np.sqrt((rows**2).sum(axis=1))
        shrunk = rows * np.minimum(1.0, radius / np.maximum(length, 1e-12))[:, None]
        found = _positive(found + released - np.cov(shrunk, rowvar=False, bias=True))
    return found


def _positive(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    raised: Floats = (vectors * np.maximum(values, 1e-9)) @ vectors.T
    return raised


def _slope(matrix: Floats, given: list[int], outcome: int) -> float:
    return float(np.linalg.lstsq(matrix[np.ix_(given, given)], matrix[given, outcome], rcond=None)[0][0])
