"""Greedy equivalence search on released evidence, free or inside what tests have found.

Where three-way tables or pairs were released, the search is free: its score sees more than a fixed list of tests. Where
one joint table was released, every test is joint and the skeleton of tests is hard to better; then the search starts
from the graph of the tests and stays inside its skeleton.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dagveil.errors import MethodError
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.scores import EvidenceScore, lenient_score, noise_aware_score
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.skeleton import BLURRED, Skeleton
from dagveil.search.score.ges import GesSettings, greedy_equivalence_search
from dagveil.search.score.operators import Kind

JOINING_LEVEL = 0.01
"""Inside a skeleton, an edge between parts of the graph that nothing else connects needs only this level: no set could
have explained it."""


def search_by_score(
    evidence: Independence,
    knowledge: Knowledge,
    tested: Cpdag | None = None,
    *,
    level: float = 1.0,
    room: Literal["free", "skeleton"] | None = None,
) -> Cpdag:
    """Return the CPDAG (with knowledge, the MPDAG) that greedy equivalence search finds on released evidence.

    docs/methods/measure-ges.md tells how the constants were chosen.

    - `level`: an edge must bring what a marginal test at this level asks for; 1 asks for nothing.
    - `room`: where edges may come, anywhere or inside the skeleton that tests have found; None decides by the evidence.
    """
    score = noise_aware_score(evidence, level)
    if (room or ("skeleton" if isinstance(evidence, JointEvidence) else "free")) == "free":
        return greedy_equivalence_search(score, evidence.columns, knowledge)
    if tested is None:
        raise MethodError("a search inside a skeleton needs the graph of the tests; give `tested`, or take room=free")
    within = _adjacency(tested, evidence.columns)
    graph = greedy_equivalence_search(score, evidence.columns, knowledge, None, within, tested)
    return _join_parts(score, graph, knowledge, min(JOINING_LEVEL, level), within)


DOUBTED = 0.05
"""A separation with a smaller p-value is in doubt if noise blurs its test: the score may put the edge back."""


def restore_edges(evidence: PairEvidence, knowledge: Knowledge, skeleton: Skeleton, tested: Cpdag) -> Skeleton:
    """Return the skeleton with those edges that tests separated in doubt and that raise the score of their graph."""
    doubted = np.zeros_like(skeleton.adjacency)
    doubts = [(*pair, given) for pair, given in skeleton.separators.items() if skeleton.p_values[pair] < DOUBTED]
    for order in {len(given) for _, _, given in doubts} - {0}:
        questions = Questions.of([asked for asked in doubts if len(asked[2]) == order])
        blurred = questions.select(evidence.efficiency(questions) < BLURRED)
        doubted[blurred.x, blurred.y] = doubted[blurred.y, blurred.x] = True
    if not doubted.any():
        return skeleton
    inserting = GesSettings(phases=(Kind.INSERT,))
    score = noise_aware_score(evidence)
    found = greedy_equivalence_search(score, evidence.columns, knowledge, inserting, doubted, tested)
    restored = doubted & _adjacency(found, evidence.columns)
    kept = {pair: given for pair, given in skeleton.separators.items() if not restored[pair]}
    return replace(skeleton, adjacency=skeleton.adjacency | restored, separators=kept)


def _join_parts(
    score: EvidenceScore, graph: Cpdag, knowledge: Knowledge, level: float, within: NDArray[np.bool_]
) -> Cpdag:
    """Add edges between parts of the graph, the best one first, until none reaches the level."""
    lenient = lenient_score(score, level)
    one_step = GesSettings(phases=(Kind.INSERT,), most_steps=1)
    while True:
        part = connected_components(_adjacency(graph, score.columns), directed=False)[1]
        before, apart = graph, within & (part[:, None] != part[None, :])
        if apart.any():
            graph = greedy_equivalence_search(lenient, score.columns, knowledge, one_step, apart, graph)
        if graph == before:
            return graph


def _adjacency(graph: Cpdag, columns: tuple[str, ...]) -> NDArray[np.bool_]:
    place = {name: i for i, name in enumerate(columns)}
    adjacency = np.zeros((len(columns), len(columns)), dtype=bool)
    for pair in graph.skeleton():
        a, b = (place[name] for name in pair)
        adjacency[a, b] = adjacency[b, a] = True
    return adjacency
