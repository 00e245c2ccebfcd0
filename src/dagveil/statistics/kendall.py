"""Kendall's concordance with a public divisor, and its sensitivity (docs/proofs/kendall.md)."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dagveil.errors import EvidenceError
from dagveil.privacy.budget import Relation
from dagveil.statistics.statistic import Tables, TableShape, WholeTable

GRID: Final = 1 << 10  # steps of the grid for each unit of Σ 9K/(2m+5)
MOST_ROWS: Final = 1 << 32  # rows of a stratum below which K, at most m²/2, fits into 64 bits


@dataclass(frozen=True, slots=True)
class Kendall(WholeTable):
    """V = |Σ 2¹⁰·9K/(2m+5)|, each stratum rounded towards zero; no stratum is ever left out.

    K is concordant minus discordant pairs of a stratum with m rows; ties count 0. V/(2¹⁰·1.5·√n₀) is close to
    standard normal in absolute value if x and y are independent without ties and there are n₀ rows.
    """

    name = "kendall"

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return V for each table, in exact integers."""
        tables = np.asarray(tables, dtype=np.int64)
        rows = tables.sum(axis=(-2, -1))
        return divide_and_sum(count_concordance(tables), 9 * GRID, 2 * check_rows(rows) + 5)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the sensitivity in steps: theorems 1 and 2 of docs/proofs/kendall.md."""
        fewest, most = sorted((shape.x_levels, shape.y_levels))
        if fewest < 2:
            return 1  # always 0; noise needs a positive scale all the same
        # 27/4 − 9/(4(r − 1)) = 9(3r − 4)/(4(r − 1)), rounded up to a step: then rounding of V adds nothing (lemma 1)
        added = -(-GRID * 9 * (3 * fewest - 4) // (4 * (fewest - 1)))
        if relation is Relation.ADD_REMOVE:
            return added
        inside = 9 * GRID if most > 2 else 9 * GRID // 2
        return inside if shape.strata == 1 else max(inside, 2 * added)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the two-sided normal quantile times the deviation of V under independence."""
        return normal_quantile(level) * math.sqrt(ties * rows) * 1.5 * GRID


def count_concordance(tables: Tables) -> NDArray[np.int64]:
    """Return concordant minus discordant pairs of each stratum; ties count 0."""
    if tables.shape[-2:] == (2, 2):
        return np.asarray(tables[..., 0, 0] * tables[..., 1, 1] - tables[..., 0, 1] * tables[..., 1, 0])
    smaller_x = tables.cumsum(axis=-2) - tables
    smaller_both = smaller_x.cumsum(axis=-1) - smaller_x
    larger_y = smaller_x.sum(axis=-1, keepdims=True) - smaller_both - smaller_x
    return np.asarray((tables * (smaller_both - larger_y)).sum(axis=(-2, -1)))


def divide_and_sum(tops: NDArray[np.int64], factor: int, bottoms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return |Σ factor·top/bottom| over the strata, each quotient rounded towards zero.

    The division comes first, so that nothing leaves 64 bits: ⌊factor·top/bottom⌋ = factor·q + ⌊factor·r/bottom⌋.
    """
    sizes = np.abs(tops)
    quotients = sizes // bottoms
    sizes = factor * quotients + factor * (sizes - quotients * bottoms) // bottoms
    return np.asarray(np.abs((np.sign(tops) * sizes).sum(axis=-1)))


def check_rows(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the strata, or refuse strata that do not fit into 64-bit arithmetic."""
    if rows.max(initial=0) >= MOST_ROWS:
        raise EvidenceError(f"a stratum has {MOST_ROWS} rows or more; rank statistics are exact below that only")
    return rows


def normal_quantile(level: float) -> float:
    """Return the two-sided quantile of the standard normal."""
    return -float(ndtri(level / 2.0))
