"""Statistics of tables with several records per person, searched for persons whose records together move too much.

A neighbour gains or loses all records of a person, or gets another person's in their place. The source hands its rows
out in another order at every reading, and each pair has a key of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dagveil.audit.search import AuditedStatistic, Floats, Found, Look, Norm
from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.ids import KEY_BYTES
from dagveil.data.moments import MomentPlan
from dagveil.data.persons import open_persons
from dagveil.data.schema import Schema
from dagveil.data.streams import ArrowRows
from dagveil.data.table import Table
from dagveil.data.weighed import refine
from dagveil.privacy.relation import Relation
from dagveil.statistics import contingency
from dagveil.statistics.moments import moments_squared_sensitivity

_COLUMNS: Final[dict[str, Column]] = {
    "x": Categorical(levels=("a", "b"), outside="a"),
    "y": Categorical(levels=("a", "b", "c"), outside="a"),
    "z": Numeric(bounds=(-1.0, 1.0), bins=2),
}
_LEVELS: Final = {name: column.n_levels for name, column in _COLUMNS.items()}
_SETS: Final = [("x", "y"), ("x", "z"), ("y", "z")]
_PLAN: Final = MomentPlan(("x", "y", "z"), (0.5, 1.0, 0.0), (0.5, 1.0, 1.0), 2.0, 1.0, 8)
_FEWER: Final = 20
_FEWEST_PAIRS: Final = 60
_MOST_PAIRS: Final = 2_000
_SIZES: Final = (1, 2, 3, 5, 17, 60, 300)

Rows = dict[str, NDArray[Any]]
Measure = Callable[[Table], Floats]


class ShuffledRows(ArrowRows):
    """Rows of an Arrow table, as a database may hand them out: in another order at every reading."""

    def __init__(self, table: pa.Table, rng: np.random.Generator) -> None:
        super().__init__(table)
        self._rng = rng

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Hand out some columns of all rows."""
        order = self._rng.permutation(self._table.num_rows)
        most = int(self._rng.integers(1, len(order) + 2))
        yield from self._table.select(list(columns)).take(order).combine_chunks().to_batches(max_chunksize=most)


def person_statistics() -> tuple[AuditedStatistic, ...]:
    """Return counts, interactions and moments of persons: by one record of each, and by all that weigh one."""
    counted = "statistics.contingency.counts_sensitivity"
    rules: dict[str, dict[str, str]] = {
        "the last record": {"which": "last", "order": "day"},
        "any record": {"which": "any"},
        "weighed records": {"records": "weigh"},
    }
    found = [
        AuditedStatistic(f"counts of persons by {words}", counted, _look(rule, _count, _declare_counts, Norm.SIZES))
        for words, rule in rules.items()
    ]
    weighed = rules["weighed records"]
    interactions = _look(weighed, _centre, _declare_interactions, Norm.SQUARES)
    moments = _look(weighed, _multiply, _declare_moments, Norm.SQUARES)
    return (
        *found,
        AuditedStatistic(
            "interactions of persons by weighed records",
            "statistics.contingency.interactions_squared_sensitivity",
            interactions,
        ),
        AuditedStatistic(
            "moments of persons by weighed records", "statistics.moments.moments_squared_sensitivity", moments
        ),
    )


def _look(rule: dict[str, str], measure: Measure, declare: Callable[[Relation], float], norm: Norm) -> Look:
    schema = Schema(dataset="audit", columns=_COLUMNS, person="id", reviewed=True, public=True, **rule)  # type: ignore[arg-type]

    def look(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
        tried = min(max(pairs // _FEWER, _FEWEST_PAIRS), _MOST_PAIRS)
        best, words = -1.0, ""
        for core, one, other in _draw_pairs(tried, relation, rng):
            key = rng.bytes(KEY_BYTES)
            first, second = (_measure(_join(core, person), schema, measure, key, rng) for person in (one, other))
            change = float(norm.measure((first - second)[None])[0])
            if change > best:
                best, words = change, f"persons with {len(one['id'])} and {len(other['id'])} records"
        return Found(best, tried, words), declare(relation)

    return look


def _draw_pairs(pairs: int, relation: Relation, rng: np.random.Generator) -> Iterator[tuple[Rows, Rows, Rows]]:
    for number in range(pairs):
        core = _draw_person(0, rng, "core")
        core["id"] = np.array([f"core {place % 5}" for place in range(len(core["id"]))], dtype=object)
        size = _SIZES[number % len(_SIZES)]
        # bounds are reached by persons whose records agree
        one = _draw_person(size, rng, "p", alike=number % 2 == 0)
        other = _draw_person(0, rng, "p")
        if relation is Relation.REPLACE_ONE:
            other = _draw_person(int(rng.choice(_SIZES)), rng, "p", alike=number % 3 == 0)
        else:
            other = {name: cells[:0] for name, cells in other.items()}
        yield core, one, other


def _draw_person(size: int, rng: np.random.Generator, name: str, *, alike: bool = False) -> Rows:
    size = size or int(rng.integers(1, 12))
    distinct = 1 if alike else size
    rows: Rows = {
        "id": np.array([name] * size, dtype=object),
        "day": rng.integers(0, 3, size),
        "x": np.resize(rng.choice(["a", "b"], distinct), size),
        "y": np.resize(rng.choice(["a", "b", "c"], distinct), size),
        "z": np.resize(rng.choice([-1.0, -0.5, 0.0, 1.0], distinct), size),
    }
    return rows


def _join(core: Rows, person: Rows) -> pa.Table:
    return pa.table({name: pa.array(np.concatenate([core[name], person[name]]).tolist()) for name in core})


def _measure(rows: pa.Table, schema: Schema, measure: Measure, key: bytes, rng: np.random.Generator) -> Floats:
    return measure(open_persons(ShuffledRows(rows, rng), schema, key, math.inf))


def _count(table: Table) -> Floats:
    return table.counts(["x", "y", "z"]).reshape(-1) / table.lattice


def _declare_counts(relation: Relation) -> float:
    return float(contingency.counts_sensitivity(relation, 1))


def _centre(table: Table) -> Floats:
    tables = [contingency.centre_counts(one[None])[0] / one.size for one in table.counts_many(_SETS)]
    return np.concatenate([one.reshape(-1) for one in tables]) / table.lattice


def _declare_interactions(relation: Relation) -> float:
    return math.sqrt(contingency.interactions_squared_sensitivity(relation, _SETS, _LEVELS))


def _multiply(table: Table) -> Floats:
    exact = table.outer_products(refine(_PLAN, None)).astype(np.float64)
    rows, columns = np.triu_indices(len(exact))
    # entries on the diagonal get noise of twice the variance
    return np.asarray(exact[rows, columns] * np.where(rows == columns, math.sqrt(0.5), 1.0))


def _declare_moments(relation: Relation) -> float:
    return math.sqrt(moments_squared_sensitivity(relation, refine(_PLAN, None)))
