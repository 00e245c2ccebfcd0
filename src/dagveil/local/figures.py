"""What a channel promises, in figures that are computed from its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError, DataError
from dagveil.local.channel import Channel
from dagveil.local.combined_geometric import MOST_WRITTEN_OUT, CombinedGeometric
from dagveil.local.geometric import published_parameter
from dagveil.local.record import CombinedResponse, ComponentWise, Norm, RecordChannel
from dagveil.local.weights import MatrixWeights, ResponseWeights

Floats = NDArray[np.float64]

MOST_PRIORS: Final = 2**22
"""Largest product of columns whose records' prior is written out."""

TOLERANCE: Final = 1e-9
"""By which share a stated figure may be below the one computed here: logarithms differ a little between machines."""

_WORDS: Final = {
    "epsilon": "epsilon",
    "success": "that an attacker guesses right with probability",
    "metric": "the metric parameter",
    "published": "the published metric parameter",
}


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a channel promises.

    Attributes
    ----------
    epsilon
        The exact ε of local privacy, rounded up. A column of a combined channel has none of its own.
    success
        How often an attacker who takes every value for equally likely guesses right, at best.
    metric
        The exact parameter of metric privacy, rounded up; None where too many pairs would have to be compared.
    published
        What the publication takes for that parameter, for geometric noise.
    """

    epsilon: float | None
    success: float | None
    metric: float | None
    published: float | None = None

    @property
    def ratio(self) -> float | None:
        """By which factor the publication understates the metric parameter."""
        return self.metric / self.published if self.metric and self.published else None

    def check(self, computed: Figures, what: str) -> None:
        """Refuse figures that promise more than those computed from the weights.

        >>> Figures(1.0, 0.7, 1.0).check(Figures(0.9, 0.7, 0.9), "a record")
        """
        for name, word in _WORDS.items():
            said, found = getattr(self, name), getattr(computed, name)
            if said is None and found is None:
                continue
            if said is None:
                raise DataError(f"this protocol does not say what it promises for {what}: {name}; plan it again")
            if found is None:
                raise DataError(f"this protocol promises {word} {said:.6g} for {what}, which has none; plan it again")
            # nothing on top of a success: it may be as small as one record in 2⁵²
            slack = 0.0 if name == "success" else 1e-12
            if not (math.isfinite(said) and found <= said * (1.0 + TOLERANCE) + slack):
                raise DataError(
                    f"this protocol promises {word} {said:.6g} for {what}, but its weights give {found:.6g}; "
                    "do not use it, ask for the original file"
                )


def column_figures(channel: Channel, weights: ResponseWeights | MatrixWeights) -> Figures:
    """Return what the channel of one column promises."""
    published = None
    if isinstance(weights, MatrixWeights):
        published = published_parameter(channel.n_values, channel.success()) if channel.n_values > 1 else 0.0
    return Figures(channel.epsilon(), channel.success(), channel.gap_of_neighbours(), published)


def record_figures(channel: RecordChannel, norm: Norm, columns: Sequence[Figures]) -> Figures:
    """Return what the channel of whole records promises, given the figures of its columns."""
    epsilon, success = channel.epsilon(), channel.truth()
    if isinstance(channel, CombinedGeometric):
        metric = channel.metric_parameter(norm) if channel.size <= MOST_WRITTEN_OUT else None
        return Figures(epsilon, success, metric, channel.largest_rate())
    # the publication names a parameter for one value; for records it adds columns up only in the 1-norm: the largest
    parts = [figures.published for figures in columns if figures.published is not None]
    published = max(parts) if parts and norm is Norm.MANHATTAN else None
    return Figures(epsilon, success, channel.metric_parameter(norm), published)


def success_with_priors(channel: RecordChannel, priors: Sequence[Floats]) -> float:
    """Return how often an attacker guesses the whole record from its report, at best.

    Parameters
    ----------
    channel
        Of records.
    priors
        What the attacker knows before about each column; columns are independent in that knowledge.

    Examples
    --------
    >>> from dagveil.local.record import combined_response
    >>> round(success_with_priors(combined_response((2,), 0.75), [np.array([0.9, 0.1])]), 4)
    0.9
    """
    if isinstance(channel, ComponentWise):
        return math.prod(one.success(prior) for one, prior in zip(channel.channels, priors, strict=True))
    size = math.prod(channel.levels)
    most = MOST_WRITTEN_OUT if isinstance(channel, CombinedGeometric) else MOST_PRIORS
    if size > most:
        raise BudgetError(
            f"the guesses about {size} records cannot be written out, and the limit is {most}; ask without a prior, or "
            "choose component-wise noise"
        )
    prior = reduce(lambda left, right: np.multiply.outer(left, right).ravel(), priors, np.ones(1))
    if isinstance(channel, CombinedGeometric):
        return channel.write_out().success(prior)
    if not isinstance(channel, CombinedResponse):
        raise BudgetError("success with a prior is known for the channels of this package only")
    truth, other = channel.probabilities()
    # of the other records the likeliest is the best guess; for the likeliest report it is the next one
    order = np.argsort(prior)
    best = np.full(size, prior[order[-1]])
    best[order[-1]] = prior[order[-2]] if size > 1 else 0.0
    return float(np.maximum(prior * truth, best * other).sum())
