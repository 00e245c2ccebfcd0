"""The engine that holds a table in memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.data.column import Numeric
from dagveil.data.distinct import WeightedRows, count_cells, mix_codes, shrink_rows, sort_rows
from dagveil.data.encoding import Codes, EncodedColumns, code_type, encode, join_columns
from dagveil.data.gradients import Block, GradientPlan, scale_blocks, sum_curvatures, sum_gradients, weighs_exactly
from dagveil.data.moments import MomentPlan, OuterProducts, sum_outer_products
from dagveil.data.products import PairTables, bundle_columns, count_pairs, pays
from dagveil.data.reading import read_declared
from dagveil.data.schema import Schema
from dagveil.data.selection import check_slots, choose_rows, level_column, row_words
from dagveil.data.table import check_columns, check_exponents, table_shape, table_shapes
from dagveil.errors import DataError, SchemaError

_MOST_KEPT_NUMBERS: Final = 2**24  # scaled numbers that a descent keeps between its questions: 128 MB
_COUNT_BLOCK: Final = 2**18


@dataclasses.dataclass(frozen=True, slots=True)
class _DescentRows:
    columns: Sequence[NDArray[np.float64]]
    n_rows: int
    multiplicities: NDArray[np.float64] | None = None
    scaled: tuple[Block, ...] | None = None

    @property
    def rest(self) -> dict[str, Any]:
        return {"n_rows": self.n_rows, "multiplicities": self.multiplicities, "scaled": self.scaled}


class MemoryTable:
    """Exact counts and sums of a table that fits into memory. Only the curator may hold one.

    On the first question the rows are reduced to the distinct ones with their multiplicities, if that pays.
    """

    lattice = 1

    def __init__(self, encoded: EncodedColumns, schema: Schema) -> None:
        self.schema = schema
        self.n_rows = encoded.n_rows
        self._values = dict(encoded.values)
        self._rows = WeightedRows(codes=dict(encoded.codes), weights=None, n_rows=encoded.n_rows)
        # codes in the order of the rows, beside numbers and for levelled rows; a part of a table has none
        self._codes: dict[str, Codes] | None = dict(encoded.codes)
        self._shrunk = False
        self._pair_tables: PairTables | None = None
        self._owners: NDArray[np.int64] | None = None
        self._slots: dict[int, NDArray[np.intp]] = {}
        self._descents: dict[tuple[MomentPlan, bool], _DescentRows] = {}

    @classmethod
    def from_source(cls, source: Any, schema: Schema) -> MemoryTable:
        """Read a file or frame (see `read_source`) and encode it as the schema says."""
        check_rows_are_units(schema)
        return cls(encode(read_declared(source, schema), schema), schema)

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch], schema: Schema) -> MemoryTable:
        """Encode rows that arrive in batches, one batch at a time."""
        check_rows_are_units(schema)
        pieces = [encode(pa.Table.from_batches([batch]), schema) for batch in batches]
        return cls(join_columns(pieces, schema), schema)

    @classmethod
    def from_codes(cls, codes: Mapping[str, NDArray[Any]], schema: Schema) -> MemoryTable:
        """Take ready codes, such as simulated ones, for a schema without numeric columns."""
        lengths = {len(array) for array in codes.values()}
        if set(codes) != set(schema.columns) or len(lengths) > 1:
            raise DataError("codes need one array of equal length for each column of the schema")
        checked: dict[str, Codes] = {}
        for name, column in schema.columns.items():
            array = np.asarray(codes[name])
            if isinstance(column, Numeric):
                raise DataError(f"column {name!r} is numeric and has no ready codes; use from_source")
            fits = array.dtype.kind in "ub" or (array.dtype.kind == "i" and array.min(initial=0) >= 0)
            if array.size and not (fits and array.max() < column.n_levels):
                raise DataError(f"a code of column {name!r} is not between 0 and {column.n_levels - 1}")
            checked[name] = array.astype(code_type(column))
        return cls(EncodedColumns(n_rows=lengths.pop(), codes=checked, values={}), schema)

    @classmethod
    def from_distinct(cls, rows: WeightedRows, schema: Schema) -> MemoryTable:
        """Take coded rows, distinct ones with multiplicities or all: a table for counts, without numbers."""
        n_rows = rows.n_rows if rows.weights is None else int(rows.weights.sum())
        table = cls(EncodedColumns(n_rows=n_rows, codes=rows.codes, values={}), schema)
        table._rows = rows
        table._shrunk = True
        table._codes = None
        return table

    def __repr__(self) -> str:
        return f"MemoryTable(dataset={self.schema.dataset!r}, columns={len(self.schema.columns)})"

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Count rows by the codes of some columns, in the shape (levels of columns[0], levels of columns[1], …)."""
        return self._count(tuple(columns), table_shape(self.schema, columns))

    def counts_many(self, column_sets: Sequence[tuple[str, ...]]) -> list[NDArray[np.int64]]:
        """Answer many `counts` together: wide tables are counted once and summed down to the ones asked for."""
        shapes = table_shapes(self.schema, column_sets)
        levels = self.schema.n_levels
        whole = self._count_whole(column_sets, levels)
        if whole is not None:
            return [whole]
        pairs = self._count_pairs(column_sets, levels)
        if pairs is not None:
            return [pairs.table(first, second) for first, second in column_sets]
        answers: list[NDArray[np.int64] | None] = [None] * len(column_sets)
        for bundle in bundle_columns(column_sets, levels, n_rows=self._distinct_rows().n_rows):
            wide = self._count(bundle.columns, tuple(levels[name] for name in bundle.columns))
            for position in bundle.members:
                answers[position] = _sum_down(wide, bundle.columns, tuple(column_sets[position]))
        return [
            np.array(self.n_rows, dtype=np.int64) if answer is None else answer.reshape(shape)
            for answer, shape in zip(answers, shapes, strict=True)
        ]

    def outer_products(self, query: OuterProducts) -> NDArray[np.int64]:
        """Sum the outer products of the vectors that a query makes of rows, exactly, the constant first."""
        check_columns(self.schema, query.columns)
        coded = frozenset(query.coded)
        columns = []
        for name in query.columns:
            declared = self.schema.columns[name]
            numbers = self._row_codes(name).astype(np.float64) if name in coded else self._encoded_numbers(name)
            if name in query.marked:
                numbers = np.where(self._row_codes(name) == declared.n_levels - 1, np.nan, numbers)
            columns.append(query.read(numbers, declared))
        return sum_outer_products(columns, query, n_rows=self.n_rows)

    def gradients(self, plan: GradientPlan) -> NDArray[np.int64]:
        """Sum the clipped gradients of all rows, in fixed point, in the shape (d, d)."""
        check_columns(self.schema, plan.rows.columns)
        rows = self._descent_rows(plan.rows, weighs_exactly(plan.cap(), self.n_rows))
        return sum_gradients(rows.columns, plan, **rows.rest)

    def curvature(self, plan: MomentPlan, direction: NDArray[np.float64], cap: float) -> int:
        """Sum the clipped squared lengths of all rows' images under a direction, in fixed point."""
        check_columns(self.schema, plan.columns)
        rows = self._descent_rows(plan, may_weigh=True)
        return sum_curvatures(rows.columns, plan, direction, cap, **rows.rest)

    def levelled_rows(self, columns: Sequence[str], slots: int) -> NDArray[np.float64]:
        """Give the chosen rows, scaled to [-1, 1], and public filler in the slots that are left, (slots, k)."""
        check_columns(self.schema, columns)
        check_slots(slots)
        chosen = self._choose(slots)
        levelled = np.empty((slots, len(columns)))
        for position, name in enumerate(columns):
            numbers = self._encoded_numbers(name)[chosen]
            levelled[:, position] = level_column(numbers, name, self.schema.columns[name], slots)
        return levelled

    def magnitude_counts(self, column: str, center: float, exponents: range) -> NDArray[np.int64]:
        """Count rows with 2**(k-1) < |x - center| <= 2**k for every k; the first and the last cell are open-ended."""
        check_columns(self.schema, [column])
        cells = find_magnitudes(self._numbers(column), center, exponents)
        return np.bincount(cells, minlength=len(exponents)).astype(np.int64)

    def thin(self, keep: Callable[[int], NDArray[np.bool_]]) -> MemoryTable:
        """Return the table of rows that `keep`, given their number, says at random: counts only, no numbers."""
        return self.split(1, lambda n_rows: np.where(keep(n_rows), 0, 1))[0]

    def split(self, parts: int, assign: Callable[[int], NDArray[np.int64]]) -> list[MemoryTable]:
        """Deal the rows out to parts; `assign`, given the number of rows, gives each row its part.

        A position is one among the rows in the order of their codes. Rows whose part is `parts` or more are left out.
        As with `thin`, the choice must be random.
        """
        part = assign(self.n_rows)
        rows = self._distinct_rows()
        if self._owners is None and rows.weights is None:
            # distinct rows are in the order of their codes, so others are too: how the source was read must not matter
            rows = self._rows = sort_rows(rows, self.schema.n_levels)
        if self._owners is None:
            weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
            self._owners = np.repeat(np.arange(rows.n_rows, dtype=np.int64), weights.astype(np.int64))
        inside = np.flatnonzero(part < parts)
        place = self._owners[inside] * parts + part[inside]
        multiplicity = np.bincount(place, minlength=rows.n_rows * parts).reshape(-1, parts)
        return [self._part(rows, multiplicity[:, number]) for number in range(parts)]

    def _part(self, rows: WeightedRows, multiplicity: NDArray[np.int64]) -> MemoryTable:
        kept = np.flatnonzero(multiplicity)
        codes = {name: array[kept] for name, array in rows.codes.items()}
        weights = multiplicity[kept].astype(np.float64)
        return MemoryTable.from_distinct(WeightedRows(codes=codes, weights=weights, n_rows=len(kept)), self.schema)

    def _choose(self, slots: int) -> NDArray[np.intp]:
        """Return the positions of the rows that fill the slots."""
        if self._codes is None:
            raise DataError("a part of a table has counts only, so it cannot be levelled; ask the whole table")
        if slots not in self._slots:
            words = row_words(EncodedColumns(self.n_rows, self._codes, self._values), self.schema)
            # a run asks for one number of slots
            self._slots = {slots: choose_rows(words, slots)}
        return self._slots[slots]

    def _numbers(self, column: str) -> NDArray[np.float64]:
        if column not in self._values:
            raise SchemaError(f"column {column!r} is not numeric, so it has no sums; declare it numeric, or count it")
        return self._values[column]

    def _encoded_numbers(self, column: str, codes: Codes | None = None) -> NDArray[np.float64]:
        """Return a number for each row: its own, or the declared one of its level; codes may be those of other rows."""
        declared = self.schema.columns[column]
        if isinstance(declared, Numeric):
            return self._numbers(column)
        return np.array(declared.numbers)[self._row_codes(column) if codes is None else codes]

    def _row_codes(self, column: str) -> Codes:
        """Return the code of each row."""
        if self._codes is not None:
            return self._codes[column]
        # a part's rows are distinct ones, in another order, but the same for all columns with levels
        codes = self._rows.codes[column]
        return codes if self._rows.weights is None else np.repeat(codes, self._rows.weights.astype(np.int64))

    def _descent_rows(self, plan: MomentPlan, may_weigh: bool) -> _DescentRows:
        """Return the rows that gradients and curvatures sum over, scaled already where that takes little memory."""
        key = (plan, may_weigh)
        if key not in self._descents:
            numeric = any(isinstance(self.schema.columns[name], Numeric) for name in plan.columns)
            distinct = self._distinct_rows() if may_weigh and not numeric else None
            if distinct is None or distinct.weights is None:
                rows = _DescentRows([self._encoded_numbers(name) for name in plan.columns], self.n_rows)
            else:
                numbers = [self._encoded_numbers(name, distinct.codes[name]) for name in plan.columns]
                rows = _DescentRows(numbers, distinct.n_rows, distinct.weights)
            if rows.n_rows * len(plan.columns) <= _MOST_KEPT_NUMBERS:
                scaled = tuple(scale_blocks(rows.columns, plan, rows.n_rows))
                rows = dataclasses.replace(rows, columns=(), scaled=scaled)
            # a descent has one plan: the next one's rows replace these
            self._descents = {old: kept for old, kept in self._descents.items() if old[0] == plan} | {key: rows}
        return self._descents[key]

    def _distinct_rows(self) -> WeightedRows:
        if not self._shrunk:
            self._rows = shrink_rows(self._rows, self.schema.n_levels)
            self._shrunk = True
        return self._rows

    def _count_whole(
        self, column_sets: Sequence[tuple[str, ...]], levels: Mapping[str, int]
    ) -> NDArray[np.int64] | None:
        """Return the table of all columns if it alone is asked for: then distinct rows would be made for nothing."""
        held = tuple(self._rows.codes)
        if self._shrunk or len(column_sets) != 1 or set(column_sets[0]) != set(held):
            return None
        cells = count_cells(self._rows, levels)
        return None if cells is None else _sum_down(cells, held, tuple(column_sets[0]))

    def _count_pairs(self, column_sets: Sequence[tuple[str, ...]], levels: Mapping[str, int]) -> PairTables | None:
        """Return the tables of all pairs if these are pairs and that pays; a table keeps them for later questions."""
        held = self._pair_tables
        if held is not None and all(map(held.holds, column_sets)):
            return held
        if not pays(column_sets, levels, self._distinct_rows().n_rows):
            return None
        asked = {name for pair in column_sets for name in pair}
        asked_levels = {name: size for name, size in levels.items() if name in asked}
        self._pair_tables = count_pairs(self._distinct_rows(), asked_levels)
        return self._pair_tables

    def _count(self, columns: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
        if not columns:
            return np.array(self.n_rows, dtype=np.int64)
        rows = self._distinct_rows()
        cells = math.prod(shape)
        # float64 sums of multiplicities are exact: they stay below 2**53
        total: NDArray[Any] = np.zeros(cells, dtype=np.int64 if rows.weights is None else np.float64)
        step = max(_COUNT_BLOCK, 4 * cells)
        for start in range(0, rows.n_rows, step):
            block = slice(start, start + step)
            mixed = mix_codes([rows.codes[name][block] for name in columns], shape)
            weights = None if rows.weights is None else rows.weights[block]
            total += np.bincount(mixed, weights=weights, minlength=cells)
        return total.astype(np.int64).reshape(shape)


def find_magnitudes(numbers: NDArray[np.float64], center: float, exponents: range) -> NDArray[np.int64]:
    """Return the cell of `magnitude_counts` that each number stands in."""
    check_exponents(center, exponents)
    with np.errstate(over="ignore"):
        distances = np.abs(numbers - center)
    # frexp gives a mantissa in [1/2, 1): exact, where a logarithm could be off by one cell at powers of two
    mantissas, powers = np.frexp(distances)
    powers = powers.astype(np.int64) - (mantissas == 0.5)
    powers[distances == 0] = exponents[0]
    powers[np.isinf(distances)] = exponents[-1]
    return np.asarray(np.clip(powers, exponents[0], exponents[-1]) - exponents[0])


def check_rows_are_units(schema: Schema) -> None:
    """Refuse to read records of persons as if each record were a person."""
    if schema.person is not None:
        raise SchemaError(
            f"the schema of {schema.dataset!r} names persons, whose records count together; open the source by "
            "`choose_engine(source).open(schema)`"
        )


def _sum_down(wide: NDArray[np.int64], columns: tuple[str, ...], wanted: tuple[str, ...]) -> NDArray[np.int64]:
    """Sum a wide table over the columns that are not wanted, and put the others in order."""
    kept = [name for name in columns if name in wanted]
    narrow = wide.sum(axis=tuple(axis for axis, name in enumerate(columns) if name not in wanted), dtype=np.int64)
    return np.ascontiguousarray(narrow.transpose([kept.index(name) for name in wanted]))
