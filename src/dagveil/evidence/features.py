"""Tests on the noisy second moments of nonlinear features: partial cross-covariances with all noise in their law.

Column i has k features. K_ij is the covariance of the features of i with those of j. For (x, y, given S) let B_x = K_xS
K_SS⁻¹; u = K_xy − B_x K_Sy is the covariance that regression on the features of S leaves. An error E of the whole
matrix moves u by A_x E A_yᵀ to first order, A_x being the rows (1 at x, −B_x at S, minus the residual mean at the
constant). docs/tests.md derives the covariance of that.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import EvidenceError
from dagveil.evidence.moments import draw_symmetric
from dagveil.evidence.pairs import keep_excess
from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.wald import SMALLEST_EIGENVALUE, SMALLEST_RESIDUAL, Wald
from dagveil.privacy.release import NoisyFeatureMoments

Floats = NDArray[np.float64]

CELLS_PER_BATCH = 2_000_000
"""Numbers that one batch may hold in its largest array: keeps memory flat whatever is asked."""


SLACK = (0.02, 0.03, 0.05)
"""Dependence, in units of a correlation, that graphs do not count, without conditioning, given one column, and given
more: rows that were shrunk join independent columns a little, and k features do not take all of a column away."""

NO_SLACK = (0.0, 0.0, 0.0)
"""For p-values that are to be published."""


class Compared(enum.Enum):
    """Which entries of the partial cross-covariance a test looks at."""

    ALL = "all"
    """Every pair of features: the most power; its p-value is a score for graphs."""

    LINEAR_SIDE = "linear-side"
    """Pairs of features of which one is the column itself: fewer assumptions, so the p-value of a single question may
    be published (docs/tests.md says when)."""


@dataclass(frozen=True, slots=True, eq=False)
class FeatureCovariance:
    """Covariance of features with what is needed to know its noise.

    - `degree`: features per column, k.
    - `matrix`: noisy covariance, centred and divided by the number of rows, shape (dk, dk), column by column.
    - `means`: noisy means of the features divided by the constant, shape (dk,): how the noise of the constant's row
      enters.
    - `deviation`: deviation of the noise in an off-diagonal entry of the matrix before centring, in the same units.
    """

    columns: tuple[str, ...]
    degree: int
    matrix: Floats
    means: Floats
    deviation: float
    n_rows: float

    def redraw(self, rng: np.random.Generator) -> FeatureCovariance:
        """Return a copy with fresh noise and fresh sampling around the estimate."""
        size = len(self.matrix)
        values, vectors = np.linalg.eigh(self.matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = draw_symmetric(rng, size + 1)
        across = np.outer(self.means, noise[0, 1:])
        centred = noise[1:, 1:] - across - across.T + noise[0, 0] * np.outer(self.means, self.means)
        sampling = root @ draw_symmetric(rng, size) @ root.T / np.sqrt(self.n_rows)
        return replace(self, matrix=self.matrix + sampling + self.deviation * centred)


def covariance_from_features(release: NoisyFeatureMoments) -> FeatureCovariance:
    """Centre a released matrix by its own noisy means and divide it by its own noisy number of rows."""
    matrix = release.matrix
    n_rows = max(matrix[0, 0] / release.constant**2, 1.0)
    means = matrix[0, 1:] / (release.constant * n_rows)
    covariance = matrix[1:, 1:] / n_rows - np.outer(means, means)
    return FeatureCovariance(
        release.columns, release.degree, covariance, means / release.constant, release.deviation / n_rows, n_rows
    )


def publishable_evidence(release: NoisyFeatureMoments) -> FeatureEvidence:
    """Return tests whose p-values hold under the assumptions of docs/tests.md, or say which release would allow them.

    They compare features of which one is the column itself, without slack, given three features or more, on rows that
    were not shrunk.
    """
    if release.degree < 3 or release.radius_squared < len(release.columns) * release.degree * (release.degree + 2):
        raise EvidenceError(
            f"p-values to publish need at least 3 features per column and rows that are not shrunk; this release has "
            f"{release.degree} and a squared radius of {release.radius_squared:g}; release again with degree=3 and "
            "radius=5, or take the p-values of this one as scores"
        )
    return FeatureEvidence(covariance_from_features(release), Compared.LINEAR_SIDE, NO_SLACK)


class FeatureEvidence:
    """Independence tests on the covariance of features.

    Features are whitened column by column, the first one first: tests of all entries do not change, strengths of
    different columns compare, and the first coordinate stays the first feature.

    - `slack`: dependence that tests let pass, by the size of the set: none, one column, more. `SLACK` is for graphs.
    """

    def __init__(
        self,
        covariance: FeatureCovariance,
        compared: Compared = Compared.ALL,
        slack: tuple[float, float, float] = SLACK,
    ) -> None:
        self.covariance = covariance
        self.compared = compared
        self.slack = slack
        d, k = len(covariance.columns), covariance.degree
        blocks = covariance.matrix.reshape(d, k, d, k).transpose(0, 2, 1, 3)
        whitener = _whiten(blocks[np.arange(d), np.arange(d)], covariance.deviation)
        self._blocks = np.einsum("iab,ijbc,jdc->ijad", whitener, blocks, whitener, optimize=True)
        self._blocks[np.arange(d), np.arange(d)] = np.eye(k)
        # the noise of whitened features: R_i = W_i W_iᵀ
        self._spread = whitener @ whitener.transpose(0, 2, 1)
        self._means = np.einsum("iab,ib->ia", whitener, covariance.means.reshape(d, k))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        return self.covariance.columns

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """One matrix answers every question."""
        return np.ones(len(questions), dtype=bool)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered jointly: of several columns the features give main effects only."""
        return np.full(len(questions), questions.order < 2)

    def redraw(self, rng: np.random.Generator) -> FeatureEvidence:
        """Return evidence with fresh noise and sampling around what was estimated."""
        return FeatureEvidence(self.centre.redraw(rng), self.compared, self.slack)

    @cached_property
    def centre(self) -> FeatureCovariance:
        """The covariance without what noise alone adds to the square of each block on average."""
        d = len(self.columns)
        x, y = np.triu_indices(d, 1)
        found = self.test(Questions(x, y, np.empty((len(x), 0), dtype=np.intp)))
        shares = np.ones((d, d))
        shares[x, y] = shares[y, x] = keep_excess(found.statistic, found.freedom)
        return self._scale(shares)

    def _scale(self, shares: Floats) -> FeatureCovariance:
        k = self.covariance.degree
        kept = np.where(np.eye(len(shares), dtype=bool), 1.0, shares)
        return replace(self.covariance, matrix=self.covariance.matrix * np.kron(kept, np.ones((k, k))))

    def odds(self, questions: Questions) -> Floats:
        """Return the log Bayes factor of dependence for each question."""
        k, n_rows = self.covariance.degree, self.covariance.n_rows
        odds = np.zeros(len(questions))
        for rows in self._batches(questions):
            asked = questions.select(rows)
            found = self._regress(asked)
            spread = self._spread_of(asked, found)
            sampling = np.broadcast_to(np.eye(k * k) / n_rows, spread.shape)
            odds[rows] = Wald(found.partial.reshape(len(rows), k * k), spread, sampling).odds(n_rows)
        return odds

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> Floats:
        """Return p-values of marginal questions as if nothing depended on anything, shape (draws, questions)."""
        alone = self._scale(np.zeros((len(self.columns), len(self.columns))))
        drawn = (FeatureEvidence(alone.redraw(rng), self.compared, self.slack) for _ in range(draws))
        return np.stack([evidence.test(questions).p_value for evidence in drawn])

    def association(self) -> Floats:
        """Return ‖K_xy‖² of every pair, less what noise and sampling add to a square on average."""
        traces = np.trace(self._spread, axis1=1, axis2=2) + (self._means**2).sum(axis=1)
        squares = np.einsum("ijab,ijab->ij", self._blocks, self._blocks)
        added = self.covariance.deviation**2 * np.outer(traces, traces)
        association: Floats = squares - added - self.covariance.degree**2 / self.covariance.n_rows
        return association

    def strength(self, questions: Questions) -> Floats:
        """Return ‖u‖² of each question in whitened units."""
        out = np.zeros(len(questions))
        for rows in self._batches(questions):
            u = self._regress(questions.select(rows)).partial
            out[rows] = np.einsum("qab,qab->q", u, u)
        return out

    def test(self, questions: Questions) -> Answers:
        """Test each question by the Wald statistic of its partial cross-covariance.

        With slack the hypothesis is that the dependence is at most that large: T is compared with a noncentral χ².
        """
        k, entries = self.covariance.degree, self._entries()
        statistic, shift = np.zeros(len(questions)), np.zeros(len(questions))
        slack = self.slack[min(questions.order, 2)]
        for rows in self._batches(questions):
            asked = questions.select(rows)
            found = self._regress(asked)
            u = found.partial.reshape(len(rows), k * k)[:, entries]
            inverse = np.linalg.inv(self._spread_of(asked, found)[:, entries[:, None], entries])
            statistic[rows] = np.einsum("qi,qij,qj->q", u, inverse, u)
            # the direction of what was left behind is not known: the average over directions
            shift[rows] = slack**2 * np.trace(inverse, axis1=1, axis2=2) / len(entries)
        freedom = np.full(len(questions), float(len(entries)))
        statistic = np.maximum(statistic, 0.0)
        # Patnaik: a noncentral χ² is close to a multiple of a central one with the same mean and variance
        multiple = (freedom + 2.0 * shift) / (freedom + shift)
        p_value = special.chdtrc((freedom + shift) / multiple, statistic / multiple)
        return Answers(statistic, freedom, p_value)

    def _entries(self) -> NDArray[np.intp]:
        """Return the places in vec(u) that tests look at."""
        k = self.covariance.degree
        places = np.arange(k * k).reshape(k, k)
        if self.compared is Compared.LINEAR_SIDE:
            return np.concatenate([places[0], places[1:, 0]])
        return places.ravel()

    def _batches(self, questions: Questions) -> Iterator[NDArray[np.intp]]:
        k, order = self.covariance.degree, questions.order
        step = max(1, CELLS_PER_BATCH // max(k**4, (order * k) ** 2))
        for start in range(0, len(questions), step):
            yield np.arange(start, min(start + step, len(questions)))

    def _regress(self, questions: Questions) -> _Regressed:
        k, order, q = self.covariance.degree, questions.order, len(questions)
        x, y, given = questions.x, questions.y, questions.given
        partial = self._blocks[x, y]
        mean_x, mean_y = self._means[x], self._means[y]
        if not order:
            empty = np.empty((q, k, 0))
            return _Regressed(partial, empty, empty, np.empty((q, 0, 0)), mean_x, mean_y, empty, empty)
        xs = self._blocks[x[:, None], given].transpose(0, 2, 1, 3).reshape(q, k, order * k)
        ys = self._blocks[y[:, None], given].transpose(0, 2, 1, 3).reshape(q, k, order * k)
        ss = self._blocks[given[:, :, None], given[:, None, :]].transpose(0, 1, 3, 2, 4)
        inverse = invert_blocks(ss.reshape(q, order * k, order * k), order)
        bx, by = xs @ inverse, ys @ inverse
        mean_s = self._means[given].reshape(q, order * k, 1)
        return _Regressed(
            partial - bx @ ys.transpose(0, 2, 1),
            bx,
            by,
            inverse,
            mean_x - (bx @ mean_s)[..., 0],
            mean_y - (by @ mean_s)[..., 0],
            xs,
            ys,
        )

    def _spread_of(self, questions: Questions, found: _Regressed) -> Floats:
        """Return the covariance of vec(u): sampling, and the noise of every moment that u is made of."""
        k, order, q = self.covariance.degree, questions.order, len(questions)
        rx, ry = self._spread[questions.x], self._spread[questions.y]
        # rows of A_x A_xᵀ, A_y A_yᵀ and A_x A_yᵀ: the columns themselves, the set, the constant
        xx = rx + found.mean_x[:, :, None] * found.mean_x[:, None, :]
        yy = ry + found.mean_y[:, :, None] * found.mean_y[:, None, :]
        xy = found.mean_x[:, :, None] * found.mean_y[:, None, :]
        variance = self.covariance.deviation**2
        sx = sy = np.broadcast_to(np.eye(k), (q, k, k))
        if order:
            spread = self._spread[questions.given]
            bx = found.bx.reshape(q, k, order, k).transpose(0, 2, 1, 3)
            by = found.by.reshape(q, k, order, k).transpose(0, 2, 1, 3)
            reach = bx @ spread
            xx = xx + (reach @ bx.transpose(0, 1, 3, 2)).sum(axis=1)
            yy = yy + (by @ spread @ by.transpose(0, 1, 3, 2)).sum(axis=1)
            xy = xy + (reach @ by.transpose(0, 1, 3, 2)).sum(axis=1)
            # E[K_xS K_SS⁻¹ K_Sx] is larger than without noise by this much
            own = found.inverse.reshape(q, order, k, order, k)[:, np.arange(order), :, np.arange(order), :]
            trace = np.einsum("oqab,qoba->q", own, spread)
            sx = residual_covariance(found.bx, found.xs, variance * trace[:, None, None] * rx)
            sy = residual_covariance(found.by, found.ys, variance * trace[:, None, None] * ry)
        c = sx[:, :, None, :, None] * sy[:, None, :, None, :] / self.covariance.n_rows
        c = c + variance * xx[:, :, None, :, None] * yy[:, None, :, None, :]
        c = c + variance * xy[:, :, None, None, :] * xy.transpose(0, 2, 1)[:, None, :, :, None]
        return c.reshape(q, k * k, k * k)


@dataclass(frozen=True, slots=True, eq=False)
class _Regressed:
    """Both columns after regression on the set: u, coefficients, K_SS⁻¹, residual means, and K_xS, K_yS."""

    partial: Floats
    bx: Floats
    by: Floats
    inverse: Floats
    mean_x: Floats
    mean_y: Floats
    xs: Floats
    ys: Floats


def _whiten(own: Floats, deviation: float) -> Floats:
    """Return inverse Cholesky roots of the columns' own covariances, kept above their noise."""
    values, vectors = np.linalg.eigh((own + own.transpose(0, 2, 1)) / 2)
    floor = np.maximum(SMALLEST_RESIDUAL * values.max(axis=1, keepdims=True), max(np.sqrt(2.0) * deviation, 1e-9))
    raised = (vectors * np.maximum(values, floor)[:, None, :]) @ vectors.transpose(0, 2, 1)
    whitener: Floats = np.linalg.inv(np.linalg.cholesky(raised))
    return whitener


def invert_blocks(ss: Floats, order: int) -> Floats:
    """Invert K_SS, its eigenvalues kept above a floor; one column alone is whitened."""
    if order == 1:
        return ss
    values, vectors = np.linalg.eigh(ss)
    inverse: Floats = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return inverse


def residual_covariance(b: Floats, s: Floats, back: Floats) -> Floats:
    """Residual covariance of whitened features: between a floor and their own."""
    residual = np.eye(b.shape[1]) - b @ s.transpose(0, 2, 1) + back
    values, vectors = np.linalg.eigh((residual + residual.transpose(0, 2, 1)) / 2)
    clipped: Floats = (vectors * np.clip(values, SMALLEST_RESIDUAL, 1.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return clipped
