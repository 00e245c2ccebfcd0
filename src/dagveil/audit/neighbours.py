"""Pairs of neighbouring tables, small, so that one record weighs much, and what is attacked on them.

The record in which two tables differ stands last in both. Random choices that go row by row can then be the same for
all rows that the two share.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.search import Effort
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.encoding import EncodedColumns
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Method
from dagveil.privacy.budget import Relation

# the rows that two tables share, the record that one of them has besides, and another in its place
Rows = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
ROWS: Final = 40  # rows that the two tables share
# rows that two tables share whose last record moves an answer by all that is declared, or nearly so
SHARP_ROWS: Final = 200
SPARE_SLOTS: Final = 12  # slots beyond the rows, so that the last record stands in one of them whatever the relation
BOUND: Final = 4.0  # numeric columns lie between minus and plus this


class DataKind(enum.Enum):
    """What the columns of a pair hold."""

    LEVELS = "levels"
    MANY_LEVELS = "many levels"  # so many that no method releases the table of all columns
    NUMBERS = "numbers"
    # all rows are the same, so that one other record moves a rank statistic by nearly all that is declared
    TWO_COLUMNS = "two columns of levels"
    # as before: one record moves all questions within a block of columns, and none to the column beside it
    BLOCK = "a block of columns"
    TWO_NUMBERS = "two columns of numbers"  # all rows at the centre, and records at the clipping radius

    @property
    def is_sharp(self) -> bool:
        """Whether a record moves answers by nearly all that is declared: for attacks."""
        return self in (DataKind.TWO_COLUMNS, DataKind.BLOCK, DataKind.TWO_NUMBERS)

    @property
    def shared_rows(self) -> int:
        """Rows that the two tables of a pair share."""
        return SHARP_ROWS if self.is_sharp else ROWS


class AlignedTable(MemoryTable):
    """A table whose parts and slots keep the rows' order; it needs at least as many slots as rows."""

    def __init__(self, encoded: EncodedColumns, schema: Schema) -> None:
        super().__init__(encoded, schema)
        self._encoded = encoded

    def split(self, parts: int, assign: Callable[[int], NDArray[np.int64]]) -> list[MemoryTable]:
        """Deal the rows out to parts, in their order."""
        part = assign(self.n_rows)
        return [self._take(np.flatnonzero(part == number)) for number in range(parts)]

    def _choose(self, slots: int) -> NDArray[np.intp]:
        if slots < self.n_rows:
            raise MethodError(f"an aligned table of {self.n_rows} rows has no {slots} slots; give it as many or more")
        return np.arange(self.n_rows)

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

    @property
    def schema(self) -> Schema:
        """The public schema of both."""
        return self.first.schema


def make_pair(kind: DataKind, relation: Relation, rows: int | None = None) -> Pair:
    """Make a pair: rows that hang together, and a last record in a corner where hardly any other stands."""
    rows = kind.shared_rows if rows is None else rows
    schema = make_schema(kind, relation, rows)
    core, corner, opposite = _MAKERS[kind](rows)
    with_corner = read_rows(np.vstack([core, corner]), schema)
    if relation is Relation.ADD_REMOVE:
        return Pair(read_rows(core, schema), with_corner, relation, kind)
    return Pair(read_rows(np.vstack([core, opposite]), schema), with_corner, relation, kind)


def fitting_kinds(method: Method) -> tuple[DataKind, ...]:
    """Return what kinds of columns a method takes."""
    # many levels change what is released, not what is asked
    left_out = {DataKind.MANY_LEVELS} if method.release is None else set()
    # a block is for methods that ask one question about counts after the other
    if method.ask is None or fitting_relations(method, DataKind.NUMBERS):
        left_out.add(DataKind.BLOCK)
    return tuple(kind for kind in DataKind if kind not in left_out and fitting_relations(method, kind))


def ordinary_kinds(method: Method) -> tuple[DataKind, ...]:
    """Return those of them in which one record moves little."""
    return tuple(kind for kind in fitting_kinds(method) if kind in (DataKind.LEVELS, DataKind.NUMBERS))


def fitting_relations(method: Method, kind: DataKind) -> tuple[Relation, ...]:
    """Return the relations that a method can promise something for."""
    accepted = []
    for relation in Relation:
        with suppress(MethodError):
            method.check(make_schema(kind, relation, kind.shared_rows), Knowledge.none())
            accepted.append(relation)
    return tuple(accepted)


def make_schema(kind: DataKind, relation: Relation, rows: int) -> Schema:
    """Return the public schema of a pair that shares so many rows."""
    columns: dict[str, Column]
    nominal: int | None = rows + 1
    if kind is DataKind.LEVELS:
        columns = {name: Boolean("false") for name in "abcd"}
        columns["c"] = Categorical(("low", "middle", "high"), "low")
    elif kind is DataKind.MANY_LEVELS:
        columns = {name: Categorical(tuple("vwxyz"), "v") for name in "abcdefgh"}
    elif kind in (DataKind.TWO_COLUMNS, DataKind.BLOCK):
        columns = {name: Boolean("false") for name in ("ab" if kind is DataKind.TWO_COLUMNS else "abcdef")}
    elif kind is DataKind.TWO_NUMBERS:
        # centre and spread are public, so that all of the budget goes into what is asked
        columns = {name: Numeric(bounds=(-BOUND, BOUND), center=0.0, spread=1.0) for name in "ab"}
    else:
        columns = {name: Numeric(bounds=(-BOUND, BOUND)) for name in "abc"}
        nominal = rows + SPARE_SLOTS
    if kind in (DataKind.LEVELS, DataKind.MANY_LEVELS) and relation is Relation.ADD_REMOVE:
        nominal = None  # the number of rows is as secret as the rest
    return declare_schema(columns, relation, nominal)


def declare_schema(columns: dict[str, Column], relation: Relation, nominal_rows: int | None) -> Schema:
    """Return the schema of an audit's own tables."""
    return Schema(
        dataset="audit", columns=columns, reviewed=True, relation=relation.value, nominal_rows=nominal_rows, public=True
    )


def draw_rows(kind: DataKind, rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw rows from the public model of a kind: what everyone knows about the population."""
    return _MODELS[kind](rows, rng)


def _draw_levels(rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw codes in which a → b → c hang together closely, and d is nearly constant."""
    a = rng.integers(0, 2, rows)
    b = np.where(rng.random(rows) < 0.9, a, 1 - a)
    c = np.where(rng.random(rows) < 0.8, 2 * b, rng.integers(0, 3, rows))
    d = (rng.random(rows) < 0.05).astype(np.int64)
    return np.column_stack([a, b, c, d]).astype(np.float64)


def _make_many_levels(rows: int) -> Rows:
    """Return codes of a chain of columns, and two records that share one level."""
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, 5, rows)]
    for _ in range(7):
        codes.append(np.where(rng.random(rows) < 0.8, codes[-1], rng.integers(0, 5, rows)))
    core = np.column_stack(codes).astype(np.float64)
    return core, np.full((1, 8), 4.0), np.array([[4.0, 0, 1, 2, 3, 0, 1, 2]])


def _draw_numbers(rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw numbers in which a → b → c hang together."""
    a = rng.normal(0.0, 1.0, rows)
    b = 0.8 * a + rng.normal(0.0, 0.6, rows)
    c = np.tanh(b) + rng.normal(0.0, 0.6, rows)
    return np.asarray(np.clip(np.column_stack([a, b, c]), -BOUND, BOUND))


_MODELS: Final[dict[DataKind, Callable[[int, np.random.Generator], NDArray[np.float64]]]] = {
    DataKind.LEVELS: _draw_levels,
    DataKind.NUMBERS: _draw_numbers,
}


_MAKERS: Final[dict[DataKind, Callable[[int], Rows]]] = {
    # rows of the model, and two records opposite
    DataKind.LEVELS: lambda rows: (
        _draw_levels(rows, np.random.default_rng(1)),
        np.array([[1.0, 0, 2, 1]]),
        np.zeros((1, 4)),
    ),
    DataKind.MANY_LEVELS: _make_many_levels,
    # rows of the model, and two records in opposite corners of the bounds
    DataKind.NUMBERS: lambda rows: (
        _draw_numbers(rows, np.random.default_rng(1)),
        np.array([[BOUND, -BOUND, BOUND]]),
        np.array([[BOUND, BOUND, -BOUND]]),
    ),
    # rows that are all the same, and records that agree with them nowhere and everywhere
    DataKind.TWO_COLUMNS: lambda rows: (np.zeros((rows, 2)), np.ones((1, 2)), np.zeros((1, 2))),
    # the same, but the record agrees with the others in one column
    DataKind.BLOCK: lambda rows: (np.zeros((rows, 6)), np.array([[1.0, 1, 1, 1, 1, 0]]), np.zeros((1, 6))),
    # rows at the centre, and two records at the radius whose squares have little in common
    DataKind.TWO_NUMBERS: lambda rows: (
        np.zeros((rows, 2)),
        np.array([[BOUND, 0.0]]),
        np.array([[-BOUND / 2.0, BOUND * 0.75**0.5]]),
    ),
}


def odd_record(kind: DataKind) -> NDArray[np.float64]:
    """Return the record of a kind that stands in a corner where hardly any other stands, as one row."""
    return _MAKERS[kind](0)[1]


def read_rows(rows: NDArray[np.float64], schema: Schema) -> MemoryTable:
    """Read rows of numbers or of codes of levels."""
    columns = dict(zip(schema.columns, rows.T, strict=True))
    if any(isinstance(column, Numeric) for column in schema.columns.values()):
        return AlignedTable.from_source(columns, schema)
    return AlignedTable.from_codes({name: column.astype(np.uint8) for name, column in columns.items()}, schema)


Setting = str | tuple[str, ...]  # the value of a setting, or several, as the command line gives them
Options = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Case:
    """A pair, and the settings that a method runs with on it."""

    kind: DataKind
    relation: Relation
    options: Options = field(default_factory=dict)


def attack_cases(method: Method, effort: Effort, options: Options) -> tuple[Case, ...]:
    """Return the sharp cases; ordinary tables too in a full audit, or where there are none. Given settings win."""
    tried = [(DataKind(case.kind), {**case.options, **options}) for case in method.sharp]
    if effort is Effort.FULL or not any(fitting_relations(method, kind) for kind, _ in tried):
        tried += [(kind, dict(options)) for kind in ordinary_kinds(method)[:1]]
    return tuple(Case(kind, relation, chosen) for kind, chosen in tried for relation in fitting_relations(method, kind))


def is_slow(method: Method) -> bool:
    """Tell whether runs of a method take so long that fewer must do: one that asks adaptively runs one by one."""
    return method.ask is not None


def count_runs(method: Method, case: Case, effort: Effort) -> int:
    """Return how many runs on each table an attack has."""
    if case.kind.is_sharp:
        return effort.slow_runs if is_slow(method) else effort.runs
    return effort.slow_ordinary_runs if is_slow(method) else effort.ordinary_runs
