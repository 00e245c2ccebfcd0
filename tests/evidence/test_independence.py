"""Every implementation of Independence keeps the contract."""

from __future__ import annotations

import numpy as np
import pytest
from independence_contract import IndependenceContract
from simulated_tables import EXACT, all_pairs, draw_codes, release

from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.triples import TripleEvidence
from dagveil.graphs.cpdag import Dag

LEVELS = {"a": 2, "b": 3, "c": 2, "one": 1, "d": 4, "e": 2}
TRIPLES = [("a", "b", "c"), ("d", "b", "c"), ("a", "c", "e"), ("b", "e", "c"), ("a", "b", "e"), ("c", "one", "a")]


class TestPairEvidence(IndependenceContract):
    constant = 3

    def make(self) -> Independence:
        rng = np.random.default_rng(11)
        tables = release(draw_codes(3000, rng, LEVELS), LEVELS, all_pairs(LEVELS), 100.0, rng)
        evidence = marginal_evidence(list(LEVELS), tables)
        assert type(evidence) is PairEvidence
        return evidence


class TestTripleEvidence(IndependenceContract):
    constant = 3

    def make(self) -> Independence:
        rng = np.random.default_rng(12)
        tables = release(draw_codes(3000, rng, LEVELS), LEVELS, all_pairs(LEVELS) + TRIPLES, 25.0, rng)
        evidence = marginal_evidence(list(LEVELS), tables)
        assert type(evidence) is TripleEvidence
        return evidence


class TestTablesOfAConstantColumn(IndependenceContract):
    """A column that declares two levels and only ever takes one, without noise."""

    constant = 0

    def make(self) -> Independence:
        rng = np.random.default_rng(13)
        levels = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}
        codes = draw_codes(2000, rng, levels) | {"a": np.zeros(2000, dtype=np.intp)}
        return marginal_evidence(list(levels), release(codes, levels, all_pairs(levels), EXACT))


class TestTablesOfNoise(IndependenceContract):
    """Noise that drowns everything: no test may fail on it."""

    tolerance = 0.3

    def make(self) -> Independence:
        rng = np.random.default_rng(14)
        tables = release(draw_codes(50, rng, LEVELS), LEVELS, all_pairs(LEVELS) + TRIPLES, 1e6, rng)
        return marginal_evidence(list(LEVELS), tables)


class TestMomentEvidence(IndependenceContract):
    def make(self) -> Independence:
        rng = np.random.default_rng(15)
        root = rng.standard_normal((5, 5)) / 3 + np.eye(5)
        noise = rng.standard_normal((5, 5)) * 0.02
        matrix = root @ root.T + (noise + noise.T) / np.sqrt(2)
        means = np.array([0.0, 0.5, -1.0, 0.2, 2.0])
        return MomentEvidence(NoisyCovariance(tuple("abcde"), matrix, 0.02, 2000.0, 0.02 * np.sqrt(5), means))


class TestMomentsOfAConstantColumn(IndependenceContract):
    constant = 2

    def make(self) -> Independence:
        root = np.random.default_rng(16).standard_normal((5, 5))
        root[2] = 0.0
        matrix = root @ root.T
        matrix[2, 2] = 1e-9
        return MomentEvidence(NoisyCovariance(tuple("abcde"), matrix, 0.0, 2000.0, 0.0, np.zeros(5)))


class TestOracle(IndependenceContract):
    @pytest.fixture(autouse=True)
    def keep(self, oracle: type) -> None:
        self.kind = oracle

    def make(self) -> Independence:
        edges = frozenset({("a", "b"), ("b", "c"), ("d", "c"), ("d", "e")})
        return self.kind(Dag(tuple("abcde"), edges))


def test_a_batch_with_sets_of_two_sizes_is_refused() -> None:
    with pytest.raises(EvidenceError, match="sets of 0 and of 1 columns"):
        Questions.of([(0, 1, ()), (0, 1, (2,))])
