"""Noisy tables of counts, and how several releases of the same counts become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.release import NoisyCounts, NoisyInteractions, Release

Key = TypeVar("Key", bound=Hashable)
One = TypeVar("One")


def group(items: Iterable[One], key: Callable[[One], Key]) -> dict[Key, list[One]]:
    """Return the items of each key, in their order."""
    found: dict[Key, list[One]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """Counts with independent noise of one variance in every cell.

    - `variance`: variance of the noise in each direction that sums to nothing along every axis; of every cell if
      `flatness` is 1.
    - `flatness`: per axis, how much larger the variance is in the direction in which all levels move together: 1 for a
      table with noise in every cell, other values for one put together from an interaction and its margins.
    """

    columns: tuple[str, ...]
    counts: NDArray[np.float64]
    variance: float
    flatness: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.flatness:
            object.__setattr__(self, "flatness", (1.0,) * len(self.columns))

    @property
    def cell_variance(self) -> float:
        """Variance of the noise in one cell."""
        variance = self.variance
        for flat, levels in zip(self.flatness, self.counts.shape, strict=True):
            variance *= 1.0 + (flat - 1.0) / int(levels)
        return variance

    def margin(self, columns: tuple[str, ...]) -> NoisyTable:
        """Sum out the other columns; their cells' noise adds up."""
        if columns == self.columns:
            return self
        gone = tuple(axis for axis, name in enumerate(self.columns) if name not in columns)
        left = tuple(name for name in self.columns if name in columns)
        summed = self.counts.sum(axis=gone)
        order = [left.index(name) for name in columns]
        # summing an axis follows the direction in which its levels move together
        width = math.prod(self.counts.shape[axis] * self.flatness[axis] for axis in gone)
        kept = dict(zip(self.columns, self.flatness, strict=True))
        return NoisyTable(
            columns, summed.transpose(order), self.variance * width, tuple(kept[name] for name in columns)
        )


def read_tables(releases: Sequence[NoisyCounts | NoisyInteractions]) -> list[NoisyTable]:
    """Return released tables as noisy tables, in their order; those of one kind are read together."""

    def tell_kind(place: int) -> tuple[Hashable, ...]:
        one = releases[place]
        return type(one), one.shape, one.lattice, one.variance.as_integer_ratio()

    found: dict[int, NoisyTable] = {}
    for places in group(range(len(releases)), tell_kind).values():
        first = releases[places[0]]
        if isinstance(first, NoisyCounts):
            scale, variance = first.lattice, first.count_variance
        else:
            scale, variance = first.lattice * math.prod(first.shape), first.interaction_variance
        flat = chain.from_iterable([releases[place].values for place in places])
        values = np.fromiter(flat, np.float64, len(places) * math.prod(first.shape)) / scale
        for place, counts in zip(places, values.reshape(len(places), *first.shape), strict=True):
            found[place] = NoisyTable(tuple(releases[place].columns), counts, variance)
    return [found[place] for place in range(len(releases))]


def combine(tables: Iterable[NoisyTable]) -> NoisyTable:
    """Average tables of the same columns by inverse variance."""
    found = list(tables)
    # what has no noise says it all
    exact = next((table for table in found if table.variance == 0), None)
    return combine_each([found])[0] if exact is None else exact


def combine_each(releases: Sequence[Sequence[NoisyTable]]) -> list[NoisyTable]:
    """Average several lists of tables, each of the same columns in some order, by inverse variance.

    Tables of one shape are averaged together: a wide data set has thousands of pairs.
    """
    combined = [tables[0] for tables in releases]
    several = (place for place, tables in enumerate(releases) if len(tables) > 1)
    for shape, places in group(several, lambda place: combined[place].counts.shape).items():
        alike = [table.margin(releases[place][0].columns) for place in places for table in releases[place]]
        starts = np.cumsum([0, *(len(releases[place]) for place in places[:-1])])
        weights = 1.0 / np.array([table.variance for table in alike])
        total = np.add.reduceat(weights, starts)
        parts = np.column_stack([stack_counts(alike).reshape(len(alike), -1), [table.flatness for table in alike]])
        means = np.add.reduceat(parts * weights[:, None], starts) / total[:, None]
        cells = math.prod(shape)
        for place, counts, flatness, variance in zip(
            places, means[:, :cells].reshape(-1, *shape), means[:, cells:].tolist(), (1.0 / total).tolist(), strict=True
        ):
            combined[place] = NoisyTable(combined[place].columns, counts, variance, tuple(flatness))
    return combined


def combine_alike(tables: Iterable[NoisyTable]) -> dict[frozenset[str], NoisyTable]:
    """Average the tables of each set of columns, by inverse variance."""
    found = group(tables, lambda table: frozenset(table.columns))
    return dict(zip(found, combine_each(list(found.values())), strict=True))


def two_way_margins(tables: Iterable[NoisyTable]) -> list[NoisyTable]:
    """Return the margin of every pair of columns of these tables of two or three columns, table after table."""
    return [table.margin(pair) for table in tables if len(table.columns) < 4 for pair in combinations(table.columns, 2)]


def stack_counts(tables: Sequence[NoisyTable]) -> NDArray[np.float64]:
    """Return the counts of tables of one shape as one array, the tables along its first axis."""
    # several times faster than np.stack on many small arrays
    return np.concatenate([table.counts for table in tables]).reshape(len(tables), *tables[0].counts.shape)


def add_total(contrasts: Sequence[NoisyTable], total: NoisyTable) -> dict[str, NoisyTable]:
    """Put one-way tables together from centred ones and the number of rows, which all of them then share.

    - `contrasts`: centred counts of single columns; noise may lie outside of their subspace.
    """
    singles = {}
    for table in contrasts:
        levels = table.counts.size
        counts = table.counts - table.counts.mean() + total.counts / levels
        singles[table.columns[0]] = NoisyTable(
            table.columns, counts, table.variance, (total.variance / (levels * table.variance),)
        )
    return singles


def join_margins(interactions: Sequence[NoisyTable], singles: Mapping[str, NoisyTable]) -> list[NoisyTable]:
    """Put pair tables together from interactions and the noisy margins of their columns.

    - `interactions`: doubly centred counts of pairs; noise may lie outside of their subspace.
    """
    joined = []
    for (rows, columns), alike in group(interactions, lambda table: table.counts.shape).items():
        ends = [[singles[table.columns[end]] for table in alike] for end in (0, 1)]
        first, second = (stack_counts(margins) for margins in ends)
        first_variance, second_variance = (np.array([margin.variance for margin in margins]) for margins in ends)
        variance = np.array([table.variance for table in alike])
        counts = stack_counts(alike)
        # noise outside of the subspace of interactions tells nothing: project it away
        counts = counts - counts.mean(axis=1, keepdims=True)
        counts = counts - counts.mean(axis=2, keepdims=True)
        down = second - second.mean(axis=1, keepdims=True)
        counts = counts + first[:, :, None] / columns + down[:, None, :] / rows
        # moving all levels of one column together is the other column's margin, spread over this one's levels
        flatness = np.column_stack([second_variance / (rows * variance), first_variance / (columns * variance)])
        joined += [
            NoisyTable(table.columns, filled, table.variance, (flat[0], flat[1]))
            for table, filled, flat in zip(alike, counts, flatness.tolist(), strict=True)
        ]
    return joined


def join_pairs(
    interactions: Sequence[NoisyTable], pairs: Mapping[frozenset[str], NoisyTable], singles: Mapping[str, NoisyTable]
) -> list[NoisyTable]:
    """Put three-way tables together from their own interactions, pair tables and the margins that these share.

    The noise of what comes out differs between directions; its mean over all of them stands for each.
    """
    joined = []
    for table in interactions:
        names, shape, cells = table.columns, table.counts.shape, table.counts.size
        counts = table.counts
        for axis in range(3):
            # noise outside of the subspace of interactions tells nothing: project it away
            counts = counts - counts.mean(axis=axis, keepdims=True)
        noise = table.variance * math.prod(levels - 1 for levels in shape)
        for gone in range(3):
            first, second = (axis for axis in range(3) if axis != gone)
            pair = pairs[frozenset((names[first], names[second]))].margin((names[first], names[second]))
            counts = counts + np.expand_dims(pair.counts, gone) / shape[gone]
            noise += pair.variance / shape[gone] * (shape[first] - 1) * (shape[second] - 1)
        total = float(singles[names[0]].counts.sum())
        for axis, name in enumerate(names):
            others = cells // shape[axis]
            margin = singles[name].counts.reshape([-1 if place == axis else 1 for place in range(3)])
            # each margin came with two pairs
            counts = counts - margin / others
            noise += singles[name].variance / others * (shape[axis] - 1)
        joined.append(NoisyTable(names, counts + total / cells, noise / cells))
    return joined


def _centre(table: NoisyTable) -> NoisyTable:
    """Return the interaction of a pair table; `variance` is that of its directions already."""
    counts = table.counts - table.counts.mean(axis=0, keepdims=True)
    return NoisyTable(table.columns, counts - counts.mean(axis=1, keepdims=True), table.variance)


def join_released(
    tables: Sequence[NoisyTable], interactions: Sequence[NoisyTable], singles: Mapping[str, NoisyTable]
) -> dict[frozenset[str], NoisyTable]:
    """Return one table per pair from margins that were measured on their own and all that tells of interactions."""
    of_two = [table for table in interactions if len(table.columns) == 2]
    centred = combine_alike([*of_two, *(_centre(margin) for margin in two_way_margins(tables))])
    return {frozenset(table.columns): table for table in join_margins(list(centred.values()), singles)}


class ReleasedTables:
    """The noisy tables in releases, and the sharpest one of any columns that follows from them.

    - `tables`: with noise in every cell.
    - `centred`: interactions of columns, and contrasts of single ones.
    - `rows`: the number of rows, if it was measured.
    - `singles`, `total`: margins from contrasts and the number of rows, and that number; nothing without contrasts.
    """

    def __init__(self, releases: Sequence[Release]) -> None:
        counts = read_tables([release for release in releases if isinstance(release, NoisyCounts)])
        self.centred = read_tables([release for release in releases if isinstance(release, NoisyInteractions)])
        self.tables = [table for table in counts if table.columns]
        contrasts = [table for table in self.centred if len(table.columns) == 1]
        totals = [table for table in counts if not table.columns]
        self.rows = combine(totals) if totals or contrasts else None
        self.total = self.rows if contrasts else None
        self.singles = {} if self.total is None else add_total(contrasts, self.total)

    def find(self, columns: tuple[str, ...]) -> NoisyTable | None:
        """Return the table of some columns, axes in this order, or None if nothing tells their counts."""
        if not self.singles:
            found = [table.margin(columns) for table in self.tables if set(columns) <= set(table.columns)]
            return combine(found) if found else None
        if len(columns) == 1:
            return self.singles.get(columns[0])
        named = frozenset(columns)
        if len(columns) == 2:
            table = self._pairs.get(named)
        else:
            asked = [table for table in self.centred if set(table.columns) == named]
            joined = join_pairs(asked, self._pairs, self.singles)
            table = combine_alike(of for of in (*self.tables, *joined) if len(of.columns) == 3).get(named)
        return None if table is None else table.margin(columns)

    @cached_property
    def _pairs(self) -> dict[frozenset[str], NoisyTable]:
        return join_released(self.tables, self.centred, self.singles)
