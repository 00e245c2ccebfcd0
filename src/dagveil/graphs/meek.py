"""Meek's orientation rules, to a fixed point."""

from __future__ import annotations

from collections.abc import Iterable

from dagveil.errors import GraphError
from dagveil.graphs.names import Arc, Pair, check_arcs, check_nodes, check_pairs


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
    if into[a] & ~near[b]:
        return True
    if out[a] & into[b]:
        return True
    sources = flat[a] & into[b]
    if any(sources & ~near[c] & ~(1 << c) for c in _bits(sources)):
        return True
    bridges = into[b] & near[a]
    return any(out[d] & bridges for d in _bits(flat[a] & ~near[b] & ~(1 << b)))


def _bits(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
