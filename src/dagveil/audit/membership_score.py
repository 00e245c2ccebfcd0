"""How much the answers of a run speak for a record, if the rest of the table is known by its model only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dagveil.audit.likelihood import weigh_choice, weigh_rounds
from dagveil.audit.recording import Exchange, Rule

Floats = NDArray[np.float64]
Replays = Sequence[Sequence[Exchange]]

_GAUSSIAN: Final = frozenset({Rule.WEIGHTED_SQUARES, Rule.SAMPLED})
_LAPLACE: Final = frozenset({Rule.SCALED_SIZES, Rule.SMOOTH})


def weigh_transcript(told: Sequence[Exchange], without: Replays, with_record: Replays) -> float:
    """Return the score of a run: the larger, the more its answers look as if the record had been there.

    Parameters
    ----------
    told
        The run.
    without, with_record
        Its replays on reference tables. Their means say where an answer is to be expected, their spread how far the
        unknown rest of the table moves it.
    """
    score = 0.0
    for place, exchange in enumerate(told):
        if exchange.refusal is None:
            score += _weigh(exchange, [run[place] for run in without], [run[place] for run in with_record])
    rounds = [[weigh_rounds(told, run) for run in runs] for runs in (without, with_record)]
    return score + float(logsumexp(rounds[1]) - logsumexp(rounds[0]))


def _weigh(told: Exchange, without: Sequence[Exchange], with_record: Sequence[Exchange]) -> float:
    rule = without[0].exact.rule
    if rule is Rule.RECORDS:
        likelihoods = [[weigh_choice(told, one.exact.values) for one in runs] for runs in (without, with_record)]
        return float(logsumexp(likelihoods[1]) - logsumexp(likelihoods[0]))
    if rule not in _GAUSSIAN | _LAPLACE or not told.exact.values:
        return 0.0
    answer = np.array(told.exact.values)
    lengths = {len(one.exact.values) for one in (*without, *with_record)} | {len(answer)}
    if len(lengths) != 1:
        return 0.0
    low, high = (np.array([one.exact.values for one in runs]) for runs in (without, with_record))
    width = np.mean([one.exact.widths for one in without], axis=0)
    noise = 2.0 * width**2 if rule in _LAPLACE else width
    shift = (high - low).mean(axis=0)
    spread = np.vstack([low - low.mean(axis=0), high - high.mean(axis=0)]).var(axis=0)
    middle = (high.mean(axis=0) + low.mean(axis=0)) / 2.0
    return float(((answer - middle) * shift / (noise + spread)).sum())
