"""Noisy tables of counts, and how several releases of the same counts become one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.release import NoisyCounts, NoisyInteractions


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """Counts with independent noise of one variance in every cell.

    Parameters
    ----------
    columns
        Names, one per axis of `counts`.
    counts
        Noisy counts.
    variance
        Variance of the noise in each direction that sums to nothing along every axis; of every cell if `flatness` is 1.
    flatness
        Per axis, how much larger the variance is in the direction in which all levels move together: 1 for a table with
        noise in every cell, other values for one put together from an interaction and its margins.
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
        """Sum out the other columns; their cells' noise adds up.

        >>> NoisyTable(("a", "b"), np.ones((2, 3)), 1.0).margin(("a",)).variance
        3.0
        """
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
    kinds: dict[tuple[object, ...], list[int]] = {}
    for place, release in enumerate(releases):
        key = (type(release), release.shape, release.lattice, release.variance.as_integer_ratio())
        kinds.setdefault(key, []).append(place)
    found: list[NoisyTable | None] = [None] * len(releases)
    for places in kinds.values():
        first = releases[places[0]]
        if isinstance(first, NoisyCounts):
            scale, variance = first.lattice, first.count_variance
        else:
            scale, variance = first.lattice * math.prod(first.shape), first.interaction_variance
        values = np.array([releases[place].values for place in places], dtype=np.float64) / scale
        for place, counts in zip(places, values.reshape(len(places), *first.shape), strict=True):
            found[place] = NoisyTable(tuple(releases[place].columns), counts, variance)
    return [table for table in found if table is not None]


def combine(tables: Iterable[NoisyTable]) -> NoisyTable:
    """Average tables of the same columns by inverse variance.

    >>> combine([NoisyTable(("a",), np.zeros(2), 1.0), NoisyTable(("a",), np.full(2, 3.0), 2.0)]).counts.tolist()
    [1.0, 1.0]
    """
    tables = list(tables)
    if len(tables) == 1:
        return tables[0]
    weights = np.array([1.0 / table.variance for table in tables])
    counts = sum(weight * table.counts for weight, table in zip(weights, tables, strict=True)) / weights.sum()
    flatness = weights @ np.array([table.flatness for table in tables]) / weights.sum()
    return NoisyTable(tables[0].columns, np.asarray(counts), float(1.0 / weights.sum()), tuple(flatness.tolist()))


def join_margins(interactions: Sequence[NoisyTable], singles: Mapping[str, NoisyTable]) -> list[NoisyTable]:
    """Put pair tables together from interactions and the noisy margins of their columns.

    Parameters
    ----------
    interactions
        Doubly centred counts of pairs; noise may lie outside of their subspace.
    singles
        One-way tables by column.
    """
    by_shape: dict[tuple[int, ...], list[NoisyTable]] = {}
    for table in interactions:
        by_shape.setdefault(table.counts.shape, []).append(table)
    joined = []
    for (rows, columns), group in by_shape.items():
        first = np.stack([singles[table.columns[0]].counts for table in group])
        second = np.stack([singles[table.columns[1]].counts for table in group])
        first_variance = np.array([singles[table.columns[0]].variance for table in group])
        second_variance = np.array([singles[table.columns[1]].variance for table in group])
        variance = np.array([table.variance for table in group])
        weights = 1.0 / (first_variance * rows), 1.0 / (second_variance * columns)
        total = (weights[0] * first.sum(axis=1) + weights[1] * second.sum(axis=1)) / (weights[0] + weights[1])
        across = first - first.mean(axis=1, keepdims=True)
        down = second - second.mean(axis=1, keepdims=True)
        counts = np.stack([table.counts for table in group])
        # noise outside of the subspace of interactions tells nothing: project it away
        counts = counts - counts.mean(axis=1, keepdims=True)
        counts = counts - counts.mean(axis=2, keepdims=True)
        counts = counts + across[:, :, None] / columns + down[:, None, :] / rows
        counts = counts + total[:, None, None] / (rows * columns)
        # moving all levels of one column together is the other column's margin, spread over this one's levels
        flatness = np.column_stack([second_variance / (rows * variance), first_variance / (columns * variance)])
        joined += [
            NoisyTable(table.columns, filled, table.variance, (flat[0], flat[1]))
            for table, filled, flat in zip(group, counts, flatness.tolist(), strict=True)
        ]
    return joined
