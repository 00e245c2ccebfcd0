"""From a partly directed graph to a DAG: Dor and Tarsi's algorithm, strict and forgiving."""

from __future__ import annotations

from collections.abc import Iterable

from dagveil.errors import GraphError
from dagveil.graphs.names import Arc, Pair


def find_extension(
    nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Pair]
) -> frozenset[Arc] | None:
    """Direct every undirected edge without a cycle and without a new unshielded collider.

    D. Dor and M. Tarsi, A simple algorithm to construct a consistent extension of a partially oriented graph, 1992:
    remove, again and again, a node that can be the last of an order. Ties are broken by the order of `nodes`.

    Returns
    -------
    frozenset of (tail, head) or None
        All edges, or None when there is no such DAG.

    Examples
    --------
    >>> sorted(find_extension(("a", "b", "c"), {("a", "b")}, {frozenset({"b", "c"})}))
    [('a', 'b'), ('b', 'c')]
    """
    return _peel(nodes, directed, undirected, tolerated=0)


def nearest_extension(nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Pair]) -> frozenset[Arc]:
    """Direct every undirected edge without a cycle, with new unshielded colliders only where there is no other way.

    The directed edges must be free of cycles. Where Dor and Tarsi's algorithm is stuck, the sink whose removal makes
    the fewest new colliders goes; so the answer is theirs whenever they have one.

    Examples
    --------
    >>> square = [frozenset(pair) for pair in ("ab", "bc", "cd", "da")]
    >>> find_extension(("a", "b", "c", "d"), [], square) is None
    True
    >>> len(nearest_extension(("a", "b", "c", "d"), [], square))
    4
    """
    edges = _peel(nodes, directed, undirected, tolerated=None)
    if edges is None:
        raise GraphError("the directed edges contain a cycle; turn or remove one of them before extending the graph")
    return edges


def _peel(
    nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Pair], tolerated: int | None
) -> frozenset[Arc] | None:
    """Remove sinks one by one; `tolerated` is the largest number of new colliders per sink, None for any."""
    edges = set(directed)
    out: dict[str, set[str]] = {node: set() for node in nodes}
    flat: dict[str, set[str]] = {node: set() for node in nodes}
    near: dict[str, set[str]] = {node: set() for node in nodes}
    for tail, head in edges:
        out[tail].add(head)
        near[tail].add(head)
        near[head].add(tail)
    for first, second in undirected:
        for one, other in ((first, second), (second, first)):
            flat[one].add(other)
            near[one].add(other)

    left = dict.fromkeys(nodes)
    while left:
        best: tuple[int, str] | None = None
        for node in left:
            if out[node]:
                continue
            # A neighbour over an undirected edge must be adjacent to all other neighbours: else a new collider.
            cost = sum(len(near[node] - near[other]) - 1 for other in flat[node])
            if best is None or cost < best[0]:
                best = (cost, node)
                if cost == 0:
                    break
        if best is None or (tolerated is not None and best[0] > tolerated):
            return None
        sink = best[1]
        edges.update((other, sink) for other in flat[sink])
        for other in near[sink]:
            near[other].discard(sink)
            flat[other].discard(sink)
            out[other].discard(sink)
        del left[sink]
    return frozenset(edges)
