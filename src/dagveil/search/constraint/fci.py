"""FCI: from tests to a partial ancestral graph, which allows for hidden common causes.

Spirtes, Meek and Richardson 1995. Rows are taken not to be selected by what is studied, so R5 to R7 are left out.
"""

from itertools import combinations

import numpy as np

from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.graphs.pag import ARROW, CIRCLE, NONE, Ends, MixedGraph, OrientationRules, name_ends
from dagveil.search.constraint.skeleton import Skeleton, SkeletonSettings, find_skeleton, list_neighbours


def find_pag(evidence: Independence, settings: SkeletonSettings) -> MixedGraph:
    """Find the partial ancestral graph that tests leave.

    - `settings`: constants of the search; the size of sets also bounds those among possibly d-separating nodes.
    """
    first = find_skeleton(evidence, settings, NO_KNOWLEDGE)
    skeleton = _separate_further(evidence, settings, first)
    separators = skeleton.separators

    def decide(first: int, _: tuple[int, ...], b: int, c: int) -> bool | None:
        separator = separators.get((min(first, c), max(first, c)))
        return None if separator is None else b not in separator

    return name_ends(evidence.columns, OrientationRules(_mark_colliders(skeleton), decide).close())


def _mark_colliders(skeleton: Skeleton) -> Ends:
    ends: Ends = np.where(skeleton.adjacency, CIRCLE, NONE).astype(np.int8)
    for b, near in enumerate(list_neighbours(skeleton.adjacency)):
        for a, c in combinations(near, 2):
            if b not in skeleton.separators.get((a, c), (b,)):
                ends[a, b] = ends[c, b] = ARROW
    return ends


def _separate_further(evidence: Independence, settings: SkeletonSettings, skeleton: Skeleton) -> Skeleton:
    """Try sets of nodes that hidden causes can make necessary, though they are nobody's neighbours."""
    ends = _mark_colliders(skeleton)
    separated: dict[tuple[int, int], tuple[tuple[int, ...], float]] = {}
    for x, y in skeleton.edges():
        near = [set(np.flatnonzero(skeleton.adjacency[end]).tolist()) for end in (x, y)]
        tried = set()
        for start, end in ((x, y), (y, x)):
            reach = sorted(find_reachable(ends, start) - {end})
            for size in range(1, settings.largest_order + 1):
                tried |= {given for given in combinations(reach, size) if not any(side >= set(given) for side in near)}
        for given in sorted(tried, key=lambda chosen: (len(chosen), chosen)):
            question = Questions.of([(x, y, given)])
            if not evidence.answers(question)[0]:
                continue
            p_value = float(evidence.test(question).p_value[0])
            if p_value > settings.conditional_level:
                separated[x, y] = given, p_value
                break
    return skeleton.without(separated)


def find_reachable(ends: Ends, start: int) -> set[int]:
    """Return nodes at the end of a path on which each node is a collider or closes a triangle."""
    near = [np.flatnonzero(row).tolist() for row in ends]
    found = set(near[start])
    walks = [(start, node) for node in found]
    seen = set(walks)
    while walks:
        before, node = walks.pop()
        for after in near[node]:
            collides = ends[before, node] == ARROW and ends[after, node] == ARROW
            step = (node, after)
            if after not in (before, start) and step not in seen and (collides or ends[before, after]):
                seen.add(step)
                walks.append(step)
                found.add(after)
    return found
