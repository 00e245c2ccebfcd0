"""Cells between powers of two, on both sides of a public start, and what noisy counts in them say about a column.

A cell holds its lower edge. All numbers that there are have a cell: infinities and numbers beyond the last power of two
the outer ones, missing values one of their own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.data.column import OWN_LEVEL, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import SchemaError
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import NoisyCounts
from dagveil.statistics.contingency import counts_sensitivity, counts_squared_sensitivity

# bounds that say nothing: what a numeric column without bounds has until they are found
UNKNOWN_BOUNDS: Final = (-sys.float_info.max, sys.float_info.max)
# powers of two that part the cells: from a billionth to a trillion millions. All numbers beyond share outer cells
EXPONENTS: Final = range(-30, 61)
# farthest from zero that a search may start: beyond, all powers of two would soon vanish in rounding
FARTHEST_START: Final = 2.0**100
# probability that noise makes any empty cell of any column look occupied: one such cell can ruin bounds
FALSE_CELLS: Final = 0.001
NORMAL_IQR: Final = 1.349  # distance of the quartiles of a standard normal distribution


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What the released counts say about one column.

    Bounds are outer edges of the outermost cells that noise does not explain, the center is the noisy median, and the
    spread the distance of the noisy quartiles / 1.349; None where no cell lies between them, so that it could be
    anything. `beyond` tells whether values lie beyond the outermost power of two; the bounds then end there.
    """

    column: str
    bounds: tuple[float, float]
    center: float
    spread: float | None
    beyond: bool


def part_line(start: float) -> Numeric:
    """Return a column that counts in cells between powers of two on both sides of a start."""
    if not abs(start) <= FARTHEST_START:
        raise SchemaError(
            f"center is {start:g}, and a search can start at most {FARTHEST_START:.3g} from zero; declare bounds"
        )
    steps = [2.0**exponent for exponent in EXPONENTS]
    # far from zero, small steps vanish in rounding
    cuts = sorted({start, *(start - step for step in steps), *(start + step for step in steps)})
    return Numeric(bounds=UNKNOWN_BOUNDS, bins=tuple(cuts), missing=OWN_LEVEL)


def find_threshold(accounting: Filter, schema: Schema) -> float:
    """Return how many rows a cell needs, so that noise lifts no empty cell above that but with a small probability.

    The probability is `FALSE_CELLS` for all cells of all columns together (Bonferroni).
    """
    relation, tables = Relation(schema.relation), len(schema.columns)
    tail = FALSE_CELLS / sum(column.n_levels for column in schema.columns.values())
    if isinstance(accounting, PureFilter):
        scale = float(counts_sensitivity(relation, tables) / accounting.total)
        # P(noise >= t) = e^(-t / scale) / (1 + e^(-1 / scale)) for whole t
        # and half a row less asks the same of whole counts
        rows = math.ceil(-scale * math.log(tail * (1.0 + math.exp(-1.0 / scale)))) - 0.5
    else:
        deviation = math.sqrt(counts_squared_sensitivity(relation, tables) / accounting.total)
        rows = deviation * -float(special.ndtri(tail))
    # where there is hardly any noise, a cell still needs a row
    return max(rows, 0.5)


def read_counts(
    released: NoisyCounts, cuts: Sequence[float], start: float, threshold: float, coverage: float = 1.0
) -> ColumnBounds | None:
    """Read bounds, median and spread of one column from its noisy counts; None if no cell stands out.

    Counts are those below the first cut, between cuts, above the last one, and of missing values. Cells with fewer rows
    than the threshold count as empty; coverage is the share of the rows that the bounds need to hold.
    """
    counts = released.counts[:-1]
    counts = np.where(counts >= threshold, counts, 0.0)
    # values beyond the outermost cuts are clipped to them
    lower, upper = np.array([cuts[0], *cuts]), np.array([*cuts, cuts[-1]])
    spare = (1.0 - coverage) / 2.0 * counts.sum()
    inside = np.flatnonzero((np.cumsum(counts) > spare) & (np.cumsum(counts[::-1])[::-1] > spare))
    if counts.sum() == 0.0 or lower[inside[0]] >= upper[inside[-1]]:
        return None
    bounds = float(lower[inside[0]]), float(upper[inside[-1]])
    places = {share: _find_quantile(counts, lower, upper, share) for share in (0.25, 0.5, 0.75)}
    (first, low), (_, middle), (last, high) = places.values()
    # a cell between those of the quartiles fixes their distance up to a factor of 3.5; neighbours could be any distance
    told = lower[last] > upper[first]
    return ColumnBounds(
        column=released.columns[0],
        bounds=bounds,
        center=min(max(_round_center(middle, start), bounds[0]), bounds[1]),
        spread=_round((high - low) / NORMAL_IQR) if told else None,
        beyond=bool(counts[0] > 0.0 or counts[-1] > 0.0),
    )


def _find_quantile(
    counts: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64], share: float
) -> tuple[int, float]:
    """Return the cell of a quantile, and the quantile as if the rows lay evenly in it."""
    reached = np.cumsum(counts)
    goal = share * float(reached[-1])
    cell = int(np.searchsorted(reached, goal))
    inside = 1.0 - (float(reached[cell]) - goal) / float(counts[cell])
    return cell, float(lower[cell] + inside * (upper[cell] - lower[cell]))


def _round_center(center: float, start: float) -> float:
    # inside of the innermost cells nothing is known but that it is the start, as for a column of zeros
    return start if abs(center - start) <= 2.0 ** EXPONENTS[0] else start + _round(center - start)


def _round(number: float) -> float:
    # digits beyond the third are noise, or an accident of the cells
    return float(f"{number:.3g}")
