"""Xu, Yuan and Wu 2017 as published: EM-PC (there PrivPC), LapMech and PrivPC*."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise

import msgspec
import numpy as np
from scipy.special import chdtrc, chdtri

from dagveil.curator import Question
from dagveil.data.column import Numeric
from dagveil.data.moments import MomentPlan
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Order, Part, Positive
from dagveil.papers import publication
from dagveil.papers.publication import Counts, Floats, Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Sweep, Traversal
from dagveil.statistics.distance import n_log_n
from dagveil.statistics.kendall import normal_quantile


def greedy_distance(tables: Counts, critical: float) -> int:
    """Return the published distance: records that a greedy walk removes until G² crosses its critical value.

    Positive if the table looks independent (G² at most critical), negative if not. It is **not** the distance: one
    record can change it by dozens.
    """
    parts = ((1, tables), (-1, tables.sum(axis=1)), (-1, tables.sum(axis=2)), (1, tables.sum(axis=(1, 2))))
    statistic = 2.0 * sum(sign * sum(map(n_log_n, counts.reshape(-1).tolist())) for sign, counts in parts)
    rising = statistic <= critical
    sign = -1.0 if rising else 1.0
    most = int(tables.sum(axis=(1, 2)).max(initial=0))
    gain = _increments(1 << max(10, most.bit_length()), sign)
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


@lru_cache(maxsize=4)
def _increments(size: int, sign: float) -> list[float]:
    """Return n ln n − (n − 1) ln(n − 1), with a sign, for every n up to a size; 0 for n = 0."""
    counts = np.arange(size + 1, dtype=np.float64)
    return [0.0, *(sign * np.diff(counts * np.log(np.maximum(counts, 1.0)))).tolist()]


EM_PC_FLAW = (
    "the distance jumps from +1 to −1 and so has sensitivity 2, the score of the extreme conditioning set jumps when "
    "the set changes, the greedy distance is not the distance, and arrows use the raw separating set"
)


class EmPcPaper(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the text.

    - `level`: Of the G test; τ of section VI.
    - `node_epsilon`: ε₁ + ε₂ of each node and order. None takes ε/15, section VI.A.
    - `number_share`: Share of it for the number of neighbours to drop, which is ε₂; the rest, ε₁, is for which.
    - `node_limit`: Nodes that may be treated before the budget is spent. None takes 15 if node_epsilon is None, else no
      limit.
    - `removes_below`: Whether pairs with a p-value below the level go, as algorithms 1 and 3 and equation 5 print. The
      text's own figures, and section V, need the reverse, which is the default.
    """

    level: Level = 0.01
    node_epsilon: Positive | None = None
    number_share: Part = 0.5
    node_limit: Count | None = None
    removes_below: bool = False


class EmPcProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of Priv-PC's program, which holds EM-PC as a baseline; its own authors released none.

    - `level`: Of the G test (src/eval.py, ALPHA).
    - `node_epsilon`: Of each node and order, half for the number. None takes a value whose reported total is near the
      run's epsilon.
    - `delta`: Of the reported total (src/eval.py).
    """

    level: Level = 0.10
    node_epsilon: Positive | None = None
    delta: Level = 1e-3


def publish_em_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: EmPcPaper, progress: Progress
) -> Asked:
    """Run algorithm 2 of the text."""
    epsilon = settings.node_epsilon or float(budget.epsilon) / 15.0
    limit = settings.node_limit or (15 if settings.node_epsilon is None else None)
    split = (epsilon * settings.number_share, epsilon * (1.0 - settings.number_share))
    sweep, treated = _treat_nodes(access, knowledge, settings.level, split, limit, _Text(settings.removes_below))
    return publication.describe_published(access.schema, sweep, knowledge, (treated * epsilon, 0.0))


def publish_em_pc_program(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: EmPcProgram, progress: Progress
) -> Asked:
    """Run EM-PC as Priv-PC's program has it (src/pc.py, estimate_skeleton_EM; src/findJS.py)."""
    epsilon = settings.node_epsilon or publication.near_total(budget, access.schema)
    split = (epsilon / 2.0, epsilon / 2.0)
    sweep, treated = _treat_nodes(access, knowledge, settings.level, split, None, _Program())
    total = publication.advanced_composition(epsilon, treated, settings.delta)
    return publication.describe_published(access.schema, sweep, knowledge, (total, settings.delta))


class _Text:
    """How the text scores nodes and numbers."""

    chosen = -math.inf  # algorithm 3, line 15

    def __init__(self, removes_below: bool) -> None:
        self._sign = -1 if removes_below else 1

    def merit(self, table: Counts) -> tuple[float, float]:
        """Return what is largest for the set that speaks for a pair; p-values of 0 are told apart by G²."""
        return self._sign * publication.g_p_value(table), -self._sign * publication.g_test(table)[0]

    def node_score(self, distance: int) -> int:
        """Return q₁ for a distance that is positive if the pair looks independent."""
        return self._sign * distance

    def number_scores(self, distances: Iterable[int]) -> list[int]:
        """Return q₂."""
        return number_scores(sorted(map(self.node_score, distances), reverse=True))


class _Program:
    """How the program does: its distances leave out the record that turns the test, and not all neighbours may go."""

    chosen = -10_000

    def merit(self, table: Counts) -> tuple[float, float]:
        return publication.g_p_value(table), 0.0

    def node_score(self, distance: int) -> int:
        return distance - 1 if distance > 0 else distance + 1

    def number_scores(self, distances: Iterable[int]) -> list[int]:
        best = sorted(distances, reverse=True)
        short = [self.node_score(distance) for distance in best]
        # lowered if the best pair looks independent; in equation 7 if it does not
        scores = [-short[0] - (best[0] > 0)]
        for (before, after), (left, right) in zip(pairwise(best), pairwise(short), strict=True):
            scores.append(min(left, -right) - 1 if before > 0 > after else -right if before > 0 else left)
        return scores


def _treat_nodes(
    access: PublishedAccess,
    knowledge: Knowledge,
    level: float,
    epsilons: tuple[float, float],
    limit: int | None,
    scoring: _Text | _Program,
) -> tuple[Sweep, int]:
    """Go through nodes and orders; return what is left, and how many nodes were treated."""
    columns = tuple(access.schema.columns)
    graph = Pruning(columns, knowledge)
    treated, order, questions = 0, 0, []

    @cache
    def merit(question: Question) -> tuple[float, float]:
        return scoring.merit(access.ordered_counts(question))

    @cache
    def distance(question: Question) -> int:
        table = access.ordered_counts(question)
        _, freedom = publication.g_test(table)
        return greedy_distance(table, float(chdtri(max(freedom, 1), level)))

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
            chosen: list[Question] = []
            for y in others:
                sets = graph.sets(x, y, order, Traversal.PUBLISHED)
                questions[-1] += len(sets)
                chosen.append(max(((min(x, y), max(x, y), given) for given in sets), key=merit))
            # how many neighbours go is drawn with the first epsilon, and which with the second, as published
            apart = [distance(question) for question in chosen]
            number = _draw(scoring.number_scores(apart), epsilons[0], access.rng)
            scores: list[float] = [scoring.node_score(one) for one in apart]
            for _ in range(number):
                place = _draw(scores, epsilons[1] / number, access.rng)
                if scores[place] != scoring.chosen:
                    graph.remove(*chosen[place])
                    scores[place] = scoring.chosen
        order += 1
    return Sweep(graph.skeleton(), tuple(questions), tuple(unanswered)), treated


def number_scores(best: list[int]) -> list[int]:
    """Return q₂, equations 6 to 8 of the text, for distances in falling order."""
    inner = [min(left, -right) - (left > 0 > right) for left, right in pairwise(best)]
    return [-best[0] - (best[0] < 0), *inner, best[-1] - (best[-1] > 0)]


def _draw(scores: Sequence[float], epsilon: float, rng: np.random.Generator) -> int:
    weights = np.exp(epsilon / 2.0 * (np.array(scores, dtype=np.float64) - max(scores)))
    return int(rng.choice(len(scores), p=weights / weights.sum()))


LAP_MECH_FLAW = (
    "under replaced records its loss is twice what is stated, and floating-point Laplace noise gives records away"
)


class JointTests:
    """G tests of any axes of one table of counts, noise included.

    G² is made of sums of n ln n over a table and its margins. Those of a set of axes serve every pair in it. A marginal
    table may be `cut` at 0 before its margins are taken; n ln n of a negative n is 0 either way.
    """

    def __init__(self, joint: Floats, *, cut: bool = True) -> None:
        self._joint = joint
        self._cut = cut
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
        table = self._joint.sum(axis=others)
        table = np.maximum(table, 0.0) if self._cut else table
        sums = {frozenset[int](): publication.sum_logarithms(table)}
        for first, axis in enumerate(axes):
            margin = table.sum(axis=first)
            sums[frozenset((axis,))] = publication.sum_logarithms(margin)
            for second in range(first + 1, len(axes)):
                sums[frozenset((axis, axes[second]))] = publication.sum_logarithms(margin.sum(axis=second - 1))
        return sums


class LapMechPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    - `level`: Of the G test.
    - `largest_order`: Size of the largest conditioning set; None goes on while there are neighbours.
    - `cut_at_zero`: Whether the table of each test is cut at 0 before its margins are taken. The publication does not
      say what it does with negative counts, of which G² has no logarithm.
    """

    level: Level = 0.01
    largest_order: Order | None = None
    cut_at_zero: bool = True


def publish_lap_mech(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: LapMechPublished, progress: Progress
) -> Asked:
    """Run the published method: floating-point noise, and the ordinary G test on what comes out."""
    columns = tuple(access.schema.columns)
    joint = access.exact_table().astype(np.float64)
    joint += access.rng.laplace(0.0, 1.0 / float(budget.epsilon), joint.shape)
    place = {name: axis for axis, name in enumerate(columns)}
    tests = JointTests(joint, cut=settings.cut_at_zero)

    def is_independent(question: Question) -> bool:
        x, y, given = question
        return tests.p_value(place[x], place[y], [place[name] for name in given]) > settings.level

    sweep = publication.prune_published(access, is_independent, knowledge, progress, settings.largest_order)
    return publication.describe_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


PRIV_PC_STAR_FLAW = (
    "the stated sensitivity assumes that no record is larger than a typical one, but normal records are unbounded: of "
    "ten independent columns every sixth record exceeds it"
)
FIXED_POINT_BITS = 8  # fixed-point bits with which the exact moments of the published version are summed


class PrivPcStarPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    - `level`: Of Fisher's z test.
    - `largest_order`: Size of the largest conditioning set; None goes on while there are neighbours.
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
    covariance = exact_correlations(access)
    scale = published_covariance_sensitivity(len(columns), n) / float(budget.epsilon)
    noise = access.rng.laplace(0.0, scale, covariance.shape)
    covariance += np.tril(noise) + np.tril(noise, -1).T
    decide = fisher_z_test(covariance, columns, n, settings.level)
    sweep = publication.prune_published(access, decide, knowledge, progress, settings.largest_order)
    return publication.describe_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


def fisher_z_test(covariance: Floats, columns: Sequence[str], n_rows: int, level: float) -> Callable[[Question], bool]:
    """Return what decides a question by Fisher's z of the partial correlation, section V."""
    place = {name: i for i, name in enumerate(columns)}

    def is_independent(question: Question) -> bool:
        x, y, given = question
        chosen = [place[name] for name in (x, y, *given)]
        inverse = np.linalg.pinv(covariance[np.ix_(chosen, chosen)])
        scale = inverse[0, 0] * inverse[1, 1]
        # noise can leave a matrix that is no covariance: its partial correlation then means nothing, as published
        partial = -inverse[0, 1] / math.sqrt(scale) if scale > 0.0 else 0.0
        partial = min(max(partial, -0.999999), 0.999999)
        return math.sqrt(max(n_rows - len(given) - 3, 1)) * abs(math.atanh(partial)) <= normal_quantile(level)

    return is_independent


def exact_correlations(access: PublishedAccess) -> Floats:
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
        {
            Calibration.PAPER: Reading(EmPcPaper, publish_em_pc, EM_PC_FLAW),
            Calibration.PROGRAM: Reading(EmPcProgram, publish_em_pc_program, EM_PC_FLAW),
        }
    ),
    "lap-mech": Publication(
        {Calibration.PAPER: Reading(LapMechPublished, publish_lap_mech, LAP_MECH_FLAW)}, NO_PROGRAM
    ),
    "priv-pc-star": Publication(
        {Calibration.PAPER: Reading(PrivPcStarPublished, publish_priv_pc_star, PRIV_PC_STAR_FLAW)}, NO_PROGRAM
    ),
}
