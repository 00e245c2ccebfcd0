"""The joint law of true values, recovered from reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import EvidenceError
from dagveil.local.record import Undo, join

Floats = NDArray[np.float64]

MOST_CELLS = 4096
"""Largest table whose covariance matrix is written out."""


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """Shares of true values, and the covariance of their estimates (cells in row-major order)."""

    shares: Floats
    covariance: Floats


def update_by_bayes(
    counts: Floats,
    matrices: Sequence[Floats],
    tolerance: float = 1e-9,
    most_rounds: int = 10_000,
    *,
    kept: float = 1.0,
) -> Floats:
    """Return the likeliest law of true values: iterative Bayesian update.

    Each round asks with which share each true value is behind the reports, given the law so far. It never lowers the
    likelihood, and shares never leave [0, 1].

    Parameters
    ----------
    counts
        Reports by the codes of the columns.
    matrices
        Channel of each column, in the shape (values, reports).
    tolerance
        The update ends when a round gains less than this per report in log-likelihood.
    most_rounds
        It also ends after so many.
    kept
        Probability that a report has to do with the record; otherwise it is any, all equally likely.

    Examples
    --------
    >>> matrix = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> update_by_bayes(np.array([60.0, 40.0]), [matrix]).round(3).tolist()
    [0.7, 0.3]
    """
    observed = counts / counts.sum()
    law = np.full(counts.shape, 1.0 / counts.size)
    likelihood = -np.inf
    for _ in range(most_rounds):
        expected = kept * apply_to_axes(law, matrices) + (1.0 - kept) / counts.size
        reached = float((observed * np.log(np.maximum(expected, 1e-300))).sum())
        if reached - likelihood < tolerance:
            break
        likelihood = reached
        excess = observed / np.maximum(expected, 1e-300)
        law = law * (kept * apply_to_axes(excess, [m.T for m in matrices]) + (1.0 - kept) * excess.mean())
        law /= law.sum()
    return law


def invert_reports(counts: Floats, undo: Undo, columns: Sequence[int]) -> Recovered:
    """Return unbiased estimates of the shares of true values, with their covariance; some may be negative.

    Parameters
    ----------
    counts
        Reports by the codes of the columns.
    undo
        Of the channel.
    columns
        Positions of the table's axes among the channel's columns.

    Examples
    --------
    >>> undo = Undo((np.linalg.inv(np.array([[0.75, 0.25], [0.25, 0.75]])),))
    >>> invert_reports(np.array([60.0, 40.0]), undo, [0]).shares.round(3).tolist()
    [0.7, 0.3]
    """
    if counts.size > MOST_CELLS:
        raise EvidenceError(f"a table of {counts.size} cells is too large to be inverted; the limit is {MOST_CELLS}")
    n = float(counts.sum())
    inverses = [undo.inverses[column] for column in columns]
    shares = (apply_to_axes(counts / n, inverses) - (1.0 - undo.kept) / counts.size) / undo.kept
    joint = join(inverses)
    reports = (counts / n).reshape(-1)
    mean = reports @ joint
    covariance = ((joint * reports[:, None]).T @ joint - np.outer(mean, mean)) / (n * undo.kept**2)
    return Recovered(shares, covariance)


def apply_to_axes(table: Floats, matrices: Sequence[Floats]) -> Floats:
    """Multiply each axis of a table by a matrix from the left: Σ_x table[x, …] matrix[x, y].

    Examples
    --------
    >>> apply_to_axes(np.eye(2), [np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    for axis, matrix in enumerate(matrices):
        table = np.moveaxis(np.tensordot(table, matrix, axes=(axis, 0)), -1, axis)
    return table
