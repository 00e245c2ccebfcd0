"""The search for the worst neighbours: of statistics of a table of counts, and of rows of numbers.

Neighbours are described by what they share, a core of rows. Adding a record to the core is one pair under add/remove;
two different records added to the same core are a pair under replace-one. Many searches walk uphill side by side.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.budget import Relation

Floats = NDArray[np.float64]


class Effort(enum.Enum):
    """How long an audit may take."""

    QUICK = "quick", 2_000, 200, 200, 200, 200, 80, 80
    FULL = "full", 1_000_000, 100_000, 10_000, 2_000, 200, 2_000, 1_000

    pairs: int  # pairs of neighbours that are tried for each statistic, about
    runs: int  # runs on each of two sharp tables that an attack has, if the method is fast
    slow_runs: int  # the same for a method that is slow
    ordinary_runs: int  # runs on ordinary tables, where one record moves little and an attack proves little
    slow_ordinary_runs: int  # the same for a method that is slow
    trials: int  # trials of membership inference
    slow_trials: int  # the same for a method that is slow

    def __new__(cls, value: str, *numbers: int) -> Self:
        """Make a member that is known by its first entry, and has the others as numbers."""
        member = object.__new__(cls)
        member._value_ = value
        member.pairs, member.runs, member.slow_runs, *rest = numbers
        member.ordinary_runs, member.slow_ordinary_runs, member.trials, member.slow_trials = rest
        return member


class Norm(enum.Enum):
    """How the change of several numbers is summed up."""

    SIZES = "sum of sizes"
    SQUARES = "root of the sum of squares"
    LARGEST = "largest size"

    def measure(self, changes: Floats) -> Floats:
        """Return the norm of each change; the numbers stand along the last axis."""
        sizes = np.abs(changes)
        if self is Norm.SIZES:
            return np.asarray(sizes.sum(axis=-1))
        if self is Norm.SQUARES:
            # scaled, so that squares of large integers keep their digits
            top = np.maximum(sizes.max(axis=-1, initial=0.0), 1e-300)
            return np.asarray(top * np.sqrt(((sizes / top[..., None]) ** 2).sum(axis=-1)))
        return np.asarray(sizes.max(axis=-1, initial=0.0))


@dataclass(frozen=True, slots=True)
class Found:
    """How far the worst neighbours of so many pairs lie apart, and the two in words: made up, never anyone's rows."""

    change: float
    pairs: int
    words: str


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worst neighbours of a statistic, beside what it declares: a ratio above 1 breaks the guarantee."""

    statistic: str
    function: str
    relation: Relation
    change: float
    declared: float
    ratio: float
    pairs: int
    pair: str

    @property
    def holds(self) -> bool:
        """Whether no pair exceeds the declared sensitivity; floats may round by a billionth."""
        return self.ratio <= 1.0 + 1e-9


Declare = Callable[[Relation], float]  # what a statistic may move by
# searches under a relation with about so many pairs; returns what was found, and the declared sensitivity
Look = Callable[[Relation, int, np.random.Generator], tuple[Found, float]]


@dataclass(frozen=True, slots=True)
class AuditedStatistic:
    """A statistic whose sensitivity, the function as docs/guarantees.md names it, can be searched."""

    name: str
    function: str
    look: Look
    relations: tuple[Relation, ...] = tuple(Relation)


def join_looks(looks: Sequence[Look]) -> Look:
    """Return a search over several settings of a statistic; the worst one, beside what it declares, counts."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        outcomes = [one(relation, max(1, pairs // len(looks)), rng) for one in looks]
        found, declared = max(outcomes, key=lambda outcome: outcome[0].change / outcome[1])
        return Found(found.change, sum(other.pairs for other, _ in outcomes), found.words), declared

    return look


Tables = NDArray[np.int64]
Measure = Callable[[Tables], Floats]  # from tables (batch, *shape) to the numbers of each, (batch, k)
_ENUMERATED_SHARE: Final = 0.3
_BATCH: Final = 512


@dataclass(slots=True, eq=False)
class TableSearch:
    """A search over tables of one shape; it remembers the worst pair."""

    measure: Measure
    shape: tuple[int, ...]
    norm: Norm
    relation: Relation
    parts: int = 1  # of rows, along the first axis: a record that is replaced stays in its part
    fewest_rows: int = 0  # smaller tables are not tried: for claims about tables of a certain size
    most_enumerated: int = 64  # larger tables are not enumerated
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
        cells = math.prod(self.shape)
        for n_rows in range(self.fewest_rows, self.most_enumerated + 1):
            if math.comb(n_rows + cells - 1, n_rows) * cells > _ENUMERATED_SHARE * pairs - self.pairs:
                break
            self._try(_all_tables(self.shape, n_rows))
        for size in sizes:
            extremes = _extremes(self.shape, size)
            large = extremes.sum(axis=tuple(range(1, extremes.ndim))) >= self.fewest_rows
            top = self._try(extremes[large])
            if self.pairs < pairs:
                self._climb(top, 6)
        while self.pairs < pairs:
            self._climb(self._try(_draw(self.shape, int(rng.choice(sizes)), rng)), 6)
        return Found(self.best, self.pairs, self.words)

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
            left = right = np.arange(cells)
            changes = self.norm.measure(values - self.measure(cores).reshape(len(cores), 1, -1))
        else:
            left, right = np.triu_indices(cells, 1)
            same = self._groups[left] == self._groups[right]
            left, right = left[same], right[same]
            changes = self.norm.measure(values[:, left] - values[:, right])
        self.pairs += changes.size
        core, place = np.unravel_index(int(changes.argmax()), changes.shape)
        if changes[core, place] > self.best:
            self.best = float(changes[core, place])
            a, b = (tuple(map(int, np.unravel_index(side[place], self.shape))) for side in (left, right))
            words = f"with and without a record in cell {a}" if a == b else f"with a record in cell {a} or in {b}"
            self.words = f"counts {cores[core].tolist()} {words}"
        return np.asarray(changes.max(axis=1))

    def _climb(self, core: Tables, most_steps: int) -> None:
        """Move rows of the core between cells as long as that makes the change larger."""
        best, steps = float(self._changes(core[None])[0]), self._steps.reshape(len(self._steps), -1)
        for _ in range(most_steps):
            flat = core.reshape(-1)
            moves = [
                flat + amount * (steps[target] - steps[source])
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
    rows: list[Any] = [(level, slice(None)) for level in {0, x_levels - 1}]
    columns = [(slice(None), level) for level in {0, y_levels - 1}]
    for place in [*rows, *columns, *product({0, x_levels - 1}, {0, y_levels // 2, y_levels - 1})]:
        even = empty.copy()
        even[place] = 1.0
        yield even / even.sum()


def _draw(shape: tuple[int, ...], n_rows: int, rng: np.random.Generator) -> Tables:
    """Draw tables, some of them concentrated on few cells."""
    cells = math.prod(shape)
    shares = np.vstack([rng.dirichlet(np.full(cells, alpha), size=10) for alpha in (0.05, 0.3, 1.0)])
    return np.stack([rng.multinomial(n_rows, share) for share in shares]).reshape(-1, *shape)


def look_at_tables(
    measure: Measure, shape: tuple[int, ...], norm: Norm, declare: Declare, sizes: tuple[int, ...], **limits: int
) -> Look:
    """Return the search for a statistic of a table of counts; limits are those of `TableSearch`."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        return TableSearch(measure, shape, norm, relation, **limits).run(pairs, sizes, rng), declare(relation)

    return look


RowMeasure = Callable[[Floats], Floats]  # from rows (n, d) to some numbers, (k,)
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


class _Walks(NamedTuple):
    """Where some searches stand: rows that both tables share, the record, and the one in its place, or no row."""

    cores: Floats  # each (walks, rows, columns)
    records: Floats
    others: Floats

    def take(self, places: NDArray[np.intp]) -> _Walks:
        """Return some of them, or each several times."""
        return _Walks(*(rows[places] for rows in self))


@dataclass(slots=True, eq=False)
class RecordSearch:
    """A search over rows of numbers; it remembers the worst pair. The record that differs stands last."""

    measure: RowMeasure
    columns: int
    reach: float  # values of interest lie between minus and plus this: a clipping radius, or bounds
    norm: Norm
    relation: Relation
    domain: Domain = Domain.BOUNDED
    batch: BatchMeasure | None = None  # many tables at once; what is reported is measured by the statistic itself
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
        own = np.arange(walks)
        every = np.repeat(own, count)
        values = self._measure(cores[every], candidates.reshape(walks * count, 1, -1)).reshape(walks, count, -1)
        if self.relation is Relation.ADD_REMOVE:
            changes = self.norm.measure(values - self._batch(cores)[:, None])
            place = changes.argmax(axis=1)
            top = _Walks(cores, candidates[own, place, None], cores[:, :0])
        else:
            left, right = np.tril_indices(count, -1)
            changes = self.norm.measure(values[:, left] - values[:, right])
            place = changes.argmax(axis=1)
            top = _Walks(cores, candidates[own, left[place], None], candidates[own, right[place], None])
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
            walks = _Walks(*(np.where(better[:, None, None], *rows) for rows in zip(top, walks, strict=True)))
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
        others = self._nudge(walks.others, step, rng)
        return _Walks(cores, self._nudge(walks.records, step, rng), others)

    def _compare(self, walks: _Walks) -> Floats:
        """Return how far the two tables of each walk lie apart."""
        before, after = (self._measure(walks.cores, records) for records in (walks.others, walks.records))
        changes = self.norm.measure(after - before)
        self.pairs += changes.size
        return changes

    def _measure(self, cores: Floats, records: Floats) -> Floats:
        return self._batch(np.concatenate([cores, records], axis=1))

    def _remember(self, walks: _Walks, reached: Floats) -> None:
        place = int(reached.argmax())
        if reached[place] > self.best:
            self.best = float(reached[place])
            self._worst = walks.take(np.array([place]))

    def _confirm(self) -> float:
        """Measure the worst pair by the statistic itself, and put it into words."""
        if self._worst is None:
            return self.best
        core, record, other = (rows[0] for rows in self._worst)
        what = f"takes the place of {_describe(other[0])}" if len(other) else "is added"
        self.words = f"{_describe(record[0])} {what} beside {len(core)} rows"
        if len(core) <= 6:
            self.words += f" {[_describe(row) for row in core]}"
        after, before = (self.measure(np.vstack([core, rows])) for rows in (record, other))
        self.best = float(self.norm.measure(after - before))
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
        at_radius = [self.reach * row / np.linalg.norm(row) for row in rng.standard_normal((4, d))]
        records = [np.zeros(d), *corners, *axes, *inside, *at_radius]
        if self.domain is Domain.ANY:
            records += [np.full(d, np.inf), np.full(d, np.nan), np.full(d, 1e300), -1e9 * axes[0]]
        return np.stack(records)


def _describe(record: Floats) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in record) + ")"


def look_at_records(
    measure: RowMeasure,
    columns: int,
    reach: float,
    declare: Declare,
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
