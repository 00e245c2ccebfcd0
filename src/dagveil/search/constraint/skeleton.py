"""The skeleton, by separations that are collected first and then carried out in order of merit.

Edges that pass the marginal test are tested against small conditioning sets. All separations of one order are
collected, and each is carried out only while its set still lies inside a neighbourhood and still connects x with y. So
the result does not depend on the order of columns, two edges of a triangle cannot delete each other, and noise that
makes everything look independent cannot take a connected graph apart. What comes first is a `RemovalOrder`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.graphs.cpdag import follow, list_bits
from dagveil.graphs.knowledge import Knowledge

Bools = NDArray[np.bool_]

FALSE_EDGES = 0.5  # edges that may appear on average where nothing depends on anything

MOST_DRAWS, FEWEST_DRAWS, DRAWN_PAIRS = 200, 20, 100_000
"""Tables without any dependence that the bound is checked on: fewer where there are many pairs."""

NO_DEPENDENCE = -0.1
"""A set of two columns or more separates only if the log Bayes factor of dependence given it is below this: a test that
could have seen nothing has one of about 0."""

BLURRED = 0.5  # noise blurs a test if it leaves less than this share of the information

SOME_DEPENDENCE = 1.0
"""One column whose test is blurred separates only if the log Bayes factor of dependence given it is below this."""

CLEAR_DEPENDENCE = 2.0
"""An edge is drawn only if the log Bayes factor of a dependence is at least this given each column that depends on both
ends: what noise hides may be what explains it."""


class RemovalOrder(enum.Enum):
    """Which of several possible separations is carried out first."""

    MOST_CONVINCING = "most-convincing"  # the largest p-value first: best where noise leaves the tests their power
    # at order 1 the least associated pair first, and z separates x from y only if x and y are less associated than
    # either is with z, as the data processing inequality demands: best where noise makes every edge of a triangle look
    # dispensable
    WEAKEST_EDGE = "weakest-edge"


@dataclass(frozen=True, slots=True)
class SkeletonSettings:
    """Constants of the search; docs/methods/measure.md tells how they were chosen."""

    marginal_level: float = 0.01  # an edge is kept at first if its marginal p-value is below this
    conditional_level: float = 1e-5  # a set separates if its p-value is above this
    largest_order: int = 2  # size of the largest conditioning set
    sets_per_edge: int = 8  # conditioning sets of each size that are tested per edge, the most promising ones
    neighbours_considered: int = 12  # neighbours from which larger sets are built, per end of an edge
    removal_order: RemovalOrder = RemovalOrder.MOST_CONVINCING  # which separation is carried out first
    # share of the pairs that pass the marginal test which may be independent, on average: the level falls below
    # `marginal_level` for that
    false_share: float = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Skeleton:
    """Adjacency by position, the separating set of each removed pair, and the p-values that decided."""

    adjacency: Bools  # symmetric, shape (d, d)
    # set that removed each pair (positions, smaller first); the empty set for marginal independence
    separators: dict[tuple[int, int], tuple[int, ...]]
    # for a removed pair the p-value of its separation; for a kept one the largest that was seen
    p_values: dict[tuple[int, int], float]

    def edges(self) -> list[tuple[int, int]]:
        """Return the kept pairs."""
        first, second = np.nonzero(self.adjacency)
        return [(x, y) for x, y in zip(first.tolist(), second.tolist(), strict=True) if x < y]

    def without(self, separated: Mapping[tuple[int, int], tuple[tuple[int, ...], float]]) -> Skeleton:
        """Return a copy without these pairs, each of which a set has separated with a p-value."""
        adjacency = self.adjacency.copy()
        for x, y in separated:
            adjacency[x, y] = adjacency[y, x] = False
        separators = {pair: given for pair, (given, _) in separated.items()}
        p_values = {pair: p_value for pair, (_, p_value) in separated.items()}
        return Skeleton(adjacency, self.separators | separators, self.p_values | p_values)


def list_neighbours(adjacency: Bools) -> list[list[int]]:
    """Return the neighbours of each node, in ascending order."""
    neighbours: list[list[int]] = [[] for _ in adjacency]
    first, second = np.nonzero(adjacency)
    for x, y in zip(first.tolist(), second.tolist(), strict=True):
        neighbours[x].append(y)
    return neighbours


def find_skeleton(evidence: Independence, settings: SkeletonSettings, knowledge: Knowledge) -> Skeleton:
    """Find the skeleton: pairs that knowledge excludes are never asked about, and required ones kept without asking."""
    skeleton = screen_pairs(evidence, settings, knowledge)
    for order in range(1, settings.largest_order + 1):
        skeleton = _carry_out(skeleton, _find_separations(evidence, settings, skeleton, knowledge, order))
    return skeleton


def screen_pairs(evidence: Independence, settings: SkeletonSettings, knowledge: Knowledge) -> Skeleton:
    """Keep the pairs that depend on each other marginally."""
    names = evidence.columns
    d = len(names)
    adjacency = np.zeros((d, d), dtype=bool)
    questions = Questions.pairs(d)
    if knowledge != Knowledge.none():
        asked: list[tuple[int, int, tuple[int, ...]]] = []
        for a, b in combinations(range(d), 2):
            if knowledge.requires(names[a], names[b]):
                adjacency[a, b] = adjacency[b, a] = True
            elif not knowledge.excludes(names[a], names[b]):
                asked.append((a, b, ()))
        questions = Questions.of(asked)
    pairs = len(questions)
    known = evidence.answers(questions)
    if not known.all():
        questions = questions.select(known)
    p = evidence.test(questions).p_value
    dependent = p < screening_level(settings, p, pairs)
    first, second = questions.x[dependent], questions.y[dependent]
    adjacency[first, second] = adjacency[second, first] = True
    tested = list(zip(questions.x.tolist(), questions.y.tolist(), strict=True))
    p_values = dict(zip(tested, p.tolist(), strict=True))
    separators: dict[tuple[int, int], tuple[int, ...]] = {
        pair: () for pair, kept in zip(tested, dependent.tolist(), strict=True) if not kept
    }
    return Skeleton(adjacency, separators, p_values)


def bound_false_edges(
    evidence: Independence, settings: SkeletonSettings, false_edges: float = FALSE_EDGES
) -> tuple[SkeletonSettings, float]:
    """Lower `false_share` until few enough pairs would pass if nothing depended on anything.

    Pairs that share noise pass in clumps, so the number is found on tables that are drawn without any dependence.

    - `false_edges`: pairs that may pass on average.

    Returns settings that keep the bound, and the number of pairs that would pass.
    """
    pairs = Questions.pairs(len(evidence.columns))
    questions = pairs.select(evidence.answers(pairs))
    if not len(questions):
        return settings, 0.0
    draws, rng = max(FEWEST_DRAWS, min(MOST_DRAWS, DRAWN_PAIRS // len(questions))), np.random.default_rng(2)
    null = evidence.null_p_values(questions, draws, rng)
    # pairs that were measured may have been chosen among all, by what the rows hold: as if all had been
    null = np.sort(np.hstack([null, rng.random((draws, len(pairs) - len(questions)))]), axis=1)
    share = min(settings.false_share, false_edges)
    while True:
        count = np.minimum(count_discoveries(null, share), (null < settings.marginal_level).sum(axis=1))
        if count.mean() + count.std() / np.sqrt(draws) <= false_edges or share < 1e-6:
            return replace(settings, false_share=share), float(count.mean())
        share /= 1.5


def marginal_level(evidence: Independence, settings: SkeletonSettings) -> float:
    """Return the level of the marginal test on this evidence."""
    pairs = Questions.pairs(len(evidence.columns))
    return screening_level(settings, evidence.test(pairs.select(evidence.answers(pairs))).p_value, len(pairs))


def screening_level(settings: SkeletonSettings, p_values: NDArray[np.float64], pairs: int) -> float:
    """Return the level of the marginal test, at most `marginal_level`: as Benjamini and Hochberg have it.

    - `pairs`: from which those with a p-value may have been chosen; the others count as independent.
    """
    every = np.append(np.sort(p_values), np.ones(pairs - len(p_values)))
    found = int(count_discoveries(every[None], settings.false_share)[0])
    return min(settings.marginal_level, settings.false_share * max(found, 1) / max(pairs, 1))


def count_discoveries(p_values: NDArray[np.float64], share: float) -> NDArray[np.intp]:
    """Return how many of these p-values, ascending in each row, Benjamini and Hochberg's rule takes."""
    rank = np.arange(1, p_values.shape[1] + 1)
    passes = p_values <= share * rank / max(p_values.shape[1], 1)
    return np.asarray(np.where(passes, rank, 0).max(axis=1, initial=0))


def candidate_sets(
    evidence: Independence, settings: SkeletonSettings, skeleton: Skeleton, knowledge: Knowledge, order: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """List, for each edge, the sets on a path inside a neighbourhood that leave the least dependence."""
    names = evidence.columns
    reach = _Reach(skeleton.adjacency)
    association = evidence.association()
    guarded = order == 1 and settings.removal_order is RemovalOrder.WEAKEST_EDGE
    linked: list[list[float]] = association.tolist() if guarded else []
    copies = find_copies(evidence) if guarded else np.empty(0)
    candidates: list[tuple[int, int, tuple[int, ...]]] = []
    owners: list[int] = []
    edges = [(x, y) for x, y in skeleton.edges() if not knowledge.requires(names[x], names[y])]
    for edge, (x, y) in enumerate(edges):
        # a common neighbour lies between the two; others have to be looked for
        near_x, near_y = reach.near[x], reach.near[y]
        near_both, around = near_x & near_y, (near_x | near_y) & ~(1 << x | 1 << y)
        between = near_both if near_both == around else reach.between(x, y)
        if order == 1:
            near = list_bits(around & between)
            if guarded:
                weight, from_x, from_y = linked[x][y], linked[x], linked[y]
                alike = copies[x] | copies[y]
                near = [z for z in near if alike[z] or (weight <= from_x[z] and weight <= from_y[z])]
            sets: list[tuple[int, ...]] = [(z,) for z in near]
        else:
            seen: set[tuple[int, ...]] = set()
            for side in {near_x & between, near_y & between}:
                near = list_bits(side)
                if len(near) > settings.neighbours_considered:
                    useful = np.minimum(association[x, near], association[y, near])
                    best = np.argsort(-useful, kind="stable")[: settings.neighbours_considered]
                    near = [near[i] for i in np.sort(best)]
                seen.update(combinations(near, order))
            sets = sorted(seen)
        candidates.extend((x, y, given) for given in sets)
        owners.extend([edge] * len(sets))
    if not candidates:
        return []
    questions = Questions.of(candidates)
    owner = np.array(owners)
    known = evidence.answers(questions)
    if not known.all():
        questions, owner = questions.select(known), owner[known]
        candidates = [candidate for candidate, answered in zip(candidates, known.tolist(), strict=True) if answered]
    ranked = np.lexsort((evidence.strength(questions), owner))
    # owners ascend, so the first place of an edge among the ranked is its first among the candidates
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    chosen = place < settings.sets_per_edge
    if order > 1:
        # a set whose own tables were paid for is always tested; order 1 has no such tables
        chosen |= evidence.joint(questions)[ranked]
    return [candidates[row] for row in ranked[chosen].tolist()]


@dataclass(frozen=True, slots=True)
class _Separation:
    """A set that separates x from y."""

    p_value: float
    x: int
    y: int
    given: tuple[int, ...]
    # the end whose edges with all of the set must still stand, if the test was void: the set determines the other end,
    # so nothing was left to test
    partner: int | None = None


def find_determined(evidence: Independence) -> Bools:
    """Tell which columns are determined by which, shape (d, d): [x, z] if z determines x; only for tables of counts."""
    determined: Bools | None = getattr(evidence, "determined", None)
    return np.zeros((len(evidence.columns),) * 2, dtype=bool) if determined is None else determined


def find_copies(evidence: Independence) -> Bools:
    """Tell which columns determine each other, shape (d, d)."""
    determined = find_determined(evidence)
    return np.asarray(determined & determined.T)


def _find_separations(
    evidence: Independence, settings: SkeletonSettings, skeleton: Skeleton, knowledge: Knowledge, order: int
) -> list[_Separation]:
    candidates = candidate_sets(evidence, settings, skeleton, knowledge, order)
    if not candidates:
        return []
    p_value = evidence.test(Questions.of(candidates)).p_value
    for (x, y, _), p in zip(candidates, p_value.tolist(), strict=True):
        skeleton.p_values[x, y] = max(skeleton.p_values.get((x, y), 0.0), p)
    chosen = [i for i, p in enumerate(p_value.tolist()) if p > settings.conditional_level]
    if chosen:
        # a test that could not have seen a dependence separates nothing
        convincing = _are_convincing(evidence, Questions.of([candidates[i] for i in chosen]))
        chosen = [i for i, is_so in zip(chosen, convincing.tolist(), strict=True) if is_so]
    association, names = evidence.association(), evidence.columns
    weakest = order == 1 and settings.removal_order is RemovalOrder.WEAKEST_EDGE
    # the weakest edge is the right one to go but among copies, whose edges are equally strong
    determined = find_copies(evidence) if weakest else find_determined(evidence)
    some: list[bool] = np.asarray(determined.any(axis=1)).tolist()
    found: list[tuple[tuple[object, ...], _Separation]] = []
    for i in chosen:
        (x, y, given), p = candidates[i], float(p_value[i])
        # names break ties, so columns may come in any order
        tie = (sorted((names[x], names[y])), -p, sorted(names[z] for z in given))
        closed = [end for end in (x, y) if some[end] and determined[end, list(given)].any()]
        if not closed:
            found.append(((0, 0, association[x, y] if weakest else -p, *tie), _Separation(p, x, y, given)))
            continue
        end, partner = closed[0], y if closed[0] == x else x
        copies = [names[z] for z in given if determined[end, z] and determined[z, end]]
        # of copies one keeps the edges of all, the first by name
        late = 0 if any(name < names[end] for name in copies) else 1 if copies else 2
        found.append(((1, late, association[x, y], *tie), _Separation(p, x, y, given, partner)))
    return [separation for _, separation in sorted(found, key=lambda item: item[0])]


def _are_convincing(evidence: Independence, questions: Questions) -> Bools:
    """Tell which questions the evidence answers against a dependence, not only without showing one."""
    if questions.order > 1:
        return np.asarray(evidence.odds(questions) < NO_DEPENDENCE)
    convincing = np.ones(len(questions), dtype=bool)
    if isinstance(evidence, PairEvidence):
        blurred = evidence.efficiency(questions) < BLURRED
        convincing[blurred] = evidence.odds(questions.select(blurred)) < SOME_DEPENDENCE
    return convincing


def find_explanations(
    evidence: Independence, settings: SkeletonSettings, pairs: Iterable[frozenset[str]]
) -> dict[frozenset[str], str]:
    """Return, of the pairs that a search joined, those that one other column could explain, and which column.

    It depends on both, and given it the evidence does not clearly speak for a dependence. Such an edge stands because
    another one of its triangle went first, or because noise hides what the column explains: nothing says which of them
    is real.
    """
    names = evidence.columns
    place = {name: i for i, name in enumerate(names)}
    near = screen_pairs(evidence, settings, Knowledge.none()).adjacency
    asked: list[tuple[int, int, tuple[int, ...]]] = []
    for x, y in (sorted(place[name] for name in pair) for pair in pairs):
        asked += [(x, y, (z,)) for z in np.nonzero(near[x] & near[y])[0].tolist()]
    if not asked:
        return {}
    questions = Questions.of(asked)
    questions = questions.select(evidence.answers(questions))
    p_value, odds = evidence.test(questions).p_value, evidence.odds(questions)
    explained: dict[frozenset[str], str] = {}
    for i in np.argsort(odds):
        if p_value[i] > settings.conditional_level and odds[i] < CLEAR_DEPENDENCE:
            pair = frozenset((names[questions.x[i]], names[questions.y[i]]))
            explained.setdefault(pair, names[questions.given[i, 0]])
    return explained


def _carry_out(skeleton: Skeleton, separations: list[_Separation]) -> Skeleton:
    reach, separated = _Reach(skeleton.adjacency), {}
    for one in separations:
        x, y, wanted = one.x, one.y, sum(1 << z for z in one.given)
        near_x, near_y = reach.near[x], reach.near[y]
        if not near_x >> y & 1 or (one.partner is not None and wanted & ~reach.near[one.partner]):
            continue
        inside = not wanted & ~near_x or not wanted & ~near_y
        if inside and (not wanted & ~(near_x & near_y) or reach.lie_between(x, y, wanted)):
            separated[x, y] = one.given, one.p_value
            reach.remove(x, y)
    return skeleton.without(separated)


class _Reach:
    """Which nodes are next to each, and which lie on a way between two, by bit masks."""

    def __init__(self, adjacency: Bools) -> None:
        self.near = [sum(1 << z for z in near) for near in list_neighbours(adjacency)]
        self._parts: dict[int | None, list[int]] = {}

    def remove(self, x: int, y: int) -> None:
        """Take an edge away."""
        self.near[x] &= ~(1 << y)
        self.near[y] &= ~(1 << x)
        self._parts.clear()

    def between(self, x: int, y: int) -> int:
        """Return the mask of nodes reachable from x without y and from y without x."""
        return self._part(x, without=y) & self._part(y, without=x)

    def lie_between(self, x: int, y: int, wanted: int) -> bool:
        """Tell whether `between` holds all of these, without looking further than that needs."""
        return self._finds(x, wanted, without=y) and self._finds(y, wanted, without=x)

    def _finds(self, node: int, wanted: int, without: int) -> bool:
        return not wanted & ~follow(self.near, 1 << node, ~(1 << without), wanted)

    def _part(self, node: int, without: int) -> int:
        """Return the connected part of a node in the graph without another one."""
        if without not in self._parts:
            near = self.near[without]
            first = (near & -near).bit_length() - 1
            # most nodes hold nothing together: their neighbours find each other without them, after a few steps
            together = not near or self._finds(first, near, without)
            self._parts[without] = self._split(None if together else without)
        return next((part & ~(1 << without) for part in self._parts[without] if part >> node & 1), 0)

    def _split(self, without: int | None) -> list[int]:
        """Return the connected parts of the graph, or of the graph without a node."""
        if without in self._parts:
            return self._parts[without]
        left = (1 << len(self.near)) - 1
        left &= ~(0 if without is None else 1 << without)
        parts = []
        while left:
            part = follow(self.near, left & -left, left)
            parts.append(part)
            left &= ~part
        self._parts[without] = parts
        return parts
