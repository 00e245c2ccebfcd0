"""A channel: with which probability each value is reported as each other, in exact integers.

Probabilities are whole multiples of 2⁻⁵³, and reports are drawn with exactly these, so everything that is computed from
the matrix is true of what leaves the person (docs/proofs/channels.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WHOLE: Final = 2**53
"""What the weights of one value add up to: certainty."""

LOG_ERROR: Final = 1e-13
"""More than float rounding can do to a difference of two logarithms of numbers up to 2⁵³."""

_BLOCK: Final = 2**22
"""Numbers held at a time when all pairs of values are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """Weights of reports for each true value.

    Parameters
    ----------
    weights
        Whole numbers in the shape (values, reports); each row adds up to 2⁵³.

    Examples
    --------
    >>> channel = Channel(np.array([[3, 1], [1, 3]], dtype=np.int64) * 2**51)
    >>> channel.matrix.tolist(), round(channel.epsilon(), 6) == round(math.log(3), 6)
    ([[0.75, 0.25], [0.25, 0.75]], True)
    """

    weights: Integers

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.weights.shape[0] < 1 or self.weights.dtype != np.int64:
            raise BudgetError("a channel is a matrix of 64-bit whole numbers, one row for each true value")
        if (self.weights < 0).any() or not (_row_sums(self.weights) == WHOLE).all():
            raise BudgetError("the weights of a channel must not be negative, and each row must add up to 2**53")

    @property
    def n_values(self) -> int:
        """How many true values there are."""
        return int(self.weights.shape[0])

    @property
    def matrix(self) -> Floats:
        """Probabilities, exact in float64: the row is the truth, the column the report."""
        return self.weights / float(WHOLE)

    def epsilon(self) -> float:
        """Return the ε of local privacy, rounded up: the largest log-ratio of two probabilities of one report."""
        most, least = self.weights.max(axis=0), self.weights.min(axis=0)
        # logarithms of numbers that differ may be equal, so the whole numbers tell whether there is a gap
        differ = most != least
        return round_up(float((_log(most[differ]) - _log(least[differ])).max())) if differ.any() else 0.0

    def metric_parameter(self, distances: Floats) -> float:
        """Return the parameter of metric privacy, rounded up: the largest log-ratio per unit of distance.

        Parameters
        ----------
        distances
            Between true values, in the shape (values, values); values at distance 0 are not compared.
        """
        if distances.shape != (self.n_values, self.n_values):
            raise BudgetError(f"{self.n_values} values need {self.n_values} × {self.n_values} distances")
        worst, logs = 0.0, _log(self.weights)
        rows = max(1, _BLOCK // max(1, self.weights.size))
        for start in range(0, self.n_values, rows):
            apart = distances[start : start + rows]
            stretch = slice(start, start + rows)
            gaps = _widest(self.weights[stretch, None], self.weights[None], logs[stretch, None], logs[None])
            compared = apart > 0.0
            worst = max(worst, float((gaps[compared] / apart[compared]).max(initial=0.0)))
        return worst

    def gap_of_neighbours(self) -> float:
        """Return the largest log-ratio of two values one step apart, rounded up.

        It is the metric parameter on a line: a log-ratio over several steps is a sum over the steps between.
        """
        return float(widest_gaps(self, 1).max())

    def success(self, prior: Floats | None = None) -> float:
        """Return how often an attacker guesses the truth from the report, at best.

        Parameters
        ----------
        prior
            What the attacker knows before; None takes every value for equally likely.
        """
        shares = np.full(self.n_values, 1.0 / self.n_values) if prior is None else np.asarray(prior, dtype=np.float64)
        if shares.shape != (self.n_values,) or (shares < 0.0).any() or not math.isclose(float(shares.sum()), 1.0):
            raise BudgetError(f"a prior has {self.n_values} shares that are not negative and add up to 1")
        return float((shares[:, None] * self.matrix).max(axis=0).sum())

    def report(self, values: Integers, noise: NoiseSource) -> Integers:
        """Draw a report for each true value, with exactly the channel's probabilities."""
        values = np.asarray(values, dtype=np.int64)
        if len(values) and (values.min() < 0 or values.max() >= self.n_values):
            raise BudgetError(f"this channel takes values from 0 to {self.n_values - 1}; some are outside")
        draws = noise.uniform_below(WHOLE, len(values))
        ends = np.cumsum(self.weights, axis=1)
        reports = np.empty(len(values), dtype=np.int64)
        for value in np.unique(values):
            chosen = values == value
            reports[chosen] = np.searchsorted(ends[value], draws[chosen], side="right")
        return reports


def channel_from_weights(raw: Floats) -> Channel:
    """Return the channel whose probabilities are nearest to these, none of them zero.

    What rounding leaves over goes to each row's largest entry.

    Examples
    --------
    >>> channel_from_weights(np.array([[2.0, 1.0, 1.0]])).matrix.tolist()
    [[0.5, 0.25, 0.25]]
    """
    shares = raw / raw.sum(axis=1, keepdims=True)
    weights = np.maximum(np.rint(shares * WHOLE).astype(np.int64), 1)
    places = shares.argmax(axis=1)
    weights[np.arange(len(weights)), places] += WHOLE - _row_sums(weights)
    return Channel(weights)


def widest_gaps(channel: Channel, farthest: int | None = None) -> Floats:
    """Return for each distance 0, 1, … of two values, up to the farthest, their largest log-ratio, rounded up.

    Examples
    --------
    >>> widest_gaps(channel_from_weights(np.ones((3, 4)))).tolist()
    [0.0, 0.0, 0.0]
    """
    weights, logs = channel.weights, _log(channel.weights)
    # one distance at a time: all pairs of a thousand values with all their reports would take gigabytes
    steps = range(1, channel.n_values if farthest is None else min(farthest + 1, channel.n_values))
    return np.array([0.0, *(float(_widest(weights[r:], weights[:-r], logs[r:], logs[:-r]).max()) for r in steps)])


def distances_on_line(n_values: int) -> Floats:
    """Return |x − x′| between the positions of values.

    Examples
    --------
    >>> distances_on_line(2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    places = np.arange(n_values, dtype=np.float64)
    return np.abs(places[:, None] - places[None, :])


def round_up(value: float) -> float:
    """Return a difference of logarithms with more on top than rounding can have taken from it.

    Examples
    --------
    >>> round_up(0.0)
    1e-13
    """
    return value * (1.0 + LOG_ERROR) + LOG_ERROR


def _row_sums(weights: Integers) -> Integers:
    sums: Integers = weights.sum(axis=1)
    return sums


def _log(weights: Integers) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(weights.astype(np.float64))
    return logs


def _widest(some: Integers, others: Integers, some_logs: Floats, other_logs: Floats) -> Floats:
    """Return the largest log-ratio over reports, the last axis, rounded up; 0 where the weights are equal."""
    with np.errstate(invalid="ignore"):
        # two weights of 0 have no ratio: such a report never comes
        widest = np.nan_to_num(np.abs(some_logs - other_logs), nan=0.0, posinf=np.inf).max(axis=-1)
    return np.where((some != others).any(axis=-1), widest * (1.0 + LOG_ERROR) + LOG_ERROR, 0.0)
