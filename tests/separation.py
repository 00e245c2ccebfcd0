"""d-separation, and an oracle that answers independence questions from a known DAG."""

from __future__ import annotations

from collections.abc import Iterable

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Dag


def is_separated(dag: Dag, x: str, y: str, given: Iterable[str] = ()) -> bool:
    """Return whether `given` d-separates x from y.

    The search walks from x along every active trail (R. Shachter, Bayes-Ball, UAI 1998), in time linear in the number
    of edges.

    Examples
    --------
    >>> collider = Dag(("a", "m", "b"), frozenset({("a", "m"), ("b", "m")}))
    >>> is_separated(collider, "a", "b"), is_separated(collider, "a", "b", {"m"})
    (True, False)
    """
    known = frozenset(given)
    for name in (x, y, *known):
        dag.parents(name)  # raises for a name that the graph does not have
    if x == y or x in known or y in known:
        raise GraphError(f"x, y and the conditioning set must be apart; x is {x!r}, y is {y!r}, given {sorted(known)}")

    # A visit is a node and whether the walk came in along an arrow that points to it. A given node sends a walk from
    # a parent back to all parents; so a collider with a given descendant is open by way of that descendant.
    walks = [(x, False)]
    visited: set[tuple[str, bool]] = set()
    while walks:
        visit = walks.pop()
        if visit in visited:
            continue
        visited.add(visit)
        node, from_parent = visit
        if node == y:
            return False
        if node not in known:
            walks.extend((child, True) for child in dag.children(node))
        if from_parent == (node in known):
            walks.extend((parent, False) for parent in dag.parents(node))
    return True
