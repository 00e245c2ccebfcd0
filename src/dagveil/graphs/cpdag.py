"""DAGs, and completed partially directed acyclic graphs: what data alone can say about a DAG. With Meek’s rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import combinations, permutations
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr

from dagveil.errors import GraphError

Arc: TypeAlias = tuple[str, str]  # a directed edge (tail, head): cause first, effect second
Pair: TypeAlias = frozenset[str]  # an unordered pair of two different nodes
Node = TypeVar("Node")


def check_nodes(nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple; refuse duplicates and things that are not strings."""
    if isinstance(nodes, str):
        raise GraphError(f"nodes must be a tuple of names, not the single string {nodes!r}")
    names = tuple(nodes)
    for name in names:
        if not isinstance(name, str):
            raise GraphError(f"node names must be strings, not {type(name).__name__}")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise GraphError(f"{len(twice)} node names occur more than once: {', '.join(twice)}; names must be unique")
    return names


def check_arcs(nodes: Iterable[str], arcs: Iterable[Arc]) -> frozenset[Arc]:
    """Return the arcs as a frozenset; refuse self-loops, unknown names, and an arc together with its reverse."""
    known = frozenset(nodes)
    listed = list(arcs)
    odd = next((arc for arc in listed if isinstance(arc, str) or len(tuple(arc)) != 2), None)
    if odd is not None:
        raise GraphError(f"a directed edge is a pair (tail, head); one of the edges given is not: {odd!r}")
    checked = frozenset((tail, head) for tail, head in listed)
    for tail, head in sorted(checked):
        _check_ends(known, tail, head)
        if (head, tail) in checked:
            raise GraphError(f"both {tail!r} → {head!r} and its reverse are given; keep one of them")
    return checked


def check_pairs(nodes: Iterable[str], pairs: Iterable[Iterable[str]]) -> frozenset[Pair]:
    """Return the unordered pairs as a frozenset; refuse self-loops and unknown names."""
    known = frozenset(nodes)
    checked = frozenset(frozenset(pair) for pair in pairs)
    for pair in checked:
        if len(pair) != 2:
            raise GraphError(f"an undirected edge joins 2 different nodes, not {len(pair)}: {sorted(pair)}")
        _check_ends(known, *sorted(pair))
    return checked


def list_by_end(nodes: Iterable[str], arcs: Iterable[Arc]) -> dict[str, frozenset[str]]:
    """Return, for each node, the second ends of the arcs that start with it."""
    table: dict[str, set[str]] = {node: set() for node in nodes}
    for first, second in arcs:
        table[first].add(second)
    return {node: frozenset(others) for node, others in table.items()}


def _check_ends(known: frozenset[str], first: str, second: str) -> None:
    for name in (first, second):
        if name not in known:
            raise GraphError(f"an edge names the unknown node {name!r}; the graph has: {', '.join(sorted(known))}")
    if first == second:
        raise GraphError(f"node {first!r} cannot be joined to itself")


class Cpdag(msgspec.Struct, frozen=True, dict=True):
    """A graph with directed and undirected edges.

    The constructor checks names and pairs only, because a noisy search may hand over a graph that no DAG has;
    `is_valid` says whether it is truly the CPDAG of a Markov equivalence class, and `is_extendable` whether it has
    a DAG at all. With background knowledge, an extendable graph closed under Meek's rules is an MPDAG.

    - `directed`: pairs (tail, head).
    - `undirected`: pairs without direction. No pair is both directed and undirected.

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
        return look_up(self._near, node)

    def skeleton(self) -> frozenset[Pair]:
        """Return the adjacent pairs."""
        return self.undirected | {frozenset(arc) for arc in self.directed}

    def extension(self) -> Dag | None:
        """Return a DAG with the same skeleton, these arrows and no further unshielded collider, or None."""
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


def close(
    nodes: tuple[str, ...], directed: Iterable[Arc], undirected: Iterable[Iterable[str]]
) -> tuple[frozenset[Arc], frozenset[Pair]]:
    """Apply Meek's rules 1 to 4 until none applies.

    An undirected a — b becomes a → b when the other direction would make a new unshielded collider or a cycle
    (C. Meek, Causal inference and causal explanation with background knowledge, UAI 1995):

    1. c → a, and c is not adjacent to b;
    2. a → c → b;
    3. a — c → b and a — d → b, and c is not adjacent to d;
    4. a — d → c → b, a is adjacent to c, and d is not adjacent to b.

    The rules work in rounds. Each round reads the graph as it stands and turns every edge that a rule turns, so the
    result depends neither on the order of the nodes nor on that of the edges. When the input contradicts itself, so
    that one round turns an edge both ways, the edge stays undirected.
    """
    names = check_nodes(nodes)
    arcs, pairs = check_arcs(names, directed), check_pairs(names, undirected)
    both = [pair for pair in pairs if any(frozenset(arc) == pair for arc in arcs)]
    if both:
        raise GraphError(f"{len(both)} pairs are both directed and undirected, such as {sorted(both[0])}; choose one")
    place = {name: position for position, name in enumerate(names)}
    # Sets of nodes are the bits of an integer: each rule is then a few bitwise operations.
    into, out, flat = [0] * len(names), [0] * len(names), [0] * len(names)
    for tail, head in arcs:
        into[place[head]] |= 1 << place[tail]
        out[place[tail]] |= 1 << place[head]
    open_pairs: set[tuple[int, int]] = set()
    for pair in pairs:
        a, b = sorted(place[name] for name in pair)
        flat[a] |= 1 << b
        flat[b] |= 1 << a
        open_pairs.add((a, b))
    near = [into[v] | out[v] | flat[v] for v in range(len(names))]

    turned: set[Arc] = set(arcs)
    while True:
        found: list[tuple[int, int]] = []
        for a, b in open_pairs:
            forward = _must_point(a, b, into, out, flat, near)
            if forward != _must_point(b, a, into, out, flat, near):
                found.append((a, b) if forward else (b, a))
        if not found:
            break
        for a, b in found:
            open_pairs.discard((min(a, b), max(a, b)))
            flat[a] &= ~(1 << b)
            flat[b] &= ~(1 << a)
            out[a] |= 1 << b
            into[b] |= 1 << a
            turned.add((names[a], names[b]))
    return frozenset(turned), frozenset(frozenset((names[a], names[b])) for a, b in open_pairs)


def _must_point(a: int, b: int, into: list[int], out: list[int], flat: list[int], near: list[int]) -> bool:
    """Return whether one of the four rules turns the undirected a — b into a → b."""
    if into[a] & ~near[b] or out[a] & into[b]:
        return True
    sources = flat[a] & into[b]
    if any(sources & ~near[c] & ~(1 << c) for c in list_bits(sources)):
        return True
    bridges = into[b] & near[a]
    return any(out[d] & bridges for d in list_bits(flat[a] & ~near[b] & ~(1 << b)))


def list_bits(mask: int) -> list[int]:
    """Return the members of a set of nodes that is kept as the bits of a number, the smallest first."""
    bits = []
    while mask:
        bits.append((mask & -mask).bit_length() - 1)
        mask &= mask - 1
    return bits


def reach(starts: Iterable[Node], steps: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Return the nodes that steps lead to, those at the start included."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        more = set(steps(waiting.pop())) - found
        found |= more
        waiting += more
    return found


def follow(steps: Sequence[int], start: int, allowed: int = -1, wanted: int = 0) -> int:
    """Return the set of nodes that steps lead to from a set, itself included; all sets are bits of a number.

    - `steps`: per node the set of nodes that one step leads to.
    - `allowed`: nodes that may be stepped on.
    - `wanted`: the walk may end as soon as it has found all of these.
    """
    found = frontier = start
    while frontier and (not wanted or wanted & ~found):
        node = (frontier & -frontier).bit_length() - 1
        frontier &= frontier - 1
        new = steps[node] & allowed & ~found
        found |= new
        frontier |= new
    return found


class Dag(msgspec.Struct, frozen=True, dict=True):
    """A directed acyclic graph.

    Two graphs are equal when their edges and the order of their nodes are equal.

    - `nodes`: names; their order breaks ties and means nothing else.
    - `edges`: pairs (parent, child).

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
        return look_up(self._parents, node)

    def children(self, node: str) -> frozenset[str]:
        """Return the children of a node."""
        return look_up(self._children, node)

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


def look_up(table: dict[str, frozenset[str]], node: str) -> frozenset[str]:
    """Return what a table has for a node, or say which nodes there are."""
    try:
        return table[node]
    except KeyError:
        raise GraphError(f"no node is called {node!r}; the graph has {len(table)} nodes: {', '.join(table)}") from None
