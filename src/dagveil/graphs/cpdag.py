"""Completed partially directed acyclic graphs: what data alone can say about a DAG, and which DAGs they stand for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import GraphError
from dagveil.graphs.names import Arc, Pair, check_arcs, check_nodes, check_pairs, list_by_end

if TYPE_CHECKING:
    from dagveil.graphs.dag import Dag


class Cpdag(msgspec.Struct, frozen=True, dict=True):
    """A graph with directed and undirected edges.

    The constructor checks names and pairs only, because a noisy search may hand over a graph that no DAG has;
    `is_valid` says whether it is truly the CPDAG of a Markov equivalence class, and `is_extendable` whether it has
    a DAG at all. With background knowledge, an extendable graph closed under Meek's rules is an MPDAG.

    Parameters
    ----------
    nodes : tuple of str
    directed : frozenset of (str, str)
        Pairs (tail, head).
    undirected : frozenset of frozenset of str
        Pairs without direction. No pair is both directed and undirected.

    Examples
    --------
    >>> chain = Cpdag(("a", "b", "c"), frozenset(), frozenset({frozenset("ab"), frozenset("bc")}))
    >>> chain.is_valid()
    True
    >>> sorted(chain.adjacent("b"))
    ['a', 'c']
    """

    nodes: tuple[str, ...]
    directed: frozenset[Arc]
    undirected: frozenset[Pair]

    def __post_init__(self) -> None:
        force_setattr(self, "nodes", check_nodes(self.nodes))
        force_setattr(self, "directed", check_arcs(self.nodes, self.directed))
        force_setattr(self, "undirected", check_pairs(self.nodes, self.undirected))
        both = {frozenset(arc) for arc in self.directed} & self.undirected
        if both:
            first, second = min(sorted(pair) for pair in both)
            raise GraphError(f"{len(both)} pairs are both directed and undirected, such as {first!r} and {second!r}")

    @classmethod
    def empty(cls, nodes: tuple[str, ...]) -> Cpdag:
        """Return the graph without edges."""
        return cls(nodes, frozenset(), frozenset())

    @classmethod
    def complete(cls, nodes: tuple[str, ...]) -> Cpdag:
        """Return the graph in which every pair is joined by an undirected edge."""
        return cls(nodes, frozenset(), frozenset(frozenset(pair) for pair in combinations(nodes, 2)))

    def adjacent(self, node: str) -> frozenset[str]:
        """Return the nodes joined to a node by an edge of either kind."""
        try:
            return self._near[node]
        except KeyError:
            raise GraphError(f"no node is called {node!r}; the graph has: {', '.join(self.nodes)}") from None

    def skeleton(self) -> frozenset[Pair]:
        """Return the adjacent pairs."""
        return self.undirected | {frozenset(arc) for arc in self.directed}

    def extension(self) -> Dag | None:
        """Return a DAG with the same skeleton, these arrows and no further unshielded collider, or None."""
        from dagveil.graphs.dag import Dag  # a Dag knows its Cpdag, so the import waits until both exist

        edges = find_extension(self.nodes, self.directed, self.undirected)
        return None if edges is None else Dag(self.nodes, edges)

    def is_extendable(self) -> bool:
        """Return whether some DAG has this skeleton, these arrows and no further unshielded collider."""
        return find_extension(self.nodes, self.directed, self.undirected) is not None

    def is_valid(self) -> bool:
        """Return whether this is the CPDAG of a Markov equivalence class, every arrow compelled and none missing."""
        dag = self.extension()
        return dag is not None and dag.cpdag() == self

    @cached_property
    def _near(self) -> dict[str, frozenset[str]]:
        return list_by_end(self.nodes, (ends for pair in self.skeleton() for ends in permutations(pair, 2)))


def find_extension(
    nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Pair]
) -> frozenset[Arc] | None:
    """Direct every undirected edge without a cycle and without a new unshielded collider.

    D. Dor and M. Tarsi, A simple algorithm to construct a consistent extension of a partially oriented graph, 1992:
    remove, again and again, a node that can be the last of an order. Ties are broken by the order of `nodes`.

    The answer is None when there is no such DAG.
    """
    return _peel(nodes, directed, undirected, tolerated=0)


def nearest_extension(nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Pair]) -> frozenset[Arc]:
    """Direct every undirected edge without a cycle, with new unshielded colliders only where there is no other way.

    The directed edges must be free of cycles. Where Dor and Tarsi's algorithm is stuck, the sink whose removal makes
    the fewest new colliders goes; so the answer is theirs whenever they have one.
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
