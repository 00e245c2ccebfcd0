"""The batched Wald statistic against a twin that takes one question at a time, with loops and np.kron."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dagveil.evidence.wald import (
    SMALLEST_EIGENVALUE,
    SMALLEST_RESIDUAL,
    Conditioning,
    Wald,
    invert_sets,
    marginal_wald,
    partial_covariance,
    regress,
    weigh,
)


@dataclass(frozen=True)
class Blocks:
    """What q questions need, each with a set of its own: k blocks of size s, x and y of sizes a and b."""

    xy: np.ndarray
    xs: np.ndarray
    ys: np.ndarray
    ss: np.ndarray
    x_spread: np.ndarray
    y_spread: np.ndarray
    x_table_spread: np.ndarray
    y_table_spread: np.ndarray
    s_spread: np.ndarray
    xy_noise: np.ndarray
    xs_noise: np.ndarray
    ys_noise: np.ndarray
    ss_noise: np.ndarray
    s_margin_noise: np.ndarray
    s_probabilities: np.ndarray
    s_whitener: np.ndarray
    n_rows: float
    x_shift: np.ndarray
    y_shift: np.ndarray
    s_shift: np.ndarray
    x_shared_noise: np.ndarray
    y_shared_noise: np.ndarray
    allowance: np.ndarray | None = None
    x_within: np.ndarray | None = None
    y_within: np.ndarray | None = None


SHARED = ("x_shift", "y_shift", "s_shift", "x_shared_noise", "y_shared_noise", "allowance")


def join(blocks: Blocks) -> Wald:
    """Prepare sets, regress x and y on them, and join them, as the evidence does."""
    q = len(blocks.xy)
    k, s = blocks.xs.shape[2:]
    if k == 0:
        noise = np.stack([slow_pair_noise(blocks, i, blocks.x_shift[i], blocks.y_shift[i]) for i in range(q)])
        return marginal_wald(blocks.xy, noise, blocks.n_rows)
    sets = Conditioning(
        invert_sets(blocks.ss),
        blocks.s_spread,
        blocks.ss_noise,
        blocks.s_margin_noise,
        blocks.s_probabilities,
        blocks.s_whitener,
        blocks.s_shift,
        blocks.allowance,
    )
    place = np.arange(q)
    x, y = (
        regress(sets, place, to_set.reshape(q, -1, k * s), table_spread, spread, shift, noise, within)
        for to_set, table_spread, spread, shift, noise, within in (
            (blocks.xs, blocks.x_table_spread, blocks.x_spread, blocks.x_shift, blocks.xs_noise, blocks.x_within),
            (blocks.ys, blocks.y_table_spread, blocks.y_spread, blocks.y_shift, blocks.ys_noise, blocks.y_within),
        )
    )
    strata = blocks.x_within is not None
    noises = blocks.xy_noise, blocks.xs_noise, blocks.ys_noise
    shared = blocks.x_shared_noise, blocks.y_shared_noise
    return partial_covariance(blocks.xy, x, y, weigh(sets, place, *noises, shared, blocks.n_rows, strata=strata))


def make_blocks(rng: np.random.Generator, q: int, a: int, b: int, k: int, s: int) -> Blocks:
    """Random blocks of plausible sizes; conditioning blocks are whitened, as the evidence makes them."""

    def spread(*shape: int) -> np.ndarray:
        root = rng.standard_normal((*shape, shape[-1] + 1))
        return root @ root.swapaxes(-1, -2)

    ss = np.zeros((q, k, s, k, s))
    for i in range(k):
        ss[:, i, :, i] = np.eye(s)
        for j in range(i):
            block = rng.uniform(-0.3, 0.3, (q, s, s))
            ss[:, i, :, j], ss[:, j, :, i] = block, block.swapaxes(1, 2)
    ss_noise = rng.uniform(0, 1e-3, (q, k, k))
    probabilities = rng.dirichlet(np.ones(s + 1), (q, k))
    return Blocks(
        xy=rng.uniform(-0.4, 0.4, (q, a, b)),
        xs=rng.uniform(-0.4, 0.4, (q, a, k, s)),
        ys=rng.uniform(-0.4, 0.4, (q, b, k, s)),
        ss=ss,
        x_spread=spread(q, a),
        y_spread=spread(q, b),
        x_table_spread=spread(q, a),
        y_table_spread=spread(q, b),
        s_spread=spread(q, k, s),
        xy_noise=rng.uniform(0, 1e-3, q),
        xs_noise=rng.uniform(0, 1e-3, (q, k)),
        ys_noise=rng.uniform(0, 1e-3, (q, k)),
        ss_noise=(ss_noise + ss_noise.swapaxes(1, 2)) / 2,
        s_margin_noise=rng.uniform(0, 1e-3, (q, k, s + 1)),
        s_probabilities=probabilities,
        s_whitener=rng.standard_normal((q, k, s, s)),
        n_rows=500.0,
        x_shift=rng.uniform(-1, 1, (q, a)),
        y_shift=rng.uniform(-1, 1, (q, b)),
        s_shift=rng.uniform(-1, 1, (q, k, s)),
        x_shared_noise=rng.uniform(0, 1e-2, q),
        y_shared_noise=rng.uniform(0, 1e-2, q),
        allowance=rng.uniform(0, 1e-3, q),
    )


def slow_residual(
    slopes: np.ndarray,
    to_s: np.ndarray,
    noise: np.ndarray,
    inverse: np.ndarray,
    s_spread: np.ndarray,
    spread: np.ndarray,
) -> np.ndarray:
    a, k, s = to_s.shape
    residual = np.eye(a) - slopes @ to_s.reshape(a, k * s).T
    for block in range(k):
        part = slice(block * s, (block + 1) * s)
        residual = residual + noise[block] * np.trace(inverse[part, part] @ s_spread[block]) * spread
    values, vectors = np.linalg.eigh((residual + residual.T) / 2)
    return vectors @ np.diag(np.clip(values, SMALLEST_RESIDUAL, 1.0)) @ vectors.T


def slow_pair_noise(blocks: Blocks, i: int, fx: np.ndarray, fy: np.ndarray) -> np.ndarray:
    """Noise of the interaction of x and y, and of their margins, to which u is as sensitive as f says."""
    ax, ay = blocks.x_spread[i], blocks.y_spread[i]
    sx, sy = blocks.x_shared_noise[i], blocks.y_shared_noise[i]
    own = blocks.xy_noise[i] * np.kron(ax, ay)
    return own + sx * np.kron(ax, np.outer(fy, fy)) + sy * np.kron(np.outer(fx, fx), ay) + sx * sy * np.kron(ax, ay)


def slow_twin(blocks: Blocks, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u, C and the sampling part of one question, term by term as docs/tests.md writes them."""
    a, b = blocks.xy.shape[1:]
    k, s = blocks.xs.shape[2:]
    if k == 0:
        sampling = np.eye(a * b) / blocks.n_rows
        c = slow_pair_noise(blocks, i, blocks.x_shift[i], blocks.y_shift[i])
        return blocks.xy[i].reshape(-1), sampling + c, sampling
    rx, ry = blocks.x_table_spread[i], blocks.y_table_spread[i]
    kss = blocks.ss[i].reshape(k * s, k * s)
    if k > 1:
        values, vectors = np.linalg.eigh(kss)
        inverse = vectors @ np.diag(1 / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
    else:
        inverse = np.linalg.inv(kss)
    kxs, kys = blocks.xs[i].reshape(a, k * s), blocks.ys[i].reshape(b, k * s)
    bx, by = kxs @ inverse, kys @ inverse
    u = blocks.xy[i] - bx @ kys.T
    sx = slow_residual(bx, blocks.xs[i], blocks.xs_noise[i], inverse, blocks.s_spread[i], rx)
    sy = slow_residual(by, blocks.ys[i], blocks.ys_noise[i], inverse, blocks.s_spread[i], ry)
    sampling = np.kron(sx, sy) / blocks.n_rows
    if blocks.x_within is not None and blocks.y_within is not None:
        strata = zip(blocks.s_probabilities[i, 0], blocks.x_within[i], blocks.y_within[i], strict=True)
        sampling = sum(p * np.kron(dx, dy) for p, dx, dy in strata) / blocks.n_rows
    # a margin moves u by the table (x, y), and the other way by the tables with S
    fx = blocks.x_shift[i] - bx @ blocks.s_shift[i].reshape(-1)
    fy = blocks.y_shift[i] - by @ blocks.s_shift[i].reshape(-1)
    c = sampling + slow_pair_noise(blocks, i, fx, fy)
    if blocks.allowance is not None:
        c = c + blocks.allowance[i] * np.eye(a * b)
    for one in range(k):
        left = slice(one * s, (one + 1) * s)
        ra = blocks.s_spread[i, one]
        c = c + blocks.ys_noise[i, one] * np.kron(bx[:, left] @ ra @ bx[:, left].T, ry)
        c = c + blocks.xs_noise[i, one] * np.kron(rx, by[:, left] @ ra @ by[:, left].T)
        for two in range(k):
            if two != one:
                right = slice(two * s, (two + 1) * s)
                rb = blocks.s_spread[i, two]
                noise = blocks.ss_noise[i, one, two]
                c = c + noise * np.kron(bx[:, left] @ ra @ bx[:, left].T, by[:, right] @ rb @ by[:, right].T)
        # the margin: coefficients per level, 0 for the dropped one, centred
        p = blocks.s_probabilities[i, one]
        level_x = np.hstack([bx[:, left] @ blocks.s_whitener[i, one], np.zeros((a, 1))])
        level_y = np.hstack([by[:, left] @ blocks.s_whitener[i, one], np.zeros((b, 1))])
        for w in range(s + 1):
            xw, yw = level_x[:, w] - level_x @ p, level_y[:, w] - level_y @ p
            moved = np.outer(xw, yw)
            if blocks.s_shift.any():  # tables with S have the margins of S
                moved = moved - np.outer(fx, yw) - np.outer(xw, fy)
            c = c + blocks.s_margin_noise[i, one, w] * np.outer(moved.reshape(-1), moved.reshape(-1))
    return u.reshape(-1), c, sampling


@pytest.mark.parametrize(
    ("a", "b", "k", "s"), [(1, 1, 0, 1), (2, 3, 0, 1), (1, 1, 1, 1), (2, 1, 1, 3), (3, 2, 2, 2), (1, 2, 3, 2)]
)
def test_batches_equal_the_slow_twin(a: int, b: int, k: int, s: int) -> None:
    rng = np.random.default_rng([a, b, k, s])
    blocks = make_blocks(rng, 5, a, b, k, s)
    check_twin(blocks)


@pytest.mark.parametrize(("a", "b", "s"), [(1, 1, 1), (2, 1, 3), (3, 2, 2)])
def test_strata_equal_the_slow_twin(a: int, b: int, s: int) -> None:
    rng = np.random.default_rng([a, b, s])
    blocks = make_blocks(rng, 5, a, b, 1, s)
    roots = [rng.standard_normal((5, s + 1, size, size)) for size in (a, b)]
    x_within, y_within = (root @ root.swapaxes(-1, -2) for root in roots)
    check_twin(replace(blocks, x_within=x_within, y_within=y_within))
    # tables with S that have noise in every cell, as three-way tables do
    check_twin(replace(blocks, x_within=x_within, y_within=y_within, s_shift=np.zeros_like(blocks.s_shift)))


def check_twin(blocks: Blocks) -> None:
    a, b = blocks.xy.shape[1:]
    wald = join(blocks)
    for i in range(5):
        u, c, sampling = slow_twin(blocks, i)
        np.testing.assert_allclose(wald.partial[i], u, atol=1e-12)
        np.testing.assert_allclose(wald.covariance[i], c, atol=1e-12)
        np.testing.assert_allclose(wald.sampling[i], sampling, atol=1e-12)
        assert wald.statistic()[i] == pytest.approx(u @ np.linalg.inv(c) @ u, rel=1e-8)
        assert wald.efficiency()[i] == pytest.approx(np.trace(np.linalg.inv(c) @ sampling) / (a * b), rel=1e-8)
    assert ((wald.efficiency() > 0) & (wald.efficiency() <= 1 + 1e-12)).all()


def test_noise_of_every_table_counts() -> None:
    """Leaving out any one source of noise changes C: no term is dead."""
    blocks = make_blocks(np.random.default_rng(8), 3, 2, 2, 2, 2)
    full = join(blocks).covariance
    for name in ("xy_noise", "xs_noise", "ys_noise", "ss_noise", "s_margin_noise", *SHARED):
        less = join(replace(blocks, **{name: np.zeros_like(getattr(blocks, name))})).covariance
        assert np.abs(full - less).max() > 1e-7, name
