"""Names of nodes, and pairs of them: the checks that every graph makes on entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from dagveil.errors import GraphError

Arc: TypeAlias = tuple[str, str]  # a directed edge (tail, head): cause first, effect second
Pair: TypeAlias = frozenset[str]  # an unordered pair of two different nodes


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
    checked = frozenset(_as_two(arc) for arc in arcs)
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


def _as_two(arc: Arc) -> Arc:
    if isinstance(arc, str) or len(tuple(arc)) != 2:
        raise GraphError(f"a directed edge is a pair (tail, head); one of the edges given is not: {arc!r}")
    tail, head = arc
    return (tail, head)


def _check_ends(known: frozenset[str], first: str, second: str) -> None:
    for name in (first, second):
        if name not in known:
            raise GraphError(f"an edge names the unknown node {name!r}; the graph has: {', '.join(sorted(known))}")
    if first == second:
        raise GraphError(f"node {first!r} cannot be joined to itself")
