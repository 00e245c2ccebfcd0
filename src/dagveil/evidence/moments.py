"""Tests on one noisy moment matrix: Fisher's z with the noise in its variance.

For (i, j, given S) let u and v be the residual directions of i and j after regression on S, s_i = uᵀMu and s_j = vᵀMv.
Noise of deviation σ off the diagonal and √2 σ on it gives uᵀMv the variance σ²(|u|²|v|² + (uᵀv)²); docs/tests.md has
the derivation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.questions import Answers, CovarianceEvidence, Questions
from dagveil.evidence.wald import EXPECTED_EFFECT, distinct_rows, find_root
from dagveil.privacy.release import NoisyMoments

Floats = NDArray[np.float64]

SMALLEST_VARIANCE = 1e-3  # floor for a residual variance, as a share of the column's own


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCovariance:
    """Covariance of scaled columns with the deviation of its noise."""

    columns: tuple[str, ...]
    matrix: Floats  # noisy covariance (divided by the number of rows)
    deviation: float  # deviation of the noise in an off-diagonal entry before centring, in the same units
    n_rows: float
    ridge: float  # added to the diagonal before regressions: steadies noisy regressions at the price of exact levels
    # noisy means divided by the constant: by them the noise of the constant's row enters all entries of a column
    means: Floats

    def redraw(self, rng: np.random.Generator) -> NoisyCovariance:
        """Return a copy with fresh noise and fresh sampling around the estimate."""
        d = len(self.columns)
        root = find_root(self.matrix)
        sampling = draw_symmetric(rng, d) / np.sqrt(self.n_rows)
        # the published noise, as it shows after centring
        noise = draw_symmetric(rng, d + 1)
        across = np.outer(self.means, noise[0, 1:])
        own = noise[0, 0] * np.outer(self.means, self.means)
        moved = self.matrix + root @ sampling @ root.T + self.deviation * (noise[1:, 1:] - across - across.T + own)
        _raise_variances(moved, self.deviation)
        return replace(self, matrix=moved)

    def shrunk(self, shares: Floats) -> NoisyCovariance:
        """Return a copy whose covariances are multiplied by these shares; variances stay."""
        return replace(self, matrix=self.matrix * np.where(np.eye(len(self.columns), dtype=bool), 1.0, shares))


def covariance_from_moments(release: NoisyMoments) -> NoisyCovariance:
    """Centre a released moment matrix by its own noisy means and divide by its own noisy number of rows."""
    covariance, means, n_rows = centre_moments(release.matrix, release.constant)
    deviation = release.deviation / n_rows
    _raise_variances(covariance, deviation)
    ridge = deviation * np.sqrt(len(release.columns))
    return NoisyCovariance(release.columns, covariance, deviation, n_rows, ridge, means / release.constant)


def centre_moments(matrix: Floats, constant: float) -> tuple[Floats, Floats, float]:
    """Return covariance, means and number of rows that a noisy moment matrix, the constant's row first, speaks for."""
    n_rows = max(matrix[0, 0] / constant**2, 1.0)
    means = matrix[0, 1:] / (constant * n_rows)
    return matrix[1:, 1:] / n_rows - np.outer(means, means), means, n_rows


def _raise_variances(covariance: Floats, deviation: float) -> None:
    """Raise variances that noise has pushed below its own size, in place: none may be negative."""
    np.fill_diagonal(covariance, np.maximum(np.diag(covariance), max(np.sqrt(2) * deviation, 1e-9)))


class MomentEvidence(CovarianceEvidence[NoisyCovariance]):
    """Independence tests on a noisy covariance, from a released moment matrix."""

    def __init__(self, covariance: NoisyCovariance) -> None:
        super().__init__(covariance)
        self._ridged = covariance.matrix + covariance.ridge * np.eye(len(covariance.columns))

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """For a linear model main effects are all there is, and no set was paid for on its own."""
        return np.zeros(len(questions), dtype=bool)

    def odds(self, questions: Questions) -> Floats:
        """Return the log Bayes factor of dependence for each question."""
        correlation, variance = self._compare(questions)
        wider = variance + EXPECTED_EFFECT**2
        return np.asarray((correlation**2 * (1.0 / variance - 1.0 / wider) - np.log(wider / variance)) / 2)

    def association(self) -> Floats:
        """Return the squared correlation of every pair, less what noise and sampling add to a square on average."""
        c = self.covariance
        scale = np.outer(np.diag(c.matrix), np.diag(c.matrix))
        grown = 1.0 + np.add.outer(c.means**2, c.means**2) + 2.0 * np.outer(c.means, c.means) ** 2
        return np.asarray(c.matrix**2 / scale - c.deviation**2 * grown / scale - 1.0 / c.n_rows)

    def strength(self, questions: Questions) -> Floats:
        """Return the squared partial correlation."""
        return self._correlate(questions)[0] ** 2

    def test(self, questions: Questions) -> Answers:
        """Test each question by Fisher's z, widened by the noise."""
        correlation, variance = self._compare(questions)
        statistic = correlation**2 / variance
        # with one degree of freedom; chdtrc would take ten times as long
        return Answers(statistic, np.ones(len(questions)), special.erfc(np.sqrt(statistic / 2.0)))

    def _compare(self, questions: Questions) -> tuple[Floats, Floats]:
        """Fisher's z of partial correlations, and its variance by sampling and noise."""
        correlation, noise = self._correlate(questions)
        freedom = max(self.covariance.n_rows - questions.order - 3.0, 1.0)
        return np.arctanh(np.clip(correlation, -0.999999, 0.999999)), 1.0 / freedom + noise

    def _correlate(self, questions: Questions) -> tuple[Floats, Floats]:
        """Partial correlations and the variance that noise gives them."""
        k = questions.order
        nodes = np.column_stack([questions.x, questions.y, questions.given])
        block = self._ridged[nodes[:, :, None], nodes[:, None, :]]
        plain = self.covariance.matrix[nodes[:, :, None], nodes[:, None, :]]
        u, v = np.zeros((2, len(questions), k + 2))
        u[:, 0] = v[:, 1] = 1.0
        if k:
            # many questions share a set
            place, sets = distinct_rows(questions.given)
            values, vectors = np.linalg.eigh(self._ridged[sets[:, :, None], sets[:, None, :]])
            floor = max(self.covariance.deviation, 1e-9)
            inverse = np.einsum("qij,qj,qkj->qik", vectors, 1.0 / np.maximum(values, floor), vectors)[place]
            u[:, 2:] = -np.einsum("qij,qj->qi", inverse, block[:, 2:, 0])
            v[:, 2:] = -np.einsum("qij,qj->qi", inverse, block[:, 2:, 1])
        sigma = self.covariance.deviation
        # the row of the constant, whose noise enters by the means
        means = self.covariance.means[nodes]
        mean_u, mean_v = (u * means).sum(axis=1), (v * means).sum(axis=1)
        uu, vv = (u**2).sum(axis=1) + mean_u**2, (v**2).sum(axis=1) + mean_v**2
        uv = (u * v).sum(axis=1) + mean_u * mean_v
        floors = SMALLEST_VARIANCE * plain[:, [0, 1], [0, 1]]
        su = np.maximum(np.einsum("qi,qij,qj->q", u, block, u), np.maximum(np.sqrt(2) * sigma * uu, floors[:, 0]))
        sv = np.maximum(np.einsum("qi,qij,qj->q", v, block, v), np.maximum(np.sqrt(2) * sigma * vv, floors[:, 1]))
        cross = np.einsum("qi,qij,qj->q", u, block, v)
        return cross / np.sqrt(su * sv), sigma**2 * (uu * vv + uv**2) / (su * sv)


def draw_symmetric(rng: np.random.Generator, d: int) -> Floats:
    """Symmetric noise with unit deviation off the diagonal and √2 on it."""
    gauss: Floats = rng.standard_normal((d, d)) / np.sqrt(2.0)
    return gauss + gauss.T
