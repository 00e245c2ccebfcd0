"""The protocol of table engines.

An engine answers **exact** counts and sums. It holds rows, so only the curator may hold one; whatever it answers must
pass through noise before anyone else sees it. The shape of every answer follows from the schema and the question alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.data.gradients import GradientPlan
from dagveil.data.moments import MomentPlan, OuterProducts
from dagveil.data.schema import Schema
from dagveil.errors import SchemaError

MAX_CELLS: Final = 2**27  # the largest number of cells of one count table: one gigabyte


class Table(Protocol):
    """Exact answers about the rows of one data set. Only the curator may hold one."""

    @property
    def schema(self) -> Schema:
        """What is public about the data set."""

    @property
    def n_rows(self) -> int:
        """The exact number of rows: as sensitive as any other count."""

    @property
    def lattice(self) -> int:
        """What one row counts: 1, or more where it is shared among the records of a person."""

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Count rows by the codes of some columns, in the shape (levels of columns[0], levels of columns[1], …)."""

    def counts_many(self, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Answer many `counts` together; the engine shares work among them."""

    def outer_products(self, query: OuterProducts) -> NDArray[np.int64]:
        """Sum the outer products of the vectors that a query makes of rows, exactly, the constant first."""

    def gradients(self, plan: GradientPlan) -> NDArray[np.int64]:
        """Sum the clipped gradients of all rows, in fixed point, in the shape (d, d)."""

    def curvature(self, plan: MomentPlan, direction: NDArray[np.float64], cap: float) -> int:
        """Sum the clipped squared lengths of all rows' images under a direction, in fixed point."""

    def levelled_rows(self, columns: Sequence[str], slots: int) -> NDArray[np.float64]:
        """Give rows in [-1, 1], (slots, k): those that their own cells choose, then filler; a part refuses."""

    def magnitude_counts(self, column: str, center: float, exponents: range) -> NDArray[np.int64]:
        """Count rows with 2**(k-1) < |x - center| <= 2**k for every k; the first and the last cell are open-ended."""

    def thin(self, keep: Callable[[int], NDArray[np.bool_]]) -> Table:
        """Return the table of some rows; `keep`, given the number of rows, says at random which. Counts only."""

    def split(self, parts: int, assign: Callable[[int], NDArray[np.int64]]) -> Sequence[Table]:
        """Deal the rows out to parts; `assign`, given the number of rows, gives each row its part, at random."""


def table_shape(schema: Schema, columns: Sequence[str]) -> tuple[int, ...]:
    """Give the shape of the count table of some columns, or refuse a question that has no sensible answer."""
    if isinstance(columns, str):
        raise SchemaError(f"columns is the single text {columns!r}; give a list of names")
    check_columns(schema, columns)
    if len(set(columns)) < len(columns):
        raise SchemaError(f"a column is named twice in {', '.join(columns)}; name each column once")
    shape = tuple(schema.columns[name].n_levels for name in columns)
    if math.prod(shape) > MAX_CELLS:
        raise SchemaError(
            f"the table of {', '.join(columns)} has {math.prod(shape)} cells and the limit is {MAX_CELLS}; "
            "ask for fewer columns, or group levels in the schema"
        )
    return shape


def table_shapes(schema: Schema, column_sets: Sequence[Sequence[str]]) -> list[tuple[int, ...]]:
    """Give the shape of each of many count tables, as `table_shape` does, at less cost for each."""
    levels = schema.n_levels
    sensible: dict[tuple[int, ...], bool] = {}
    shapes = []
    for columns in column_sets:
        shape = tuple([levels.get(name, 0) for name in columns])
        if shape not in sensible:
            sensible[shape] = 0 < math.prod(shape) <= MAX_CELLS
        # whatever is odd is looked at again by the one that says what is wrong
        if not sensible[shape] or isinstance(columns, str) or len(set(columns)) < len(columns):
            shape = table_shape(schema, columns)
        shapes.append(shape)
    return shapes


def check_columns(schema: Schema, columns: Sequence[str]) -> None:
    """Refuse names that the schema does not declare."""
    unknown = [name for name in columns if name not in schema.columns]
    if unknown:
        raise SchemaError(f"the schema has no column {unknown[0]!r}; its columns are {', '.join(schema.columns)}")


def check_exponents(center: float, exponents: range) -> None:
    """Refuse a centre or exponents that `magnitude_counts` cannot use."""
    if not math.isfinite(center):
        raise SchemaError("the center of a magnitude count is not finite; give a finite number")
    if len(exponents) == 0 or exponents.step != 1:
        raise SchemaError("the exponents of a magnitude count must be a range with step 1 that is not empty")
