"""Spearman's rank sum with a public divisor, and its sensitivity (docs/proofs/spearman.md)."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.budget import Relation
from dagveil.statistics.kendall import GRID, check_rows, count_concordance, divide_and_sum, normal_quantile
from dagveil.statistics.statistic import Tables, TableShape, WholeTable

MOST_SHORT_ROWS: Final = 2_000_000
"""Rows of a stratum up to which Q, whose partial sums are at most m³, is computed in 64 bits."""


@dataclass(frozen=True, slots=True)
class Spearman(WholeTable):
    """V = |Σ 2¹⁰·3Q/(m(m+1))|, each stratum rounded towards zero; no stratum is ever left out.

    Q is the sum over the rows of a stratum of A·B, where A is the number of rows with a smaller x minus the number
    with a larger x, and B the same for y. Without ties 3Q/(m(m+1)) is (m − 1)·ρ.
    """

    name = "spearman"

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return V for each table, in exact integers."""
        tables = np.asarray(tables, dtype=np.int64)
        rows = check_rows(tables.sum(axis=(-2, -1)))
        if 2 in tables.shape[-2:]:
            # with two levels on one side Q = m·K (lemma 3 of the proof): shorter numbers
            return divide_and_sum(count_concordance(tables), 3 * GRID, rows + 1)
        if rows.max(initial=0) <= MOST_SHORT_ROWS:
            return divide_and_sum(sum_rank_products(tables), 3 * GRID, np.maximum(rows * (rows + 1), 1))
        long_rows = rows.astype(object)  # Python's integers
        bottoms = long_rows * (long_rows + 1) + (rows == 0)
        return divide_and_sum(sum_rank_products(tables.astype(object)), 3 * GRID, bottoms).astype(np.int64)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the sensitivity in steps: theorems 1 and 2 of docs/proofs/spearman.md."""
        fewest, most = sorted((shape.x_levels, shape.y_levels))
        if fewest < 2:
            return 1  # always 0; noise needs a positive scale all the same
        added = 3 * GRID if fewest == 2 else 5 * GRID
        if relation is Relation.ADD_REMOVE:
            return added
        inside = 6 * GRID if most > 2 else 3 * GRID
        return inside if shape.strata == 1 else max(inside, 2 * added)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the two-sided normal quantile times the deviation of V under independence."""
        return normal_quantile(level) * math.sqrt(ties * rows) * GRID


def sum_rank_products(tables: Tables) -> NDArray[np.int64]:
    """Return Q of each stratum: the sum over its rows of (smaller − larger x)·(smaller − larger y)."""
    x_counts, y_counts = tables.sum(axis=-1), tables.sum(axis=-2)
    rows = x_counts.sum(axis=-1, keepdims=True)
    x_ranks = 2 * x_counts.cumsum(axis=-1) - x_counts - rows
    y_ranks = 2 * y_counts.cumsum(axis=-1) - y_counts - rows
    return np.asarray((tables * x_ranks[..., :, None] * y_ranks[..., None, :]).sum(axis=(-2, -1)))
