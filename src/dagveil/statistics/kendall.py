"""Kendall's concordance with a public divisor, and its sensitivity (docs/proofs/kendall.md).

Also here, for the `paper` calibrations: the published p-value and the constants that were published for it. The
constants are too small, and the names say whose they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from dagveil.errors import EvidenceError
from dagveil.privacy.relation import Relation

if TYPE_CHECKING:
    from dagveil.statistics.statistic import Tables, TableShape

GRID: Final = 1 << 10
"""Steps of the grid for each unit of Σ 9K/(2m+5)."""

MOST_ROWS: Final = 1 << 32
"""Rows of a stratum below which K, at most m²/2, fits into 64 bits."""

PUBLISHED_KENDALL_CONSTANT: Final = 4.5
"""Priv-PC, theorem 3: sensitivity of the conditional statistic times √n. False: 5.25 and 6 in one block, no bound of
this form with small blocks, because the published divisor depends on the rows."""

CURATE_P_VALUE_CONSTANT: Final = 0.3627
"""CURATE's program: sensitivity of the p-value times √n. False: blocks switch in and out, whatever n is."""


@dataclass(frozen=True, slots=True)
class Kendall:
    """V = |Σ 2¹⁰·9K/(2m+5)|, each stratum rounded towards zero; no stratum is ever left out.

    K is concordant minus discordant pairs of a stratum with m rows; ties count 0. V/(2¹⁰·1.5·√n₀) is close to
    standard normal in absolute value if x and y are independent without ties and there are n₀ rows.

    Examples
    --------
    >>> Kendall(100).values(np.array([[[30, 20], [20, 30]]]))
    array(22478)
    """

    nominal_rows: int

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return "kendall"

    @property
    def parts(self) -> int:
        """One part: the whole table."""
        return 1

    @property
    def unit(self) -> float:
        """One step on the scale of a standard normal."""
        return 1.0 / (1.5 * GRID * math.sqrt(self.nominal_rows))

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return V for each table, in exact integers."""
        tables = np.asarray(tables, dtype=np.int64)
        rows = tables.sum(axis=(-2, -1))
        return divide_and_sum(count_concordance(tables), 9 * GRID, 2 * check_rows(rows) + 5)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the sensitivity in steps: theorems 1 and 2 of docs/proofs/kendall.md.

        Examples
        --------
        >>> from dagveil.statistics.statistic import TableShape
        >>> [Kendall(100).sensitivity(relation, TableShape(3, 2, 2)) / GRID for relation in Relation]
        [4.5, 9.0]
        """
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

    def refusal(self, relation: Relation) -> str | None:
        """Return None: additive noise fits."""
        return None


def count_concordance(tables: Tables) -> NDArray[np.int64]:
    """Return concordant minus discordant pairs of each stratum; ties count 0.

    Examples
    --------
    >>> count_concordance(np.array([[2, 0, 0], [0, 0, 3]]))
    array(6)
    """
    pairs: NDArray[np.int64]
    if tables.shape[-2:] == (2, 2):
        pairs = np.asarray(tables[..., 0, 0] * tables[..., 1, 1] - tables[..., 0, 1] * tables[..., 1, 0])
        return pairs
    smaller_x = tables.cumsum(axis=-2) - tables
    smaller_both = smaller_x.cumsum(axis=-1) - smaller_x
    larger_y = smaller_x.sum(axis=-1, keepdims=True) - smaller_both - smaller_x
    pairs = np.asarray((tables * (smaller_both - larger_y)).sum(axis=(-2, -1)))
    return pairs


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
    """Return the two-sided quantile of the standard normal.

    Examples
    --------
    >>> round(normal_quantile(0.05), 3)
    1.96
    """
    return -float(ndtri(level / 2.0))


def published_scores(tables: Tables) -> NDArray[np.float64]:
    """Return the published |z| = |Σ wτ|/√Σw for each table: exact, and without a bounded sensitivity.

    Blocks with at most two rows, or in which x or y is constant, are left out of both sums. Without a block left, 0.
    """
    top, weight = _published_sums(tables)
    # a kept block weighs at least 27/11, so the floor touches only tables without one
    return np.asarray(np.abs(top) / np.sqrt(np.maximum(weight, 1.0)))


def published_p_values(tables: Tables) -> NDArray[np.float64]:
    """Return the published one-sided p-values sf(|z|), at most ½: exact, and not to be released as they are.

    Without a block left the published programs divide zero by zero, and what comes out never passes for independent:
    0 stands for it here.

    Examples
    --------
    >>> round(float(published_p_values(np.array([[[30, 20], [20, 30]]]))), 4)
    0.0682
    """
    top, weight = _published_sums(tables)
    scores = np.abs(top) / np.sqrt(np.maximum(weight, 1.0))
    return np.asarray(np.where(weight > 0.0, ndtr(-scores), 0.0))


def _published_sums(tables: Tables) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Σ wτ and Σ w over the blocks that are kept."""
    tables = np.asarray(tables, dtype=np.int64)
    x_counts, y_counts = tables.sum(axis=-1), tables.sum(axis=-2)
    rows = x_counts.sum(axis=-1)
    kept = (rows > 2) & (x_counts.max(axis=-1) < rows) & (y_counts.max(axis=-1) < rows)
    slope = 9.0 / (2.0 * rows + 5.0) * kept
    top = (slope * count_concordance(tables)).sum(axis=-1)
    weight = (0.5 * slope * rows * (rows - 1.0)).sum(axis=-1)
    return top, weight


def published_p_value_sensitivity(n_rows: int) -> float:
    """Return Φ(6/√n) − ½, Priv-PC's sensitivity of the p-value. False: blocks switch in and out, whatever n is.

    Examples
    --------
    >>> round(published_p_value_sensitivity(100_000), 5)
    0.00757
    """
    return float(ndtr(6.0 / math.sqrt(n_rows))) - 0.5
