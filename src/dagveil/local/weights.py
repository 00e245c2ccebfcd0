"""Weights of one column's channel, as a protocol writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from dagveil.errors import BudgetError
from dagveil.local.channel import WHOLE, Channel, bounded_geometric

SAME: Final = 1e-9
"""By how much a probability may differ from the mechanism's: exponentials differ a little between machines."""


class ResponseWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="response", forbid_unknown_fields=True):
    """Randomised response of one column, in units of 2⁻⁵³."""

    truth: int
    other: int

    @classmethod
    def of(cls, channel: Channel) -> ResponseWeights:
        """Write the weights of randomised response.

        >>> ResponseWeights.of(Channel(np.array([[WHOLE]], dtype=np.int64))).other
        0
        """
        other = int(channel.weights[0, 1]) if channel.n_values > 1 else 0
        return cls(int(channel.weights[0, 0]), other)

    def read(self, n_values: int) -> Channel:
        """Return the channel; refuse weights that are none, or that tell the truth less often than another value."""
        _check_range((self.truth, self.other))
        if self.truth < self.other:
            raise BudgetError("the truth is rarer than any other value, so this is no randomised response")
        matrix = np.full((n_values, n_values), self.other, dtype=np.int64)
        np.fill_diagonal(matrix, self.truth)
        return Channel(matrix)


class MatrixWeights(msgspec.Struct, frozen=True, tag_field="kind", tag="matrix", forbid_unknown_fields=True):
    """The bounded geometric mechanism of one column, in units of 2⁻⁵³: the row is the truth, the column the report."""

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, channel: Channel) -> MatrixWeights:
        """Write all weights of a channel."""
        return cls(tuple(tuple(row) for row in channel.weights.tolist()))

    def read(self, n_values: int) -> Channel:
        """Return the channel; refuse weights that are none, or that are not those of the mechanism."""
        if len(self.rows) != n_values or any(len(row) != n_values for row in self.rows):
            raise BudgetError(f"a column of {n_values} levels needs {n_values} × {n_values} weights")
        _check_range(weight for row in self.rows for weight in row)
        channel = Channel(np.array(self.rows, dtype=np.int64))
        truth = float(np.median(np.diag(channel.matrix)))
        if n_values > 1 and np.abs(channel.matrix - bounded_geometric(n_values, truth).matrix).max() > SAME:
            raise BudgetError("the probabilities are not those of the bounded geometric mechanism")
        return channel


def _check_range(weights: Iterable[int]) -> None:
    if not all(0 <= weight <= WHOLE for weight in weights):
        raise BudgetError("weights lie between 0 and 2**53")
