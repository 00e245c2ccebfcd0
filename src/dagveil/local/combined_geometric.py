"""The bounded geometric mechanism over the product of all columns, never written out.

A report's probability depends on its distance from the true record only, so a record's law is a law of distances: how
many records lie at each distance is counted column by column. A distance is drawn, then a record at that distance, all
of them equally likely.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from typing import Final

import numpy as np

from dagveil.errors import BudgetError
from dagveil.local import channel as one_column
from dagveil.local.channel import WHOLE, Channel, Floats, Integers, check_truth, round_up
from dagveil.local.record import Norm, Undo, check_product, check_records
from dagveil.privacy.noise.source import NoiseSource

# records that are alike by symmetry count once; of more classes than this ε is not computed
MOST_CLASSES: Final = 100_000
_BLOCK: Final = 2**22  # numbers held at a time when records are compared
MOST_WRITTEN_OUT: Final = 4096  # largest product of columns whose matrix is written out, for the metric parameter


@dataclass(frozen=True, slots=True)
class ChannelLaw:
    """The law of distances from one record."""

    weights: Integers  # of each distance, in units of 2⁻⁵³
    # how many records lie at each distance, after the first columns, after one more, …; the last is of all columns
    counts: tuple[Integers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CombinedGeometric:
    """P(y | x) = p exp(−ε_x ‖y − x‖) over the product of all columns."""

    levels: tuple[int, ...]  # levels of each column
    truth_probability: float  # p, the probability of the true record
    norm: Norm  # of the distance between records, in steps of their codes
    _laws: dict[tuple[int, ...], ChannelLaw] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_truth(check_product(self.levels), self.truth_probability)

    @property
    def size(self) -> int:
        """How many records there are."""
        return math.prod(self.levels)

    @property
    def n_classes(self) -> int:
        """How many records there are up to symmetry."""
        return math.prod(math.comb((k + 1) // 2 + count - 1, count) for k, count in self._groups())

    def truth(self) -> float:
        """Return the probability of the true record."""
        return max(int(law.weights[0]) for _, law in self._classes()) / WHOLE

    def epsilon(self) -> float:
        """Return the exact ε of local privacy: the truth against the least likely report of any record."""
        least, most = math.inf, 0.0
        for _, law in self._classes():
            present = law.counts[-1] > 0
            shares = law.weights[present] / WHOLE / law.counts[-1][present]
            least, most = min(least, float(shares.min())), max(most, float(shares.max()))
        return round_up(math.log(most / least))

    def largest_rate(self) -> float:
        """Return the largest ε_x, which the publication takes for the parameter of metric privacy."""
        return max(self._rate(law.counts[-1]) for _, law in self._classes())

    def metric_parameter(self, norm: Norm) -> float:
        """Return the exact parameter of metric privacy, for products that can be written out."""
        if self.size > MOST_WRITTEN_OUT:
            raise BudgetError(
                f"the metric parameter of a combined geometric channel compares all pairs of {self.size} records, and "
                f"the limit is {MOST_WRITTEN_OUT}; ask for epsilon, or choose component-wise noise"
            )
        records = self._all_records()
        logs = np.empty((self.size, self.size))
        for row, record in enumerate(records):
            # the law of its class: the same weights by distance, counted over other columns first
            middle = np.minimum(record, np.array(self.levels) - 1 - record).tolist()
            left = {k: sorted(v for v, of in zip(middle, self.levels, strict=True) if of == k) for k in self.levels}
            law = self._law(tuple(left[k].pop() for k in self.levels))
            with np.errstate(divide="ignore", invalid="ignore"):
                by_distance = np.log(law.weights) - np.log(law.counts[-1])
            logs[row] = by_distance[_steps(np.abs(records - record), self.norm)]
        widest = float(logs.max() - logs.min())
        worst = 0.0
        # a log-ratio over several steps is a sum over steps: neighbours are the worst, but not along Euclid's diagonals
        for farthest in (1.0, math.inf) if norm is Norm.EUCLIDEAN else (1.0,):
            for record, _ in self._classes():
                apart = distances_between(np.array([record]), records, norm)[0]
                row = int(np.ravel_multi_index(record, self.levels))
                # no two records differ by more than the widest gap: those far apart need no look
                near = np.flatnonzero((apart > 0.0) & (apart <= farthest) & (apart * worst < widest))
                for some in np.array_split(near, max(1, len(near) * self.size // _BLOCK)):
                    gaps = np.abs(logs[some] - logs[row]).max(axis=1, initial=0.0)
                    worst = max(worst, float((gaps / apart[some]).max(initial=0.0)))
        return round_up(worst)

    def write_out(self) -> Channel:
        """Return the channel over all records, in row-major order, up to rounding: for small products and for tests."""
        records = self._all_records()
        raw = np.empty((len(records), len(records)))
        for row, record in enumerate(records):
            law = self._law(tuple(record.tolist()))
            steps = _steps(np.abs(records - record), self.norm)
            raw[row] = (law.weights / np.maximum(law.counts[-1], 1))[steps]
        return one_column.channel_from_weights(raw)

    def report(self, records: Integers, noise: NoiseSource) -> Integers:
        """Draw a report for each record: a distance, then a record at that distance."""
        check_records(records, self.levels)
        reports = np.empty_like(records)
        distinct, places = np.unique(records, axis=0, return_inverse=True)
        for index, record in enumerate(distinct):
            chosen = np.flatnonzero(places.reshape(-1) == index)
            reports[chosen] = self._draw(tuple(record.tolist()), len(chosen), noise)
        return reports

    def undo(self) -> Undo:
        """Refuse: what a column reports depends on the true values of all others."""
        raise BudgetError(
            "a combined geometric channel has no channel of one column, since its noise depends on the whole record; "
            "discovery that knows the channel needs component-wise noise or combined randomised response"
        )

    def _draw(self, record: tuple[int, ...], size: int, noise: NoiseSource) -> Integers:
        law = self._law(record)
        left = np.searchsorted(np.cumsum(law.weights), noise.uniform_below(WHOLE, size), side="right")
        reports = np.empty((size, len(record)), dtype=np.int64)
        # from the last column to the first: each value in proportion to the records that it leaves for the others
        for column in range(len(record) - 1, -1, -1):
            values = np.arange(self.levels[column])
            away = np.abs(values - record[column])
            for steps in np.unique(left):
                chosen = np.flatnonzero(left == steps)
                rest, ways = self._ways(law.counts[column], away, int(steps))
                ends = np.cumsum(ways)
                picked = np.searchsorted(ends, noise.uniform_below(int(ends[-1]), len(chosen)), side="right")
                reports[chosen, column] = values[picked]
                left[chosen] = rest[picked]
        return reports

    def _ways(self, counts: Integers, away: Integers, left: int) -> tuple[Integers, Integers]:
        """Return, for each value of a column, the distance left for the earlier columns and how many records have it.

        For the largest difference, a negative number −1 − r stands for "at most r": one column has reached r already.
        """
        if self.norm is not Norm.CHEBYSHEV:
            rest = left - (away if self.norm is Norm.MANHATTAN else away**2)
            inside = (rest >= 0) & (rest < len(counts))
            return rest, np.where(inside, counts[np.clip(rest, 0, len(counts) - 1)], 0)
        reach = left if left >= 0 else -1 - left
        at_most = int(counts[: reach + 1].sum())
        exactly = int(counts[reach]) if reach < len(counts) else 0
        if left < 0:
            return np.full(len(away), left), np.where(away <= reach, at_most, 0)
        ways = np.where(away < reach, exactly, np.where(away == reach, at_most, 0))
        return np.where(away == reach, -1 - reach, left), ways

    def _distances(self, counts: Integers) -> Floats:
        steps = np.arange(len(counts), dtype=np.float64)
        return np.sqrt(steps) if self.norm is Norm.EUCLIDEAN else steps

    def _rate(self, counts: Integers) -> float:
        return one_column.find_rate(self._distances(counts), counts.astype(np.float64), self.truth_probability)

    def _law(self, record: tuple[int, ...]) -> ChannelLaw:
        if record not in self._laws:
            counts = [np.ones(1, dtype=np.int64)]
            for value, levels in zip(record, self.levels, strict=True):
                counts.append(_extend(counts[-1], np.abs(np.arange(levels) - value), self.norm))
            raw = np.exp(-self._rate(counts[-1]) * self._distances(counts[-1])) * counts[-1]
            weights = one_column.channel_from_weights(np.maximum(raw, 1e-300)[None, :]).weights[0].copy()
            # distances that no record has
            spare = counts[-1] == 0
            weights[0] += int(weights[spare].sum())
            weights[spare] = 0
            self._laws[record] = ChannelLaw(weights, tuple(counts))
        return self._laws[record]

    def _all_records(self) -> Integers:
        """Return all records in row-major order."""
        return np.array(list(product(*(range(k) for k in self.levels))), dtype=np.int64)

    def _groups(self) -> list[tuple[int, int]]:
        """Numbers of levels, and how many columns have them."""
        return sorted({(k, self.levels.count(k)) for k in self.levels})

    def _classes(self) -> Iterator[tuple[tuple[int, ...], ChannelLaw]]:
        """Go through records up to symmetry: mirrored values, and exchanged columns with the same number of levels."""
        if self.n_classes > MOST_CLASSES:
            raise BudgetError(
                f"this combined geometric channel has {self.n_classes} kinds of records, and the limit is "
                f"{MOST_CLASSES}; choose component-wise noise, or fewer columns"
            )
        groups = self._groups()
        for picks in product(*(combinations_with_replacement(range((k + 1) // 2), count) for k, count in groups)):
            left = {k: list(pick) for (k, _), pick in zip(groups, picks, strict=True)}
            record = tuple(left[k].pop() for k in self.levels)
            yield record, self._law(record)


def distances_between(records: Integers, others: Integers, norm: Norm) -> Floats:
    """Return the distances of all pairs."""
    steps = _steps(np.abs(records[:, None, :] - others[None, :, :]), norm).astype(np.float64)
    return np.sqrt(steps) if norm is Norm.EUCLIDEAN else steps


def _steps(away: Integers, norm: Norm) -> Integers:
    """Distances as whole numbers: squared ones for the Euclidean norm."""
    if norm is Norm.MANHATTAN:
        return np.asarray(away.sum(axis=-1))
    return np.asarray((away**2).sum(axis=-1) if norm is Norm.EUCLIDEAN else away.max(axis=-1, initial=0))


def _extend(counts: Integers, away: Integers, norm: Norm) -> Integers:
    """Count records by distance with one column more."""
    if norm is Norm.CHEBYSHEV:
        size = max(len(counts), int(away.max()) + 1)
        within = np.cumsum(np.pad(counts, (0, size - len(counts))))
        near = np.cumsum(np.bincount(away, minlength=size))
        return np.diff(within * near, prepend=0)
    steps = np.bincount(away if norm is Norm.MANHATTAN else away**2)
    # int64 convolution is exact
    return np.convolve(counts, steps)
