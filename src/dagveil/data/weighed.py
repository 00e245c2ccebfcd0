"""A table of records that weigh one per person: exact sums of records times integer weights (docs/proofs/persons.md).

A person's weights add up to the lattice exactly, so that what a person adds to any sum is a convex combination of what
single records would add, and the number of persons follows from no other number.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Numeric
from dagveil.data.distinct import WeightedRows
from dagveil.data.encoding import EncodedColumns
from dagveil.data.memory import MemoryTable, find_magnitudes
from dagveil.data.moments import (
    ROOM_FOR_ROWS,
    ROWS_IN_REACH,
    FeaturePlan,
    MomentPlan,
    OuterProducts,
    sum_outer_products,
)
from dagveil.data.schema import Schema
from dagveil.data.table import check_columns, table_shapes
from dagveil.errors import SchemaError

# A power of two that is at least as fine as any lattice of counts: then it takes no further one. A person with more
# distinct records than that counts with as many, chosen by the key.
COUNT_LATTICE: Final = 4096
MOMENT_BITS: Final = 4
MOMENT_LATTICE: Final = 4**MOMENT_BITS  # products of coordinates with so many more bits are so much finer
ONLY_LINEAR: Final = (
    'records = "weigh" is for sums over records: counts and moments, as the measure family and lap-mech release them. '
    'This needs rows one by one; write records = "one" in the schema'
)


@dataclass(frozen=True, slots=True)
class WeighedPiece:
    """Records with their weights on the lattice of counts and on that of moments."""

    rows: EncodedColumns
    counted: NDArray[np.int64]
    moments: NDArray[np.int64]

    def counts_many(self, schema: Schema, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Sum weights by the codes of some columns."""
        # sums of weights are exact in float64: persons times the lattice stay below 2**53
        rows = WeightedRows(self.rows.codes, self.counted.astype(np.float64), self.rows.n_rows)
        return MemoryTable.from_distinct(rows, schema).counts_many(column_sets)

    def outer_products(self, schema: Schema, query: OuterProducts) -> list[NDArray[np.int64]]:
        """Sum weighted outer products of vectors with fewer bits."""
        coarse, total = _change_bits(query, -MOMENT_BITS), _no_products(query)
        table = MemoryTable(self.rows, schema)
        # few weights occur: floors of the lattice over small numbers, and one more
        for weight in np.unique(self.moments[self.moments > 0]).tolist():
            chosen = self.moments == weight
            columns = [query.read(table._encoded_numbers(name)[chosen], schema.columns[name]) for name in query.columns]
            total += weight * sum_outer_products(columns, coarse, n_rows=int(chosen.sum()))
        return [total]

    def magnitude_counts(self, schema: Schema, column: str, center: float, exponents: range) -> list[NDArray[np.int64]]:
        """Sum weights by how far a number lies from the centre."""
        cells = find_magnitudes(self.rows.values[column], center, exponents)
        return [np.bincount(cells, weights=self.counted, minlength=len(exponents)).astype(np.int64)]


class WeighedTable:
    """Exact weighted counts and sums. Only the curator may hold one. `pieces` hands out all records whenever asked."""

    lattice = COUNT_LATTICE

    def __init__(self, pieces: Callable[[], Iterator[WeighedPiece]], schema: Schema, n_persons: int) -> None:
        self._pieces = pieces
        self.schema = schema
        self.n_rows = n_persons

    def __repr__(self) -> str:
        return f"WeighedTable(dataset={self.schema.dataset!r}, columns={len(self.schema.columns)})"

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Sum weights by the codes of some columns."""
        return self.counts_many([tuple(columns)])[0]

    def counts_many(self, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Answer many `counts` together, in one pass."""
        totals = [np.zeros(shape, dtype=np.int64) for shape in table_shapes(self.schema, column_sets)]
        return self._add_up(totals, "counts_many", list(map(tuple, column_sets)))

    def outer_products(self, query: OuterProducts) -> NDArray[np.int64]:
        """Sum weighted outer products, each of a vector with fewer bits: together they have those of the query."""
        check_columns(self.schema, query.columns)
        query.rows.check_rows(self.n_rows)
        _change_bits(query, -MOMENT_BITS)  # which refuses too few, whether there are records or not
        return self._add_up([_no_products(query)], "outer_products", query)[0]

    def magnitude_counts(self, column: str, center: float, exponents: range) -> NDArray[np.int64]:
        """Sum weights by how far a number lies from the centre, in powers of two."""
        check_columns(self.schema, [column])
        if not isinstance(self.schema.columns[column], Numeric):
            raise SchemaError(f"column {column!r} is not numeric, so it has no sizes; declare it numeric, or count it")
        total = np.zeros(len(exponents), dtype=np.int64)
        return self._add_up([total], "magnitude_counts", column, center, exponents)[0]

    def _add_up(self, totals: list[NDArray[np.int64]], name: str, *arguments: Any) -> list[NDArray[np.int64]]:
        for answers in self._ask(name, arguments):
            for total, own in zip(totals, answers, strict=True):
                total += own
        return totals

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> Iterator[list[NDArray[np.int64]]]:
        return (getattr(piece, name)(self.schema, *arguments) for piece in self._pieces())

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise SchemaError(ONLY_LINEAR)

    gradients = curvature = levelled_rows = thin = split = _refuse


def refine(query: FeaturePlan | MomentPlan, nominal_rows: int | None) -> Any:
    """Return a query with bits for weights, as far as sums over the rows that are publicly expected allow."""
    wanted = max(ROWS_IN_REACH, ROOM_FOR_ROWS * (nominal_rows or 0))
    for more in range(MOMENT_BITS, -1, -1):
        finer = _change_bits(query, more)
        if finer.rows.max_rows() >= wanted and finer.rows.bits >= 2 * MOMENT_BITS:
            return finer
    raise SchemaError(
        'sums of moments over so many rows leave no room for weights; write records = "one" in the schema, or declare '
        "fewer nominal rows"
    )


def _change_bits(query: Any, more: int) -> Any:
    return dataclasses.replace(query, bits=query.bits + more)


def _no_products(query: OuterProducts) -> NDArray[np.int64]:
    size = 1 + len(query.rows.columns)
    return np.zeros((size, size), dtype=np.int64)
