"""Scores from evidence: the penalty against its definition, gains against plain likelihoods, and what noise does."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from simulated_tables import EXACT, count, draw_codes, release

from dagveil.errors import EvidenceError
from dagveil.evidence.bundle import marginal_evidence
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Questions
from dagveil.evidence.scores import (
    LEFT_BEHIND,
    MOMENT_WEIGHT,
    EvidenceScore,
    lenient_score,
    moment_penalties,
    noise_aware_score,
    table_penalties,
)
from dagveil.evidence.tables import NoisyTable

LEVELS = {"a": 2, "b": 3, "c": 2, "d": 4}
PAIRS = list(combinations(LEVELS, 2))


def pairs_of(n_rows: int, variance: float, seed: int) -> PairEvidence:
    rng = np.random.default_rng(seed)
    codes = draw_codes(n_rows, rng, LEVELS)
    return marginal_evidence(tuple(LEVELS), release(codes, LEVELS, PAIRS, variance, rng))


def test_without_noise_the_penalty_is_that_of_bic() -> None:
    penalties = table_penalties(pairs_of(5000, EXACT, 1))
    freedom = np.outer([1, 2, 1, 3], [1, 2, 1, 3]) * (1 - np.eye(4))
    np.testing.assert_allclose(penalties, freedom * np.log(5001), rtol=1e-6)


@pytest.mark.parametrize("variance", [1.0, 100.0, 10_000.0])
def test_the_penalty_is_a_determinant(variance: float) -> None:
    """ln det(I + n C⁻¹ Σ) from the covariance matrices of the tests themselves, Σ being n times the sampling part."""
    evidence = pairs_of(20_000, variance, 2)
    penalties = table_penalties(evidence)
    n = evidence.covariance.n_rows
    for x, y in combinations(range(4), 2):
        wald = evidence.wald(Questions.of([(x, y, ())]))
        ratio = np.linalg.solve(wald.covariance[0], n * wald.sampling[0])
        slow = np.linalg.slogdet(np.eye(len(ratio)) + ratio)[1]
        assert penalties[x, y] == pytest.approx(slow, rel=1e-6)
        assert penalties[y, x] == penalties[x, y]


def test_noise_makes_the_penalty_smaller() -> None:
    found = [table_penalties(pairs_of(20_000, v, 3))[1, 3] for v in (EXACT, 100.0, 10_000.0, 1e6)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] - 1


def test_moment_penalties_count_the_rows_that_would_tell_as_much() -> None:
    matrix = np.array([[1.0, 0.3], [0.3, 4.0]])
    exact, noisy = (
        moment_penalties(NoisyCovariance(("x", "y"), matrix, deviation, 999.0, 0.0, np.zeros(2)))[0, 1]
        for deviation in (0.0, 0.1)
    )
    assert exact == pytest.approx(np.log(1000))
    # a correlation has the variance 1/n by sampling and σ²/(v_x v_y) by noise
    assert noisy == pytest.approx(np.log1p(1 / (1 / 999 + 0.01 / 4)))


def likelihood_gain(codes: dict[str, np.ndarray], x: str, y: str, given: tuple[str, ...]) -> float:
    """Twice the gain in log-likelihood of the full table, by counting."""
    table = count(codes, LEVELS, (*given, x, y)).reshape(-1, LEVELS[x], LEVELS[y])
    expected = table.sum(axis=2, keepdims=True) * table.sum(axis=1, keepdims=True)
    expected = expected / np.maximum(table.sum(axis=(1, 2), keepdims=True), 1)
    seen = table > 0
    return float(2 * np.sum(table[seen] * np.log(table[seen] / expected[seen])))


def test_gains_are_those_of_the_likelihood() -> None:
    """Without noise and with weak dependence, T is the G statistic to first order, and the gain is BIC's."""
    rng = np.random.default_rng(4)
    n = 40_000
    codes = {name: rng.integers(0, levels, n) for name, levels in LEVELS.items()}
    follow = rng.random(n) < 0.08
    codes["c"] = np.where(follow, codes["a"], codes["c"])
    evidence = marginal_evidence(tuple(LEVELS), release(codes, LEVELS, PAIRS, EXACT))
    score = noise_aware_score(evidence)
    for given in ((), (3,)):
        gain = score.gains(Questions.of([(0, 2, given)]))[0]
        slow = (likelihood_gain(codes, "a", "c", ()) - np.log(n + 1)) / 2
        assert gain == pytest.approx(slow, rel=0.05)
        assert gain > 50
    assert score.gains(Questions.of([(0, 1, ())]))[0] < 0


@pytest.mark.parametrize("kind", ["pairs", "joint", "moments"])
def test_gains_do_not_depend_on_the_direction(kind: str) -> None:
    rng = np.random.default_rng(5)
    if kind == "moments":
        rows = rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4))
        evidence: MomentEvidence | PairEvidence | JointEvidence = MomentEvidence(
            NoisyCovariance(tuple(LEVELS), np.cov(rows.T), 0.01, 500.0, 0.02, np.zeros(4))
        )
    elif kind == "pairs":
        evidence = pairs_of(3000, 25.0, 5)
    else:
        counts = count(draw_codes(3000, rng, LEVELS), LEVELS, tuple(LEVELS))
        noise = 2.0 * rng.standard_normal(counts.shape)
        evidence = JointEvidence(NoisyTable(tuple(LEVELS), counts + noise, 4.0))
    score = noise_aware_score(evidence)
    for x, y in combinations(range(4), 2):
        rest = tuple(sorted({0, 1, 2, 3} - {x, y}))
        for given in ((), rest[:1], rest):
            there, back = (score.gains(Questions.of([(a, b, given)]))[0] for a, b in ((x, y), (y, x)))
            assert there == pytest.approx(back, rel=1e-6, abs=1e-8)


def test_a_score_is_the_sum_of_its_gains() -> None:
    score = noise_aware_score(pairs_of(3000, 25.0, 6))
    assert score.score(1, ()) == 0.0
    steps = [(1, 0, ()), (1, 2, (0,)), (1, 3, (0, 2))]
    total = sum(float(score.gains(Questions.of([step]))[0]) for step in steps)
    assert score.score(1, (3, 0, 2)) == pytest.approx(total)


def test_only_main_effects_of_several_columns_are_distrusted() -> None:
    evidence = pairs_of(50_000, 1.0, 7)
    trusting = EvidenceScore(evidence, table_penalties(evidence), left_behind=0.0)
    cautious = noise_aware_score(evidence)
    one, two = Questions.of([(0, 1, (2,))]), Questions.of([(0, 1, (2, 3))])
    np.testing.assert_allclose(cautious.gains(one), trusting.gains(one))
    n, t = evidence.covariance.n_rows, evidence.test(two).statistic[0]
    lowered = n * max(np.sqrt(t / n) - LEFT_BEHIND, 0.0) ** 2
    assert cautious.gains(two)[0] == pytest.approx(trusting.gains(two)[0] - (t - lowered) / 2)
    assert lowered < t
    counts = count(draw_codes(50_000, np.random.default_rng(7), LEVELS), LEVELS, tuple(LEVELS))
    whole = JointEvidence(NoisyTable(tuple(LEVELS), counts, 1.0))
    direct = (whole.test(two).statistic - table_penalties(PairEvidence(whole.covariance))[0, 1]) / 2
    np.testing.assert_allclose(noise_aware_score(whole).gains(two), direct)


def test_moments_are_taken_at_their_word_but_weighed_more_heavily() -> None:
    covariance = NoisyCovariance(("x", "y", "z"), np.eye(3) * 0.9 + 0.1, 0.001, 5000.0, 0.0, np.zeros(3))
    evidence = MomentEvidence(covariance)
    score = noise_aware_score(evidence)
    question = Questions.of([(0, 1, (2,))])
    expected = (evidence.test(question).statistic - MOMENT_WEIGHT * moment_penalties(covariance)[0, 1]) / 2
    np.testing.assert_allclose(score.gains(question), expected)


@pytest.mark.parametrize("variance", [1.0, 400.0])
def test_noise_alone_hardly_ever_gains(variance: float) -> None:
    rng = np.random.default_rng(8)
    gains = []
    for _ in range(60):
        codes = {name: rng.integers(0, levels, 4000) for name, levels in LEVELS.items()}
        score = noise_aware_score(marginal_evidence(tuple(LEVELS), release(codes, LEVELS, PAIRS, variance, rng)))
        gains += score.gains(Questions.of([(x, y, ()) for x, y in combinations(range(4), 2)])).tolist()
    assert np.mean(np.array(gains) > 0) < 0.01


def test_what_was_not_released_is_not_known() -> None:
    codes = draw_codes(2000, np.random.default_rng(9), LEVELS)
    evidence = marginal_evidence(tuple(LEVELS), release(codes, LEVELS, PAIRS[1:], 1.0))
    gains = noise_aware_score(evidence).gains(Questions.of([(0, 1, ()), (0, 2, ())]))
    assert np.isnan(gains[0])
    assert np.isfinite(gains[1])


def test_a_lenient_score_asks_for_no_more() -> None:
    score = noise_aware_score(pairs_of(20_000, 4.0, 10))
    lenient = lenient_score(score, 0.01)
    apart = ~np.eye(4, dtype=bool)
    assert (lenient.penalties[apart] < score.penalties[apart]).all()
    assert lenient.penalties[0, 2] == pytest.approx(6.6349, abs=1e-3)
    np.testing.assert_allclose(lenient_score(score, 1e-300).penalties[apart], score.penalties[apart])


def test_evidence_without_noise_scales_is_refused(oracle: type) -> None:
    from dagveil.graphs.cpdag import Dag

    with pytest.raises(EvidenceError, match="noise scales"):
        noise_aware_score(oracle(Dag(("a", "b"), frozenset())))
