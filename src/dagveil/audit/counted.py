"""Statistics of tables of counts, each with its declared sensitivity, ready to be searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any, Final, cast

import numpy as np

from dagveil.audit.search import AuditedStatistic, Floats, Found, Look, Norm, join_looks
from dagveil.audit.tables import Tables, TableSearch
from dagveil.curator.interview import RECORD, Interview, Sample
from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.privacy.mechanisms.smooth_median import median, smooth_sensitivity
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import (
    centre_counts,
    counts_sensitivity,
    counts_squared_sensitivity,
    interaction_squared_sensitivity,
)
from dagveil.statistics.distance import ExactDistance
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.reconciled import PartTest, Reconciled
from dagveil.statistics.statistic import STATISTIC_NAMES, Statistic, TableShape, statistic_named

SHAPES: Final = (
    TableShape(1, 2, 2),
    TableShape(2, 2, 2),
    TableShape(1, 2, 3),
    TableShape(1, 3, 3),
    TableShape(2, 2, 3),
)
"""Declared shapes of the questions that are searched: one stratum and two, two levels and three."""

SIZES: Final = (3, 30, 1000)
"""Rows of the larger tables."""

DISTANCE_ROWS: Final = 30
"""Rows of tables whose exact distance is searched."""

LATTICE: Final = 7
"""A public factor of counts."""


def look_at_tables(statistic: Statistic, shape: TableShape, sizes: tuple[int, ...] = SIZES) -> Look:
    """Return the search for a statistic of questions, by its own declared sensitivity."""

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = TableSearch(
            lambda tables: statistic.values(tables)[:, None].astype(np.float64), tuple(shape), Norm.LARGEST, relation
        )
        return search.run(pairs, sizes, rng), float(statistic.sensitivity(relation, shape))

    return look


def _look_at_margins(norm: Norm, lattice: int, declare: Callable[[Relation, int], float]) -> Look:
    """Return the search for several tables of counts of the same rows: all pairs of three columns."""

    def measure(tables: Tables) -> Floats:
        sums = [tables.sum(axis=axis + 1).reshape(len(tables), -1) for axis in range(3)]
        return lattice * np.hstack(sums).astype(np.float64)

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = TableSearch(measure, (2, 2, 3), norm, relation)
        return search.run(pairs, SIZES, rng), declare(relation, 3)

    return look


def _look_at_rows(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    search = TableSearch(
        lambda tables: LATTICE * tables.sum(axis=(1, 2), dtype=np.float64)[:, None], (2, 2), Norm.SQUARES, relation
    )
    return search.run(pairs, SIZES, rng), math.sqrt(counts_squared_sensitivity(relation, 1, LATTICE))


def _look_at_interactions(shape: tuple[int, int]) -> Look:
    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        search = TableSearch(
            lambda tables: centre_counts(tables).reshape(len(tables), -1).astype(np.float64),
            shape,
            Norm.SQUARES,
            relation,
        )
        return search.run(pairs, SIZES, rng), math.sqrt(interaction_squared_sensitivity(relation, shape))

    return look


def _look_at_votes(test: PartTest) -> Look:
    """Return the search for votes: a record stays in its part whatever it holds."""
    parts = 3

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        statistic = Reconciled(test, parts)
        shape = TableShape(1, 2, 2)
        search = TableSearch(
            lambda tables: np.array([[int(statistic.values(table[:, None]))] for table in tables], dtype=np.float64),
            (parts, 2, 2),
            Norm.LARGEST,
            relation,
            parts=parts,
        )
        return search.run(pairs, (6, 30, 60), rng), float(statistic.sensitivity(relation, shape))

    return look


class _CountedTable:
    """A table that is nothing but its counts, by all columns in their order."""

    def __init__(self, schema: Schema, joint: Tables) -> None:
        self.schema = schema
        self._joint = joint

    def counts(self, columns: Sequence[str]) -> Tables:
        """Return the counts; questions ask for all columns."""
        names = list(self.schema.columns)
        return self._joint.transpose([names.index(name) for name in columns])


def _look_at_scores(name: str) -> Look:
    """Return the search for scores in records, through an interview's own code."""
    shape = TableShape(2, 2, 2)
    columns = {
        column: Categorical(tuple(f"v{code}" for code in range(size)), "v0")
        for column, size in zip("sxy", shape, strict=True)
    }
    schema = Schema(dataset="audit", columns=columns, reviewed=True, nominal_rows=30)
    empty = MemoryTable.from_codes({column: np.empty(0, dtype=np.uint8) for column in columns}, schema)

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        statistic = statistic_named(name, 30)
        interview = Interview(empty, relation, statistic, _ignore, noise_source(NoiseKind.SEEDED, 0))

        def score(table: Tables) -> float:
            counted = cast(Table, _CountedTable(schema, table))
            return float(interview._score(("x", "y", ("s",)), Sample(counted, [counted])))

        search = TableSearch(
            lambda tables: np.array([[score(table)] for table in tables]), tuple(shape), Norm.LARGEST, relation
        )
        return search.run(pairs, (3, 30), rng), float(RECORD)

    return look


def _ignore(event: Any) -> None:
    """Take a charge that nobody pays."""


def _look_at_medians(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """Search lists of values in which one changes: the median by at most S, and S by at most a factor e^β.

    A record that comes, goes or is replaced changes the value of one part.
    """
    upper, beta = 12, Fraction(1, 10)
    best, tried, words = -1.0, 0, ""
    lists = [list(values) for size in (1, 2, 3) for values in product(range(0, upper + 1, 4), repeat=size)]
    while tried < pairs:
        values = lists.pop() if lists else rng.integers(0, upper + 1, rng.integers(1, 12)).tolist()
        here, smooth = median(values), smooth_sensitivity(values, 0, upper, beta)
        for place, value in product(range(len(values)), (0, upper // 2, upper)):
            other = [*values[:place], value, *values[place + 1 :]]
            there = smooth_sensitivity(other, 0, upper, beta)
            moved = abs(median(other) - here) / float(min(smooth, there))
            dilated = abs(math.log(there / smooth)) / float(beta)
            tried += 1
            if max(moved, dilated) > best:
                best, words = max(moved, dilated), f"{values} and {other} between 0 and {upper}"
    return Found(best, tried, words), 1.0


def _look_at_distances(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """Search tables of up to 31 rows: every table costs a search of its own, so values are remembered."""
    distance, shape = ExactDistance(0.1, Kendall(60)), TableShape(1, 2, 2)
    known: dict[bytes, float] = {}

    def value(table: Tables) -> float:
        key = table.tobytes()
        if key not in known:
            known[key] = float(distance.values(table))
        return known[key]

    def measure(tables: Tables) -> Floats:
        return np.array([[value(table)] for table in tables])

    search = TableSearch(measure, tuple(shape), Norm.LARGEST, relation, most_enumerated=DISTANCE_ROWS)
    # few tables are tried in a quick search, since each is slow the first time
    few = pairs // 20 if pairs <= 100_000 else pairs
    return search.run(few, (3, DISTANCE_ROWS), rng), float(distance.sensitivity(relation, shape))


def _question_statistics() -> list[AuditedStatistic]:
    places = {
        "kendall": "statistics.kendall.Kendall.sensitivity",
        "spearman": "statistics.spearman.Spearman.sensitivity",
        "g": "statistics.g.G.sensitivity",
        "mutual-information": "statistics.g.G.sensitivity",
        "chi-square": "statistics.chi_square.ChiSquare.sensitivity",
    }
    audited = []
    for name in STATISTIC_NAMES:
        looks = [look_at_tables(statistic_named(name, rows), shape) for shape in SHAPES for rows in (8, 1000)]
        audited.append(AuditedStatistic(name, places[name], join_looks(looks)))
    distances = "statistics.distance.ExactDistance.sensitivity"
    audited.append(AuditedStatistic("exact distance", distances, _look_at_distances))
    votes = join_looks([_look_at_votes(test) for test in PartTest])
    audited.append(AuditedStatistic("votes of parts", "statistics.reconciled.Reconciled.sensitivity", votes))
    medians = "privacy.mechanisms.smooth_median.smooth_sensitivity"
    audited.append(AuditedStatistic("median of parts", medians, _look_at_medians))
    scores = join_looks([_look_at_scores(name) for name in ("kendall", "g")])
    audited.append(AuditedStatistic("score in records", "curator.interview.Interview.answer", scores))
    return audited


def _count_statistics() -> list[AuditedStatistic]:
    squared = "statistics.contingency.counts_squared_sensitivity"
    return [
        AuditedStatistic(
            "tables of counts",
            squared,
            _look_at_margins(
                Norm.SQUARES,
                LATTICE,
                lambda relation, tables: math.sqrt(counts_squared_sensitivity(relation, tables, LATTICE)),
            ),
        ),
        AuditedStatistic("number of rows", squared, _look_at_rows),
        AuditedStatistic(
            "tables of counts, Laplace noise",
            "statistics.contingency.counts_sensitivity",
            _look_at_margins(Norm.SIZES, 1, lambda relation, tables: float(counts_sensitivity(relation, tables))),
        ),
        AuditedStatistic(
            "interactions of pairs",
            "statistics.contingency.interaction_squared_sensitivity",
            join_looks([_look_at_interactions(shape) for shape in combinations((2, 3, 4), 2)]),
        ),
    ]


def counted_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of counts, and those of questions about counts."""
    return (*_count_statistics(), *_question_statistics())
