"""P(effect | do(cause)) from a noisy table of cause, effect and adjustment columns: Σ_z P(y | x, z) P(z).

Rare strata would blow up as ratios of noise. So P(y | x, z) is drawn towards P(y | x) as far as the rows of the stratum
fall below chance and noise, and what that may leave out is counted in the variance: strata are taken to differ by as
much as the table shows. docs/effects.md has the formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from dagveil.effects.components import Components
from dagveil.evidence.graphical_model import project

Floats = NDArray[np.float64]

HIDDEN = 3.0  # A level of the cause is hidden if its rows are fewer than this many deviations of their noise
FEW = 5.0  # rows of a stratum at a level of the cause below which it is thin, besides the same deviations of noise

LEAST_SPREAD, TYPICAL_SPREAD, MOST_SPREAD = 0.02, 0.1, 0.5
"""How far strata may differ, as a share of p(1 − p): at least, about, and at most: a Beta law of weight 1."""


UNKNOWN_SPREAD = 1.0 / 3.0
"""The same for strata with next to no rows at a level: that of a probability of which nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """P(effect | do(cause)), levels of the cause by levels of the effect, with the covariance of all its entries."""

    mean: Floats
    # `sampling`, `noise`, `left_out`: the parts of the variance of each contrast between levels of the cause; see
    # `contrast`. All have the shape (levels of the cause, its levels, levels of the effect).
    sampling: Floats
    noise: Floats
    left_out: Floats
    hidden: NDArray[np.bool_]  # levels of the cause that noise hides
    thin: Floats  # share of the rows whose stratum has next to no rows at a level of the cause

    def variance(self, level: int) -> Floats:
        """Return the variance of P(effect | do(level)) for every level of the effect."""
        return np.asarray((self.sampling + self.noise + self.left_out)[level, level])

    def contrast(self, level: int, other: int) -> tuple[Floats, Floats]:
        """Return how much larger P(effect | do(level)) is than P(effect | do(other)), and the variance of that."""
        variance = self.sampling + self.noise + self.left_out
        return self.mean[level] - self.mean[other], np.asarray(variance[level, other])


def estimate_law(parts: Components, cause: str, effect: str, adjust: Sequence[str]) -> Law:
    """Estimate the law of the effect under every level of the cause, adjusting for these columns."""
    names = (cause, effect, *adjust)
    table = parts.table(names)
    shape, (r, s) = table.shape, table.shape[:2]
    cells = table.reshape(r, s, -1)
    rows, by_level = max(float(cells.sum()), 1.0), cells.sum(axis=(1, 2))
    noise_of_level = np.sqrt([_noise(parts, names, shape, _only(shape, level)) for level in range(r)])
    hidden = by_level < np.maximum(HIDDEN * noise_of_level, 1.0)
    weights = project(cells.sum(axis=(0, 1)), rows) / rows
    base = np.stack([_shares(cells[level].sum(axis=1)) for level in range(r)])
    # the noise of one cell, about: all directions of the table together
    cell_noise = _noise(parts, names, shape, _only(shape, (0,) * len(shape)))
    m = np.stack([project(cells[level].sum(axis=0), max(float(by_level[level]), 1.0)) for level in range(r)])
    excess = cells - base[:, :, None] * cells.sum(axis=1)[:, None, :]
    spread = base * (1.0 - base)
    h = np.maximum(spread.sum(axis=1), 1e-9)[:, None]
    noise = np.full_like(m, cell_noise * s)
    t = _spread_of_strata(excess, m, h, noise, hidden)
    pull = m * t * h / np.maximum(m**2 * t * h + m * h + noise, 1e-12)
    inside = np.maximum(base[:, :, None] + pull[:, None, :] * excess, 0.0)
    inside = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1e-12)
    kept = pull * m
    mean = (inside * weights).sum(axis=2)
    few = m < np.maximum(HIDDEN * np.sqrt(noise), FEW)
    lacking = weights * (1.0 - kept)
    # where a level of the cause hardly occurs, strata differ from the others in one direction: they add up
    left = (np.where(few, 0.0, lacking) ** 2).sum(axis=1)[:, None] * t * spread
    left = left + (np.where(few, lacking, 0.0).sum(axis=1) ** 2)[:, None] * max(t, UNKNOWN_SPREAD) * spread
    thin = (weights * few).sum(axis=1)
    gradients = _gradients(inside, base, weights, pull, kept, by_level, rows, mean)
    positive = project(cells.reshape(-1), rows).reshape(cells.shape)
    sampling, noisy, lost = np.zeros((3, r, r, s))
    for a, b in combinations_with_replacement(range(r), 2):
        for at in range(s):
            g = gradients[a, at] if a == b else gradients[a, at] - gradients[b, at]
            sampling[a, b, at] = sampling[b, a, at] = float((positive * g**2).sum())
            noisy[a, b, at] = noisy[b, a, at] = _noise(parts, names, shape, g)
        lost[a, b] = lost[b, a] = left[a] if a == b else left[a] + left[b]
    return Law(mean, sampling, noisy, lost, hidden, thin)


def _gradients(
    inside: Floats,
    base: Floats,
    weights: Floats,
    pull: Floats,
    kept: Floats,
    by_level: Floats,
    rows: float,
    mean: Floats,
) -> Floats:
    """Return by how much every cell moves P(effect = at | do(level)), shape (level, at, levels, outcomes, strata)."""
    r, s, strata = inside.shape
    found = np.zeros((r, s, r, s, strata))
    for a in range(r):
        outer = (weights * (1.0 - kept[a])).sum() / max(float(by_level[a]), 1.0)
        for at in range(s):
            g = found[a, at]
            g[a, at] += weights * pull[a]
            g[a] -= (weights * pull[a] * inside[a, at])[None, :]
            g[a, at] += outer
            g[a] -= outer * base[a, at]
            g += (inside[a, at] - mean[a, at])[None, None, :] / rows
    return found


def _spread_of_strata(excess: Floats, m: Floats, h: Floats, noise: Floats, hidden: NDArray[np.bool_]) -> float:
    """Return how far strata differ in P(effect | cause), as a share of p(1 − p), by moments over all of them."""
    seen = ~hidden
    chance = m * h + noise
    # a stratum counts as much as it tells: a large one no more than another that is well measured
    weight = 1.0 / (m**2 * h + chance / TYPICAL_SPREAD)
    found = (weight * ((excess**2).sum(axis=1) - chance))[seen].sum()
    size = (weight * m**2 * h)[seen].sum()
    return float(np.clip(found / size if size > 0.0 else MOST_SPREAD, LEAST_SPREAD, MOST_SPREAD))


def _shares(counts: Floats) -> Floats:
    kept = np.maximum(counts, 0.0)
    total = float(kept.sum())
    return kept / total if total > 0.0 else np.full_like(kept, 1.0 / len(kept))


def _only(shape: tuple[int, ...], place: int | tuple[int, ...]) -> Floats:
    marked = np.zeros(shape)
    marked[place] = 1.0
    return marked


def _noise(parts: Components, names: tuple[str, ...], shape: tuple[int, ...], coefficients: Floats) -> float:
    return parts.noise_variance({names: coefficients.reshape(shape)})
