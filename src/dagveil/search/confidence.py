"""How often each edge returns when the published noise and the sampling are drawn again.

Redraws centre on what was estimated: on released evidence without what its noise alone adds on average. So shares
estimate how often fresh runs on the same rows would find an edge; `probabilities` makes of them how likely it is true.
All of it is post-processing: no row is touched and nothing is charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import numpy as np

from dagveil.evidence.questions import Independence
from dagveil.graphs.cpdag import Cpdag, close, reach
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.graphs.pag import ARROW, CIRCLE, NONE, Edge, Ends, Mark, MixedGraph, OrientationRules, name_ends, read_ends
from dagveil.search.constraint.ancestral import mark_knowledge

MEANING = (
    "share of redraws of the published noise and of sampling, around what was estimated, in which the edge returned"
)

DRAWN = 0.8
"""An edge is drawn if at least this share of redraws has it. With less, what was found by chance, and so looks
stronger than it is, too often passed."""

MOST = 0.5  # an edge that is drawn has an arrow if at least this share of redraws has that arrow

NOW_AND_THEN = 0.2
"""Two pairs of a column are alternatives if each is in at least this share of redraws, and one of them in `DRAWN`."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares over redraws."""

    redraws: int  # number of redraws
    adjacent: Counter[frozenset[str]]  # for each pair, in how many redraws it was adjacent
    directed: Counter[tuple[str, str]]  # for each (cause, effect), in how many redraws the arrow stood
    skeletons: tuple[frozenset[frozenset[str]], ...] = ()  # adjacent pairs of each redraw
    # for each (start, end, mark), in how many redraws of a PAG the edge had this mark at its end
    marks: Counter[tuple[str, str, Mark]] = field(default_factory=Counter)
    # for each edge of a PAG, in how many redraws it had both of its marks
    kinds: Counter[Edge] = field(default_factory=Counter)

    @classmethod
    def none(cls) -> Shares:
        """Return the shares of no redraw."""
        return cls(0, Counter(), Counter())

    def of_pair(self, pair: frozenset[str]) -> float | None:
        """Return the share of redraws in which a pair was adjacent."""
        return self.adjacent[pair] / self.redraws if self.redraws else None

    def of_arrow(self, cause: str, effect: str) -> float | None:
        """Return, among the redraws with this adjacency, the share with this arrow."""
        seen = self.adjacent[frozenset((cause, effect))]
        return self.directed[cause, effect] / seen if seen else None

    def of_joins(self, a: str, b: str) -> tuple[float | None, float | None, float | None]:
        """Return the shares of all redraws with a → b, with b → a, and with an undirected edge."""
        if not self.redraws:
            return None, None, None
        forward, backward = self.directed[a, b], self.directed[b, a]
        line = self.adjacent[frozenset((a, b))] - forward - backward
        return forward / self.redraws, backward / self.redraws, line / self.redraws

    def of_line(self, pair: frozenset[str]) -> float | None:
        """Return, among the redraws with this adjacency, the share without an arrow."""
        seen = self.adjacent[pair]
        a, b = sorted(pair)
        return (seen - self.directed[a, b] - self.directed[b, a]) / seen if seen else None

    def of_edge(self, edge: Edge) -> float | None:
        """Return, among the redraws with this adjacency, the share with both marks of an edge of a PAG."""
        seen = self.adjacent[frozenset((edge.first, edge.second))]
        return self.kinds[edge if edge.first <= edge.second else edge.turned()] / seen if seen else None

    def of_mark(self, start: str, end: str, mark: Mark) -> float | None:
        """Return the share of all redraws in which the edge had this mark at its end."""
        return self.marks[start, end, mark] / self.redraws if self.redraws else None


def redraw_graphs(
    evidence: Independence,
    find: Callable[[Independence], Cpdag | MixedGraph],
    redraws: int,
    progress: Callable[[str, int, int], None],
) -> Shares:
    """Redraw the evidence, search again with `find`, settings included, and count what returns."""
    rng = np.random.default_rng(1)  # post-processing: a fixed seed makes the same evidence give the same shares
    shares, skeletons = Shares(redraws, Counter(), Counter()), []
    for done in range(redraws):
        graph = find(evidence.redraw(rng))
        skeletons.append(graph.skeleton())
        shares.adjacent.update(skeletons[-1])
        if isinstance(graph, Cpdag):
            shares.directed.update(graph.directed)
        else:
            shares.kinds.update(graph.edges)
            shares.marks.update((*edge[:2], edge.mark_at_second) for one in graph.edges for edge in (one, one.turned()))
        progress("redrawing noise for edge confidence", done + 1, redraws)
    return replace(shares, skeletons=tuple(skeletons))


def agree(
    found: Cpdag,
    shares: Shares,
    knowledge: Knowledge = NO_KNOWLEDGE,
    explained: Collection[frozenset[str]] = (),
    drawn: frozenset[frozenset[str]] | None = None,
) -> Cpdag:
    """Return what redraws support of a graph: its edges, unless another column could explain them, and arrows.

    Pairs that only redraws join are not drawn: the bound on false edges is one of the graph that was found. Each arrow
    is part of a collider, follows from other arrows, or from knowledge.

    - `found`: the graph of the released evidence; it is returned as it is if nothing was redrawn.
    - `knowledge`: background knowledge, which every redraw obeys.
    - `drawn`: draw these pairs instead, chosen otherwise.
    """
    if not shares.redraws:
        return found
    agreed = (pair for pair in found.skeleton() if (shares.of_pair(pair) or 0.0) >= DRAWN and pair not in explained)
    pairs = frozenset(agreed) if drawn is None else drawn
    arrows = {
        (cause, effect): shares.directed[cause, effect]
        for pair in pairs
        for cause, effect in permutations(pair)
        if shares.directed[cause, effect] >= max(MOST * shares.redraws, shares.directed[effect, cause] + 1)
    }
    while True:
        directed = _keep_founded(break_circles(found.nodes, arrows), pairs, knowledge)
        graph = Cpdag(found.nodes, frozenset(directed), pairs - {frozenset(arc) for arc in directed})
        implied = close(graph.nodes, directed, graph.undirected)[0] - directed
        denied = {name for a, b in implied if shares.directed[b, a] > shares.directed[a, b] for name in (a, b)}
        loose = [arc for arc in directed if knowledge.allows(*reversed(arc))]
        if not denied or not loose:
            return graph
        # together these arrows imply one that redraws rather reverse: the weakest, nearby if there is one, goes
        near = [arc for arc in loose if denied & set(arc)] or loose
        del arrows[min(near, key=lambda arc: (arrows[arc], arc))]


def agree_on_marks(
    found: MixedGraph,
    shares: Shares,
    knowledge: Knowledge = NO_KNOWLEDGE,
    explained: Collection[frozenset[str]] = (),
) -> MixedGraph:
    """Return what most redraws support of a PAG: its edges, unless another column could explain them, and marks.

    A mark that half of the redraws have is drawn if it is part of a collider, follows from other marks, or from
    knowledge; all others are circles. Marks by which a column would cause itself, or one that it cannot cause, become
    circles again, the weakest first. Parameters are those of `agree`.
    """
    if not shares.redraws:
        return found
    ends: dict[tuple[str, str], Mark] = {}
    for edge in found.edges:
        pair = frozenset((edge.first, edge.second))
        if (shares.of_pair(pair) or 0.0) >= DRAWN and pair not in explained:
            for start, end in permutations(pair):
                arrow, tail = ((shares.of_mark(start, end, mark) or 0.0) for mark in (Mark.ARROW, Mark.TAIL))
                believed = max(arrow, tail) >= MOST and arrow != tail
                ends[start, end] = (Mark.ARROW if arrow > tail else Mark.TAIL) if believed else Mark.CIRCLE
    while astray := _find_astray(found.nodes, ends):
        ends[min(astray, key=lambda place: (shares.marks[(*place, ends[place])], place))] = Mark.CIRCLE
    drawn = {Edge(start, end, ends[end, start], mark) for (start, end), mark in ends.items()}
    agreed = read_ends(MixedGraph(found.nodes, frozenset(edge for edge in drawn if edge.first < edge.second)))
    founded = _found_marks(found.nodes, agreed, knowledge)
    return name_ends(found.nodes, np.where((agreed > CIRCLE) & (agreed != founded), CIRCLE, agreed).astype(np.int8))


def _found_marks(nodes: tuple[str, ...], agreed: Ends, knowledge: Knowledge) -> Ends:
    """Return the marks of knowledge and of colliders, and those that follow from these."""
    ends = mark_knowledge(nodes, agreed != NONE, knowledge)
    for b in range(len(nodes)):
        for a, c in combinations(np.flatnonzero(agreed[:, b] == ARROW).tolist(), 2):
            if not agreed[a, c]:
                ends[a, b] = ends[c, b] = ARROW

    def decide(_: int, between: tuple[int, ...], b: int, c: int) -> bool | None:
        if agreed[c, b] == CIRCLE:
            return None
        return bool(agreed[c, b] == ARROW and agreed[between[-1], b] == ARROW)

    return OrientationRules(ends, decide, selection=True).close()


def _find_astray(nodes: tuple[str, ...], ends: dict[tuple[str, str], Mark]) -> set[tuple[str, str]]:
    """Return marks, by (start, end), that contradict each other: an arrowhead at a cause of the other end."""
    effects: dict[str, set[str]] = {name: set() for name in nodes}
    for (start, end), mark in ends.items():
        if mark is Mark.ARROW and ends[end, start] is Mark.TAIL:
            effects[start].add(end)
    for (start, end), mark in ends.items():
        after = reach((end,), effects.__getitem__)
        if mark is not Mark.ARROW or start not in after:
            continue
        path = [
            (cause, effect)
            for cause in nodes
            for effect in effects[cause]
            if cause in after and start in reach((effect,), effects.__getitem__)
        ]
        return {(start, end), *path, *((effect, cause) for cause, effect in path)}
    return set()


def break_circles(nodes: tuple[str, ...], arrows: dict[tuple[str, str], int]) -> set[tuple[str, str]]:
    """Return the arrows, strongest first, as long as they do not go round in a circle, as majorities can."""
    directed: set[tuple[str, str]] = set()
    effects: dict[str, set[str]] = {name: set() for name in nodes}
    for cause, effect in sorted(arrows, key=lambda arc: (-arrows[arc], arc)):
        if cause not in reach((effect,), effects.__getitem__):
            directed.add((cause, effect))
            effects[cause].add(effect)
    return directed


def find_alternatives(graph: Cpdag | MixedGraph, shares: Shares) -> list[tuple[str, str, str, float]]:
    """List (x, y, z, share) where most redraws join x to y or to z, which are adjacent, but to neither of them alone.

    Columns that tell nearly the same take each other's edges from redraw to redraw.
    """
    near: dict[str, list[str]] = {name: [] for name in graph.nodes}
    drawn = graph.skeleton()
    for pair in shares.adjacent:
        if pair not in drawn and NOW_AND_THEN <= (shares.of_pair(pair) or 0.0) < DRAWN:
            first, second = sorted(pair)
            near[first].append(second)
            near[second].append(first)
    found = []
    for x, others in near.items():
        for y, z in combinations(sorted(others), 2):
            either = {frozenset((x, y)), frozenset((x, z))}
            share = sum(not either.isdisjoint(pairs) for pairs in shares.skeletons) / max(shares.redraws, 1)
            if share >= DRAWN and frozenset((y, z)) in drawn:
                found.append((x, y, z, share))
    return sorted(found, key=lambda one: -one[3])


def _keep_founded(
    arrows: set[tuple[str, str]], pairs: frozenset[frozenset[str]], knowledge: Knowledge
) -> set[tuple[str, str]]:
    """Return the arrows that knowledge or a collider founds, and those that follow from these by Meek's rules."""

    def joined(a: str, b: str) -> bool:
        return frozenset((a, b)) in pairs

    kept = {
        (a, b)
        for a, b in arrows
        if not knowledge.allows(b, a) or any(d == b and c != a and not joined(a, c) for c, d in arrows)
    }
    while True:
        more = {
            (a, b)
            for a, b in arrows - kept
            if any(d == a and c != b and not joined(c, b) for c, d in kept)
            or any(c == a and (d, b) in kept for c, d in kept)
            or any(
                d == f == b and joined(a, c) and joined(a, e) and c != e and not joined(c, e)
                for c, d in kept
                for e, f in kept
            )
        }
        if not more:
            return kept
        kept |= more
