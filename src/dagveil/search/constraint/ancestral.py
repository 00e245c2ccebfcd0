"""Marks by evidence where causes may be hidden: from the skeleton of the tests to a partial ancestral graph.

`arrows.py` climbs over acyclic orientations, on which an edge has one arrowhead. Where causes may be hidden an edge may
have two, so the climb goes on over ancestral graphs: no node is an ancestor of its parent or of its spouse. The marks
are those that all graphs with the same colliders share. What colliders leave open is asked of the evidence: the middle
of a discriminating path, and sets that only hidden causes make necessary. Where the evidence is weak, circles stay.
"""

from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs import pag
from dagveil.graphs.cpdag import list_bits
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.arrows import OrientationClimb, Triple, weigh_colliders, weigh_sets
from dagveil.search.constraint.skeleton import Skeleton, SkeletonSettings

Joint = tuple[int, int]  # whether an edge has an arrowhead at its first and at its second end: 1 or 0
FORWARD, BACKWARD, BOTH = (0, 1), (1, 0), (1, 1)

LONGEST_PATH: Final = 3
"""Nodes between the first node of a discriminating path and the one in question; longer ones are not asked about."""

FORBIDDEN: Final = 1e9  # what a graph that is not ancestral costs, so that any other is preferred
MOST_REACHED: Final = 8  # nodes among which such sets are looked for; where more are reached, none is


# docs/hidden-causes.md tells how these two were chosen
DOUBT: Final = 2.0  # evidence of a collider below this is none
PRICE: Final = 2.0
"""Evidence that an edge with two arrowheads must bring; also that of a discriminating path, and of a set that only
hidden causes make necessary."""


def orient_ancestral(
    evidence: Independence,
    skeleton: Skeleton,
    levels: SkeletonSettings,
    knowledge: Knowledge,
    *,
    selection: bool = False,
    doubt: float = DOUBT,
) -> pag.MixedGraph:
    """Return the PAG that agrees best with the evidence on colliders.

    - `skeleton`: what tests have found; edges that hidden causes put between two columns go.
    - `knowledge`: who cannot cause whom, and who must.
    - `selection`: whether rows may have been selected by what is studied.
    """
    ends = _find_marks(evidence, skeleton, knowledge, selection, doubt)
    further = _separate_further(evidence, skeleton, levels, ends, knowledge)
    if further is not skeleton:
        ends = _find_marks(evidence, further, knowledge, selection, doubt)
    return pag.name_ends(evidence.columns, ends)


def _find_marks(
    evidence: Independence, skeleton: Skeleton, knowledge: Knowledge, selection: bool, doubt: float
) -> pag.Ends:
    """Mark colliders and what is known, and close the marks under the rules."""
    names = evidence.columns
    weighed = weigh_colliders(evidence, skeleton, with_separators=True)
    weights = {triple: weight - doubt for triple, weight in weighed.items()}
    ends = mark_knowledge(names, skeleton.adjacency, knowledge)
    if selection:  # selected rows need not have a best graph, so each collider stands for itself
        colliders = [triple for triple, weight in weights.items() if weight > 0]
    else:
        colliders = _list_colliders(names, skeleton, weights, knowledge)
    doubtful = {triple for triple, weight in weighed.items() if abs(weight) < doubt}.difference(colliders)
    for x, z, y in colliders:
        for end in (x, y):
            ends[end, z] = pag.ARROW if ends[end, z] == pag.CIRCLE else ends[end, z]

    def decide(first: int, between: tuple[int, ...], b: int, c: int) -> bool | None:
        if len(between) > LONGEST_PATH:
            return None
        near = np.flatnonzero((ends[first] != pag.NONE) | (ends[c] != pag.NONE)).tolist()
        others: list[int] = sorted(set(near) - {first, c, b, *between})
        sets = [tuple(sorted(between)), *(tuple(sorted((*between, other))) for other in others)]
        questions = [(first, c, given) for given in sets]
        questions += [(first, c, tuple(sorted((*given, b)))) for given in sets]
        weight = weigh_sets(evidence, questions, [0, len(sets)])[0]
        return None if abs(weight) < PRICE else weight > 0

    return pag.OrientationRules(ends, decide, selection=selection, doubtful=doubtful).close()


def mark_knowledge(names: tuple[str, ...], adjacency: NDArray[np.bool_], knowledge: Knowledge) -> pag.Ends:
    """Return what knowledge says of edges: an arrowhead at a column that cannot cause the other, a tail at a cause."""
    ends: pag.Ends = np.where(adjacency, pag.CIRCLE, pag.NONE).astype(np.int8)
    for start, end in np.argwhere(adjacency).tolist():
        if (names[end], names[start]) in knowledge.required:
            ends[start, end] = pag.TAIL
        elif not knowledge.allows(names[end], names[start]):
            ends[start, end] = pag.ARROW
    return ends


def _list_colliders(
    names: tuple[str, ...], skeleton: Skeleton, weights: dict[Triple, float], knowledge: Knowledge
) -> list[Triple]:
    """List the colliders of the best ancestral graph."""
    directed = OrientationClimb(names, skeleton, weights, knowledge).best()
    start = {(min(arc), max(arc)): FORWARD if arc[0] < arc[1] else BACKWARD for arc in directed}
    into = _AncestralClimb(names, weights, knowledge).best([start, dict.fromkeys(start, BOTH)])
    return [(x, z, y) for x, z, y in weights if into[z] >> x & 1 and into[z] >> y & 1]


class _AncestralClimb:
    """Local search over ancestral graphs with one skeleton, by the marks of one edge at a time."""

    def __init__(self, names: tuple[str, ...], weights: dict[Triple, float], knowledge: Knowledge) -> None:
        self._names, self._knowledge, self._weights = names, knowledge, weights
        self._partners: list[dict[int, list[tuple[int, float]]]] = [{} for _ in names]
        for (x, z, y), weight in weights.items():
            self._partners[z].setdefault(x, []).append((y, weight))
            self._partners[z].setdefault(y, []).append((x, weight))

    def best(self, starts: list[dict[tuple[int, int], Joint]]) -> list[int]:
        """Return, for each node, the mask of those whose edges have an arrowhead at it."""
        best, answer = -np.inf, [0] * len(self._names)
        for start in starts:
            allowed = {edge: self._allow(*edge) for edge in start}
            state = {edge: kind if kind in allowed[edge] else allowed[edge][-1] for edge, kind in start.items()}
            into = [0] * len(self._names)
            for (a, b), (at_a, at_b) in state.items():
                into[a] |= at_a << b
                into[b] |= at_b << a
            while sum(self._improve(edge, allowed[edge], state, into) for edge in state):
                pass
            score = sum(w for (x, z, y), w in self._weights.items() if into[z] >> x & 1 and into[z] >> y & 1)
            score -= PRICE * sum(kind == BOTH for kind in state.values())
            score -= 0.0 if _is_ancestral(len(into), state) else FORBIDDEN  # knowledge can make a start that is none
            if score > best + 1e-9:
                best, answer = score, into
        return answer

    def _allow(self, a: int, b: int) -> list[Joint]:
        first, second, known = self._names[a], self._names[b], self._knowledge
        kinds = [FORWARD] * known.allows(first, second) + [BACKWARD] * known.allows(second, first)
        return kinds if known.requires(first, second) else [*kinds, BOTH]

    def _improve(
        self, edge: tuple[int, int], allowed: list[Joint], state: dict[tuple[int, int], Joint], into: list[int]
    ) -> bool:
        """Give an edge the marks that raise the score most and keep the graph ancestral."""
        a, b = edge
        at_a, at_b = self._share(a, b, into[a]), self._share(b, a, into[b])
        worth = {kind: kind[0] * at_a + kind[1] * at_b - PRICE * (kind == BOTH) for kind in allowed}
        now = state[edge]
        for kind in sorted(allowed, key=lambda one: -worth[one]):
            if worth[kind] <= worth[now] + 1e-9:
                return False
            state[edge] = kind
            if _is_ancestral(len(into), state):
                into[a] = into[a] & ~(1 << b) | kind[0] << b
                into[b] = into[b] & ~(1 << a) | kind[1] << a
                return True
            state[edge] = now
        return False

    def _share(self, z: int, x: int, into: int) -> float:
        """Weight of the colliders that an arrowhead at z of the edge from x makes."""
        return sum(weight for y, weight in self._partners[z].get(x, ()) if into >> y & 1)


def _is_ancestral(size: int, state: dict[tuple[int, int], Joint]) -> bool:
    """Tell whether no node is an ancestor of its parent or of its spouse."""
    parents = [0] * size
    for (a, b), kind in state.items():
        parents[b] |= (kind == FORWARD) << a
        parents[a] |= (kind == BACKWARD) << b
    above = [0] * size
    waiting = dict.fromkeys(range(size))
    while waiting:
        ready = [node for node in waiting if not any(parent in waiting for parent in list_bits(parents[node]))]
        if not ready:
            return False
        for node in ready:
            del waiting[node]
            for parent in list_bits(parents[node]):
                above[node] |= above[parent] | 1 << parent
    return not any(kind == BOTH and (above[a] >> b & 1 or above[b] >> a & 1) for (a, b), kind in state.items())


def _separate_further(
    evidence: Independence,
    skeleton: Skeleton,
    levels: SkeletonSettings,
    ends: pag.Ends,
    knowledge: Knowledge,
) -> Skeleton:
    """Try sets with nodes that are nobody's neighbours, which only hidden causes can make necessary.

    They matter only for an edge without a tail, and where a path of colliders that may cause its ends leads to such a
    node.
    """
    names = evidence.columns
    separated = {}
    for x, y in skeleton.edges():
        if knowledge.requires(names[x], names[y]) or pag.TAIL in (ends[x, y], ends[y, x]):
            continue
        near = [set(np.flatnonzero(skeleton.adjacency[end]).tolist()) for end in (x, y)]
        causes, tried = pag.find_possible_ancestors(ends, (x, y)), set[tuple[int, ...]]()
        for start, end in ((x, y), (y, x)):
            reached = (_find_collided(ends, start) & causes) - {end}
            beyond = reached - near[0] - near[1]
            if beyond and len(reached) <= MOST_REACHED:
                for size in range(1, levels.largest_order + 1):
                    tried |= {given for given in combinations(sorted(reached), size) if not beyond.isdisjoint(given)}
        found = _separate(evidence, levels, x, y, tried)
        if found is not None:
            separated[x, y] = found
    return skeleton.without(separated) if separated else skeleton


def _find_collided(ends: pag.Ends, start: int) -> set[int]:
    """Return the neighbours of a node, and the nodes to which a path of colliders leads from it."""
    found = set(np.flatnonzero(ends[start]).tolist())
    walks = [node for node in found if ends[start, node] == pag.ARROW]
    while walks:
        node = walks.pop()
        for after in np.flatnonzero(ends[:, node] == pag.ARROW).tolist():
            if after != start and after not in found:
                found.add(after)
                walks += [after] if ends[node, after] == pag.ARROW else []
    return found


def _separate(
    evidence: Independence, levels: SkeletonSettings, x: int, y: int, sets: set[tuple[int, ...]]
) -> tuple[tuple[int, ...], float] | None:
    """Return the smallest set that separates the two, and the p-value, if the odds of a dependence are low enough."""
    for size in sorted({len(given) for given in sets}):
        questions = Questions.of([(x, y, given) for given in sorted(sets) if len(given) == size])
        questions = questions.select(evidence.answers(questions))
        if len(questions) > levels.sets_per_edge:
            ranked = np.argsort(evidence.strength(questions), kind="stable")
            questions = questions.select(ranked[: levels.sets_per_edge])
        if not len(questions):
            continue
        p_value = evidence.test(questions).p_value
        apart = p_value > levels.conditional_level
        questions, p_value = questions.select(apart), p_value[apart]
        if len(questions) and (passes := evidence.odds(questions) < -PRICE).any():
            best = int(np.argmax(np.where(passes, p_value, -1.0)))
            return tuple(questions.given[best].tolist()), float(p_value[best])
    return None
