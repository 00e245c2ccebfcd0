"""What changes from column to column of a study's tables, and from left to right in its figures."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from dagveil_bench.studies.plan import Role
from dagveil_bench.studies.summary import Spot


class Axis(enum.Enum):
    """What a study varies."""

    BUDGET = "budget"
    """Several budgets; tables and panels for each data set and number of rows."""

    ROWS = "rows"
    """One budget and one data set in several numbers of rows."""

    DATA = "data"
    """One budget; tables and panels for each number of rows."""


def choose_axis(spots: Sequence[Spot]) -> Axis:
    """Return what the contenders of a study vary."""
    if len({spot.epsilon for spot in spots if spot.role is Role.CONTENDER}) != 1:
        return Axis.BUDGET
    several_rows = len({spot.n_rows for spot in spots}) > 1
    return Axis.ROWS if several_rows and len({spot.data for spot in spots}) == 1 else Axis.DATA
