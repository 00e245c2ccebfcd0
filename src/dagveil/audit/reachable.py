"""The strongest attack that charges allow: what so many runs could prove if one record moved every answer fully."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dagveil.audit.bound import bound_epsilon
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialChoice,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
)

Floats = NDArray[np.float64]

DRAWS: Final = 200_000
FEWEST_DRAWS: Final = 200
"""Rarer events are left out: their probabilities would be guesses."""


def find_reachable(events: Sequence[Event], runs: int, delta: float, seed: int = 0) -> float:
    """Return the epsilon that the best attack is expected to prove with so many judged runs on each table.

    Every charge is taken for the worst mechanism that it covers: Gaussian noise on answers that move by the whole
    declared change, and a randomised response for a charge of pure epsilon. Their composition is the worst that the
    accounting allows, so no attack on the method can be expected to do better.

    Parameters
    ----------
    events
        What one run charges.
    runs
        Judged runs on each table.
    delta
        Of the claim.
    seed
        Losses are drawn.

    Examples
    --------
    >>> from fractions import Fraction
    >>> gaussian = DiscreteGaussian("answer", 1, Fraction(1), Fraction(16))
    >>> few, many = (find_reachable([gaussian], runs, 1e-6) for runs in (500, 50_000))
    >>> few < many < 1.0
    True
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
    squared = math.fsum(_squared_shift(event) for event in events if isinstance(event, DiscreteGaussian))
    losses = sign * squared / 2.0 + math.sqrt(squared) * rng.standard_normal(DRAWS)
    for event in events:
        if isinstance(event, DiscreteLaplace | SparseVectorRound | ExponentialChoice | SmoothLaplace):
            epsilon = float(event.epsilon)
            losses += sign * epsilon * np.where(rng.random(DRAWS) < expit(epsilon), 1.0, -1.0)
        elif isinstance(event, SubsampledGaussian):
            losses += _draw_sampled(event, on_second, mirrored, rng)
    return losses


def _squared_shift(event: DiscreteGaussian) -> float:
    return float(event.squared_sensitivity / event.variance)


def _draw_sampled(event: SubsampledGaussian, on_second: bool, mirrored: bool, rng: np.random.Generator) -> Floats:
    """Draw the loss of Gaussian noise on a Poisson sub-sample; mirrored, the record is on the first table."""
    rate, shift = float(event.rate), math.sqrt(float(event.squared_sensitivity / event.variance))
    has_record = on_second != mirrored
    taken = rng.random(DRAWS) < (rate if has_record else 0.0)
    answers = rng.standard_normal(DRAWS) + shift * taken
    ratio = np.log1p(rate * np.expm1(shift * answers - shift**2 / 2.0))
    return -ratio if mirrored else ratio


def _prove(losses: Floats, runs: int, delta: float) -> float:
    """Return the best bound over events "the loss is at least so much", at their expected numbers of hits.

    On the other table such an event has the probability E[exp(−loss)] over it, so the same draws tell both rates.
    """
    ordered = np.sort(losses)[::-1]
    # an event takes all draws that are equal
    last = np.flatnonzero(np.append(np.diff(ordered) < 0.0, True))
    last = last[last >= FEWEST_DRAWS]
    last = last[:: max(1, len(last) // 2000)]
    p = (last + 1.0) / DRAWS
    q = np.minimum(np.cumsum(np.exp(-ordered))[last] / DRAWS, 1.0)
    return float(bound_epsilon(runs * p, runs * q, runs, runs, delta).max(initial=0.0))
