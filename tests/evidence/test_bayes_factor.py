"""The log Bayes factor of dependence against the densities that it compares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.questions import Questions
from dagveil.evidence.wald import EXPECTED_EFFECT, EXPECTED_SHARE, SHARE_SPREAD, Remainder, Wald


def make_wald(rng: np.random.Generator, noise: float) -> Wald:
    root = rng.standard_normal((4, 3, 5))
    sampling = root @ root.transpose(0, 2, 1) / 1000.0
    return Wald(rng.normal(0.0, 0.1, (4, 3)), sampling + noise * np.eye(3), sampling)


def test_it_is_the_ratio_of_two_densities() -> None:
    wald = make_wald(np.random.default_rng(1), 0.01)
    odds = wald.odds(1000.0)
    for i in range(4):
        wider = wald.covariance[i] + EXPECTED_EFFECT**2 * 1000.0 * wald.sampling[i]
        dependent, none = (stats.multivariate_normal(np.zeros(3), c) for c in (wider, wald.covariance[i]))
        assert odds[i] == pytest.approx(dependent.logpdf(wald.partial[i]) - none.logpdf(wald.partial[i]))


def test_a_test_that_sees_nothing_has_no_opinion() -> None:
    rng = np.random.default_rng(2)
    blind, sharp = make_wald(rng, 1e4), make_wald(rng, 1e-6)
    np.testing.assert_allclose(blind.odds(1000.0), 0.0, atol=1e-3)
    nothing = Wald(np.zeros((4, 3)), sharp.covariance, sharp.sampling)
    assert (nothing.odds(1000.0) < -1).all()


def test_moments_have_the_factor_of_one_correlation() -> None:
    matrix = np.array([[1.0, 0.1], [0.1, 1.0]])
    evidence = MomentEvidence(NoisyCovariance(("x", "y"), matrix, 0.05, 1000.0, 0.0, np.zeros(2)))
    question = Questions.of([(0, 1, ())])
    z = np.arctanh(0.1)
    variance = z**2 / evidence.test(question).statistic[0]
    dependent, none = (stats.norm(0, np.sqrt(v)) for v in (variance + EXPECTED_EFFECT**2, variance))
    assert evidence.odds(question)[0] == pytest.approx(dependent.logpdf(z) - none.logpdf(z))


class TestRemainder:
    """What a set leaves of a dependence, as a share of what it was before."""

    def test_the_share_is_generalised_least_squares(self) -> None:
        rng = np.random.default_rng(3)
        wald, before = make_wald(rng, 0.01), rng.normal(0.0, 0.5, (4, 3))
        left = wald.compare(before, np.zeros((4, 3, 3)))
        for i in range(4):
            inverse = np.linalg.inv(wald.covariance[i])
            assert left.information[i] == pytest.approx(before[i] @ inverse @ before[i])
            assert left.share[i] == pytest.approx(before[i] @ inverse @ wald.partial[i] / left.information[i])

    def test_common_errors_are_no_likeness(self) -> None:
        """Where u before and u after are one and the same noise, nothing is left on average."""
        rng = np.random.default_rng(4)
        covariance = np.broadcast_to(np.eye(6), (20_000, 6, 6))
        noise = rng.standard_normal((20_000, 6))
        wald = Wald(noise, covariance, covariance / 10)
        left, naive = (wald.compare(noise + 1.5, common) for common in (covariance, np.zeros_like(covariance)))
        assert abs(float(np.average(left.share, weights=left.information))) < 0.02
        assert float(np.average(naive.share, weights=naive.information)) > 0.2

    def test_odds_are_the_ratio_of_two_densities(self) -> None:
        left = Remainder(np.array([0.1, 0.4, -0.2]), np.array([3.0, 20.0, 9.0]), np.full(3, 10.0))
        for share, information, odds in zip(left.share, left.information, left.odds(1e9), strict=True):
            none, some = (
                stats.norm(0, information**-0.5),
                stats.norm(EXPECTED_SHARE, (information**-1 + SHARE_SPREAD**2) ** 0.5),
            )
            expected = some.logpdf(share) - none.logpdf(share) if share > 0 else -np.inf
            assert odds == pytest.approx(expected)

    def test_redraws_have_the_variance_of_the_share(self) -> None:
        left = Remainder(np.full(20_000, 0.3), np.full(20_000, 25.0), np.ones(20_000))
        drawn = left.redraw(np.random.default_rng(5)).share
        assert drawn.mean() == pytest.approx(0.3, abs=0.01)
        assert drawn.std() == pytest.approx(0.2, abs=0.01)
        nothing = Remainder(np.zeros(3), np.zeros(3), np.ones(3))
        assert (nothing.redraw(np.random.default_rng(6)).odds(1000.0) == 0.0).all()
