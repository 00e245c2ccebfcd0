"""The Wald statistic of a partial covariance of one-hot vectors, with every source of noise in its covariance.

For a question (x, y, given S) let B_x = K_xS K_SS⁻¹ and u = K_xy − B_x K_Sy. Under independence u has mean about 0 and
covariance C = sampling + noise of the table (x, y) + noise of the tables (x, a), (y, a) and (a, b) for a, b in S +
noise of the margins of x, y and S; docs/tests.md derives each term. T = vec(u)ᵀ C⁻¹ vec(u) is compared with χ².

Most of that belongs to (x, S) or (y, S) alone, which many questions share: so sets are prepared first, columns are
regressed on them next, and a question joins two regressions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

SMALLEST_EIGENVALUE = 0.02  # floor for the whitened conditioning block when it joins several noisy tables
EXPECTED_EFFECT = 0.2  # size of a dependence, in units of a correlation, that a separation denies

EXPECTED_SHARE, SHARE_SPREAD = 0.5, 0.3
"""What one more conditioning column leaves of a dependence, if it leaves any: mean and deviation."""

LEAST_INFORMATION = 1.0  # below this nothing is known about a share

LEAST_REMAINDER = 7.0
"""Dependence below this many deviations of a correlation, as sampling alone gives them, is as good as none where other
columns are held fixed: bins, and columns that are not in the table, leave as much behind."""

SLACK = (0.02, 0.03, 0.05)
"""Dependence, in units of a correlation, that graphs do not count, without conditioning, given one column, and given
more: rows that were shrunk join independent columns a little, and k features do not take all of a column away."""

NO_SLACK = (0.0, 0.0, 0.0)  # for p-values that are to be published

LEFT_BEHIND = 0.02
"""What values that are not missing completely at random may leave of a dependence where they are left out, in units of
a correlation: blocks of u then speak of different rows."""

SMALLEST_RESIDUAL = 0.001
"""Floor for residual variances, as a share of the column's own: noise must not make a column look determined."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditioning:
    """A batch of g conditioning sets, each of k blocks that are padded to size s."""

    inverse: Floats  # K_SS⁻¹, shape (g, ks, ks)
    spread: Floats  # R of each block in the tables with x and y, shape (g, k, s, s)
    noise: Floats  # V of the tables of two blocks, shape (g, k, k)
    # `margin_noise`, `probabilities`: variance and probability of each level of the blocks, dropped level last: (g, k,
    # s + 1)
    margin_noise: Floats
    probabilities: Floats
    whitener: Floats  # whitening matrix of each block, shape (g, k, s, s)
    shift: Floats  # l of each block, by which noise of the other columns' margins shows in tables with it: (g, k, s)
    # variance of what rows outside of all strata may add to each entry of u, shape (g,); None if there are none
    allowance: Floats | None = None
    # n/n_a − 1, n_a being the rows in which a block is known, shape (g, k); None if no value is left out
    lost: Floats | None = None


class Regressions(NamedTuple):
    """A batch of r columns of size a, each regressed on a conditioning set of k blocks."""

    # `covariance`, `slopes`: K_xS and B_x, shape (r, a, ks); the block of x with itself is the identity (everything is
    # whitened)
    covariance: Floats
    slopes: Floats
    levels: Floats  # B per level of each block, the dropped level's being 0, centred: (r, a, k(s + 1))
    sampling: Floats  # covariance of x inside each level of a single block, or given S: flat, shape (r, strata, a²)
    # B R Bᵀ per block, which is how the noise of a table with this block reaches u; then R of x in tables with S, R of
    # x in the table (x, y), and f fᵀ: flat, shape (r, k + 3, a²)
    noise: Floats
    shift: Floats  # f = l_x − B l_S, by which noise of the other end's margin reaches u; shape (r, a)

    def select(self, rows: Places) -> Regressions:
        """Return the regressions at these rows of the batch."""
        return Regressions(*(part[rows] for part in self))


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """How much the parts of two regressions count in C, for a batch of q questions."""

    strata: Floats  # weight of each stratum of `Regressions.sampling`, shape (q, strata)
    noise: Floats  # weight of each product of `Regressions.noise` of x and of y, shape (q, k + 3, k + 3)
    margins: Floats  # variance of each level of the conditioning blocks, shape (q, k(s + 1))
    shared: bool  # whether tables with S have the margins of S, so that their noise reaches u by more than one way
    allowance: Floats  # added to the variance of each entry of u, shape (q,)
    # n/n_a − 1 of the blocks of S, of x and of y, divided by n, shape (q, k + 2); None if no value is left out
    lost: Floats | None
    n_rows: float  # number of rows

    def select(self, rows: Places) -> Weights:
        """Return the weights of these questions."""
        lost = None if self.lost is None else self.lost[rows]
        of_all = self.strata[rows], self.noise[rows], self.margins[rows], self.shared, self.allowance[rows]
        return Weights(*of_all, lost, self.n_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """What one more conditioning column leaves of dependences, for a batch of q questions.

    A dependence roughly keeps its direction while columns are held fixed that do not explain it. So u is compared with
    what it was before, as share times that; with many levels this sees far more than u's own length would show.
    """

    # `share`, `information`: estimate of the share, and its inverse variance; both 0 where nothing is known. Shape
    # (q,).
    share: Floats
    information: Floats
    whole: Floats  # size of the dependence before, in units of a correlation

    def odds(self, n_rows: float) -> Floats:
        """Return the log Bayes factor of some dependence left, against none: 0 where nothing is known.

        Without dependence the share is 0; with it, normal around EXPECTED_SHARE. What is known and lies below
        LEAST_REMAINDER has all odds against it.
        """
        room = 1.0 + SHARE_SPREAD**2 * self.information
        fit = self.share**2 - (self.share - EXPECTED_SHARE) ** 2 / room
        odds: Floats = 0.0 + (fit * self.information - np.log(room)) / 2
        weak = self.share * self.whole < LEAST_REMAINDER / np.sqrt(n_rows)
        return np.where(weak & (self.information > 0), -np.inf, odds)

    def redraw(self, rng: np.random.Generator) -> Remainder:
        """Return what fresh noise and sampling could have given."""
        deviation = 1.0 / np.sqrt(np.maximum(self.information, LEAST_INFORMATION))
        return replace(self, share=self.share + deviation * rng.standard_normal(len(self.share)))


@dataclass(frozen=True, slots=True, eq=False)
class Wald:
    """A batch of partial covariances with their covariance matrices."""

    partial: Floats  # vec(u), shape (q, ab)
    covariance: Floats  # C, shape (q, ab, ab)
    sampling: Floats  # the part of C that sampling alone would cause

    def statistic(self) -> Floats:
        """Return T for each question."""
        solved = np.linalg.solve(self.covariance, self.partial[..., None])[..., 0]
        return np.asarray(np.maximum(np.einsum("qi,qi->q", self.partial, solved), 0.0))

    def odds(self, n_rows: float) -> Floats:
        """Return the logarithm of the Bayes factor of a dependence, against none, for each question.

        Under dependence u is normal with EXPECTED_EFFECT² times the covariance that one row has. A test that could not
        have seen such a dependence has odds about 0, whatever u is.
        """
        prior = EXPECTED_EFFECT**2 * n_rows * self.sampling
        wider = self.covariance + prior
        solved = np.linalg.solve(wider, self.partial[..., None])[..., 0]
        fit = self.statistic() - np.maximum(np.einsum("qi,qi->q", self.partial, solved), 0.0)
        room = np.linalg.slogdet(wider)[1] - np.linalg.slogdet(self.covariance)[1]
        return np.asarray((fit - room) / 2)

    def power(self, n_rows: float) -> tuple[Floats, Floats]:
        """Return the share of T that speaks for a dependence on average over directions, and what T must exceed for it.

        Half of share times T less the second is about the log Bayes factor of `odds`, whatever T is.
        """
        prior = EXPECTED_EFFECT**2 * n_rows * self.sampling
        wider = self.covariance + prior
        share: Floats = np.trace(np.linalg.solve(wider, prior), axis1=1, axis2=2) / prior.shape[1]
        room: Floats = np.linalg.slogdet(wider)[1] - np.linalg.slogdet(self.covariance)[1]
        return share, room

    def compare(self, before: Floats, common: Floats) -> Remainder:
        """Return what is left in u of what was there before.

        - `before`: u without one of the conditioning columns, shape (q, ab).
        - `common`: covariances of the errors that u had before and still has, which are no likeness: (q, ab, ab).
        """
        solved = np.linalg.solve(self.covariance, before[..., None])[..., 0]
        alike = np.trace(np.linalg.solve(self.covariance, common), axis1=1, axis2=2)
        information = np.einsum("qi,qi->q", before, solved) - alike
        known = information > LEAST_INFORMATION
        found = np.einsum("qi,qi->q", self.partial, solved) - alike
        share = np.divide(found, information, out=np.zeros_like(found), where=known)
        return Remainder(share, np.where(known, information, 0.0), np.sqrt((before**2).sum(axis=1)))

    def efficiency(self) -> Floats:
        """Return the share of information that noise leaves, tr(C⁻¹ sampling) / degrees of freedom."""
        ratio = np.linalg.solve(self.covariance, self.sampling)
        return np.asarray(np.trace(ratio, axis1=1, axis2=2) / ratio.shape[1])


def invert_sets(sets: Floats) -> Floats:
    """Return K_SS⁻¹ of each set, given K_SS in shape (g, k, s, k, s), with a floor for its eigenvalues.

    One column alone is whitened.
    """
    g, k, s = sets.shape[:3]
    ss = sets.reshape(g, k * s, k * s)
    if k < 2:
        return ss
    values, vectors = np.linalg.eigh(ss)
    return np.asarray((vectors / np.maximum(values, SMALLEST_EIGENVALUE)[:, None, :]) @ vectors.transpose(0, 2, 1))


def regress(
    sets: Conditioning,
    place: Places,
    covariance: Floats,
    spread: Floats,
    pair_spread: Floats,
    shift: Floats,
    noise: Floats,
    within: Floats | None = None,
) -> Regressions:
    """Regress columns of one size on conditioning sets.

    - `covariance`: K_xS, shape (r, a, ks).
    - `spread`, `pair_spread`: R of x in tables with the blocks of S, and in tables with another column: (r, a, a).
    - `shift`: l of x, shape (r, a).
    - `noise`: V of the tables with the blocks of S, shape (r, k).
    - `within`: covariance of x inside each level of a single block, shape (r, s + 1, a, a); None for the pooled form,
      the covariance of x given S.
    """
    r, a = covariance.shape[:2]
    k, s = sets.spread.shape[1:3]
    set_spread = sets.spread[place]
    # one block is whitened: its inverse is itself
    slopes = covariance if k == 1 else covariance @ sets.inverse[place]
    by_block = slopes.reshape(r, a, k, s).transpose(0, 2, 1, 3)
    noises = np.empty((r, k + 3, a, a))
    noises[:, :k] = by_block @ set_spread @ by_block.transpose(0, 1, 3, 2)
    noises[:, k], noises[:, k + 1] = spread, pair_spread
    left = shift - (by_block @ sets.shift[place][..., None])[..., 0].sum(axis=1)
    noises[:, k + 2] = left[:, :, None] * left[:, None, :]
    levels = np.zeros((r, k, a, s + 1))
    levels[..., :s] = by_block @ sets.whitener[place]
    levels -= np.einsum("rkas,rks->rka", levels, sets.probabilities[place])[..., None]
    if within is None:
        # the noise that B_x K_Sx has on top is given back: tr([K_SS⁻¹]_aa R_a) per block
        traces = np.einsum("rkskt,rkts->rk", sets.inverse[place].reshape(r, k, s, k, s), set_spread)
        back = np.einsum("rk,rk->r", noise, traces)[:, None, None] * spread
        within = residual_covariance(slopes, covariance, back)[:, None]
    return Regressions(
        covariance,
        slopes,
        levels.transpose(0, 2, 1, 3).reshape(r, a, k * (s + 1)),
        within.reshape(r, -1, a * a),
        noises.reshape(r, k + 3, a * a),
        left,
    )


def weigh(
    sets: Conditioning,
    place: Places,
    pair_noise: Floats,
    x_noise: Floats,
    y_noise: Floats,
    shared_noise: tuple[Floats, Floats],
    n_rows: float,
    strata: bool,
    lost: tuple[Floats, Floats] | None = None,
) -> Weights:
    """Weigh the parts of questions.

    - `pair_noise`: V of the table (x, y), shape (q,).
    - `x_noise`, `y_noise`: V of the tables with the blocks of S, shape (q, k).
    - `shared_noise`: variances of the noise of the margins of x and of y, divided by n², shape (q,) each.
    - `lost`: n/n_x − 1 and n/n_y − 1 if values are left out, shape (q,) each.
    """
    q, k = x_noise.shape
    noise = np.zeros((q, k + 3, k + 3))
    # each table's noise reaches u through its two columns; a block's own table is its margin
    noise[:, :k, :k] = np.where(np.eye(k, dtype=bool), 0.0, sets.noise[place])
    own, others = shared_noise
    noise[:, :k, k], noise[:, k, :k], noise[:, k + 1, k + 1] = y_noise, x_noise, pair_noise + own * others
    noise[:, k + 1, k + 2], noise[:, k + 2, k + 1] = own, others
    weights = sets.probabilities[place, 0] if strata else np.ones((q, 1))
    allowance = np.zeros(q) if sets.allowance is None else sets.allowance[place]
    fewer = None if lost is None or sets.lost is None else np.column_stack([sets.lost[place], *lost]) / n_rows
    margins = sets.margin_noise[place].reshape(q, -1)
    return Weights(weights / n_rows, noise, margins, bool(sets.shift.any()), allowance, fewer, n_rows)


def partial_covariance(covariance: Floats, x: Regressions, y: Regressions, weights: Weights) -> Wald:
    """Compute u and C for a batch of questions.

    - `covariance`: K_xy, shape (q, a, b).
    - `x`, `y`: the columns of each question, regressed on the same set.
    """
    q, a, b = covariance.shape
    u = covariance - x.slopes @ y.covariance.transpose(0, 2, 1)
    sampling = _sum_products(x.sampling, weights.strata[:, :, None] * y.sampling, a, b)
    c = sampling + _sum_products(x.noise, weights.noise @ y.noise, a, b)
    # noise of the conditioning columns' own margins, which stand in K_SS, and in the tables that share them
    of_x, of_y = x.levels[:, :, None], y.levels[:, None]
    margins = of_x * of_y
    if weights.shared:
        margins = margins - x.shift[:, :, None, None] * of_y - of_x * y.shift[:, None, :, None]
    margins = margins.reshape(q, a * b, -1)
    c += (margins * weights.margins[:, None]) @ margins.transpose(0, 2, 1)
    np.einsum("qii->qi", c)[:] += weights.allowance[:, None]
    if weights.lost is not None:
        k, of = weights.lost.shape[1] - 2, weights.strata[:, :, None]
        first, second = (
            ((of * end.sampling).sum(axis=1).reshape(q, size, size), end.slopes.reshape(q, size, k, -1))
            for end, size in ((x, a), (y, b))
        )
        c += fewer_rows(first, second, weights.lost, weights.n_rows)
        apart = (weights.lost > 0).any(axis=1)
        c += (apart * LEFT_BEHIND**2 / (a * b))[:, None, None] * np.eye(a * b)
    return Wald(u.reshape(q, a * b), c, sampling)


def marginal_wald(covariance: Floats, noise: Floats, n_rows: float, lost: Floats | None = None) -> Wald:
    """Return u and C without a conditioning set.

    - `covariance`, `noise`: K_xy and what noise adds to the covariance of its entries, shapes (q, a, b) and (q, ab,
      ab).
    - `lost`: what it adds to the variance of sampling that values were left out, shape (q,).
    """
    q, a, b = covariance.shape
    sampling = np.broadcast_to(np.eye(a * b) / n_rows, (q, a * b, a * b))
    if lost is not None:
        noise = noise + lost[:, None, None] * np.eye(a * b)
    return Wald(covariance.reshape(q, a * b), sampling + noise, np.asarray(sampling))


def fewer_rows(x: tuple[Floats, Floats], y: tuple[Floats, Floats], lost: Floats, n_rows: float) -> Floats:
    """Return what it adds to C that each block has rows of its own, those in which both of its columns are known.

    Errors of K_xy, K_xS and K_Sy then cancel in u only as far as their rows are the same. Which values are missing is
    taken for independent between columns (docs/tests.md, 1.2).

    - `x`, `y`: what S leaves of each end, divided by n, shape (q, a, a), and slopes by block, shape (q, a, k, s).
    - `lost`: 1/n_a − 1/n of the blocks of S, of x and of y, shape (q, k + 2).
    - `n_rows`: n.
    """
    k = lost.shape[1] - 2

    def end(residual: Floats, slopes: Floats, other: Floats) -> Floats:
        share, own = n_rows * other[:, None, None], np.einsum("qiks,qjks,qk->qij", slopes, slopes, lost[:, :k])
        return np.asarray(share * residual + own * (1.0 + share))

    first, second = end(*x, lost[:, k + 1]), end(*y, lost[:, k])
    a, b = first.shape[1], second.shape[1]
    added = np.einsum("qij,kl->qikjl", first, np.eye(b)) + np.einsum("ij,qkl->qikjl", np.eye(a), second)
    both = n_rows * lost[:, k] * lost[:, k + 1]
    return np.asarray(added.reshape(-1, a * b, a * b) + both[:, None, None] * np.eye(a * b))


def _sum_products(left: Floats, right: Floats, a: int, b: int) -> Floats:
    """Return Σ_t L_t ⊗ R_t, given flat matrices in the shapes (q, terms, a²) and (q, terms, b²)."""
    mixed = (left.transpose(0, 2, 1) @ right).reshape(-1, a, a, b, b)
    return mixed.transpose(0, 1, 3, 2, 4).reshape(-1, a * b, a * b)


def residual_covariance(b: Floats, s: Floats, back: Floats) -> Floats:
    """Residual covariance of whitened blocks, its eigenvalues between the floor and 1."""
    residual = np.eye(b.shape[1]) - b @ s.transpose(0, 2, 1) + back
    values, vectors = np.linalg.eigh((residual + residual.transpose(0, 2, 1)) / 2)
    return np.asarray((vectors * np.clip(values, SMALLEST_RESIDUAL, 1.0)[:, None, :]) @ vectors.transpose(0, 2, 1))


def whiten_within(whitener: Floats, probabilities: Floats) -> Floats:
    """Return W (diag(p) − ppᵀ) Wᵀ for each stratum, shape (q, strata, a, a), given p in shape (q, a, strata)."""
    q, a, strata = probabilities.shape
    products = (whitener[:, :, None, :] * whitener[:, None, :, :]).reshape(q, a * a, a)
    squares = (products @ probabilities).transpose(0, 2, 1).reshape(q, strata, a, a)
    means = (whitener @ probabilities).transpose(0, 2, 1)
    return np.asarray(squares - means[..., :, None] * means[..., None, :])


def find_root(matrix: Floats) -> Floats:
    """Return a root of a symmetric matrix, by columns, as if its negative eigenvalues were 0."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def distinct_rows(given: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which distinct row each row is, and the distinct rows."""
    place = np.zeros(len(given), dtype=np.intp)
    first = place[:1]
    for column in given.T:
        # ranks stay below the number of rows, so that no number of columns overflows
        _, first, place = np.unique(
            place * (int(given.max(initial=0)) + 1) + column, return_index=True, return_inverse=True
        )
    return place, given[first]


def chi_square_tail(freedom: int, statistic: Floats) -> Floats:
    """Return what `scipy.special.chdtrc` does, by the finite sum that whole degrees of freedom have: far faster."""
    half = statistic / 2
    term = np.exp(-half) * (2 * np.sqrt(half / math.pi) if freedom % 2 else 1.0)
    tail: Floats = special.erfc(np.sqrt(half)) if freedom % 2 else np.zeros_like(half)
    # the terms are e^-h h^s / Γ(s + 1) for s from 0 or 1/2 to freedom/2 - 1
    for twice in range(2 + freedom % 2, freedom + 1, 2):
        tail += term
        term *= half * 2 / twice
    return tail
