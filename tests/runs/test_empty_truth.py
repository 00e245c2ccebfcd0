"""Nothing depends on anything: hardly an edge appears, whichever way the search goes."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.data.column import Categorical
from dagveil.data.memory import MemoryTable
from dagveil.data.schema import Schema
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import noise_aware_score
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source, search_evidence
from dagveil.search.score.ges import greedy_equivalence_search
from dagveil.search.settings import SearchRule, SearchSettings

N_ROWS, RUNS = 1500, 12
SHAPES = (2, 3, 4, 5, 6) * 5
NAMES = [f"c{k}" for k in range(len(SHAPES))]
SCHEMA = Schema(
    dataset="nothing",
    columns={
        name: Categorical(tuple(f"v{i}" for i in range(size)), "v0") for name, size in zip(NAMES, SHAPES, strict=True)
    },
    reviewed=True,
    nominal_rows=N_ROWS,
)


def draw_rows(rng: np.random.Generator) -> MemoryTable:
    """Independent columns with one rare level each."""
    codes = {}
    for name, size in zip(NAMES, SHAPES, strict=True):
        shares = 0.5 ** np.arange(size)
        shares[-1] = 0.03
        codes[name] = rng.choice(size, N_ROWS, p=shares / shares.sum())
    return MemoryTable.from_codes(codes, SCHEMA)


@pytest.mark.parametrize("epsilon", [0.3, 1])
def test_few_edges_appear_where_there_are_none(epsilon: float) -> None:
    rng = np.random.default_rng(int(10 * epsilon))
    edges = {SearchRule.TESTS: 0, SearchRule.SCORE: 0}
    for seed in range(RUNS):
        evidence = measure_source(draw_rows(rng), SCHEMA, epsilon, 1e-6, noise=NoiseKind.SEEDED, seed=seed)
        for rule in edges:
            result = search_evidence(evidence, SearchSettings(redraws=0, search=rule))
            assert result.false_edges is not None
            assert result.false_edges <= 0.5
            edges[rule] += len(result.graph.edges)
    assert max(edges.values()) <= 0.5 * RUNS, edges


def test_noise_does_not_make_an_edge_cheap_for_the_score() -> None:
    """The penalty shrinks as noise grows, and without its floor false edges come by the dozen."""
    rng = np.random.default_rng(5)
    found = {1.0: 0, 1e-4: 0}
    for seed in range(4):
        every = {"plan": "pairs"}  # a loop would not even measure most of them
        evidence = measure_source(draw_rows(rng), SCHEMA, 0.3, 1e-6, options=every, noise=NoiseKind.SEEDED, seed=seed)
        tests = evidence.independence()
        assert tests is not None
        for level in found:
            score = noise_aware_score(tests, level)
            graph = greedy_equivalence_search(score, tests.columns, Knowledge.none())
            found[level] += len(graph.skeleton())
    assert found[1.0] > 10 * 4
    assert found[1e-4] <= 2


def test_the_floor_is_the_statistic_of_a_test_at_the_level() -> None:
    evidence = measure_source(
        draw_rows(np.random.default_rng(6)), SCHEMA, 0.3, 1e-6, noise=NoiseKind.SEEDED, seed=1
    ).independence()
    assert evidence is not None
    x, y = np.triu_indices(len(NAMES), 1)
    questions = Questions(x, y, np.empty((len(x), 0), dtype=np.intp))
    gains, answers = noise_aware_score(evidence, 0.01).gains(questions), evidence.test(questions)
    assert not ((gains > 0) & (answers.p_value > 0.01)).any()
