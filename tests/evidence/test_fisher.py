"""Noisy moments: the covariance that they give, Fisher's z on it, and how it bears noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dagveil.evidence.moments import MomentEvidence, NoisyCovariance, covariance_from_moments
from dagveil.evidence.questions import Questions
from dagveil.privacy.release import NoisyMoments


def residual(y: np.ndarray, given: np.ndarray) -> np.ndarray:
    """What least squares leaves of a column."""
    design = np.column_stack([np.ones(len(y)), given])
    return y - design @ np.linalg.lstsq(design, y, rcond=None)[0]


def draw_rows(n_rows: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n_rows, d)) @ (np.eye(d) + 0.4 * np.triu(rng.standard_normal((d, d)), 1))


def release_moments(rows: np.ndarray, constant: float, bits: int, variance: int = 0) -> NoisyMoments:
    full = np.column_stack([np.full(len(rows), constant), rows])
    moments = np.rint(full.T @ full * 4**bits)[np.triu_indices(full.shape[1])]
    d = rows.shape[1]
    return NoisyMoments(
        tuple(f"x{k}" for k in range(d)),
        (0.0,) * d,
        (1.0,) * d,
        1e6,
        constant,
        bits,
        Fraction(max(variance, 1)),
        Fraction(2 * max(variance, 1)),
        tuple(int(value) for value in moments),
    )


def test_moments_become_the_covariance() -> None:
    rows = draw_rows(700, 4, np.random.default_rng(1)) + 0.3
    covariance = covariance_from_moments(release_moments(rows, 1.5, 20))
    assert covariance.n_rows == pytest.approx(700)
    np.testing.assert_allclose(covariance.matrix, np.cov(rows.T, bias=True), atol=1e-9)
    assert covariance.deviation == pytest.approx(1 / 4**20 / 700)


@pytest.mark.parametrize("given", [(), (2,), (2, 3), (2, 3, 4)])
def test_without_noise_it_is_fishers_z(given: tuple[int, ...]) -> None:
    rows = draw_rows(300, 5, np.random.default_rng(2))
    matrix = np.cov(rows.T, bias=True)
    evidence = MomentEvidence(NoisyCovariance(tuple("abcde"), matrix, 0.0, 300.0, 0.0, np.zeros(5)))
    question = Questions.of([(0, 1, given)])
    x, y = residual(rows[:, 0], rows[:, list(given)]), residual(rows[:, 1], rows[:, list(given)])
    r = float(stats.pearsonr(x, y).statistic)
    z = np.arctanh(r) * np.sqrt(300 - len(given) - 3)
    answers = evidence.test(question)
    assert evidence.strength(question)[0] == pytest.approx(r**2, rel=1e-8)
    assert answers.statistic[0] == pytest.approx(z**2, rel=1e-6)
    assert answers.p_value[0] == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-5)


REPLICATES = 200
N_ROWS = 1000


def null_p_values(deviation: float, ridge: float, rng: np.random.Generator) -> np.ndarray:
    """p-values of (x, y, given z) for x ← z → y, in many replicates that share one large matrix."""
    found = []
    for _ in range(10):
        z = rng.standard_normal((REPLICATES, N_ROWS))
        x = 0.7 * z + rng.standard_normal(z.shape)
        y = -0.5 * z + rng.standard_normal(z.shape)
        columns = np.stack([x, y, z], axis=1)
        columns -= columns.mean(axis=2, keepdims=True)
        own = np.einsum("rin,rjn->rij", columns, columns) / N_ROWS
        noise = rng.standard_normal(own.shape)
        own += deviation * (noise + noise.transpose(0, 2, 1)) / np.sqrt(2)
        d = 3 * REPLICATES
        matrix = np.zeros((d, d))
        for r in range(REPLICATES):
            matrix[3 * r : 3 * r + 3, 3 * r : 3 * r + 3] = own[r]
        names = tuple(f"c{k}" for k in range(d))
        evidence = MomentEvidence(NoisyCovariance(names, matrix, deviation, float(N_ROWS), ridge, np.zeros(d)))
        asked = Questions.of([(3 * r, 3 * r + 1, (3 * r + 2,)) for r in range(REPLICATES)])
        found.append(evidence.test(asked).p_value)
    return np.concatenate(found)


@pytest.mark.parametrize("deviation", [0.0, 0.02, 0.05])
def test_noise_does_not_move_the_level(deviation: float) -> None:
    p = null_p_values(deviation, 0.0, np.random.default_rng(3))
    # 2000 replicates: three standard errors at 5 % are 1.5 %
    assert 0.033 < (p < 0.05).mean() < 0.068
    assert 0.45 < np.median(p) < 0.55


def test_the_noise_term_is_needed() -> None:
    """Told that there is no noise, the same test rejects far too often."""
    rng = np.random.default_rng(4)
    matrix_noise = 0.05
    p = null_p_values(matrix_noise, 0.0, rng)
    naive = null_naive(matrix_noise, np.random.default_rng(4))
    assert (p < 0.05).mean() < 0.07
    assert (naive < 0.05).mean() > 0.15


def null_naive(deviation: float, rng: np.random.Generator) -> np.ndarray:
    """The test above, with a stated deviation of 0."""
    found = []
    for _ in range(400):
        z = rng.standard_normal(N_ROWS)
        rows = np.stack([0.7 * z + rng.standard_normal(N_ROWS), -0.5 * z + rng.standard_normal(N_ROWS), z])
        noise = rng.standard_normal((3, 3))
        matrix = np.cov(rows, bias=True) + deviation * (noise + noise.T) / np.sqrt(2)
        evidence = MomentEvidence(NoisyCovariance(tuple("xyz"), matrix, 0.0, float(N_ROWS), 0.0, np.zeros(3)))
        found.append(evidence.test(Questions.of([(0, 1, (2,))])).p_value[0])
    return np.array(found)


def test_the_noise_term_is_the_variance_of_a_bilinear_form() -> None:
    """uᵀEv has variance σ²(|u|²|v|² + (uᵀv)²) for symmetric E with deviation σ off the diagonal and √2 σ on it."""
    rng = np.random.default_rng(6)
    u, v = rng.standard_normal((2, 4))
    gauss = rng.standard_normal((200_000, 4, 4))
    symmetric = 0.3 * (gauss + gauss.transpose(0, 2, 1)) / np.sqrt(2)
    assert symmetric[:, 0, 1].std() == pytest.approx(0.3, rel=0.01)
    assert symmetric[:, 0, 0].std() == pytest.approx(0.3 * np.sqrt(2), rel=0.01)
    found = np.einsum("i,nij,j->n", u, symmetric, v).var()
    assert found == pytest.approx(0.09 * (u @ u * (v @ v) + (u @ v) ** 2), rel=0.02)


def test_dependence_is_seen_through_noise() -> None:
    rng = np.random.default_rng(5)
    z = rng.standard_normal(5000)
    rows = np.stack([z + rng.standard_normal(5000), z + rng.standard_normal(5000), z])
    rows[1] += 0.3 * rows[0]
    noise = rng.standard_normal((3, 3))
    matrix = np.cov(rows, bias=True) + 0.01 * (noise + noise.T) / np.sqrt(2)
    evidence = MomentEvidence(NoisyCovariance(tuple("xyz"), matrix, 0.01, 5000.0, 0.0, np.zeros(3)))
    assert evidence.test(Questions.of([(0, 1, (2,))])).p_value[0] < 1e-6


def test_redraws_have_the_stated_variance() -> None:
    """Fresh noise σ² plus fresh sampling, (m_ii m_jj + m_ij²)/n off the diagonal."""
    matrix = np.array([[1.0, 0.4], [0.4, 2.0]])
    covariance = NoisyCovariance(("x", "y"), matrix, 0.03, 400.0, 0.0, np.zeros(2))
    rng = np.random.default_rng(7)
    draws = np.array([covariance.redraw(rng).matrix for _ in range(10_000)])
    np.testing.assert_allclose(draws, draws.transpose(0, 2, 1), rtol=1e-12)
    sampling = (np.outer(np.diag(matrix), np.diag(matrix)) + matrix**2) / 400
    noise = 0.03**2 * np.array([[2.0, 1.0], [1.0, 2.0]])
    np.testing.assert_allclose(draws.var(axis=0), sampling + noise, rtol=0.05)
    np.testing.assert_allclose(draws.mean(axis=0), matrix, atol=0.004)


def test_the_ridge_is_for_graphs_only() -> None:
    """With a ridge regressions shrink towards 0, so a separator no longer separates fully: the level rises."""
    plain = null_p_values(0.02, 0.0, np.random.default_rng(8))
    ridged = null_p_values(0.02, 0.3, np.random.default_rng(8))
    assert (ridged < 0.05).mean() > (plain < 0.05).mean() + 0.05


def test_extreme_noise_gives_numbers() -> None:
    rng = np.random.default_rng(9)
    noise = rng.standard_normal((6, 6)) * 50
    evidence = MomentEvidence(
        covariance_from_moments(
            NoisyMoments(
                tuple("abcde"), (0.0,) * 5, (1.0,) * 5, 4.0, 1.0, 0, Fraction(2500), Fraction(5000),
                tuple(int(value) for value in noise[np.triu_indices(6)]),
            )
        )
    )  # fmt: skip
    for given in [(), (2,), (2, 3), (2, 3, 4)]:
        p = evidence.test(Questions.of([(0, 1, given)])).p_value
        assert np.isfinite(p).all()
        assert 0 <= p[0] <= 1
