"""Arrows by evidence: the graph that agrees best with what each unshielded triple says of a collider.

For an unshielded triple x − z − y let T_S be the statistic of (x, y, given S). If z is a collider, some set without z
makes T_S small; if not, some set with z does. E = log mean exp(−T_S/2) over sets without z, minus the same over sets
with z, weighs the two. Over all acyclic orientations of the skeleton that knowledge allows, the sum of E over
colliders is climbed; the answer is the CPDAG of the best one, so it is valid by construction and no conflict rule is
needed.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.tables import group
from dagveil.graphs import cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.skeleton import Skeleton, list_neighbours


def orient_by_separating_sets(columns: tuple[str, ...], skeleton: Skeleton, knowledge: Knowledge) -> cpdag.Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that the separating sets of a skeleton speak for."""
    neighbours = [set(np.flatnonzero(row).tolist()) for row in skeleton.adjacency]
    colliders = [
        (skeleton.p_values.get((x, y), 0.0), x, z, y)
        for x, z, y in unshielded(neighbours)
        if (x, y) in skeleton.separators and z not in skeleton.separators[x, y]
    ]
    colliders.sort(key=lambda c: (-c[0], sorted((columns[c[1]], columns[c[3]])), columns[c[2]]))
    pairs = {frozenset((columns[x], columns[y])) for x, y in skeleton.edges()}
    found = [((columns[x], columns[z]), (columns[y], columns[z])) for _, x, z, y in colliders]
    arrows = {arc for both in found for arc in both}
    opposed = any((effect, cause) in arrows for cause, effect in arrows)
    if opposed or cpdag.find_extension(columns, arrows, _without(pairs, arrows)) is None:
        arrows = _strongest_first(columns, found)
    dag = cpdag.Dag(columns, cpdag.nearest_extension(columns, arrows, _without(pairs, arrows)))
    return knowledge.orient(dag.cpdag())


def _strongest_first(columns: tuple[str, ...], colliders: list[tuple[cpdag.Arc, cpdag.Arc]]) -> set[cpdag.Arc]:
    arrows: set[cpdag.Arc] = set()
    for both in colliders:
        trial = arrows | set(both)
        if not any((effect, cause) in trial for cause, effect in both) and cpdag.sort_topologically(columns, trial):
            arrows = trial
    return arrows


def _without(pairs: set[cpdag.Pair], arrows: set[cpdag.Arc]) -> set[cpdag.Pair]:
    return pairs - {frozenset(arc) for arc in arrows}


Triple = tuple[int, int, int]

LARGEST_EVIDENCE = 10.0  # evidence of one triple is clipped here: no single triple outweighs everything else
RESTARTS = 10  # random starts of the climb besides the two greedy ones


def orient_by_evidence(
    evidence: Independence, skeleton: Skeleton, knowledge: Knowledge, restarts: int = RESTARTS
) -> cpdag.Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that agrees best with the evidence on colliders."""
    names = evidence.columns
    edges = OrientationClimb(names, skeleton, weigh_colliders(evidence, skeleton), knowledge).best(restarts)
    found = cpdag.Dag(names, frozenset((names[a], names[b]) for a, b in edges)).cpdag()
    return found if knowledge == Knowledge.none() else knowledge.orient(found)


def weigh_colliders(
    evidence: Independence, skeleton: Skeleton, *, with_separators: bool = False
) -> dict[Triple, float]:
    """Return E for each unshielded triple (x, z, y) with x < y; positive speaks for a collider at z.

    - `with_separators`: the set that removed the pair speaks too, with z and without it, however large it is.
    """
    neighbours = [set(near) for near in list_neighbours(skeleton.adjacency)]
    triples = list(unshielded(neighbours))
    if not triples:
        return {}
    questions: list[tuple[int, int, tuple[int, ...]]] = []
    starts: list[int] = []  # where the sets of a triple without z begin, and then those with z
    for x, z, y in triples:
        separator = set(skeleton.separators.get((x, y), ())) if with_separators else set()
        others = sorted((neighbours[x] | neighbours[y]) - {x, y, z})
        for held in ((), (z,)):
            # sets without z up to size one, and with z up to size two, inside a neighbourhood
            sets = [held, *(tuple(sorted((w, *held))) for w in others), tuple(sorted(separator - {z} | set(held)))]
            starts.append(len(questions))
            questions.extend((x, y, given) for given in dict.fromkeys(sets))
    return dict(zip(triples, weigh_sets(evidence, questions, starts), strict=True))


def weigh_sets(
    evidence: Independence, questions: list[tuple[int, int, tuple[int, ...]]], starts: list[int]
) -> list[float]:
    """Weigh the sets of each even start against those of the next: positive if the first sets separate better."""
    halves = _statistics(evidence, questions) / -2
    known = np.isfinite(halves)
    counts = np.add.reduceat(known, starts, dtype=np.intp).reshape(-1, 2)
    sums = np.logaddexp.reduceat(np.where(known, halves, -np.inf), starts).reshape(-1, 2)
    both = counts.all(axis=1)  # otherwise nothing was measured that could speak for one side
    means = sums[both] - np.log(counts[both])
    balance = np.zeros(len(counts))
    balance[both] = np.clip(means[:, 0] - means[:, 1], -LARGEST_EVIDENCE, LARGEST_EVIDENCE)
    return list(map(float, balance))


def unshielded(neighbours: list[set[int]]) -> Iterator[Triple]:
    """Yield x − z − y with x < y and no edge between x and y."""
    for z, near in enumerate(neighbours):
        for x, y in combinations(sorted(near), 2):
            if y not in neighbours[x]:
                yield x, z, y


def _statistics(evidence: Independence, questions: list[tuple[int, int, tuple[int, ...]]]) -> NDArray[np.float64]:
    """Answer questions of mixed order; NaN where the evidence has no answer."""
    values = np.full(len(questions), np.nan)
    for mine in group(range(len(questions)), lambda row: len(questions[row][2])).values():
        # the same question may belong to several triples
        place: dict[tuple[int, int, tuple[int, ...]], int] = {}
        which = [place.setdefault(questions[row], len(place)) for row in mine]
        batch = Questions.of(list(place))
        known = evidence.answers(batch)
        statistic = np.full(len(batch), np.nan)
        if known.any():
            statistic[known] = evidence.test(batch.select(known)).statistic
        values[mine] = statistic[which]
    return values


class OrientationClimb:
    """Local search over acyclic orientations of a skeleton for heavy colliders, with parents as bit masks."""

    def __init__(
        self, names: tuple[str, ...], skeleton: Skeleton, weights: dict[Triple, float], knowledge: Knowledge
    ) -> None:
        self._d = len(names)
        self._names = names
        self._place = {name: i for i, name in enumerate(names)}
        self._edges = skeleton.edges()
        self._triples = list(weights.items())
        self._weight: list[dict[tuple[int, int], float]] = [{} for _ in range(self._d)]
        self._partners: list[dict[int, int]] = [{} for _ in range(self._d)]
        for (x, z, y), weight in weights.items():
            self._weight[z][x, y] = self._weight[z][y, x] = weight
            self._partners[z][x] = self._partners[z].get(x, 0) | 1 << y
            self._partners[z][y] = self._partners[z].get(y, 0) | 1 << x
        self._fixed: set[tuple[int, int]] = set()
        for a, b in self._edges:
            forward, backward = knowledge.allows(names[a], names[b]), knowledge.allows(names[b], names[a])
            if forward != backward:
                self._fixed.add((a, b) if forward else (b, a))

    def best(self, restarts: int = RESTARTS) -> list[tuple[int, int]]:
        """Return the best orientation found, as (parent, child)."""
        best_score, best_parents = -np.inf, [0] * self._d
        # with all colliders that the evidence speaks for, and no other, there is nothing left to climb
        highest = sum(weight for _, weight in self._triples if weight > 0)
        for parents in self._starts(restarts):
            score = self._ascend(parents)
            if score > best_score + 1e-9:
                best_score, best_parents = score, parents
            if best_score > highest - 1e-9:
                break
        return [(a, b) for b in range(self._d) for a in cpdag.list_bits(best_parents[b])]

    def _starts(self, restarts: int) -> Iterator[list[int]]:
        """Yield the greedy starts, and then random ones."""
        yield self._collider_start()
        # nodes that look like colliders come late
        pull = [0.0] * self._d
        for (_, z, _), weight in self._triples:
            pull[z] += max(weight, 0.0)
        yield self._order_start(pull)
        rng = np.random.default_rng(0)  # search only: nothing private hangs on it
        for _ in range(restarts):
            yield self._order_start(rng.permutation(self._d).tolist())

    def _order_start(self, rank: list[float]) -> list[int]:
        """Orient every edge along an order that respects the forced directions, the lowest rank first otherwise."""
        ranked = [self._names[node] for node in sorted(range(self._d), key=rank.__getitem__)]
        forced = [(self._names[cause], self._names[effect]) for cause, effect in self._fixed]
        order = cpdag.sort_topologically(tuple(ranked), forced) or ()  # knowledge never goes round in a circle
        late = {self._place[name]: i for i, name in enumerate(order)}
        parents = [0] * self._d
        for a, b in self._edges:
            first, second = (a, b) if late[a] < late[b] else (b, a)
            parents[second] |= 1 << first
        return parents

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
        parents = [0] * self._d
        for first, second in cpdag.nearest_extension(names, named, _without(pairs, named)):
            parents[self._place[second]] |= 1 << self._place[first]
        return parents

    def _ascend(self, parents: list[int]) -> float:
        """Climb in place until no move helps; return the score."""
        improved = True
        while improved:
            improved = False
            for a, b in self._edges:
                if self._turn(a, b, parents) if parents[b] >> a & 1 else self._turn(b, a, parents):
                    improved = True
            for (x, z, y), weight in self._triples:
                if weight > 0 and parents[x] >> z & 1 and parents[y] >> z & 1 and self._collide(x, z, y, parents):
                    improved = True
        return sum(w for (x, z, y), w in self._triples if parents[z] >> x & 1 and parents[z] >> y & 1)

    def _turn(self, a: int, b: int, parents: list[int]) -> bool:
        """Reverse a → b if that raises the score and closes no cycle."""
        bit = 1 << a
        gain = self._share(a, b, parents[a]) - self._share(b, a, parents[b] & ~bit)
        if gain <= 1e-9 or (a, b) in self._fixed:
            return False
        parents[b] ^= bit
        parents[a] |= 1 << b
        if not self._reaches(a, b, parents):
            return True
        parents[a] ^= 1 << b
        parents[b] ^= bit
        return False

    def _collide(self, x: int, z: int, y: int, parents: list[int]) -> bool:
        """Make x ← z → y a collider if that raises the score and closes no cycle."""
        if (z, x) in self._fixed or (z, y) in self._fixed:
            return False
        bit, both = 1 << z, 1 << x | 1 << y
        lost = self._share(x, z, parents[x] & ~bit) + self._share(y, z, parents[y] & ~bit)
        won = self._share(z, x, parents[z]) + self._share(z, y, parents[z] | 1 << x)
        if won - lost <= 1e-9:
            return False
        parents[x] ^= bit
        parents[y] ^= bit
        parents[z] |= both
        if not self._reaches(z, x, parents) and not self._reaches(z, y, parents):
            return True
        parents[z] ^= both
        parents[x] ^= bit
        parents[y] ^= bit
        return False

    def _share(self, z: int, x: int, others: int) -> float:
        """Weight of the colliders at z that x forms with these other parents."""
        mask = self._partners[z].get(x, 0) & others
        total, weight = 0.0, self._weight[z]
        while mask:  # the innermost loop of the search for arrows
            total += weight[x, (mask & -mask).bit_length() - 1]
            mask &= mask - 1
        return total

    def _reaches(self, start: int, goal: int, parents: list[int]) -> bool:
        """Tell whether `goal` has `start` among its ancestors; with the arc goal → start that closes a cycle."""
        return bool(cpdag.follow(parents, parents[goal], wanted=1 << start) >> start & 1)
