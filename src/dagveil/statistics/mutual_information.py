"""Mutual information: the G statistic in another unit (docs/proofs/g.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dagveil.privacy.relation import Relation
from dagveil.statistics.g import G

if TYPE_CHECKING:
    from dagveil.statistics.statistic import Tables, TableShape


@dataclass(frozen=True, slots=True)
class MutualInformation:
    """G/(2 n₀) in nats, with the public nominal number of rows n₀: the same integers as G.

    Examples
    --------
    >>> statistic = MutualInformation(100)
    >>> round(float(statistic.unit * statistic.values(np.array([[[50, 0], [0, 50]]]))), 4)
    0.6931
    """

    nominal_rows: int

    @property
    def name(self) -> str:
        """The name of the statistic."""
        return "mutual-information"

    @property
    def parts(self) -> int:
        """One part: the whole table."""
        return 1

    @property
    def unit(self) -> float:
        """One step in nats per row."""
        return G(self.nominal_rows).unit / (2 * self.nominal_rows)

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return the values of G."""
        return G(self.nominal_rows).values(tables)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return the sensitivity of G."""
        return G(self.nominal_rows).sensitivity(relation, shape)

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the critical value of G."""
        return G(self.nominal_rows).critical_value(level, rows, shape, ties)

    def refusal(self, relation: Relation) -> str | None:
        """Return None: additive noise fits."""
        return None
