"""Sums of outer products of scaled rows, of features of them, and of residuals of public regression functions.

A regression function that was computed from released values is public, so a residual is a function of its own row
alone, and a sum over rows moves by what one row adds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Column
from dagveil.data.selection import scale_numbers, scale_to_unit
from dagveil.errors import DataError, SchemaError

LARGEST_CAP: Final = 2**40  # the largest squared integer norm that a plan may allow
# rows that every plan of a release must be able to add up. A table beyond a plan's own number is refused without a
# charge, so a plan that brought this number down to that of real tables would ask for the number of rows for nothing
ROWS_IN_REACH: Final = 2**28
LARGEST_SUM: Final = 2**62  # the largest absolute value of an entry of the answer: half of what a 64-bit integer holds
FEWEST_BITS: Final = 4  # fewer bits are never chosen: a sixteenth of a spread is coarse already
ROOM_FOR_ROWS: Final = 4  # a plan with chosen bits has room for so many times the rows that are publicly expected
_HUGE: Final = 1e100
Floats = NDArray[np.float64]
_BLOCK_ROWS: Final = 2**12
_GROUP: Final = 16


class NumbersAsTheyAre:
    """A query that reads all columns as numbers, unless it says otherwise."""

    __slots__ = ()

    @property
    def coded(self) -> tuple[str, ...]:
        """All columns are read as numbers."""
        return ()

    @property
    def marked(self) -> tuple[str, ...]:
        """Missing values come as the declared number."""
        return ()

    def read(self, numbers: Floats, column: Column) -> Floats:
        """Take codes and numbers of a column as they are."""
        return numbers


def check_scales(
    plan: str, what: str, columns: Sequence[str], centers: Sequence[float], widths: Sequence[float]
) -> None:
    """Refuse numbers by which columns cannot be scaled; the first two are words for messages."""
    if not len(columns) == len(centers) == len(widths):
        raise SchemaError(
            f"a {plan} has {len(columns)} columns, {len(centers)} centers and {len(widths)} {what}; give one of each "
            "for each column"
        )
    if not all(math.isfinite(center) for center in centers):
        raise SchemaError(f"a center of a {plan} is not finite; declare finite centers")
    if not all(math.isfinite(width) and width > 0 for width in widths):
        raise SchemaError(f"the {what} of a {plan} are not all positive finite numbers; declare positive {what}")


@dataclass(frozen=True, slots=True)
class MomentPlan(NumbersAsTheyAre):
    """How rows become integer vectors: all public.

    A row x becomes z with z_j = (x_j - center_j) / spread_j, is shrunk to the ball of squared radius `radius_squared`,
    gets `constant` in front, and every coordinate is multiplied by 2**bits and cut to an integer, towards zero.
    """

    columns: tuple[str, ...]
    centers: tuple[float, ...]
    spreads: tuple[float, ...]
    radius_squared: float
    constant: float
    bits: int

    def __post_init__(self) -> None:
        check_scales("moment plan", "spreads", self.columns, self.centers, self.spreads)
        if len(set(self.columns)) < len(self.columns):
            raise SchemaError("a moment plan names a column twice; name each column once")
        for name, number in (("radius_squared", self.radius_squared), ("constant", self.constant)):
            if not (math.isfinite(number) and number >= 0):
                raise SchemaError(f"{name} of a moment plan is {number:g}; it must be finite and not negative")
        if not 0 <= self.bits <= 40:
            raise SchemaError(f"a moment plan asks for {self.bits} bits; choose between 0 and 40")
        if self.norm_squared_bound() > LARGEST_CAP:
            raise SchemaError(
                f"the squared norm of a quantised row could reach {self.norm_squared_bound()}, more than "
                f"{LARGEST_CAP}; choose fewer bits than {self.bits} or a smaller radius"
            )

    @property
    def rows(self) -> MomentPlan:
        """The plan itself: its coordinates are the columns."""
        return self

    @property
    def leading(self) -> int:
        """The number of coordinates between the constant and the ball, integers already; here there are none."""
        return 0

    def expand(self, block: Sequence[Floats]) -> Sequence[Floats]:
        """Take columns as they are."""
        return block

    @property
    def integer_constant(self) -> int:
        """The first coordinate of every quantised row."""
        return _scale_constant(self.constant, self.bits)

    @property
    def integer_radius_squared(self) -> int:
        """The cap on the squared norm of a quantised row without its first coordinate."""
        return _scale_radius(self.radius_squared, self.bits)

    def norm_squared_bound(self) -> int:
        """Give the cap on the squared norm of every quantised row, its first coordinate included."""
        return bound_norm(self.radius_squared, self.constant, self.bits)

    def check_reach(self) -> None:
        """Refuse a plan that cannot add up `ROWS_IN_REACH` rows."""
        if self.max_rows() < ROWS_IN_REACH:
            raise SchemaError(
                f"this plan adds up {self.max_rows()} rows exactly, and a release must be able to add up "
                f"{ROWS_IN_REACH}, so that a refusal tells nothing about the rows; choose a smaller radius"
            )

    def max_rows(self) -> int:
        """Give the largest number of rows whose sum is sure to fit into 64-bit integers (at least 2**22)."""
        return _most_rows(self.norm_squared_bound())

    def check_rows(self, n_rows: int) -> None:
        """Refuse more rows than can be added up exactly."""
        if n_rows > self.max_rows():
            raise DataError(
                f"this moment plan sums at most {self.max_rows()} rows exactly and the table is larger; "
                f"choose fewer bits than {self.bits}, or a smaller radius"
            )


def choose_bits(radius_squared: float, constant: float, rows: int, most: int) -> int:
    """Return the bits with which sums over the expected rows fit into 64-bit integers, from public facts alone.

    Each bit less makes room for four times the rows; `FEWEST_BITS` is the floor. `rows` are publicly expected: nominal
    ones, or a released estimate, and never the true number.
    """
    wanted = max(ROOM_FOR_ROWS * rows, ROWS_IN_REACH)
    bits = most
    while bits > FEWEST_BITS and _most_rows(bound_norm(radius_squared, constant, bits)) < wanted:
        bits -= 1
    return bits


def bound_norm(radius_squared: float, constant: float, bits: int) -> int:
    """Give the cap on the squared norm of a quantised row, its first coordinate included."""
    return _scale_constant(constant, bits) ** 2 + _scale_radius(radius_squared, bits)


def _scale_constant(constant: float, bits: int) -> int:
    return math.trunc(Fraction(constant) * (1 << bits))


def _scale_radius(radius_squared: float, bits: int) -> int:
    return math.floor(Fraction(radius_squared) * (1 << 2 * bits))


def _most_rows(norm_squared: int) -> int:
    return (LARGEST_SUM - 1) // max(norm_squared, 1)


def quantise_rows(values: Floats, plan: MomentPlan) -> NDArray[np.int64]:
    """Turn rows (n, d) into integers (n, 1 + d) within the plan's bound: any conceivable input, each row by itself.

    Leading coordinates are integers already, and within their own bound.
    """
    columns = np.asarray(values, dtype=np.float64).T
    return _quantise(columns, plan, np.empty((1 + columns.shape[0], columns.shape[1]))).T.astype(np.int64)


def _quantise(columns: Sequence[Floats] | Floats, plan: MomentPlan, quantised: Floats) -> Floats:
    """Turn columns (d, n) into columns (1 + d, n) of integers, held as float64 in the last argument."""
    quantised[0] = plan.integer_constant
    leading = plan.leading
    for column, out in zip(columns[:leading], quantised[1 : 1 + leading], strict=True):
        out[:] = column
    vectors = scale_rows(columns[leading:], plan, quantised[1 + leading :])
    # some columns at a time stay in the processor's cache
    for start in range(0, len(vectors), _GROUP):
        scaled = vectors[start : start + _GROUP]
        scaled *= 2.0**plan.bits
        np.trunc(scaled, out=scaled)
    enforce_cap(vectors, plan.integer_radius_squared)
    return quantised


def scale_rows(columns: Sequence[Floats] | Floats, plan: MomentPlan, out: Floats) -> Floats:
    """Scale columns (d, n) by the plan's centres and spreads, and shrink rows to its ball, up to float rounding.

    Elementwise operations only, column by column: IEEE rounding is then the same for a row whatever rows stand beside
    it. A reduction may add up in an order that depends on the number of rows.
    """
    norms, square = np.zeros(out.shape[1]), np.empty(out.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for column, center, spread, scaled in zip(columns, plan.centers, plan.spreads, out, strict=True):
            np.subtract(column, center, out=scaled)
            scaled /= spread
            norms += np.square(scaled, out=square)
    odd = np.flatnonzero(~(norms < _HUGE))
    if odd.size:
        norms[odd] = _tame(out, odd)
    # a factor of one leaves short rows exactly as they are
    factors = np.sqrt(plan.radius_squared / np.maximum(norms, plan.radius_squared or 1.0))
    factors[norms <= plan.radius_squared] = 1.0
    if (factors != 1.0).any():
        for scaled in out:
            scaled *= factors
    return out


def _tame(scaled: Floats, odd: NDArray[np.intp]) -> Floats:
    """Make these rows of columns (d, n) finite, not-a-number being the centre, and return their squared norms."""
    norms = np.zeros(odd.size)
    for column in scaled:
        # beyond 1e100 only the direction of the largest entries matters anyway
        entries = np.clip(column[odd], -_HUGE, _HUGE)
        entries[np.isnan(entries)] = 0.0
        column[odd] = entries
        norms += np.square(entries)
    return norms


def enforce_cap(vectors: Floats, cap: int) -> None:
    """Shrink the columns of integers (d, n) whose squared norm float rounding has left over the cap."""
    # Entries stay near 2**20, so these norms are integers near 2**40, which float64 holds exactly in any order.
    norms = np.einsum("ij,ij->j", vectors, vectors)
    for row in np.flatnonzero(norms > cap):
        norm = int(norms[row])
        # With r = isqrt(cap * norm): (r / norm)**2 <= cap / norm, and cutting towards zero only shrinks further, so
        # the new squared norm is at most norm * (cap / norm) = cap. All in Python integers.
        root = math.isqrt(cap * norm)
        vectors[:, row] = [math.copysign(abs(int(entry)) * root // norm, entry) for entry in vectors[:, row].tolist()]


class OuterProducts(Protocol):
    """A sum of outer products of integer vectors, one of each record. Everything here is public."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read."""

    @property
    def rows(self) -> MomentPlan:
        """How coordinates are shrunk to a ball and quantised: the cap that sensitivity follows from."""

    @property
    def coded(self) -> tuple[str, ...]:
        """Columns of which codes of levels are read, not numbers."""

    @property
    def marked(self) -> tuple[str, ...]:
        """Columns of numbers in which missing values come as not-a-number."""

    def read(self, numbers: Floats, column: Column) -> Floats:
        """Scale the numbers of a column, each by itself."""

    def expand(self, block: Sequence[Floats]) -> Sequence[Floats] | Floats:
        """Turn columns of n records into coordinates of n records, each record by itself."""


def sum_outer_products(columns: Sequence[Floats], query: OuterProducts, *, n_rows: int) -> NDArray[np.int64]:
    """Give the exact sum over rows of the outer product of each quantised row with itself, (1 + d, 1 + d).

    Why float64 is exact here: for a block of b rows with squared norms at most c, every partial sum of products
    q_i q_j, in any order and with fused or split multiplications, is an integer of absolute value at most b c
    (the sum of |q_i q_j| over rows is at most the sum of (q_i**2 + q_j**2) / 2). With b c <= 2**53 each one is a
    float64, so no rounding ever happens. Blocks are added in int64, where n c < 2**62 leaves no room for overflow.
    """
    plan = query.rows
    plan.check_rows(n_rows)
    size = 1 + plan.leading + len(plan.columns)
    total = np.zeros((size, size), dtype=np.int64)
    # the same memory for every block: the system need not clear it again
    room = np.empty((size, min(_BLOCK_ROWS, n_rows)))
    # 2**12 rows times a cap of at most 2**40 stays below 2**53
    for start in range(0, n_rows, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n_rows)
        block = [column[start:stop] for column in columns]
        quantised = _quantise(query.expand(block), plan, room[:, : stop - start])
        total += (quantised @ quantised.T).astype(np.int64)
    return total


MOST_FEATURES: Final = 8  # the largest number of features of one column


class Basis(enum.Enum):
    """Families of functions on [−1, 1]."""

    LEGENDRE = "legendre"  # Legendre polynomials from the linear one on, scaled to mean square 1 on [−1, 1]


@dataclass(frozen=True, slots=True)
class FeaturePlan(NumbersAsTheyAre):
    """How rows become integer vectors of features: all public.

    A value x becomes t = (x − center)/reach, cut to [−1, 1], and then `degree` features of t. The vector of features is
    shrunk to the ball of squared radius `radius_squared`, gets `constant` in front, and every coordinate is
    multiplied by 2**bits and cut to an integer, towards zero.
    """

    columns: tuple[str, ...]
    centers: tuple[float, ...]
    reaches: tuple[float, ...]
    basis: Basis
    degree: int
    radius_squared: float
    constant: float
    bits: int

    def __post_init__(self) -> None:
        check_scales("feature plan", "reaches", self.columns, self.centers, self.reaches)
        if not 1 <= self.degree <= MOST_FEATURES:
            raise SchemaError(f"a feature plan has {self.degree} features per column; choose 1 to {MOST_FEATURES}")
        # checks the rest: names, radius, constant, bits
        _ = self.rows

    @property
    def rows(self) -> MomentPlan:
        """The plan for the second moments of the features, as columns that need no further scaling."""
        names = tuple(f"{name}^{power}" for name in self.columns for power in range(1, self.degree + 1))
        zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
        return MomentPlan(names, zeros, ones, self.radius_squared, self.constant, self.bits)

    def expand(self, block: Sequence[Floats]) -> Floats:
        """Turn d columns into features (d k, n), those of one column together. Not-a-number counts as the center."""
        features = np.empty((len(block), self.degree, len(block[0])))
        for column, center, reach, out in zip(block, self.centers, self.reaches, features, strict=True):
            expand_legendre(scale_numbers(column, center, reach), out)
        return features.reshape(len(block) * self.degree, len(block[0]))


def expand_legendre(scaled: Floats, out: Floats) -> None:
    """Write √(2j + 1) P_j for j = 1, 2, …, as many as there is room for."""
    for power, polynomial in enumerate(legendre_polynomials(scaled, len(out)), start=1):
        out[power - 1] = math.sqrt(2 * power + 1) * polynomial


def legendre_polynomials(t: Floats, degree: int) -> Iterator[Floats]:
    """Hand out P_1, P_2, … by Bonnet's recurrence j P_j = (2j − 1) t P_{j−1} − (j − 1) P_{j−2}, elementwise."""
    before, last = np.ones_like(t), t
    for power in range(1, degree + 1):
        if power > 1:
            before, last = last, ((2 * power - 1) * t * last - (power - 1) * before) / power
        yield last


@dataclass(frozen=True, slots=True)
class AdditiveFunction:
    """c + Σ_j Σ_k a_jk P_k(z_j), cut to [-1, 1]; P_k are Legendre polynomials, `series` has the a_jk by column."""

    constant: float
    series: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.constant, *(a for row in self.series for a in row))):
            raise SchemaError("the coefficients of a public function must be finite numbers")

    def values(self, rows: Floats) -> Floats:
        """Evaluate the function on rows (m, k) in [-1, 1]; elementwise, so each value depends on its row alone."""
        if rows.shape[1] != len(self.series):
            raise SchemaError(f"a function of {len(self.series)} columns was given {rows.shape[1]}")
        total = np.full(len(rows), self.constant)
        for column, coefficients in zip(rows.T.astype(np.float64), self.series, strict=True):
            polynomials = legendre_polynomials(column, len(coefficients))
            for coefficient, polynomial in zip(coefficients, polynomials, strict=True):
                total += coefficient * polynomial
        return np.asarray(np.clip(total, -1.0, 1.0), dtype=np.float64)


RESIDUAL_SPREAD: Final = 0.5  # spread of a residual, as a share of its column's
BITS: Final = 10  # fixed-point bits of each coordinate
# squared radius that rows are shrunk to, per coordinate; coordinates have mean square 1 or so
RADIUS_PER_COORDINATE: Final = 1.0


@dataclass(frozen=True, slots=True)
class ResidualPlan(NumbersAsTheyAre):
    """Which residuals are compared; everything here is public.

    A row becomes the residuals of both columns and, where columns are given, three polynomials of each fitted value:
    the regressions need only be right up to a function of what they fit.

    The functions predict each column from the given ones, on columns scaled to [-1, 1]; centers and spreads are in the
    same units.
    """

    pair: tuple[str, str]
    given: tuple[str, ...]
    functions: tuple[AdditiveFunction, AdditiveFunction]
    centers: tuple[float, float]
    spreads: tuple[float, float]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read: the given ones, then the pair."""
        return (*self.given, *self.pair)

    @property
    def rows(self) -> MomentPlan:
        """How coordinates are shrunk to a ball and quantised."""
        names = ["first residual", "second residual"]
        if self.given:
            names += [f"{side} fit, degree {degree}" for side in ("first", "second") for degree in (1, 2, 3)]
        radius = RADIUS_PER_COORDINATE * len(names)
        zeros, ones = (0.0,) * len(names), (1.0,) * len(names)
        return MomentPlan(tuple(names), zeros, ones, radius, math.sqrt(max(1.0, radius / 10.0)), BITS)

    def read(self, numbers: Floats, column: Column) -> Floats:
        """Scale the numbers of a column to [−1, 1] by its bounds or scores."""
        return scale_to_unit(numbers, column)

    def expand(self, block: Sequence[Floats]) -> Floats:
        """Turn scaled columns, the pair last, into residuals and polynomials of fitted values, row by row."""
        conditions = np.stack(block)[:-2].T
        # a tiny spread may overflow: warnings must not tell that some row did; the ball takes in what is infinite
        with np.errstate(all="ignore"):
            fits = [function.values(conditions) for function in self.functions]
            coordinates = [(block[side - 2] - fits[side]) / (RESIDUAL_SPREAD * self.spreads[side]) for side in (0, 1)]
            for side in (0, 1) if self.given else ():
                t = (fits[side] - self.centers[side]) / self.spreads[side]
                # Hermite polynomials, scaled to unit variance for a normal fit
                coordinates += [t, (t * t - 1.0) / math.sqrt(2.0), (t * t * t - 3.0 * t) / math.sqrt(6.0)]
            return np.stack(coordinates)
