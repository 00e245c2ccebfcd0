"""The G statistic from a public table of t ln t, and its sensitivity (docs/proofs/g.md)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from dagveil.privacy.budget import Relation
from dagveil.statistics.statistic import Tables, TableShape, WholeTable

GRID: Final = 1 << 20  # steps of the grid for each unit of G
DENSE_ROWS: Final = 1 << 20
"""Counts up to which every step of 2 t ln t is tabled; above, chords of BLOCK rows stand for the curve."""

BLOCK_BITS: Final = 8
BLOCK: Final = 1 << BLOCK_BITS


@dataclass(frozen=True, slots=True, eq=False)
class EntropyTable:
    """F(t), about 2²⁰·2 t ln t in integers, with increments that never fall and stop growing at a public count.

    Both properties hold for the integers themselves, whatever the logarithm's last digits were: the sensitivity is
    read off the table, and floating point has no part in it.
    """

    dense: NDArray[np.int64]
    bases: NDArray[np.int64]
    slopes: NDArray[np.int64]

    @property
    def steepest(self) -> int:
        """The largest increment of all."""
        return int(self.slopes[-1])

    @property
    def bend(self) -> int:
        """A bound on F′(u+v) − F′(u) − F′(v) for increments F′: 0 for the curve, rounding and chords here."""
        return 2 if len(self.slopes) == 1 else 3 * (2 * GRID * BLOCK // DENSE_ROWS + 2)

    def look_up(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return F of each count."""
        last = len(self.dense) - 1
        near = np.minimum(counts, last)
        found: NDArray[np.int64] = self.dense[near]
        beyond = counts - near
        if beyond.any():
            block = np.minimum(beyond >> BLOCK_BITS, len(self.slopes) - 1)
            found = found + self.bases[block] + (beyond - (block << BLOCK_BITS)) * self.slopes[block]
        return found


@lru_cache(maxsize=4)
def tabulate_entropy(cap: int) -> EntropyTable:
    """Return the table whose increments stop growing at this count."""
    last = min(cap, DENSE_ROWS)
    increments = _round_increments(np.arange(last), 1, floor=0)
    dense = np.concatenate([[0], np.cumsum(increments)])
    slopes = increments[-1:]
    if cap > last:
        slopes = _round_increments(np.arange(last, cap, BLOCK), BLOCK, floor=int(slopes[0]))
    bases = np.concatenate([[0], np.cumsum(BLOCK * slopes[:-1])])
    for array in (dense, bases, slopes):
        array.setflags(write=False)
    return EntropyTable(dense, bases, slopes)


def _round_increments(starts: NDArray[np.int64], width: int, floor: int) -> NDArray[np.int64]:
    """Return the slope of 2²⁰·2 t ln t from each start over this width, rounded, at least the floor, never falling."""
    # (t + w) ln(t + w) − t ln t = t ln(1 + w/t) + w ln(t + w), which does not cancel
    logs = starts * np.log1p(width / np.maximum(starts, 1)) + width * np.log(starts + width)
    rounded = np.rint(2 * GRID / width * logs).astype(np.int64)
    return np.maximum(np.maximum.accumulate(rounded), floor)


@dataclass(frozen=True, slots=True)
class G(WholeTable):
    """G = Σ F(N_ab) − F(N_a) − F(N_b) + F(m) over strata, at least 0, in steps of 2⁻²⁰.

    F is 2 t ln t up to the nominal number of rows, and goes on as a straight line: that bounds what one record does,
    however many rows there are.
    """

    name = "g"

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return G for each table, in steps."""
        tables = np.asarray(tables, dtype=np.int64)
        batch = tables.shape[:-3]
        x_counts, y_counts = tables.sum(axis=-1), tables.sum(axis=-2)
        # one look-up for all counts is what makes a single table fast
        parts = [part.reshape(*batch, -1) for part in (tables, x_counts, y_counts, x_counts.sum(axis=-1))]
        found = tabulate_entropy(self.nominal_rows).look_up(np.concatenate(parts, axis=-1))
        ends = np.cumsum([part.shape[-1] for part in parts])
        plus = found[..., : ends[0]].sum(axis=-1) + found[..., ends[2] :].sum(axis=-1)
        return np.asarray(np.maximum(plus - found[..., ends[0] : ends[2]].sum(axis=-1), 0))

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the sensitivity in steps: theorems 1 to 3 of docs/proofs/g.md."""
        fewest = min(shape.x_levels, shape.y_levels)
        if fewest < 2:
            return 1  # always 0; noise needs a positive scale all the same
        table = tabulate_entropy(self.nominal_rows)
        if relation is Relation.ADD_REMOVE:
            return max(table.steepest, 1)
        if shape.strata == 1 and fewest == 2:
            return max(table.steepest, 1) + table.bend
        return max(2 * table.steepest, 1)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the quantile of χ² with the degrees of freedom of the declared shape, in steps."""
        return chi_square_quantile(level, shape) * GRID


def chi_square_quantile(level: float, shape: TableShape) -> float:
    """Return the quantile of χ² that a statistic of this declared shape exceeds with this probability."""
    freedom = shape.strata * (shape.x_levels - 1) * (shape.y_levels - 1)
    return float(chdtri(freedom, level)) if freedom else 0.0


@dataclass(frozen=True, slots=True)
class MutualInformation(G):
    """G/(2 n₀), n₀ being the public nominal number of rows, in steps of the same worth: the same integers as G."""

    name = "mutual-information"
