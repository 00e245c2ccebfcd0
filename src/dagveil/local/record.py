"""Channels for whole records: one per column, or one for the product of all columns."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from dagveil.errors import BudgetError
from dagveil.local import channel as one_column
from dagveil.local.channel import HAIR, Channel, Floats, Integers, check_truth, round_up
from dagveil.privacy.noise.source import NoiseSource

if TYPE_CHECKING:
    from dagveil.local.combined_geometric import CombinedGeometric

# what randomises whole records, given as codes in the shape (records, columns)
RecordChannel: TypeAlias = "ComponentWise | CombinedResponse | CombinedGeometric"
CERTAIN: Final = 2**62  # what the weights of combined randomised response add up to
# largest product of columns with one channel: numbers of records must be exact, and each must have a weight
MOST_RECORDS: Final = 2**52


class Norm(enum.Enum):
    """How far two records are apart."""

    MANHATTAN = "1"
    EUCLIDEAN = "2"
    CHEBYSHEV = "inf"


class Split(enum.Enum):
    """How columns share the ε of a record."""

    UNIFORM = "uniform"
    BY_LEVELS = "levels"  # in proportion to their numbers of levels, as published


@dataclass(frozen=True, slots=True, eq=False)
class Undo:
    """How averages over true records follow from averages over reports.

    A report is, with probability `kept`, what a channel for each column made of the record, and otherwise any record at
    all, all of them equally likely.
    """

    inverses: tuple[Floats, ...]  # inverse of each column's matrix, in the shape (reports, values)
    kept: float = 1.0  # probability that the report has to do with the record


@dataclass(frozen=True, slots=True, eq=False)
class ComponentWise:
    """One channel for each column, with independent noise."""

    channels: tuple[Channel, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(channel.n_values for channel in self.channels)

    def epsilon(self) -> float:
        """Return the sum of the columns' ε: a report exists that is the worst for every column at once."""
        return math.fsum(channel.epsilon() for channel in self.channels)

    def truth(self) -> float:
        """Return the product of the columns' probabilities of the truth, for the value where it is most likely."""
        return math.prod(channel.success() for channel in self.channels)

    def metric_parameter(self, norm: Norm) -> float:
        """Return the largest sum of log-ratios per unit of distance (docs/proofs/channels.md)."""
        if norm is not Norm.EUCLIDEAN:
            # steps to a neighbour in one column, or in all columns at once, are the worst
            steps = [channel.gap_of_neighbours() for channel in self.channels]
            return max(steps, default=0.0) if norm is Norm.MANHATTAN else math.fsum(steps)
        reach = [one_column.widest_gaps(channel) for channel in self.channels]
        # squared distance → largest sum of gaps, column by column
        best = np.zeros(1)
        for gaps in reach:
            longer = np.full(len(best) + (len(gaps) - 1) ** 2, -np.inf)
            for apart, gap in enumerate(gaps):
                stretch = slice(apart**2, apart**2 + len(best))
                longer[stretch] = np.maximum(longer[stretch], best + gap)
            best = longer
        return float((best[1:] / np.sqrt(np.arange(1, len(best)))).max(initial=0.0)) * (1.0 + len(reach) * HAIR)

    def report(self, records: Integers, noise: NoiseSource) -> Integers:
        """Draw a report for each record, column by column."""
        check_records(records, self.levels)
        columns = [channel.report(records[:, j], noise) for j, channel in enumerate(self.channels)]
        return np.stack(columns, axis=1) if columns else np.empty((len(records), 0), dtype=np.int64)

    def undo(self) -> Undo:
        """Return the inverses of the columns' matrices."""
        return Undo(tuple(invert(channel.matrix) for channel in self.channels))


@dataclass(frozen=True, slots=True)
class CombinedResponse:
    """Randomised response over the product of all columns, never written out: the truth, or any other record."""

    levels: tuple[int, ...]  # levels of each column
    truth_weight: int  # probability of the true record in units of 2⁻⁶²

    def __post_init__(self) -> None:
        check_product(self.levels)
        # less than a unit below chance is rounding; a rarer truth would be known by its absence
        if (self.truth_weight + 1) * self.size <= CERTAIN:
            raise BudgetError(
                f"the true record has weight {self.truth_weight} of 2**62, rarer than chance among {self.size} "
                f"records; it must be at least {-(-CERTAIN // self.size)}"
            )
        if self.truth_weight > CERTAIN - min(self.size - 1, 1):
            raise BudgetError("the weight of the true record must be below 2**62, which is certainty; lower it")

    @property
    def size(self) -> int:
        """How many records there are."""
        return math.prod(self.levels)

    def epsilon(self) -> float:
        """Return the logarithm of the ratio of the truth's probability to that of any other record, or its inverse."""
        # whole numbers: the truth, and all other records together, in units in which both are exact
        truth, others = self.truth_weight * (self.size - 1), CERTAIN - self.truth_weight
        return 0.0 if truth == others or self.size == 1 else round_up(abs(math.log(truth / others)))

    def probabilities(self) -> tuple[float, float]:
        """Return the probability of the true record, and that of each other one."""
        other = Fraction(CERTAIN - self.truth_weight, max(self.size - 1, 1))
        return self.truth_weight / CERTAIN, float(other / CERTAIN)

    def truth(self) -> float:
        """Return the probability of the true record, or that of another one if rounding made it likelier."""
        return max(self.probabilities())

    def metric_parameter(self, norm: Norm) -> float:
        """Return ε: neighbours at distance 1 differ by as much as any two records."""
        return self.epsilon()

    def report(self, records: Integers, noise: NoiseSource) -> Integers:
        """Draw a report for each record."""
        check_records(records, self.levels)
        reports = records.copy()
        lies = np.flatnonzero(noise.uniform_below(CERTAIN, len(records)) >= self.truth_weight)
        while len(lies):
            # any record but the true one: draw again where the draw is the truth
            for column, levels in enumerate(self.levels):
                reports[lies, column] = noise.uniform_below(levels, len(lies))
            lies = lies[(reports[lies] == records[lies]).all(axis=1)]
        return reports

    def undo(self) -> Undo:
        """Return the share of records that are kept: the others are drawn from all records, the true one included."""
        kept = (self.truth_weight * self.size - CERTAIN) / (CERTAIN * max(self.size - 1, 1))
        if kept <= 1e-12:
            raise BudgetError("these reports have nothing to do with the records; raise epsilon")
        return Undo(tuple(np.eye(k) for k in self.levels), kept)


def combined_response(levels: Sequence[int], truth: float) -> CombinedResponse:
    """Return randomised response over the product of columns that tells the true record with this probability."""
    size = check_product(levels)
    check_truth(size, truth)
    return _combined_response(levels, math.floor(truth * CERTAIN))


def combined_response_with_epsilon(levels: Sequence[int], epsilon: float) -> CombinedResponse:
    """Return randomised response over the product of columns with at most this ε."""
    size = check_product(levels)
    shrink = math.exp(-one_column.lower(epsilon))
    others = (size - 1) * shrink
    # the smaller of the two probabilities is rounded, so that both keep their digits
    if others > 1.0:
        return _combined_response(levels, math.floor(CERTAIN / (1.0 + others) * (1.0 - HAIR)))
    return _combined_response(levels, CERTAIN - math.ceil(CERTAIN * others / (1.0 + others) * (1.0 + HAIR)))


def check_product(levels: Sequence[int]) -> int:
    """Return how many records there are; refuse more than the weights of a channel can tell apart."""
    size = math.prod(levels)
    if size > MOST_RECORDS:
        raise BudgetError(
            f"the product of all columns has {one_column.write_size(size)} records, more than 2**52; group levels, or "
            "choose component-wise noise"
        )
    return size


def _combined_response(levels: Sequence[int], truth_weight: int) -> CombinedResponse:
    """Keep the truth as likely as chance, and every other record possible."""
    size = math.prod(levels)
    lies = 0 if size == 1 else max(CERTAIN - truth_weight, 1)
    return CombinedResponse(tuple(levels), max(CERTAIN - lies, -(-CERTAIN // size)))


def component_wise_response(levels: Sequence[int], epsilon: float, split: Split) -> ComponentWise:
    """Return randomised response for each column; the shares of ε follow the split."""
    return ComponentWise(tuple(map(one_column.randomised_response, levels, split_epsilon(levels, epsilon, split))))


def component_wise_geometric(levels: Sequence[int], epsilon: float, split: Split) -> ComponentWise:
    """Return the bounded geometric mechanism for each column, its exact ε at most the column's share."""
    return ComponentWise(tuple(map(one_column.geometric_with_epsilon, levels, split_epsilon(levels, epsilon, split))))


def split_epsilon(levels: Sequence[int], epsilon: float, split: Split) -> list[float]:
    """Divide ε among columns."""
    weights = [1 if split is Split.UNIFORM else k for k in levels]
    return [epsilon * weight / sum(weights) for weight in weights]


def truths_of_columns(levels: Sequence[int], truth: float, split: Split) -> list[float]:
    """Return with which probability each column tells the truth, so that the record is true with this probability.

    The columns are those of randomised response whose ε is divided by the split (section 4 of the publication, `Priv`).
    """
    check_truth(math.prod(levels), truth)

    def truths(epsilon: float) -> list[float]:
        return list(map(one_column.truth_of_response, levels, split_epsilon(levels, epsilon, split)))

    low, high = 0.0, 1.0
    while math.prod(truths(high)) < truth:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if math.prod(truths(middle)) < truth else (low, middle)
    return truths(low)


def response_of_truth(levels: Sequence[int], truth: float, split: Split) -> ComponentWise:
    """Return component-wise randomised response that tells the true record with this probability."""
    return ComponentWise(tuple(map(one_column.response_with_truth, levels, truths_of_columns(levels, truth, split))))


def geometric_of_truth(levels: Sequence[int], truth: float, split: Split) -> ComponentWise:
    """Return component-wise geometric channels that tell the true record with this probability.

    Each column protects as well as that of `response_of_truth`, if the attacker takes every value for equally likely.
    """
    return ComponentWise(tuple(map(one_column.bounded_geometric, levels, truths_of_columns(levels, truth, split))))


def invert(matrix: Floats) -> Floats:
    """Return the inverse of a channel's matrix, or say that its reports do not tell values apart."""
    if np.linalg.cond(matrix) > 1e12:
        raise BudgetError("this channel reports some values alike, so nothing can be learned about them; raise epsilon")
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def join(matrices: Sequence[Floats]) -> Floats:
    """Return the matrix of several independent channels together, codes in row-major order."""
    return reduce(lambda left, right: np.kron(left, right).astype(np.float64), matrices, np.ones((1, 1)))


def check_records(records: Integers, levels: tuple[int, ...]) -> None:
    """Refuse records that are not codes of these levels."""
    if records.ndim != 2 or records.shape[1] != len(levels):
        raise BudgetError(f"records must be codes in the shape (records, {len(levels)})")
    if len(records) and ((records < 0).any() or (records >= np.array(levels)).any()):
        raise BudgetError("some records have codes outside of the declared levels")
