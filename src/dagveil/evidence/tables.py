"""Noisy tables of counts, and how several releases of the same counts become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
        Variance of the noise in each cell.
    """

    columns: tuple[str, ...]
    counts: NDArray[np.float64]
    variance: float

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
        width = int(np.prod([self.counts.shape[axis] for axis in gone]))
        return NoisyTable(columns, summed.transpose(order), self.variance * width)


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
    return NoisyTable(tables[0].columns, np.asarray(counts), float(1.0 / weights.sum()))
