"""Directed acyclic graphs over named columns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from heapq import heappop, heappush
from itertools import combinations

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import GraphError
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.meek import close
from dagveil.graphs.names import Arc, Pair, check_arcs, check_nodes, list_by_end


class Dag(msgspec.Struct, frozen=True, dict=True):
    """A directed acyclic graph.

    Two graphs are equal when their edges and the order of their nodes are equal.

    Parameters
    ----------
    nodes : tuple of str
        Names of the nodes; their order breaks ties and means nothing else.
    edges : frozenset of (str, str)
        Pairs (parent, child).

    Examples
    --------
    >>> dag = Dag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}))
    >>> sorted(dag.parents("b"))
    ['a', 'c']
    >>> dag.colliders()
    frozenset({('a', 'b', 'c')})
    """

    nodes: tuple[str, ...]
    edges: frozenset[Arc]

    def __post_init__(self) -> None:
        force_setattr(self, "nodes", check_nodes(self.nodes))
        force_setattr(self, "edges", check_arcs(self.nodes, self.edges))
        if self._order is None:
            raise GraphError(
                f"the {len(self.edges)} edges over {len(self.nodes)} nodes contain a directed cycle; a Dag has none: "
                "remove or turn an edge of the cycle"
            )

    def parents(self, node: str) -> frozenset[str]:
        """Return the parents of a node."""
        return _look_up(self._parents, node)

    def children(self, node: str) -> frozenset[str]:
        """Return the children of a node."""
        return _look_up(self._children, node)

    def order(self) -> tuple[str, ...]:
        """Return a topological order: parents first, ties in the order of `nodes`."""
        return self._order or ()

    def skeleton(self) -> frozenset[Pair]:
        """Return the adjacent pairs."""
        return frozenset(frozenset(edge) for edge in self.edges)

    def colliders(self) -> frozenset[tuple[str, str, str]]:
        """Return the unshielded colliders a → m ← b as (a, m, b), with a before b in the alphabet."""
        return frozenset(
            (a, middle, b)
            for middle in self.nodes
            for a, b in combinations(sorted(self._parents[middle]), 2)
            if b not in self._parents[a] and a not in self._parents[b]
        )

    def cpdag(self) -> Cpdag:
        """Return the CPDAG of the Markov equivalence class.

        An edge is directed when every DAG with this skeleton and these unshielded colliders directs it the same way:
        the colliders' arrows, closed under Meek's rules.
        """
        arrows = frozenset(arc for a, middle, b in self.colliders() for arc in ((a, middle), (b, middle)))
        rest = frozenset(frozenset(edge) for edge in self.edges if edge not in arrows)
        return Cpdag(self.nodes, *close(self.nodes, arrows, rest))

    @cached_property
    def _parents(self) -> dict[str, frozenset[str]]:
        return list_by_end(self.nodes, ((child, parent) for parent, child in self.edges))

    @cached_property
    def _children(self) -> dict[str, frozenset[str]]:
        return list_by_end(self.nodes, self.edges)

    @cached_property
    def _order(self) -> tuple[str, ...] | None:
        return sort_topologically(self.nodes, self.edges)


def sort_topologically(nodes: tuple[str, ...], edges: Iterable[Arc]) -> tuple[str, ...] | None:
    """Return the nodes with parents first, ties in the given order, or None when there is a directed cycle."""
    children = list_by_end(nodes, edges)
    waiting = dict.fromkeys(nodes, 0)
    for others in children.values():
        for child in others:
            waiting[child] += 1
    place = {node: position for position, node in enumerate(nodes)}
    ready = [place[node] for node in nodes if waiting[node] == 0]  # in ascending order, so it is a heap
    order: list[str] = []
    while ready:
        node = nodes[heappop(ready)]
        order.append(node)
        for child in children[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heappush(ready, place[child])
    return tuple(order) if len(order) == len(nodes) else None


def _look_up(table: dict[str, frozenset[str]], node: str) -> frozenset[str]:
    try:
        return table[node]
    except KeyError:
        raise GraphError(f"no node is called {node!r}; the graph has {len(table)} nodes: {', '.join(table)}") from None
