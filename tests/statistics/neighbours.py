"""A search for the neighbours that move a statistic of tables the furthest.

Neighbours are described by what they share: a core of rows. Adding a row to the core is one pair of neighbours under
add/remove; two different rows added to the same core are a pair under replace-one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product

import numpy as np

from dagveil.privacy.budget import Relation

Measure = Callable[[np.ndarray], np.ndarray]
Shape = tuple[int, int, int]  # strata, levels of x, levels of y

TINY: list[tuple[Shape, int]] = [
    ((1, 2, 2), 8),
    ((2, 2, 2), 6),
    ((1, 2, 3), 7),
    ((1, 3, 3), 5),
    ((2, 2, 3), 4),
    ((3, 2, 2), 4),
]
"""Shapes whose tables are all searched, with the largest number of rows."""


def all_tables(shape: Shape, n_rows: int) -> np.ndarray:
    """Return every table of this shape with so many rows."""
    cells = int(np.prod(shape))
    bars = np.array(list(combinations(range(n_rows + cells - 1), cells - 1)), dtype=np.int64)
    ends = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), n_rows + cells - 1)])
    return (np.diff(ends, axis=1) - 1).reshape(-1, *shape)


def changes(measure: Measure, cores: np.ndarray, relation: Relation) -> np.ndarray:
    """Return for each core the largest change between two neighbours that share it."""
    shape = cores.shape[1:]
    cells = int(np.prod(shape))
    more = cores[:, None] + np.eye(cells, dtype=np.int64).reshape(1, cells, *shape)
    values = measure(more.reshape(-1, *shape)).reshape(len(cores), cells)
    if relation is Relation.REPLACE_ONE:
        return np.asarray(values.max(axis=1) - values.min(axis=1))
    return np.asarray(np.abs(values - measure(cores)[:, None]).max(axis=1))


def largest_change_of_all(measure: Measure, shape: Shape, most_rows: int, relation: Relation) -> float:
    """Return the largest change over every pair of neighbours of at most so many rows."""
    return max(float(changes(measure, all_tables(shape, n), relation).max()) for n in range(most_rows))


def structured_cores(shape: Shape, n_rows: int) -> np.ndarray:
    """Return tables of about so many rows that are extreme: concentrated, constant, singletons, missing levels."""
    strata, x_levels, y_levels = shape
    found = []
    patterns = list(_patterns(x_levels, y_levels))
    for one, other in product(patterns, repeat=2):
        for share in (0.0, 0.01, 0.5, 0.9, 1.0) if strata > 1 else (1.0,):
            table = np.zeros(shape, dtype=np.int64)
            table[0] = np.rint(share * n_rows * one)
            table[-1] += 0 if strata == 1 else np.rint((1 - share) * n_rows * other).astype(np.int64)
            found.append(table)
    single = np.zeros(shape, dtype=np.int64)  # one row in each stratum, and a stratum of every small pattern
    single[:, 0, 0] = 1
    found.append(single)
    for pattern in patterns:
        table = single.copy()
        table[0] = np.rint(3 * pattern)
        found.append(table)
    return np.unique(np.stack(found), axis=0)


def _patterns(x_levels: int, y_levels: int) -> Iterator[np.ndarray]:
    """Yield tables that sum to about 1: cells, diagonals with and without the last levels, one row or column."""
    for x_used, y_used in product({x_levels, max(x_levels - 1, 1)}, {y_levels, max(y_levels - 1, 1)}):
        size = min(x_used, y_used)
        diagonal = np.zeros((x_levels, y_levels))
        diagonal[np.arange(size), np.arange(size)] = 1 / size
        yield diagonal
        falling = np.zeros((x_levels, y_levels))
        falling[np.arange(size), size - 1 - np.arange(size)] = 1 / size
        yield falling
        yield falling[::-1]
    flat = np.zeros((x_levels, y_levels))
    for a in range(x_levels):
        row = flat.copy()
        row[a] = 1 / y_levels
        yield row
    for b in range(y_levels):
        column = flat.copy()
        column[:, b] = 1 / x_levels
        yield column
    for a, b in product({0, x_levels - 1}, {0, y_levels // 2, y_levels - 1}):
        cell = flat.copy()
        cell[a, b] = 1
        yield cell


def climb(measure: Measure, core: np.ndarray, relation: Relation, most_steps: int = 12) -> tuple[float, np.ndarray]:
    """Move rows of the core between cells as long as that makes the largest change larger."""
    best = float(changes(measure, core[None], relation)[0])
    cells = core.size
    for _ in range(most_steps):
        flat = core.reshape(-1)
        moves = []
        for source, target in product(np.flatnonzero(flat), range(cells)):
            for amount in {1, int(flat[source]) // 10, int(flat[source]) // 2, int(flat[source])} - {0}:
                move = flat.copy()
                move[source] -= amount
                move[target] += amount
                moves.append(move)
        if not moves:
            return best, core
        tables = np.stack(moves).reshape(-1, *core.shape)
        reached = changes(measure, tables, relation)
        top = int(reached.argmax())
        if reached[top] <= best:
            return best, core
        best, core = float(reached[top]), tables[top]
    return best, core


def largest_change(
    measure: Measure, shape: Shape, n_rows: int, relation: Relation, rng: np.random.Generator, starts: int = 4
) -> float:
    """Return the largest change found from structured cores and random ones, the best of them improved by climbing."""
    cells = int(np.prod(shape))
    shares = np.vstack([rng.dirichlet(np.full(cells, alpha), size=40) for alpha in (0.05, 0.3, 1.0)])
    random = np.stack([rng.multinomial(n_rows, share) for share in shares]).reshape(-1, *shape)
    cores = np.concatenate([structured_cores(shape, n_rows), random])
    reached = changes(measure, cores, relation)
    order = np.argsort(reached)[::-1]
    return max(climb(measure, cores[place], relation)[0] for place in order[:starts])
