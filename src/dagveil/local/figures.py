"""What a channel promises, in figures that are computed from its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from dagveil.errors import DataError
from dagveil.local.channel import Channel
from dagveil.local.combined_geometric import MOST_WRITTEN_OUT, CombinedGeometric
from dagveil.local.geometric import published_parameter
from dagveil.local.record import Norm, RecordChannel
from dagveil.local.weights import MatrixWeights, ResponseWeights

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
