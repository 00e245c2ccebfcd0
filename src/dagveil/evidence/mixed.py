"""Tests on the noisy second moments of levels beside features of numbers: blocks of any kind and size.

Column i has a block of coordinates: indicators of its levels but one, or the features of a number. As with features
alone, u = K_xy − B_x K_Sy is what regression on the blocks of S leaves of the covariance K_xy, and an error E of the
whole matrix moves u by A_x E A_yᵀ to first order. The covariance of a column with levels with itself follows from its
shares, so noise reaches it by the shares and not by its own block. docs/tests.md derives the covariance of vec(u).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.data.mixed import INDICATOR
from dagveil.evidence.covariance import group_known, merge_matrix
from dagveil.evidence.features import CELLS_PER_BATCH, SLACK, invert_blocks, residual_covariance
from dagveil.evidence.moments import draw_symmetric
from dagveil.evidence.pairs import keep_excess
from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.wald import SMALLEST_RESIDUAL, Wald, fewer_rows
from dagveil.privacy.release import NoisyMixedMoments, NoisyPairMoments

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MixedCovariance:
    """Covariance of blocks, with what is needed to know its noise.

    - `sizes`: coordinates of each column, levels kept less one or features; these stand together.
    - `lift`: how released coordinates make these, shape (coordinates, released ones).
    - `matrix`: noisy covariance, centred and divided by the number of rows; a column with levels has that of its shares
      with itself.
    - `means`: noisy means, before levels are centred, divided by the constant: how the noise of the constant's row
      enters.
    - `shares`: shares of the levels that are kept, the dropped one last; None for numbers.
    - `share_noise`: variance that noise gives each of these shares; None for numbers.
    - `deviation`: deviation of the noise off the diagonal of the released matrix, divided by the number of rows.
    - `noise`: variance of the noise in the block of two columns before centring, divided by n², shape (d, d).
    - `groups`: the kept level of each declared level, −1 for missing values that are left out; None for numbers.
    - `lost`: 1/n_ij − 1/n, n_ij being the rows in which both columns are known, shape (d, d); None if all are known.
    """

    columns: tuple[str, ...]
    sizes: tuple[int, ...]
    lift: Floats
    matrix: Floats
    means: Floats
    shares: tuple[Floats | None, ...]
    share_noise: tuple[Floats | None, ...]
    deviation: float
    noise: Floats
    constant: float
    n_rows: float
    groups: tuple[NDArray[np.intp] | None, ...]
    lost: Floats | None = None

    @property
    def places(self) -> list[slice]:
        """Where the coordinates of each column stand."""
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def redraw(self, rng: np.random.Generator) -> MixedCovariance:
        """Return a copy with fresh noise and fresh sampling around the estimate."""
        size = len(self.matrix)
        values, vectors = np.linalg.eigh(self.matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = draw_symmetric(rng, self.lift.shape[1] + 1)
        ahead = self.lift @ noise[0, 1:]
        across = np.outer(self.means, ahead)
        of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        own = np.sqrt(self.noise)[of[:, None], of] / self.deviation
        centred = own * (self.lift @ noise[1:, 1:] @ self.lift.T) - across - across.T
        centred += noise[0, 0] * np.outer(self.means, self.means)
        moved = self.matrix + root @ draw_symmetric(rng, size) @ root.T / np.sqrt(self.n_rows)
        moved += self.deviation * centred
        if self.lost is not None:
            moved += np.sqrt(self.lost)[of[:, None], of] * self._whole(draw_symmetric(rng, size))
        drawn = root @ rng.standard_normal(size) / np.sqrt(self.n_rows) + self.deviation / self.constant * ahead
        shares: list[Floats | None] = []
        for place, old, variance in zip(self.places, self.shares, self.share_noise, strict=True):
            if old is None or variance is None:
                shares.append(None)
                continue
            step = drawn[place]
            new = _floor_shares(old + np.append(step, -step.sum()), variance, self.n_rows)
            moved[place, place] = _share_covariance(new)
            shares.append(new)
        return replace(self, matrix=moved, shares=tuple(shares))

    def _whole(self, white: Floats) -> Floats:
        """Give whitened blocks the scale of their columns."""
        root = np.zeros_like(white)
        for place in self.places:
            values, vectors = np.linalg.eigh(self.matrix[place, place])
            root[place, place] = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(root @ white @ root.T)

    def shrunk(self, kept: Floats) -> MixedCovariance:
        """Return a copy whose blocks between columns are multiplied by these numbers, shape (d, d)."""
        whole = np.where(np.eye(len(self.sizes), dtype=bool), 1.0, kept)
        of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return replace(self, matrix=self.matrix * whole[of[:, None], of])


def covariance_from_mixed(
    release: NoisyMixedMoments,
    columns: Sequence[str],
    again: Sequence[NoisyPairMoments] = (),
    pairwise: frozenset[str] = frozenset(),
) -> MixedCovariance:
    """Centre a released matrix by its own noisy means and divide it by its own noisy number of rows.

    Levels that noise hides, and the rarest of many, are merged. `columns` is the order wanted; blocks of pairs that
    were measured `again` are averaged with those of the matrix by inverse variance. Of `pairwise` columns missing
    values are left out: a block has the means and the number of the rows in which both of its columns are known.
    """
    matrix, variance_of = _average(release, again)
    scale = 2.0**release.bits
    constant = np.floor(release.constant * scale) / scale
    n_rows = max(matrix[0, 0] / constant**2, 1.0)
    moments = matrix / n_rows
    means = matrix[0, 1:] / (constant * n_rows)
    deviation = release.deviation / n_rows
    starts = np.cumsum([1, *release.sizes, *release.features]).tolist()
    wanted = [release.columns.index(name) for name in columns if name in release.columns]
    # by coordinates of the matrix: those of each column, 0 where it is missing, and whether it is known
    lifts, knowns, shares, noises, groups = [], np.zeros((len(wanted), len(matrix))), [], [], []
    knowns[:, 0] = 1.0 / constant
    for place, column in enumerate(wanted):
        name, inside = release.columns[column], slice(starts[column], starts[column + 1])
        left_out = name in pairwise
        share, noise, group = None, None, None
        if column >= len(release.levels):
            width = inside.stop - inside.start
            lift = np.zeros((width - (left_out and name in release.marked), len(matrix)))
            lift[:, inside] = np.eye(len(lift), width)
            if len(lift) < width:
                knowns[place, inside.stop - 1] = -scale / np.trunc(INDICATOR * scale)
        else:
            size = release.sizes[column]
            # what all levels have in common is noise: a record's coordinates add up to 0
            contrasts = (np.eye(size) - 1.0 / size) / (release.steps[column] * size / scale)
            margin = contrasts @ means[inside.start - 1 : inside.stop - 1] + 1.0 / size
            variance = (deviation / constant) ** 2 * (contrasts**2).sum(axis=1)
            group = group_known(margin * n_rows, float(variance[0]) * n_rows**2, hide=True, pairwise=left_out)
            merged = merge_matrix(group)
            raised = merged @ np.maximum(margin, np.sqrt(variance))
            noise = (deviation / constant) ** 2 * ((merged @ contrasts) ** 2).sum(axis=1) / raised.sum() ** 2
            share = _floor_shares(raised, noise, n_rows)
            lift = np.zeros((len(merged) - 1, len(matrix)))
            lift[:, inside] = (merged @ contrasts)[:-1]
            lift[:, 0] = merged.sum(axis=1)[:-1] / (size * constant)
            if left_out:
                knowns[place, inside] = -contrasts[-1]
                knowns[place, 0] -= 1.0 / (size * constant)
        lifts.append(lift)
        shares.append(share)
        noises.append(noise)
        groups.append(group)
    sizes = tuple(len(lift) for lift in lifts)
    of = np.repeat(np.arange(len(sizes)), sizes)
    lifted = np.concatenate(lifts)
    both = knowns @ moments @ knowns.T
    both[np.diag_indices(len(both))] = knowns @ moments[0] / constant
    both = np.clip(both, min(deviation / constant + 1.0 / n_rows, 1.0), 1.0)
    there = (lifted @ moments @ knowns.T) / both[of]
    own = lifted @ moments[0] / constant / both[of, of]
    there[np.arange(len(of)), of] = own
    covariance = (lifted @ moments @ lifted.T) / both[of[:, None], of] - there[:, of] * there[:, of].T
    # an error of the matrix reaches a block by these, the first by the constant's row
    reach = lifted - own[:, None] * knowns[of]
    made = MixedCovariance(
        columns=tuple(release.columns[column] for column in wanted),
        sizes=sizes,
        lift=reach[:, 1:],
        matrix=covariance,
        means=-reach[:, 0],
        shares=tuple(shares),
        share_noise=tuple(noises),
        deviation=deviation / float(both.min()),
        noise=variance_of[np.ix_(wanted, wanted)] / (n_rows * both) ** 2,
        constant=float(constant),
        n_rows=float(n_rows),
        groups=tuple(groups),
        lost=(1.0 / both - 1.0) / n_rows if both.min() < 1.0 else None,
    )
    for block, share in zip(made.places, shares, strict=True):
        if share is not None:
            covariance[block, block] = _share_covariance(share)
    return made


def _average(release: NoisyMixedMoments, again: Sequence[NoisyPairMoments]) -> tuple[Floats, Floats]:
    """Return the matrix with pairs that were measured again, and the variance of the noise in each pair's block."""
    matrix = release.matrix
    names = release.columns
    ends = np.cumsum([1, *release.sizes, *release.features]).tolist()
    variance = np.full((len(names), len(names)), release.deviation**2)
    for more in again:
        for (x, y), block in zip(more.pairs, more.blocks, strict=True):
            i, j = names.index(x), names.index(y)
            rows, others = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            share = variance[i, j] / (variance[i, j] + more.deviation**2)
            matrix[rows, others] += share * (block - matrix[rows, others])
            matrix[others, rows] = matrix[rows, others].T
            variance[i, j] = variance[j, i] = variance[i, j] * (1.0 - share)
    return matrix, variance


def _floor_shares(shares: Floats, noise: Floats, n_rows: float) -> Floats:
    """Keep shares above their noise and a record, and let them add up to 1."""
    raised = np.maximum(shares, np.maximum(np.sqrt(noise), 1.0 / n_rows))
    return np.asarray(raised / raised.sum())


def _share_covariance(shares: Floats) -> Floats:
    """Return the covariance of the indicators of all levels but the last."""
    kept = shares[:-1]
    return np.asarray(np.diag(kept) - np.outer(kept, kept))


class MixedEvidence:
    """Independence tests on the covariance of blocks.

    - `covariance`: from released moments of levels and numbers.
    - `slack`: dependence that tests let pass, by the size of the set: none, one column, more.
    """

    def __init__(self, covariance: MixedCovariance, slack: tuple[float, float, float] = SLACK) -> None:
        self.covariance = covariance
        self.slack = slack
        d, m = len(covariance.sizes), max(*covariance.sizes, 1)
        self._sizes = np.array(covariance.sizes, dtype=np.intp)
        self._spread = np.zeros((d, m, m))
        self._means = np.zeros((d, m))
        self._whitener = np.zeros((d, m, m))
        # by these the noise of shares reaches a regression: probability and variance of each level, dropped one last
        self._levels = np.zeros((d, m + 1, m))
        self._level_shares = np.zeros((d, m + 1))
        self._level_noise = np.zeros((d, m + 1))
        flat = np.zeros((d * m, len(covariance.matrix)))
        for column, place in enumerate(covariance.places):
            size = covariance.sizes[column]
            shares, noise = covariance.shares[column], covariance.share_noise[column]
            own = covariance.matrix[place, place]
            white = _whiten(own, covariance.deviation if shares is None else 0.0)
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
        numeric = np.array([shares is None for shares in covariance.shares])
        self._noise = covariance.noise.copy()
        self._noise[np.arange(d), np.arange(d)] *= numeric

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""
        return self.covariance.columns

    def answers(self, questions: Questions) -> NDArray[np.bool_]:
        """One matrix answers every question."""
        return np.ones(len(questions), dtype=bool)

    def joint(self, questions: Questions) -> NDArray[np.bool_]:
        """Tell which questions are answered jointly: of several columns the blocks give main effects only."""
        return np.full(len(questions), questions.order < 2)

    def redraw(self, rng: np.random.Generator) -> MixedEvidence:
        """Return evidence with fresh noise and sampling around what was estimated."""
        return MixedEvidence(self.centre.redraw(rng), self.slack)

    @cached_property
    def centre(self) -> MixedCovariance:
        """The covariance without what noise alone adds to the square of each block on average."""
        d = len(self.columns)
        x, y = np.triu_indices(d, 1)
        found = self.test(Questions(x, y, np.empty((len(x), 0), dtype=np.intp)))
        kept = np.ones((d, d))
        kept[x, y] = kept[y, x] = keep_excess(found.statistic, found.freedom)
        return self.covariance.shrunk(kept)

    def null_p_values(self, questions: Questions, draws: int, rng: np.random.Generator) -> Floats:
        """Return p-values of marginal questions as if nothing depended on anything, shape (draws, questions)."""
        alone = self.covariance.shrunk(np.zeros((len(self.columns), len(self.columns))))
        drawn = (MixedEvidence(alone.redraw(rng), self.slack) for _ in range(draws))
        return np.stack([evidence.test(questions).p_value for evidence in drawn])

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
        slack = self.slack[min(questions.order, 2)]
        odds = np.zeros(len(questions))
        for rows, found in self._regress_all(questions):
            spread = self._spread_of(questions.select(rows), found)
            cells = spread.shape[1]
            # what tests let pass, in a direction that is not known
            spread = spread + slack**2 / cells * np.eye(cells)
            sampling = np.broadcast_to(np.eye(cells) / n_rows, spread.shape)
            odds[rows] = Wald(found.partial.reshape(len(rows), cells), spread, sampling).odds(n_rows)
        return odds

    def test(self, questions: Questions) -> Answers:
        """Test each question by the Wald statistic of its partial cross-covariance.

        With slack the hypothesis is that the dependence is at most that large: T is compared with a noncentral χ².
        """
        statistic, shift = np.zeros(len(questions)), np.zeros(len(questions))
        slack = self.slack[min(questions.order, 2)]
        for rows, found in self._regress_all(questions):
            inverse = np.linalg.inv(self._spread_of(questions.select(rows), found))
            u = found.partial.reshape(len(rows), -1)
            statistic[rows] = np.maximum(np.einsum("qi,qij,qj->q", u, inverse, u), 0.0)
            # the direction of what was left behind is not known: the average over directions
            shift[rows] = slack**2 * np.trace(inverse, axis1=1, axis2=2) / u.shape[1]
        freedom = (self._sizes[questions.x] * self._sizes[questions.y]).astype(np.float64)
        lively = np.maximum(freedom, 1.0)
        # Patnaik: a noncentral χ² is close to a multiple of a central one with the same mean and variance
        multiple = (lively + 2.0 * shift) / (lively + shift)
        p_value = special.chdtrc((lively + shift) / multiple, statistic / multiple)
        return Answers(statistic, freedom, np.where(freedom > 0, p_value, 1.0))

    def _regress_all(self, questions: Questions) -> Iterator[tuple[NDArray[np.intp], _Regressed]]:
        """Yield rows of the batch whose columns have the same sizes, and their regressions; none if one cannot vary."""
        a, b = self._sizes[questions.x], self._sizes[questions.y]
        shapes = a * (self._sizes.max() + 1) + b
        order = questions.order
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
        inverse = invert_blocks(ss.reshape(q, order * s, order * s), order)
        bx, by = xs @ inverse, ys @ inverse
        mean_s = self._means[given, :s].reshape(q, order * s, 1)
        return _Regressed(
            partial - bx @ ys.transpose(0, 2, 1),
            mean_x - (bx @ mean_s)[..., 0],
            mean_y - (by @ mean_s)[..., 0],
            _Set(bx, by, inverse, xs, ys, s),
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
            s = found.given.width
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
            sx = residual_covariance(found.given.bx, found.given.xs, back_x)
            sy = residual_covariance(found.given.by, found.given.ys, back_y)
            margins = self._lift_levels(bx, given, s), self._lift_levels(by, given, s)
        noise = xx.reshape(q, order + 2, -1).transpose(0, 2, 1) @ weights @ yy.reshape(q, order + 2, -1)
        c = noise.reshape(q, a, a, b, b).transpose(0, 1, 3, 2, 4) + (
            sx[:, :, None, :, None] * sy[:, None, :, None, :] / self.covariance.n_rows
        )
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
            c = c + fewer_rows(*ends, fewer, n)
        return np.asarray(c)

    def _lift_levels(self, slopes: Floats, given: NDArray[np.intp], s: int) -> Floats:
        """Return slopes, shape (q, k, a, s), by level of each column of the set, centred: (q, a, k (m + 1))."""
        levels = slopes @ self._whitener[given, :s, :s] @ self._levels[given, :, :s].transpose(0, 1, 3, 2)
        levels -= levels @ self._level_shares[given][..., None]
        q, k, a, wide = levels.shape
        return np.asarray(levels.transpose(0, 2, 1, 3).reshape(q, a, k * wide))


@dataclass(frozen=True, slots=True, eq=False)
class _Set:
    """The regression of both columns on the set: coefficients, K_SS⁻¹, K_xS, K_yS, and coordinates of each block."""

    bx: Floats
    by: Floats
    inverse: Floats
    xs: Floats
    ys: Floats
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class _Regressed:
    """Both columns after regression on the set, if there is one: u, and residual means."""

    partial: Floats
    mean_x: Floats
    mean_y: Floats
    given: _Set | None = None


def _whiten(own: Floats, deviation: float) -> Floats:
    """Return the inverse Cholesky root of a column's own covariance, kept above its noise."""
    if not len(own):
        return np.zeros((0, 0))
    if deviation:
        values, vectors = np.linalg.eigh((own + own.T) / 2)
        floor = max(SMALLEST_RESIDUAL * values.max(), np.sqrt(2.0) * deviation, 1e-9)
        own = (vectors * np.maximum(values, floor)) @ vectors.T
    whitener: Floats = np.linalg.inv(np.linalg.cholesky(own))
    return whitener
