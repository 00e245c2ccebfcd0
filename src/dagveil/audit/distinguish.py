"""Choose the best event on every other run, by a feature or a linear score of all, and judge on the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, expit

from dagveil.audit.search import Floats
from dagveil.errors import DataError
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialChoice,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
)

CONFIDENCE: Final = 0.95  # probability, at least, with which a bound is below the true epsilon
RIDGE: Final = 1e-3  # added to the variances of standardised features, so that constant ones do no harm
FEWEST_RUNS: Final = 8
# events are chosen at this confidence, above that of the verdict: the best of many thresholds was also lucky
CHOICE_CONFIDENCE: Final = 0.99
DRAWS: Final = 200_000
FEWEST_DRAWS: Final = 200  # rarer events are left out: their probabilities would be guesses


def find_rates(hits: ArrayLike, runs: int, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's bounds of a probability, each of which fails with half of 1 − confidence."""
    failing = (1.0 - confidence) / 2.0
    counts = np.asarray(hits, dtype=np.float64)
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1.0), runs - counts + 1.0, failing), 0.0)
    misses = runs - counts
    high = np.where(misses > 0, betaincinv(counts + 1.0, np.maximum(misses, 1.0), 1.0 - failing), 1.0)
    return low, high


def bound_epsilon(
    hits: ArrayLike, other_hits: ArrayLike, runs: int, other_runs: int, delta: float, confidence: float = CONFIDENCE
) -> Floats:
    """Return the epsilon that an event proves: ln((p − delta)/q) at the unlucky ends, at one joint confidence."""
    low, _ = find_rates(hits, runs, confidence)
    _, high = find_rates(other_hits, other_runs, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(low > delta, np.maximum(np.log((low - delta) / high), 0.0), 0.0))


def find_ceiling(runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the largest bound that so many judged runs on each table can give, about ln(runs/3.7)."""
    return float(bound_epsilon(runs, 0, runs, runs, delta, confidence)) if runs > 0 else 0.0


class Attack(msgspec.Struct, frozen=True):
    """What a distinguishing attack proved."""

    bound: float  # a lower bound on epsilon that holds with 95 % confidence; 0 if nothing was proved
    ceiling: float  # the largest that so many runs could have proved
    runs: int  # judged, on each table
    hits: int  # of the event, on the table where it is likelier
    other_hits: int  # on the other one
    event: str


@dataclass(frozen=True, slots=True)
class _Event:
    weights: Floats
    threshold: float
    above: bool
    on_second: bool
    promise: float
    words: str


def distinguish(first: Floats, second: Floats, names: tuple[str, ...], delta: float) -> Attack:
    """Choose the best event on every other run, by a feature or a linear score of all, and judge on the others."""
    if min(len(first), len(second)) < FEWEST_RUNS or first.shape[1] != second.shape[1]:
        raise DataError(f"an attack needs at least {FEWEST_RUNS} runs on each table, with the same features")
    event = _choose(first[::2], second[::2], names, delta)
    likely, rare = (second[1::2], first[1::2]) if event.on_second else (first[1::2], second[1::2])
    hits, other_hits = (_count(rows, event) for rows in (likely, rare))
    bound = float(bound_epsilon(hits, other_hits, len(likely), len(rare), delta))
    runs = min(len(likely), len(rare))
    return Attack(bound, find_ceiling(runs, delta), runs, hits, other_hits, event.words)


def _count(rows: Floats, event: _Event) -> int:
    scores = rows @ event.weights
    return int((scores >= event.threshold).sum() if event.above else (scores < event.threshold).sum())


def _choose(first: Floats, second: Floats, names: tuple[str, ...], delta: float) -> _Event:
    width = first.shape[1]
    candidates = [(np.eye(width)[place], names[place]) for place in range(width)]
    if width > 1:
        candidates.append((_fit_score(first, second), "a linear score of all features"))
    events = [_choose_threshold(first, second, weights, name, delta) for weights, name in candidates]
    return max(events, key=lambda event: event.promise)


def _fit_score(first: Floats, second: Floats) -> Floats:
    """Return the direction in which the means differ most against the spread: Fisher's discriminant."""
    both = np.vstack([first, second])
    scale = np.maximum(both.std(axis=0), 1e-12)
    left, right = first / scale, second / scale
    spread = (np.cov(left.T) + np.cov(right.T)) / 2.0 + RIDGE * np.eye(first.shape[1])
    return np.asarray(np.linalg.solve(spread, right.mean(axis=0) - left.mean(axis=0)) / scale)


def _choose_threshold(first: Floats, second: Floats, weights: Floats, name: str, delta: float) -> _Event:
    """Return the threshold, the side of it and the table for which the runs at hand prove most."""
    one, other = np.sort(first @ weights), np.sort(second @ weights)
    thresholds = np.unique(np.concatenate([one, other]))
    below_one = np.searchsorted(one, thresholds, side="left")
    below_other = np.searchsorted(other, thresholds, side="left")
    best = _Event(weights, float(thresholds[0]), True, False, -1.0, "")
    for above in (True, False):
        hits = (len(one) - below_one, len(other) - below_other) if above else (below_one, below_other)
        for on_second in (False, True):
            likely, rare = (hits[1], hits[0]) if on_second else hits
            runs = (len(other), len(one)) if on_second else (len(one), len(other))
            promises = bound_epsilon(likely, rare, *runs, delta, CHOICE_CONFIDENCE)
            place = int(promises.argmax())
            if promises[place] > best.promise:
                threshold = float(thresholds[place])
                words = f"{name} {'at least' if above else 'below'} {threshold:.6g}"
                best = _Event(weights, threshold, above, on_second, float(promises[place]), words)
    return best


def find_reachable(events: Sequence[Event], runs: int, delta: float, seed: int = 0) -> float:
    """Return the epsilon that the best attack is expected to prove with so many judged runs on each table.

    Every charge is taken for the worst mechanism that it covers: Gaussian noise on answers that move by the whole
    declared change, and a randomised response for a charge of pure epsilon. Their composition is the worst that the
    accounting allows, so no attack on the method can be expected to do better.
    """
    if runs <= 0:
        return 0.0
    rng = np.random.default_rng(seed)
    found = 0.0
    for mirrored in (False, True):
        first, second = (draw_losses(events, on_second, mirrored, rng) for on_second in (False, True))
        found = max(found, _prove(second, runs, delta), _prove(-first, runs, delta))
        if not any(isinstance(event, SubsampledGaussian) for event in events):
            break  # all others look the same from both sides
    return found


def draw_losses(events: Sequence[Event], on_second: bool, mirrored: bool, rng: np.random.Generator) -> Floats:
    """Draw log-likelihood ratios of the worst composition, second table over first, from runs on either table."""
    sign = 1.0 if on_second else -1.0
    gaussian = [event for event in events if isinstance(event, DiscreteGaussian)]
    squared = math.fsum(float(event.squared_sensitivity / event.variance) for event in gaussian)
    losses = sign * squared / 2.0 + math.sqrt(squared) * rng.standard_normal(DRAWS)
    for event in events:
        if isinstance(event, DiscreteLaplace | SparseVectorRound | SmoothLaplace):
            losses += sign * _draw_bits(float(event.epsilon), 1, rng)
        elif isinstance(event, ExponentialChoice):  # more than its range of epsilon, but no less on either side
            losses += sign * _draw_bits(float(event.epsilon), event.draws, rng)
        elif isinstance(event, SubsampledGaussian):
            losses += _draw_sampled(event, on_second, mirrored, rng)
    return losses


def _draw_bits(epsilon: float, count: int, rng: np.random.Generator) -> Floats:
    """Draw the loss of so many bits, each of which tells the truth with the odds e^epsilon."""
    return np.asarray(epsilon * (2.0 * rng.binomial(count, expit(epsilon), DRAWS) - count), dtype=np.float64)


def _draw_sampled(event: SubsampledGaussian, on_second: bool, mirrored: bool, rng: np.random.Generator) -> Floats:
    """Draw the loss of Gaussian noise on a Poisson sub-sample; mirrored, the record is on the first table."""
    rate, shift = float(event.rate), math.sqrt(float(event.squared_sensitivity / event.variance))
    has_record = on_second != mirrored
    taken = rng.random(DRAWS) < (rate if has_record else 0.0)
    answers = rng.standard_normal(DRAWS) + shift * taken
    ratio = np.log1p(rate * np.expm1(shift * answers - shift**2 / 2.0))
    return -ratio if mirrored else ratio


def _prove(losses: Floats, runs: int, delta: float) -> float:
    """Return the best bound over events "loss ≥ t"; elsewhere they have probability E[exp(−loss)] over the event."""
    ordered = np.sort(losses)[::-1]
    # an event takes all draws that are equal
    last = np.flatnonzero(np.append(np.diff(ordered) < 0.0, True))
    last = last[last >= FEWEST_DRAWS]
    last = last[:: max(1, len(last) // 2000)]
    p = (last + 1.0) / DRAWS
    q = np.minimum(np.cumsum(np.exp(-ordered))[last] / DRAWS, 1.0)
    return float(bound_epsilon(runs * p, runs * q, runs, runs, delta).max(initial=0.0))
