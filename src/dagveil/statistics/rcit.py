"""Regression-based conditional independence (RCIT) as published: exact, with permutations; a form linear in the rows.

Residuals of x and y given the conditioning columns are tested for independence by HSIC. The p-values are exact, so they
are not private; the curator asks such questions in a private form. Bounds that were published for the p-values are here
too, and false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dagveil.errors import EvidenceError
from dagveil.statistics.hsic import draw_permutations, root_hsic
from dagveil.statistics.kernels import Floats, factor_gram, kernel_features, median_bandwidth
from dagveil.statistics.residuals import residuals_of_features, ridge_residuals, ridge_residuals_by_features

LOW_RANK: Final = 300
"""Beyond this rank of the Gram matrix regression solves the whole system."""

FEW_COLUMNS: Final = 3
"""The rank grows with the power of the number of columns: beyond these a factor is not tried."""

MEDIAN_ROWS: Final = 1000
"""Rows, evenly spread, that the median distance of the linear form is taken from: up to twice as many."""

NARROWEST: Final = 200.0
"""Range over bandwidth of the narrowest kernel of the linear form."""


@dataclass(frozen=True, slots=True)
class RcitSettings:
    """Settings of RCIT; the defaults are those of the publication.

    Attributes
    ----------
    penalty
        λ of the regressions.
    permutations
        How many permuted scores the score is compared with.
    bandwidth
        Of all kernels; None for median distances, which depend on the rows.
    """

    penalty: float = 1.0
    permutations: int = 100
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.permutations < 1:
            raise EvidenceError(
                f"{self.permutations} permutations leave nothing to compare with; the published are 100"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Rcit:
    """The exact answer: not private.

    Attributes
    ----------
    p_value
        Share of the permuted scores above the score.
    score
        HSIC of the residuals, tr(K H L H)/(m − 1)².
    permuted
        The same for each permutation.
    bandwidth_u, bandwidth_v
        Of the kernels of the residuals.
    n_given
        Number of conditioning columns; without any, x and y themselves are compared.
    """

    p_value: float
    score: float
    permuted: Floats
    bandwidth_u: float
    bandwidth_v: float
    n_given: int


def exact_rcit(x: Floats, y: Floats, given: Floats | None, settings: RcitSettings, rng: np.random.Generator) -> Rcit:
    """Test independence of x and y given columns, as published.

    Gram matrices are used through factors that are exact to 1e-10, so permutations cost rank² per row.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 300)
    >>> exact_rcit(x, x**2, None, RcitSettings(), rng).p_value
    0.0
    """
    columns = _columns(given)
    u, v = (x, y) if columns is None else _residuals(columns, np.column_stack([x, y]), settings).T
    bandwidths = [_bandwidth(values[:, None], settings) for values in (u, v)]
    factors = [factor_gram(values[:, None], width) for values, width in zip((u, v), bandwidths, strict=True)]
    return _compare(factors, bandwidths, columns, settings, rng)


def feature_rcit(x: Floats, y: Floats, given: Floats | None, settings: RcitSettings, rng: np.random.Generator) -> Rcit:
    """Test the same with public Fourier features in place of Gram matrices: linear in the rows.

    Median distances, where no bandwidth is given, are those of about 1000 rows. Kernels narrower than a 200th of the
    range are widened to that: narrower ones need too many features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, 300)
    >>> feature_rcit(x, x**2, None, RcitSettings(), rng).p_value
    0.0
    """
    columns = _columns(given)
    u, v = x, y
    if columns is not None:
        width = max(_bandwidth(columns[:: _stride(columns)], settings), 2.0 / NARROWEST)
        u, v = ridge_residuals_by_features(columns, np.column_stack([x, y]), settings.penalty, width).T
    bandwidths, features = [], []
    for values in (u, v):
        reach = 2.0 * float(np.abs(values).max(initial=0.0)) or 1.0
        bandwidths.append(max(_bandwidth(values[:: _stride(values), None], settings), reach / NARROWEST))
        features.append(kernel_features(bandwidths[-1], reach).map(values))
    return _compare(features, bandwidths, columns, settings, rng)


def _residuals(columns: Floats, targets: Floats, settings: RcitSettings) -> Floats:
    """Return exact residuals, by a factor of the Gram matrix where its rank is low."""
    width = _bandwidth(columns, settings)
    if columns.shape[1] <= FEW_COLUMNS:
        factor = factor_gram(columns, width, most=LOW_RANK)
        if factor.shape[1] < LOW_RANK:
            return residuals_of_features(factor, targets, settings.penalty)
    return ridge_residuals(columns, targets, settings.penalty, width)


def _compare(
    factors: list[Floats], widths: list[float], columns: Floats | None, settings: RcitSettings, rng: np.random.Generator
) -> Rcit:
    """Return the answer for two factors, or features, of Gram matrices."""
    slots = len(factors[0])
    if slots < 2:
        raise EvidenceError(f"{slots} rows are too few to test independence; 2 are needed")
    permutations = draw_permutations(settings.permutations, slots, rng)
    scores = (root_hsic(factors[0], factors[1], permutations) * (slots / (slots - 1))) ** 2
    n_given = 0 if columns is None else columns.shape[1]
    share = float(np.mean(scores[1:] > scores[0]))
    return Rcit(share, float(scores[0]), scores[1:], widths[0], widths[1], n_given)


def _columns(given: Floats | None) -> Floats | None:
    """Return the conditioning columns as a matrix, or None if there are none."""
    if given is None or given.size == 0:
        return None
    return given[:, None] if given.ndim == 1 else given


def _bandwidth(values: Floats, settings: RcitSettings) -> float:
    return median_bandwidth(values) if settings.bandwidth is None else settings.bandwidth


def _stride(values: Floats) -> int:
    return max(1, len(values) // MEDIAN_ROWS)
