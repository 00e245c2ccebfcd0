"""Channels of local privacy: randomised response and geometric noise, in exact integers."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError
from dagveil.privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

WHOLE: Final = 2**53  # what the weights of one value add up to: certainty
LOG_ERROR: Final = 1e-13  # more than float rounding can do to a difference of two logarithms of numbers up to 2⁵³
HAIR: Final = 2.0**-49  # relatively more than float rounding can do to a probability that a few operations give


@dataclass(frozen=True, slots=True, eq=False)
class Channel:
    """Weights of reports for each true value."""

    weights: Integers  # whole numbers in the shape (values, reports); each row adds up to 2⁵³

    def __post_init__(self) -> None:
        if self.weights.ndim != 2 or self.weights.shape[0] < 1 or self.weights.dtype != np.int64:
            raise BudgetError("a channel is a matrix of 64-bit whole numbers, one row for each true value")
        if (self.weights < 0).any() or (self.weights.sum(axis=1) != WHOLE).any():
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

    def gap_of_neighbours(self) -> float:
        """Return the largest log-ratio of two values one step apart, rounded up.

        It is the metric parameter on a line: a log-ratio over several steps is a sum over the steps between.
        """
        return float(widest_gaps(self, 1).max())

    def success(self, prior: Floats | None = None) -> float:
        """Return how often an attacker guesses the truth from the report, at best."""
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
    """
    shares = raw / raw.sum(axis=1, keepdims=True)
    weights = np.maximum(np.rint(shares * WHOLE).astype(np.int64), 1)
    places = shares.argmax(axis=1)
    weights[np.arange(len(weights)), places] += WHOLE - weights.sum(axis=1)
    return Channel(weights)


def widest_gaps(channel: Channel, farthest: int | None = None) -> Floats:
    """Return for each distance 0, 1, … of two values, up to the farthest, their largest log-ratio, rounded up."""
    weights, logs = channel.weights, _log(channel.weights)
    gaps = [0.0]
    # one distance at a time: all pairs of a thousand values with all their reports would take gigabytes
    for r in range(1, channel.n_values if farthest is None else min(farthest + 1, channel.n_values)):
        with np.errstate(invalid="ignore"):
            # two weights of 0 have no ratio: such a report never comes
            widest = np.nan_to_num(np.abs(logs[r:] - logs[:-r]), nan=0.0, posinf=np.inf).max(axis=1)
        # logarithms of numbers that differ may be equal, so the whole numbers tell whether there is a gap
        differ = (weights[r:] != weights[:-r]).any(axis=1)
        gaps.append(float(np.where(differ, widest * (1.0 + LOG_ERROR) + LOG_ERROR, 0.0).max()))
    return np.array(gaps)


def distances_on_line(n_values: int) -> Floats:
    """Return |x − x′| between the positions of values."""
    places = np.arange(n_values, dtype=np.float64)
    return np.abs(places[:, None] - places[None, :])


def round_up(value: float) -> float:
    """Return a difference of logarithms with more on top than rounding can have taken from it."""
    return value * (1.0 + LOG_ERROR) + LOG_ERROR


def _log(weights: Integers) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights.astype(np.float64)))


def randomised_response(n_values: int, epsilon: float) -> Channel:
    """Return randomised response over so many values with at most this ε."""
    if not epsilon >= 0.0 or not math.isfinite(epsilon):
        raise BudgetError(f"the epsilon of randomised response is {epsilon:g}; choose a finite number of 0 or more")
    _check_values(n_values)
    # the weight of another value comes from epsilon at once: 1 − truth would keep few digits of it
    shrink = math.exp(-lower(epsilon))
    return _response(n_values, math.ceil(WHOLE * shrink / (1.0 + (n_values - 1) * shrink) * (1.0 + HAIR)))


def response_with_truth(n_values: int, truth: float) -> Channel:
    """Return randomised response that tells the truth with at most this probability."""
    check_truth(n_values, truth)
    return _response(n_values, math.ceil((1.0 - truth) * WHOLE / max(n_values - 1, 1)))


def truth_of_response(n_values: int, epsilon: float) -> float:
    """Return e^ε / (k − 1 + e^ε): how often randomised response tells the truth."""
    return 1.0 / (1.0 + (n_values - 1) * math.exp(-epsilon))


def lower(epsilon: float) -> float:
    """Return a hair less than this ε, so that the exact one, which is rounded up, is never above what was asked for."""
    return max(epsilon * (1.0 - 1e-12) - 4.0 * LOG_ERROR, 0.0)


def check_truth(n_values: int, truth: float) -> None:
    """Refuse a probability of the truth that no channel of this kind can have."""
    _check_values(n_values)
    # whole numbers are divided, since those of a product of many columns may be beyond all floats
    chance = 1 / n_values
    if not (chance <= truth * (1.0 + 1e-12) and truth < 1.0) and n_values > 1:
        size = write_size(n_values)
        raise BudgetError(
            f"the truth cannot be reported with probability {truth:g}: with {size} values it must be at least "
            f"1/{size} = {chance:.4g}, which is blind guessing, and below 1"
        )


def write_size(size: int) -> str:
    """Write a number of values or records, a very large one as a power of 2."""
    return str(size) if size <= WHOLE else f"(about 2**{math.log2(size):.0f})"


def _check_values(n_values: int) -> None:
    if n_values < 1:
        raise BudgetError(f"a channel needs at least 1 value, not {n_values}")


def _response(n_values: int, other: int) -> Channel:
    if n_values == 1:
        return Channel(np.array([[WHOLE]], dtype=np.int64))
    # others were rounded up, the truth takes the rest: the ratio of the two never exceeds what was asked for
    other = max(min(other, WHOLE // n_values), 1)
    weights = np.full((n_values, n_values), other, dtype=np.int64)
    np.fill_diagonal(weights, WHOLE - (n_values - 1) * other)
    return Channel(weights)


def bounded_geometric(n_values: int, truth: float) -> Channel:
    """Return the bounded geometric mechanism on so many values in a row."""
    check_truth(n_values, truth)
    return channel_from_weights(np.exp(-_rates(n_values, truth)[:, None] * distances_on_line(n_values)))


def _rates(n_values: int, truth: float) -> Floats:
    """Return ε_x of each value in a row."""
    return np.array([find_rate(row, np.ones(n_values), truth) for row in distances_on_line(n_values)])


def find_rate(distances: Floats, counts: Floats, truth: float) -> float:
    """Return the ε_x ≥ 0 with Σ counts · exp(−ε_x · distances) = 1 / truth, by bisection.

    Distances are from the true value; the truth itself has distance 0 and is counted once.
    """
    wanted = 1.0 / truth
    if float(counts.sum()) <= wanted:
        return 0.0

    def too_low(rate: float) -> bool:
        return float((counts * np.exp(-rate * distances)).sum()) > wanted

    low, high = 0.0, 1.0
    while too_low(high):
        high *= 2.0
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high


def published_parameter(n_values: int, truth: float) -> float:
    """Return the largest ε_x, which the publication takes for the parameter of metric privacy.

    It understates: docs/proofs/channels.md has the exact one, up to 2.16 times larger.
    """
    return float(_rates(n_values, truth).max())


def geometric_with_epsilon(n_values: int, epsilon: float) -> Channel:
    """Return the bounded geometric mechanism whose exact ε of local privacy is at most this, by bisection."""
    low, high = 1.0 / n_values, 1.0 - 2.0**-40
    for _ in range(40):
        middle = (low + high) / 2.0
        private = bounded_geometric(n_values, middle).epsilon() <= epsilon
        low, high = (middle, high) if private else (low, middle)
    channel = bounded_geometric(n_values, low)
    return channel if channel.epsilon() <= epsilon else bounded_geometric(n_values, math.nextafter(1.0 / n_values, 1.0))
