"""Share of right decisions over pairs that count differently, with Clopper and Pearson's interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from dagveil.errors import GraphError


@dataclass(frozen=True, slots=True)
class WeightedAccuracy:
    """A share with its interval.

    Attributes
    ----------
    share
        Weight of the right decisions in the whole weight.
    low, high
        Ends of the interval.
    weight
        The whole weight: so many independent decisions stand behind the share.
    """

    share: float
    low: float
    high: float
    weight: float


def weigh_decisions(right: Sequence[float], weights: Sequence[float], confidence: float = 0.95) -> WeightedAccuracy:
    """Return the weighted share of right decisions.

    Pairs from one source are not independent and share a weight of 1, so weights add up to the number of independent
    decisions, which need not be whole.

    Parameters
    ----------
    right
        1 for a right decision, 0 for a wrong one; the mean over runs where a decision was repeated.
    weights
        Of each.
    confidence
        Of the interval.

    Examples
    --------
    >>> accuracy = weigh_decisions([1, 0, 1, 1], [0.5, 0.5, 1, 1])
    >>> round(accuracy.share, 3), round(accuracy.low, 2), round(accuracy.high, 2)
    (0.833, 0.18, 1.0)
    """
    if len(right) != len(weights):
        raise GraphError(f"{len(right)} decisions have {len(weights)} weights; give one for each")
    total = float(sum(weights))
    if not total > 0.0 or min(weights) < 0.0:
        raise GraphError("weights must not be negative, and one must be above 0")
    hits = float(sum(r * w for r, w in zip(right, weights, strict=True)))
    low, high = clopper_pearson(hits, total, confidence)
    return WeightedAccuracy(hits / total, low, high, total)


def clopper_pearson(hits: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a binomial share, by quantiles of beta distributions; numbers need not be whole.

    Examples
    --------
    >>> [round(end, 4) for end in clopper_pearson(8, 10)]
    [0.4439, 0.9748]
    """
    if not 0.0 <= hits <= trials * (1.0 + 1e-12) or not trials > 0.0 or not 0.0 < confidence < 1.0:
        raise GraphError(f"an interval needs 0 to {trials:g} hits and a confidence between 0 and 1")
    tail = (1.0 - confidence) / 2.0
    misses = max(trials - hits, 0.0)
    low = float(special.betaincinv(hits, misses + 1.0, tail)) if hits > 0.0 else 0.0
    high = float(special.betaincinv(hits + 1.0, misses, 1.0 - tail)) if misses > 0.0 else 1.0
    return low, high
