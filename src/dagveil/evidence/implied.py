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
    squares = np.einsum("ijab,ijab->ij", c.blocks, c.blocks)
    kept = np.where(measured, np.maximum(evidence.association(), 0.0) / np.maximum(squares, 1e-300), 0.0)
    blocks = c.blocks * np.minimum(kept, 1.0)[:, :, None, None]
    sizes = np.linalg.norm(blocks, ord=2, axis=(2, 3))
    blocks *= np.minimum(1.0, LARGEST / np.maximum(sizes, 1e-300))[:, :, None, None]
    strength = np.where(measured, np.einsum("ijab,ijab->ij", blocks, blocks), 0.0)
    traces = np.trace(c.spread, axis1=1, axis2=2)
    freedom = np.maximum(np.outer(c.size, c.size), 1)
    ridges = RIDGE + np.minimum(1.0, np.where(measured, c.noise, 0.0) * np.outer(traces, traces) / freedom)
    implied = np.zeros((d, m, d, m))
    place = np.arange(d)
    implied[place, :, place, :] = np.eye(m)
    for v, before in _order(strength, first):
        near = [z for z in before if strength[z, v] > 0]
        if not near:
            continue
        between = implied[np.ix_(near, range(m), near, range(m))].reshape(len(near) * m, -1)
        towards = blocks[near, v].reshape(len(near) * m, m)
        ridge = np.repeat(ridges[near, v], m) if len(near) > 1 else np.zeros(m)
        slopes = np.linalg.solve(between + np.diag(ridge), towards)
        explained = float(np.linalg.eigvalsh(slopes.T @ between @ slopes)[-1])
        if explained > LARGEST:
            slopes *= np.sqrt(LARGEST / explained)
        found = implied[np.ix_(before, range(m), near, range(m))].reshape(len(before) * m, -1) @ slopes
        found = found.reshape(len(before), m, m)
        implied[before, :, v, :] = found
        implied[v][:, before] = found.transpose(2, 0, 1)
    return implied.transpose(0, 2, 1, 3)


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
