"""All pair tables at once, as one matrix product of indicators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    width = sum(levels[name] for name in {name for columns in column_sets for name in columns})
    return n_rows * width**2 <= MOST_WORK


def count_pairs(
    rows: WeightedRows, pairs: Sequence[Sequence[str]], levels: Mapping[str, int]
) -> list[NDArray[np.int64]]:
    """Count every pair of columns.

    Each row becomes a vector of zeros and ones; the product of the matrix of these vectors with itself, rows weighted
    by their multiplicity, holds every pair table as a block. Sums of integers below 2**53 are exact in float64.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    starts = dict(zip(names, np.cumsum([0, *(levels[name] for name in names)])[:-1].tolist(), strict=True))
    width = sum(levels[name] for name in names)
    total = np.zeros((width, width))
    for start in range(0, rows.n_rows, _BLOCK_ROWS):
        block = slice(start, min(start + _BLOCK_ROWS, rows.n_rows))
        size = block.stop - block.start
        indicators = np.zeros((size, width))
        positions = np.arange(size)
        for name in names:
            indicators[positions, starts[name] + rows.codes[name][block].astype(np.intp)] = 1.0
        weighted = indicators if rows.weights is None else indicators * rows.weights[block, None]
        total += indicators.T @ weighted
    exact = total.astype(np.int64)
    return [exact[starts[a] : starts[a] + levels[a], starts[b] : starts[b] + levels[b]].copy() for a, b in pairs]
