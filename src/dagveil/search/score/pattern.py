"""Equivalence classes of DAGs as bit masks: the working form of a CPDAG inside the greedy search.

Node v is bit v. One machine word per node makes the questions that operators ask (is this set a clique, is every way
blocked) a handful of integer operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dagveil.graphs.cpdag import Cpdag


@dataclass(frozen=True, slots=True)
class Pattern:
    """A completed partially directed acyclic graph.

    Parameters
    ----------
    into
        Per node the mask of its parents.
    flat
        Per node the mask of its neighbours over undirected edges.
    out, near
        Per node its children, and all nodes that an edge joins it to; derived.
    """

    into: tuple[int, ...]
    flat: tuple[int, ...]
    out: tuple[int, ...] = field(init=False, compare=False)
    near: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        out = [0] * len(self.into)
        for head, mask in enumerate(self.into):
            for tail in bits(mask):
                out[tail] |= 1 << head
        object.__setattr__(self, "out", tuple(out))
        object.__setattr__(self, "near", tuple(a | b | c for a, b, c in zip(self.into, out, self.flat, strict=True)))

    @classmethod
    def empty(cls, size: int) -> Pattern:
        """Return the class of the DAG without edges."""
        return cls((0,) * size, (0,) * size)

    @classmethod
    def of_parents(cls, parents: Sequence[int]) -> Pattern:
        """Return the class of a DAG that is given by the parents of each node.

        Arrows of unshielded colliders are compelled, and so is what Meek's rules 1 to 3 derive from them.

        >>> Pattern.of_parents([0, 0b1, 0b10]).flat
        (2, 5, 2)
        >>> Pattern.of_parents([0, 0, 0b11]).into
        (0, 0, 3)
        """
        size = len(parents)
        near = list(parents)
        for head, mask in enumerate(parents):
            for tail in bits(mask):
                near[tail] |= 1 << head
        into, out = [0] * size, [0] * size
        loose: list[tuple[int, int]] = []
        for head, mask in enumerate(parents):
            for tail in bits(mask):
                if mask & ~near[tail] & ~(1 << tail):
                    into[head] |= 1 << tail
                    out[tail] |= 1 << head
                else:
                    loose.append((tail, head))
        changed = True
        while changed and loose:
            changed = False
            still = []
            for tail, head in loose:
                if into[tail] & ~near[head] or out[tail] & into[head] or _shielded(tail, head, into, out, near):
                    into[head] |= 1 << tail
                    out[tail] |= 1 << head
                    changed = True
                else:
                    still.append((tail, head))
            loose = still
        flat = [0] * size
        for tail, head in loose:
            flat[tail] |= 1 << head
            flat[head] |= 1 << tail
        return cls(tuple(into), tuple(flat))

    def is_clique(self, mask: int) -> bool:
        """Tell whether any two nodes of a set are adjacent."""
        return all(mask & ~self.near[v] & ~(1 << v) == 0 for v in bits(mask))

    def reaches(self, start: int, goal: int, avoiding: int, skipped: int = 0) -> bool:
        """Tell whether a way along arrows and undirected edges leads from one node to another.

        Parameters
        ----------
        start, goal
            Its ends.
        avoiding
            Nodes that it may not touch.
        skipped
            Nodes that it may not touch in its first step.
        """
        target = 1 << goal
        frontier = (self.out[start] | self.flat[start]) & ~avoiding & ~skipped
        seen = frontier | 1 << start | avoiding
        while frontier:
            if frontier & target:
                return True
            node = (frontier & -frontier).bit_length() - 1
            frontier &= frontier - 1
            new = (self.out[node] | self.flat[node]) & ~seen
            seen |= new
            frontier |= new
        return False

    def cpdag(self, names: tuple[str, ...]) -> Cpdag:
        """Return the graph with names."""
        return Cpdag(
            names,
            frozenset((names[tail], names[head]) for head, mask in enumerate(self.into) for tail in bits(mask)),
            frozenset(frozenset((names[a], names[b])) for a, mask in enumerate(self.flat) for b in bits(mask) if a < b),
        )


def find_parents(into: Sequence[int], flat: Sequence[int]) -> list[int] | None:
    """Direct undirected edges without a cycle and without a new unshielded collider, by Dor and Tarsi's algorithm.

    Returns
    -------
    list of int or None
        The parents of each node, or None where no such DAG exists.

    >>> find_parents([0, 0b1, 0], [0, 0b100, 0b10])
    [0, 1, 2]
    """
    size = len(into)
    parents, undirected = list(into), list(flat)
    out = [0] * size
    for head, mask in enumerate(into):
        for tail in bits(mask):
            out[tail] |= 1 << head
    near = [a | b | c for a, b, c in zip(into, out, flat, strict=True)]
    left = (1 << size) - 1
    while left:
        before = left
        for v in bits(left):
            if out[v] & left:
                continue
            around = near[v] & left
            if any(around & ~near[w] & ~(1 << w) for w in bits(undirected[v])):
                continue
            parents[v] |= undirected[v]
            for w in bits(undirected[v]):
                undirected[w] &= ~(1 << v)
            undirected[v] = 0
            left &= ~(1 << v)
        if left == before:
            return None
    return parents


def bits(mask: int) -> Iterator[int]:
    """Yield the members of a set, the smallest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _shielded(tail: int, head: int, into: list[int], out: list[int], near: list[int]) -> bool:
    """Meek's third rule: tail — c → head and tail — d → head, with c and d not adjacent."""
    sources = near[tail] & ~into[tail] & ~out[tail] & into[head]
    return any(sources & ~near[c] & ~(1 << c) for c in bits(sources))
