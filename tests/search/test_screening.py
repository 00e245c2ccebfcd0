"""Which pairs pass the marginal test, and which sets may separate."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.data.memory import MemoryTable
from dagveil.evaluation.comparison import skeleton_f1
from dagveil.evidence.questions import Answers, Questions
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.constraint import skeleton
from dagveil.search.constraint.skeleton import (
    SkeletonSettings,
    bound_false_edges,
    count_discoveries,
    find_skeleton,
    screen_pairs,
    screening_level,
)
from dagveil.search.settings import SearchSettings

NOTHING = Knowledge.none()


def slow_discoveries(p_values: np.ndarray, share: float) -> int:
    """Benjamini and Hochberg's rule, one rank at a time."""
    ordered, m = sorted(p_values.tolist()), len(p_values)
    return max((k for k in range(1, m + 1) if ordered[k - 1] <= share * k / m), default=0)


def test_discoveries_are_counted_as_by_hand() -> None:
    rng = np.random.default_rng(1)
    p = rng.random((300, 20)) ** 4
    found = count_discoveries(np.sort(p, axis=1), 0.1)
    assert found.tolist() == [slow_discoveries(row, 0.1) for row in p]
    assert 0 < found.mean() < 20


def test_the_level_follows_the_number_of_discoveries() -> None:
    settings = SkeletonSettings(marginal_level=0.05, false_share=0.1)
    assert screening_level(settings, np.full(100, 0.5), 100) == pytest.approx(0.1 / 100)
    some = np.concatenate([np.full(20, 1e-6), np.full(80, 0.5)])
    assert screening_level(settings, some, 100) == pytest.approx(0.1 * 20 / 100)
    assert screening_level(settings, np.full(100, 1e-6), 100) == 0.05
    assert screening_level(settings, np.empty(0), 0) <= 0.05
    # pairs from which those with a p-value were chosen count, too
    assert screening_level(settings, some[:20], 100) == pytest.approx(0.1 * 20 / 100)
    assert screening_level(settings, some[:20], 1000) == pytest.approx(0.1 * 20 / 1000)


def test_pairs_pass_by_that_level(oracle: type) -> None:
    class Chance(oracle):
        def test(self, questions: Questions) -> Answers:
            p = np.where((questions.x == 0) & (questions.y == 1), 1e-5, 0.009)
            return Answers(np.ones(len(p)), np.ones(len(p)), p)

    evidence = Chance(Dag(tuple("abcdefgh"), frozenset()))
    kept = screen_pairs(evidence, SkeletonSettings(false_share=0.005), NOTHING)
    assert kept.edges() == [(0, 1)]
    # all 28 would pass at 0.01 alone
    assert len(screen_pairs(evidence, SkeletonSettings(false_share=0.5), NOTHING).edges()) == 28


def test_the_bound_on_false_edges_holds_for_independent_tests(oracle: type) -> None:
    evidence = oracle(Dag(tuple("abcdefgh"), frozenset()))
    for bound in (0.5, 0.05):
        settings, expected = bound_false_edges(evidence, SkeletonSettings(marginal_level=0.5, false_share=0.9), bound)
        assert expected <= bound
        null = np.sort(np.random.default_rng(3).random((4000, 28)), axis=1)
        assert count_discoveries(null, settings.false_share).mean() < 1.5 * bound


def test_a_test_that_sees_nothing_separates_nothing(oracle: type) -> None:
    """a → b, c → d with b and c between: {b, c} separates a and d only if the evidence speaks against dependence."""
    dag = Dag(tuple("abcd"), frozenset({("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}))

    class Blind(oracle):
        def odds(self, questions: Questions) -> np.ndarray:
            return np.full(len(questions), 0.1)

    assert not find_skeleton(oracle(dag), SkeletonSettings(), NOTHING).adjacency[0, 3]
    assert find_skeleton(Blind(dag), SkeletonSettings(), NOTHING).adjacency[0, 3]


def test_what_noise_blurs_is_not_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide table with few rows keeps more of its edges if one column separates only by evidence against them."""
    network = load_network("alarm")
    schema = network_schema(network, 10_000)
    truth = network.dag()
    released = [
        measure_source(
            MemoryTable.from_codes(sample_codes(network, 10_000, np.random.default_rng(seed)), schema),
            schema,
            1.0,
            1e-6,
            ledger=None,
            noise=NoiseKind.SEEDED,
            seed=seed,
        )
        for seed in range(3)
    ]

    def score() -> float:
        found = [search_evidence(evidence, SearchSettings(redraws=0)).graph.cpdag for evidence in released]
        return float(np.mean([skeleton_f1(graph, truth) for graph in found]))

    cautious = score()
    monkeypatch.setattr(skeleton, "BLURRED", 0.0)
    assert cautious > score() + 0.02
