"""All pair tables at once, as one matrix product of indicators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.distinct import WeightedRows

MOST_WORK: Final = 400_000_000
"""Multiplications up to which one product beats counting table by table."""

FEWEST_PAIRS: Final = 50
"""Fewer pairs than this are counted one by one."""

_BLOCK_ROWS: Final = 4096


def pays(column_sets: Sequence[Sequence[str]], levels: Mapping[str, int], n_rows: int) -> bool:
    """Tell whether the sets are pairs, many enough, over few enough rows and levels.

    Examples
    --------
    >>> from itertools import combinations
    >>> pays(list(combinations("abcdefghijkl", 2)), dict.fromkeys("abcdefghijkl", 2), 1000)
    True
    """
    if len(column_sets) < FEWEST_PAIRS or any(len(columns) != 2 for columns in column_sets):
        return False
    return n_rows * sum(levels.values()) ** 2 <= MOST_WORK


@dataclass(frozen=True, slots=True, eq=False)
class PairTables:
    """Every pair table of some columns, as blocks of one matrix."""

    levels: Mapping[str, int]
    starts: Mapping[str, int]
    products: NDArray[np.int64]

    def table(self, first: str, second: str) -> NDArray[np.int64]:
        """Return the table of two different columns."""
        row, column = self.starts[first], self.starts[second]
        return self.products[row : row + self.levels[first], column : column + self.levels[second]].copy()


def count_pairs(rows: WeightedRows, levels: Mapping[str, int]) -> PairTables:
    """Count every pair of columns.

    Each row becomes a vector of zeros and ones; the product of the matrix of these vectors with itself, rows weighted
    by their multiplicity, holds every pair table as a block. Sums of integers are exact in float32 below 2**24, and no
    sum exceeds the number of rows; beyond that float64 serves, exact below 2**53.
    """
    starts = dict(zip(levels, np.cumsum([0, *levels.values()])[:-1].tolist(), strict=True))
    width = sum(levels.values())
    total = np.zeros((width, width))
    n_rows = rows.n_rows if rows.weights is None else int(rows.weights.sum())
    dtype = np.float32 if n_rows < 2**24 else np.float64
    for start in range(0, rows.n_rows, _BLOCK_ROWS):
        block = slice(start, min(start + _BLOCK_ROWS, rows.n_rows))
        size = block.stop - block.start
        indicators = np.zeros((size, width), dtype=dtype)
        positions = np.arange(size)
        for name, first in starts.items():
            indicators[positions, first + rows.codes[name][block].astype(np.intp)] = 1.0
        weighted = indicators if rows.weights is None else indicators * rows.weights[block, None].astype(dtype)
        total += indicators.T @ weighted
    return PairTables(levels, starts, total.astype(np.int64))
