"""A graphical model fitted to released numbers: conditional tables, or a linear model, along a given DAG.

A table of k columns is shrunk towards what its margins alone imply, by as much as noise explains the distance
(James and Stein's estimator, positive part), projected onto probabilities, and scaled to the margins again. So families
that share columns agree about them, and noise adds no dependence that it can explain.
"""

import math
from collections.abc import Sequence
from functools import cache, reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import MISSING_LABEL, Column, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import EvidenceError
from dagveil.evidence.moments import SMALLEST_VARIANCE, covariance_from_moments
from dagveil.evidence.tables import ReleasedTables
from dagveil.evidence.wald import find_root
from dagveil.examples.networks import LinearGaussian, Network
from dagveil.graphs.cpdag import Dag
from dagveil.privacy.release import NoisyMoments, Release

Floats = NDArray[np.float64]

_NUMBERS = 4_000_000  # that one simulation draws
_DRAWS = (2_000, 20_000)  # the fewest and the most rows of it
_UNSHRINK_ROUNDS = 40
_SETTLED = 1e-3  # of the variances
_MOST_GROWTH = 4.0  # where rows lie mostly outside of the ball, moments do not tell how far


def undo_shrinking(means: Floats, covariance: Floats, radius_squared: float) -> tuple[Floats, Floats]:
    """Return mean and covariance of normal rows that would have these moments after shrinking.

    All are in the units of the ball. Found by simulation with a fixed seed, as all of it is public. Variances grow at
    most fourfold.
    """
    size = len(means)
    draws = int(np.clip(_NUMBERS // max(size, 1), *_DRAWS)) // 2
    half = np.random.default_rng(0).standard_normal((draws, size))
    white = np.concatenate([half, -half])
    mean, spread = means.copy(), covariance.copy()
    for _ in range(_UNSHRINK_ROUNDS):
        rows = mean + white @ find_root(spread).T
        length = np.sqrt((rows**2).sum(axis=1))
        rows *= np.minimum(1.0, np.sqrt(radius_squared) / np.maximum(length, 1e-300))[:, None]
        shrunk = rows.mean(axis=0)
        change = covariance - ((rows - shrunk).T @ (rows - shrunk)) / len(rows)
        mean, spread = mean + means - shrunk, spread + change
        variances = np.diag(covariance)
        still = np.abs(np.diag(change) / variances).max() < _SETTLED
        still &= np.abs((means - shrunk) / np.sqrt(variances)).max() < _SETTLED
        if still or (np.diag(spread) / variances).max() > _MOST_GROWTH:
            break
    # variances that shrinking cannot have made smaller are simulation error
    own, grown = np.diag(covariance), np.diag(spread)
    factor = np.sqrt(np.clip(grown / own, 1.0, _MOST_GROWTH) * own / grown)
    return mean, spread * np.outer(factor, factor)


MOST_CELLS = 100_000
"""Cells of the table of a column and its parents: parents beyond this, the weakest first, are left out."""

MOST_LEVELS = 256  # levels of a column that is drawn from tables
_ROUNDS = 200  # of proportional fitting; it stops when nothing moves
_STILL = 1e-10
_FLOOR = 1e-6  # share of what margins imply that every table keeps, so that it can be scaled to them


def fit_network(schema: Schema, releases: Sequence[Release], dag: Dag) -> tuple[Network, tuple[str, ...]]:
    """Fit conditional tables along a DAG to released tables.

    Returns the network, and sentences about what it leaves out.

    - `dag`: over columns about which something was released.
    """
    wide = [name for name in dag.nodes if schema.columns[name].n_levels > MOST_LEVELS]
    if wide:
        raise EvidenceError(
            f"{wide[0]} has {schema.columns[wide[0]].n_levels} levels, and rows are drawn for at most {MOST_LEVELS}; "
            "declare fewer levels or bins"
        )
    beliefs = _Beliefs(ReleasedTables(releases))
    parents, tables, notes = {}, {}, []
    for node in dag.nodes:
        kept, dropped = _choose_parents(beliefs, schema, node, sorted(dag.parents(node), key=dag.nodes.index))
        if dropped:
            notes.append(f"{node} does not follow {', '.join(dropped)}: a table of all its parents has too many cells.")
        family = beliefs.find((*kept, node))
        weight = family.sum(axis=-1, keepdims=True)
        # parents in a combination that never occurs leave the column its own law
        law = np.where(weight > 0, family / np.where(weight > 0, weight, 1.0), beliefs.find((node,)))
        parents[node], tables[node] = kept, law / law.sum(axis=-1, keepdims=True)
    levels = {name: schema.columns[name].labels for name in dag.nodes}
    return Network(f"{schema.dataset}-synthetic", dag.nodes, levels, parents, tables), tuple(notes)


def fit_linear(release: NoisyMoments, dag: Dag) -> tuple[LinearGaussian, Floats]:
    """Fit a linear Gaussian model along a DAG to released second moments.

    Returns the model of scaled and centred columns, and the means of the scaled columns.
    """
    covariance = covariance_from_moments(release)
    place = [release.columns.index(name) for name in dag.nodes]
    means, spread = undo_shrinking(covariance.means * release.constant, covariance.matrix, release.radius_squared)
    matrix = spread[np.ix_(place, place)]
    weights, scales = np.zeros_like(matrix), np.zeros(len(place))
    for child, name in enumerate(dag.nodes):
        causes = [dag.nodes.index(parent) for parent in dag.parents(name)]
        block = matrix[np.ix_(causes, causes)]
        ridged = block + covariance.ridge * np.eye(len(causes))
        effects = np.linalg.solve(ridged, matrix[causes, child]) if causes else np.zeros(0)
        explained = float(effects @ block @ effects)
        weights[causes, child] = effects
        scales[child] = math.sqrt(max(matrix[child, child] - explained, SMALLEST_VARIANCE * matrix[child, child]))
    return LinearGaussian(dag.nodes, weights, scales), means[place]


def fill_values(column: Column, codes: NDArray[np.integer], rng: np.random.Generator) -> list[object]:
    """Turn codes into values as a file would have them: a level, a number drawn inside its bin, None for missing."""
    labels: list[object] = [None if label == MISSING_LABEL else label for label in column.labels]
    if not isinstance(column, Numeric):
        return [labels[code] for code in codes.tolist()]
    edges = np.array([column.bounds[0], *column.cuts, column.bounds[1]])
    missing = codes >= len(edges) - 1
    bins = np.minimum(codes, len(edges) - 2)
    drawn = edges[bins] + rng.random(len(codes)) * (edges[bins + 1] - edges[bins])
    return [None if gone else value for gone, value in zip(missing.tolist(), drawn.tolist(), strict=True)]


def nearest_levels(column: Column, numbers: Floats) -> NDArray[np.intp]:
    """Return for each number the level of a labelled column whose number is nearest."""
    if isinstance(column, Numeric):
        raise EvidenceError("a numeric column has no levels to choose from")
    levels = np.array(column.numbers[: len(column.levels)])
    return np.asarray(np.argmin(np.abs(numbers[:, None] - levels), axis=1))


class _Beliefs:
    """Consistent probabilities of sets of columns."""

    def __init__(self, released: ReleasedTables) -> None:
        self._released = released
        self._ask = cache(self._believe)

    def find(self, columns: tuple[str, ...]) -> Floats:
        """Return the probabilities of some columns, axes in this order."""
        ordered = tuple(sorted(columns))
        return self._ask(ordered).transpose([ordered.index(name) for name in columns])

    def dependence(self, x: str, y: str) -> float:
        """Return the mutual information of two columns."""
        joint = self.find((x, y))
        alone = np.outer(self.find((x,)), self.find((y,)))
        there = joint > 0
        return float((joint[there] * np.log(joint[there] / alone[there])).sum())

    def _believe(self, columns: tuple[str, ...]) -> Floats:
        table = self._released.find(columns)
        if len(columns) == 1:
            if table is None:
                raise EvidenceError(f"nothing was released about {columns[0]}; leave it out")
            return project_onto_simplex(table.counts / max(float(table.counts.sum()), 1.0))
        margins = [self.find(part) for part in self._parts(columns)]
        axes = [tuple(columns.index(name) for name in part) for part in self._parts(columns)]
        start = reduce(np.multiply.outer, [self.find((name,)) for name in columns])
        implied = scale_to_margins(start, margins, axes)
        if table is None:
            return implied
        total = max(float(table.counts.sum()), 1.0)
        distance = table.counts / total - implied
        noise = table.cell_variance * table.counts.size / total**2
        keep = max(0.0, 1.0 - noise / max(float((distance**2).sum()), 1e-300))
        mixed = project_onto_simplex(implied + keep * distance)
        return scale_to_margins((1.0 - _FLOOR) * mixed + _FLOOR * implied, margins, axes)

    def _parts(self, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the smaller sets that a set must agree with: pairs, and triples that were released."""
        if len(columns) == 2:
            return [(name,) for name in columns]
        parts: list[tuple[str, ...]] = list(combinations(columns, 2))
        if len(columns) > 3:
            parts += [part for part in combinations(columns, 3) if self._released.find(part) is not None]
        return parts


def _choose_parents(
    beliefs: _Beliefs, schema: Schema, node: str, parents: list[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Keep the parents that depend most on a column, as many as its table has room for."""
    cells, kept = schema.columns[node].n_levels, []
    for parent in sorted(parents, key=lambda name: -beliefs.dependence(name, node)):
        if cells * schema.columns[parent].n_levels <= MOST_CELLS:
            cells *= schema.columns[parent].n_levels
            kept.append(parent)
    return tuple(name for name in parents if name in kept), [name for name in parents if name not in kept]


def project_onto_simplex(values: Floats) -> Floats:
    """Return the probabilities nearest to these numbers.

    >>> project_onto_simplex(np.array([0.7, 0.5, -0.2])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    projected = project(values, 1.0)
    return np.asarray(projected / projected.sum())


def project(values: Floats, total: float) -> Floats:
    """Return the nearest numbers, none below 0, with this sum: noise neither makes negative rows nor adds any."""
    falling = np.sort(values.ravel())[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    return np.asarray(np.maximum(values - excess[np.flatnonzero(falling > excess)[-1]], 0.0))


def scale_to_margins(start: Floats, margins: Sequence[Floats], axes: Sequence[tuple[int, ...]]) -> Floats:
    """Scale a table to margins, one after the other and over again (iterative proportional fitting).

    - `axes`: of each margin, increasing.
    """
    table = start
    for _ in range(_ROUNDS):
        before = table
        for margin, kept in zip(margins, axes, strict=True):
            gone = tuple(axis for axis in range(table.ndim) if axis not in kept)
            now = table.sum(axis=gone)
            factor = np.divide(margin, now, out=np.zeros_like(margin), where=now > 0)
            table = table * np.expand_dims(factor, gone)
        if np.abs(table - before).max() < _STILL:
            break
    total = table.sum()
    return table / total if total > 0 else start
