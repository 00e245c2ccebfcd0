"""Covariance of blocks of coordinates, with what is needed to know its noise, from released second moments.

Column i has a block: indicators of its levels but one, or the features of a number. The covariance of a column with
levels with itself follows from its shares, so noise reaches it by the shares and not by its own block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dagveil.data.mixed import INDICATOR
from dagveil.evidence.covariance import group_known, merge_matrix
from dagveil.evidence.moments import centre_moments, draw_symmetric
from dagveil.evidence.wald import find_root
from dagveil.privacy.release import NoisyFeatureMoments, NoisyMixedMoments, NoisyPairMoments

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class MixedCovariance:
    """Covariance of blocks, with what is needed to know its noise."""

    columns: tuple[str, ...]
    sizes: tuple[int, ...]  # coordinates of each column, levels kept less one or features; these stand together
    lift: Floats  # how released coordinates make these, shape (coordinates, released ones)
    # noisy covariance, centred and divided by the number of rows; a column with levels has that of its shares with
    # itself
    matrix: Floats
    # noisy means, before levels are centred, divided by the constant: how the noise of the constant's row enters
    means: Floats
    shares: tuple[Floats | None, ...]  # shares of the levels that are kept, the dropped one last; None for numbers
    share_noise: tuple[Floats | None, ...]  # variance that noise gives each of these shares; None for numbers
    deviation: float  # deviation of the noise off the diagonal of the released matrix, divided by the number of rows
    noise: Floats  # variance of the noise in the block of two columns before centring, divided by n², shape (d, d)
    constant: float
    n_rows: float
    # the kept level of each declared level, −1 for missing values that are left out; None for numbers
    groups: tuple[NDArray[np.intp] | None, ...]
    # 1/n_ij − 1/n, n_ij being the rows in which both columns are known, shape (d, d); None if all are known
    lost: Floats | None = None

    @property
    def places(self) -> list[slice]:
        """Where the coordinates of each column stand."""
        return [slice(start, stop) for start, stop in pairwise(np.cumsum([0, *self.sizes]).tolist())]

    def redraw(self, rng: np.random.Generator) -> MixedCovariance:
        """Return a copy with fresh noise and fresh sampling around the estimate."""
        size = len(self.matrix)
        root = find_root(self.matrix)
        noise = draw_symmetric(rng, self.lift.shape[1] + 1)
        ahead = self.lift @ noise[0, 1:]
        across = np.outer(self.means, ahead)
        of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        centring = noise[0, 0] * np.outer(self.means, self.means) - across - across.T
        moved = self.matrix + root @ draw_symmetric(rng, size) @ root.T / np.sqrt(self.n_rows)
        moved += np.sqrt(self.noise)[of[:, None], of] * (self.lift @ noise[1:, 1:] @ self.lift.T)
        moved += self.deviation * centring
        if self.lost is not None:
            moved += np.sqrt(self.lost)[of[:, None], of] * self._whole(draw_symmetric(rng, size))
        drawn = root @ rng.standard_normal(size) / np.sqrt(self.n_rows) + self.deviation / self.constant * ahead
        shares = list(self.shares)
        for column, (place, old, variance) in enumerate(zip(self.places, shares, self.share_noise, strict=True)):
            if old is not None and variance is not None:
                step = drawn[place]
                shares[column] = new = _floor_shares(old + np.append(step, -step.sum()), variance, self.n_rows)
                moved[place, place] = _share_covariance(new)
        return replace(self, matrix=moved, shares=tuple(shares))

    def _whole(self, white: Floats) -> Floats:
        """Give whitened blocks the scale of their columns."""
        root = np.zeros_like(white)
        for place in self.places:
            root[place, place] = find_root(self.matrix[place, place])
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
        share = noise = group = None
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


def feature_covariance(
    columns: tuple[str, ...], degree: int, matrix: Floats, means: Floats, deviation: float, n_rows: float
) -> MixedCovariance:
    """Return the covariance of features, centred and divided by the number of rows, with what is known of its noise.

    - `means`: noisy means divided by the constant.
    - `deviation`: of the noise in an off-diagonal entry before centring, in the units of the matrix.
    """
    none, d = (None,) * len(columns), len(columns)
    noise, lift = np.full((d, d), deviation**2), np.eye(d * degree)
    return MixedCovariance(
        columns, (degree,) * d, lift, matrix, means, none, none, deviation, noise, 1.0, n_rows, groups=none
    )


def covariance_from_features(release: NoisyFeatureMoments) -> MixedCovariance:
    """Centre a released matrix by its own noisy means and divide it by its own noisy number of rows."""
    covariance, means, n_rows = centre_moments(release.matrix, release.constant)
    scaled = means / release.constant, release.deviation / n_rows, n_rows
    return feature_covariance(release.columns, release.degree, covariance, *scaled)
