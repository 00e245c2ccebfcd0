"""Greedy equivalence search: from class to class of Markov equivalent DAGs, always by the step that gains most.

Edges come while that gains, then go, then turn, and all of it again until nothing gains. The steps and their conditions
are in `operators`. What steps are worth is asked in batches, and after a step only operators around the nodes that it
touched are listed and asked again. Of the many edges that could come, only those that gain become operators.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import LocalScore
from dagveil.evidence.tables import group
from dagveil.graphs.cpdag import Cpdag, list_bits
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.score.operators import (
    Exchange,
    Family,
    Kind,
    Operator,
    Pattern,
    insert_cliques,
    list_deletes,
    list_turns,
)

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

BATCH = 1 << 15  # most questions at once: a bound on memory, far above where batches stop to pay


@dataclass(frozen=True, slots=True, eq=False)
class Joining:
    """The question what each of `nodes` would add to `head` beside the parents in `mask`."""

    head: int
    mask: int
    nodes: Places


@dataclass(slots=True)
class FamilyGains:
    """Answers of a score, remembered."""

    score: LocalScore  # asked about what is not yet known
    size: int
    _single: dict[Family, float] = field(default_factory=dict)
    # by a node and a set beside it: what each other node is worth, and which were asked about
    _rows: dict[tuple[int, int], tuple[Floats, NDArray[np.bool_]]] = field(default_factory=dict)

    def learn(self, families: Iterable[Family]) -> None:
        """Ask about families that were not asked about before."""
        keys = dict.fromkeys(map(key_of, families))
        new = (key for key in keys if key not in self._single and self._in_rows(key) is None)
        for same in group(new, lambda key: key[2].bit_count()).values():
            ordered = sorted(same)
            asked = Questions.of([(a, b, tuple(list_bits(mask))) for a, b, mask in ordered])
            self._single.update(zip(ordered, self._ask(asked).tolist(), strict=True))

    def worth(self, family: Family) -> float:
        """Return what a family is worth that was asked about."""
        key = key_of(family)
        if key in self._single:
            return self._single[key]
        if (found := self._in_rows(key)) is None:
            raise KeyError(family)
        return found

    def join(self, wanted: Sequence[Joining]) -> list[Floats]:
        """Return what the nodes of each question add; all that is not known is asked about together."""
        missing: list[Joining] = []
        for one in wanted:
            if (one.head, one.mask) not in self._rows:
                self._rows[one.head, one.mask] = np.full(self.size, np.nan), np.zeros(self.size, dtype=bool)
            known = self._rows[one.head, one.mask][1]
            new = one.nodes[~known[one.nodes]]
            if len(new):
                known[new] = True
                missing.append(Joining(one.head, one.mask, new))
        for same in group(missing, lambda one: one.mask.bit_count()).values():
            self._learn_rows(same)
        return [self._rows[one.head, one.mask][0][one.nodes] for one in wanted]

    def _learn_rows(self, missing: Sequence[Joining]) -> None:
        numbers: dict[int, int] = {}
        sets = np.array([numbers.setdefault(one.mask, len(numbers)) for one in missing], dtype=np.intp)
        counts = np.array([len(one.nodes) for one in missing])
        nodes = np.concatenate([one.nodes for one in missing])
        heads = np.repeat(np.array([one.head for one in missing], dtype=np.intp), counts)
        # both directions of an edge are one question, so no question is asked twice
        key = (np.repeat(sets, counts) * self.size + np.minimum(nodes, heads)) * self.size + np.maximum(nodes, heads)
        unique, place = np.unique(key, return_inverse=True)
        given = np.array([list_bits(mask) for mask in numbers], dtype=np.intp).reshape(len(numbers), -1)
        which, pair = np.divmod(unique, self.size**2)
        x, y = np.divmod(pair, self.size)
        gains = self._ask(Questions(x, y, given[which]))[place.reshape(-1)]
        for one, mine in zip(missing, np.split(gains, np.cumsum(counts)[:-1]), strict=True):
            self._rows[one.head, one.mask][0][one.nodes] = mine

    def _ask(self, asked: Questions) -> Floats:
        parts = [slice(start, start + BATCH) for start in range(0, len(asked), BATCH)]
        return np.concatenate([self.score.gains(Questions(asked.x[p], asked.y[p], asked.given[p])) for p in parts])

    def _in_rows(self, key: Family) -> float | None:
        a, b, mask = key
        for node, head in ((a, b), (b, a)):
            if (head, mask) in self._rows:
                gains, known = self._rows[head, mask]
                if known[node]:
                    return float(gains[node])
        return None


def key_of(family: Family) -> Family:
    """Return the question about a family: a score that is the same for equivalent DAGs weighs both directions alike."""
    a, b, mask = family
    return (a, b, mask) if a < b else (b, a, mask)


def places_of(mask: int, size: int) -> Places:
    """Return the members of a set of nodes as an array."""
    packed = np.frombuffer(mask.to_bytes((size + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, bitorder="little"))


def mask_of(members: NDArray[np.bool_]) -> int:
    """Return a set of nodes as a mask."""
    return int.from_bytes(np.packbits(members, bitorder="little").tobytes(), "little")


Pair = tuple[int, int]

Surroundings = tuple[Operator, int, int, int, int]  # a step, and the edges into and beside its two ends
SMALLEST_GAIN = 1e-9  # a step must gain more than rounding errors could
MOST_REPEATS = 3  # how often a step is taken among the same edges at its two ends


@dataclass(frozen=True, slots=True)
class GesSettings:
    """Bounds of the search."""

    most_parents: int = 5  # a node gets no more parents than this
    # kinds of steps, in the order in which they are tried
    phases: tuple[Kind, ...] = (Kind.INSERT, Kind.DELETE, Kind.TURN)
    most_steps: int | None = None  # steps after which the search stops where it is; None sets no bound

    def __post_init__(self) -> None:
        if self.most_parents < 1:
            raise MethodError(f"most_parents is {self.most_parents}; choose at least 1")
        if self.most_steps is not None and self.most_steps < 0:
            raise MethodError(f"most_steps is {self.most_steps}; choose at least 0, or None for no bound")


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was taken, what it gained, and the class that it led to."""

    operator: Operator
    gain: float
    pattern: Pattern


@dataclass(slots=True)
class _Line:
    """Operators of one kind in line, the best one first; those of pairs that were listed anew since are void."""

    kind: Kind
    version: NDArray[np.int64]
    heap: list[tuple[float, int, int, int, int]] = field(default_factory=list)

    def add(self, operator: Operator, gain: float) -> None:
        """Put an operator in line if it gains anything."""
        if gain > SMALLEST_GAIN:
            x, y = operator.x, operator.y
            heappush(self.heap, (-gain, x, y, operator.clique, int(self.version[x, y])))


@dataclass(slots=True)
class _Climb:
    """State of one search."""

    settings: GesSettings
    open: list[int]
    required: frozenset[Pair]
    pattern: Pattern
    gains: FamilyGains
    steps: list[Step]
    seen: set[Pattern] = field(default_factory=set)
    taken: Counter[Surroundings] = field(default_factory=Counter)

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
        return most is not None and len(self.steps) >= most

    def climb(self, kind: Kind) -> bool:
        """Take steps of one kind as long as one gains; tell whether any was taken."""
        d = len(self.pattern.into)
        line = _Line(kind, np.zeros((d, d), dtype=np.int64))
        near = self.pattern.near
        if kind is Kind.INSERT:
            self.list_inserts(line, range(d), ())
        else:
            self.list_others(line, ((x, y) for y in range(d) for x in list_bits(near[y])))
        taken = False
        while line.heap and not self.is_over() and (step := self.take_best(line)) is not None:
            taken = True
            self.taken[surroundings_of(step.operator, self.pattern)] += 1
            change = Change.between(self.pattern, step.pattern)
            self.pattern = step.pattern
            self.steps.append(step)
            self.seen.add(step.pattern)
            if kind is Kind.INSERT:
                self.list_inserts(line, change.heads, change.tails())
            else:
                self.list_others(line, change.joined())
        return taken

    def take_best(self, line: _Line) -> Step | None:
        """Return the best step that is possible now; those that only other parts of the graph forbid stay in line."""
        waiting, found = [], None
        while line.heap and found is None:
            entry = heappop(line.heap)
            loss, x, y, clique, stamp = entry
            if line.version[x, y] != stamp:
                continue
            waiting.append(entry)
            operator = Operator(line.kind, x, y, clique)
            # Gains of a noisy score need not add up around a circle: no class is visited twice. In a wide graph many
            # small circles make more classes than could ever be visited, so steps in one place are counted as well.
            worn = self.taken[surroundings_of(operator, self.pattern)] >= MOST_REPEATS
            if worn or not operator.is_open(self.pattern):
                continue
            after = operator.apply(self.pattern)
            if after is not None and after not in self.seen:
                found = Step(operator, -loss, after)
        for entry in waiting:
            heappush(line.heap, entry)
        return found

    def list_inserts(self, line: _Line, heads: Iterable[int], pairs: Iterable[Pair]) -> None:
        """List and weigh the ways to add an edge into these heads, and those of these further ordered pairs.

        Few edges gain anything, so all are weighed as arrays first, and only those that gain become operators.
        """
        p, most, d = self.pattern, self.settings.most_parents, len(self.pattern.into)
        wanted: list[Joining] = []
        cliques: list[int] = []

        def want(nodes: Places, y: int) -> None:
            """Want the ways to add edges from nodes that all have the same cliques."""
            for clique in insert_cliques(p, int(nodes[0]), y, most):
                wanted.append(Joining(y, clique | p.into[y], nodes))
                cliques.append(clique)

        for y in heads:
            line.version[:, y] += 1
            free = self.open[y] & ~p.near[y] & ~(1 << y)
            # nodes that are no neighbours of y's neighbours all have the same cliques
            close = 0
            for v in list_bits(p.flat[y]):
                close |= p.near[v]
            far = places_of(free & ~close, d)
            if len(far):
                want(far, y)
            for x in list_bits(free & close):
                want(np.array([x], dtype=np.intp), y)
        for x, y in pairs:
            line.version[x, y] += 1
            if self.open[y] >> x & 1 and not p.near[y] >> x & 1:
                want(np.array([x], dtype=np.intp), y)
        operators = [
            Operator(Kind.INSERT, x, one.head, clique)
            for one, clique, gains in zip(wanted, cliques, self.gains.join(wanted), strict=True)
            for x in one.nodes[gains > SMALLEST_GAIN].tolist()
        ]
        # two ways to add one edge differ by exchanges, which are far sharper than the difference of two large gains
        bases = [(o.x, o.y, o.base(p)) for o in operators]
        self.gains.learn(bases)
        for operator, base, trade in zip(operators, bases, self.trade(operators), strict=True):
            line.add(operator, self.gains.worth(base) + trade)

    def list_others(self, line: _Line, pairs: Iterable[Pair]) -> None:
        """List and weigh the ways to take away or to turn the edges of these ordered pairs."""
        p = self.pattern
        operators: list[Operator] = []
        for x, y in pairs:
            line.version[x, y] += 1
            if line.kind is Kind.DELETE:
                if (p.into[y] | p.flat[y]) >> x & 1 and (min(x, y), max(x, y)) not in self.required:
                    operators.extend(list_deletes(p, x, y))
            elif (p.into[x] | p.flat[x]) >> y & 1:
                operators.extend(list_turns(p, x, y, self.settings.most_parents))
        if line.kind is Kind.DELETE:
            families = [o.family(p) for o in operators]
            self.gains.learn(families)
            gains = [-self.gains.worth(family) for family in families]
        else:
            gains = self.trade(operators)
        for operator, gain in zip(operators, gains, strict=True):
            line.add(operator, gain)

    def trade(self, operators: list[Operator]) -> list[float]:
        """Return what the exchanges of each operator are worth."""
        exchanges = [o.exchanges(self.pattern) for o in operators]
        self.gains.learn(family for mine in exchanges for _, e in mine for both in readings_of(e) for family in both)
        return [sum(sign * self.value_of(e) for sign, e in mine) for mine in exchanges]

    def value_of(self, exchange: Exchange) -> float:
        """Return what an exchange is worth.

        What z adds to x and y is what y adds to x and z, and what x adds to y and z. For an exact score that is one
        number; from noisy evidence the reading with the smallest numbers is the sharpest.
        """
        best, size = math.nan, math.inf
        for pair in readings_of(exchange):
            after, before = (self.gains.worth(family) for family in pair)
            if abs(after) + abs(before) < size:  # never true of a gain that is not known
                best, size = after - before, abs(after) + abs(before)
        return best


def surroundings_of(operator: Operator, pattern: Pattern) -> Surroundings:
    """Return a step with all edges at its two ends."""
    x, y = operator.x, operator.y
    return operator, pattern.into[x], pattern.flat[x], pattern.into[y], pattern.flat[y]


def readings_of(exchange: Exchange) -> tuple[tuple[Family, Family], ...]:
    """Return the three pairs of families whose difference is the exchange."""
    x, y, z, held = exchange
    return tuple(((a, b, held | 1 << c), (a, b, held)) for a, b, c in ((x, y, z), (x, z, y), (y, z, x)))


@dataclass(frozen=True, slots=True)
class Change:
    """What a step has changed: which operators have to be listed anew."""

    before: Pattern
    after: Pattern
    moved: dict[int, int]  # nodes with an edge that came or went, each with the mask of the other ends
    changed: int  # mask of nodes at which any edge differs
    # nodes whose parents, neighbours or cliques of neighbours differ: ways into them have changed from everywhere
    heads: tuple[int, ...]

    @classmethod
    def between(cls, before: Pattern, after: Pattern) -> Change:
        """Compare two classes."""
        nodes = range(len(before.into))
        moved = {v: before.near[v] ^ after.near[v] for v in nodes if before.near[v] != after.near[v]}
        changed = sum(1 << v for v in nodes if before.into[v] != after.into[v] or before.flat[v] != after.flat[v])
        for v in moved:
            changed |= 1 << v
        heads = changed
        for v, ends in moved.items():
            for y in list_bits(after.flat[v] & ~heads):
                if ends & after.flat[y]:
                    heads |= 1 << y
        return cls(before, after, moved, changed, tuple(list_bits(heads)))

    def tails(self) -> Iterator[Pair]:
        """Yield the ordered pairs (x, y), y no head, where x has come next to a neighbour of y or has left it."""
        heads = set(self.heads)
        for x, ends in self.moved.items():
            beside = 0
            for v in list_bits(ends):
                beside |= self.after.flat[v]
            for y in list_bits(beside & ~(1 << x)):
                if y not in heads:
                    yield x, y

    def joined(self) -> Iterator[Pair]:
        """Yield the ordered pairs (x, y) with an edge, before or after, that may go or turn in other ways now."""
        heads = set(self.heads)
        for y, (old, new) in enumerate(zip(self.before.near, self.after.near, strict=True)):
            near = old | new
            yield from ((x, y) for x in list_bits(near if y in heads else near & self.changed))


def greedy_equivalence_search(
    score: LocalScore,
    columns: tuple[str, ...],
    knowledge: Knowledge,
    settings: GesSettings | None = None,
    within: NDArray[np.bool_] | None = None,
    start: Cpdag | None = None,
    steps: list[Step] | None = None,
) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that greedy steps lead to.

    - `score`: what a parent is worth; it must not tell equivalent DAGs apart.
    - `columns`: names, in the order that the score's positions refer to.
    - `knowledge`: excluded pairs are never joined, required ones never parted. Directions wait until the end: a class
      of DAGs knows none of them, and steps that they forbade would cut off the way to the best class.
    - `within`: pairs that may be joined, shape (d, d); None allows all. A skeleton found by tests makes the search a
      hybrid.
    - `start`: a valid CPDAG (or MPDAG) to start from; None starts without edges.
    - `steps`: every step that is taken is added to these.
    """
    d = len(columns)
    allowed = np.ones((d, d), dtype=np.bool_) if within is None else np.array(within, dtype=np.bool_)
    if knowledge != Knowledge.none():
        for x, y in np.argwhere(allowed).tolist():
            allowed[x, y] = not knowledge.excludes(columns[x], columns[y])
    open_pairs = [mask_of(allowed[:, y]) for y in range(d)]
    place = {name: i for i, name in enumerate(columns)}
    ends = [(place[cause], place[effect]) for cause, effect in knowledge.required]
    required = frozenset((min(pair), max(pair)) for pair in ends)
    begin, taken = _start(columns, knowledge, start), [] if steps is None else steps
    climb = _Climb(settings or GesSettings(), open_pairs, required, begin, FamilyGains(score, d), taken)
    climb.run()
    graph = climb.pattern.cpdag(columns)
    return graph if knowledge == Knowledge.none() else knowledge.orient(graph)


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
