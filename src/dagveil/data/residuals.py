"""Exact sums about residuals of public regression functions, row by row.

A regression function that was computed from released values is public, so a residual is a function of its own row
alone, and a sum over rows moves by what one row adds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Column
from dagveil.data.moments import MomentPlan
from dagveil.data.selection import scale_to_unit
from dagveil.errors import SchemaError

Floats = NDArray[np.float64]


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
        for column, coefficients in zip(rows.T, self.series, strict=True):
            before, polynomial = np.ones(len(rows)), column.astype(np.float64)
            for k, coefficient in enumerate(coefficients, start=1):
                total += coefficient * polynomial
                before, polynomial = polynomial, ((2 * k + 1) * column * polynomial - k * before) / (k + 1)
        return np.asarray(np.clip(total, -1.0, 1.0), dtype=np.float64)


RESIDUAL_SPREAD: Final = 0.5  # spread of a residual, as a share of its column's
BITS: Final = 10  # fixed-point bits of each coordinate
# squared radius that rows are shrunk to, per coordinate; coordinates have mean square 1 or so
RADIUS_PER_COORDINATE: Final = 1.0


@dataclass(frozen=True, slots=True)
class ResidualPlan:
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

    @property
    def coded(self) -> tuple[str, ...]:
        """All columns are read as numbers."""
        return ()

    @property
    def marked(self) -> tuple[str, ...]:
        """Missing values come as the declared number."""
        return ()

    def read(self, numbers: Floats, column: Column) -> Floats:
        """Scale the numbers of a column to [−1, 1] by its bounds or scores."""
        return scale_to_unit(numbers, column)

    def expand(self, block: Sequence[Floats]) -> Floats:
        """Turn scaled columns into residuals and polynomials of fitted values."""
        return expand_residuals(np.stack(block), self)


def expand_residuals(block: Floats, plan: ResidualPlan) -> Floats:
    """Turn scaled columns (k + 2, n), the pair last, into coordinates (p, n); elementwise, so row by row."""
    conditions = block[:-2].T
    # a tiny spread may overflow: warnings must not tell that some row did; the ball takes in what is infinite
    with np.errstate(all="ignore"):
        fits = [function.values(conditions) for function in plan.functions]
        coordinates = [(block[side - 2] - fits[side]) / (RESIDUAL_SPREAD * plan.spreads[side]) for side in (0, 1)]
        for side in (0, 1) if plan.given else ():
            t = (fits[side] - plan.centers[side]) / plan.spreads[side]
            # Hermite polynomials, scaled to unit variance for a normal fit
            coordinates += [t, (t * t - 1.0) / math.sqrt(2.0), (t * t * t - 3.0 * t) / math.sqrt(6.0)]
        return np.stack(coordinates)
