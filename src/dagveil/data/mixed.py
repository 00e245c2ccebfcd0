"""Rows of columns with levels beside columns of numbers, as integer vectors for one sum of outer products."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dagveil.data.moments import MOST_FEATURES, Floats, MomentPlan, NumbersAsTheyAre, expand_legendre, quantise_rows
from dagveil.data.selection import scale_numbers
from dagveil.errors import SchemaError

INDICATOR: Final = math.sqrt(0.5)
"""What says that a number is missing, in the place of its features, which are 0 then; it is shorter than they mostly
are, so it costs no noise."""


@dataclass(frozen=True, slots=True)
class MixedRows(MomentPlan):
    """Rows with exact integers in front of the ball: `exact` of them, whose squared norm is at most `exact_squared`."""

    exact: int
    exact_squared: int

    @property
    def leading(self) -> int:
        """The number of coordinates between the constant and the ball, integers already."""
        return self.exact

    def norm_squared_bound(self) -> int:
        """Give the cap on the squared norm of every quantised row: constant, exact coordinates and ball."""
        return self.integer_constant**2 + self.exact_squared + self.integer_radius_squared


@dataclass(frozen=True, slots=True)
class MixedPlan(NumbersAsTheyAre):
    """How rows of levels and numbers become integer vectors: all public.

    A column with r levels becomes r integers, step (r − 1) at the record's level and −step elsewhere, so that their
    squared norm is step² r (r − 1) whatever the level is, and nothing is rounded. A number x becomes t = (x −
    center)/width; one feature is t itself, and two or more are Legendre polynomials of t, cut to [−1, 1]. The features
    of all numbers together are shrunk to the ball of squared radius `radius_squared` and put in fixed point, as in
    `MomentPlan`. `constant` stands in front.

    - `levels`, `sizes`: columns with levels, and how many levels each has.
    - `numbers`, `centers`, `widths`, `degrees`: columns of numbers, and how many features each has.
    - `marked`: those in which missing values, which come as not-a-number, have features 0 and a coordinate of their
      own behind them, `INDICATOR`.
    """

    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    numbers: tuple[str, ...]
    centers: tuple[float, ...]
    widths: tuple[float, ...]
    degrees: tuple[int, ...]
    radius_squared: float
    constant: float
    bits: int
    marked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.sizes):
            raise SchemaError(
                f"a mixed plan has {len(self.levels)} columns with levels and {len(self.sizes)} sizes; give one of each"
            )
        if min(self.sizes, default=1) < 1:
            raise SchemaError("a column of a mixed plan has no levels; declare at least one")
        if not len(self.numbers) == len(self.centers) == len(self.widths) == len(self.degrees):
            raise SchemaError(
                f"a mixed plan has {len(self.numbers)} columns of numbers, {len(self.centers)} centers, "
                f"{len(self.widths)} widths and {len(self.degrees)} degrees; give one of each for each column"
            )
        if len(set(self.columns)) < len(self.columns):
            raise SchemaError("a mixed plan names a column twice; name each column once")
        if not all(1 <= degree <= MOST_FEATURES for degree in self.degrees):
            raise SchemaError(f"a column of a mixed plan has too many or no features; choose 1 to {MOST_FEATURES}")
        if not set(self.marked) <= set(self.numbers):
            raise SchemaError("a mixed plan marks missing values of a column that is none of its numbers")
        # checks the rest: centers, widths, radius, constant, bits
        _ = self.rows
        _ = MomentPlan(self.numbers, self.centers, self.widths, 0.0, 0.0, 0)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read, in the order of their coordinates."""
        return (*self.levels, *self.numbers)

    @property
    def coded(self) -> tuple[str, ...]:
        """Columns with levels are read by their codes."""
        return self.levels

    @property
    def features(self) -> tuple[int, ...]:
        """The number of coordinates of each column of numbers: its features, and one that says it is missing."""
        return tuple(degree + (name in self.marked) for name, degree in zip(self.numbers, self.degrees, strict=True))

    @property
    def levels_by_name(self) -> dict[str, int]:
        """How many levels each column with levels has."""
        return dict(zip(self.levels, self.sizes, strict=True))

    @property
    def steps(self) -> tuple[int, ...]:
        """The integer by which a level's coordinates are multiplied, for each column with levels."""
        return tuple(level_step(size, self.bits) for size in self.sizes)

    @property
    def rows(self) -> MixedRows:
        """The plan for the second moments of the coordinates, which need no further scaling."""
        names = tuple(
            f"{name}^{power}"
            for name, count in zip(self.numbers, self.features, strict=True)
            for power in range(1, count + 1)
        )
        zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
        squared = sum(step**2 * size * (size - 1) for step, size in zip(self.steps, self.sizes, strict=True))
        ball = (self.radius_squared, self.constant, self.bits)
        return MixedRows(names, zeros, ones, *ball, sum(self.sizes), squared)

    def expand(self, block: Sequence[Floats]) -> Floats:
        """Turn codes and numbers into coordinates, each record by itself, whatever the numbers are."""
        n_rows = len(block[0]) if block else 0
        room = np.empty((sum(self.sizes) + sum(self.features), n_rows))
        start = 0
        for codes, size, step in zip(block, self.sizes, self.steps, strict=False):
            # engines give codes in range; whatever else came would still stand at one level
            with np.errstate(invalid="ignore"):
                level = np.clip(np.trunc(np.where(np.isnan(codes), 0.0, codes)), 0.0, size - 1.0)
            for code in range(size):
                room[start + code] = np.where(level == code, float(step * (size - 1)), float(-step))
            start += size
        scales = zip(self.numbers, block[len(self.levels) :], self.centers, self.widths, self.degrees, strict=True)
        for name, column, center, width, degree in scales:
            if degree == 1:
                with np.errstate(over="ignore", invalid="ignore"):
                    room[start] = (column - center) / width
            else:
                expand_legendre(scale_numbers(column, center, width), room[start : start + degree])
            start += degree
            if name in self.marked:
                missing = np.isnan(column)
                room[start - degree : start, missing] = 0.0
                room[start] = np.where(missing, INDICATOR, 0.0)
                start += 1
        return room


@dataclass(frozen=True, slots=True)
class MixedPairs(NumbersAsTheyAre):
    """The blocks of chosen pairs of columns alone, from rows that are shrunk for them: all public.

    A row becomes the integer vector of `plan`, and its numbers are shrunk once more, by a common factor t ≤ 1, until
    the sum over the pairs of the products of both columns' squared norms is at most `squared_bound`: then its blocks
    together are no longer than the root of that. Columns with levels are never shrunk.
    """

    plan: MixedPlan
    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        known = set(self.plan.columns)
        if not self.pairs or any(x == y or not {x, y} <= known for x, y in self.pairs):
            raise SchemaError("chosen pairs need two different columns of their plan each; choose at least one pair")
        if len({frozenset(pair) for pair in self.pairs}) < len(self.pairs):
            raise SchemaError("a pair was chosen twice; choose each pair once")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read."""
        return self.plan.columns

    @property
    def coded(self) -> tuple[str, ...]:
        """Columns with levels are read by their codes."""
        return self.plan.coded

    @property
    def marked(self) -> tuple[str, ...]:
        """Missing values of these come as not-a-number."""
        return self.plan.marked

    @property
    def rows(self) -> MixedRows:
        """Coordinates are integers already, of the norm that the plan allows."""
        inner = self.plan.rows
        size, squared = inner.exact + len(inner.columns), inner.exact_squared + inner.integer_radius_squared
        return MixedRows((), (), (), 0.0, inner.constant, inner.bits, size, squared)

    def places(self) -> dict[str, slice]:
        """Return where the coordinates of each column stand, the constant being the first of all."""
        ends = np.cumsum([1, *self.plan.sizes, *self.plan.features]).tolist()
        return dict(zip(self.plan.columns, map(slice, ends, ends[1:]), strict=False))

    def _norms(self) -> dict[str, int]:
        """Return the squared norm of each column with levels, and the share of the ball that each number has."""
        plan = self.plan
        fixed = [step**2 * size * (size - 1) for step, size in zip(plan.steps, plan.sizes, strict=True)]
        radius = plan.rows.integer_radius_squared
        shares = [radius * degree // sum(plan.degrees) for degree in plan.degrees]
        return dict(zip(plan.columns, [*fixed, *shares], strict=True))

    def squared_bound(self) -> int:
        """Give the cap on the squared length of all blocks of a record together."""
        norms = self._norms()
        return sum(norms[x] * norms[y] for x, y in self.pairs)

    def expand(self, block: Sequence[Floats]) -> Floats:
        """Turn codes and numbers into integers, each record by itself."""
        vectors = quantise_rows(self.plan.expand(block).T, self.plan.rows)[:, 1:].T.astype(np.float64)
        start = sum(self.plan.sizes)
        numbers = vectors[start:]
        squares, linear, room = self._lengths(vectors)
        # the largest τ = t² with τ² squares + τ linear ≤ room, less what rounding could make of it
        safe = room * (1.0 - 2.0**-30)
        root = np.sqrt(linear**2 + 4.0 * squares * safe)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(linear + root > 0.0, 2.0 * safe / (linear + root), 1.0)
        factor = np.sqrt(np.minimum(factor, 1.0))
        for row in numbers:
            row[:] = np.trunc(row * factor)
        squares, linear, _ = self._lengths(vectors)
        # never happens; whatever rounding did, no row passes the cap
        for row in numbers:
            row[squares + linear > room * (1.0 - 2.0**-31)] = 0.0
        return vectors

    def _lengths(self, vectors: Floats) -> tuple[Floats, Floats, float]:
        """Return the products of pairs of numbers, those of a number and levels, and what levels leave of the cap.

        Elementwise and in the order of the pairs, so that a record's sums do not depend on its neighbours.
        """
        places, norms, levels = self.places(), self._norms(), set(self.plan.levels)
        own = {}
        for name in self.plan.numbers:
            total = np.zeros(vectors.shape[1])
            for row in vectors[places[name].start - 1 : places[name].stop - 1]:
                total += row * row
            own[name] = total
        squares, linear, fixed = np.zeros(vectors.shape[1]), np.zeros(vectors.shape[1]), 0
        for x, y in self.pairs:
            if x in levels and y in levels:
                fixed += norms[x] * norms[y]
            elif x in levels or y in levels:
                level, number = (x, y) if x in levels else (y, x)
                linear += float(norms[level]) * own[number]
            else:
                squares += own[x] * own[y]
        return squares, linear, float(self.squared_bound() - fixed)


def level_step(size: int, bits: int) -> int:
    """Return ⌊2^bits / size⌋, at least 1: the coordinates of a column then have the squared norm 1 − 1/size or so."""
    return max(1, (1 << bits) // size)
