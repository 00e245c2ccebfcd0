"""Every statistic with a declared sensitivity, and the search for neighbours that exceed it; here those of counts.

Here is also what would move with an order: statistics of a source that has none.
"""

import math
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import chdtri

from dagveil.audit import search
from dagveil.audit.numbers import ShuffledRows, number_statistics, person_statistics
from dagveil.audit.search import AuditedStatistic, Finding, Floats, Found, Look, Norm, Tables, look_at_records
from dagveil.curator.pair_choices import Expectation, distances_in_records
from dagveil.curator.questions import RECORD
from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.data.streams import StreamedTable
from dagveil.privacy.budget import Relation
from dagveil.privacy.mechanisms.smooth_median import DECAY_BITS, _weights, median, smooth_sensitivity
from dagveil.statistics import contingency
from dagveil.statistics.contingency import counts_sensitivity
from dagveil.statistics.distance import _SIGNS, REACH, ExactDistance, n_log_n
from dagveil.statistics.kendall import Kendall
from dagveil.statistics.reconciled import PartTest, Reconciled, part_p_values
from dagveil.statistics.statistic import STATISTIC_NAMES, Statistic, TableShape, statistic_named

Integers = NDArray[np.int64]
MOST_ROWS: Final = 31  # rows of the largest tables whose exact distance is looked up
# declared shapes of the questions that are searched: one stratum and two, two levels and three
SHAPES: Final = tuple(TableShape(*shape) for shape in ((1, 2, 2), (2, 2, 2), (1, 2, 3), (1, 3, 3), (2, 2, 3)))
SIZES: Final = (3, 30, 1000)  # rows of the larger tables
DISTANCE_ROWS: Final = MOST_ROWS - 1  # rows that two tables share whose exact distance is searched
DISTANCE_LEVEL: Final = 0.1
LATTICE: Final = 7  # a public factor of counts
MEDIAN_UPPER: Final = 12
MEDIAN_BETA: Final = Fraction(1, 10)
MEDIAN_BATCH: Final = 256


def batch_votes(statistic: Reconciled) -> search.Measure:
    """Return the twin of votes: tables come as (batch, parts, levels of x, levels of y)."""

    def measure(tables: Tables) -> Floats:
        p_values = part_p_values(tables.reshape(-1, 1, *tables.shape[2:]), statistic.test)
        votes = (p_values <= statistic.part_level).reshape(len(tables), statistic.parts)
        return np.asarray(votes.sum(axis=1, keepdims=True), dtype=np.float64)

    return measure


def batch_scores(statistic: Statistic, relation: Relation, shape: TableShape) -> search.Measure:
    """Return the twin of a question session's scores, in grid steps."""
    sensitivity = statistic.sensitivity(relation, shape)
    return lambda tables: (statistic.values(tables) * RECORD // sensitivity)[:, None].astype(np.float64)


def batch_distances(level: float) -> search.Measure:
    """Return the twin of the exact distance of 2×2 tables with at most MOST_ROWS rows: looked up."""
    known = tabulate_distances(level)

    def measure(tables: Tables) -> Floats:
        a, b, c, d = tables.reshape(-1, 4).T
        return known[a, b, c, d][:, None].astype(np.float64)

    return measure


@lru_cache(maxsize=2)
def tabulate_distances(level: float) -> NDArray[np.int8]:
    """Return the value of `ExactDistance` for every table with cells up to MOST_ROWS, by the four cells.

    All tables are judged once. Then those within 1, 2, … records of a table that is judged otherwise are marked, by
    shifting the marks along each axis. Ways beyond REACH do not count, so cells up to MOST_ROWS + REACH suffice.
    """
    size = MOST_ROWS + REACH + 1
    products = np.array([n_log_n(count) for count in range(4 * size)])
    a, b, c, d = np.ogrid[:size, :size, :size, :size]
    statistic = np.zeros((size,) * 4)
    # in the order of the statistic itself, so that sums round in the same way
    for counts, sign in zip((a, b, c, d, a + b, c + d, a + c, b + d, a + b + c + d), _SIGNS, strict=True):
        statistic += sign * products[counts]
    dependent = 2.0 * statistic > float(chdtri(1, level))
    values = np.empty(dependent.shape, dtype=np.int8)
    for side in (False, True):
        distance = np.full(dependent.shape, REACH, dtype=np.int8)
        reached = dependent != side
        distance[reached] = 0
        for radius in range(1, REACH):
            wider = _widen(reached)
            distance[wider & ~reached] = radius
            reached = wider
        # one value for tables that look dependent, another for those that do not
        mine = dependent == side
        values[mine] = (REACH + distance if side else REACH - (distance - 1))[mine]
    kept = slice(MOST_ROWS + 1)
    return np.ascontiguousarray(values[kept, kept, kept, kept])


def _widen(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark all tables that one record takes to a marked one."""
    wider = marks.copy()
    for axis in range(marks.ndim):
        target, source = np.moveaxis(wider, axis, 0), np.moveaxis(marks, axis, 0)
        target[1:] |= source[:-1]
        target[:-1] |= source[1:]
    return wider


def batch_smooth_sensitivity(lists: Integers, lower: int, upper: int, beta: float) -> Floats:
    """Return the smooth sensitivity of the median of each list, (batch,), in floating point."""
    count = lists.shape[1]
    middle = (count - 1) // 2
    ordered = np.sort(np.clip(lists, lower, upper), axis=1)
    edge = np.ones((len(lists), 1), dtype=np.int64)
    starts = np.hstack([lower * edge, ordered[:, : middle + 1]])
    ends = np.hstack([ordered[:, middle:], upper * edge])
    widest = np.zeros((len(lists), count + 2), dtype=np.int64)
    for left in range(starts.shape[1]):
        for right in range(ends.shape[1]):
            gap = middle + right - (left - 1)
            np.maximum(widest[:, gap], ends[:, right] - starts[:, left], out=widest[:, gap])
    changes = np.maximum.accumulate(widest[:, 1:], axis=1)
    return np.asarray((_decays(beta, changes.shape[1]) * changes).max(axis=1))


@lru_cache(maxsize=64)
def _decays(beta: float, count: int) -> Floats:
    return np.array([weight / 2**DECAY_BITS for weight in _weights(Fraction(beta), count)])


def _look_at_statistic(
    statistic: Statistic | ExactDistance,
    shape: TableShape,
    measure: search.Measure,
    sizes: tuple[int, ...] = SIZES,
    parts: int = 1,
    **limits: int,
) -> Look:
    """Return the search for a statistic of questions, by its own declared sensitivity."""
    # a record stays in its part whatever it holds
    dealt = (parts * shape[0], *shape[1:])
    return search.look_at_tables(
        measure, dealt, Norm.LARGEST, lambda it: float(statistic.sensitivity(it, shape)), sizes, parts=parts, **limits
    )


def _look_at_rank(statistic: Statistic, shape: TableShape) -> Look:
    return _look_at_statistic(statistic, shape, lambda tables: statistic.values(tables)[:, None].astype(np.float64))


def _look_at_margins(norm: Norm, lattice: int, declare: search.Declare) -> Look:
    """Return the search for several tables of counts of the same rows: all pairs of three columns."""

    def measure(tables: Tables) -> Floats:
        sums = [tables.sum(axis=axis + 1).reshape(len(tables), -1) for axis in range(3)]
        return lattice * np.hstack(sums).astype(np.float64)

    return search.look_at_tables(measure, (2, 2, 3), norm, declare, SIZES)


def _look_at_centred(levels: tuple[int, ...], order: int) -> Look:
    """Return the search for centred tables in counts: one-way ones with the number of rows, or all of two or three."""
    names = [f"c{axis}" for axis in range(len(levels))]
    sets = list(combinations(range(len(levels)), order))

    def measure(tables: Tables) -> Floats:
        found = [tables.reshape(len(tables), -1).sum(axis=1, keepdims=True)] if order == 1 else []
        for kept in sets:
            gone = tuple(axis + 1 for axis in range(len(levels)) if axis not in kept)
            size = math.prod(levels[axis] for axis in kept)
            found.append(contingency.centre_counts(tables.sum(axis=gone)).reshape(len(tables), -1) / size)
        return np.hstack(found)

    def declare(relation: Relation) -> float:
        if order == 1:
            return math.sqrt(contingency.margins_squared_sensitivity(relation, levels))
        asked, sizes = list(combinations(names, order)), dict(zip(names, levels, strict=True))
        return math.sqrt(contingency.interactions_squared_sensitivity(relation, asked, sizes))

    return search.look_at_tables(measure, levels, Norm.SQUARES, declare, SIZES)


def _look_in_records(make: Callable[[Relation], search.Measure], shape: tuple[int, ...]) -> Look:
    """Return the search for scores in grid steps, which depend on the relation."""
    facts = shape, Norm.LARGEST, lambda relation: float(RECORD), (3, 30)
    return lambda relation, pairs, rng: search.look_at_tables(make(relation), *facts)(relation, pairs, rng)


def _look_at_scores(name: str) -> Look:
    """Return the search for scores in records, as a question session computes them."""
    statistic, shape = statistic_named(name, 30), TableShape(2, 2, 2)
    return _look_in_records(lambda relation: batch_scores(statistic, relation, shape), tuple(shape))


def _look_at_distances(shape: tuple[int, int]) -> Look:
    """Return the search for distances of centred tables from what is expected, in grid steps."""
    sides = [np.linspace(-1.0, 1.0, count) for count in shape]
    move = 3.0 * np.outer(*(side - side.mean() for side in sides))
    expected: list[tuple[float, tuple[float, ...], float]] = [(0.0, (), 0.0), (1.0, (1.0, -5.0), 1.5)]
    levels = dict(zip("xy", shape, strict=True))

    def make(relation: Relation) -> search.Measure:
        sensitivity = contingency.interactions_squared_sensitivity(relation, [("x", "y")], levels)

        def measure(tables: Tables) -> Floats:
            exact = contingency.centre_counts(tables)
            count, each = len(exact), move * np.ones(exact.shape)
            found = [
                Expectation(range(count), c * each, tuple(k * each for k in moves), np.full(count, slack))
                for c, moves, slack in expected
            ]
            return np.array([distances_in_records(exact, of, sensitivity) for of in found], float).T

        return measure

    return _look_in_records(make, shape)


def _look_at_medians(relation: Relation, pairs: int, rng: np.random.Generator) -> tuple[Found, float]:
    """Search lists of values in which one changes: the median by at most S, and S by at most a factor e^β.

    A record that comes, goes or is replaced changes the value of one part. Lists of one length are tried together; the
    worst of each length is measured by the mechanism's own functions.
    """
    grid = range(0, MEDIAN_UPPER + 1, 4)
    waiting = [np.array(list(product(grid, repeat=size)), dtype=np.int64) for size in (1, 2, 3)]
    batch = min(MEDIAN_BATCH, max(1, pairs // 200))
    best, tried, words = -1.0, 0, ""
    while tried < pairs:
        size = int(rng.integers(1, 12))
        lists = waiting.pop() if waiting else rng.integers(0, MEDIAN_UPPER + 1, (batch, size))
        others = _replace_each(lists, (0, MEDIAN_UPPER // 2, MEDIAN_UPPER))
        repeated = np.repeat(lists, len(others) // len(lists), axis=0)
        reached = _compare_medians(repeated, others)
        tried += len(reached)
        place = int(reached.argmax())
        # floats rank the lists; the fractions of the mechanism decide
        exact = _compare_exactly(repeated[place].tolist(), others[place].tolist())
        if exact > best:
            best = exact
            words = f"{repeated[place].tolist()} and {others[place].tolist()} between 0 and {MEDIAN_UPPER}"
    return Found(best, tried, words), 1.0


def _replace_each(lists: Tables, values: tuple[int, ...]) -> Tables:
    """Return every list with each of its places replaced by each of the values, list by list."""
    count, size = lists.shape
    others = np.repeat(lists, size * len(values), axis=0)
    places = np.tile(np.repeat(np.arange(size), len(values)), count)
    others[np.arange(len(others)), places] = np.tile(np.array(values), count * size)
    return others


def _compare_medians(lists: Tables, others: Tables) -> Floats:
    """Return how far each pair goes, as a part of what is allowed: the shift of the median, and the dilation of S."""
    middle = (lists.shape[1] - 1) // 2
    here, there = (np.sort(values, axis=1)[:, middle] for values in (lists, others))
    beta = float(MEDIAN_BETA)
    smooth, after = (batch_smooth_sensitivity(values, 0, MEDIAN_UPPER, beta) for values in (lists, others))
    moved = np.abs(there - here) / np.minimum(smooth, after)
    return np.asarray(np.maximum(moved, np.abs(np.log(after / smooth)) / beta))


def _compare_exactly(values: list[int], other: list[int]) -> float:
    """Return the same for one pair, by the mechanism's own functions."""
    smooth, after = (smooth_sensitivity(one, 0, MEDIAN_UPPER, MEDIAN_BETA) for one in (values, other))
    moved = abs(median(other) - median(values)) / float(min(smooth, after))
    return max(moved, abs(math.log(after / smooth)) / float(MEDIAN_BETA))


def _question_statistics() -> list[AuditedStatistic]:
    places = {
        "kendall": "statistics.kendall.Kendall.sensitivity",
        "spearman": "statistics.spearman.Spearman.sensitivity",
        "g": "statistics.g.G.sensitivity",
        "mutual-information": "statistics.g.G.sensitivity",
        "chi-square": "statistics.chi_square.ChiSquare.sensitivity",
    }
    # tables of up to 31 rows: all of them were judged beforehand, and their distances are looked up
    distance, shape = ExactDistance(DISTANCE_LEVEL, Kendall(60)), TableShape(1, 2, 2)
    lookup, rows = lambda tables: batch_distances(DISTANCE_LEVEL)(tables), (3, DISTANCE_ROWS)
    distances = _look_at_statistic(distance, shape, lookup, rows, most_enumerated=DISTANCE_ROWS)
    tests = [Reconciled(test, 3) for test in PartTest]
    votes = search.join_looks([_look_at_statistic(test, shape, batch_votes(test), (6, 30, 60), 3) for test in tests])
    scores = search.join_looks([_look_at_scores(name) for name in ("kendall", "g")])
    of_pairs = search.join_looks([_look_at_distances(shape) for shape in ((2, 2), (2, 3))])
    every = [(shape, rows) for shape in SHAPES for rows in (8, 1000)]
    ranks = {name: [_look_at_rank(statistic_named(name, rows), one) for one, rows in every] for name in places}
    return [
        *(AuditedStatistic(name, places[name], search.join_looks(ranks[name])) for name in STATISTIC_NAMES),
        AuditedStatistic("exact distance", "statistics.distance.ExactDistance.sensitivity", distances),
        AuditedStatistic("votes of parts", "statistics.reconciled.Reconciled.sensitivity", votes),
        AuditedStatistic("median of parts", "privacy.mechanisms.smooth_median.smooth_sensitivity", _look_at_medians),
        AuditedStatistic("distance of a pair's table", "curator.pair_choices.distances_in_records", of_pairs),
        AuditedStatistic("score in records", "curator.questions.QuestionSession.answer", scores),
    ]


def _count_statistics() -> list[AuditedStatistic]:
    squared = "statistics.contingency.counts_squared_sensitivity"
    counted = contingency.counts_squared_sensitivity
    tables = _look_at_margins(Norm.SQUARES, LATTICE, lambda relation: math.sqrt(counted(relation, 3, LATTICE)))
    charged = {Relation.ADD_REMOVE: math.sqrt(counted(Relation.ADD_REMOVE, 1, LATTICE))}
    rows = search.look_at_tables(
        lambda tables: LATTICE * tables.sum(axis=(1, 2), dtype=np.float64)[:, None],
        (2, 2),
        Norm.SQUARES,
        lambda relation: charged.get(relation, 0.0),  # where records are replaced, nothing is charged for it
        SIZES,
    )
    laplace = _look_at_margins(Norm.SIZES, 1, lambda relation: float(counts_sensitivity(relation, 3)))
    margins = search.join_looks([_look_at_centred(levels, 1) for levels in ((2, 2, 2), (2, 3, 4))])
    pairs = search.join_looks([_look_at_centred(levels, 2) for levels in ((2, 3), (3, 4), (2, 2, 2), (2, 3, 4))])
    triples = search.join_looks([_look_at_centred(levels, 3) for levels in ((2, 2, 2), (2, 3, 4), (2, 2, 2, 2))])
    centred = "statistics.contingency.interactions_squared_sensitivity"
    return [
        AuditedStatistic("tables of counts", squared, tables),
        AuditedStatistic("number of rows", squared, rows),
        AuditedStatistic("tables of counts, Laplace noise", "statistics.contingency.counts_sensitivity", laplace),
        AuditedStatistic("margins", "statistics.contingency.margins_squared_sensitivity", margins),
        AuditedStatistic("interactions of pairs", centred, pairs),
        AuditedStatistic("interactions of three columns", centred, triples),
    ]


_SCHEMA: Final = Schema(
    dataset="audit", columns={name: Numeric(bounds=(-1.0, 1.0), bins=3) for name in "ab"}, reviewed=True, public=True
)
_SLOTS: Final = 6
_PARTS: Final = 3
_FEWER: Final = 8


def _shuffled_statistics() -> tuple[AuditedStatistic, ...]:
    """Return what would move with an order: the slots, and the parts together, of a source without one."""
    # whatever the relation, one slot takes another value
    slots = _look_less(_count_slots, lambda relation: Relation.REPLACE_ONE, (3 * _SLOTS, _SLOTS, _SLOTS - 2))
    parts = _look_less(_count_parts, lambda relation: relation, (9, 0))
    looks = {"slots of a source without an order": slots, "parts of a source without an order": parts}
    function = "statistics.contingency.counts_sensitivity"
    return tuple(AuditedStatistic(name, function, look) for name, look in looks.items())


def _look_less(count: search.RowMeasure, moves: Callable[[Relation], Relation], sizes: tuple[int, ...]) -> Look:
    """Return a search with fewer pairs: each takes a table of its own, and several readings of it."""
    look = look_at_records(count, 2, 1.0, lambda it: float(counts_sensitivity(moves(it), 1)), Norm.SIZES, sizes)
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
    return np.asarray(sum(part.counts(tuple("ab")).reshape(-1) for part in parts), dtype=np.float64)


def audited_statistics() -> tuple[AuditedStatistic, ...]:
    """Return the statistics of docs/guarantees.md, all of them."""
    counted = *_count_statistics(), *_question_statistics()
    return (*counted, *number_statistics(), *_shuffled_statistics(), *person_statistics())


def search_statistic(statistic: AuditedStatistic, relation: Relation, pairs: int, seed: int = 0) -> Finding:
    """Search for the worst neighbours of one statistic, with about so many pairs."""
    found, declared = statistic.look(relation, pairs, np.random.default_rng(seed))
    # what is declared to be public must not move at all
    ratio = found.change / declared if declared else math.inf if found.change else 0.0
    what = statistic.name, statistic.function, relation
    return Finding(*what, found.change, declared, ratio, found.pairs, found.words)
