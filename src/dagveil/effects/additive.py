"""P(effect | do(cause)) from pairs alone, as if columns added up: a linear model of the effect's levels.

Each level of the effect is regressed on the levels of the cause and of every adjustment column. That needs tables of
pairs only, and is exact if no two of these columns act on the effect together. What interactions would change cannot be
known from pairs; half of what adjusting changed counts as a deviation, which is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.effects.components import Components
from dagveil.effects.tables import HIDDEN, Law

Floats = NDArray[np.float64]

DOUBT = 0.5
"""Share of what adjusting changed that counts as a deviation: what interactions would change is not known."""

SMALLEST = 1e-4
"""Floor for the eigenvalues of the covariance of indicators."""


def needed_pairs(cause: str, effect: str, adjust: Sequence[str]) -> list[tuple[str, str]]:
    """List the pairs whose tables the additive form needs."""
    return list(combinations((cause, effect, *adjust), 2))


def estimate_additive_law(parts: Components, cause: str, effect: str, adjust: Sequence[str]) -> Law:
    """Estimate the law of the effect under every level of the cause, from tables of pairs."""
    names = (cause, *adjust, effect)
    levels = [parts.levels[name] for name in names]
    starts = np.concatenate([[0], np.cumsum(levels)])
    margins = [np.maximum(parts.table((name,)), 1e-9) for name in names]
    rows = max(float(margins[0].sum()), 1.0)
    p = np.concatenate([margin / margin.sum() for margin in margins])
    covariance = np.diag(p)
    for i, j in combinations(range(len(names)), 2):
        pair = parts.table((names[i], names[j])) / rows
        covariance[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = pair
        covariance[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = pair.T
    for i in range(len(names)):
        within = slice(starts[i], starts[i + 1])
        covariance[within, within] = np.diag(p[within])
    covariance = covariance - np.outer(p, p)
    r, s, last = levels[0], levels[-1], int(starts[-2])
    inverse = _invert(covariance[:last, :last], p[:last])
    slopes = inverse @ covariance[:last, last:]
    residual = np.maximum(
        np.diag(covariance[last:, last:]) - np.einsum("ij,ij->j", covariance[:last, last:], slopes), 0.0
    )
    places = np.zeros((r, last))
    for level in range(r):
        places[level, :r] = -p[:r]
        places[level, level] += 1.0
    mean = np.clip(p[last:] + places[:, :r] @ slopes[:r], 0.0, 1.0)
    mean = mean / mean.sum(axis=1, keepdims=True)
    sampling, noise = np.zeros((r, r, s)), np.zeros((r, r, s))
    explained = slopes[r:].T @ covariance[r:last, r:last] @ slopes[r:] if last > r else np.zeros((s, s))
    for a in range(r):
        for b in range(a, r):
            place, own = (places[a], 1.0) if a == b else (places[a] - places[b], 0.0)
            u = inverse @ place
            size = float(u @ covariance[:last, :last] @ u) + own
            for at in range(s):
                sampling[a, b, at] = (size * residual[at] + own * max(float(explained[at, at]), 0.0)) / rows
                b_row = np.concatenate([-slopes[:, at], np.eye(s)[at]])
                noise[a, b, at] = parts.noise_variance(
                    _functional(
                        names, levels, np.concatenate([u, np.zeros(s)]), b_row, p, rows, own, slopes[:r, at], at
                    )
                )
                sampling[b, a, at], noise[b, a, at] = sampling[a, b, at], noise[a, b, at]
    least = np.array([HIDDEN * np.sqrt(parts.noise_variance({(cause,): np.eye(r)[level]})) for level in range(r)])
    hidden = parts.table((cause,)) < np.maximum(least, 1.0)
    crude = parts.table((cause, effect))
    crude = np.maximum(crude, 0.0) / np.maximum(np.maximum(crude, 0.0).sum(axis=1, keepdims=True), 1e-9)
    moved = DOUBT * (mean - crude)
    doubt = np.stack([[(moved[a] - (a != b) * moved[b]) ** 2 for b in range(r)] for a in range(r)])
    return Law(mean, sampling, noise, doubt, hidden, np.zeros(r))


def _functional(
    names: Sequence[str],
    levels: Sequence[int],
    u: Floats,
    v: Floats,
    p: Floats,
    rows: float,
    own: float,
    slope: Floats,
    at: int,
) -> dict[tuple[str, ...], Floats]:
    """Return what cells of pairs and margins do to u·C·v, and to the mean if `own` is 1."""
    starts = np.concatenate([[0], np.cumsum(levels)])
    parts = [slice(starts[i], starts[i + 1]) for i in range(len(names))]
    mean_u, mean_v = float(u @ p), float(v @ p)
    found: dict[tuple[str, ...], Floats] = {}
    for i, name in enumerate(names):
        # the table of a column with itself is its margin; means enter by the product of sums
        found[name,] = (u[parts[i]] * v[parts[i]] - mean_v * u[parts[i]] - mean_u * v[parts[i]]) / rows
    for i, j in combinations(range(len(names)), 2):
        found[names[i], names[j]] = (np.outer(u[parts[i]], v[parts[j]]) + np.outer(v[parts[i]], u[parts[j]])) / rows
    found[names[0],] = found[names[0],] - own * slope / rows
    end = np.zeros(levels[-1])
    end[at] = own / rows
    found[names[-1],] = found[names[-1],] + end
    return found


def _invert(matrix: Floats, p: Floats) -> Floats:
    """Invert the covariance of indicators in its range: each column's indicators add up to one."""
    scale = 1.0 / np.sqrt(p)
    values, vectors = np.linalg.eigh(matrix * scale[:, None] * scale)
    kept = values > SMALLEST
    inverse: Floats = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverse * scale[:, None] * scale
