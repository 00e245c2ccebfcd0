"""Tests on the noisy second moments of levels beside features of numbers: blocks of any kind and size.

Column i has a block of coordinates: indicators of its levels but one, or the features of a number. As with features
alone, u = K_xy − B_x K_Sy is what regression on the blocks of S leaves of the covariance K_xy, and an error E of the
whole matrix moves u by A_x E A_yᵀ to first order. The covariance of a column with levels with itself follows from its
shares, so noise reaches it by the shares and not by its own block. docs/tests.md derives the covariance of vec(u).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import EvidenceError
from dagveil.evidence import wald
from dagveil.evidence.blocks import MixedCovariance, covariance_from_features
from dagveil.evidence.questions import Answers, CovarianceEvidence, Questions
from dagveil.privacy.release import NoisyFeatureMoments

Floats = NDArray[np.float64]

CELLS_PER_BATCH = 2_000_000  # numbers that one batch may hold in its largest array: keeps memory flat whatever is asked


class Compared(enum.Enum):
    """Which entries of the partial cross-covariance a test looks at."""

    ALL = "all"  # every pair of features: the most power; its p-value is a score for graphs
    # pairs of features of which one is the column itself: fewer assumptions, so the p-value of a single question may be
    # published (docs/tests.md says when)
    LINEAR_SIDE = "linear-side"


class BlockEvidence(CovarianceEvidence[MixedCovariance]):
    """Independence tests on the covariance of blocks.

    Blocks are whitened column by column, the first coordinate first: tests of all entries do not change, strengths of
    different columns compare, and the first coordinate stays the first.

    - `slack`: dependence that tests let pass, by the size of the set: none, one column, more.
    - `compared`: what tests look at; where all columns have blocks of one size.
    - `spares`: whether odds are against as much dependence as tests let pass, or against none.
    """

    spares = True

    def __init__(
        self,
        covariance: MixedCovariance,
        slack: tuple[float, float, float] = wald.SLACK,
        compared: Compared = Compared.ALL,
    ) -> None:
        super().__init__(covariance)
        self.slack, self.compared = slack, compared
        d, m = len(covariance.sizes), max(*covariance.sizes, 1)
        self._sizes = np.array(covariance.sizes, dtype=np.intp)
        self._means = np.zeros((d, m))
        self._spread, self._whitener = np.zeros((2, d, m, m))
        # by these the noise of shares reaches a regression: probability and variance of each level, dropped one last
        self._levels = np.zeros((d, m + 1, m))
        self._level_shares, self._level_noise = np.zeros((2, d, m + 1))
        flat = np.zeros((d * m, len(covariance.matrix)))
        for column, place in enumerate(covariance.places):
            size = covariance.sizes[column]
            shares, noise = covariance.shares[column], covariance.share_noise[column]
            white = _whiten(covariance.matrix[place, place], covariance.deviation if shares is None else None)
            lifted = white @ covariance.lift[place]
            self._whitener[column, :size, :size] = white
            self._spread[column, :size, :size] = lifted @ lifted.T
            self._means[column, :size] = white @ covariance.means[place]
            flat[column * m : column * m + size, place] = white
            if shares is not None and noise is not None:
                self._level_shares[column, : size + 1] = shares
                self._level_noise[column, : size + 1] = noise
                self._levels[column, :size, :size] = np.eye(size)
        self._blocks = (flat @ covariance.matrix @ flat.T).reshape(d, m, d, m).transpose(0, 2, 1, 3)
        self._blocks[np.arange(d), np.arange(d)] = np.eye(m)
        # noise of the block of two columns; shares, and no block of its own, tell how levels vary
        self._noise = covariance.noise.copy()
        self._noise[np.arange(d), np.arange(d)] *= np.array([shares is None for shares in covariance.shares])

    def over(self, covariance: MixedCovariance) -> BlockEvidence:
        """Return the same tests on another covariance."""
        return type(self)(covariance, self.slack, self.compared)

    def association(self) -> Floats:
        """Return ‖K_xy‖² of every pair, less what noise and sampling add to a square on average."""
        traces, means = np.trace(self._spread, axis1=1, axis2=2), (self._means**2).sum(axis=1)
        squares = np.einsum("ijab,ijab->ij", self._blocks, self._blocks)
        centring = np.outer(traces, means) + np.outer(means, traces) + np.outer(means, means)
        added = self.covariance.noise * np.outer(traces, traces) + self.covariance.deviation**2 * centring
        lost = 0.0 if self.covariance.lost is None else self.covariance.lost
        sampling = np.outer(self._sizes, self._sizes) * (1.0 / self.covariance.n_rows + lost)
        return np.asarray(squares - added - sampling)

    def strength(self, questions: Questions) -> Floats:
        """Return ‖u‖² of each question in whitened units."""
        out = np.zeros(len(questions))
        for rows, found in self._regress_all(questions):
            out[rows] = np.einsum("qab,qab->q", found.partial, found.partial)
        return out

    def odds(self, questions: Questions) -> Floats:
        """Return the log Bayes factor of dependence for each question, against none or as much as tests let pass."""
        n_rows = self.covariance.n_rows
        slack = self.slack[min(questions.order, 2)] * self.spares
        odds = np.zeros(len(questions))
        for rows, found in self._regress_all(questions):
            spread = self._spread_of(questions.select(rows), found)
            cells = spread.shape[1]
            # what tests let pass, in a direction that is not known
            spread = spread + slack**2 / cells * np.eye(cells)
            sampling = np.broadcast_to(np.eye(cells) / n_rows, spread.shape)
            odds[rows] = wald.Wald(found.partial.reshape(len(rows), cells), spread, sampling).odds(n_rows)
        return odds

    def test(self, questions: Questions) -> Answers:
        """Test each question by the Wald statistic of its partial cross-covariance.

        With slack the hypothesis is that the dependence is at most that large: T is compared with a noncentral χ².
        """
        statistic, shift, freedom = (np.zeros(len(questions)) for _ in range(3))
        slack = self.slack[min(questions.order, 2)]
        for rows, found in self._regress_all(questions):
            entries = self._entries(*found.partial.shape[1:])
            inverse = np.linalg.inv(self._spread_of(questions.select(rows), found)[:, entries[:, None], entries])
            u = found.partial.reshape(len(rows), -1)[:, entries]
            statistic[rows] = np.maximum(np.einsum("qi,qij,qj->q", u, inverse, u), 0.0)
            # the direction of what was left behind is not known: the average over directions
            shift[rows] = slack**2 * np.trace(inverse, axis1=1, axis2=2) / len(entries)
            freedom[rows] = len(entries)
        lively = np.maximum(freedom, 1.0)
        # Patnaik: a noncentral χ² is close to a multiple of a central one with the same mean and variance
        multiple = (lively + 2.0 * shift) / (lively + shift)
        p_value = special.chdtrc((lively + shift) / multiple, statistic / multiple)
        return Answers(statistic, freedom, np.where(freedom > 0, p_value, 1.0))

    def _entries(self, a: int, b: int) -> NDArray[np.intp]:
        """Return the places in vec(u) that tests look at."""
        places = np.arange(a * b).reshape(a, b)
        return np.concatenate([places[0], places[1:, 0]]) if self.compared is Compared.LINEAR_SIDE else places.ravel()

    def _regress_all(self, questions: Questions) -> Iterator[tuple[NDArray[np.intp], _Regressed]]:
        """Yield rows of the batch whose columns have the same sizes, and their regressions; none if one cannot vary."""
        a, b, order = self._sizes[questions.x], self._sizes[questions.y], questions.order
        shapes = a * (self._sizes.max() + 1) + b
        for shape in np.unique(shapes[(a > 0) & (b > 0)]):
            alike = np.flatnonzero(shapes == shape)
            cells = int(a[alike[0]] * b[alike[0]])
            wide = int(self._sizes[questions.given[alike]].max(initial=1))
            step = max(1, CELLS_PER_BATCH // max(2 * cells**2, (order * wide) ** 2, cells * order * (wide + 1)))
            for start in range(0, len(alike), step):
                rows = alike[start : start + step]
                yield rows, self._regress(questions.select(rows))

    def _regress(self, questions: Questions) -> _Regressed:
        """Regress the columns of questions, all x of one size and all y of one, on their sets."""
        x, y, given = questions.x, questions.y, questions.given
        q, order = len(questions), questions.order
        a, b = int(self._sizes[x[0]]), int(self._sizes[y[0]])
        partial = self._blocks[x, y, :a, :b]
        mean_x, mean_y = self._means[x, :a], self._means[y, :b]
        if not order:
            return _Regressed(partial, mean_x, mean_y)
        s = max(int(self._sizes[given].max()), 1)
        xs = self._blocks[x[:, None], given, :a, :s].transpose(0, 2, 1, 3).reshape(q, a, order * s)
        ys = self._blocks[y[:, None], given, :b, :s].transpose(0, 2, 1, 3).reshape(q, b, order * s)
        ss = self._blocks[given[:, :, None], given[:, None, :], :s, :s].transpose(0, 1, 3, 2, 4)
        inverse = wald.invert_sets(ss)
        bx, by = xs @ inverse, ys @ inverse
        mean_s = self._means[given, :s].reshape(q, order * s, 1)
        return _Regressed(
            partial - bx @ ys.transpose(0, 2, 1),
            mean_x - (bx @ mean_s)[..., 0],
            mean_y - (by @ mean_s)[..., 0],
            _Set(bx, by, inverse, xs, ys),
        )

    def _spread_of(self, questions: Questions, found: _Regressed) -> Floats:
        """Return the covariance of vec(u): sampling, and the noise of every moment that u is made of."""
        x, y, given = questions.x, questions.y, questions.given
        q, order = len(questions), questions.order
        a, b = found.partial.shape[1:]
        rx, ry = self._spread[x, :a, :a], self._spread[y, :b, :b]
        sx, sy = np.broadcast_to(np.eye(a), (q, a, a)), np.broadcast_to(np.eye(b), (q, b, b))
        # A_x A_xᵀ, A_y A_yᵀ and A_x A_yᵀ by parts: the columns of the set, the columns themselves, the constant
        xx, yy, xy = np.empty((q, order + 2, a, a)), np.empty((q, order + 2, b, b)), np.zeros((q, order + 2, a, b))
        xx[:, order], yy[:, order] = rx, ry
        xx[:, -1] = found.mean_x[:, :, None] * found.mean_x[:, None, :]
        yy[:, -1] = found.mean_y[:, :, None] * found.mean_y[:, None, :]
        xy[:, -1] = found.mean_x[:, :, None] * found.mean_y[:, None, :]
        weights = np.full((q, order + 2, order + 2), self.covariance.deviation**2)
        weights[:, order, order] = self._noise[x, y]
        margins, lost = None, self.covariance.lost
        bx, by, fewer = np.empty((q, 0, a, 1)), np.empty((q, 0, b, 1)), np.zeros((q, 2))
        if lost is not None and not order:
            # of a pair alone it is known how many rows have both
            fewer[:, 0] = lost[x, y]
        elif lost is not None:
            fewer = np.column_stack([lost[given, given], lost[x, x], lost[y, y]])
        if found.given is not None:
            s = found.given.inverse.shape[1] // order
            spread = self._spread[given, :s, :s]
            bx = found.given.bx.reshape(q, a, order, s).transpose(0, 2, 1, 3)
            by = found.given.by.reshape(q, b, order, s).transpose(0, 2, 1, 3)
            xx[:, :order] = bx @ spread @ bx.transpose(0, 1, 3, 2)
            yy[:, :order] = by @ spread @ by.transpose(0, 1, 3, 2)
            xy[:, :order] = bx @ spread @ by.transpose(0, 1, 3, 2)
            weights[:, :order, :order] = self._noise[given[:, :, None], given[:, None, :]]
            weights[:, order, :order] = self._noise[x[:, None], given]
            weights[:, :order, order] = self._noise[given, y[:, None]]
            # E[K_xS K_SS⁻¹ K_Sx] is larger than without noise by this much
            own = found.given.inverse.reshape(q, order, s, order, s)[:, np.arange(order), :, np.arange(order), :]
            traces = np.einsum("oqab,qoba->qo", own, spread)
            back_x = (weights[:, order, :order] * traces).sum(axis=1)[:, None, None] * rx
            back_y = (weights[:, :order, order] * traces).sum(axis=1)[:, None, None] * ry
            sx = wald.residual_covariance(found.given.bx, found.given.xs, back_x)
            sy = wald.residual_covariance(found.given.by, found.given.ys, back_y)
            if self._level_noise.any():
                margins = self._lift_levels(bx, given, s), self._lift_levels(by, given, s)
        noise = xx.reshape(q, order + 2, -1).transpose(0, 2, 1) @ weights @ yy.reshape(q, order + 2, -1)
        sampling = sx[:, :, None, :, None] * sy[:, None, :, None, :] / self.covariance.n_rows
        c = noise.reshape(q, a, a, b, b).transpose(0, 1, 3, 2, 4) + sampling
        flat = xy.reshape(q, order + 2, a * b)
        crossed = (flat.transpose(0, 2, 1) @ weights @ flat).reshape(q, a, b, a, b)
        # entry (i, j, k, l) has W[i, l] W[k, j]
        c = (c + crossed.transpose(0, 1, 4, 3, 2)).reshape(q, a * b, a * b)
        if margins is not None:
            products = (margins[0][:, :, None] * margins[1][:, None]).reshape(q, a * b, -1)
            variance = self._level_noise[given].reshape(q, 1, -1)
            c = c + (products * variance) @ products.transpose(0, 2, 1)
        if lost is not None:
            n = self.covariance.n_rows
            ends = (sx / n, bx.transpose(0, 2, 1, 3)), (sy / n, by.transpose(0, 2, 1, 3))
            c = c + wald.fewer_rows(*ends, fewer, n)
        return np.asarray(c)

    def _lift_levels(self, slopes: Floats, given: NDArray[np.intp], s: int) -> Floats:
        """Return slopes, shape (q, k, a, s), by level of each column of the set, centred: (q, a, k (m + 1))."""
        levels = slopes @ self._whitener[given, :s, :s] @ self._levels[given, :, :s].transpose(0, 1, 3, 2)
        levels -= levels @ self._level_shares[given][..., None]
        q, k, a, wide = levels.shape
        return np.asarray(levels.transpose(0, 2, 1, 3).reshape(q, a, k * wide))


class MixedEvidence(BlockEvidence):
    """Tests on released moments of levels and numbers."""


class FeatureEvidence(BlockEvidence):
    """Tests on released moments of features: every column is a number, with as many of them."""

    spares = False


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
    return FeatureEvidence(covariance_from_features(release), wald.NO_SLACK, Compared.LINEAR_SIDE)


@dataclass(frozen=True, slots=True, eq=False)
class _Set:
    """The regression of both columns on the set: coefficients, K_SS⁻¹, K_xS and K_yS."""

    bx: Floats
    by: Floats
    inverse: Floats
    xs: Floats
    ys: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Regressed:
    """Both columns after regression on the set, if there is one: u, and residual means."""

    partial: Floats
    mean_x: Floats
    mean_y: Floats
    given: _Set | None = None


def _whiten(own: Floats, deviation: float | None) -> Floats:
    """Return the inverse Cholesky root of a column's own covariance, kept above its noise."""
    if not len(own):
        return np.zeros((0, 0))
    if deviation is not None:
        values, vectors = np.linalg.eigh((own + own.T) / 2)
        floor = max(wald.SMALLEST_RESIDUAL * values.max(), np.sqrt(2.0) * deviation, 1e-9)
        own = (vectors * np.maximum(values, floor)) @ vectors.T
    return np.asarray(np.linalg.inv(np.linalg.cholesky(own)))
