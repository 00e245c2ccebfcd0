"""Public nonlinear features of numeric columns, and exact sums of their products.

A row becomes one number in [−1, 1] per column, then some features of each number, and then an integer vector, as for
second moments (`dagveil.data.moments`). Features are made of sums, products and quotients only, elementwise: IEEE
arithmetic rounds those in one way, so the features of a row depend on that row alone. Library sines and exponentials
may round differently from place to place in an array; that is why there are none here.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.moments import MomentPlan, quantise_rows, sum_outer_products
from dagveil.errors import SchemaError

MOST_FEATURES: Final = 8
"""The largest number of features of one column."""


class Basis(enum.Enum):
    """Families of functions on [−1, 1]."""

    LEGENDRE = "legendre"
    """Legendre polynomials from the linear one on, scaled to mean square 1 on [−1, 1]."""


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """How rows become integer vectors of features: all public.

    A value x becomes t = (x − center)/reach, cut to [−1, 1], and then `degree` features of t. The vector of features is
    shrunk to the ball of squared radius `radius_squared`, gets `constant` in front, and every coordinate is
    multiplied by 2**bits and cut to an integer, towards zero.

    Examples
    --------
    >>> plan = FeaturePlan(("x",), (0.0,), (2.0,), Basis.LEGENDRE, degree=2, radius_squared=8.0, constant=1.0, bits=3)
    >>> plan.rows.columns, plan.norm_squared_bound()
    (('x^1', 'x^2'), 576)
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
        if not len(self.columns) == len(self.centers) == len(self.reaches):
            raise SchemaError(
                f"a feature plan has {len(self.columns)} columns, {len(self.centers)} centers and "
                f"{len(self.reaches)} reaches; give one center and one reach for each column"
            )
        if not all(math.isfinite(center) for center in self.centers):
            raise SchemaError("a center of a feature plan is not finite; declare finite centers")
        if not all(math.isfinite(reach) and reach > 0 for reach in self.reaches):
            raise SchemaError("a reach of a feature plan is not a positive finite number; declare wider bounds")
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

    def norm_squared_bound(self) -> int:
        """Give the cap on the squared norm of every quantised row, its first coordinate included."""
        return self.rows.norm_squared_bound()


def expand_features(columns: NDArray[np.float64], plan: FeaturePlan) -> NDArray[np.float64]:
    """Turn columns (d, n) into features (d k, n), those of one column together. Not-a-number counts as the center.

    Examples
    --------
    >>> plan = FeaturePlan(("x",), (0.0,), (2.0,), Basis.LEGENDRE, degree=2, radius_squared=8.0, constant=1.0, bits=3)
    >>> expand_features(np.array([[-9.0, 0.0, 1.0]]), plan).round(3).tolist()
    [[-1.732, 0.0, 0.866], [2.236, -1.118, -0.28]]
    """
    width, n_rows = columns.shape
    features = np.empty((width, plan.degree, n_rows))
    with np.errstate(over="ignore", invalid="ignore"):
        for position, column in enumerate(columns):
            scaled = column - plan.centers[position]
            scaled /= plan.reaches[position]
            np.clip(scaled, -1.0, 1.0, out=scaled)
            scaled[np.isnan(scaled)] = 0.0
            _expand_legendre(scaled, features[position])
    return features.reshape(width * plan.degree, n_rows)


def _expand_legendre(scaled: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write √(2j + 1) P_j for j = 1, 2, … by Bonnet's recurrence j P_j = (2j − 1) t P_{j−1} − (j − 1) P_{j−2}."""
    before, last = np.ones_like(scaled), scaled
    out[0] = math.sqrt(3.0) * scaled
    for power in range(2, len(out) + 1):
        before, last = last, ((2 * power - 1) * scaled * last - (power - 1) * before) / power
        out[power - 1] = math.sqrt(2 * power + 1) * last


def quantise_features(values: NDArray[np.float64], plan: FeaturePlan) -> NDArray[np.int64]:
    """Turn rows (n, d) into integer vectors (n, 1 + d k) whose squared norm never exceeds the plan's bound."""
    return quantise_rows(expand_features(np.asarray(values, dtype=np.float64).T, plan).T, plan.rows)


def sum_feature_products(
    columns: Sequence[NDArray[np.float64]], plan: FeaturePlan, *, n_rows: int
) -> NDArray[np.int64]:
    """Give the exact sum over rows of the outer product of each quantised row of features, (1 + d k, 1 + d k)."""
    return sum_outer_products(columns, plan.rows, n_rows=n_rows, expand=lambda block: expand_features(block, plan))
