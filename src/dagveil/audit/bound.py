"""A lower bound on epsilon from counted events, and the largest one that so many runs could give."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

CONFIDENCE: Final = 0.95
"""Probability, at least, with which a bound is below the true epsilon."""

Floats = NDArray[np.float64]


def find_rates(hits: ArrayLike, runs: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's bounds of a probability, each of which fails with half of 1 − confidence.

    Examples
    --------
    >>> low, high = find_rates(0, 100)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0362)
    """
    failing = (1.0 - confidence) / 2.0
    counts = np.asarray(hits, dtype=np.float64)
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1.0), runs - counts + 1.0, failing), 0.0)
    misses = runs - counts
    high = np.where(misses > 0, betaincinv(counts + 1.0, np.maximum(misses, 1.0), 1.0 - failing), 1.0)
    return low, high


def bound_epsilon(
    hits: ArrayLike, other_hits: ArrayLike, runs: int, other_runs: int, delta: float, confidence: float = CONFIDENCE
) -> Floats:
    """Return the epsilon that an event proves at least: ln((p − delta)/q), p and q at the unlucky ends.

    Parameters
    ----------
    hits, other_hits
        How often the event came in the runs on either table.
    runs, other_runs
        How many runs there were.
    delta
        Of the claim.
    confidence
        For both rates together.

    Examples
    --------
    >>> round(float(bound_epsilon(900, 50, 1000, 1000, 1e-6)), 3)
    2.599
    """
    low, _ = find_rates(hits, runs, confidence)
    _, high = find_rates(other_hits, other_runs, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(low > delta, np.maximum(np.log((low - delta) / high), 0.0), 0.0))


def find_ceiling(runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest bound that so many judged runs on each table can give, about ln(runs/3.7).

    Examples
    --------
    >>> round(find_ceiling(10_000, 0.0), 3), round(float(np.log(10_000 / 3.7)), 3)
    (7.905, 7.902)
    """
    return float(bound_epsilon(runs, 0, runs, runs, delta, confidence)) if runs > 0 else 0.0
