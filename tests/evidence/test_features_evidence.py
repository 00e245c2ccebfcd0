"""Tests on moments of features: against regression on rows, against simulated noise, and their level."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from independence_contract import IndependenceContract
from scipy import stats

from dagveil.data.moments import Basis, FeaturePlan
from dagveil.errors import EvidenceError
from dagveil.evidence.blocks import MixedCovariance, covariance_from_features, feature_covariance
from dagveil.evidence.mixed import Compared, FeatureEvidence, publishable_evidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.wald import NO_SLACK, SLACK
from dagveil.files import decode_json, encode_json
from dagveil.privacy.release import NoisyFeatureMoments, Release


def make_features(rows: np.ndarray, degree: int) -> np.ndarray:
    """Features (n, d k) of columns that are scaled by their own range."""
    d = rows.shape[1]
    half = np.abs(rows).max(axis=0)
    plan = FeaturePlan(tuple(f"x{i}" for i in range(d)), (0.0,) * d, tuple(half), Basis.LEGENDRE, degree, 1e3, 1.0, 4)
    return plan.expand(rows.T).T


def covary(features: np.ndarray, degree: int, deviation: float, rng: np.random.Generator) -> MixedCovariance:
    """Moments with noise of a deviation per row, as a release would hold them, centred."""
    n, width = features.shape
    full = np.column_stack([np.ones(n), features])
    noise = rng.standard_normal((width + 1, width + 1))
    moments = full.T @ full / n + deviation * (noise + noise.T) / np.sqrt(2.0)
    count = moments[0, 0]
    means = moments[0, 1:] / count
    columns = tuple(f"x{i}" for i in range(width // degree))
    matrix = moments[1:, 1:] / count - np.outer(means, means)
    return feature_covariance(columns, degree, matrix, means, deviation / count, n * count)


def draw_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return x ← z → y, nonlinear, with two more columns."""
    z, e, f, g, h = rng.uniform(-0.5, 0.5, (5, n))
    return np.column_stack([np.tanh(2 * z) + e, 3 * z**2 + f, z, g, g**2 + z + 2 * h])


class TestFeatureEvidence(IndependenceContract):
    def make(self) -> Independence:
        rng = np.random.default_rng(1)
        return FeatureEvidence(covary(make_features(draw_rows(2000, rng), 3), 3, 0.02, rng))


class TestLinearSide(IndependenceContract):
    def make(self) -> Independence:
        rng = np.random.default_rng(2)
        covariance = covary(make_features(draw_rows(2000, rng), 3), 3, 0.02, rng)
        return FeatureEvidence(covariance, NO_SLACK, Compared.LINEAR_SIDE)


class TestFeaturesOfNoise(IndependenceContract):
    """Noise that drowns everything: no test may fail on it."""

    tolerance = 1e-4

    def make(self) -> Independence:
        rng = np.random.default_rng(3)
        return FeatureEvidence(covary(make_features(draw_rows(200, rng), 2), 2, 30.0, rng))


def slow_statistic(features: np.ndarray, degree: int, x: int, y: int, given: tuple[int, ...]) -> float:
    """The Wald statistic from residuals of rows, without noise."""
    n = len(features)

    def columns(i: int) -> list[int]:
        return list(range(i * degree, (i + 1) * degree))

    design = np.column_stack([np.ones(n), features[:, [c for z in given for c in columns(z)]]])
    left = [
        block - design @ np.linalg.lstsq(design, block, rcond=None)[0]
        for block in (features[:, columns(x)], features[:, columns(y)])
    ]
    u = (left[0].T @ left[1] / n).reshape(-1)
    c = np.kron(left[0].T @ left[0] / n, left[1].T @ left[1] / n) / n
    return float(u @ np.linalg.solve(c, u))


@pytest.mark.parametrize("given", [(), (2,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_without_noise_it_is_regression_on_rows(degree: int, given: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    features = make_features(draw_rows(1500, rng), degree)
    evidence = FeatureEvidence(covary(features, degree, 0.0, rng), slack=NO_SLACK)
    answers = evidence.test(Questions.of([(0, 1, given)]))
    assert answers.statistic[0] == pytest.approx(slow_statistic(features, degree, 0, 1, given), rel=1e-6)
    assert answers.freedom[0] == degree**2
    assert answers.p_value[0] == pytest.approx(float(stats.chi2.sf(answers.statistic[0], degree**2)), rel=1e-9)


@pytest.mark.parametrize("given", [(), (2,), (2, 3)])
def test_the_covariance_of_noise_is_that_of_simulated_noise(given: tuple[int, ...]) -> None:
    """Small noise on one matrix, drawn again and again: u must scatter as the code says, mean and constant included."""
    rng = np.random.default_rng(5)
    features = make_features(draw_rows(4000, rng) + 0.2, 2)
    deviation = 1e-4
    exact = FeatureEvidence(covary(features, 2, 0.0, rng), slack=NO_SLACK)
    questions = Questions.of([(0, 1, given)])
    # in the whitened units of the exact matrix
    silent = FeatureEvidence(
        feature_covariance(exact.columns, 2, exact.covariance.matrix, exact.covariance.means, deviation, float("inf")),
        slack=NO_SLACK,
    )
    claimed = silent._spread_of(questions, silent._regress(questions))[0]
    at = exact._regress(questions).partial[0].reshape(-1)
    seen = np.array(
        [
            whiten_as(exact, covary(features, 2, deviation, rng))._regress(questions).partial[0].reshape(-1) - at
            for _ in range(1500)
        ]
    )
    found = np.cov(seen.T)
    scale = np.sqrt(np.outer(np.diag(claimed), np.diag(claimed)))
    np.testing.assert_allclose(found / scale, claimed / scale, atol=0.16)


def whiten_as(exact: FeatureEvidence, noisy: MixedCovariance) -> FeatureEvidence:
    """Return noisy evidence whose columns x and y are in the units of the exact one: only S is whitened anew."""
    d = len(exact.columns)
    evidence = FeatureEvidence(noisy, slack=NO_SLACK)
    white = [np.linalg.cholesky(c.covariance.matrix.reshape(d, 2, d, 2)[0, :, 0]) for c in (exact, evidence)]
    other = [np.linalg.cholesky(c.covariance.matrix.reshape(d, 2, d, 2)[1, :, 1]) for c in (exact, evidence)]
    left, right = (np.linalg.inv(pair[0]) @ pair[1] for pair in (white, other))
    blocks = evidence._blocks
    for i in range(d):
        blocks[0, i], blocks[i, 0] = left @ blocks[0, i], blocks[i, 0] @ left.T
    for i in range(d):
        blocks[1, i], blocks[i, 1] = right @ blocks[1, i], blocks[i, 1] @ right.T
    return evidence


REPLICATES = 250


def null_rejections(
    deviation: float, compared: Compared, given: tuple[int, ...], slack: tuple[float, float, float]
) -> float:
    """Share of p-values below 5 % for independent columns, or for x ← z → y given z."""
    rng = np.random.default_rng(6)
    below = 0
    for _ in range(REPLICATES):
        rows = draw_rows(1000, rng)
        if not given:
            rows[:, 1] = rng.permutation(rows[:, 1])
        evidence = FeatureEvidence(covary(make_features(rows, 3), 3, deviation, rng), slack, compared)
        below += int(evidence.test(Questions.of([(0, 1, given)])).p_value[0] < 0.05)
    return below / REPLICATES


@pytest.mark.parametrize(
    ("compared", "given"), [(Compared.ALL, ()), (Compared.LINEAR_SIDE, ()), (Compared.LINEAR_SIDE, (2,))]
)
@pytest.mark.parametrize("deviation", [0.0, 0.01, 0.05, 0.3])
def test_level(deviation: float, compared: Compared, given: tuple[int, ...]) -> None:
    # four standard errors above the level; with large noise tests become conservative
    assert null_rejections(deviation, compared, given, NO_SLACK) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / REPLICATES)


def test_all_features_given_a_nonlinear_cause_are_scores_and_no_levels() -> None:
    """What three features leave of z joins the squares of x and y: docs/tests.md says so, and slack forgives some."""
    strict = null_rejections(0.0, Compared.ALL, (2,), NO_SLACK)
    assert strict > 0.08
    assert null_rejections(0.0, Compared.ALL, (2,), SLACK) < 0.8 * strict


def test_a_test_that_ignores_noise_breaks_the_level() -> None:
    rng = np.random.default_rng(7)
    below = 0
    for _ in range(100):
        features = make_features(draw_rows(1000, rng)[:, [0, 3]], 2)
        noisy = covary(features, 2, 0.05, rng)
        naive = feature_covariance(noisy.columns, 2, noisy.matrix, noisy.means, 0.0, noisy.n_rows)
        below += int(FeatureEvidence(naive, slack=NO_SLACK).test(Questions.of([(0, 1, ())])).p_value[0] < 0.05)
    assert below > 30


def test_features_see_what_correlation_does_not() -> None:
    rng = np.random.default_rng(8)
    x = rng.uniform(-1.0, 1.0, 3000)
    rows = np.column_stack([x, x**2 + 0.3 * rng.standard_normal(3000)])
    question = Questions.of([(0, 1, ())])
    linear, square = (
        FeatureEvidence(covary(make_features(rows, degree), degree, 0.005, rng)).test(question).p_value[0]
        for degree in (1, 2)
    )
    assert square < 1e-6 < linear


def test_slack_lets_small_dependence_pass() -> None:
    rng = np.random.default_rng(9)
    x = rng.standard_normal(100_000)
    rows = np.column_stack([x, 0.015 * x + rng.standard_normal(100_000)])
    covariance = covary(make_features(rows, 1), 1, 0.0, rng)
    question = Questions.of([(0, 1, ())])
    strict, lenient = FeatureEvidence(covariance, slack=NO_SLACK), FeatureEvidence(covariance)
    assert strict.test(question).p_value[0] < 0.001
    assert lenient.test(question).p_value[0] > 0.05
    assert strict.test(question).statistic[0] == lenient.test(question).statistic[0]


def test_patnaik_is_close_to_the_noncentral_law() -> None:
    covariance = covary(make_features(draw_rows(5000, np.random.default_rng(10)), 2), 2, 0.0, np.random.default_rng(1))
    evidence = FeatureEvidence(covariance, slack=(0.05, 0.05, 0.05))
    question = Questions.of([(0, 1, ())])
    statistic = evidence.test(question).statistic[0]
    shift = 0.05**2 * 5000
    exact = float(stats.ncx2.sf(statistic, 4, shift))
    assert evidence.test(question).p_value[0] == pytest.approx(exact, rel=0.3, abs=0.01)


def test_redraws_scatter_as_far_as_noise_and_sampling() -> None:
    rng = np.random.default_rng(11)
    covariance = covary(make_features(draw_rows(1000, rng), 2), 2, 0.02, rng)
    moved = np.array([covariance.redraw(rng).matrix[0, 7] for _ in range(600)])
    mean = covariance.means
    noise = covariance.deviation**2 * (1 + mean[0] ** 2) * (1 + mean[7] ** 2)
    sampling = (covariance.matrix[0, 0] * covariance.matrix[7, 7] + covariance.matrix[0, 7] ** 2) / covariance.n_rows
    assert moved.var() == pytest.approx(noise + sampling, rel=0.25)


def release_of(degree: int, radius_squared: float) -> NoisyFeatureMoments:
    size = 2 * degree + 1
    identity = np.rint(1000.0 * np.eye(size) * 4**8)[np.triu_indices(size)]
    return NoisyFeatureMoments(
        ("x", "y"),
        (0.0, 0.0),
        (1.0, 1.0),
        "legendre",
        degree,
        radius_squared,
        1.0,
        8,
        Fraction(4),
        Fraction(8),
        tuple(int(value) for value in identity),
    )


def test_releases_become_covariances() -> None:
    covariance = covariance_from_features(release_of(2, 4.0))
    assert covariance.n_rows == pytest.approx(1000.0)
    np.testing.assert_allclose(covariance.matrix, np.eye(4))
    assert covariance.deviation == pytest.approx(2.0 / 4**8 / 1000.0)


def test_publishable_p_values_need_three_features_and_whole_rows() -> None:
    for degree, radius_squared in ((2, 100.0), (3, 29.0)):
        with pytest.raises(EvidenceError, match=r"degree=3 and radius=5"):
            publishable_evidence(release_of(degree, radius_squared))
    evidence = publishable_evidence(release_of(3, 30.0))
    assert (evidence.compared, evidence.slack) == (Compared.LINEAR_SIDE, NO_SLACK)
    assert evidence.test(Questions.of([(0, 1, ())])).freedom[0] == 5.0


def test_frozen_json_of_releases_still_loads() -> None:
    """Text as earlier programs wrote it: fields and tags stay."""
    features = (
        '{"type":"feature-moments","columns":["x"],"centers":[0.5],"reaches":[2.0],"basis":"legendre","degree":1,'
        '"radius_squared":3.0,"constant":1.0,"bits":1,"variance":"9/2","diagonal_variance":"9","values":[40,4,-8]}'
    )
    released = decode_json(features, Release)
    assert isinstance(released, NoisyFeatureMoments)
    assert released.variance == Fraction(9, 2)
    assert released.matrix.tolist() == [[10.0, 1.0], [1.0, -2.0]]
    assert decode_json(encode_json(released), Release) == released
    moments = (
        '{"type":"moments","columns":["x"],"centers":[0.5],"spreads":[2.0],"radius_squared":3.0,"constant":1.0,"bits":1,'
        '"variance":"9/2","diagonal_variance":"9","values":[40,4,-8]}'
    )
    assert decode_json(moments, Release).matrix.tolist() == released.matrix.tolist()  # type: ignore[union-attr]
