"""What measured pairs imply about those that were not measured: the covariance of a graph of the measured ones."""

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.pairs import PairEvidence

Floats = NDArray[np.float64]

LARGEST = 0.98  # largest canonical correlation of a pair, and largest share of a column that others explain
RIDGE = 0.002  # least that is added to the variance of columns on which another is regressed


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
    order, implied = _order(strength, first), np.eye(d * m)
    joins = strength[np.ix_(order, order)] > 0
    # rows and columns in this order, so that those that came before are a slice
    for place, v in enumerate(order.tolist()):
        near = np.flatnonzero(joins[:place, place])
        if not len(near):
            continue
        joined = order[near]
        slopes = blocks[joined, v].reshape(len(near) * m, m)  # of one neighbour, which is white
        within = implied[: place * m, near[0] * m : (near[0] + 1) * m]
        if len(near) > 1:
            inside = (near[:, None] * m + np.arange(m)).reshape(-1)
            within = implied[: place * m, inside]
            between = within[inside]
            slopes = np.linalg.solve(between + np.diag(np.repeat(ridges[joined, v], m)), slopes)
            explained = float(np.linalg.eigvalsh(slopes.T @ between @ slopes)[-1])
            if explained > LARGEST:
                slopes *= np.sqrt(LARGEST / explained)
        found = within @ slopes
        implied[: place * m, place * m : (place + 1) * m] = found
        implied[place * m : (place + 1) * m, : place * m] = found.T
    back = np.argsort(order)
    return implied.reshape(d, m, d, m).transpose(0, 2, 1, 3)[back[:, None], back]


def _shrink(evidence: PairEvidence, measured: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return blocks of measured pairs without what noise adds to them, none of them too strong, and their squares."""
    c = evidence.covariance
    x, y = np.nonzero(measured)
    found = c.blocks[x, y]
    squares = np.einsum("qab,qab->q", found, found)
    kept = np.maximum(evidence.association()[x, y], 0.0) / np.maximum(squares, 1e-300)
    found = found * np.minimum(kept, 1.0)[:, None, None]
    # few are long enough as a whole to be too strong in one direction
    long = np.flatnonzero(np.einsum("qab,qab->q", found, found) > LARGEST**2)
    found[long] *= np.minimum(1.0, LARGEST / np.linalg.norm(found[long], ord=2, axis=(1, 2)))[:, None, None]
    blocks, strength = np.zeros_like(c.blocks), np.zeros(measured.shape)
    blocks[x, y], strength[x, y] = found, np.einsum("qab,qab->q", found, found)
    return blocks, strength


def _order(strength: Floats, first: int | None) -> NDArray[np.intp]:
    """Return the columns, each most strongly joined to those before; of equal ones that with the most dependence."""
    total = strength.sum(axis=1)
    ranked = np.argsort(-total, kind="stable")
    strength = strength[np.ix_(ranked, ranked)]
    joined = np.full(len(ranked), -1.0)
    left = np.ones(len(ranked), dtype=bool)
    v = 0 if first is None else int(np.flatnonzero(ranked == first)[0])
    order = []
    for _ in ranked:
        order.append(v)
        left[v] = False
        joined = np.where(left, np.maximum(joined, strength[v]), -np.inf)
        v = int(joined.argmax())
    return ranked[order]
