"""The worst neighbours of statistics that are functions of a table of counts.

Neighbours are described by what they share: a core of rows. Adding a record to the core is one pair under add/remove;
two different records added to the same core are a pair under replace-one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.search import Floats, Found, Look, Norm
from dagveil.privacy.relation import Relation

Tables = NDArray[np.int64]
Measure = Callable[[Tables], Floats]  # from tables (batch, *shape) to the numbers of each, (batch, k)
_ENUMERATED_SHARE: Final = 0.3
_BATCH: Final = 512


@dataclass(slots=True, eq=False)
class TableSearch:
    """A search over tables of one shape; it remembers the worst pair.

    Rows may be dealt to parts along the first axis: a record that is replaced stays in its part. Tables below
    `fewest_rows` are not tried, for claims about tables of a certain size; those above `most_enumerated` are not
    enumerated.
    """

    measure: Measure
    shape: tuple[int, ...]
    norm: Norm
    relation: Relation
    parts: int = 1
    fewest_rows: int = 0
    most_enumerated: int = 64
    pairs: int = field(default=0, init=False)
    best: float = field(default=-1.0, init=False)
    words: str = field(default="", init=False)
    _steps: Tables = field(init=False)
    _groups: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        cells = math.prod(self.shape)
        self._steps = np.eye(cells, dtype=np.int64).reshape(cells, *self.shape)
        self._groups = np.arange(cells) // (cells // self.parts)

    def run(self, pairs: int, sizes: tuple[int, ...], rng: np.random.Generator) -> Found:
        """Search small tables, extreme ones in any case, since most bounds are attained there, random ones, uphill."""
        self._enumerate(_ENUMERATED_SHARE * pairs)
        for size in sizes:
            extremes = _extremes(self.shape, size)
            large = extremes.sum(axis=tuple(range(1, extremes.ndim))) >= self.fewest_rows
            top = self._try(extremes[large])
            if self.pairs < pairs:
                self._climb(top, 6)
        while self.pairs < pairs:
            size = int(rng.choice(sizes))
            cores = _draw(self.shape, size, rng)
            self._climb(self._try(cores), 6)
        return Found(self.best, self.pairs, self.words)

    def _enumerate(self, pairs: float) -> None:
        cells = math.prod(self.shape)
        for n_rows in range(self.fewest_rows, self.most_enumerated + 1):
            if math.comb(n_rows + cells - 1, n_rows) * cells > pairs - self.pairs:
                return
            self._try(_all_tables(self.shape, n_rows))

    def _try(self, cores: Tables) -> Tables:
        """Try all neighbours that share each of the cores; return the core with the largest change."""
        top: Tables = cores[0]
        worst = -1.0
        for start in range(0, len(cores), _BATCH):
            block = cores[start : start + _BATCH]
            changes = self._changes(block)
            place = int(changes.argmax())
            if changes[place] > worst:
                top, worst = block[place], float(changes[place])
        return top

    def _changes(self, cores: Tables) -> Floats:
        cells = len(self._steps)
        more = (cores[:, None] + self._steps).reshape(-1, *self.shape)
        values = self.measure(more).reshape(len(cores), cells, -1)
        if self.relation is Relation.ADD_REMOVE:
            changes = self.norm.measure(values - self.measure(cores).reshape(len(cores), 1, -1))
            self.pairs += changes.size
            self._remember(cores, changes, lambda cell: f"with and without a record in cell {self._name(cell)}")
            return np.asarray(changes.max(axis=1))
        left, right = np.triu_indices(cells, 1)
        same = self._groups[left] == self._groups[right]
        left, right = left[same], right[same]
        changes = self.norm.measure(values[:, left] - values[:, right])
        self.pairs += changes.size
        self._remember(
            cores,
            changes,
            lambda place: f"with a record in cell {self._name(left[place])} or in {self._name(right[place])}",
        )
        return np.asarray(changes.max(axis=1))

    def _remember(self, cores: Tables, changes: Floats, tell: Callable[[int], str]) -> None:
        core, place = np.unravel_index(int(changes.argmax()), changes.shape)
        if changes[core, place] > self.best:
            self.best = float(changes[core, place])
            self.words = f"counts {cores[core].tolist()} {tell(int(place))}"

    def _name(self, cell: int) -> str:
        return str(tuple(int(index) for index in np.unravel_index(cell, self.shape)))

    def _climb(self, core: Tables, most_steps: int) -> None:
        """Move rows of the core between cells as long as that makes the change larger."""
        best = float(self._changes(core[None])[0])
        for _ in range(most_steps):
            flat = core.reshape(-1)
            moves = [
                _move(flat, source, target, amount)
                for source, target in product(np.flatnonzero(flat).tolist(), range(flat.size))
                for amount in {1, int(flat[source]) // 10, int(flat[source]) // 2, int(flat[source])} - {0}
            ]
            if not moves:
                return
            tables = np.stack(moves[:: max(1, len(moves) // 400)]).reshape(-1, *self.shape)
            core = self._try(tables)
            reached = float(self._changes(core[None])[0])
            if reached <= best:
                return
            best = reached


def _move(flat: Tables, source: int, target: int, amount: int) -> Tables:
    moved = flat.copy()
    moved[source] -= amount
    moved[target] += amount
    return moved


def _all_tables(shape: tuple[int, ...], n_rows: int) -> Tables:
    """Return every table of this shape with so many rows."""
    cells = math.prod(shape)
    bars = np.array(list(combinations(range(n_rows + cells - 1), cells - 1)), dtype=np.int64).reshape(-1, cells - 1)
    ends = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), n_rows + cells - 1)])
    return (np.diff(ends, axis=1) - 1).reshape(-1, *shape)


def _extremes(shape: tuple[int, ...], n_rows: int) -> Tables:
    """Return tables that are extreme: constant columns, diagonals, single rows in a stratum, empty strata."""
    outer, inner = shape[:-2], shape[-2:]
    strata = math.prod(outer)
    patterns = list(_patterns(*inner))
    found = []
    for one, other in product(patterns, repeat=2):
        for share in (0.01, 0.5, 1.0) if strata > 1 else (1.0,):
            table = np.zeros((strata, *inner), dtype=np.int64)
            table[0] = np.rint(share * n_rows * one)
            if strata > 1:
                table[-1] += np.rint((1.0 - share) * n_rows * other).astype(np.int64)
            found.append(table)
    single = np.zeros((strata, *inner), dtype=np.int64)
    single[:, 0, 0] = 1  # one record in each stratum
    for pattern in patterns:
        table = single.copy()
        table[0] = np.rint(3 * pattern)
        found.append(table)
    return np.unique(np.stack([single, *found]), axis=0).reshape(-1, *shape)


def _patterns(x_levels: int, y_levels: int) -> Iterator[Floats]:
    """Yield tables that sum to about 1: diagonals with and without the last levels, one row, one column, one cell."""
    empty = np.zeros((x_levels, y_levels))
    for used in {min(x_levels, y_levels), max(min(x_levels, y_levels) - 1, 1)}:
        diagonal = empty.copy()
        diagonal[np.arange(used), np.arange(used)] = 1.0 / used
        yield diagonal
        yield diagonal[::-1]
    for level in {0, x_levels - 1}:
        row = empty.copy()
        row[level] = 1.0 / y_levels
        yield row
    for level in {0, y_levels - 1}:
        column = empty.copy()
        column[:, level] = 1.0 / x_levels
        yield column
    for cell in product({0, x_levels - 1}, {0, y_levels // 2, y_levels - 1}):
        point = empty.copy()
        point[cell] = 1.0
        yield point


def _draw(shape: tuple[int, ...], n_rows: int, rng: np.random.Generator) -> Tables:
    """Draw tables, some of them concentrated on few cells."""
    cells = math.prod(shape)
    shares = np.vstack([rng.dirichlet(np.full(cells, alpha), size=10) for alpha in (0.05, 0.3, 1.0)])
    return np.stack([rng.multinomial(n_rows, share) for share in shares]).reshape(-1, *shape)


def look_at_tables(
    measure: Measure,
    shape: tuple[int, ...],
    norm: Norm,
    declare: Callable[[Relation], float],
    sizes: tuple[int, ...],
    **limits: int,
) -> Look:
    """Return the search for a statistic of a table of counts; limits are those of `TableSearch`."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        return TableSearch(measure, shape, norm, relation, **limits).run(pairs, sizes, rng), declare(relation)

    return look
