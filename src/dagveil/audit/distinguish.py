"""Telling two tables apart by what runs on them gave out: an event is chosen on half of them, judged on the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.bound import bound_epsilon, find_ceiling
from dagveil.errors import DataError

Floats = NDArray[np.float64]

RIDGE: Final = 1e-3
"""Added to the variances of standardised features, so that constant ones do no harm."""

FEWEST_RUNS: Final = 8

CHOICE_CONFIDENCE: Final = 0.99
"""Events are chosen at this confidence, above that of the verdict: the best of many thresholds was also lucky."""


@dataclass(frozen=True, slots=True)
class Attack:
    """What a distinguishing attack proved.

    Attributes
    ----------
    bound
        A lower bound on epsilon that holds with 95 % confidence; 0 if nothing was proved.
    ceiling
        The largest bound that so many runs could have proved.
    runs
        Judged runs on each table.
    hits, other_hits
        How often the event came, on the table where it is likelier and on the other one.
    event
        The event, in words.
    """

    bound: float
    ceiling: float
    runs: int
    hits: int
    other_hits: int
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
    """Attack: choose the best event on every other run, and judge it on the others.

    Candidates are each feature, and a linear score of all of them, above or below any threshold.

    Parameters
    ----------
    first, second
        Features of independent runs on either table, one row each.
    names
        Of the features.
    delta
        Of the claim.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> attack = distinguish(rng.laplace(0.0, 1.0, (4000, 1)), rng.laplace(1.0, 1.0, (4000, 1)), ("answer",), 0.0)
    >>> 0.6 < attack.bound < 1.0
    True
    """
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
