"""How well scores tell members from others, with intervals, and how well an (epsilon, delta) promise lets them.

The bounds are proved in docs/audit.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtri
from scipy.stats import rankdata

from dagveil.audit.bound import CONFIDENCE, find_rates

Floats = NDArray[np.float64]

RIDGE: Final = 1.0
"""Penalty of the logistic score, on standardised features."""

_ROUNDS: Final = 25


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and the ends between which it lies with 95 % confidence."""

    value: float
    low: float
    high: float


def bound_auc(epsilon: float, delta: float) -> float:
    """Return the largest area under a curve of both rates that (epsilon, delta) allows.

    Examples
    --------
    >>> round(bound_auc(1.0, 0.0), 4)
    0.7311
    """
    # the region's upper edge: (0, delta), (f, 1 − f), (1 − delta, 1), (1, 1)
    f = (1.0 - delta) * float(expit(-epsilon))
    return min(1.0, (delta + 1.0 - f) * f / 2.0 + (2.0 - f) * (1.0 - delta - f) / 2.0 + delta)


def measure_auc(members: Floats, others: Floats, confidence: float = CONFIDENCE) -> Interval:
    """Return the area under the curve with DeLong's interval.

    Examples
    --------
    >>> measure_auc(np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.5])).value
    0.8888888888888888
    """
    m, n = len(members), len(others)
    both = rankdata(np.concatenate([members, others]))
    over_others = (both[:m] - rankdata(members)) / n
    under_members = 1.0 - (both[m:] - rankdata(others)) / m
    area = float(over_others.mean())
    spread = math.sqrt(_variance(over_others) / m + _variance(under_members) / n)
    reach = float(ndtri(0.5 + confidence / 2.0)) * spread
    return Interval(area, max(0.0, area - reach), min(1.0, area + reach))


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.25


def choose_threshold(members: Floats, others: Floats) -> float:
    """Return the score from which on a record is best called a member.

    Examples
    --------
    >>> choose_threshold(np.array([2.0, 3.0]), np.array([0.0, 1.0]))
    2.0
    """
    thresholds = np.unique(np.concatenate([members, others]))
    gains = _share_above(members, thresholds) - _share_above(others, thresholds)
    return float(thresholds[int(gains.argmax())])


def _share_above(scores: Floats, thresholds: Floats) -> Floats:
    return 1.0 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)


def measure_advantage(members: Floats, others: Floats, threshold: float, confidence: float = CONFIDENCE) -> Interval:
    """Return true less false positive rate at a threshold that was chosen elsewhere, by Clopper and Pearson's bounds.

    Examples
    --------
    >>> found = measure_advantage(np.ones(100), np.zeros(100), 0.5)
    >>> found.value, 0.9 < found.low < 1.0
    (1.0, True)
    """
    rates, lows, highs = [], [], []
    for scores in (members, others):
        hits = int((scores >= threshold).sum())
        low, high = find_rates(hits, len(scores), (1.0 + confidence) / 2.0)
        rates.append(hits / len(scores))
        lows.append(float(low))
        highs.append(float(high))
    return Interval(rates[0] - rates[1], lows[0] - highs[1], highs[0] - lows[1])


def fit_logistic(features: Floats, is_member: NDArray[np.bool_]) -> Floats:
    """Return the weights of a logistic score, fitted with a ridge penalty; more speaks for a member.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.2], [0.9], [1.0]])
    >>> bool(fit_logistic(rows, np.array([False, False, True, True]))[0] > 0.0)
    True
    """
    scale = np.maximum(features.std(axis=0), 1e-12)
    x = np.column_stack([np.ones(len(features)), (features - features.mean(axis=0)) / scale])
    penalty = RIDGE * np.eye(x.shape[1])
    weights = np.zeros(x.shape[1])
    for _ in range(_ROUNDS):
        chance = expit(x @ weights)
        slope = x.T @ (is_member - chance) - penalty @ weights
        curvature = (x * (chance * (1.0 - chance))[:, None]).T @ x + penalty
        weights = weights + np.linalg.solve(curvature, slope)
    # constant features carry no weight
    return np.asarray(np.where(features.std(axis=0) > 0.0, weights[1:] / scale, 0.0))
