"""Similar conditional distributions: given the cause, the effect keeps its shape (CDS).

Fonollosa, Conditional distribution variability measures for causality detection, 2019. Columns are cut into cells of
half a standard deviation within three of the mean, which makes 13.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.search.pairwise.igci import standardise

Floats = NDArray[np.float64]

CELLS_PER_DEVIATION: Final = 2
LARGEST_DEVIATION: Final = 3
FEWEST_ROWS: Final = 12
"""A cell with no more rows than this says nothing."""


def compare_conditionals(first: Floats, second: Floats) -> float:
    """Return how much the law of first varies with second, less how much that of second varies with first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.uniform(-1, 1, 2000)
    >>> compare_conditionals(cause, cause**3 + rng.uniform(-0.3, 0.3, 2000)) > 0
    True
    """
    return conditional_variability(second, first) - conditional_variability(first, second)


def conditional_variability(given: Floats, target: Floats) -> float:
    """Return the standard deviation of the target's shares over the cells of the given column.

    In each cell the target has mean 0 and variance 1 before it is cut itself.
    """
    cells = cut(standardise(given))
    shares = []
    for cell in np.unique(cells):
        inside = target[cells == cell]
        if len(inside) > FEWEST_ROWS:
            places = cut(standardise(inside)) + CELLS_PER_DEVIATION * LARGEST_DEVIATION
            counts = np.bincount(places, minlength=2 * CELLS_PER_DEVIATION * LARGEST_DEVIATION + 1)
            shares.append(counts / len(inside))
    if not shares:
        return 0.0
    table = np.array(shares)
    return float((table - table.mean(axis=0)).std())


def cut(values: Floats) -> NDArray[np.int64]:
    """Return the number of the cell of each value, 0 in the middle.

    Examples
    --------
    >>> cut(np.array([-9.0, 0.2, 0.3, 2.9])).tolist()
    [-6, 0, 1, 6]
    """
    largest = CELLS_PER_DEVIATION * LARGEST_DEVIATION
    return np.clip(np.rint(values * CELLS_PER_DEVIATION), -largest, largest).astype(np.int64)
