"""FCI: from tests to a partial ancestral graph, which allows for hidden common causes.

Spirtes, Meek and Richardson 1995; the rules R1 to R4 and R8 to R10 are those of Zhang, On the completeness of
orientation rules for causal discovery in the presence of latent confounders and selection bias, 2008. Rows are taken
not to be selected by what is studied, so R5 to R7 are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.graphs.mixed import Edge, Mark, MixedGraph
from dagveil.search.constraint.skeleton import Skeleton, SkeletonSettings, find_skeleton

NONE, CIRCLE, ARROW, TAIL = 0, 1, 2, 3
MARKS: Final = {CIRCLE: Mark.CIRCLE, ARROW: Mark.ARROW, TAIL: Mark.TAIL}


def find_pag(evidence: Independence, settings: SkeletonSettings) -> MixedGraph:
    """Find the partial ancestral graph that tests leave.

    - `evidence`: answers questions for free.
    - `settings`: constants of the search; the size of sets also bounds those among possibly d-separating nodes.
    """
    first = find_skeleton(evidence, settings, NO_KNOWLEDGE)
    skeleton = _separate_further(evidence, settings, first)
    pag = _Pag(skeleton)
    pag.apply_rules()
    names = evidence.columns
    edges = (
        Edge(names[x], names[y], MARKS[int(pag.ends[y, x])], MARKS[int(pag.ends[x, y])]) for x, y in skeleton.edges()
    )
    return MixedGraph(names, frozenset(edges))


def _separate_further(evidence: Independence, settings: SkeletonSettings, skeleton: Skeleton) -> Skeleton:
    """Try sets of nodes that hidden causes can make necessary, though they are nobody's neighbours."""
    pag = _Pag(skeleton)
    adjacency, separators, p_values = skeleton.adjacency.copy(), dict(skeleton.separators), dict(skeleton.p_values)
    for x, y in skeleton.edges():
        near = [set(np.flatnonzero(skeleton.adjacency[end]).tolist()) for end in (x, y)]
        tried = set()
        for start, end in ((x, y), (y, x)):
            reach = sorted(pag.reachable(start) - {end})
            for size in range(1, settings.largest_order + 1):
                tried |= {given for given in combinations(reach, size) if not any(side >= set(given) for side in near)}
        for given in sorted(tried, key=lambda chosen: (len(chosen), chosen)):
            question = Questions.of([(x, y, given)])
            if not evidence.answers(question)[0]:
                continue
            p_value = float(evidence.test(question).p_value[0])
            if p_value > settings.conditional_level:
                adjacency[x, y] = adjacency[y, x] = False
                separators[x, y], p_values[x, y] = given, p_value
                break
    return Skeleton(adjacency, separators, p_values)


class _Pag:
    """Marks while rules are applied: `ends[x, y]` is the mark at y of the edge between x and y."""

    def __init__(self, skeleton: Skeleton) -> None:
        self.ends: NDArray[np.int8] = np.where(skeleton.adjacency, CIRCLE, NONE).astype(np.int8)
        self._separators = skeleton.separators
        self._size = len(self.ends)
        for a, b, c in self._open_triples():
            if a < c and (a, c) in self._separators and b not in self._separators[a, c]:
                self.ends[a, b] = self.ends[c, b] = ARROW

    def near(self, node: int) -> list[int]:
        """Return the neighbours of a node."""
        return [int(other) for other in np.flatnonzero(self.ends[node])]

    def reachable(self, start: int) -> set[int]:
        """Return nodes at the end of a path on which each node is a collider or closes a triangle."""
        found = set(self.near(start))
        walks = [(start, node) for node in found]
        seen = set(walks)
        while walks:
            before, node = walks.pop()
            for after in self.near(node):
                collides = self.ends[before, node] == ARROW and self.ends[after, node] == ARROW
                step = (node, after)
                if after not in (before, start) and step not in seen and (collides or self.ends[before, after]):
                    seen.add(step)
                    walks.append(step)
                    found.add(after)
        return found

    def apply_rules(self) -> None:
        """Direct what follows, until nothing more does; tails last, since they change no other rule."""
        while self._direct():
            pass
        while self._find_tails():
            pass

    def _open_triples(self) -> Iterator[tuple[int, int, int]]:
        for b in range(self._size):
            for a in self.near(b):
                for c in self.near(b):
                    if a != c and not self.ends[a, c]:
                        yield a, b, c

    def _mark(self, start: int, end: int, mark: int) -> bool:
        if self.ends[start, end] != CIRCLE:
            return False
        self.ends[start, end] = mark
        return True

    def _is_arrow(self, cause: int, effect: int) -> bool:
        return bool(self.ends[effect, cause] == TAIL and self.ends[cause, effect] == ARROW)

    def _direct(self) -> bool:
        changed = False
        for a, b, c in self._open_triples():  # R1
            if self.ends[a, b] == ARROW and self.ends[c, b] == CIRCLE:
                changed |= self._mark(c, b, TAIL)
                changed |= self._mark(b, c, ARROW)
        for a in range(self._size):
            for c in self.near(a):
                if self.ends[a, c] != CIRCLE:
                    continue
                for b in set(self.near(a)) & set(self.near(c)):  # R2
                    into = self.ends[a, b] == ARROW and self.ends[b, c] == ARROW
                    if into and (self._is_arrow(a, b) or self._is_arrow(b, c)):
                        changed |= self._mark(a, c, ARROW)
        for a, d, c in self._open_triples():  # R3
            if a < c and self.ends[a, d] == CIRCLE and self.ends[c, d] == CIRCLE:
                for b in set(self.near(a)) & set(self.near(c)) & set(self.near(d)):
                    if self.ends[a, b] == ARROW and self.ends[c, b] == ARROW:
                        changed |= self._mark(d, b, ARROW)
        for b in range(self._size):  # R4
            for c in self.near(b):
                if self.ends[c, b] == CIRCLE:
                    changed |= self._discriminate(b, c)
        return changed

    def _discriminate(self, b: int, c: int) -> bool:
        """Find a path d … a, b, c whose nodes before b are colliders and parents of c, d being apart from c."""
        for start in self.near(b):
            if not (self._is_arrow(start, c) and self.ends[b, start] == ARROW):
                continue
            walks = [(start, {b, c, start})]
            while walks:
                node, passed = walks.pop()
                for before in self.near(node):
                    if before in passed or self.ends[before, node] != ARROW:
                        continue
                    if not self.ends[before, c]:
                        separator = self._separators.get((min(before, c), max(before, c)))
                        if separator is None:
                            continue
                        if b in separator:
                            self.ends[c, b], self.ends[b, c] = TAIL, ARROW
                        else:
                            self.ends[start, b] = self.ends[b, start] = self.ends[c, b] = self.ends[b, c] = ARROW
                        return True
                    if self._is_arrow(before, c) and self.ends[node, before] == ARROW:
                        walks.append((before, passed | {before}))
        return False

    def _find_tails(self) -> bool:
        changed = False
        for a in range(self._size):
            for c in self.near(a):
                if self.ends[c, a] == CIRCLE and self.ends[a, c] == ARROW and self._must_cause(a, c):
                    changed |= self._mark(c, a, TAIL)
        return changed

    def _must_cause(self, a: int, c: int) -> bool:
        if any(self._is_arrow(a, b) and self._is_arrow(b, c) for b in self.near(a) if self.ends[b, c]):  # R8
            return True
        if any(b != c and not self.ends[b, c] and self._leads(a, b, c) for b in self.near(a)):  # R9
            return True
        parents = [b for b in self.near(c) if b != a and self._is_arrow(b, c)]
        starts = {b: {first for first in self.near(a) if first != c and self._leads(a, first, b)} for b in parents}
        return any(  # R10
            first != second and not self.ends[first, second]
            for b, d in combinations(parents, 2)
            for first in starts[b]
            for second in starts[d]
        )

    def _leads(self, a: int, first: int, goal: int) -> bool:
        """Tell whether an uncovered path that may be directed goes from a by its neighbour to the goal."""
        if not self._may_go(a, first):
            return False
        walks = [(a, first, {a, first})]
        while walks:
            before, node, passed = walks.pop()
            if node == goal:
                return True
            walks += [
                (node, after, passed | {after})
                for after in self.near(node)
                if after not in passed and not self.ends[before, after] and self._may_go(node, after)
            ]
        return False

    def _may_go(self, start: int, end: int) -> bool:
        return bool(self.ends[end, start] not in (NONE, ARROW) and self.ends[start, end] != TAIL)
