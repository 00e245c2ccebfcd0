"""Public functions of levelled rows: a constant and a Legendre series in each column.

A regression function that was computed from released values is public, so a residual is a function of its own record
alone: one changed slot then moves one residual and no other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import SchemaError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AdditiveFunction:
    """c + Σ_j Σ_k a_jk P_k(z_j), cut to [-1, 1].

    Parameters
    ----------
    constant
        c.
    series
        For each column z_j the coefficients a_j1, a_j2, … of the Legendre polynomials P_1, P_2, …

    Examples
    --------
    >>> AdditiveFunction(0.25, ((0.5,),)).values(np.array([[-1.0], [1.0]])).tolist()
    [-0.25, 0.75]
    """

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
