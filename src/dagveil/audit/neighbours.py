"""Pairs of neighbouring tables for runs of methods: small, so that one record weighs much, and unkind.

The record in which they differ stands last in both. Random choices that go row by row can then be the same for all rows
that the two share.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.encoding import EncodedColumns
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import Method
from dagveil.privacy.relation import Relation

Rows = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""The rows that two tables share, the record that one of them has besides, and another in its place."""

ROWS: Final = 40
"""Rows that the two tables share."""

SPARE_SLOTS: Final = 12
"""Slots beyond the rows, so that the last record stands in one of them whatever the relation."""

BOUND: Final = 4.0
"""Numeric columns lie between minus and plus this."""


class DataKind(enum.Enum):
    """What the columns of a pair hold."""

    LEVELS = "levels"
    MANY_LEVELS = "many levels"
    """So many that no method releases the table of all columns."""
    NUMBERS = "numbers"


class AlignedTable(MemoryTable):
    """A table whose parts keep the order of the rows: slower than its parent, and the same row by row."""

    def __init__(self, encoded: EncodedColumns, schema: Schema) -> None:
        super().__init__(encoded, schema)
        self._encoded = encoded

    def split(self, parts: int, assign: Callable[[int], NDArray[np.int64]]) -> list[MemoryTable]:
        """Deal the rows out to parts, in their order."""
        part = assign(self.n_rows)
        return [self._take(np.flatnonzero(part == number)) for number in range(parts)]

    def _take(self, rows: NDArray[np.intp]) -> AlignedTable:
        codes = {name: array[rows] for name, array in self._encoded.codes.items()}
        values = {name: array[rows] for name, array in self._encoded.values.items()}
        return AlignedTable(EncodedColumns(len(rows), codes, values), self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two neighbouring tables, and what makes them neighbours."""

    first: MemoryTable
    second: MemoryTable
    relation: Relation
    kind: DataKind

    def __repr__(self) -> str:
        return f"Pair({self.kind.value}, {self.relation.value})"

    @property
    def schema(self) -> Schema:
        """The public schema of both."""
        return self.first.schema


def make_pair(kind: DataKind, relation: Relation, rows: int = ROWS) -> Pair:
    """Make a pair: rows that hang together, and a last record in a corner where hardly any other stands.

    Examples
    --------
    >>> pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
    >>> pair.second.n_rows - pair.first.n_rows
    1
    """
    schema = _make_schema(kind, relation, rows)
    core, corner, opposite = _MAKERS[kind](rows)
    with_corner = _read(np.vstack([core, corner]), schema)
    if relation is Relation.ADD_REMOVE:
        return Pair(_read(core, schema), with_corner, relation, kind)
    return Pair(_read(np.vstack([core, opposite]), schema), with_corner, relation, kind)


def fitting_kinds(method: Method) -> tuple[DataKind, ...]:
    """Return what kinds of columns a method takes.

    Examples
    --------
    >>> from dagveil.methods.catalogue import method_named
    >>> fitting_kinds(method_named("svt-pc"))
    (<DataKind.LEVELS: 'levels'>,)
    """
    # many levels change what is released, not what is asked
    kinds = [kind for kind in DataKind if kind is not DataKind.MANY_LEVELS or method.release is not None]
    return tuple(kind for kind in kinds if fitting_relations(method, kind))


def fitting_relations(method: Method, kind: DataKind) -> tuple[Relation, ...]:
    """Return the relations that a method can promise something for."""
    return tuple(relation for relation in Relation if _accepts(method, _make_schema(kind, relation, ROWS)))


def _accepts(method: Method, schema: Schema) -> bool:
    try:
        method.check(schema, Knowledge.none())
    except MethodError:
        return False
    return True


def _make_schema(kind: DataKind, relation: Relation, rows: int) -> Schema:
    columns: dict[str, Column]
    if kind is DataKind.LEVELS:
        columns = {
            "a": Boolean("false"),
            "b": Boolean("false"),
            "c": Categorical(("low", "middle", "high"), "low"),
            "d": Boolean("false"),
        }
        # under add/remove the number of rows is as secret as the rest
        nominal = None if relation is Relation.ADD_REMOVE else rows + 1
    elif kind is DataKind.MANY_LEVELS:
        columns = {name: Categorical(tuple("vwxyz"), "v") for name in "abcdefgh"}
        nominal = None if relation is Relation.ADD_REMOVE else rows + 1
    else:
        columns = {name: Numeric(bounds=(-BOUND, BOUND)) for name in "abc"}
        nominal = rows + SPARE_SLOTS
    return Schema(
        dataset="audit", columns=columns, reviewed=True, relation=relation.value, nominal_rows=nominal, public=True
    )


def _make_levels(rows: int) -> Rows:
    """Return codes in which a → b → c hang together closely, d is nearly constant, and two records opposite."""
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, rows)
    b = np.where(rng.random(rows) < 0.9, a, 1 - a)
    c = np.where(rng.random(rows) < 0.8, 2 * b, rng.integers(0, 3, rows))
    d = (rng.random(rows) < 0.05).astype(np.int64)
    return np.column_stack([a, b, c, d]).astype(np.float64), np.array([[1.0, 0, 2, 1]]), np.array([[0.0, 0, 0, 0]])


def _make_many_levels(rows: int) -> Rows:
    """Return codes of a chain of columns, and two records that share one level."""
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, 5, rows)]
    for _ in range(7):
        codes.append(np.where(rng.random(rows) < 0.8, codes[-1], rng.integers(0, 5, rows)))
    core = np.column_stack(codes).astype(np.float64)
    return core, np.full((1, 8), 4.0), np.array([[4.0, 0, 1, 2, 3, 0, 1, 2]])


def _make_numbers(rows: int) -> Rows:
    """Return numbers in which a → b → c hang together, and two records in opposite corners of the bounds."""
    rng = np.random.default_rng(1)
    a = rng.normal(0.0, 1.0, rows)
    b = 0.8 * a + rng.normal(0.0, 0.6, rows)
    c = np.tanh(b) + rng.normal(0.0, 0.6, rows)
    core = np.clip(np.column_stack([a, b, c]), -BOUND, BOUND)
    return core, np.array([[BOUND, -BOUND, BOUND]]), np.array([[BOUND, BOUND, -BOUND]])


_MAKERS: Final[dict[DataKind, Callable[[int], Rows]]] = {
    DataKind.LEVELS: _make_levels,
    DataKind.MANY_LEVELS: _make_many_levels,
    DataKind.NUMBERS: _make_numbers,
}


def _read(rows: NDArray[np.float64], schema: Schema) -> MemoryTable:
    columns = dict(zip(schema.columns, rows.T, strict=True))
    if any(isinstance(column, Numeric) for column in schema.columns.values()):
        return AlignedTable.from_source(columns, schema)
    return AlignedTable.from_codes({name: column.astype(np.uint8) for name, column in columns.items()}, schema)
