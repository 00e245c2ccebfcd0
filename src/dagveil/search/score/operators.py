"""Steps between equivalence classes: add, take away or turn one edge of some member, and go to that member's class.

Conditions: D. M. Chickering, Optimal structure identification with greedy search, JMLR 2002, for adding and taking
away; A. Hauser and P. Bühlmann, Characterization and greedy learning of interventional Markov equivalence classes,
JMLR 2012, for turning. In each of them x is to become, or to cease to be, a parent of y, and `clique` holds the
neighbours of y over undirected edges that are parents of y in that member.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dagveil.graphs.cpdag import Cpdag, follow, list_bits


@dataclass(frozen=True, slots=True)
class Pattern:
    """A completed partially directed acyclic graph."""

    into: tuple[int, ...]  # per node the mask of its parents
    flat: tuple[int, ...]  # per node the mask of its neighbours over undirected edges
    # per node its children, and all nodes that an edge joins it to; derived
    out: tuple[int, ...] = field(init=False, compare=False)
    near: tuple[int, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        out = list_children(self.into)
        object.__setattr__(self, "out", tuple(out))
        object.__setattr__(self, "near", tuple(a | b | c for a, b, c in zip(self.into, out, self.flat, strict=True)))

    @classmethod
    def of_parents(cls, parents: Sequence[int]) -> Pattern:
        """Return the class of a DAG that is given by the parents of each node.

        Arrows of unshielded colliders are compelled, and so is what Meek's rules 1 to 3 derive from them.
        """
        size = len(parents)
        near = [a | b for a, b in zip(parents, list_children(parents), strict=True)]
        into, out = [0] * size, [0] * size
        loose: list[tuple[int, int]] = []
        for head, mask in enumerate(parents):
            for tail in list_bits(mask):
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

    def reaches(self, start: int, goal: int, avoiding: int, skipped: int = 0) -> bool:
        """Tell whether arrows and undirected edges lead there, never through `avoiding`, nor first to `skipped`."""
        steps = [a | b for a, b in zip(self.out, self.flat, strict=True)]
        first = steps[start] & ~avoiding & ~skipped
        return bool(follow(steps, first, ~(avoiding | 1 << start), wanted=1 << goal) >> goal & 1)

    def cpdag(self, names: tuple[str, ...]) -> Cpdag:
        """Return the graph with names."""
        into, flat = (
            [(v, w) for v, mask in enumerate(masks) for w in list_bits(mask)] for masks in (self.into, self.flat)
        )
        lines = frozenset(frozenset((names[a], names[b])) for a, b in flat if a < b)
        return Cpdag(names, frozenset((names[tail], names[head]) for head, tail in into), lines)


def list_children(into: Sequence[int]) -> list[int]:
    """Return per node the mask of its children, given the masks of parents."""
    out = [0] * len(into)
    for head, mask in enumerate(into):
        for tail in list_bits(mask):
            out[tail] |= 1 << head
    return out


def find_parents(into: Sequence[int], flat: Sequence[int]) -> list[int] | None:
    """Direct undirected edges without a cycle and without a new unshielded collider, by Dor and Tarsi's algorithm.

    Returns the parents of each node, or None where no such DAG exists.
    """
    parents, undirected, out = list(into), list(flat), list_children(into)
    near = [a | b | c for a, b, c in zip(into, out, flat, strict=True)]
    left = (1 << len(into)) - 1
    while left:
        before = left
        for v in list_bits(left):
            if out[v] & left:
                continue
            around = near[v] & left
            if any(around & ~near[w] & ~(1 << w) for w in list_bits(undirected[v])):
                continue
            parents[v] |= undirected[v]
            for w in list_bits(undirected[v]):
                undirected[w] &= ~(1 << v)
            undirected[v] = 0
            left &= ~(1 << v)
        if left == before:
            return None
    return parents


def _shielded(tail: int, head: int, into: list[int], out: list[int], near: list[int]) -> bool:
    """Meek's third rule: tail — c → head and tail — d → head, with c and d not adjacent."""
    sources = near[tail] & ~into[tail] & ~out[tail] & into[head]
    return any(sources & ~near[c] & ~(1 << c) for c in list_bits(sources))


Family = tuple[int, int, int]  # two nodes that an edge joins, and the mask of the parents that its head has besides
Exchange = tuple[int, int, int, int]
"""Three nodes x, y and z, and a mask K: by how much z beside K raises what x and y are worth to each other."""


class Kind(enum.Enum):
    """What a step does to an edge."""

    INSERT = "insert"
    DELETE = "delete"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class Operator:
    """One step."""

    kind: Kind
    x: int  # the arrow x → y that comes (or, for DELETE, goes)
    y: int
    clique: int  # mask of neighbours of y that point at y in the member which the step changes

    def family(self, pattern: Pattern) -> Family:
        """Return the family whose worth decides: the one that comes, or for DELETE the one that goes."""
        return self.x, self.y, (self.clique | pattern.into[self.y]) & ~(1 << self.x)

    def base(self, pattern: Pattern) -> int:
        """Return the parents beside which x and y are compared before exchanges: for a turn those that x had."""
        x, y = self.x, self.y
        if self.kind is not Kind.TURN:
            return (self.clique & pattern.near[x] | pattern.into[y]) & ~(1 << x)
        # of the undirected edges at x, those from the clique came first: none of them does if y → x is compelled
        first = self.clique & pattern.flat[x] if pattern.flat[y] >> x & 1 else 0
        return (pattern.into[x] | first) & ~(1 << y)

    def exchanges(self, pattern: Pattern) -> list[tuple[int, Exchange]]:
        """Return, with signs, what leads from x and y beside `base` to x and y beside the parents of `family`.

        From what the two sets share, each further member z changes the worth of x and y by an exchange of the three.
        """
        after, before = self.family(pattern)[2], self.base(pattern)
        found = []
        for sign, extra in ((1, after & ~before), (-1, before & ~after)):
            held = after & before
            for z in list_bits(extra):
                found.append((sign, (self.x, self.y, z, held)))
                held |= 1 << z
        return found

    def is_open(self, pattern: Pattern) -> bool:
        """Tell whether no cycle would close: the one condition that hangs on the whole graph."""
        x, y = self.x, self.y
        if self.kind is Kind.INSERT:
            return not pattern.reaches(y, x, self.clique)
        if self.kind is Kind.TURN and not pattern.flat[y] >> x & 1:
            return not pattern.reaches(y, x, self.clique | pattern.flat[x], skipped=1 << x)
        return True

    def apply(self, pattern: Pattern) -> Pattern | None:
        """Return the class that the step leads to, or None where no member can take it."""
        x, y = self.x, self.y
        into, flat = list(pattern.into), list(pattern.flat)
        if self.kind is Kind.INSERT:
            into[y] |= 1 << x
            _direct(into, flat, self.clique, y)
        elif self.kind is Kind.DELETE:
            common = flat[y] & pattern.near[x]
            into[y] &= ~(1 << x)
            flat[y] &= ~(1 << x)
            flat[x] &= ~(1 << y)
            for h in list_bits(common & ~self.clique):
                _direct(into, flat, 1 << y & flat[h], h)
                _direct(into, flat, 1 << x & flat[h], h)
        else:
            first = self.clique & flat[x] if flat[y] >> x & 1 else 0
            for v in (x, y):
                flat[v] &= ~(1 << x | 1 << y)
                into[v] &= ~(1 << x | 1 << y)
            into[y] |= 1 << x
            _direct(into, flat, self.clique, y)
            _direct(into, flat, first, x)
            for v in (x, y):
                for w in list_bits(flat[v]):
                    _direct(into, flat, 1 << v, w)
        parents = find_parents(into, flat)
        return None if parents is None else Pattern.of_parents(parents)


def insert_cliques(pattern: Pattern, x: int, y: int, most_parents: int) -> Iterator[int]:
    """List the cliques of the ways to add x → y, up to the condition on the whole graph."""
    near_x, flat_y = pattern.near[x], pattern.flat[y]
    room = most_parents - 1 - pattern.into[y].bit_count()
    return _cliques(pattern, flat_y & near_x, flat_y & ~near_x & ~(1 << x), room)


def list_deletes(pattern: Pattern, x: int, y: int) -> Iterator[Operator]:
    """List the ways to take x → y or x — y away."""
    common = pattern.flat[y] & pattern.near[x]
    for clique in _cliques(pattern, 0, common, common.bit_count()):
        yield Operator(Kind.DELETE, x, y, clique)


def list_turns(pattern: Pattern, x: int, y: int, most_parents: int) -> Iterator[Operator]:
    """List the ways to turn y → x or y — x into x → y, up to the condition on the whole graph."""
    flat_y = pattern.flat[y] & ~(1 << x)
    room = most_parents - 1 - pattern.into[y].bit_count()
    if pattern.flat[y] >> x & 1:
        common = flat_y & pattern.flat[x]
        for clique in _cliques(pattern, 0, flat_y, room):
            # without a member that is not next to x the result would be equivalent; common members must lie between
            # those and the rest of the common ones
            beyond = follow(pattern.flat, clique & ~common, flat_y & ~(clique & common), common & ~clique)
            if clique & ~common and not beyond & common & ~clique:
                yield Operator(Kind.TURN, x, y, clique)
    elif pattern.into[x] >> y & 1:
        common = flat_y & pattern.near[x]
        for clique in _cliques(pattern, common, flat_y & ~common, room):
            yield Operator(Kind.TURN, x, y, clique)


def _cliques(pattern: Pattern, held: int, choice: int, room: int) -> Iterator[int]:
    """Yield the cliques that contain `held` and otherwise members of `choice`, with at most `room` members."""
    if held.bit_count() > room or any(held & ~pattern.near[v] & ~(1 << v) for v in list_bits(held)):
        return
    for v in list_bits(held):
        choice &= pattern.near[v]
    waiting = [(held, choice)]
    while waiting:
        clique, more = waiting.pop()
        yield clique
        if clique.bit_count() < room:
            # each further member comes after the ones before it: no clique is listed twice
            waiting.extend((clique | 1 << v, more & pattern.near[v] & -(2 << v)) for v in list_bits(more))


def _direct(into: list[int], flat: list[int], tails: int, head: int) -> None:
    """Turn undirected edges from these nodes into arrows at `head`."""
    for tail in list_bits(tails & flat[head]):
        into[head] |= 1 << tail
        flat[head] &= ~(1 << tail)
        flat[tail] &= ~(1 << head)
