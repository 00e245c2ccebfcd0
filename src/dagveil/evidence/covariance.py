"""The covariance of one-hot vectors, estimated from noisy pair tables, with the variance of its noise.

Nothing here is exact, not even the number of rows: every figure comes from released tables. For columns i and j with
level probabilities p_i, p_j and P_i = I − p_i 1ᵀ, the covariance block is K_ij = P_i N_ij P_jᵀ / n. The last level of
each column is dropped, and blocks are whitened so that K_ii = I: tests do not change, and strengths of different
columns compare. Let L_i be P_i, whitened, on declared levels.

Independent noise of variance s² in every cell of N_ij gives the block the covariance (s/n)² R_i ⊗ R_j with
R_i = L_i L_iᵀ. Where N_ij is put together from an interaction and two margins, the interaction's noise has the same
form with R_i = L_i (I − 11ᵀ/r_i) L_iᵀ, and the noise of margin i reaches all blocks of column i: as e_i l_jᵀ, where e_i
has the covariance (m_i/n)² R_i and l_j = L_j 1 / r_j is how far levels are from equally frequent. The number of rows,
which all margins share, moves every block along l_i l_jᵀ.

Where missing values are left out pair by pair, their level is in no L, each block has the margins and the number of
rows of its own table, and what fewer rows add to the variance of sampling is kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.tables import NoisyTable, group
from dagveil.evidence.wald import find_root

Floats = NDArray[np.float64]

NEXT_TO_NOTHING = 0.05  # share of a column's variance that another may leave open and still determine it
HIDDEN = 3.0  # noise hides a level whose count is below this many deviations of it
LEVELS_KEPT = 12  # levels of one column that a test keeps apart; rarer ones are merged, since each costs a row of noise


@dataclass(frozen=True, slots=True, eq=False)
class OneHotCovariance:
    """Whitened covariance blocks, padded to one size."""

    columns: tuple[str, ...]
    size: NDArray[np.intp]  # number of kept levels minus one, per column; blocks are padded beyond it
    blocks: Floats  # K, shape (d, d, m, m), whitened; K[i, i] is the identity
    # R, shape (d, m, m): how noise of a pair's table shows in the column's direction, whitened, zero in the padding
    spread: Floats
    table_spread: Floats  # the same for a table with noise in every cell, as three-way tables have it
    shift: Floats  # l, shape (d, m); zero where tables have noise in every cell, and margins none of their own
    # V, shape (d, d): variance of one cell's noise divided by n²; infinite where nothing is known of a pair
    noise: Floats
    measured: NDArray[np.bool_]  # pairs whose table was released, shape (d, d)
    shared_noise: Floats  # variance of margin noise that all blocks of a column share, divided by n², shape (d,)
    total_noise: float  # the same for the number of rows, which all blocks share
    # variance of each level's probability, shape (d, m + 1), zero in the padding; the dropped level is the last
    margin_noise: Floats
    probabilities: Floats  # shape (d, m + 1), dropped level last, zero in the padding
    # `whitener`, `root`: shape (d, m, m): the matrix that whitened each column, and its inverse, a root of the column's
    # own covariance
    whitener: Floats
    root: Floats
    # for each column the kept level of each declared level; −1 for missing values that are left out
    groups: tuple[NDArray[np.intp], ...]
    n_rows: float
    # 1/n_ij − 1/n, n_ij being the rows in which both columns are known, shape (d, d); None if all are known
    lost: Floats | None = None

    @property
    def known(self) -> NDArray[np.bool_]:
        """Pairs whose table was released or filled in."""
        return np.isfinite(self.noise)

    def filled(self, implied: Floats) -> OneHotCovariance:
        """Return a copy with these blocks for pairs that were not measured, as noisy as measured ones mostly are."""
        measured = self.measured & ~np.eye(len(self.columns), dtype=bool)
        noise = np.where(self.measured, self.noise, np.median(self.noise[measured]))
        blocks = np.where(self.measured[:, :, None, None], self.blocks, implied)
        return replace(self, blocks=blocks, noise=noise)

    def with_noise(self, rng: np.random.Generator) -> OneHotCovariance:
        """Return a copy with the published noise drawn again around it (free: post-processing).

        Noise of margins and of the number of rows moves all blocks of a column together.
        """
        d, m = len(self.columns), self.blocks.shape[2]
        scale = np.sqrt(np.where(self.measured, self.noise, 0.0))
        cells = rng.standard_normal((d, d, m, m)) * scale[:, :, None, None]
        roots = symmetric_root(self.spread)
        moved = self.blocks + np.einsum("iab,ijbc,jdc->ijad", roots, cells, roots, optimize=True)
        if self.shared_noise.any() or self.total_noise:
            margins = self.draw_margins(rng, 1)[0]
            total = np.sqrt(self.total_noise) * rng.standard_normal()
            one, other = margins[:, None, :, None], margins[None, :, None, :]
            left, right = self.shift[:, None, :, None], self.shift[None, :, None, :]
            moved = moved + one * right + left * other - one * other + total * left * right
        return self._with_upper(np.where(self.measured[:, :, None, None], moved, self.blocks))

    def redraw(self, rng: np.random.Generator) -> OneHotCovariance:
        """Return a copy with fresh noise and fresh sampling around the estimate."""
        return self.with_noise(rng).with_sampling(rng)

    def determined(self) -> NDArray[np.bool_]:
        """Tell which columns leave next to nothing open about which: [x, z] if z determines x, shape (d, d).

        A test of x given z has nothing left to test, and calls everything independent of x.
        """
        # levels count by their variance, so that a rare one cannot hide what the others show
        levels = np.concatenate([self.root, -self.root.sum(axis=1, keepdims=True)], axis=1)
        total = np.maximum(np.einsum("iab,iab->i", levels, levels), 1e-300)
        towards = np.einsum("iab,ijbc->ijac", levels, self.blocks)
        own = np.einsum("iab,ibc,idc->iad", levels, self.spread, levels)
        noise = np.where(self.measured, self.noise, 0.0)
        added = noise * np.outer(np.trace(own, axis1=1, axis2=2), np.trace(self.spread, axis1=1, axis2=2))
        left = 1.0 - (np.einsum("ijab,ijab->ij", towards, towards) - added) / total[:, None]
        doubled = np.outer(np.einsum("iab,iab->i", own, own), np.einsum("iab,iab->i", self.spread, self.spread))
        mixed = np.einsum("ijab,iac,ijcd,jdb->ij", towards, own, towards, self.spread, optimize=True)
        deviation = np.sqrt(2.0 * noise**2 * doubled + 4.0 * noise * mixed) / total[:, None]
        found = self.measured & (deviation < NEXT_TO_NOTHING) & (left + deviation < NEXT_TO_NOTHING)
        found &= (self.size > 0)[:, None] & ~np.eye(len(self.size), dtype=bool)
        return np.asarray(found)

    def draw_margins(self, rng: np.random.Generator, draws: int) -> Floats:
        """Draw the noise that all blocks of a column share, shape (draws, d, m)."""
        d, m = self.shift.shape
        drawn = rng.standard_normal((draws, d, m)) * np.sqrt(self.shared_noise)[:, None]
        return np.asarray(np.einsum("iab,tib->tia", symmetric_root(self.spread), drawn))

    def shrunk(self, shares: Floats) -> OneHotCovariance:
        """Return a copy whose blocks are multiplied by these shares, shape (d, d)."""
        return self._with_upper(self.blocks * shares[:, :, None, None])

    def noise_between(self, x: NDArray[np.intp], y: NDArray[np.intp], a: int, b: int, shared: bool = True) -> Floats:
        """Return the covariance that noise gives vec(K_xy), for columns of sizes a and b, shape (q, ab, ab).

        Without `shared`, noise that other pairs have as well is left out.
        """
        first, second = self.spread[x, :a, :a], self.spread[y, :b, :b]
        left, right = (shift[:, :, None] * shift[:, None, :] for shift in (self.shift[x, :a], self.shift[y, :b]))
        own, others = self.shared_noise[x], self.shared_noise[y]
        noise = np.where(np.isfinite(self.noise[x, y]), self.noise[x, y], 0.0)
        terms_x = np.stack([first, left, first, left], axis=1).reshape(len(x), 4, a * a)
        terms_y = np.stack([second, second, right, right], axis=1).reshape(len(x), 4, b * b)
        weights = np.stack([noise + own * others, others, own, np.full(len(x), self.total_noise)], axis=1)
        if not shared:
            weights[:, 1:] = 0.0
        mixed = (terms_x * weights[:, :, None]).transpose(0, 2, 1) @ terms_y
        return np.asarray(mixed.reshape(-1, a, a, b, b).transpose(0, 1, 3, 2, 4).reshape(-1, a * b, a * b))

    def with_sampling(self, rng: np.random.Generator) -> OneHotCovariance:
        """Return a copy that another sample of the same size could have given.

        All blocks are drawn together from a Wishart law, so that what one sample would move jointly moves jointly.
        """
        d, m = len(self.columns), self.blocks.shape[2]
        full = self.blocks.transpose(0, 2, 1, 3).reshape(d * m, d * m)
        root = find_root((full + full.T) / 2)
        gauss = rng.standard_normal((d * m, d * m))
        moved = full + root @ ((gauss + gauss.T) / np.sqrt(2.0 * self.n_rows)) @ root.T
        drawn = moved.reshape(d, m, d, m).transpose(0, 2, 1, 3)
        if self.lost is not None:
            drawn = drawn + np.sqrt(self.lost)[:, :, None, None] * rng.standard_normal((d, d, m, m))
        return self._with_upper(drawn)

    def _with_upper(self, blocks: Floats) -> OneHotCovariance:
        """Copy with these blocks above the diagonal, their transposes below, nothing in the padding."""
        d, m = len(self.columns), self.blocks.shape[2]
        real = np.arange(m)[None, :] < self.size[:, None]
        upper = np.triu(np.ones((d, d), dtype=bool), 1)[:, :, None, None]
        kept = np.where(upper & real[:, None, :, None] & real[None, :, None, :], blocks, 0.0)
        kept = kept + kept.transpose(1, 0, 3, 2)
        kept[np.arange(d), np.arange(d)] = np.eye(m)
        return replace(self, blocks=kept)


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """Noisy counts of pairs of columns."""

    # `left`, `right`: positions of the two columns, shape (pairs,)
    left: NDArray[np.intp]
    right: NDArray[np.intp]
    counts: Floats  # kept levels only, padded with nothing to one size of at least 2: shape (pairs, levels, levels)
    variance: Floats  # of the noise in one cell that was not merged, shape (pairs,)


def covariance_from_tables(
    columns: Sequence[str],
    tables: Mapping[tuple[str, str], NoisyTable],
    singles: Mapping[str, NoisyTable] | None = None,
    pairwise: frozenset[str] = frozenset(),
) -> OneHotCovariance:
    """Estimate the one-hot covariance from pair tables.

    - `tables`: noisy pair tables by pair of names, in either order; pairs may be absent.
    - `singles`: one-way tables, if margins were measured on their own: then all pair tables have these margins, and the
      noise of a pair is that of its interaction. Otherwise pair tables have noise in every cell, and their margins are
      averaged.
    - `pairwise`: columns whose last level, missing values, is left out of every table.
    """
    position = {name: i for i, name in enumerate(columns)}
    pairs = [(position[a], position[b], table) for (a, b), table in tables.items()]
    total_variance: float | None = None
    if singles is None:
        n_rows = mean_total([table for _, _, table in pairs])
        margins, margin_variance = _margins(len(columns), pairs)
    else:
        own = [singles[name] for name in columns]
        # one total is behind all of them
        n_rows = max(float(own[0].counts.sum()), 1.0)
        margins = [table.counts for table in own]
        margin_variance = np.array([table.variance for table in own])
        total_variance = own[0].variance * own[0].flatness[0] * own[0].counts.size
    groups = tuple(
        group_known(margin, variance, hide=True, pairwise=name in pairwise)
        for name, margin, variance in zip(columns, margins, margin_variance, strict=True)
    )
    kept = _count_kept(groups)
    stacked = np.zeros((len(pairs), *[max(*kept, 2)] * 2))
    for row, (i, j, table) in enumerate(pairs):
        counts = table.counts
        if counts.shape != (kept[i], kept[j]):
            counts = merge_matrix(groups[i]) @ counts @ merge_matrix(groups[j]).T
        stacked[row, : kept[i], : kept[j]] = counts
    left, right = (np.array([pair[end] for pair in pairs], dtype=np.intp) for end in (0, 1))
    between = PairCounts(left, right, stacked, np.array([table.variance for _, _, table in pairs]))
    return assemble_covariance(columns, margins, margin_variance, groups, between, n_rows, total_variance)


def assemble_covariance(
    columns: Sequence[str],
    margins: Sequence[Floats],
    margin_variance: Floats,
    groups: tuple[NDArray[np.intp], ...],
    pairs: PairCounts,
    n_rows: float,
    total_variance: float | None = None,
) -> OneHotCovariance:
    """Put the one-hot covariance together.

    - `margins`, `margin_variance`: counts of each column's declared levels, and the variance of one of them.
    - `groups`: the kept level of each declared level, by column.
    - `total_variance`: variance of the number of rows, if pairs are interactions put together with these margins; None
      if they have noise in every cell.
    """
    d, m = len(columns), pairs.counts.shape[2] - 1
    kept = _count_kept(groups)
    probabilities, margin_noise = np.zeros((2, d, m + 1))
    table_spread, centred_spread, whitener, root = np.zeros((4, d, m, m))
    shift, projections = np.zeros((d, m)), np.zeros((d, m, m + 1))
    known = np.empty(d)  # rows in which a column is known
    for (r, declared), alike in group(range(d), lambda i: (kept[i], len(groups[i]))).items():
        of = np.array(alike, dtype=np.intp)
        # the 0/1 matrices that add up the levels of each group
        adds = (np.stack([groups[i] for i in alike])[:, None, :] == np.arange(r)[:, None]).astype(np.float64)
        variance = margin_variance[of, None]
        floored = np.maximum(np.stack([margins[i] for i in alike]), np.maximum(np.sqrt(variance), 1.0))
        merged = (adds @ floored[:, :, None])[:, :, 0]
        p = merged / merged.sum(axis=1, keepdims=True)
        first = p[:, : r - 1]
        inner = first[:, :, None] * (np.eye(r - 1) - first[:, None, :])
        cholesky = np.linalg.cholesky(inner)
        white = np.linalg.inv(cholesky)
        projections[of, : r - 1, :r] = white @ (np.eye(r - 1, r) - first[:, :, None])
        lifted = projections[of, :, :r] @ adds
        together = lifted.sum(axis=2)
        table_spread[of] = lifted @ lifted.transpose(0, 2, 1)
        # an interaction has no noise where all levels move together
        centred_spread[of] = table_spread[of] - together[:, :, None] * together[:, None, :] / declared
        shift[of] = together / declared
        whitener[of, : r - 1, : r - 1] = white
        root[of, : r - 1, : r - 1] = cholesky
        known[of] = np.where(adds.sum(axis=(1, 2)) < declared, merged.sum(axis=1), n_rows)
        per_level = adds.sum(axis=2) * variance / known[of, None] ** 2
        for padded, level in ((probabilities, p), (margin_noise, per_level)):
            padded[of, : r - 1] = level[:, : r - 1]
            padded[of, m] = level[:, r - 1]

    left, right = pairs.left, pairs.right
    counts, rows = pairs.counts, np.full(len(left), n_rows)
    partly = np.flatnonzero((known < n_rows)[left] | (known < n_rows)[right])
    if len(partly):
        rows[partly] = np.clip(counts[partly].sum(axis=(1, 2)), np.sqrt(pairs.variance[partly]) + 1.0, n_rows)
        counts = counts.copy()
        # of the rows in which both are known, less what their own margins make of them
        own = counts[partly].sum(axis=2, keepdims=True) * counts[partly].sum(axis=1, keepdims=True)
        counts[partly] -= own / rows[partly, None, None]
    between = projections[left] @ counts @ projections[right].transpose(0, 2, 1) / rows[:, None, None]
    blocks = np.zeros((d, d, m, m))
    blocks[left, right] = between
    blocks[right, left] = between.transpose(0, 2, 1)
    blocks[np.arange(d), np.arange(d)] = np.eye(m)
    noise = np.full((d, d), np.inf)
    noise[left, right] = noise[right, left] = pairs.variance / rows**2
    noise[np.arange(d), np.arange(d)] = 0.0
    shares = total_variance is not None
    lost, fewest = None, np.full(d, n_rows)
    if len(partly):
        both = np.outer(known, known) / n_rows
        both[left, right] = both[right, left] = rows
        both[np.arange(d), np.arange(d)] = known
        lost, fewest = 1.0 / both - 1.0 / n_rows, both.min(axis=1)
    return OneHotCovariance(
        columns=tuple(columns),
        size=np.array([r - 1 for r in kept], dtype=np.intp),
        blocks=blocks,
        spread=centred_spread if shares else table_spread,
        table_spread=table_spread,
        shift=shift if shares else np.zeros((d, m)),
        noise=noise,
        measured=np.isfinite(noise),
        shared_noise=margin_variance / fewest**2 if shares else np.zeros(d),
        total_noise=(total_variance or 0.0) / fewest.min() ** 2,
        margin_noise=margin_noise,
        probabilities=probabilities,
        whitener=whitener,
        root=root,
        groups=groups,
        n_rows=n_rows,
        lost=lost,
    )


def mean_total(tables: list[NoisyTable]) -> float:
    """Return the inverse-variance mean of the tables' totals, at least 1."""
    weights = np.array([1.0 / (table.variance * table.counts.size) for table in tables])
    totals = np.array([table.counts.sum() for table in tables])
    return max(float(weights @ totals / weights.sum()), 1.0)


def _margins(d: int, pairs: list[tuple[int, int, NoisyTable]]) -> tuple[list[Floats], Floats]:
    """Inverse-variance mean of each column's margin over its tables, and the variance of one level."""
    levels = [0] * d
    for i, j, table in pairs:
        levels[i], levels[j] = table.counts.shape
    sums, weights = np.zeros((d, max(levels))), np.zeros(d)
    for (rows, columns), alike in group(pairs, lambda pair: pair[2].counts.shape).items():
        counts = np.stack([table.counts for _, _, table in alike])
        weight = 1.0 / np.array([table.variance for _, _, table in alike])
        for end, axis, kept, gone in ((0, 2, rows, columns), (1, 1, columns, rows)):
            place = np.array([pair[end] for pair in alike], dtype=np.intp)
            np.add.at(sums[:, :kept], place, counts.sum(axis=axis) * (weight / gone)[:, None])
            np.add.at(weights, place, weight / gone)
    return [sums[k, : levels[k]] / weights[k] for k in range(d)], 1.0 / weights


def _count_kept(groups: Sequence[NDArray[np.intp]]) -> list[int]:
    """Return the number of kept levels of each column."""
    ends = np.cumsum([len(of) for of in groups])
    return [int(last) + 1 for last in np.maximum.reduceat(np.concatenate(groups), np.append(0, ends[:-1]))]


def group_levels(margin: Floats, variance: float, hide: bool = False) -> NDArray[np.intp]:
    """Merge the rarest levels until at most LEVELS_KEPT are left, and of those that are merged what noise hides.

    With `hide`, levels that noise hides are merged in any case: an empty one is a direction of nothing but noise.
    """
    levels = len(margin)
    seen = max(2, int(np.count_nonzero(margin > HIDDEN * np.sqrt(variance))))
    most = levels if levels <= LEVELS_KEPT else LEVELS_KEPT - 1
    if most == levels and (not hide or seen >= levels):
        return np.arange(levels, dtype=np.intp)
    keep = np.argsort(-margin, kind="stable")[: min(most, seen) if hide or most < levels else levels]
    lost = margin.sum() - margin[keep].sum() <= HIDDEN * np.sqrt((levels - len(keep)) * variance)
    groups = np.full(levels, len(keep), dtype=np.intp)
    groups[np.sort(keep)] = np.arange(len(keep))
    # what all of them together do not show goes to the rarest level that is seen
    return np.where(groups == len(keep), groups[keep[-1]], groups) if hide and lost else groups


def group_known(margin: Floats, variance: float, *, hide: bool = False, pairwise: bool = False) -> NDArray[np.intp]:
    """Return `group_levels`, of all levels but the last if missing values are left out: these get −1."""
    if not pairwise:
        return group_levels(margin, variance, hide)
    return np.append(group_levels(margin[:-1], variance, hide), -1)


def merge_matrix(groups: NDArray[np.intp]) -> Floats:
    """Return the 0/1 matrix that adds up the levels of each group, those of no group left out."""
    return np.asarray(np.arange(int(groups.max()) + 1)[:, None] == groups, dtype=np.float64)


def symmetric_root(matrices: Floats) -> Floats:
    """Return the symmetric square root of each positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(matrices)
    return np.asarray(np.einsum("iab,ib,icb->iac", vectors, np.sqrt(np.maximum(values, 0.0)), vectors))
