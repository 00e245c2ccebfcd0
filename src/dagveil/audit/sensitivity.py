"""Every statistic with a declared sensitivity, and the search for neighbours that exceed it.

Here is also what would move with an order: statistics of a source that has none.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from dagveil.audit.counted import counted_statistics
from dagveil.audit.numbers import number_statistics
from dagveil.audit.persons import ShuffledRows, person_statistics
from dagveil.audit.search import AuditedStatistic, Finding, Floats, Look, Norm, look_at_records
from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable
from dagveil.privacy.relation import Relation
from dagveil.statistics.contingency import counts_sensitivity

_SCHEMA: Final = Schema(
    dataset="audit", columns={name: Numeric(bounds=(-1.0, 1.0), bins=3) for name in "ab"}, reviewed=True, public=True
)
_SLOTS: Final = 6
_PARTS: Final = 3
_FEWER: Final = 8


def shuffled_statistics() -> tuple[AuditedStatistic, ...]:
    """Return what would move with an order: the slots, and the parts together, of a source without one."""
    # whatever the relation, one slot takes another value
    slots = _look_less(_count_slots, lambda relation: Relation.REPLACE_ONE, (3 * _SLOTS, _SLOTS, _SLOTS - 2))
    parts = _look_less(_count_parts, lambda relation: relation, (9, 0))
    looks = {"slots of a source without an order": slots, "parts of a source without an order": parts}
    function = "statistics.contingency.counts_sensitivity"
    return tuple(AuditedStatistic(name, function, look) for name, look in looks.items())


def _look_less(
    count: Callable[[Floats], Floats], moves: Callable[[Relation], Relation], sizes: tuple[int, ...]
) -> Look:
    """Return a search with fewer pairs: each takes a table of its own, and several readings of it."""
    look = look_at_records(
        count, 2, 1.0, lambda relation: float(counts_sensitivity(moves(relation), 1)), Norm.SIZES, sizes
    )
    return lambda relation, pairs, rng: look(relation, max(1, pairs // _FEWER), rng)


def _read(rows: Floats) -> StreamedTable:
    table = pa.table(dict(zip("ab", rows.T, strict=True)))
    # nothing is held, so that every question reads the rows
    rng = np.random.default_rng(zlib.crc32(rows.tobytes()))
    return StreamedTable(ShuffledRows(table, rng), _SCHEMA, held_bytes=0)


def _count_slots(rows: Floats) -> Floats:
    slots = np.rint(_read(rows).levelled_rows(tuple("ab"), _SLOTS) * 1.5).astype(np.int64) + 2
    return np.bincount(slots @ [5, 1], minlength=25).astype(np.float64)


def _count_parts(rows: Floats) -> Floats:
    rng = np.random.default_rng(0)
    parts = _read(rows).split(_PARTS, lambda n_rows: rng.integers(0, _PARTS, n_rows))
    counts = [part.counts(tuple("ab")).reshape(-1) for part in parts]
    return np.asarray(np.sum(counts, axis=0), dtype=np.float64)


def audited_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of docs/guarantees.md, all of them."""
    return (*counted_statistics(), *number_statistics(), *shuffled_statistics(), *person_statistics())


def search_statistic(statistic: AuditedStatistic, relation: Relation, pairs: int, seed: int = 0) -> Finding:
    """Search for the worst neighbours of one statistic, with about so many pairs."""
    found, declared = statistic.look(relation, pairs, np.random.default_rng(seed))
    # what is declared to be public must not move at all
    ratio = found.change / declared if declared else math.inf if found.change else 0.0
    facts = statistic.name, statistic.function, relation, found.change, declared, ratio, found.pairs, found.words
    return Finding(*facts)
