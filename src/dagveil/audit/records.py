"""The worst neighbours of statistics that are functions of rows of numbers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dagveil.audit.search import Floats, Found, Look, Norm
from dagveil.privacy.relation import Relation

Measure = Callable[[Floats], Floats]
"""From rows (n, d) to some numbers, (k,)."""

_AROUND: Final = 12
_STEPS: Final = 8


class Domain(enum.Enum):
    """Which values a column may hold when a statistic meets it."""

    BOUNDED = "bounded"
    ANY = "any"
    """Beyond the reach too, infinities and missing values included."""


@dataclass(slots=True, eq=False)
class RecordSearch:
    """A search over rows of numbers; it remembers the worst pair. The record that differs stands last.

    Parameters
    ----------
    measure
        The statistic.
    columns
        Number of columns.
    reach
        Values of interest lie between minus and plus this: a clipping radius, or bounds.
    norm
        Of the change.
    relation
        What makes two tables neighbours.
    domain
        Which values may come in.
    """

    measure: Measure
    columns: int
    reach: float
    norm: Norm
    relation: Relation
    domain: Domain = Domain.BOUNDED
    pairs: int = 0
    best: float = -1.0
    words: str = ""

    def run(self, pairs: int, sizes: tuple[int, ...], rng: np.random.Generator) -> Found:
        """Search: extreme records on several kinds of rows, random ones, and uphill from the best."""
        turn = 0
        while self.pairs < pairs:
            core = self._draw_core(turn, sizes[turn % len(sizes)], rng)
            turn += 1
            candidates = self._draw_records(rng)
            if self.relation is Relation.ADD_REMOVE:
                before = self.measure(core)
                _, record = max(
                    ((self._compare(core, record, None, before), record) for record in candidates), key=lambda at: at[0]
                )
                self._climb(core, record, None, rng)
                continue
            values = [self.measure(np.vstack([core, record])) for record in candidates]
            reached = [
                (self._remember(core, candidates[i], candidates[j], values[i] - values[j]), i, j)
                for i in range(len(values))
                for j in range(i)
            ]
            _, i, j = max(reached)
            self._climb(core, candidates[i], candidates[j], rng)
        return Found(self.best, self.pairs, self.words)

    def _compare(self, core: Floats, record: Floats, other: Floats | None, before: Floats | None = None) -> float:
        if before is None:
            before = self.measure(core if other is None else np.vstack([core, other]))
        return self._remember(core, record, other, self.measure(np.vstack([core, record])) - before)

    def _remember(self, core: Floats, record: Floats, other: Floats | None, change: Floats) -> float:
        self.pairs += 1
        size = float(self.norm.measure(change))
        if size > self.best:
            self.best = size
            what = "is added" if other is None else f"takes the place of {_tell(other)}"
            self.words = f"{_tell(record)} {what} beside {len(core)} rows"
            if len(core) <= 6:
                self.words += f" {[_tell(row) for row in core]}"
        return size

    def _climb(self, core: Floats, record: Floats, other: Floats | None, rng: np.random.Generator) -> None:
        """Change the records, and a row of the core, a little at a time as long as that helps."""
        # under add/remove one side of the pair is the core itself, and half of the tries leave that as it is
        before = self.measure(core) if other is None else None
        best = self._compare(core, record, other, before)
        step = 0.5 * self.reach
        for _ in range(_STEPS):
            for _ in range(_AROUND):
                moved = self._nudge(record, step, rng)
                moved_other = None if other is None else self._nudge(other, step, rng)
                shifted = core
                if len(core) and rng.random() < 0.5:
                    shifted = core.copy()
                    row = rng.integers(len(core))
                    shifted[row] = self._nudge(core[row], step, rng)
                base = self.measure(shifted) if other is None and shifted is not core else before
                reached = self._compare(shifted, moved, moved_other, base)
                if reached > best:
                    core, record, other, best, before = shifted, moved, moved_other, reached, base
            step *= 0.6

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

    def _draw_records(self, rng: np.random.Generator) -> list[Floats]:
        d = self.columns
        corners = [self.reach * signs for signs in rng.choice([-1.0, 1.0], (6, d))]
        axes = [self.reach * sign * axis for axis in np.eye(d) for sign in (-1.0, 1.0)]
        inside = list(rng.uniform(-self.reach, self.reach, (6, d)))
        directions = rng.standard_normal((4, d))
        at_radius = [self.reach * row / np.linalg.norm(row) for row in directions]
        records = [np.zeros(d), *corners, *axes, *inside, *at_radius]
        if self.domain is Domain.ANY:
            records += [np.full(d, np.inf), np.full(d, np.nan), np.full(d, 1e300), -1e9 * axes[0]]
        return records


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
) -> Look:
    """Return the search for a statistic of rows of numbers."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = RecordSearch(measure, columns, reach, norm, relation, domain)
        return search.run(pairs, sizes, rng), declare(relation)

    return look
