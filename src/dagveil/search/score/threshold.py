"""From weights to a graph: which entries are edges, and what noise asks of the penalty and of the threshold.

The rule reads public facts and the noisy matrix itself, never rows and never a true graph; docs/methods/notears.md
derives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.errors import GraphError
from dagveil.evidence.moments import NoisyCovariance
from dagveil.search.score.notears import UNIT_QUANTILE, Weights, raise_eigenvalues

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LEVEL = 0.05  # chance of one false edge among all, for which Bonferroni's quantile is taken
THRESHOLD_SHARE = 0.5
"""Share of that quantile's error which an edge must exceed: the penalty has taken the rest from false edges already."""

SMALLEST_EFFECT = 0.05
"""Effects below this many spreads per spread are no edges, however little noise there is: optimisation leaves some."""

SMALLEST_PENALTY = 0.03
"""The penalty in units of an error's variance, however little noise there is: it keeps weak detours out."""

SMALLEST_EIGENVALUE = 1e-3  # floor for the eigenvalues of the scaled covariance when noise asks for less
RESIDUAL_SHARE = 0.5  # share of a scaled column's variance that is taken for its error where nothing is known yet


@dataclass(frozen=True, slots=True, eq=False)
class NoisyProblem:
    """What NOTEARS needs to know about noisy moments."""

    covariance: Floats  # in the chosen units, with its eigenvalues raised above the noise
    scales: Floats  # spread of each column in these units; a threshold is meant for weights in spreads per spread
    penalty: float  # for `NotearsSettings`
    threshold: float  # for `weights_to_dag`, with `scales`


def weights_to_dag(
    weights: Weights | Floats,
    threshold: float,
    scales: Floats | None = None,
    required: Iterable[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Return the edges (cause, effect), as positions, above the smallest threshold that leaves no cycle."""
    matrix = weights.matrix if isinstance(weights, Weights) else weights
    size = np.abs(matrix)
    if scales is not None:
        size = size * (scales[:, None] / scales[None, :])
    kept = np.zeros(size.shape, dtype=np.bool_)
    for cause, effect in required:
        kept[cause, effect] = True
    edges = kept | (size > acyclic_threshold(size, threshold, kept))
    return [(int(cause), int(effect)) for cause, effect in np.argwhere(edges)]


def acyclic_threshold(size: Floats, threshold: float, kept: Bools) -> float:
    """Return the smallest number, `threshold` or more, above which entries of `size` and those `kept` form a DAG."""
    if not is_acyclic(kept):
        raise GraphError(f"the {int(kept.sum())} required edges run in a circle; remove or turn one of them")
    steps = [threshold, *np.unique(size[size > threshold]).tolist()]
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        if is_acyclic(kept | (size > steps[middle])):
            high = middle
        else:
            low = middle + 1
    return float(steps[low])


def is_acyclic(adjacency: Bools) -> bool:
    """Return whether a directed graph has no cycle: nodes without parents can be taken away until none is left."""
    left = adjacency
    while len(left):
        inner = left.any(axis=0)
        if inner.all():
            return False
        left = left[np.ix_(inner, inner)]
    return True


def pose(noisy: NoisyCovariance, scales: Floats) -> NoisyProblem:
    """Return the problem that a noisy covariance poses when its columns get these spreads."""
    d = len(scales)
    noise, n_rows = noisy.deviation, noisy.n_rows
    scaled = raise_eigenvalues(noisy.matrix, max(noise * math.sqrt(d), SMALLEST_EIGENVALUE))
    covariance = scaled * np.outer(scales, scales)
    if d < 2:
        return NoisyProblem(covariance, scales, 0.0, SMALLEST_EFFECT)
    quantile = -float(special.ndtri(LEVEL / (2 * d * (d - 1))))
    # deviation of an entry of the loss's gradient at the true weights: sampling, and noise times |(1, w)|² of about 2
    variances = np.diag(covariance)
    error = float(np.quantile(variances, UNIT_QUANTILE))
    pairs = ~np.eye(d, dtype=np.bool_)
    gradient = np.sqrt(variances[:, None] * error / n_rows + 2.0 * (noise * np.outer(scales, scales)) ** 2)
    # deviation of a regression coefficient of scaled columns: the same, through the inverse covariance
    inverse = float(np.diag(np.linalg.inv(scaled)).mean())
    coefficient = math.sqrt(inverse * RESIDUAL_SHARE / n_rows + 2.0 * (noise * inverse) ** 2)
    return NoisyProblem(
        covariance=covariance,
        scales=scales,
        penalty=max(quantile * float(np.median(gradient[pairs])), SMALLEST_PENALTY * error),
        threshold=max(THRESHOLD_SHARE * quantile * coefficient, SMALLEST_EFFECT),
    )
