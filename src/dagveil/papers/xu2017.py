"""Xu, Yuan and Wu 2017 as published: EM-PC (there PrivPC), LapMech and PrivPC*."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri

from dagveil.curator import Question
from dagveil.data.column import Numeric
from dagveil.data.moments import MomentPlan
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Order, Part, Positive
from dagveil.papers.common import PublishedTests, describe_published, g_p_value, g_test, sum_logarithms
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Sweep, prune
from dagveil.statistics.distance import n_log_n
from dagveil.statistics.kendall import normal_quantile


def greedy_distance(tables: NDArray[np.int64], critical: float) -> int:
    """Return the published distance: records that a greedy walk removes until G² crosses its critical value.

    Positive if the table looks independent (G² at most critical), negative if not. It is **not** the distance: one
    record can change it by dozens.

    Parameters
    ----------
    tables
        Counts of shape (strata, levels of x, levels of y).
    critical
        Value of G² above which the test says "dependent".

    Examples
    --------
    >>> [greedy_distance(np.array([table]), 2.706) for table in ([[30, 20], [20, 30]], [[25, 25], [25, 25]])]
    [-4, 13]
    """
    statistic = _g_squared(tables)
    rising = statistic <= critical
    sign = -1.0 if rising else 1.0
    gain = _increments(_next_power(int(tables.sum(axis=(1, 2)).max(initial=0))), sign)
    strata = [_Stratum(table, gain) for table in tables.tolist()]
    # the best record of each stratum, best first
    heap = [(-stratum.merit, place) for place, stratum in enumerate(strata) if stratum.rows]
    heapq.heapify(heap)
    steps = 0
    while heap:
        merit, place = heap[0]
        stratum = strata[place]
        # while this stratum stays ahead of the others, the heap need not know
        others = min((entry[0] for entry in heap[1:3]), default=math.inf)
        while merit <= others:
            steps += 1
            statistic += 2.0 * sign * merit
            if (statistic > critical) == rising:
                return steps if rising else -steps
            stratum.remove_best()
            if not stratum.rows:
                break
            merit = -stratum.merit
        if stratum.rows:
            heapq.heapreplace(heap, (merit, place))
        else:
            heapq.heappop(heap)
    return steps if rising else -steps


class _Stratum:
    """A table that loses one record at a time, where that moves G² most in the direction of the sign.

    Taking a record from cell (i, j) changes G² by −2 (g(n) − g(x) − g(y) + g(m)), g being the increment of n ln n at
    the counts of the cell, its margins and the stratum. Only cells in the same row or column need a new look.
    """

    __slots__ = ("_affected", "_best", "_gain", "_gains", "_merits", "_n", "_x", "_y", "merit", "rows")

    def __init__(self, table: list[list[int]], gain: list[float]) -> None:
        """Take the table, and the increments with the sign of the direction."""
        self._n = [count for line in table for count in line]
        self._x = [sum(line) for line in table]
        self._y = [sum(column) for column in zip(*table, strict=True)]
        self._gain = gain
        self._affected = _neighbourhoods(len(table), len(table[0]))
        # increments of cells, of rows and of columns; an empty cell has no record to take
        self._gains = (
            [gain[count] if count else -math.inf for count in self._n],
            [gain[count] for count in self._x],
            [gain[count] for count in self._y],
        )
        self.rows = sum(self._x)
        cells, rows, columns = self._gains
        self._merits = [cells[k] - rows[i] - columns[j] for k, i, j, _ in self._affected]
        self._find_best()

    def remove_best(self) -> None:
        """Take away the record that `merit` stands for."""
        cell, i, j, touched = self._affected[self._best]
        cells, rows, columns = self._gains
        gain, merits = self._gain, self._merits
        self.rows -= 1
        self._n[cell] = count = self._n[cell] - 1
        cells[cell] = gain[count] if count else -math.inf
        self._x[i] = count = self._x[i] - 1
        rows[i] = gain[count]
        self._y[j] = count = self._y[j] - 1
        columns[j] = gain[count]
        for k, a, b in touched:
            merits[k] = cells[k] - rows[a] - columns[b]
        self._find_best()

    def _find_best(self) -> None:
        best = max(self._merits)
        self._best = self._merits.index(best)
        self.merit = best + self._gain[self.rows]


@lru_cache(maxsize=64)
def _neighbourhoods(height: int, width: int) -> list[tuple[int, int, int, list[tuple[int, int, int]]]]:
    """Return, for each cell, its row and column and the cells that share one of them."""
    cells = [(k, k // width, k % width) for k in range(height * width)]
    return [(k, i, j, [cell for cell in cells if cell[1] == i or cell[2] == j]) for k, i, j in cells]


def _g_squared(tables: NDArray[np.int64]) -> float:
    parts = ((1, tables), (-1, tables.sum(axis=1)), (-1, tables.sum(axis=2)), (1, tables.sum(axis=(1, 2))))
    return 2.0 * sum(sign * sum(map(n_log_n, counts.reshape(-1).tolist())) for sign, counts in parts)


def _next_power(count: int) -> int:
    return 1 << max(10, count.bit_length())


@lru_cache(maxsize=4)
def _increments(size: int, sign: float) -> list[float]:
    """Return n ln n − (n − 1) ln(n − 1), with a sign, for every n up to a size; 0 for n = 0."""
    counts = np.arange(size + 1, dtype=np.float64)
    products = counts * np.log(np.maximum(counts, 1.0))
    return [0.0, *(sign * np.diff(products)).tolist()]


EM_PC_FLAW = (
    "the distance jumps from +1 to −1 and so has sensitivity 2, the score of the extreme conditioning set jumps when "
    "the set changes, the greedy distance is not the distance, and arrows use the raw separating set"
)


class EmPcPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program.

    Parameters
    ----------
    level
        Of the G test.
    node_epsilon
        ε₁ + ε₂ of each node and order. None takes ε/15, as the publication does.
    number_share
        Share of it for the number of neighbours to drop, which is ε₂; the rest, ε₁, is for which.
    node_limit
        Nodes that may be treated before the budget is spent. None takes 15 if node_epsilon is None, else no limit.
    whole_domain
        Whether the number to drop may be all neighbours; the published program leaves that one out.
    """

    level: Level = 0.10
    node_epsilon: Positive | None = None
    number_share: Part = 0.5
    node_limit: Count | None = None
    whole_domain: bool = False


def publish_em_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: EmPcPublished, progress: Progress
) -> Asked:
    """Run the published program."""
    columns = tuple(access.schema.columns)
    tests = PublishedTests(access)
    graph = Pruning(columns, knowledge)
    epsilon = settings.node_epsilon or float(budget.epsilon) / 15.0
    split = (epsilon * settings.number_share, epsilon * (1.0 - settings.number_share))
    limit = settings.node_limit or (15 if settings.node_epsilon is None else None)
    distances: dict[Question, int] = {}
    p_values: dict[Question, tuple[float, float]] = {}
    treated, order, questions = 0, 0, []

    def merit(question: Question) -> tuple[float, float]:
        if question not in p_values:
            table = tests.table(question)
            # p-values of 0 are told apart by G²
            p_values[question] = (g_p_value(table), -g_test(table)[0])
        return p_values[question]

    def distance(question: Question) -> int:
        question = (min(question[:2]), max(question[:2]), question[2])
        if question not in distances:
            table = tests.table(question)
            _, freedom = g_test(table)
            distances[question] = greedy_distance(table, float(chdtri(max(freedom, 1), settings.level)))
        return distances[question]

    unanswered: list[tuple[str, str, int]] = []
    while any(len(graph.neighbours(x)) > order for x in columns) and not unanswered:
        questions.append(0)
        for x in columns:
            others = graph.removable(x)
            if len(graph.neighbours(x)) <= order or not others:
                continue
            if limit is not None and treated >= limit:
                unanswered += [(x, y, order) for y in others]
                continue
            treated += 1
            chosen: dict[str, Question] = {}
            for y in others:
                sets = combinations([z for z in graph.neighbours(x) if z != y], order)
                asked: list[Question] = [(min(x, y), max(x, y), given) for given in sets]
                questions[-1] += len(asked)
                best = max(asked, key=merit)
                chosen[y] = (x, y, best[2])
            _drop_neighbours(graph, chosen, distance, split, settings.whole_domain, access.rng)
        order += 1
    sweep = Sweep(graph.skeleton(), tuple(questions), tuple(unanswered))
    return describe_published(access.schema, sweep, knowledge, (treated * epsilon, 0.0))


def _drop_neighbours(
    graph: Pruning,
    chosen: dict[str, Question],
    distance: Callable[[Question], int],
    epsilons: tuple[float, float],
    whole_domain: bool,
    rng: np.random.Generator,
) -> None:
    """Draw how many neighbours go, with the first epsilon, and which, with the second, as published."""
    scores = {y: distance(question) for y, question in chosen.items()}
    best = sorted(scores.values(), reverse=True)
    number = _draw(number_scores(best, whole_domain), epsilons[0], rng)
    for _ in range(number):
        rest = list(scores)
        y = rest[_draw([scores[name] for name in rest], epsilons[1] / number, rng)]
        x, _, given = chosen[y]
        graph.remove(x, y, given)
        del scores[y]


def number_scores(best: list[int], whole_domain: bool) -> list[int]:
    """Return q₂, equations 6 to 8 of the publication, for distances in falling order.

    Examples
    --------
    >>> number_scores([5, 2, -3], whole_domain=True)
    [-5, -2, 1, -3]
    """
    scores = [-best[0] - (best[0] < 0)]
    scores += [min(left, -right) - (left > 0 > right) for left, right in pairwise(best)]
    if whole_domain:
        scores.append(best[-1] - (best[-1] > 0))
    return scores


def _draw(scores: list[int], epsilon: float, rng: np.random.Generator) -> int:
    weights = np.exp(epsilon / 2.0 * (np.array(scores, dtype=np.float64) - max(scores)))
    return int(rng.choice(len(scores), p=weights / weights.sum()))


LAP_MECH_FLAW = (
    "under replaced records its loss is twice what is stated, and floating-point Laplace noise gives records away"
)


class JointTests:
    """G tests of any axes of one table, each marginal table cut at 0 before its test.

    G² is made of sums of n ln n over a table and its margins. Those of a set of axes serve every pair in it.

    Parameters
    ----------
    joint
        Counts by all columns, noise included.

    Examples
    --------
    >>> round(JointTests(np.array([[30.0, 20.0], [20.0, 30.0]])).p_value(0, 1, []), 4)
    0.0448
    """

    def __init__(self, joint: NDArray[np.float64]) -> None:
        self._joint = joint
        self._known: dict[frozenset[int], dict[frozenset[int], float]] = {}

    def p_value(self, x: int, y: int, given: Sequence[int]) -> float:
        """Return the p-value of independence of two axes given others."""
        axes = frozenset((x, y, *given))
        if axes not in self._known:
            self._known[axes] = self._summarise(sorted(axes))
        sums = self._known[axes]
        whole, without_both = sums[frozenset()], sums[frozenset((x, y))]
        statistic = 2.0 * (whole - sums[frozenset((x,))] - sums[frozenset((y,))] + without_both)
        levels = self._joint.shape
        freedom = (levels[x] - 1) * (levels[y] - 1) * math.prod(levels[axis] for axis in given)
        return float(chdtrc(freedom, max(statistic, 0.0))) if freedom else 1.0

    def _summarise(self, axes: Sequence[int]) -> dict[frozenset[int], float]:
        """Return the sum of n ln n of a marginal table, and without any one or two of its axes."""
        others = tuple(axis for axis in range(self._joint.ndim) if axis not in axes)
        table = np.maximum(self._joint.sum(axis=others), 0.0)
        sums = {frozenset[int](): sum_logarithms(table)}
        for first, axis in enumerate(axes):
            margin = table.sum(axis=first)
            sums[frozenset((axis,))] = sum_logarithms(margin)
            for second in range(first + 1, len(axes)):
                sums[frozenset((axis, axes[second]))] = sum_logarithms(margin.sum(axis=second - 1))
        return sums


class LapMechPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    Parameters
    ----------
    level
        Of the G test.
    largest_order
        Size of the largest conditioning set; None goes on while there are neighbours.
    """

    level: Level = 0.01
    largest_order: Order | None = None


def publish_lap_mech(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: LapMechPublished, progress: Progress
) -> Asked:
    """Run the published method: floating-point noise, and the ordinary G test on what comes out."""
    columns = tuple(access.schema.columns)
    joint = access.exact_joint().astype(np.float64)
    joint += access.rng.laplace(0.0, 1.0 / float(budget.epsilon), joint.shape)
    place = {name: axis for axis, name in enumerate(columns)}
    tests = JointTests(joint)

    def is_independent(question: Question) -> bool:
        x, y, given = question
        return tests.p_value(place[x], place[y], [place[name] for name in given]) > settings.level

    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, is_independent, largest, knowledge, progress=progress)
    return describe_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


PRIV_PC_STAR_FLAW = (
    "the stated sensitivity assumes that no record is larger than a typical one, but normal records are unbounded: of "
    "ten independent columns every sixth record exceeds it"
)


FIXED_POINT_BITS = 8
"""Fixed-point bits with which the exact moments of the published version are summed."""


class PrivPcStarPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    Parameters
    ----------
    level
        Of Fisher's z test.
    largest_order
        Size of the largest conditioning set; None goes on while there are neighbours.
    """

    level: Level = 0.01
    largest_order: Order | None = None


def published_covariance_sensitivity(n_columns: int, n_rows: int) -> float:
    """Return p(p + 1)/(2(n − 1)), the stated L1 sensitivity of the covariance matrix. False for large records."""
    return n_columns * (n_columns + 1) / (2.0 * (n_rows - 1))


def publish_priv_pc_star(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PrivPcStarPublished, progress: Progress
) -> Asked:
    """Run the published method on standardised columns."""
    columns = tuple(access.schema.columns)
    n = access.n_rows
    covariance = _correlations(access)
    noise = access.rng.laplace(
        0.0, published_covariance_sensitivity(len(columns), n) / float(budget.epsilon), covariance.shape
    )
    covariance += np.tril(noise) + np.tril(noise, -1).T
    place = {name: i for i, name in enumerate(columns)}

    def is_independent(question: Question) -> bool:
        x, y, given = question
        chosen = [place[name] for name in (x, y, *given)]
        inverse = np.linalg.pinv(covariance[np.ix_(chosen, chosen)])
        scale = inverse[0, 0] * inverse[1, 1]
        # noise can leave a matrix that is no covariance: its partial correlation then means nothing, as published
        partial = -inverse[0, 1] / math.sqrt(scale) if scale > 0.0 else 0.0
        partial = min(max(partial, -0.999999), 0.999999)
        return math.sqrt(max(n - len(given) - 3, 1)) * abs(math.atanh(partial)) <= normal_quantile(settings.level)

    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, is_independent, largest, knowledge, progress=progress)
    return describe_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


def _correlations(access: PublishedAccess) -> NDArray[np.float64]:
    """Return the exact correlation matrix; rows are not clipped beyond their declared bounds."""
    columns = {name: column for name, column in access.schema.columns.items() if isinstance(column, Numeric)}
    centers = tuple((column.bounds[0] + column.bounds[1]) / 2.0 for column in columns.values())
    # in units of a 64th of the bounds' width, a ball of radius 32 per column holds everything
    spreads = tuple((column.bounds[1] - column.bounds[0]) / 64.0 for column in columns.values())
    plan = MomentPlan(tuple(columns), centers, spreads, 32.0**2 * len(columns), 1.0, FIXED_POINT_BITS)
    moments = access.exact_moments(plan).astype(np.float64) / 4.0**FIXED_POINT_BITS
    n = moments[0, 0]
    mean = moments[0, 1:] / n
    covariance = moments[1:, 1:] / n - np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    return np.asarray(covariance / np.outer(deviation, deviation))


NO_PROGRAM = "its authors released no program"
PUBLICATIONS = {
    "em-pc": Publication(
        {Calibration.PROGRAM: Reading(EmPcPublished, publish_em_pc, EM_PC_FLAW)},
        "only the constants of Priv-PC's program, which holds it as a baseline, are declared so far",
    ),
    "lap-mech": Publication(
        {Calibration.PAPER: Reading(LapMechPublished, publish_lap_mech, LAP_MECH_FLAW)}, NO_PROGRAM
    ),
    "priv-pc-star": Publication(
        {Calibration.PAPER: Reading(PrivPcStarPublished, publish_priv_pc_star, PRIV_PC_STAR_FLAW)}, NO_PROGRAM
    ),
}
