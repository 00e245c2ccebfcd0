"""The log Bayes factor of dependence against the densities that it compares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dagveil.evidence.moments import MomentEvidence, NoisyCovariance
from dagveil.evidence.questions import Questions
from dagveil.evidence.wald import EXPECTED_EFFECT, Wald


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
