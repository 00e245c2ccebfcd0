"""How much answers speak for one of two tables, if the exact answers on both are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dagveil.audit.recording import Exchange, Rule
from dagveil.privacy.events import ExponentialChoice

Floats = NDArray[np.float64]

NODES: Final = 400
"""Values of a threshold's noise, at equally likely places, that stand for all of them."""

_PLACES: Final = (np.arange(NODES) + 0.5) / NODES
_STANDARD: Final = np.where(_PLACES < 0.5, np.log(2.0 * _PLACES), -np.log(2.0 * (1.0 - _PLACES)))


def compare_answers(told: Sequence[Exchange], first: Sequence[Exchange], second: Sequence[Exchange]) -> float:
    """Return by how much all answers with noise of their own speak for the second table: a log-likelihood ratio.

    Parameters
    ----------
    told
        The run.
    first, second
        Its replays on both tables, with the exact answers.
    """
    return float(
        sum(
            _compare(exchange, one, other)
            for exchange, one, other in zip(told, first, second, strict=True)
            if exchange.refusal is None and not exchange.luck and one.exact.values != other.exact.values
        )
    )


def _compare(told: Exchange, first: Exchange, second: Exchange) -> float:
    """Return the log-likelihood ratio of one answer; 0 where it has no simple form."""
    rule = first.exact.rule
    a, b, width = (np.array(part) for part in (first.exact.values, second.exact.values, first.exact.widths))
    if rule is Rule.RECORDS:
        return weigh_choice(told, second.exact.values) - weigh_choice(told, first.exact.values)
    x = np.array(told.exact.values)
    if rule is Rule.WEIGHTED_SQUARES:
        return float((((x - a) ** 2 - (x - b) ** 2) / (2.0 * width)).sum())
    if rule is Rule.SCALED_SIZES:
        return float(((np.abs(x - a) - np.abs(x - b)) / width).sum())
    return 0.0


def weigh_choice(told: Exchange, scores: Sequence[float]) -> float:
    """Return the log-likelihood of a choice of the exponential mechanism, if these were the scores."""
    epsilon = sum(float(event.epsilon) for event in told.events if isinstance(event, ExponentialChoice))
    exponents = epsilon * np.array(scores) / 2.0
    return float(exponents[told.answer] - logsumexp(exponents))


def compare_rounds(told: Sequence[Exchange], first: Sequence[Exchange], second: Sequence[Exchange]) -> float:
    """Return the log-likelihood ratio of the bits of sparse vectors: nothing if they come from sub-samples."""
    return weigh_rounds(told, second) - weigh_rounds(told, first)


def weigh_rounds(told: Sequence[Exchange], replay: Sequence[Exchange]) -> float:
    """Return the log-likelihood of all bits of sparse vectors, if the scores were those of a replay.

    The threshold's noise is the same in all questions of a round, so a round is one answer.
    """
    places = [place for place, one in enumerate(replay) if one.exact.rule is Rule.ROUND and told[place].refusal is None]
    if any(told[place].luck for place in places):
        return 0.0
    total = 0.0
    for together in _split_rounds(places, told):
        bits = np.array([bool(told[place].answer) for place in together])
        thresholds = np.array([float(told[place].asked[1]) for place in together])
        scores = np.array([replay[place].exact.values[0] for place in together])
        total += _weigh_round(bits, thresholds - scores, replay[together[0]].exact.widths)
    return total


def _split_rounds(places: Sequence[int], told: Sequence[Exchange]) -> Iterator[list[int]]:
    """Yield the questions of each round; it ends with the first that passes."""
    together: list[int] = []
    for place in places:
        together.append(place)
        if told[place].answer:
            yield together
            together = []
    if together:
        yield together


def _weigh_round(bits: NDArray[np.bool_], margins: Floats, widths: Sequence[float]) -> float:
    """Return the log-likelihood of a round's bits; margins say how far scores stay below the threshold."""
    threshold_scale, question_scale = widths[:2]
    beyond = (margins[:, None] + threshold_scale * _STANDARD) / question_scale
    tail = 0.5 * np.exp(-np.abs(beyond))
    # logarithms of tails, so that long rounds do not underflow
    passes = np.where(beyond < 0.0, tail, 1.0 - tail)
    logs = np.where(bits[:, None], np.log(np.maximum(passes, 1e-300)), np.log(np.maximum(1.0 - passes, 1e-300)))
    return float(logsumexp(logs.sum(axis=0)) - np.log(NODES))


def weigh_samples(told: float, variance: float, scores: Floats) -> float:
    """Return the log-density of a noisy score whose sub-sample is secret, from scores of many sub-samples.

    Examples
    --------
    >>> near, far = (weigh_samples(0.1, 1.0, np.array([place, place])) for place in (0.0, 3.0))
    >>> near > far
    True
    """
    return float(logsumexp(-((told - scores) ** 2) / (2.0 * variance)) - np.log(len(scores)))
