"""Arrows by separating sets, the usual way of PC, with a named rule for conflicts.

An unshielded triple x − z − y is a collider if z is not in the set that separated x and y. Triples are taken from the
most to the least convincing separation; one that would turn an arrow that is already there, or that leaves no DAG
without further colliders, is passed over ("strongest separation first"). So the result is always a valid CPDAG.
"""

from __future__ import annotations

import numpy as np

from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.extension import find_extension, nearest_extension
from dagveil.graphs.knowledge import Knowledge
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
        if z not in skeleton.separators.get((x, y), ())
    ]
    colliders.sort(key=lambda c: (-c[0], sorted((columns[c[1]], columns[c[3]])), columns[c[2]]))
    pairs = {frozenset((columns[x], columns[y])) for x, y in skeleton.edges()}
    arrows: set[tuple[str, str]] = set()
    for _, x, z, y in colliders:
        new = {(columns[x], columns[z]), (columns[y], columns[z])}
        if any((effect, cause) in arrows or not knowledge.allows(cause, effect) for cause, effect in new):
            continue
        trial = arrows | new
        if find_extension(columns, trial, pairs - {frozenset(arc) for arc in trial}) is not None:
            arrows = trial
    loose = pairs - {frozenset(arc) for arc in arrows}
    dag = Dag(columns, frozenset(nearest_extension(columns, arrows, loose)))
    return knowledge.orient(dag.cpdag())
