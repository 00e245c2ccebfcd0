"""Greedy equivalence search: from class to class of Markov equivalent DAGs, always by the step that gains most.

Edges come while that gains, then go, then turn, and all of it again until nothing gains. The steps and their conditions
are in `operators`. What steps are worth is asked in batches, and after a step only operators around the nodes that it
touched are listed and asked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import LocalScore
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.score.operators import Exchange, Family, Kind, Operator, list_deletes, list_inserts, list_turns
from dagveil.search.score.pattern import Pattern, bits

Pair = tuple[int, int]

SMALLEST_GAIN = 1e-9
"""A step must gain more than rounding errors could."""


@dataclass(frozen=True, slots=True)
class GesSettings:
    """Bounds of the search.

    Parameters
    ----------
    most_parents
        A node gets no more parents than this.
    phases
        Kinds of steps, in the order in which they are tried.
    most_steps
        Steps after which the search stops where it is; None sets no bound.
    seconds
        Time after which the search stops where it is; None sets no bound, so that results do not hang on the machine.
    """

    most_parents: int = 5
    phases: tuple[Kind, ...] = (Kind.INSERT, Kind.DELETE, Kind.TURN)
    most_steps: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.most_parents < 1:
            raise MethodError(f"most_parents is {self.most_parents}; choose at least 1")
        if self.most_steps is not None and self.most_steps < 0:
            raise MethodError(f"most_steps is {self.most_steps}; choose at least 0, or None for no bound")
        if self.seconds is not None and not self.seconds >= 0:
            raise MethodError(f"seconds is {self.seconds:g}; choose at least 0, or None for no bound")


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was taken, what it gained, and the class that it led to."""

    operator: Operator
    gain: float
    pattern: Pattern


@dataclass(slots=True)
class _Climb:
    """State of one search."""

    score: LocalScore
    settings: GesSettings
    open: list[int]
    required: frozenset[Pair]
    pattern: Pattern
    gains: dict[Family, float] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    seen: set[Pattern] = field(default_factory=set)
    deadline: float = np.inf

    def run(self) -> None:
        """Climb until no phase finds anything to do."""
        self.seen.add(self.pattern)
        improved = True
        while improved and not self.is_over():
            improved = False
            for kind in self.settings.phases:
                improved |= self.climb(kind)

    def is_over(self) -> bool:
        """Tell whether a bound was reached."""
        most = self.settings.most_steps
        return time.monotonic() > self.deadline or (most is not None and len(self.steps) >= most)

    def climb(self, kind: Kind) -> bool:
        """Take steps of one kind as long as one gains; tell whether any was taken."""
        heap: list[tuple[float, int, int, int, int]] = []
        version: dict[Pair, int] = {}
        d = len(self.pattern.into)
        self.list_anew(kind, permutations(range(d), 2), heap, version)
        taken = False
        while heap and not self.is_over():
            step = self.take_best(kind, heap, version)
            if step is None:
                break
            taken = True
            touched = touched_pairs(self.pattern, step.pattern)
            self.pattern = step.pattern
            self.steps.append(step)
            self.seen.add(step.pattern)
            self.list_anew(kind, touched, heap, version)
        return taken

    def take_best(
        self, kind: Kind, heap: list[tuple[float, int, int, int, int]], version: dict[Pair, int]
    ) -> Step | None:
        """Return the best step that is possible now; those that only other parts of the graph forbid stay in line."""
        waiting = []
        found = None
        while heap:
            entry = heappop(heap)
            loss, x, y, clique, stamp = entry
            if version[x, y] != stamp:
                continue
            waiting.append(entry)
            operator = Operator(kind, x, y, clique)
            if not operator.is_open(self.pattern):
                continue
            after = operator.apply(self.pattern)
            # gains of a noisy score need not add up around a circle: no class is visited twice
            if after is not None and after not in self.seen:
                found = Step(operator, -loss, after)
                break
        for entry in waiting:
            heappush(heap, entry)
        return found

    def list_anew(
        self,
        kind: Kind,
        pairs: Iterable[Pair],
        heap: list[tuple[float, int, int, int, int]],
        version: dict[Pair, int],
    ) -> None:
        """List and weigh the operators of these ordered pairs."""
        operators: list[Operator] = []
        for x, y in pairs:
            version[x, y] = version.get((x, y), 0) + 1
            operators.extend(self.operators_of(kind, x, y))
        for operator, gain in zip(operators, self.weigh(kind, operators), strict=True):
            if gain > SMALLEST_GAIN:
                x, y = operator.x, operator.y
                heappush(heap, (-gain, x, y, operator.clique, version[x, y]))

    def weigh(self, kind: Kind, operators: list[Operator]) -> list[float]:
        """Return what each operator gains."""
        families = [o.family(self.pattern) for o in operators]
        if kind is Kind.DELETE:
            self.learn(families)
            return [-self.gains[key_of(family)] for family in families]
        bases = [(o.x, o.y, o.base(self.pattern)) for o in operators]
        exchanges = [o.exchanges(self.pattern) for o in operators]
        self.learn(family for mine in exchanges for _, e in mine for both in readings_of(e) for family in both)
        traded = [sum(sign * self.value_of(e) for sign, e in mine) for mine in exchanges]
        if kind is Kind.TURN:
            return traded
        self.learn(families + bases)
        # two ways to add one edge differ by exchanges, which are far sharper than the difference of two large gains
        direct = [self.gains[key_of(family)] for family in families]
        sharp = [self.gains[key_of(base)] + trade for base, trade in zip(bases, traded, strict=True)]
        return [best if first > SMALLEST_GAIN else first for first, best in zip(direct, sharp, strict=True)]

    def value_of(self, exchange: Exchange) -> float:
        """Return what an exchange is worth.

        What z adds to x and y is what y adds to x and z, and what x adds to y and z. For an exact score that is one
        number; from noisy evidence the reading with the smallest numbers is the sharpest.
        """
        best, size = math.nan, math.inf
        for pair in readings_of(exchange):
            after, before = (self.gains[key_of(family)] for family in pair)
            if abs(after) + abs(before) < size:  # never true of a gain that is not known
                best, size = after - before, abs(after) + abs(before)
        return best

    def operators_of(self, kind: Kind, x: int, y: int) -> Iterator[Operator]:
        """List the operators of one ordered pair."""
        p, most = self.pattern, self.settings.most_parents
        if kind is Kind.INSERT:
            if not p.near[x] >> y & 1 and self.open[x] >> y & 1:
                yield from list_inserts(p, x, y, most)
        elif kind is Kind.DELETE:
            if (p.into[y] | p.flat[y]) >> x & 1 and (min(x, y), max(x, y)) not in self.required:
                yield from list_deletes(p, x, y)
        elif (p.into[x] | p.flat[x]) >> y & 1:
            yield from list_turns(p, x, y, most)

    def learn(self, families: Iterable[Family]) -> None:
        """Ask the score about families that were not asked before, in batches of one size."""
        by_size: dict[int, set[Family]] = {}
        for family in families:
            key = key_of(family)
            if key not in self.gains:
                by_size.setdefault(key[2].bit_count(), set()).add(key)
        for keys in by_size.values():
            ordered = sorted(keys)
            questions = Questions.of([(a, b, tuple(bits(mask))) for a, b, mask in ordered])
            values = self.score.gains(questions).tolist()
            self.gains.update(zip(ordered, values, strict=True))


def key_of(family: Family) -> Family:
    """Return the question about a family: a score that is the same for equivalent DAGs weighs both directions alike."""
    a, b, mask = family
    return (a, b, mask) if a < b else (b, a, mask)


def readings_of(exchange: Exchange) -> tuple[tuple[Family, Family], ...]:
    """Return the three pairs of families whose difference is the exchange."""
    x, y, z, held = exchange
    return tuple(((a, b, held | 1 << c), (a, b, held)) for a, b, c in ((x, y, z), (x, z, y), (y, z, x)))


def touched_pairs(before: Pattern, after: Pattern) -> Iterator[Pair]:
    """Yield the ordered pairs (x, y) whose operators a step may have changed."""
    d = len(before.into)
    moved = [before.near[v] ^ after.near[v] for v in range(d)]
    changed = sum(
        1 << v for v in range(d) if moved[v] or before.into[v] != after.into[v] or before.flat[v] != after.flat[v]
    )
    for y in range(d):
        # a clique among the neighbours of y may have come or gone
        other = changed >> y & 1 or any(moved[v] & after.flat[y] for v in bits(after.flat[y] & changed))
        for x in range(d) if other else bits(changed):
            if x != y:
                yield x, y


def greedy_equivalence_search(
    score: LocalScore,
    columns: tuple[str, ...],
    knowledge: Knowledge,
    settings: GesSettings | None = None,
    within: NDArray[np.bool_] | None = None,
    start: Cpdag | None = None,
) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that greedy steps lead to.

    Parameters
    ----------
    score
        What a parent is worth; it must not tell equivalent DAGs apart.
    columns
        Names, in the order that the score's positions refer to.
    knowledge
        Excluded pairs are never joined, required ones never parted. Directions wait until the end: a class of DAGs
        knows none of them, and steps that they forbade would cut off the way to the best class.
    settings
        Bounds.
    within
        Pairs that may be joined, shape (d, d); None allows all. A skeleton found by tests makes the search a hybrid.
    start
        A valid CPDAG (or MPDAG) to start from; None starts without edges.
    """
    steps = search_steps(score, columns, knowledge, settings, within, start)
    graph = steps[-1].pattern.cpdag(columns) if steps else _start(columns, knowledge, start).cpdag(columns)
    return graph if knowledge == Knowledge.none() else knowledge.orient(graph)


def search_steps(
    score: LocalScore,
    columns: tuple[str, ...],
    knowledge: Knowledge,
    settings: GesSettings | None = None,
    within: NDArray[np.bool_] | None = None,
    start: Cpdag | None = None,
) -> list[Step]:
    """Return every step of the search; parameters are those of `greedy_equivalence_search`."""
    settings = settings or GesSettings()
    d = len(columns)
    open_pairs = [
        sum(
            1 << y
            for y in range(d)
            if (within is None or within[x, y]) and not knowledge.excludes(columns[x], columns[y])
        )
        for x in range(d)
    ]
    place = {name: i for i, name in enumerate(columns)}
    ends = [(place[cause], place[effect]) for cause, effect in knowledge.required]
    required = frozenset((min(pair), max(pair)) for pair in ends)
    deadline = np.inf if settings.seconds is None else time.monotonic() + settings.seconds
    climb = _Climb(score, settings, open_pairs, required, _start(columns, knowledge, start), deadline=deadline)
    climb.run()
    return climb.steps


def _start(columns: tuple[str, ...], knowledge: Knowledge, start: Cpdag | None) -> Pattern:
    """Return the class to start from: of the graph given, or of the empty one, with required edges in it."""
    if start is None or knowledge.required:
        start = knowledge.orient(Cpdag.empty(columns) if start is None else start)
    dag = start.extension()
    if dag is None:
        raise MethodError("the graph to start from has no DAG; give a valid CPDAG, or None for the empty one")
    place = {name: i for i, name in enumerate(columns)}
    parents = [0] * len(columns)
    for cause, effect in dag.edges:
        parents[place[effect]] |= 1 << place[cause]
    return Pattern.of_parents(parents)
