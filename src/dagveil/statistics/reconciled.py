"""Tests of independence on disjoint parts of the rows, put together by votes or by a median (docs/proofs/votes.md).

The G test and the χ² test have no useful sensitivity of their own. Here each part of the rows runs the ordinary test,
and one record can change the answer of one part only.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtrc, xlogy

from dagveil.errors import EvidenceError
from dagveil.privacy.budget import Relation

if TYPE_CHECKING:  # the room's own protocol, which lists the statistics
    from dagveil.statistics.statistic import TableShape

VOTE_SENSITIVITY: Final = 1
"""One record changes the answer of one part, if the part of a record does not depend on other records."""

GRID: Final = 2**20  # P-values are rounded to multiples of 1/GRID


class PartTest(enum.Enum):
    """The ordinary test that each part runs."""

    G = "g"
    CHI_SQUARE = "chi-square"


def part_p_values(tables_by_part: NDArray[np.int64], test: PartTest) -> NDArray[np.float64]:
    """Return the p-value of each part, from its statistic and degrees of freedom summed over the strata.

    A stratum in which so many rows and columns of the table are not empty counts (rows − 1)(columns − 1) degrees of
    freedom, at least 0. A part without any has the p-value 1: it does not speak against independence.

    - `tables_by_part`: counts of shape (parts, strata, levels of x, levels of y).
    """
    if tables_by_part.ndim != 4 or 0 in tables_by_part.shape:
        raise EvidenceError(
            "tables by part have the shape (parts, strata, levels of x, levels of y), all above 0; got "
            f"{tables_by_part.shape}."
        )
    observed = tables_by_part.astype(np.float64)
    across, down = observed.sum(axis=3, keepdims=True), observed.sum(axis=2, keepdims=True)
    total = down.sum(axis=3, keepdims=True)
    # an empty row, column or stratum expects nothing and observes nothing; the 1 keeps it out of the division
    expected = across * down / np.maximum(total, 1)
    safe = np.where(expected > 0, expected, 1)
    if test is PartTest.G:
        terms = 2 * xlogy(observed, np.where(observed > 0, observed, 1) / safe)
    else:
        terms = (observed - expected) ** 2 / safe
    statistic = np.maximum(terms.sum(axis=(1, 2, 3)), 0)
    rows, columns = (across > 0).sum(axis=(2, 3)), (down > 0).sum(axis=(2, 3))
    freedom = (np.maximum(rows - 1, 0) * np.maximum(columns - 1, 0)).sum(axis=1)
    return np.asarray(np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), statistic), 1.0))


def votes(tables_by_part: NDArray[np.int64], test: PartTest, level: float) -> int:
    """Count the parts whose test rejects independence at the level: those with a p-value of at most the level."""
    _check_level(level)
    return int((part_p_values(tables_by_part, test) <= level).sum())


def part_statistics(tables_by_part: NDArray[np.int64], test: PartTest) -> NDArray[np.int64]:
    """Return the p-value of each part as an integer from 0 to GRID, rounded to the nearest multiple of 1/GRID."""
    return np.rint(part_p_values(tables_by_part, test) * GRID).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The votes of a fixed number of parts as one statistic: how many of them reject independence."""

    test: PartTest  # the test of each part
    parts: int  # number of parts, public
    part_level: float = 0.05  # level of the test of each part

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise EvidenceError(f"votes need at least 1 part, not {self.parts}.")
        _check_level(self.part_level)

    @property
    def name(self) -> str:
        """The name of the test on the whole table."""
        return f"reconciled-{self.test.value}"

    def values(self, tables: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the parts that reject independence; the tables come by part."""
        if len(tables) != self.parts:
            raise EvidenceError(f"{self.name} was declared with {self.parts} parts; got {len(tables)}.")
        return np.asarray(votes(tables, self.test, self.part_level), dtype=np.int64)

    def sensitivity(self, relation: Relation, shape: TableShape) -> int:
        """Return 1, whatever the relation and the shape; docs/proofs/votes.md says how rows must be dealt to parts."""
        return VOTE_SENSITIVITY

    def critical_value(self, level: float, rows: float, shape: TableShape, ties: float = 1.0) -> float:
        """Return the number of votes above which independence is rejected at this level: a binomial quantile.

        Half a vote is added, so that noise of either sign has the same way to go.
        """
        _check_level(level)
        chances = bdtrc(np.arange(self.parts + 1), self.parts, self.part_level)  # of more than so many votes
        return float(np.argmax(chances <= level * (1 + 1e-9))) + 0.5

    def refusal(self, relation: Relation) -> str | None:
        """Return None: votes take additive noise under both relations."""
        return None


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise EvidenceError(f"the level of a test lies between 0 and 1, not {level}; common values are 0.01 and 0.05.")
