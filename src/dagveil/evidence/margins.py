"""Marginal tables of one table of counts, all at once where they are few, and otherwise as they are asked for."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

CELLS_AT_ONCE = 2**17
"""Cells of all marginal tables together up to which they are summed at once."""

CELLS_REMEMBERED = 2**23
"""Cells of marginal tables that are kept for the next question."""


class Margins(Protocol):
    """Sums of a table over all columns but some."""

    def of(self, columns: tuple[int, ...]) -> Floats:
        """Sum out all columns but these, which are given in ascending order."""
        ...

    def locate(self, sets: Positions) -> tuple[Floats, Positions, Positions]:
        """Tell where the margins of many sets lie.

        Parameters
        ----------
        sets
            Positions of columns, in any order, shape (sets, columns of each).

        Returns
        -------
        cells, first, stride
            Cells in one row; for each set the place of its first cell; and how far the next level of each of its
            columns is from there, in the shape of `sets`.
        """
        ...


def margins_of(counts: Floats) -> Margins:
    """Return the margins of a table.

    Examples
    --------
    >>> margins_of(np.array([[1.0, 2.0], [3.0, 4.0]])).of((0,)).tolist()
    [3.0, 7.0]
    """
    together = math.prod(levels + 1 for levels in counts.shape)
    return AllMargins(counts) if together <= CELLS_AT_ONCE else AskedMargins(counts)


class AllMargins:
    """All marginal tables inside one: every column has one more level, which stands for all of its levels."""

    def __init__(self, counts: Floats) -> None:
        wide = counts
        after = 1
        # the last column first: sums then run over longer and longer rows
        for levels in reversed(counts.shape):
            parts = wide.reshape(-1, levels, after)
            wide = np.empty((len(parts), levels + 1, after))
            wide[:, :-1] = parts
            np.add.reduce(parts, axis=1, out=wide[:, -1])
            after *= levels + 1
        self.cells = np.append(wide, 0.0)
        self._wide = self.cells[:-1].reshape([levels + 1 for levels in counts.shape])
        self._stride = np.array(self._wide.strides, dtype=np.intp) // self._wide.itemsize
        self._summed = self._stride * np.array(counts.shape, dtype=np.intp)
        self._total = int(self._summed.sum())

    @property
    def nothing(self) -> int:
        """Place of a cell without a count."""
        return len(self.cells) - 1

    def of(self, columns: tuple[int, ...]) -> Floats:
        """Sum out all columns but these, which are given in ascending order."""
        place: list[int | slice] = [-1] * self._wide.ndim
        for column in columns:
            place[column] = slice(-1)
        return np.asarray(self._wide[tuple(place)])

    def locate(self, sets: Positions) -> tuple[Floats, Positions, Positions]:
        """Tell where the margins of many sets lie."""
        return self.cells, self._total - self._summed[sets].sum(axis=1), self._stride[sets]


class AskedMargins:
    """Marginal tables as they are asked for; the last ones are remembered.

    A margin is summed from the margin with one more column, so that sets with a common beginning share most of the
    work: from a million cells, thousands of sets take little longer than the first.
    """

    def __init__(self, counts: Floats) -> None:
        self._all = tuple(range(counts.ndim))
        self._counts = counts
        self._kept: OrderedDict[tuple[int, ...], Floats] = OrderedDict()
        self._cells = 0

    def of(self, columns: tuple[int, ...]) -> Floats:
        """Sum out all columns but these, which are given in ascending order."""
        if columns == self._all:
            return self._counts
        if columns in self._kept:
            self._kept.move_to_end(columns)
            return self._kept[columns]
        gone = max(set(self._all) - set(columns))
        larger = tuple(sorted((*columns, gone)))
        margin: Floats = self.of(larger).sum(axis=larger.index(gone))
        self._kept[columns] = margin
        self._cells += margin.size
        while self._cells > CELLS_REMEMBERED and len(self._kept) > 1:
            self._cells -= self._kept.popitem(last=False)[1].size
        return margin

    def locate(self, sets: Positions) -> tuple[Floats, Positions, Positions]:
        """Tell where the margins of many sets lie."""
        order = np.argsort(sets, axis=1)
        ascending = np.take_along_axis(sets, order, axis=1)
        margins = [self.of(tuple(columns)) for columns in ascending.tolist()]
        levels = np.array(self._counts.shape, dtype=np.intp)[ascending]
        after = np.cumprod(levels[:, :0:-1], axis=1, dtype=np.intp)[:, ::-1]
        stride = np.ones_like(sets)
        np.put_along_axis(stride, order[:, :-1], after, axis=1)
        first = np.cumsum([0, *(margin.size for margin in margins[:-1])], dtype=np.intp)
        return np.concatenate([margin.reshape(-1) for margin in margins]), first, stride
