"""Exact access to the rows, as the published programs have it. Nothing here claims a guarantee.

The curator writes an `Unbounded` event to the ledger before it hands the rows over, and sound methods cannot
import this room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.data.table import Table


class PublishedAccess:
    """Exact answers, and a generator for noise as published.

    Parameters
    ----------
    table
        The rows.
    rng
        For noise and sub-samples; not a secure source, since nothing is claimed.
    """

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        self._table = table
        self._known: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self.rng = rng

    def __repr__(self) -> str:
        return f"PublishedAccess({self.schema.dataset!r})"

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""
        return self._table.schema

    @property
    def n_rows(self) -> int:
        """The exact number of rows, which all of the papers take as public."""
        return self._table.n_rows

    def exact_counts(self, x: str, y: str, given: Sequence[str]) -> NDArray[np.int64]:
        """Count rows in the shape (strata, levels of x, levels of y)."""
        names = (*given, x, y)
        if names not in self._known:
            counts = self._table.counts(names)
            self._known[names] = counts.reshape(-1, *counts.shape[len(names) - 2 :])
        return self._known[names]

    def exact_table(self, columns: tuple[str, ...]) -> NDArray[np.int64]:
        """Count rows by some columns."""
        return self._table.counts(columns)

    def exact_joint(self) -> NDArray[np.int64]:
        """Count rows by all columns."""
        return self._table.counts(tuple(self.schema.columns))

    def exact_moments(self, plan: MomentPlan) -> NDArray[np.int64]:
        """Sum the outer products of the rows, in fixed point."""
        return self._table.moments(plan)

    def exact_rows(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """Return the rows themselves, scaled to [-1, 1] by bounds and scores, in the shape (rows, k)."""
        return self._table.levelled_rows(columns, max(self.n_rows, 1))[: self.n_rows]

    def subsample(self, size: int) -> PublishedAccess:
        """Draw so many rows without replacement."""

        def keep(n_rows: int) -> NDArray[np.bool_]:
            kept = np.zeros(n_rows, dtype=np.bool_)
            kept[self.rng.choice(n_rows, min(size, n_rows), replace=False, shuffle=False)] = True
            return kept

        return PublishedAccess(self._table.thin(keep), self.rng)
