"""Max-min hill climbing: tests choose each node's neighbours, then a score chooses the graph among them.

Tsamardinos, Brown and Aliferis, The max-min hill-climbing Bayesian network structure learning algorithm, 2006.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.evidence.questions import Answers, Questions
from dagveil.evidence.scores import LocalScore
from dagveil.graphs.cpdag import Dag, follow, list_bits

Bools = NDArray[np.bool_]


class Asked(Protocol):
    """Something that tests questions of independence; every `Independence` does."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in the order that positions refer to."""

    def answers(self, questions: Questions) -> Bools:
        """Tell which questions can be answered at all."""

    def test(self, questions: Questions) -> Answers:
        """Test each question."""


@dataclass(frozen=True, slots=True)
class MmhcSettings:
    """Constants of both halves."""

    level: float = 0.05  # a set separates if its p-value is above this
    largest_order: int = 2  # size of the largest conditioning set
    most_parents: int = 5  # a node gets no more parents than this


def search_max_min(evidence: Asked, score: LocalScore, settings: MmhcSettings | None = None) -> Dag:
    """Return the graph that hill climbing finds inside the neighbours that tests leave."""
    settings = settings or MmhcSettings()
    return climb_hill(score, find_neighbours(evidence, settings), settings)


def find_neighbours(evidence: Asked, settings: MmhcSettings) -> Bools:
    """Return the pairs of which each is a neighbour of the other by max-min parents and children."""
    d = len(evidence.columns)
    ask = _Answers(evidence)
    found = np.zeros((d, d), dtype=np.bool_)
    for target in range(d):
        found[target, _neighbours_of(target, d, ask, settings)] = True
    return found & found.T


def climb_hill(score: LocalScore, within: Bools, settings: MmhcSettings) -> Dag:
    """Add, remove and turn edges while that gains, always the step that gains most."""
    names = score.columns
    parents = [0] * len(names)
    pairs = [(x, y) for x, y in combinations(range(len(names)), 2) if within[x, y]]
    while True:
        best, chosen = 1e-9, None
        for changes in _list_steps(parents, pairs, settings.most_parents):
            gain = sum(
                score.score(node, tuple(list_bits(mask))) - score.score(node, tuple(list_bits(parents[node])))
                for node, mask in changes.items()
            )
            if gain > best:
                best, chosen = gain, changes
        if chosen is None:
            break
        for node, mask in chosen.items():
            parents[node] = mask
    return Dag(names, frozenset((names[p], names[v]) for v, mask in enumerate(parents) for p in list_bits(mask)))


class _Answers:
    """p-values of questions, each asked once."""

    def __init__(self, evidence: Asked) -> None:
        self._evidence = evidence
        self._known: dict[tuple[int, int, tuple[int, ...]], float] = {}

    def __call__(self, x: int, y: int, given: tuple[int, ...]) -> float:
        key = (min(x, y), max(x, y), tuple(sorted(given)))
        if key not in self._known:
            questions = Questions.of([key])
            # a table that is too large to be tested separates nothing
            known = bool(self._evidence.answers(questions)[0])
            self._known[key] = float(self._evidence.test(questions).p_value[0]) if known else 0.0
        return self._known[key]


def _neighbours_of(target: int, d: int, ask: _Answers, settings: MmhcSettings) -> list[int]:
    """Grow by the node whose weakest association is strongest, then drop what a set of the others separates."""
    chosen: list[int] = []
    # largest p-value over sets tried so far: the smaller, the stronger the weakest association
    weakest = {other: ask(target, other, ()) for other in range(d) if other != target}
    while weakest := {other: p for other, p in weakest.items() if p <= settings.level}:
        newest = min(weakest, key=lambda other: (weakest[other], other))
        del weakest[newest]
        joined = [(newest, *rest) for size in range(settings.largest_order) for rest in combinations(chosen, size)]
        for other in weakest:
            weakest[other] = max([weakest[other], *(ask(target, other, given) for given in joined)])
        chosen.append(newest)
    for other in list(chosen):
        rest = [node for node in chosen if node != other]
        sets = (given for size in range(1, settings.largest_order + 1) for given in combinations(rest, size))
        if any(ask(target, other, given) > settings.level for given in sets):
            chosen.remove(other)
    return chosen


def _list_steps(parents: list[int], pairs: list[tuple[int, int]], most_parents: int) -> Iterator[dict[int, int]]:
    """Yield for each possible step the nodes whose parents change, with their new parents."""
    for x, y in pairs:
        for cause, effect in ((x, y), (y, x)):
            if parents[effect] >> cause & 1:
                less = parents[effect] & ~(1 << cause)
                yield {effect: less}
                turned = parents[cause] | 1 << effect
                if turned.bit_count() <= most_parents and not _reaches(parents, cause, less):
                    yield {effect: less, cause: turned}
            elif not parents[cause] >> effect & 1:
                more = parents[effect] | 1 << cause
                if more.bit_count() <= most_parents and not _reaches(parents, effect, parents[cause]):
                    yield {effect: more}


def _reaches(parents: list[int], start: int, parents_of_goal: int) -> bool:
    """Tell whether `start` is an ancestor of the node with these parents."""
    return bool(follow(parents, parents_of_goal, wanted=1 << start) >> start & 1)
