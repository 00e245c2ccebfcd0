"""Tables of several columns without what noise and sampling alone add to their dependences.

Counts are written as n p⊗q⊗… (1 + Σ c f), with functions f of the levels that are orthonormal under the columns' own
margins. Every coefficient c belongs to one set of columns, and under independence the coefficients of a set have the
variance 1/n by sampling, however uneven the levels are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.pairs import keep_excess

Floats = NDArray[np.float64]


def level_functions(margin: Floats, deviation: float) -> Floats:
    """Return functions of a column's levels that are orthonormal under its margin, the constant first, one per row.

    Parameters
    ----------
    margin
        Counts of the levels.
    deviation
        Of the noise in them; rarer levels count as if they had so many rows.

    Examples
    --------
    >>> abs(level_functions(np.array([3.0, 1.0]), 0.0)).round(3).tolist()
    [[1.0, 1.0], [0.577, 1.732]]
    """
    floored = np.maximum(margin, max(deviation, 1.0))
    root = np.sqrt(floored / floored.sum())
    square = np.eye(len(root)) * root[:, None]
    square[:, 0] = root
    functions: Floats = np.linalg.qr(square)[0].T / root
    return functions


def expand(counts: Floats, functions: Sequence[Floats]) -> Floats:
    """Return n c for every product of functions of the levels, given counts."""
    for axis, rows in enumerate(functions):
        counts = np.moveaxis(np.tensordot(rows, counts, axes=(1, axis)), 0, axis)
    return counts


def restore(coefficients: Floats, functions: Sequence[Floats]) -> Floats:
    """Return the counts that have these coefficients."""
    return expand(coefficients, [np.asarray(np.linalg.inv(rows), dtype=np.float64) for rows in functions])


def keep_dependence(
    coefficients: Floats, functions: Sequence[Floats], variance: float, n_rows: float, pair_shares: Floats
) -> Floats:
    """Shrink coefficients so that fresh noise and sampling give the size of each set's dependence back on average.

    Parameters
    ----------
    coefficients, functions
        From `expand`.
    variance
        Of the noise in one cell.
    n_rows
        Number of rows.
    pair_shares
        What is kept of the dependence of each pair of columns, shape (columns, columns).
    """
    d, sets = coefficients.ndim, np.zeros(coefficients.shape, dtype=np.intp)
    noise = np.full(coefficients.shape, variance)
    for axis, rows in enumerate(functions):
        along = [-1 if other == axis else 1 for other in range(d)]
        sets |= ((np.arange(len(rows)) > 0).astype(np.intp) << axis).reshape(along)
        noise *= (rows**2).sum(axis=1).reshape(along)
    expected = np.bincount(sets.ravel(), (noise + n_rows).ravel(), 1 << d)
    freedom = np.bincount(sets.ravel(), minlength=1 << d).astype(np.float64)
    squares = np.bincount(sets.ravel(), coefficients.ravel() ** 2, 1 << d)
    shares = keep_excess(squares * freedom / np.maximum(expected, 1e-12), freedom)
    # margins stay, and pairs were judged by their own tests
    shares[[0, *(1 << axis for axis in range(d))]] = 1.0
    for first, second in combinations(range(d), 2):
        shares[1 << first | 1 << second] = pair_shares[first, second]
    kept: Floats = coefficients * shares[sets]
    return kept
