"""Which of two columns is the cause: four published rules (docs/local.md names them).

They read columns of numbers, so they are for rows that are public or that a local channel has randomised already. Each
gives a number that is above 0 if the first column is the cause.
"""

import enum
from typing import Final

import numpy as np
from scipy import special

from dagveil.local.channel import Floats, Integers
from dagveil.statistics.kernels import kernel_features, median_bandwidth, root_hsic
from dagveil.statistics.residuals import ridge_residuals_by_features

DEGREE: Final = 3  # RECI: of the polynomial, as in the study of local privacy
CELLS_PER_DEVIATION: Final = 2  # CDS, on columns with mean 0 and variance 1
LARGEST_DEVIATION: Final = 3
FEWEST_ROWS: Final = 12  # CDS: a cell with no more rows than this says nothing
PENALTY: Final = 1e-3  # ANM: of the regression
BANDWIDTH: Final = 0.5  # ANM: of the regression, on columns that are scaled to [-1, 1]
# ANM: smallest bandwidth of the criterion: columns with few values have a median distance of 0 or close to it
NARROWEST: Final = 0.02


class PairRule(enum.Enum):
    """How the direction of a pair is found."""

    RECI = "reci"  # the cause predicts the effect with the smaller error: a polynomial of degree 3, columns on [0, 1]
    IGCI = "igci"  # the cause has the larger entropy: 1-spacings, Gaussian reference
    CDS = "cds"  # the law of the effect varies less with the cause, once its mean and spread are taken away
    ANM = "anm"  # what kernel ridge regression leaves of the effect depends less on the cause


def compare_pair(rule: PairRule, first: Floats, second: Floats) -> float:
    """Return a number that is above 0 if a rule takes the first column for the cause."""
    compare = {
        PairRule.RECI: compare_regression_errors,
        PairRule.IGCI: compare_entropies,
        PairRule.CDS: compare_conditionals,
        PairRule.ANM: compare_residuals,
    }
    return compare[rule](first, second)


def compare_entropies(first: Floats, second: Floats) -> float:
    """Return the entropy of first less that of second, both with mean 0 and variance 1."""
    return spacing_entropy(standardise(first)) - spacing_entropy(standardise(second))


def spacing_entropy(values: Floats) -> float:
    """Estimate the entropy from the gaps between sorted values; equal neighbours add nothing, as published."""
    gaps = np.diff(np.sort(values))
    if len(gaps) == 0:
        return 0.0
    logs = np.log(gaps[gaps > 0.0])
    return float(logs.sum() / len(gaps) + special.digamma(len(values)) - special.digamma(1))


def standardise(values: Floats) -> Floats:
    """Return values with mean 0 and variance 1; a constant becomes 0."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0.0 else np.zeros(len(values))


def compare_regression_errors(first: Floats, second: Floats, degree: int = DEGREE) -> float:
    """Return the error of first on second less that of second on first, both scaled to [0, 1]."""
    x, y = scale_to_unit(first), scale_to_unit(second)
    return regression_error(y, x, degree) - regression_error(x, y, degree)


def regression_error(given: Floats, target: Floats, degree: int = DEGREE) -> float:
    """Return the mean square that a polynomial of the given column leaves of the target."""
    powers = np.vander(2.0 * given - 1.0, degree + 1)
    weights = np.linalg.lstsq(powers, target, rcond=None)[0]
    return float(np.mean((target - powers @ weights) ** 2))


def scale_to_unit(values: Floats) -> Floats:
    """Return values moved and stretched to [0, 1]; a constant becomes 0."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.zeros(len(values))


def compare_conditionals(first: Floats, second: Floats) -> float:
    """Return how much the law of first varies with second, less how much that of second varies with first."""
    return conditional_variability(second, first) - conditional_variability(first, second)


def conditional_variability(given: Floats, target: Floats) -> float:
    """Return the standard deviation of the target's shares over the cells of the given column.

    In each cell the target has mean 0 and variance 1 before it is cut itself.
    """
    cells = cut(standardise(given))
    shares = []
    for cell in np.unique(cells):
        inside = target[cells == cell]
        if len(inside) > FEWEST_ROWS:
            places = cut(standardise(inside)) + CELLS_PER_DEVIATION * LARGEST_DEVIATION
            counts = np.bincount(places, minlength=2 * CELLS_PER_DEVIATION * LARGEST_DEVIATION + 1)
            shares.append(counts / len(inside))
    if not shares:
        return 0.0
    table = np.array(shares)
    return float((table - table.mean(axis=0)).std())


def cut(values: Floats) -> Integers:
    """Return the number of the cell of each value, 0 in the middle."""
    largest = CELLS_PER_DEVIATION * LARGEST_DEVIATION
    return np.clip(np.rint(values * CELLS_PER_DEVIATION), -largest, largest).astype(np.int64)


def compare_residuals(first: Floats, second: Floats) -> float:
    """Return how far second depends on what it leaves of first, less the same the other way round."""
    x, y = (2.0 * scale_to_unit(column) - 1.0 for column in (first, second))
    return residual_dependence(y, x) - residual_dependence(x, y)


def residual_dependence(given: Floats, target: Floats) -> float:
    """Return the normalised criterion of a column and of what a regression on it leaves of another, between 0 and 1.

    Both columns lie in [-1, 1].
    """
    left = ridge_residuals_by_features(given[:, None], target, PENALTY, BANDWIDTH)
    return normalised_hsic(given, left)


def normalised_hsic(u: Floats, v: Floats) -> float:
    """Return the criterion divided by its geometric mean of each column with itself; 0 if one is constant."""
    features = [
        kernel_features(max(median_bandwidth(column[:, None]), NARROWEST), 4.0).map(column) for column in (u, v)
    ]
    none = np.empty((0, len(u)), dtype=np.intp)
    joint, own_u, own_v = (float(root_hsic(features[a], features[b], none)[0]) for a, b in ((0, 1), (0, 0), (1, 1)))
    return joint**2 / (own_u * own_v) if own_u > 1e-12 and own_v > 1e-12 else 0.0
