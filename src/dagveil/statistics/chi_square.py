"""Pearson's χ², and why additive noise does not fit it (docs/proofs/chi-square.md)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.budget import Relation
from dagveil.statistics.g import chi_square_quantile
from dagveil.statistics.statistic import Tables, TableShape, WholeTable

GRID: Final = 1 << 10  # steps of the grid for each unit of χ²


@dataclass(frozen=True, slots=True)
class ChiSquare(WholeTable):
    """χ² summed over strata, clipped at n₀·(fewest levels − 1), in steps of 2⁻¹⁰.

    One record can move it from 0 to the clip, so its sensitivity is its whole range: `refusal` says so.
    """

    name = "chi-square"

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return χ² for each table, in steps; floating point is harmless because the clip is the sensitivity."""
        counts = np.asarray(tables, dtype=np.float64)
        x_counts, y_counts = counts.sum(axis=-1), counts.sum(axis=-2)
        expected = x_counts[..., :, None] * y_counts[..., None, :]
        shares = (counts**2 / np.maximum(expected, 1.0)).sum(axis=(-2, -1))  # an empty margin has empty cells
        exact = (x_counts.sum(axis=-1) * (shares - 1.0)).sum(axis=-1)
        # half a step is added so that χ² that is a whole number of steps is not cut below it
        steps = np.clip(np.floor(GRID * exact + 0.5), 0, self._clip(*counts.shape[-2:]))
        return np.asarray(steps, dtype=np.int64)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the whole range, in steps, under both relations."""
        return max(self._clip(shape.x_levels, shape.y_levels), 1)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the quantile of χ² with the degrees of freedom of the declared shape, in steps."""
        return chi_square_quantile(level, shape) * GRID

    def refusal(self, relation: Relation) -> str | None:
        """Return why additive noise cannot be used, and what to use instead."""
        return (
            f"one record can move the chi-square statistic of two yes/no columns from 0 to the number of rows, here"
            f" {self.nominal_rows}, so noise that hides a record hides the statistic as well; use"
            " reconciled-chi-square, which counts the votes of sub-samples, or the statistic g or kendall"
        )

    def _clip(self, x_levels: int, y_levels: int) -> int:
        return GRID * self.nominal_rows * (min(x_levels, y_levels) - 1)
