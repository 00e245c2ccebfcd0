"""The worst neighbours of statistics that are functions of rows of numbers.

Many searches walk uphill side by side, so that a statistic is asked about thousands of tables at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.search import Floats, Found, Look, Norm
from dagveil.privacy.relation import Relation

Measure = Callable[[Floats], Floats]  # from rows (n, d) to some numbers, (k,)
BatchMeasure = Callable[[Floats], Floats]  # from tables (batch, rows, columns) to the numbers of each, (batch, k)
_AROUND: Final = 12
_STEPS: Final = 8
_PAIRS_PER_WALK: Final = 1_000
# searches that walk side by side: a few in a short search, so that it still sees rows of all kinds and sizes
_MOST_WALKS: Final = 128


class Domain(enum.Enum):
    """Which values a column may hold when a statistic meets it."""

    BOUNDED = "bounded"
    ANY = "any"  # beyond the reach too, infinities and missing values included


@dataclass(frozen=True, slots=True, eq=False)
class _Walks:
    """Where some searches stand: rows that both tables share, the record, and the one in its place or none."""

    cores: Floats
    records: Floats
    others: Floats | None

    def take(self, places: NDArray[np.intp]) -> _Walks:
        """Return some of them, or each several times."""
        others = None if self.others is None else self.others[places]
        return _Walks(self.cores[places], self.records[places], others)


@dataclass(slots=True, eq=False)
class RecordSearch:
    """A search over rows of numbers; it remembers the worst pair. The record that differs stands last.

    Values of interest lie between minus and plus `reach`: a clipping radius, or bounds. `batch` measures many tables at
    once; what is reported is measured by the statistic itself.
    """

    measure: Measure
    columns: int
    reach: float
    norm: Norm
    relation: Relation
    domain: Domain = Domain.BOUNDED
    batch: BatchMeasure | None = None
    pairs: int = 0
    best: float = -1.0
    words: str = ""
    _batch: BatchMeasure = field(init=False)
    _worst: _Walks | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # a statistic without a twin measures one table after the other
        self._batch = self.batch or (lambda tables: np.stack([self.measure(table) for table in tables]))

    def run(self, pairs: int, sizes: tuple[int, ...], rng: np.random.Generator) -> Found:
        """Search: extreme records on several kinds of rows, random ones, and uphill from the best."""
        walks = min(max(pairs // _PAIRS_PER_WALK, 2), _MOST_WALKS)
        turn = 0
        while self.pairs < pairs:
            size = sizes[turn // walks % len(sizes)]
            cores = np.stack([self._draw_core(turn + walk, size, rng) for walk in range(walks)])
            candidates = np.stack([self._draw_records(rng) for _ in range(walks)])
            turn += walks
            self._climb(*self._start(cores, candidates), rng)
        return Found(self._confirm(), self.pairs, self.words)

    def _start(self, cores: Floats, candidates: Floats) -> tuple[_Walks, Floats]:
        """Try all candidates beside each core; return the worst of each walk."""
        walks, count = candidates.shape[:2]
        every = np.repeat(np.arange(walks), count)
        values = self._measure(cores[every], candidates.reshape(walks * count, -1)).reshape(walks, count, -1)
        own = np.arange(walks)
        if self.relation is Relation.ADD_REMOVE:
            changes = self.norm.measure(values - self._batch(cores)[:, None])
            place = changes.argmax(axis=1)
            top = _Walks(cores, candidates[own, place], None)
        else:
            left, right = np.tril_indices(count, -1)
            changes = self.norm.measure(values[:, left] - values[:, right])
            place = changes.argmax(axis=1)
            top = _Walks(cores, candidates[own, left[place]], candidates[own, right[place]])
        self.pairs += changes.size
        reached = changes[own, place]
        self._remember(top, reached)
        return top, reached

    def _climb(self, walks: _Walks, reached: Floats, rng: np.random.Generator) -> None:
        """Change the records, and a row of the core, a little at a time as long as that helps."""
        count, step = len(reached), 0.5 * self.reach
        every = np.repeat(np.arange(count), _AROUND)
        for _ in range(_STEPS):
            tried = self._shift(walks.take(every), step, rng)
            changes = self._compare(tried).reshape(count, _AROUND)
            place = changes.argmax(axis=1)
            top = tried.take(np.arange(count) * _AROUND + place)
            there = changes[np.arange(count), place]
            better = there > reached
            reached = np.where(better, there, reached)
            walks = _choose(better, top, walks)
            self._remember(walks, reached)
            step *= 0.6

    def _shift(self, walks: _Walks, step: float, rng: np.random.Generator) -> _Walks:
        """Move the records, and in about half of the cases a row of the core."""
        cores, count = walks.cores, len(walks.records)
        if cores.shape[1]:
            moving = np.flatnonzero(rng.random(count) < 0.5)
            rows = rng.integers(cores.shape[1], size=len(moving))
            cores = cores.copy()
            cores[moving, rows] = self._nudge(cores[moving, rows], step, rng)
        others = None if walks.others is None else self._nudge(walks.others, step, rng)
        return _Walks(cores, self._nudge(walks.records, step, rng), others)

    def _compare(self, walks: _Walks) -> Floats:
        """Return how far the two tables of each walk lie apart."""
        before = self._batch(walks.cores) if walks.others is None else self._measure(walks.cores, walks.others)
        changes = self.norm.measure(self._measure(walks.cores, walks.records) - before)
        self.pairs += changes.size
        return changes

    def _measure(self, cores: Floats, records: Floats) -> Floats:
        return self._batch(np.concatenate([cores, records[:, None]], axis=1))

    def _remember(self, walks: _Walks, reached: Floats) -> None:
        place = int(reached.argmax())
        if reached[place] > self.best:
            self.best = float(reached[place])
            self._worst = walks.take(np.array([place]))

    def _confirm(self) -> float:
        """Measure the worst pair by the statistic itself, and put it into words."""
        if self._worst is None:
            return self.best
        core, record = self._worst.cores[0], self._worst.records[0]
        other = None if self._worst.others is None else self._worst.others[0]
        before = self.measure(core if other is None else np.vstack([core, other]))
        what = "is added" if other is None else f"takes the place of {_tell(other)}"
        self.words = f"{_tell(record)} {what} beside {len(core)} rows"
        if len(core) <= 6:
            self.words += f" {[_tell(row) for row in core]}"
        self.best = float(self.norm.measure(self.measure(np.vstack([core, record])) - before))
        return self.best

    def _nudge(self, record: Floats, step: float, rng: np.random.Generator) -> Floats:
        moved = record + step * rng.standard_normal(record.shape)
        return moved if self.domain is Domain.ANY else np.clip(moved, -self.reach, self.reach)

    def _draw_core(self, turn: int, size: int, rng: np.random.Generator) -> Floats:
        """Return rows of one kind after the other: random, constant, at the bounds, in two heaps, tied, none."""
        shape = (size, self.columns)
        kinds: list[Callable[[], Floats]] = [
            lambda: rng.uniform(-self.reach, self.reach, shape),
            lambda: np.zeros(shape),
            lambda: self.reach * rng.choice([-1.0, 1.0], shape),
            lambda: np.repeat(self.reach * rng.choice([-1.0, 1.0], (size, 1)), self.columns, axis=1),
            lambda: self.reach * np.rint(rng.uniform(-1.5, 1.5, shape)),
            lambda: np.full(shape, self.reach),
            lambda: np.repeat(np.linspace(-self.reach, self.reach, size)[:, None], self.columns, axis=1),
            lambda: 0.2 * self.reach * rng.standard_normal(shape),
        ]
        core = kinds[turn % len(kinds)]()
        return np.asarray(np.clip(core, -self.reach, self.reach), dtype=np.float64)

    def _draw_records(self, rng: np.random.Generator) -> Floats:
        d = self.columns
        corners = [self.reach * signs for signs in rng.choice([-1.0, 1.0], (6, d))]
        axes = [self.reach * sign * axis for axis in np.eye(d) for sign in (-1.0, 1.0)]
        inside = list(rng.uniform(-self.reach, self.reach, (6, d)))
        directions = rng.standard_normal((4, d))
        at_radius = [self.reach * row / np.linalg.norm(row) for row in directions]
        records = [np.zeros(d), *corners, *axes, *inside, *at_radius]
        if self.domain is Domain.ANY:
            records += [np.full(d, np.inf), np.full(d, np.nan), np.full(d, 1e300), -1e9 * axes[0]]
        return np.stack(records)


def _choose(better: NDArray[np.bool_], one: _Walks, other: _Walks) -> _Walks:
    """Return the walks of one where that is better, and of the other elsewhere."""
    others = None
    if one.others is not None and other.others is not None:
        others = np.where(better[:, None], one.others, other.others)
    return _Walks(
        np.where(better[:, None, None], one.cores, other.cores),
        np.where(better[:, None], one.records, other.records),
        others,
    )


def _tell(record: Floats) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in record) + ")"


def look_at_records(
    measure: Callable[[Floats], Floats],
    columns: int,
    reach: float,
    declare: Callable[[Relation], float],
    norm: Norm = Norm.SQUARES,
    sizes: tuple[int, ...] = (0, 1, 5),
    domain: Domain = Domain.ANY,
    batch: BatchMeasure | None = None,
) -> Look:
    """Return the search for a statistic of rows of numbers."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = RecordSearch(measure, columns, reach, norm, relation, domain, batch)
        return search.run(pairs, sizes, rng), declare(relation)

    return look
