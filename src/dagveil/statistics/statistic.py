"""What a plug-in test statistic is: integers on a public grid, with a sensitivity that no neighbour exceeds."""

from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import EvidenceError
from dagveil.privacy.budget import Relation

Tables: TypeAlias = NDArray[np.int64]
"""Counts with the axes (..., strata, levels of x, levels of y); leading axes are a batch."""


class TableShape(NamedTuple):
    """The declared shape of one question: public, never read from the rows."""

    strata: int
    x_levels: int
    y_levels: int


class Statistic(Protocol):
    """A measure of dependence of x and y inside strata, in steps of a public grid."""

    @property
    def name(self) -> str:
        """The name by which `statistic_named` knows it."""

    @property
    def parts(self) -> int:
        """Parts that the records are dealt out to; where there is more than one, `values` takes the tables by part."""

    def values(self, tables: Tables) -> NDArray[np.int64]:
        """Return one integer of at least 0 for each table of the batch; a larger one speaks for dependence."""

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return a number of steps, at least 1, that no two neighbours exceed; rounding is part of it."""

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the number of steps above which the exact statistic says "dependent" at this level.

        Rows and ties may come from noisy counts: they move the level of the test, never the guarantee. Ties is
        (1 − Σp³)(1 − Σq³) for the shares p and q of the levels of x and y; only rank statistics read it.
        """

    def refusal(self, relation: Relation) -> str | None:
        """Return why additive noise cannot be used with this statistic, or None if it can."""


@dataclass(frozen=True, slots=True)
class WholeTable:
    """What statistics have in common that read one table, and to which additive noise fits unless they refuse it."""

    nominal_rows: int
    name: ClassVar[str]
    parts: ClassVar[int] = 1

    def refusal(self, relation: Relation) -> str | None:
        """Return None: additive noise fits."""
        return None


_CLASSES: Final = {
    "kendall": ("kendall", "Kendall"),
    "spearman": ("spearman", "Spearman"),
    "g": ("g", "G"),
    "chi-square": ("chi_square", "ChiSquare"),
    "mutual-information": ("g", "MutualInformation"),
}
STATISTIC_NAMES: Final[tuple[str, ...]] = tuple(_CLASSES)


def statistic_named(name: str, nominal_rows: int) -> Statistic:
    """Return the statistic of this name for a public nominal number of rows."""
    if name not in _CLASSES:
        raise EvidenceError(f"no statistic is called {name!r}; choose one of {', '.join(STATISTIC_NAMES)}")
    if nominal_rows < 1:
        raise EvidenceError(f"the nominal number of rows is {nominal_rows}; declare at least 1 in the schema")
    module, kind = _CLASSES[name]
    statistic: Statistic = getattr(import_module(f"dagveil.statistics.{module}"), kind)(nominal_rows)
    return statistic
