"""Arrows by separating sets, the usual way of PC, with a named rule for conflicts.

An unshielded triple x − z − y is a collider if z is not in the set that separated x and y; a pair that was never tested
says nothing. If a DAG has all of these colliders and no other, it is taken. Otherwise colliders are taken from the most
to the least convincing separation, and one that would turn an arrow or close a cycle is passed over ("strongest
separation first"). So the result is always a valid CPDAG.
"""

from __future__ import annotations

import numpy as np

from dagveil.graphs.cpdag import Cpdag, find_extension, nearest_extension
from dagveil.graphs.dag import Dag, sort_topologically
from dagveil.graphs.knowledge import Knowledge
from dagveil.graphs.names import Arc, Pair
from dagveil.search.constraint.arrows import unshielded
from dagveil.search.constraint.skeleton import Skeleton


def orient_by_separating_sets(columns: tuple[str, ...], skeleton: Skeleton, knowledge: Knowledge) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that the separating sets speak for.

    Parameters
    ----------
    columns
        Names, in the order of the skeleton's positions.
    skeleton
        With the set that removed each pair.
    knowledge
        Wins over the data.
    """
    neighbours = [set(np.flatnonzero(row).tolist()) for row in skeleton.adjacency]
    colliders = [
        (skeleton.p_values.get((x, y), 0.0), x, z, y)
        for x, z, y in unshielded(neighbours)
        if (x, y) in skeleton.separators and z not in skeleton.separators[x, y]
    ]
    colliders.sort(key=lambda c: (-c[0], sorted((columns[c[1]], columns[c[3]])), columns[c[2]]))
    pairs = {frozenset((columns[x], columns[y])) for x, y in skeleton.edges()}
    found = [((columns[x], columns[z]), (columns[y], columns[z])) for _, x, z, y in colliders]
    arrows = {arc for both in found for arc in both}
    opposed = any((effect, cause) in arrows for cause, effect in arrows)
    if opposed or find_extension(columns, arrows, _without(pairs, arrows)) is None:
        arrows = _strongest_first(columns, found)
    dag = Dag(columns, nearest_extension(columns, arrows, _without(pairs, arrows)))
    return knowledge.orient(dag.cpdag())


def _strongest_first(columns: tuple[str, ...], colliders: list[tuple[Arc, Arc]]) -> set[Arc]:
    arrows: set[Arc] = set()
    for both in colliders:
        trial = arrows | set(both)
        if not any((effect, cause) in trial for cause, effect in both) and sort_topologically(columns, trial):
            arrows = trial
    return arrows


def _without(pairs: set[Pair], arrows: set[Arc]) -> set[Pair]:
    return pairs - {frozenset(arc) for arc in arrows}
