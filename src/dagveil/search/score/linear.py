"""From a noisy covariance to a DAG: NOTEARS proposes, and where columns have no units a polish repairs.

All of it is post-processing of one released matrix: no row is read. docs/methods/notears.md tells what the constants
were chosen on.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.evidence.moments import SMALLEST_VARIANCE, NoisyCovariance
from dagveil.evidence.scores import moment_penalties
from dagveil.search.score.notears import NotearsSettings, find_weights, pose, raise_eigenvalues, weights_to_dag

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PENALTY_WEIGHT = 3.0
"""Weight of the noise-aware BIC penalty: rare levels spread a correlation wider than normal columns do."""

CRITICAL = float(special.chdtri(1.0, 0.01))  # a pair whose p-value is above 0.01 looks independent
SMALLEST_EIGENVALUE = 1e-6  # floor for the eigenvalues of the covariance when its ridge leaves less


class LinearScore:
    """The score of graphs: a sum over nodes with their parents.

    - `slack`: share of an explained dependence that may be left behind, for each pair of columns, shape (d, d)
    """

    def __init__(self, noisy: NoisyCovariance, slack: Floats) -> None:
        self._noisy, self._slack = noisy, slack
        ridged = noisy.matrix + noisy.ridge * np.eye(len(noisy.columns))
        self._matrix = raise_eigenvalues(ridged, SMALLEST_EIGENVALUE)
        deviations = np.sqrt(np.diag(self._matrix))
        self._correlation = np.abs(self._matrix) / np.outer(deviations, deviations)
        self._penalties = PENALTY_WEIGHT * moment_penalties(noisy)
        self._known: dict[tuple[int, frozenset[int]], float] = {}

    def local(self, node: int, parents: frozenset[int]) -> float:
        """Return what a node with these parents is worth, 0 without parents."""
        if (node, parents) not in self._known:
            self._known[node, parents] = self._weigh(node, parents) if parents else 0.0
        return self._known[node, parents]

    def total(self, adjacency: Bools) -> float:
        """Return the score of a graph; ``adjacency[i, j]`` tells whether i is a parent of j."""
        return sum(self.local(node, parents_of(adjacency, node)) for node in range(len(adjacency)))

    def connected_pairs(self) -> Bools:
        """Return the pairs that do not look independent and that no third column explains, up to the slack.

        Only they can be edges of a faithful graph. Of three columns that all depend on each other only the weakest pair
        is asked about: a proxy of a cause, such as its only effect, would else explain the cause's own edges.
        """
        matrix, size = self._matrix, self._correlation
        variances, sigma = np.diag(matrix), self._noisy.deviation
        widened = 1.0 / self._noisy.n_rows + sigma**2 / np.outer(variances, variances)
        connected = np.asarray(_stretch(size) / widened > CRITICAL)
        for third in range(len(matrix)):
            slope = matrix[:, third] / variances[third]
            explained = np.outer(slope, matrix[:, third])
            length = 1.0 + slope**2
            left = np.maximum(variances - slope * matrix[:, third], SMALLEST_VARIANCE * variances)
            left = np.maximum(left, math.sqrt(2.0) * sigma * length)
            both = np.outer(left, left)
            noise = sigma**2 * (np.outer(length, length) + np.outer(slope, slope) ** 2) / both
            seen = np.maximum(np.abs(matrix - explained) - self._slack * np.abs(explained), 0.0) / np.sqrt(both)
            statistic = _stretch(seen) / (1.0 / self._noisy.n_rows + noise)
            weakest = (size < size[:, third, None]) & (size < size[None, :, third])
            weakest[third] = weakest[:, third] = False
            connected &= ~(weakest & (statistic <= CRITICAL))
        return connected

    def _weigh(self, node: int, parents: frozenset[int]) -> float:
        """Add up the gains of parents by one Cholesky factor: its last row has what each one adds to the node."""
        order = sorted(parents, key=lambda parent: -self._correlation[parent, node])
        k = len(order)
        block = self._matrix[np.ix_([*order, node], [*order, node])]
        factor = np.linalg.cholesky(block)
        inverse = np.linalg.inv(factor)
        shares, roots = factor[k, :k], np.diag(factor)[:k]
        # residual directions of each parent, and of the node, given the parents before
        u = inverse[:k] * roots[:, None]
        v = np.zeros((k, k + 1))
        v[:, k] = 1.0
        v[1:] -= np.cumsum(shares[:-1, None] * inverse[: k - 1], axis=0)
        explained = np.abs(np.tril(factor[:k, :k], -1) * shares).sum(axis=1)
        left = block[k, k] - np.concatenate([[0.0], np.cumsum(shares**2)[:-1]])
        sigma = self._noisy.deviation
        uu, vv, uv = (u**2).sum(axis=1), (v**2).sum(axis=1), (u * v).sum(axis=1)
        su = np.maximum(roots**2, SMALLEST_VARIANCE * np.diag(block)[:k])
        sv = np.maximum(left, SMALLEST_VARIANCE * block[k, k])
        both = np.maximum(su, math.sqrt(2.0) * sigma * uu) * np.maximum(sv, math.sqrt(2.0) * sigma * vv)
        noise = sigma**2 * (uu * vv + uv**2) / both
        seen = np.maximum(np.abs(shares * roots) - self._slack[order, node] * explained, 0.0) / np.sqrt(both)
        statistic = _stretch(seen) / (1.0 / max(self._noisy.n_rows - k - 3.0, 1.0) + noise)
        return float((statistic - self._penalties[order, node]).sum()) / 2.0


def parents_of(adjacency: Bools, node: int) -> frozenset[int]:
    """Return the parents of a node."""
    return frozenset(np.flatnonzero(adjacency[:, node]).tolist())


def _stretch(correlation: Floats) -> Floats:
    """Return the square of Fisher's z."""
    return np.asarray(np.arctanh(np.minimum(correlation, 0.999999)) ** 2)


SMALLEST_GAIN = 1e-9  # smaller gains are rounding
MOST_PARENTS = 8  # no more parents are added to a node


def polish(start: Bools, score: LinearScore, room: Bools, fixed: Bools) -> Bools:
    """Return the DAG at which climbing from `start` by single edges ends.

    - `start`: adjacency of a DAG; ``start[i, j]`` tells whether i is a parent of j.
    - `score`: what graphs are worth; it never falls.
    - `room`: where edges may be added; an edge is turned only into this room.
    """
    graph, toggled = start.copy(), np.zeros(start.shape)
    changed = list(range(len(start)))
    # every step raises the score, so this ends
    while True:
        considered = (room | room.T | graph) & ~fixed
        for node in changed:
            toggled[:, node] = _toggle(node, graph, considered[:, node], score)
        reach = reachable(graph)
        removals = np.where(graph & ~fixed, toggled, -np.inf)
        crowded = graph.sum(axis=0) >= MOST_PARENTS
        additions = np.where(room & ~graph & ~graph.T & ~reach.T & ~crowded, toggled, -np.inf)
        detours = graph.astype(np.intp) @ reach.astype(np.intp) > 1
        turnable = graph & ~fixed & room.T & ~detours & ~crowded[:, None]
        turns = np.where(turnable, toggled + toggled.T, -np.inf)
        gains = np.stack([removals, additions, turns])
        kind, cause, effect = (int(i) for i in np.unravel_index(int(np.argmax(gains)), gains.shape))
        if not gains[kind, cause, effect] > SMALLEST_GAIN:
            return graph
        graph[cause, effect] = kind == 1
        graph[effect, cause] |= kind == 2
        changed = [effect, cause] if kind == 2 else [effect]


def reachable(graph: Bools) -> Bools:
    """Return which nodes a path leads to, from each node, itself included."""
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


SLACK = 0.35  # share of the dependence that a linear model explains which scores of levels may leave behind
MOST_POLISHED = 60  # wider tables keep what NOTEARS finds: a polish would take longer than the optimisation


def find_linear_dag(
    noisy: NoisyCovariance,
    scales: Floats,
    unitless: Bools,
    forbidden: Bools,
    required: Iterable[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Return the edges (cause, effect), as positions, of the linear model that fits a noisy covariance.

    - `noisy`: from a released moment matrix, in spreads.
    - `scales`: spread of each column in the units of the loss.
    - `unitless`: columns that are scores of levels. Edges between two columns with units are left as NOTEARS finds
      them: there the loss itself tells directions.
    - `forbidden`: where no edge may come; `forbidden_entries` makes it from knowledge.
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
