"""d-separation, and an oracle that answers independence questions from a known DAG."""

from __future__ import annotations

from collections.abc import Iterable

from dagveil.errors import GraphError
from dagveil.graphs.dag import Dag


def is_separated(dag: Dag, x: str, y: str, given: Iterable[str] = ()) -> bool:
    """Return whether `given` d-separates x from y.

    The search walks along active trails from x (the Bayes ball; Koller and Friedman 2009, algorithm 3.1), in time
    linear in the number of edges.

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

    # A collider is open when it or a descendant of it is given: when it is an ancestor of the given nodes.
    opened: set[str] = set()
    upward = list(known)
    while upward:
        node = upward.pop()
        if node not in opened:
            opened.add(node)
            upward.extend(dag.parents(node))

    # A visit is a node and whether the trail came in along an arrow that points to it.
    trails = [(x, False)]
    visited: set[tuple[str, bool]] = set()
    while trails:
        visit = trails.pop()
        if visit in visited:
            continue
        visited.add(visit)
        node, from_parent = visit
        if node == y:
            return False
        if node not in known:
            trails.extend((child, True) for child in dag.children(node))
            if not from_parent:
                trails.extend((parent, False) for parent in dag.parents(node))
        if from_parent and node in opened:
            trails.extend((parent, False) for parent in dag.parents(node))
    return True


class SeparationOracle:
    """Answers conditional independence questions from a known DAG, and counts them.

    Examples
    --------
    >>> oracle = SeparationOracle(Dag(("a", "b"), frozenset({("a", "b")})))
    >>> oracle.is_independent("a", "b", ()), oracle.questions
    (False, 1)
    """

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.questions = 0

    def is_independent(self, x: str, y: str, given: Iterable[str] = ()) -> bool:
        """Return whether x and y are independent given the nodes of `given` in every distribution of the DAG."""
        self.questions += 1
        return is_separated(self.dag, x, y, given)
