"""What rows were before they were shrunk to a ball, as far as second moments tell.

Moments are released of rows that were shrunk to a public ball, so deviations come out too small. Normal rows with some
mean and covariance would, shrunk alike, have the moments that were released; these are found by simulation, with a
fixed seed, since all of it is public.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NUMBERS = 4_000_000  # that one simulation draws
_DRAWS = (2_000, 20_000)  # the fewest and the most rows of it
_ROUNDS = 40
_STILL = 1e-3  # of the variances
_MOST_GROWTH = 4.0  # where rows lie mostly outside of the ball, moments do not tell how far


def undo_shrinking(means: Floats, covariance: Floats, radius_squared: float) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal rows that would have these moments after shrinking.

    All are in the units of the ball. Variances grow at most fourfold.
    """
    size = len(means)
    draws = int(np.clip(_NUMBERS // max(size, 1), *_DRAWS)) // 2
    half = np.random.default_rng(0).standard_normal((draws, size))
    white = np.concatenate([half, -half])
    mean, spread = means.copy(), covariance.copy()
    for _ in range(_ROUNDS):
        values, vectors = np.linalg.eigh(spread)
        rows = mean + white @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        length = np.sqrt((rows**2).sum(axis=1))
        rows *= np.minimum(1.0, np.sqrt(radius_squared) / np.maximum(length, 1e-300))[:, None]
        shrunk = rows.mean(axis=0)
        change = covariance - ((rows - shrunk).T @ (rows - shrunk)) / len(rows)
        mean, spread = mean + means - shrunk, spread + change
        variances = np.diag(covariance)
        still = np.abs(np.diag(change) / variances).max() < _STILL
        still &= np.abs((means - shrunk) / np.sqrt(variances)).max() < _STILL
        if still or (np.diag(spread) / variances).max() > _MOST_GROWTH:
            break
    # variances that shrinking cannot have made smaller are simulation error
    factor = np.sqrt(
        np.clip(np.diag(spread) / np.diag(covariance), 1.0, _MOST_GROWTH) * np.diag(covariance) / np.diag(spread)
    )
    return mean, spread * np.outer(factor, factor)
