"""What measured pairs imply about those that were not measured: the covariance of a graph of the measured ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.pairs import PairEvidence

Floats = NDArray[np.float64]

LARGEST = 0.98
"""Largest canonical correlation of a pair, and largest share of a column that others explain."""

RIDGE = 0.002
"""Least that is added to the variance of columns on which another is regressed."""


def implied_blocks(evidence: PairEvidence, first: int | None = None) -> Floats:
    """Return whitened blocks of all pairs, shape (d, d, m, m), of a model in which measured pairs alone are joined.

    Columns come one after the other, each most strongly joined to those before; each is regressed on its measured
    neighbours before it and depends on the others through these. So the result is positive semi-definite.

    - `first`: the column that comes first; without one, that with the most dependence.
    """
    c = evidence.covariance
    d, m = len(c.columns), c.blocks.shape[2]
    measured = c.measured & ~np.eye(d, dtype=bool)
    blocks, strength = _shrink(evidence, measured)
    traces = np.trace(c.spread, axis1=1, axis2=2)
    freedom = np.maximum(np.outer(c.size, c.size), 1)
    ridges = RIDGE + np.minimum(1.0, np.where(measured, c.noise, 0.0) * np.outer(traces, traces) / freedom)
    # columns of one table side by side, so that several of them are one slice of rows
    implied = np.zeros((d, m, d * m))
    inside = np.arange(m)
    for place in range(d):
        implied[place, inside, place * m + inside] = 1.0
    for v, before in _order(strength, first):
        near = [z for z in before if strength[z, v] > 0]
        if not near:
            continue
        towards = blocks[near, v].reshape(len(near) * m, m)
        within = (np.array(near)[:, None] * m + inside).reshape(-1)
        slopes = towards  # of one neighbour, which is white
        if len(near) > 1:
            between = implied[near][:, :, within].reshape(len(near) * m, -1)
            slopes = np.linalg.solve(between + np.diag(np.repeat(ridges[near, v], m)), towards)
            explained = float(np.linalg.eigvalsh(slopes.T @ between @ slopes)[-1])
            if explained > LARGEST:
                slopes *= np.sqrt(LARGEST / explained)
        found = (implied[before][:, :, within].reshape(len(before) * m, -1) @ slopes).reshape(len(before), m, m)
        implied[before, :, v * m : (v + 1) * m] = found
        implied[v].reshape(m, d, m)[:, before] = found.transpose(2, 0, 1)
    return implied.reshape(d, m, d, m).transpose(0, 2, 1, 3)


def _shrink(evidence: PairEvidence, measured: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return blocks of measured pairs without what noise adds to them, none of them too strong, and their squares."""
    c = evidence.covariance
    x, y = np.nonzero(measured)
    found = c.blocks[x, y]
    squares = np.einsum("qab,qab->q", found, found)
    kept = np.maximum(evidence.association()[x, y], 0.0) / np.maximum(squares, 1e-300)
    found = found * np.minimum(kept, 1.0)[:, None, None]
    sizes = np.linalg.norm(found, ord=2, axis=(1, 2))
    found *= np.minimum(1.0, LARGEST / np.maximum(sizes, 1e-300))[:, None, None]
    blocks, strength = np.zeros_like(c.blocks), np.zeros(measured.shape)
    blocks[x, y], strength[x, y] = found, np.einsum("qab,qab->q", found, found)
    return blocks, strength


def _order(strength: Floats, first: int | None) -> list[tuple[int, list[int]]]:
    """Return the columns, each most strongly joined to those before, and what came before each."""
    total = strength.sum(axis=1)
    joined = np.full(len(strength), -1.0)
    before: list[int] = []
    order: list[tuple[int, list[int]]] = []
    left = set(range(len(strength)))
    v = int(total.argmax()) if first is None else first
    while left:
        order.append((v, list(before)))
        before.append(v)
        left.discard(v)
        joined = np.maximum(joined, strength[v])
        if left:
            v = max(left, key=lambda z: (joined[z], total[z]))
    return order
