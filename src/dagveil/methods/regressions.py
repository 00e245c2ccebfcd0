"""Regression functions from released values: public functions, so that their residuals cost no privacy.

Each column is predicted from others by an additive function, a Legendre series in each column, fitted to noisy moments.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from dagveil.curator import Curator
from dagveil.data.moments import AdditiveFunction, Basis, FeaturePlan
from dagveil.data.selection import unit_scale
from dagveil.evidence.blocks import covariance_from_features
from dagveil.evidence.bundle import Stage
from dagveil.evidence.moments import draw_symmetric
from dagveil.privacy.release import NoisyCounts

Floats = NDArray[np.float64]

# added to variances of features, which are about 1: keeps regressions finite where columns determine each other
SMALLEST_RIDGE = 1e-3
SMALLEST_EIGENVALUE = 0.05  # floor for the covariance of features in drawn truths
DEGREE = 2  # features of each column whose moments are released
# squared radius that rows of features are shrunk to, per feature; a uniform column has 1 on average
RADIUS_PER_FEATURE = 1.5
CONSTANT_SHARE = 0.1  # square of the constant before each row of features, relative to the squared radius; at least 1
BITS = 10  # fixed-point bits of features


class ReleasedFunctions:
    """Least squares from noisy moments of Legendre features, with a ridge as large as the noise.

    Moments are of the features √3 P_1, √5 P_2, … of the first column, then of the second, and so on; the deviation is
    that of the noise in an entry of their covariance.
    """

    def __init__(self, columns: Sequence[str], means: Floats, covariance: Floats, deviation: float) -> None:
        self.columns = tuple(columns)
        self.degree = len(means) // len(self.columns)
        self._norms = np.sqrt(2.0 * np.arange(1, self.degree + 1) + 1.0)
        # features vary by about 1: where noise is larger than that, 0 is the better guess
        self._means = means / (1.0 + deviation**2)
        self._covariance = covariance
        self._deviation = deviation
        self._known: dict[tuple[str, tuple[str, ...]], AdditiveFunction] = {}

    def function(self, target: str, given: tuple[str, ...]) -> AdditiveFunction:
        """Give the function that predicts a column from others, in units scaled to [-1, 1]."""
        if (target, given) not in self._known:
            self._known[target, given] = self._fit(target, given)
        return self._known[target, given]

    def spread(self, name: str) -> float:
        """Return the standard deviation of a column in half-widths of its bounds, as noisy as the moments."""
        place = self._places(name)[0]
        return math.sqrt(max(float(self._covariance[place, place]), 0.0)) / float(self._norms[0])

    def line(self, x: str, y: str) -> tuple[Floats, Floats]:
        """Return means and covariance of two columns in half-widths of their bounds, as noisy as the moments."""
        places = [self._places(name)[0] for name in (x, y)]
        covariance = self._covariance[np.ix_(places, places)] / self._norms[0] ** 2
        spreads = np.sqrt(np.maximum(np.diag(covariance), SMALLEST_RIDGE))
        most = 0.99 * spreads[0] * spreads[1]
        covariance[0, 1] = covariance[1, 0] = min(max(float(covariance[0, 1]), -most), most)
        np.fill_diagonal(covariance, spreads**2)
        return self._means[places] / self._norms[0], covariance

    def draw_leftovers(
        self, x: str, y: str, given: tuple[str, ...], rows: int, draws: int, rng: np.random.Generator
    ) -> Floats:
        """Draw what regressions may leave of a common dependence on the given columns, in both residuals.

        True moments are drawn around the released ones, with the law of their noise and of sampling, and no column is
        explained by more than its variance; the leftover is the covariance of the two errors of prediction.
        """
        places = np.concatenate([self._places(name) for name in given])
        goals = [self._places(name)[0] for name in (x, y)]
        block = self._covariance[np.ix_(places, places)]
        spread = math.sqrt(self._deviation**2 + 1.0 / rows)
        fitted = [self._weigh(places, goal) for goal in goals]
        found = np.empty(draws)
        for draw in range(draws):
            values, vectors = np.linalg.eigh(block + spread * draw_symmetric(rng, len(places)))
            values = np.maximum(values, SMALLEST_EIGENVALUE)
            errors = []
            for goal, weights in zip(goals, fitted, strict=True):
                across = vectors.T @ (self._covariance[places, goal] + spread * rng.standard_normal(len(places)))
                explained = float((across**2 / values).sum())
                most = max(float(self._covariance[goal, goal]), self._deviation, SMALLEST_EIGENVALUE)
                truth = across / values * min(1.0, math.sqrt(most / explained))
                errors.append(vectors.T @ weights - truth)
            found[draw] = float((errors[0] * values) @ errors[1])
        return found / float(self._norms[0]) ** 2

    def _fit(self, target: str, given: tuple[str, ...]) -> AdditiveFunction:
        goal = self._places(target)[0]
        mean = float(self._means[goal])
        if not given:
            return AdditiveFunction(mean / float(self._norms[0]))
        places = np.concatenate([self._places(name) for name in given])
        weights = self._weigh(places, goal)
        constant = mean - float(weights @ self._means[places])
        # from features of mean square 1 to polynomials, and from the first feature of the target to the target
        series = weights.reshape(len(given), self.degree) * self._norms / self._norms[0]
        return AdditiveFunction(constant / float(self._norms[0]), tuple(tuple(map(float, row)) for row in series))

    def _weigh(self, places: NDArray[np.intp], goal: int) -> Floats:
        """Return the coefficients of ridge regression of one feature on others."""
        block = self._covariance[np.ix_(places, places)]
        values, vectors = np.linalg.eigh((block + block.T) / 2.0)
        # the largest eigenvalue of a noise matrix of this size is about 2 deviations times the root of its size
        ridge = SMALLEST_RIDGE + 2.0 * self._deviation * math.sqrt(len(places))
        return np.asarray(vectors @ ((vectors.T @ self._covariance[places, goal]) / (np.maximum(values, 0.0) + ridge)))

    def _places(self, name: str) -> NDArray[np.intp]:
        start = self.columns.index(name) * self.degree
        return np.arange(start, start + self.degree)


def release_functions(curator: Curator, share: Fraction) -> tuple[ReleasedFunctions, Stage]:
    """Release second moments of features of all columns, and fit functions to them."""
    columns = curator.schema.columns
    scales = [unit_scale(column) for column in columns.values()]
    radius = RADIUS_PER_FEATURE * DEGREE * len(columns)
    plan = FeaturePlan(
        columns=tuple(columns),
        centers=tuple(center for center, _ in scales),
        reaches=tuple(reach or 1.0 for _, reach in scales),
        basis=Basis.LEGENDRE,
        degree=DEGREE,
        radius_squared=radius,
        constant=math.sqrt(max(1.0, CONSTANT_SHARE * radius)),
        bits=BITS,
    )
    released = curator.outer_products(plan, share, "moments for regressions")
    found = covariance_from_features(released)
    # means there are divided by the constant
    functions = ReleasedFunctions(plan.columns, found.means * plan.constant, found.matrix, found.deviation)
    why = "regressions of conditional questions are computed from these, so residuals cost nothing more"
    return functions, Stage("moments for regressions", 1, len(released.values), float(share), released.deviation, why)


def functions_from_table(table: NoisyCounts, degree: int) -> ReleasedFunctions:
    """Fit functions to the noisy table of two columns that were counted in bins of equal width between their bounds."""
    counts = table.counts
    cells = np.ones((*counts.shape, 1 + 2 * degree))
    norms = np.sqrt(2.0 * np.arange(1, degree + 1) + 1.0)
    for axis, levels in enumerate(counts.shape):
        middles = (2.0 * np.arange(levels) + 1.0) / levels - 1.0
        features = legendre.legvander(middles, degree)[:, 1:] * norms
        place = slice(1 + axis * degree, 1 + (axis + 1) * degree)
        cells[:, :, place] = np.expand_dims(features, 1 - axis)
    moments = np.einsum("ij,ija,ijb->ab", counts, cells, cells, optimize=True)
    rows = max(float(moments[0, 0]), 1.0)
    means = moments[0, 1:] / rows
    # features have mean square 1 over the cells, so a sum over cells has the noise of the cells together
    deviation = math.sqrt(table.count_variance * counts.size) / rows
    return ReleasedFunctions(table.columns, means, moments[1:, 1:] / rows - np.outer(means, means), deviation)
