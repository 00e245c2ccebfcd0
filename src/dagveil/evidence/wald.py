"""The Wald statistic of a partial covariance of one-hot vectors, with every source of noise in its covariance.

For a question (x, y, given S) let B_x = K_xS K_SS⁻¹ and u = K_xy − B_x K_Sy. Under independence u has mean about 0 and
covariance C = sampling + noise of the table (x, y) + noise of the tables (x, a), (y, a) and (a, b) for a, b in S +
noise of the margins of S; docs/tests.md derives each term. T = vec(u)ᵀ C⁻¹ vec(u) is compared with χ².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST_EIGENVALUE = 0.02
"""Floor for the whitened conditioning block when it joins several noisy tables."""

SMALLEST_RESIDUAL = 0.001
"""Floor for residual variances, as a share of the column's own: noise must not make a column look determined."""


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """What a batch of q questions needs: k conditioning blocks of size s, x and y of sizes a and b.

    Attributes
    ----------
    xy
        K_xy, shape (q, a, b); the blocks of x and of y with themselves are identities (everything is whitened).
    xs, ys
        K_xS and K_yS, shapes (q, a, k, s) and (q, b, k, s).
    ss
        K_SS, shape (q, k, s, k, s), identity in the padding.
    x_spread, y_spread
        R of x and of y in the table (x, y): (q, a, a), (q, b, b).
    x_table_spread, y_table_spread, s_spread
        R of x, of y and of each conditioning block in the tables with the conditioning blocks; the last (q, k, s, s).
    xy_noise, xs_noise, ys_noise, ss_noise
        V of each table: (q,), (q, k), (q, k), (q, k, k).
    s_margin_noise, s_probabilities
        Variance and probability of each level of the conditioning blocks, dropped level last: (q, k, s + 1).
    s_whitener
        Whitening matrix of each conditioning block, shape (q, k, s, s).
    n_rows
        Number of rows.
    sampling
        Covariance of vec(u) by sampling, shape (q, ab, ab); None for the pooled form S_x ⊗ S_y / n.
    """

    xy: Floats
    xs: Floats
    ys: Floats
    ss: Floats
    x_spread: Floats
    y_spread: Floats
    x_table_spread: Floats
    y_table_spread: Floats
    s_spread: Floats
    xy_noise: Floats
    xs_noise: Floats
    ys_noise: Floats
    ss_noise: Floats
    s_margin_noise: Floats
    s_probabilities: Floats
    s_whitener: Floats
    n_rows: float
    sampling: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Wald:
    """A batch of partial covariances with their covariance matrices.

    Attributes
    ----------
    partial
        vec(u), shape (q, ab).
    covariance
        C, shape (q, ab, ab).
    sampling
        The part of C that sampling alone would cause.
    """

    partial: Floats
    covariance: Floats
    sampling: Floats

    def statistic(self) -> Floats:
        """Return T for each question."""
        solved = np.linalg.solve(self.covariance, self.partial[..., None])[..., 0]
        value: Floats = np.einsum("qi,qi->q", self.partial, solved)
        return np.maximum(value, 0.0)

    def efficiency(self) -> Floats:
        """Return the share of information that noise leaves, tr(C⁻¹ sampling) / degrees of freedom."""
        ratio = np.linalg.solve(self.covariance, self.sampling)
        share: Floats = np.trace(ratio, axis1=1, axis2=2) / ratio.shape[1]
        return share


def partial_covariance(blocks: Blocks) -> Wald:
    """Compute u and C for a batch."""
    q, a, b = blocks.xy.shape
    k = blocks.xs.shape[2]
    if k == 0:
        identity = np.broadcast_to(np.eye(a * b) / blocks.n_rows, (q, a * b, a * b))
        noise = blocks.xy_noise[:, None, None] * _kron(blocks.x_spread, blocks.y_spread)
        return Wald(blocks.xy.reshape(q, a * b), identity + noise, np.asarray(identity))
    s = blocks.xs.shape[3]
    inverse = _inverse(blocks.ss)
    flat = inverse.reshape(q, k * s, k * s)
    bx = (blocks.xs.reshape(q, a, k * s) @ flat).reshape(q, a, k, s)
    by = (blocks.ys.reshape(q, b, k * s) @ flat).reshape(q, b, k, s)
    u = blocks.xy - bx.reshape(q, a, k * s) @ blocks.ys.reshape(q, b, k * s).transpose(0, 2, 1)
    # tr([K_SS⁻¹]_aa R_a), per conditioning block
    noise_trace = np.einsum("qkskt,qkts->qk", inverse, blocks.s_spread)
    sx = _residual(bx, blocks.xs, blocks.xs_noise, noise_trace, blocks.x_table_spread)
    sy = _residual(by, blocks.ys, blocks.ys_noise, noise_trace, blocks.y_table_spread)
    sampling = _kron(sx, sy) / blocks.n_rows if blocks.sampling is None else blocks.sampling
    # how the noise of a conditioning table reaches u: B R Bᵀ per block
    gx, gy = _reach(bx, blocks.s_spread), _reach(by, blocks.s_spread)
    c = sampling + blocks.xy_noise[:, None, None] * _kron(blocks.x_spread, blocks.y_spread)
    c = c + _kron(np.einsum("qk,qkab->qab", blocks.ys_noise, gx), blocks.y_table_spread)
    c = c + _kron(blocks.x_table_spread, np.einsum("qk,qkab->qab", blocks.xs_noise, gy))
    for i in range(k):
        for j in range(k):
            if i != j:
                c = c + blocks.ss_noise[:, i, j, None, None] * _kron(gx[:, i], gy[:, j])
        c = c + _margin_term(bx[:, :, i], by[:, :, i], blocks, i)
    return Wald(u.reshape(q, a * b), c, np.asarray(sampling))


def residual_strength(xy: Floats, xs: Floats, ys: Floats, ss: Floats) -> Floats:
    """Return ‖u‖² alone: cheap, and enough to rank conditioning sets.

    Parameters are those of `Blocks`.
    """
    q, a, k, s = xs.shape
    u = xy
    if k:
        bx = xs.reshape(q, a, k * s) @ _inverse(ss).reshape(q, k * s, k * s)
        u = xy - bx @ ys.reshape(q, -1, k * s).transpose(0, 2, 1)
    strength: Floats = np.einsum("qab,qab->q", u, u)
    return strength


def mix_strata(weights: Floats, x_within: Floats, y_within: Floats) -> Floats:
    """Return Σ_z w_z D_{x|z} ⊗ D_{y|z} for a batch: the sampling covariance without assuming equal strata.

    Parameters
    ----------
    weights
        Shape (q, strata).
    x_within, y_within
        Covariance of x and of y inside each stratum, shapes (q, strata, a, a) and (q, strata, b, b).
    """
    q, z, a, _ = x_within.shape
    b = y_within.shape[2]
    left = (x_within * weights[:, :, None, None]).reshape(q, z, a * a).transpose(0, 2, 1)
    mixed = (left @ y_within.reshape(q, z, b * b)).reshape(q, a, a, b, b)
    return mixed.transpose(0, 1, 3, 2, 4).reshape(q, a * b, a * b)


def _inverse(ss: Floats) -> Floats:
    q, k, s = ss.shape[:3]
    if k == 1:
        # one block is whitened: its inverse is itself
        return ss
    values, vectors = np.linalg.eigh(ss.reshape(q, k * s, k * s))
    values = np.maximum(values, SMALLEST_EIGENVALUE)
    inverse: Floats = (vectors / values[:, None, :]) @ vectors.transpose(0, 2, 1)
    return inverse.reshape(q, k, s, k, s)


def _reach(bx: Floats, spread: Floats) -> Floats:
    """Return B R Bᵀ per conditioning block, shape (q, k, a, a)."""
    by_block = bx.transpose(0, 2, 1, 3)
    reach: Floats = by_block @ spread @ by_block.transpose(0, 1, 3, 2)
    return reach


def _residual(bx: Floats, xs: Floats, noise: Floats, noise_trace: Floats, spread: Floats) -> Floats:
    """Residual covariance of x given S; the noise that B_x K_Sx has on top is given back."""
    q, a = bx.shape[:2]
    explained = bx.reshape(q, a, -1) @ xs.reshape(q, a, -1).transpose(0, 2, 1)
    back = np.einsum("qk,qk->q", noise, noise_trace)[:, None, None] * spread
    residual = np.eye(spread.shape[1]) - explained + back
    values, vectors = np.linalg.eigh((residual + residual.transpose(0, 2, 1)) / 2)
    clipped: Floats = (vectors * np.clip(values, SMALLEST_RESIDUAL, 1.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return clipped


def _margin_term(bx: Floats, by: Floats, blocks: Blocks, i: int) -> Floats:
    """Noise of a conditioning column's own margin, which stands in K_SS."""
    q, a, s = bx.shape
    b = by.shape[1]
    p = blocks.s_probabilities[:, i]
    # coefficients per level, the dropped level's being 0, centred by the level probabilities
    level_x, level_y = np.zeros((q, a, s + 1)), np.zeros((q, b, s + 1))
    level_x[:, :, :s] = bx @ blocks.s_whitener[:, i]
    level_y[:, :, :s] = by @ blocks.s_whitener[:, i]
    level_x -= level_x @ p[:, :, None]
    level_y -= level_y @ p[:, :, None]
    outer = (level_x[:, :, None, :] * level_y[:, None, :, :]).reshape(q, a * b, s + 1)
    term: Floats = (outer * blocks.s_margin_noise[:, i, None, :]) @ outer.transpose(0, 2, 1)
    return term


def _kron(left: Floats, right: Floats) -> Floats:
    q, a, b = left.shape[0], left.shape[1], right.shape[1]
    product: Floats = left[:, :, None, :, None] * right[:, None, :, None, :]
    return product.reshape(q, a * b, a * b)
