"""Partial ancestral graphs: what data can say about causes when some of them were not measured. Edges have two marks.

A maximal ancestral graph (MAG) stands for a DAG some of whose nodes are hidden; a PAG stands for all MAGs with the same
separations. The rules R1 to R10 are those of J. Zhang, On the completeness of orientation rules for causal discovery in
the presence of latent confounders and selection bias, 2008.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag, Dag, Pair, check_nodes, check_pairs, list_by_end, look_up, reach


class Mark(enum.Enum):
    """What is known about one end of an edge."""

    TAIL = "tail"  # the node at this end is a cause of the other
    ARROW = "arrow"  # the node at this end is not a cause of the other
    CIRCLE = "circle"  # either may be true


class Edge(NamedTuple):
    """An edge between two nodes, with the mark at the end of each."""

    first: str
    second: str
    mark_at_first: Mark
    mark_at_second: Mark

    def turned(self) -> Edge:
        """Return the same edge, read from the other end."""
        return Edge(self.second, self.first, self.mark_at_second, self.mark_at_first)


class MixedGraph(msgspec.Struct, frozen=True, dict=True):
    """A graph with a mark at each end of each edge, at most one edge for each pair.

    An edge may be given from either end; it is kept with the alphabetically first node first.
    """

    nodes: tuple[str, ...]
    edges: frozenset[Edge]

    def __post_init__(self) -> None:
        force_setattr(self, "nodes", check_nodes(self.nodes))
        given = (Edge(*edge) for edge in self.edges)
        force_setattr(self, "edges", frozenset(edge if edge.first <= edge.second else edge.turned() for edge in given))
        if len(check_pairs(self.nodes, self.skeleton())) < len(self.edges):
            raise GraphError(f"{len(self.edges)} edges join fewer pairs than that; give one edge for each pair")

    @classmethod
    def of(cls, graph: Dag | Cpdag | MixedGraph) -> MixedGraph:
        """Return any graph of this package as a mixed graph; an undirected edge has two tails."""
        if isinstance(graph, MixedGraph):
            return graph
        arcs = graph.edges if isinstance(graph, Dag) else graph.directed
        pairs: frozenset[Pair] = frozenset() if isinstance(graph, Dag) else graph.undirected
        edges = {Edge(tail, head, Mark.TAIL, Mark.ARROW) for tail, head in arcs}
        edges |= {Edge(min(pair), max(pair), Mark.TAIL, Mark.TAIL) for pair in pairs}
        return cls(graph.nodes, frozenset(edges))

    def mark(self, start: str, end: str) -> Mark | None:
        """Return the mark at `end` of the edge from `start`, or None when the two are not adjacent."""
        return self._marks.get((start, end))

    def adjacent(self, node: str) -> frozenset[str]:
        """Return the nodes joined to a node by an edge."""
        return look_up(self._near, node)

    def skeleton(self) -> frozenset[Pair]:
        """Return the adjacent pairs."""
        return frozenset(frozenset((edge.first, edge.second)) for edge in self.edges)

    @cached_property
    def _marks(self) -> dict[tuple[str, str], Mark]:
        marks = {(edge.first, edge.second): edge.mark_at_second for edge in self.edges}
        return marks | {(edge.second, edge.first): edge.mark_at_first for edge in self.edges}

    @cached_property
    def _near(self) -> dict[str, frozenset[str]]:
        return list_by_end(self.nodes, self._marks)


NONE, CIRCLE, ARROW, TAIL = 0, 1, 2, 3
"""Marks as numbers: `ends[x, y]` is the mark at y of the edge between x and y."""

_MARKS: Final = {CIRCLE: Mark.CIRCLE, ARROW: Mark.ARROW, TAIL: Mark.TAIL}
_NUMBERS: Final = {mark: number for number, mark in _MARKS.items()}

Ends: TypeAlias = NDArray[np.int8]
Decide: TypeAlias = Callable[[int, tuple[int, ...], int, int], bool | None]
"""Tells whether b is a collider on the discriminating path (first, between, b, c); None if nothing tells."""


def read_ends(graph: MixedGraph) -> Ends:
    """Return the marks of a graph by the positions of its nodes."""
    place = {name: i for i, name in enumerate(graph.nodes)}
    ends: Ends = np.zeros((len(place), len(place)), dtype=np.int8)
    for first, second, at_first, at_second in graph.edges:
        ends[place[second], place[first]] = _NUMBERS[at_first]
        ends[place[first], place[second]] = _NUMBERS[at_second]
    return ends


def name_ends(nodes: tuple[str, ...], ends: Ends) -> MixedGraph:
    """Return the graph with these marks."""
    joined = zip(*np.nonzero(np.triu(ends)), strict=True)
    edges = (Edge(nodes[x], nodes[y], _MARKS[int(ends[y, x])], _MARKS[int(ends[x, y])]) for x, y in joined)
    return MixedGraph(nodes, frozenset(edges))


def find_possible_ancestors(ends: Ends, nodes: Iterable[int]) -> set[int]:
    """Return these nodes and all that may be their causes: a path leads from them without an arrowhead against it."""
    goes = _may_lead(ends)
    return reach(nodes, lambda node: np.flatnonzero(goes[:, node]).tolist())


def find_possible_descendants(ends: Ends, nodes: Iterable[int]) -> set[int]:
    """Return these nodes and all that may be their effects."""
    goes = _may_lead(ends)
    return reach(nodes, lambda node: np.flatnonzero(goes[node]).tolist())


def _may_lead(ends: Ends) -> NDArray[np.bool_]:
    """Tell which ends may be passed from one node to the next, away from causes."""
    return np.asarray((ends.T != NONE) & (ends.T != ARROW) & (ends != TAIL))


def find_class(mag: MixedGraph, *, selection: bool = False) -> MixedGraph:
    """Return the PAG of a MAG: the marks that all graphs with the same separations have.

    Examples
    --------
    >>> mag = MixedGraph(("a", "b"), frozenset({Edge("a", "b", Mark.TAIL, Mark.ARROW)}))
    >>> find_class(mag).mark("a", "b")
    <Mark.CIRCLE: 'circle'>
    """
    ends = read_ends(mag)
    return name_ends(mag.nodes, close_class(ends, selection=selection))


def close_class(mag: Ends, known: Ends | None = None, *, selection: bool = False) -> Ends:
    """Return the marks of a MAG's class; `known` marks are kept, where they are no circles."""
    into = mag == ARROW
    ends: Ends = np.where(mag != NONE, CIRCLE, NONE).astype(np.int8)
    for b in range(len(mag)):
        for a, c in combinations(np.flatnonzero(into[:, b]).tolist(), 2):
            if not mag[a, c]:
                ends[a, b] = ends[c, b] = ARROW
    if known is not None:
        ends = np.where((ends == CIRCLE) & (known > CIRCLE), known, ends)

    def decide(_: int, between: tuple[int, ...], b: int, c: int) -> bool:
        return bool(into[between[-1], b] and into[c, b])

    return OrientationRules(ends, decide, selection=selection).close()


class OrientationRules:
    """Rules that follow marks from marks, on `ends`, which they change."""

    def __init__(
        self, ends: Ends, decide: Decide, *, selection: bool = False, doubtful: Collection[tuple[int, int, int]] = ()
    ) -> None:
        """Take the marks that are known.

        - `doubtful`: unshielded triples (a, b, c) with a < c of which nothing tells whether b is a collider.
        """
        self._doubtful = frozenset(doubtful) | {(c, b, a) for a, b, c in doubtful}
        self.ends = ends
        self._decide = decide
        self._selection = selection
        self._size = len(ends)
        self._near = [np.flatnonzero(row).tolist() for row in ends]
        self._open = [
            (a, b, c)
            for b in range(self._size)
            for a in self._near[b]
            for c in self._near[b]
            if a != c and not ends[a, c]
        ]

    def close(self) -> Ends:
        """Apply the rules until nothing more follows; tails last, since they change no other rule."""
        while self._direct():
            pass
        while self._selection and self._find_lines():
            pass
        while self._find_tails():
            pass
        return self.ends

    def _mark(self, start: int, end: int, mark: int) -> bool:
        if self.ends[start, end] != CIRCLE:
            return False
        self.ends[start, end] = mark
        return True

    def _is_arrow(self, cause: int, effect: int) -> bool:
        return bool(self.ends[effect, cause] == TAIL and self.ends[cause, effect] == ARROW)

    def _common(self, *nodes: int) -> list[int]:
        return np.flatnonzero((self.ends[list(nodes)] != NONE).all(axis=0)).tolist()

    def _direct(self) -> bool:
        ends, changed = self.ends, False
        for a, b, c in self._open:  # R1
            if ends[a, b] == ARROW and ends[c, b] == CIRCLE and (a, b, c) not in self._doubtful:
                changed |= self._mark(c, b, TAIL)
                changed |= self._mark(b, c, ARROW)
        for a, c in np.argwhere(ends == CIRCLE).tolist():  # R2
            for b in self._common(a, c):
                into = ends[a, b] == ARROW and ends[b, c] == ARROW
                if into and (self._is_arrow(a, b) or self._is_arrow(b, c)):
                    changed |= self._mark(a, c, ARROW)
        for a, d, c in self._open:  # R3
            if a < c and ends[a, d] == CIRCLE and ends[c, d] == CIRCLE and (a, d, c) not in self._doubtful:
                for b in self._common(a, c, d):
                    if ends[a, b] == ARROW and ends[c, b] == ARROW:
                        changed |= self._mark(d, b, ARROW)
        for c, b in np.argwhere(ends == CIRCLE).tolist():  # R4
            if ends[c, b] == CIRCLE:
                changed |= self._discriminate(b, c)
        return changed

    def _discriminate(self, b: int, c: int) -> bool:
        """Find a path d … a, b, c whose nodes before b are colliders and parents of c, d being apart from c."""
        for path in self._discriminating(b, c):
            collides = self._decide(path[0], path[1:], b, c)
            if collides is None:
                continue
            if collides:
                self.ends[path[-1], b] = self.ends[c, b] = self.ends[b, c] = ARROW
            else:
                self.ends[c, b], self.ends[b, c] = TAIL, ARROW
            return True
        return False

    def _discriminating(self, b: int, c: int) -> Iterator[tuple[int, ...]]:
        """Yield the shortest path to each first node, without b and c."""
        ends = self.ends
        for start in self._near[b]:
            if not (self._is_arrow(start, c) and ends[b, start] == ARROW):
                continue
            paths: list[tuple[int, ...]] = [(start,)]
            seen = {b, c, start}
            while paths:
                path = paths.pop(0)
                node = path[0]
                for before in self._near[node]:
                    if before in seen or ends[before, node] != ARROW:
                        continue
                    if not ends[before, c]:
                        yield before, *path
                    elif self._is_arrow(before, c) and ends[node, before] == ARROW:
                        seen.add(before)
                        paths.append((before, *path))

    def _find_lines(self) -> bool:
        """Apply R5 to R7, which only rows that were selected by what is studied give rise to."""
        ends, changed = self.ends, False
        for a, b in np.argwhere(np.triu((ends == CIRCLE) & (ends.T == CIRCLE))).tolist():  # R5
            path = self._find_circle_path(a, b)
            for start, end in pairwise(path):
                changed |= self._mark(start, end, TAIL) | self._mark(end, start, TAIL)
        for b in range(self._size):  # R6
            if any(ends[a, b] == TAIL and ends[b, a] == TAIL for a in self._near[b]):
                for c in self._near[b]:
                    changed |= self._mark(c, b, TAIL)
        for a, b, c in self._open:  # R7
            if ends[b, a] == TAIL and ends[a, b] == CIRCLE and ends[c, b] == CIRCLE:
                changed |= self._mark(c, b, TAIL)
        return changed

    def _find_circle_path(self, a: int, b: int) -> list[int]:
        """Return a, …, b, a if an uncovered path of circles goes from a to b whose ends' neighbours are apart."""
        ends = self.ends

        def goes(start: int, end: int) -> bool:
            return bool(ends[start, end] == CIRCLE and ends[end, start] == CIRCLE)

        for first in self._near[a]:
            if first != b and goes(a, first) and not ends[first, b]:
                path = self._walk(a, first, b, goes)
                if path and not ends[path[-2], a]:
                    return [*path, a]
        return []

    def _find_tails(self) -> bool:
        changed = False
        for c, a in np.argwhere((self.ends == CIRCLE) & (self.ends.T == ARROW)).tolist():
            if self._must_cause(a, c):
                changed |= self._mark(c, a, TAIL)
        return changed

    def _must_cause(self, a: int, c: int) -> bool:
        ends = self.ends
        between = self._common(a, c)
        if any(self._is_arrow(a, b) and self._is_arrow(b, c) for b in between):  # R8
            return True
        # R8, by a line that selection leaves open
        lines = [b for b in between if ends[b, a] == TAIL and ends[a, b] == CIRCLE] if self._selection else []
        if any(self._is_arrow(b, c) for b in lines):
            return True
        if any(b != c and not ends[b, c] and self._leads(a, b, c) for b in self._near[a]):  # R9
            return True
        parents = [b for b in self._near[c] if b != a and self._is_arrow(b, c)]
        starts = {b: [first for first in self._near[a] if first != c and self._leads(a, first, b)] for b in parents}
        return any(  # R10
            first != second and not ends[first, second]
            for b, d in combinations(parents, 2)
            for first in starts[b]
            for second in starts[d]
        )

    def _leads(self, a: int, first: int, goal: int) -> bool:
        """Tell whether an uncovered path that may be directed goes from a by its neighbour to the goal."""
        return self._may_go(a, first) and bool(self._walk(a, first, goal, self._may_go))

    def _may_go(self, start: int, end: int) -> bool:
        return bool(self.ends[end, start] not in (NONE, ARROW) and self.ends[start, end] != TAIL)

    def _walk(self, a: int, first: int, goal: int, goes: Callable[[int, int], bool]) -> list[int]:
        """Return an uncovered path from a by its neighbour to the goal, or nothing.

        Steps that were taken are not taken again by another way, so that a dense graph takes no longer than its square.
        """
        paths, taken = [[a, first]], {(a, first)}
        while paths:
            path = paths.pop(0)
            before, node = path[-2:]
            if node == goal:
                return path
            for after in self._near[node]:
                step = (node, after)
                uncovered = not self.ends[before, after] and (before, node, after) not in self._doubtful
                if step not in taken and after not in path and uncovered and goes(node, after):
                    taken.add(step)
                    paths.append([*path, after])
        return []
