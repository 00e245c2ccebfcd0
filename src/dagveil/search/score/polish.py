"""Repair of a DAG by single edges: add, remove or turn the one that raises a score most, until none does.

NOTEARS ends in a valley of a problem that is not convex. Where units do not tell directions, a turned edge of a
collider leaves behind a false edge between the causes, and no small change of weights leads out; turning one edge does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dagveil.search.score.linear_score import LinearScore, parents_of

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SMALLEST_GAIN = 1e-9
"""Smaller gains are rounding."""

MOST_PARENTS = 8
"""No more parents are added to a node."""


def polish(start: Bools, score: LinearScore, room: Bools, fixed: Bools) -> Bools:
    """Return the DAG at which climbing from `start` by single edges ends.

    Parameters
    ----------
    start
        Adjacency of a DAG; ``start[i, j]`` tells whether i is a parent of j.
    score
        What graphs are worth; it never falls.
    room
        Where edges may be added; an edge is turned only into this room.
    fixed
        Edges that stay as they are.

    Examples
    --------
    >>> from dagveil.evidence.moments import NoisyCovariance
    >>> noisy = NoisyCovariance(("a", "b"), np.array([[1.0, 0.5], [0.5, 1.0]]), 0.0, 1000.0, 0.0, np.zeros(2))
    >>> nothing = np.zeros((2, 2), dtype=bool)
    >>> polish(nothing, LinearScore(noisy, np.zeros((2, 2))), ~np.eye(2, dtype=bool), nothing).sum()
    np.int64(1)
    """
    d = len(start)
    graph = start.copy()
    toggled = np.zeros((d, d))
    changed = list(range(d))
    # every step raises the score, so this ends
    while True:
        considered = (room | room.T | graph) & ~fixed
        for node in changed:
            toggled[:, node] = _toggle(node, graph, considered[:, node], score)
        reach = reachable(graph)
        removals = np.where(graph & ~fixed, toggled, -np.inf)
        crowded = graph.sum(axis=0) >= MOST_PARENTS
        free = room & ~graph & ~graph.T & ~reach.T & ~crowded
        additions = np.where(free, toggled, -np.inf)
        detours = graph.astype(np.intp) @ reach.astype(np.intp) > 1
        turnable = graph & ~fixed & room.T & ~detours & ~crowded[:, None]
        turns = np.where(turnable, toggled + toggled.T, -np.inf)
        gains = np.stack([removals, additions, turns])
        kind, cause, effect = (int(i) for i in np.unravel_index(int(np.argmax(gains)), gains.shape))
        if not gains[kind, cause, effect] > SMALLEST_GAIN:
            return graph
        graph[cause, effect] = kind == 1
        changed = [effect]
        if kind == 2:
            graph[effect, cause] = True
            changed.append(cause)


def reachable(graph: Bools) -> Bools:
    """Return which nodes a path leads to, from each node, itself included.

    Examples
    --------
    >>> reachable(np.array([[False, True, False], [False, False, True], [False, False, False]]))[0].tolist()
    [True, True, True]
    """
    reach = graph | np.eye(len(graph), dtype=np.bool_)
    while True:
        further = (reach.astype(np.float64) @ reach.astype(np.float64)) > 0.0
        if (further == reach).all():
            return reach
        reach = further


def _toggle(node: int, graph: Bools, considered: Bools, score: LinearScore) -> Floats:
    """Return what the score gains when each column considered becomes a parent of the node, or stops to be one."""
    parents = parents_of(graph, node)
    before = score.local(node, parents)
    gains = np.full(len(graph), -np.inf)
    for other in np.flatnonzero(considered).tolist():
        gains[other] = score.local(node, parents ^ {other}) - before
    return gains
