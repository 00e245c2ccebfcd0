"""Markov chains over orders of columns, inside a skeleton that may grow (iterative MCMC).

Friedman and Koller sample orders: given one, each node chooses its parents among earlier nodes by itself. Kuipers,
Suter and Moffa, Efficient sampling and structure learning of Bayesian networks, 2022, restrict the parents to a
skeleton plus one node from outside, and start again with what the best graph took from outside until it takes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.evidence.scores import LocalScore
from dagveil.graphs.cpdag import Dag, list_bits

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_GRAPH: Final = 62  # sets of nodes are bits of one 64-bit number


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """Length of the chains and size of the tables."""

    steps: int = 1500  # of each chain
    most_candidates: int = 7  # a node keeps so many neighbours of the skeleton, those that are worth most alone
    most_parents: int = 5  # largest set of parents
    most_rounds: int = 5  # chains, each in the skeleton that the one before left
    far_swaps: float = 0.2  # share of steps that exchange any two nodes; the others exchange neighbours in the order

    def __post_init__(self) -> None:
        if self.steps < 1 or self.most_rounds < 1 or self.most_parents < 1 or self.most_candidates < 0:
            raise MethodError("steps, most_rounds and most_parents must be 1 or more, most_candidates 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class OrderSample:
    """What a chain found."""

    best: Dag  # the graph with the largest score in any order that was visited
    score: float  # its score
    # share of visited orders' graphs with each edge, shape (causes, effects): posterior probabilities, of the last
    # chain
    edges: Floats
    rounds: int  # chains that were run


@dataclass(frozen=True, slots=True, eq=False)
class _Choices:
    """Sets of parents of one node: masks, their scores, and which node each holds."""

    masks: Integers
    scores: Floats
    holds: Floats

    def weigh(self, allowed: int) -> tuple[float, float, int]:
        """Return the log of the summed weights of sets inside a mask, the largest score, and its place."""
        open_sets = np.flatnonzero(self.masks & ~np.int64(allowed) == 0)
        scores = self.scores[open_sets]
        place = int(scores.argmax())
        top = float(scores[place])
        return top + float(np.log(np.exp(scores - top).sum())), top, int(open_sets[place])

    def shares(self, allowed: int) -> Floats:
        """Return the posterior probability of each node as a parent, for sets inside a mask."""
        inside = self.masks & ~np.int64(allowed) == 0
        scores = self.scores[inside]
        weights = np.exp(scores - scores.max())
        return np.asarray(weights @ self.holds[inside] / weights.sum())


def sample_orders(
    score: LocalScore, within: Bools, rng: np.random.Generator, settings: OrderSettings | None = None
) -> OrderSample:
    """Run chains until the best graph stays inside the skeleton."""
    settings = settings or OrderSettings()
    d = len(score.columns)
    if within.shape != (d, d) or d > LARGEST_GRAPH:
        raise MethodError(f"{d} columns need a skeleton of shape ({d}, {d}), and at most {LARGEST_GRAPH} columns")
    skeleton = within | within.T
    order = [int(node) for node in rng.permutation(d)]
    best_score, best = -np.inf, [0] * d
    edges = np.zeros((d, d))
    rounds, grows = 0, True
    while grows and rounds < settings.most_rounds:
        rounds += 1
        choices = [_list_choices(score, node, skeleton, settings) for node in range(d)]
        found, parents, order, edges = _run_chain(choices, order, rng, settings)
        if found > best_score:
            best_score, best = found, parents
        grown = skeleton.copy()
        for node, mask in enumerate(best):
            for parent in list_bits(mask):
                grown[parent, node] = grown[node, parent] = True
        grows = bool((grown != skeleton).any())
        skeleton = grown
    names = score.columns
    arcs = frozenset((names[parent], names[node]) for node, mask in enumerate(best) for parent in list_bits(mask))
    return OrderSample(Dag(names, arcs), best_score, edges, rounds)


def _list_choices(score: LocalScore, node: int, skeleton: Bools, settings: OrderSettings) -> _Choices:
    d = len(score.columns)
    near = [int(other) for other in np.flatnonzero(skeleton[:, node]) if other != node]
    if len(near) > settings.most_candidates:
        near = sorted(sorted(near, key=lambda other: -score.score(node, (other,)))[: settings.most_candidates])
    far = [other for other in range(d) if other != node and other not in near]
    inner = [chosen for size in range(settings.most_parents + 1) for chosen in combinations(near, size)]
    sets = inner + [(*chosen, one) for chosen in inner if len(chosen) < settings.most_parents for one in far]
    masks = np.array([sum(1 << parent for parent in chosen) for chosen in sets], dtype=np.int64)
    holds = (masks[:, None] >> np.arange(d)[None, :] & 1).astype(np.float64)
    scores = np.array([score.score(node, chosen) for chosen in sets])
    # what cannot be scored is not chosen
    return _Choices(masks, np.where(np.isnan(scores), -np.inf, scores), holds)


def _run_chain(
    choices: Sequence[_Choices], start: Sequence[int], rng: np.random.Generator, settings: OrderSettings
) -> tuple[float, list[int], list[int], Floats]:
    """Walk by Metropolis' rule; return the best score, its parents, the last order and the share of each edge."""
    d = len(start)
    order = list(start)
    edges = np.zeros((d, d))

    @cache
    def weigh(node: int, allowed: int) -> tuple[float, float, int]:
        return choices[node].weigh(allowed)

    @cache
    def share(node: int, allowed: int) -> Floats:
        return choices[node].shares(allowed)

    def walk(nodes: Sequence[int], earlier: int) -> list[tuple[int, int]]:
        keys = []
        for node in nodes:
            keys.append((node, earlier))
            earlier |= 1 << node
        return keys

    current = walk(order, 0)
    best_score, best = -np.inf, [0] * d
    for step in range(settings.steps + 1):
        if step and d > 1:
            if rng.random() < settings.far_swaps:
                first, last = sorted(int(place) for place in rng.choice(d, 2, replace=False))
            else:
                first = int(rng.integers(d - 1))
                last = first + 1
            part = order[first : last + 1]
            part[0], part[-1] = part[-1], part[0]
            tried = walk(part, current[first][1])
            gain = sum(weigh(*key)[0] for key in tried) - sum(weigh(*key)[0] for key in current[first : last + 1])
            if gain >= 0.0 or rng.random() < np.exp(gain):
                order[first : last + 1] = part
                current[first : last + 1] = tried
        top = sum(weigh(*key)[1] for key in current)
        if top > best_score + 1e-9:
            best_score = top
            for node, allowed in current:
                best[node] = int(choices[node].masks[weigh(node, allowed)[2]])
        for node, allowed in current:
            edges[:, node] += share(node, allowed)
    return best_score, best, order, edges / (settings.steps + 1)
