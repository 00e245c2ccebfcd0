"""Arrows by evidence: the graph that agrees best with what each unshielded triple says of a collider.

For an unshielded triple x − z − y let T_S be the statistic of (x, y, given S). If z is a collider, some set without z
makes T_S small; if not, some set with z does. E = log mean exp(−T_S/2) over sets without z, minus the same over sets
with z, weighs the two. Over all acyclic orientations of the skeleton that knowledge allows, the sum of E over
colliders is climbed; the answer is the CPDAG of the best one, so it is valid by construction and no conflict rule is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.dag import Dag
from dagveil.graphs.extension import nearest_extension
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.skeleton import Skeleton

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ArrowSettings:
    """Constants of the climb.

    Parameters
    ----------
    largest_evidence
        Evidence of one triple is clipped here: no single triple outweighs everything else.
    restarts
        Random starts besides the two greedy ones.
    """

    largest_evidence: float = 10.0
    restarts: int = 10


def orient_by_evidence(
    evidence: Independence, skeleton: Skeleton, settings: ArrowSettings, knowledge: Knowledge
) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that agrees best with the evidence on colliders."""
    names = evidence.columns
    weights = weigh_colliders(evidence, skeleton, settings)
    climb = _Climb(names, skeleton.adjacency, weights, knowledge)
    edges = climb.best(settings.restarts)
    found = Dag(names, frozenset((names[a], names[b]) for a, b in edges)).cpdag()
    return found if knowledge == Knowledge.none() else knowledge.orient(found)


def weigh_colliders(evidence: Independence, skeleton: Skeleton, settings: ArrowSettings) -> dict[Triple, float]:
    """Return E for each unshielded triple (x, z, y) with x < y; positive speaks for a collider at z."""
    neighbours = [set(np.flatnonzero(row).tolist()) for row in skeleton.adjacency]
    triples = list(unshielded(neighbours))
    sets = [sorted(_sets(neighbours, x, z, y)) for x, z, y in triples]
    values = -_statistics(
        evidence, [(x, y, given) for (x, _, y), mine in zip(triples, sets, strict=True) for given in mine]
    )
    weights: dict[Triple, float] = {}
    start = 0
    for triple, mine in zip(triples, sets, strict=True):
        halves = values[start : start + len(mine)] / 2
        start += len(mine)
        with_z = np.array([triple[1] in given for given in mine])
        known = np.isfinite(halves)
        without, within = halves[known & ~with_z], halves[known & with_z]
        if len(without) and len(within):
            balance = _log_mean(without) - _log_mean(within)
            weights[triple] = float(np.clip(balance, -settings.largest_evidence, settings.largest_evidence))
        else:
            weights[triple] = 0.0
    return weights


def unshielded(neighbours: list[set[int]]) -> Iterator[Triple]:
    """Yield x − z − y with x < y and no edge between x and y."""
    for z, near in enumerate(neighbours):
        for x, y in combinations(sorted(near), 2):
            if y not in neighbours[x]:
                yield x, z, y


def _sets(neighbours: list[set[int]], x: int, z: int, y: int) -> set[tuple[int, ...]]:
    """Conditioning sets without z up to size one, and with z up to size two, inside a neighbourhood."""
    others = (neighbours[x] | neighbours[y]) - {x, y, z}
    found: set[tuple[int, ...]] = {(), (z,)}
    for w in others:
        found.add((w,))
        found.add((min(w, z), max(w, z)))
    return found


def _statistics(evidence: Independence, questions: list[tuple[int, int, tuple[int, ...]]]) -> NDArray[np.float64]:
    """Answer questions of mixed order; NaN where the evidence has no answer."""
    values = np.full(len(questions), np.nan)
    # the same question may belong to several triples
    by_order: dict[int, dict[tuple[int, int, tuple[int, ...]], list[int]]] = {}
    for row, question in enumerate(questions):
        by_order.setdefault(len(question[2]), {}).setdefault(question, []).append(row)
    for rows_of in by_order.values():
        batch = Questions.of(list(rows_of))
        known = evidence.answers(batch)
        statistic = np.full(len(batch), np.nan)
        if known.any():
            statistic[known] = evidence.test(batch.select(known)).statistic
        for rows, value in zip(rows_of.values(), statistic.tolist(), strict=True):
            values[rows] = value
    return values


def _log_mean(values: NDArray[np.float64]) -> float:
    top = values.max()
    return float(top + np.log(np.exp(values - top).mean()))


class _Climb:
    """Local search over acyclic orientations, with parents as bit masks."""

    def __init__(
        self, names: tuple[str, ...], adjacency: NDArray[np.bool_], weights: dict[Triple, float], knowledge: Knowledge
    ) -> None:
        self._d = len(names)
        self._names = names
        self._place = {name: i for i, name in enumerate(names)}
        self._edges = [(int(a), int(b)) for a, b in zip(*np.nonzero(np.triu(adjacency)), strict=True)]
        self._triples = list(weights.items())
        self._weight: list[dict[tuple[int, int], float]] = [{} for _ in range(self._d)]
        for (x, z, y), weight in weights.items():
            self._weight[z][x, y] = self._weight[z][y, x] = weight
        self._partners: list[dict[int, int]] = [{} for _ in range(self._d)]
        for x, z, y in weights:
            self._partners[z][x] = self._partners[z].get(x, 0) | 1 << y
            self._partners[z][y] = self._partners[z].get(y, 0) | 1 << x
        self._fixed: set[tuple[int, int]] = set()
        for a, b in self._edges:
            forward, backward = knowledge.allows(names[a], names[b]), knowledge.allows(names[b], names[a])
            if forward != backward:
                self._fixed.add((a, b) if forward else (b, a))

    def best(self, restarts: int) -> list[tuple[int, int]]:
        """Return the best orientation found, as (parent, child)."""
        rng = np.random.default_rng(0)  # search only: nothing private hangs on it
        best_score, best_parents = -np.inf, [0] * self._d
        for start in range(restarts + 2):
            parents = (self._collider_start, self._pull_start)[start]() if start < 2 else self._random_start(rng)
            score = self._ascend(parents)
            if score > best_score + 1e-9:
                best_score, best_parents = score, parents
        return [(a, b) for b in range(self._d) for a in _bits(best_parents[b])]

    def _order_start(self, rank: list[float]) -> list[int]:
        """Orient every edge along an order that respects the forced directions."""
        order = self._topological(rank)
        place = {node: i for i, node in enumerate(order)}
        parents = [0] * self._d
        for a, b in self._edges:
            first, second = (a, b) if place[a] < place[b] else (b, a)
            parents[second] |= 1 << first
        return parents

    def _topological(self, rank: list[float]) -> list[int]:
        if not self._fixed:
            return sorted(range(self._d), key=rank.__getitem__)
        waiting = {node: sum(1 for _, child in self._fixed if child == node) for node in range(self._d)}
        order: list[int] = []
        while waiting:
            free = [node for node, count in waiting.items() if count == 0]
            node = min(free, key=lambda v: rank[v])
            order.append(node)
            del waiting[node]
            for parent, child in self._fixed:
                if parent == node:
                    waiting[child] -= 1
        return order

    def _random_start(self, rng: np.random.Generator) -> list[int]:
        return self._order_start(rng.permutation(self._d).tolist())

    def _collider_start(self) -> list[int]:
        """Start from all colliders that the evidence speaks for, the strongest first, as long as no cycle closes."""
        arrows = set(self._fixed)
        above = [0] * self._d
        for cause, effect in arrows:
            above[effect] |= 1 << cause
        for (x, z, y), weight in sorted(self._triples, key=lambda item: -item[1]):
            new = {(x, z), (y, z)} - arrows
            opposed = any((effect, cause) in arrows for cause, effect in new)
            if weight > 0 and not opposed and not any(self._reaches(z, cause, above) for cause, _ in new):
                arrows |= new
                above[z] |= 1 << x | 1 << y
        names = self._names
        pairs = {frozenset((names[a], names[b])) for a, b in self._edges}
        named = {(names[cause], names[effect]) for cause, effect in arrows}
        loose = pairs - {frozenset(arc) for arc in named}
        parents = [0] * self._d
        for first, second in nearest_extension(names, named, loose):
            parents[self._place[second]] |= 1 << self._place[first]
        return parents

    def _pull_start(self) -> list[int]:
        """Start where nodes that look like colliders come late."""
        pull = [0.0] * self._d
        for (_, z, _), weight in self._triples:
            pull[z] += max(weight, 0.0)
        return self._order_start(pull)

    def _ascend(self, parents: list[int]) -> float:
        """Climb in place until no move helps; return the score."""
        improved = True
        while improved:
            improved = False
            for a, b in self._edges:
                if self._try([(a, b) if parents[b] >> a & 1 else (b, a)], parents):
                    improved = True
            for (x, z, y), weight in self._triples:
                if weight > 0:
                    turned = [(z, v) for v in (x, y) if parents[v] >> z & 1]
                    if len(turned) == 2 and self._try(turned, parents):
                        improved = True
        return sum(w for (x, z, y), w in self._triples if parents[z] >> x & 1 and parents[z] >> y & 1)

    def _try(self, arcs: list[tuple[int, int]], parents: list[int]) -> bool:
        """Reverse these arcs if that raises the score and closes no cycle."""
        if any(arc in self._fixed for arc in arcs):
            return False
        gain = 0.0
        done: list[tuple[int, int]] = []
        for a, b in arcs:
            gain -= self._share(b, a, parents[b] & ~(1 << a))
            parents[b] &= ~(1 << a)
            gain += self._share(a, b, parents[a])
            parents[a] |= 1 << b
            done.append((a, b))
        if gain > 1e-9 and not any(self._reaches(a, b, parents) for a, b in done):
            return True
        for a, b in reversed(done):
            parents[a] &= ~(1 << b)
            parents[b] |= 1 << a
        return False

    def _share(self, z: int, x: int, others: int) -> float:
        """Weight of the colliders at z that x forms with these other parents."""
        mask = self._partners[z].get(x, 0) & others
        total = 0.0
        while mask:
            total += self._weight[z][x, (mask & -mask).bit_length() - 1]
            mask &= mask - 1
        return total

    def _reaches(self, start: int, goal: int, parents: list[int]) -> bool:
        """Tell whether `goal` has `start` among its ancestors; with the arc goal → start that closes a cycle."""
        seen = frontier = parents[goal]
        target = 1 << start
        while frontier and not seen & target:
            node = (frontier & -frontier).bit_length() - 1
            frontier &= frontier - 1
            new = parents[node] & ~seen
            seen |= new
            frontier |= new
        return bool(seen & target)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
