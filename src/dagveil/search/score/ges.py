"""Greedy equivalence search: from class to class of Markov equivalent DAGs, always by the step that gains most.

Edges come while one gains, then go while losing one gains, then turn while turning gains, and all of it again until
nothing does. Steps and their conditions are in `operators`. What steps are worth is asked in batches, and after a step
only operators around the nodes that it touched are listed and asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
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
from dagveil.search.score.operators import Gain, Kind, Operator, list_deletes, list_inserts, list_turns
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
    turning
        Whether edges turn, or only come and go.
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
    allowed: Callable[[int, int], bool]
    required: frozenset[Pair]
    pattern: Pattern
    gains: dict[Gain, float] = field(default_factory=dict)
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
        operators = []
        for x, y in pairs:
            version[x, y] = version.get((x, y), 0) + 1
            operators.extend(self.operators_of(kind, x, y))
        families = [(o.won(self.pattern), o.lost(self.pattern)) for o in operators]
        self.learn(family for both in families for family in both if family is not None)
        for operator, (won, lost) in zip(operators, families, strict=True):
            gain = (self.gains[key_of(won)] if won else 0.0) - (self.gains[key_of(lost)] if lost else 0.0)
            if gain > SMALLEST_GAIN:
                x, y = operator.x, operator.y
                heappush(heap, (-gain, x, y, operator.clique, version[x, y]))

    def operators_of(self, kind: Kind, x: int, y: int) -> Iterator[Operator]:
        """List the operators of one ordered pair that knowledge allows."""
        p, most = self.pattern, self.settings.most_parents
        adjacent = p.near[x] >> y & 1
        if kind is Kind.INSERT:
            found = list_inserts(p, x, y, most) if not adjacent and self.allowed(x, y) else iter(())
        elif kind is Kind.DELETE:
            is_parent = (p.into[y] | p.flat[y]) >> x & 1 and (min(x, y), max(x, y)) not in self.required
            found = list_deletes(p, x, y) if is_parent else iter(())
        else:
            may_turn = (p.into[x] | p.flat[x]) >> y & 1 and self.allowed(x, y)
            found = list_turns(p, x, y, most) if may_turn else iter(())
        return (o for o in found if all(self.allowed(v, y) for v in bits(o.clique)))

    def learn(self, families: Iterable[Gain]) -> None:
        """Ask the score about families that were not asked before, in batches of one size."""
        by_size: dict[int, set[Gain]] = {}
        for family in families:
            key = key_of(family)
            if key not in self.gains:
                by_size.setdefault(key[2].bit_count(), set()).add(key)
        for keys in by_size.values():
            ordered = sorted(keys)
            questions = Questions.of([(a, b, tuple(bits(mask))) for a, b, mask in ordered])
            values = self.score.gains(questions).tolist()
            self.gains.update(zip(ordered, values, strict=True))


def key_of(family: Gain) -> Gain:
    """Return the question about a family: a score that is the same for equivalent DAGs weighs both directions alike."""
    a, b, mask = family
    return (a, b, mask) if a < b else (b, a, mask)


def touched_pairs(before: Pattern, after: Pattern) -> Iterator[Pair]:
    """Yield the ordered pairs (x, y) whose operators a step may have changed."""
    d = len(before.into)
    moved = [before.near[v] ^ after.near[v] for v in range(d)]
    joined = sum(1 << v for v in range(d) if moved[v])
    for y in range(d):
        same = before.into[y] == after.into[y] and before.flat[y] == after.flat[y] and not moved[y]
        if same:
            # a clique among the neighbours of y may have come or gone
            same = not any(moved[v] & after.flat[y] for v in bits(after.flat[y] & joined))
        for x in range(d):
            if x != y and (
                not same
                or moved[x] & (after.flat[y] | 1 << y)
                or before.into[x] != after.into[x]
                or before.flat[x] != after.flat[x]
            ):
                yield x, y


def greedy_equivalence_search(
    score: LocalScore,
    columns: tuple[str, ...],
    knowledge: Knowledge,
    settings: GesSettings | None = None,
    within: NDArray[np.bool_] | None = None,
) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that greedy steps lead to.

    Parameters
    ----------
    score
        What a parent is worth; it must not tell equivalent DAGs apart.
    columns
        Names, in the order that the score's positions refer to.
    knowledge
        Excluded pairs are never joined, required ones never parted; where it forbids the arrow of a step, so is the
        step.
    settings
        Bounds.
    within
        Pairs that may be joined, shape (d, d); None allows all. A skeleton found by tests makes the search a hybrid.
    """
    steps = search_steps(score, columns, knowledge, settings, within)
    graph = steps[-1].pattern.cpdag(columns) if steps else _start(columns, knowledge).cpdag(columns)
    return graph if knowledge == Knowledge.none() else knowledge.orient(graph)


def search_steps(
    score: LocalScore,
    columns: tuple[str, ...],
    knowledge: Knowledge,
    settings: GesSettings | None = None,
    within: NDArray[np.bool_] | None = None,
) -> list[Step]:
    """Return every step of the search; parameters are those of `greedy_equivalence_search`."""
    settings = settings or GesSettings()
    d = len(columns)
    open_pairs = np.ones((d, d), dtype=bool) if within is None else within
    may = [[bool(open_pairs[x, y]) and knowledge.allows(columns[x], columns[y]) for y in range(d)] for x in range(d)]
    place = {name: i for i, name in enumerate(columns)}
    ends = [(place[cause], place[effect]) for cause, effect in knowledge.required]
    required = frozenset((min(pair), max(pair)) for pair in ends)
    deadline = np.inf if settings.seconds is None else time.monotonic() + settings.seconds
    climb = _Climb(
        score, settings, lambda x, y: may[x][y], required, _start(columns, knowledge), deadline=deadline
    )
    climb.run()
    return climb.steps


def _start(columns: tuple[str, ...], knowledge: Knowledge) -> Pattern:
    """Return the class of the DAG of required edges."""
    place = {name: i for i, name in enumerate(columns)}
    parents = [0] * len(columns)
    for cause, effect in knowledge.required:
        parents[place[effect]] |= 1 << place[cause]
    return Pattern.of_parents(parents)
