"""From a noisy covariance to a DAG: NOTEARS proposes, and where columns have no units a polish repairs.

All of it is post-processing of one released matrix: no row is read. docs/methods/notears.md tells what the constants
were chosen on.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.moments import NoisyCovariance
from dagveil.search.score.linear_score import LinearScore
from dagveil.search.score.notears import NotearsSettings, find_weights
from dagveil.search.score.polish import polish
from dagveil.search.score.threshold import pose, weights_to_dag

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SLACK = 0.35
"""Share of the dependence that a linear model explains which scores of levels may leave behind."""

MOST_POLISHED = 60
"""Wider tables keep what NOTEARS finds: a polish would take longer than the optimisation."""


def find_linear_dag(
    noisy: NoisyCovariance,
    scales: Floats,
    unitless: Bools,
    forbidden: Bools,
    required: Iterable[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Return the edges (cause, effect), as positions, of the linear model that fits a noisy covariance.

    Parameters
    ----------
    noisy
        From a released moment matrix, in spreads.
    scales
        Spread of each column in the units of the loss.
    unitless
        Columns that are scores of levels. Edges between two columns with units are left as NOTEARS finds them: there
        the loss itself tells directions.
    forbidden
        Where no edge may come; `forbidden_entries` makes it from knowledge.
    required
        Edges that stay.
    """
    required = list(required)
    problem = pose(noisy, scales)
    weights = find_weights(problem.covariance, NotearsSettings(penalty=problem.penalty), forbidden)
    edges = weights_to_dag(weights, problem.threshold, problem.scales, required)
    d = len(scales)
    if not unitless.any() or not 2 <= d <= MOST_POLISHED:
        return edges
    graph, fixed = np.zeros((d, d), dtype=np.bool_), np.zeros((d, d), dtype=np.bool_)
    for edge in edges:
        graph[edge] = True
    for edge in required:
        fixed[edge] = True
    open_pairs = unitless[:, None] | unitless[None, :]
    score = LinearScore(noisy, np.where(open_pairs, SLACK, 0.0))
    connected = score.connected_pairs()
    fixed |= graph & ~open_pairs
    room = open_pairs & connected & ~forbidden & ~np.eye(d, dtype=np.bool_)
    polished = polish(graph & (connected | fixed), score, room, fixed)
    return [(int(cause), int(effect)) for cause, effect in np.argwhere(polished)]
