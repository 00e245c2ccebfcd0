"""How far the exact answers of two neighbours lie apart, against what was declared and paid for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dagveil.audit.recorded_noise import Draw, NoiseLaw
from dagveil.audit.recording import Exact, Exchange, Rule
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    ExponentialChoice,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
)
from dagveil.privacy.mechanisms.smooth_median import dilation_bound

_LAWS: dict[type[Event], frozenset[NoiseLaw]] = {
    DiscreteGaussian: frozenset({NoiseLaw.GAUSSIAN}),
    SubsampledGaussian: frozenset({NoiseLaw.GAUSSIAN}),
    DiscreteLaplace: frozenset({NoiseLaw.LAPLACE}),
    SparseVectorRound: frozenset({NoiseLaw.LAPLACE}),
    SmoothLaplace: frozenset({NoiseLaw.LAPLACE}),
    ExponentialChoice: frozenset(),
}
"""Which noise each event pays for."""


def measure_movement(one: Exchange, other: Exchange) -> float:
    """Return how far the exact answers moved, as a part of what the charge covers: above 1 breaks the guarantee."""
    first, second = one.exact, other.exact
    if len(first.values) != len(second.values) or first.public != second.public:
        return math.inf
    moved = [abs(a - b) for a, b in zip(first.values, second.values, strict=True)]
    if not any(moved) and first.rule is not Rule.SMOOTH:
        return 0.0
    if not all(width > 0.0 for width in (*first.widths, *second.widths)):
        return math.inf  # a number that moved has no noise
    match first.rule:
        case Rule.NOTHING:
            return 0.0
        case Rule.RECORDS:
            return max(moved)
        case Rule.ROUND:
            # widths are the scales of threshold and questions in records, and the epsilon that a round may have
            threshold, question, epsilon = first.widths
            return max(moved) * (1.0 / threshold + 2.0 / question) / epsilon
        case Rule.SMOOTH:
            return _measure_smooth(first, second, one.events)
        case _:
            return _measure_noisy(first, moved, one.events)


def _measure_noisy(exact: Exact, moved: Sequence[float], events: Sequence[Event]) -> float:
    event = events[0] if len(events) == 1 else None
    if exact.rule is Rule.WEIGHTED_SQUARES and isinstance(event, DiscreteGaussian):
        weighted = math.fsum(change**2 / width for change, width in zip(moved, exact.widths, strict=True))
        return math.sqrt(weighted * float(event.variance) / float(event.squared_sensitivity))
    if exact.rule is Rule.SAMPLED and isinstance(event, SubsampledGaussian):
        return moved[0] * math.sqrt(float(event.variance / event.squared_sensitivity) / exact.widths[0])
    epsilon = math.fsum(float(paid.epsilon) for paid in events if isinstance(paid, DiscreteLaplace))
    if epsilon == 0.0:
        return math.inf
    if exact.rule is Rule.PERMUTED:
        # given all other noise, the noise of the statistic covers its own change and that of any permuted one
        return (moved[0] + max(moved[1:], default=0.0)) / exact.widths[0] / epsilon
    return math.fsum(change / width for change, width in zip(moved, exact.widths, strict=True)) / epsilon


def _measure_smooth(first: Exact, second: Exact, events: Sequence[Event]) -> float:
    """Half of epsilon covers the shift of the median; the rest, with delta, covers two different scales."""
    event = events[0] if len(events) == 1 else None
    if not isinstance(event, SmoothLaplace) or not first.widths or not second.widths:
        return math.inf
    scales = first.widths[0], second.widths[0]
    shift = abs(first.values[0] - second.values[0]) / (min(scales) * float(event.epsilon) / 2)
    dilation = math.log(max(scales) / min(scales)) / math.log(dilation_bound(event.epsilon, event.delta))
    return max(shift, dilation)


def find_unpaid(exchanges: Sequence[Exchange]) -> list[str]:
    """Return what was answered without a charge that covers it: no event, or noise of another law.

    A question to a sparse vector is covered by the charge that started its round.
    """
    unpaid = []
    round_is_open = False
    for place, exchange in enumerate(exchanges, start=1):
        if exchange.refusal is not None or exchange.exact.rule is Rule.NOTHING:
            continue
        where = f"question {place} ({exchange.door})"
        started = any(isinstance(event, SparseVectorRound) for event in exchange.events)
        if exchange.exact.rule is Rule.ROUND:
            if not started and not round_is_open:
                unpaid.append(f"{where} starts a round that was not charged")
            if started and round_is_open:
                unpaid.append(f"{where} was charged in the middle of a round")
        elif not exchange.events and not (exchange.exact.public and not exchange.exact.values):
            unpaid.append(f"{where} was not charged")
        allowed = frozenset({NoiseLaw.LAPLACE}) if exchange.exact.rule is Rule.ROUND else _allowed_laws(exchange.events)
        wrong = _find_wrong(exchange.draws, allowed)
        if wrong is not None:
            unpaid.append(f"{where} drew noise from the {wrong.value}, which its charge does not cover")
        if exchange.exact.rule is Rule.ROUND:
            round_is_open = (round_is_open or started) and not exchange.answer
    return unpaid


def _allowed_laws(events: Sequence[Event]) -> frozenset[NoiseLaw]:
    return frozenset(law for event in events for law in _LAWS.get(type(event), frozenset()))


def _find_wrong(draws: Sequence[Draw], allowed: frozenset[NoiseLaw]) -> NoiseLaw | None:
    return next((draw.law for draw in draws if draw.law not in allowed), None)
