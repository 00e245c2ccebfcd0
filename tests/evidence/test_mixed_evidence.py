"""Tests on moments of levels beside numbers: against features alone, against simulated noise, and their level."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from independence_contract import IndependenceContract

from dagveil.data.mixed import MixedPlan
from dagveil.data.moments import Basis, FeaturePlan, quantise_rows
from dagveil.evidence.blocks import covariance_from_features, covariance_from_mixed
from dagveil.evidence.bundle import independence_from
from dagveil.evidence.mixed import FeatureEvidence, MixedEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.wald import NO_SLACK
from dagveil.files import decode_json, encode_json
from dagveil.privacy.release import NoisyFeatureMoments, NoisyMixedMoments, Release

NAMES = ("colour", "x", "smokes", "y", "z")


def release(
    plan: MixedPlan, columns: list[np.ndarray], deviation: float, rng: np.random.Generator
) -> NoisyMixedMoments:
    """Moments with noise of a deviation in the units of the coordinates, as a curator would release them."""
    vectors = quantise_rows(plan.expand(columns).T, plan.rows).astype(object)
    size = vectors.shape[1]
    noise = rng.standard_normal((size, size)) * deviation * 4.0**plan.bits / np.sqrt(2.0)
    exact = (vectors.T @ vectors).astype(float) + noise + noise.T
    variance = Fraction((deviation * 4.0**plan.bits) ** 2)
    values = tuple(round(value) for value in exact[np.triu_indices(size)])
    fields = plan.levels, plan.sizes, plan.steps, plan.numbers, plan.centers, plan.widths, plan.degrees
    ball = plan.radius_squared, plan.constant, plan.bits
    return NoisyMixedMoments(*fields, *ball, variance, 2 * variance, values, plan.marked)


def draw(n: int, rng: np.random.Generator, *, joined: bool = True) -> list[np.ndarray]:
    """Return codes of colour and smokes, then x, y and z: colour → x → smokes, and y ← x → z where they are joined."""
    link = 1.0 if joined else 0.0
    colour = rng.choice(4, n, p=(0.4, 0.3, 0.2, 0.1))
    x = 0.5 * link * (colour - 1.0) + rng.standard_normal(n)
    smokes = (rng.random(n) < 1 / (1 + np.exp(-link * x))).astype(float)
    y, z = 0.6 * link * x + rng.standard_normal((2, n))
    return [colour.astype(float), smokes, x, y, z]


def make_plan(degree: int) -> MixedPlan:
    reach = 1.0 if degree == 1 else 3.0
    numbers = ("x", "y", "z")
    return MixedPlan(("colour", "smokes"), (4, 2), numbers, (0.1,) * 3, (reach,) * 3, (degree,) * 3, 100.0, 2.0, 10)


def make(n: int, degree: int, deviation: float, seed: int, *, joined: bool = True) -> MixedEvidence:
    rng = np.random.default_rng(seed)
    released = release(make_plan(degree), draw(n, rng, joined=joined), deviation, rng)
    return MixedEvidence(covariance_from_mixed(released, NAMES))


class TestMixedEvidence(IndependenceContract):
    def make(self) -> Independence:
        return make(4000, 2, 20.0, 1)


def test_columns_come_in_the_order_asked_for_and_levels_have_blocks_of_their_size() -> None:
    evidence = make(4000, 2, 20.0, 1)
    assert evidence.columns == NAMES
    assert evidence.covariance.sizes == (3, 2, 1, 2, 2)
    answers = evidence.test(Questions.of([(0, 1, ()), (0, 2, ()), (1, 3, ())]))
    assert answers.freedom.tolist() == [6.0, 3.0, 4.0]


def test_dependence_is_seen_and_separated() -> None:
    evidence = make(20_000, 1, 50.0, 2)
    colour, x, smokes, y, z = range(5)
    joined = evidence.test(
        Questions.of([(colour, x, ()), (x, smokes, ()), (x, y, ()), (colour, smokes, ()), (y, z, ())])
    )
    assert (joined.p_value < 1e-3).all()
    given = Questions.of([(colour, smokes, (x,)), (y, z, (x,)), (colour, y, (x,)), (smokes, z, (x,))])
    assert (evidence.test(given).p_value > 0.05).all()
    assert (evidence.odds(given) < 0).all()
    still = Questions.of([(colour, x, (smokes,)), (x, y, (colour,)), (x, z, (smokes,))])
    assert (evidence.test(still).p_value < 1e-3).all()
    assert (evidence.odds(still) > 0).all()


def test_without_levels_the_tests_are_those_of_features() -> None:
    rng = np.random.default_rng(3)
    numbers = draw(3000, rng)[2:]
    names = ("x", "y", "z")
    plan = MixedPlan((), (), names, (0.0,) * 3, (3.0,) * 3, (2,) * 3, 100.0, 2.0, 10)
    mixed = release(plan, numbers, 30.0, rng)
    twin = FeaturePlan(names, (0.0,) * 3, (3.0,) * 3, Basis.LEGENDRE, 2, 100.0, 2.0, 10)
    scales = twin.columns, twin.centers, twin.reaches, "legendre", 2, 100.0, 2.0, 10
    features = NoisyFeatureMoments(*scales, mixed.variance, mixed.diagonal_variance, mixed.values)
    one = MixedEvidence(covariance_from_mixed(mixed, names))
    other = FeatureEvidence(covariance_from_features(features))
    for asked in ([(0, 1, ()), (1, 2, ()), (0, 2, ())], [(0, 1, (2,)), (1, 2, (0,))]):
        questions = Questions.of(asked)
        np.testing.assert_allclose(one.test(questions).statistic, other.test(questions).statistic, rtol=1e-6)
        np.testing.assert_allclose(one.test(questions).p_value, other.test(questions).p_value, rtol=1e-6, atol=1e-12)
        bare = MixedEvidence(one.covariance, NO_SLACK)
        np.testing.assert_allclose(bare.odds(questions), other.odds(questions), rtol=1e-6)
        np.testing.assert_allclose(one.strength(questions), other.strength(questions), rtol=1e-6)
    np.testing.assert_allclose(one.association(), other.association(), rtol=1e-6)


def test_odds_do_not_count_what_tests_let_pass() -> None:
    """With many rows a little dependence is certain, and still as good as none."""
    rng = np.random.default_rng(4)
    plan = MixedPlan(("a",), (2,), ("x", "z"), (0.0,) * 2, (1.0,) * 2, (1,) * 2, 100.0, 2.0, 10)
    a = rng.integers(0, 2, 200_000).astype(float)
    columns = [a, 0.06 * a + rng.standard_normal(len(a)), rng.standard_normal(len(a))]
    covariance = covariance_from_mixed(release(plan, columns, 1.0, rng), ("a", "x", "z"))
    question = Questions.of([(0, 1, (2,))])
    assert MixedEvidence(covariance, NO_SLACK).odds(question)[0] > 5
    assert MixedEvidence(covariance).odds(question)[0] < 0
    assert MixedEvidence(covariance).test(question).p_value[0] > 0.05


@pytest.mark.parametrize("deviation", [0.5, 60.0])
def test_the_level_holds_without_dependence(deviation: float) -> None:
    """Without slack, p-values of marginal and conditional questions are uniform: noise is all accounted for."""
    rng = np.random.default_rng(5)
    plan = make_plan(1)
    asked = [
        Questions.of([(0, 1, ()), (0, 2, ()), (1, 3, ())]),
        Questions.of([(0, 1, (2,)), (1, 3, (0,)), (0, 2, (1,))]),
    ]
    p_values: list[np.ndarray] = []
    for _ in range(150):
        released = release(plan, draw(2000, rng, joined=False), deviation, rng)
        evidence = MixedEvidence(covariance_from_mixed(released, NAMES), NO_SLACK)
        p_values.append(np.concatenate([evidence.test(questions).p_value for questions in asked]))
    rejected = (np.stack(p_values) < 0.05).mean()
    # 900 tests, which share noise: the deviation of the share is about 0.009
    assert 0.015 < rejected < 0.085


def test_nulls_look_like_releases_without_dependence() -> None:
    evidence = make(2000, 1, 60.0, 6, joined=False)
    x, y = np.triu_indices(5, 1)
    questions = Questions(x, y, np.empty((10, 0), dtype=np.intp))
    drawn = evidence.null_p_values(questions, 100, np.random.default_rng(1))
    assert drawn.shape == (100, 10)
    assert (drawn < 0.1).mean() < 0.14


def test_redraws_keep_what_is_strong_and_do_not_add_noise_twice() -> None:
    evidence = make(20_000, 2, 60.0, 7)
    rng = np.random.default_rng(1)
    strong, none = Questions.of([(0, 1, ()), (1, 3, ())]), make(20_000, 2, 60.0, 8, joined=False)
    for _ in range(5):
        assert (evidence.redraw(rng).test(strong).p_value < 1e-3).all()
    x, y = np.triu_indices(5, 1)
    pairs = Questions(x, y, np.empty((10, 0), dtype=np.intp))
    found = np.mean([(none.redraw(rng).test(pairs).p_value < 0.01).mean() for _ in range(20)])
    assert found < 0.1


def test_rare_and_empty_levels_are_merged() -> None:
    rng = np.random.default_rng(9)
    plan = MixedPlan(("colour",), (30,), ("x",), (0.0,), (1.0,), (1,), 100.0, 2.0, 10)
    columns = [rng.integers(0, 3, 5000).astype(float), rng.standard_normal(5000)]
    covariance = covariance_from_mixed(release(plan, columns, 5.0, rng), ("colour", "x"))
    assert covariance.sizes == (2, 1)
    shares = covariance.shares[0]
    assert shares is not None
    np.testing.assert_allclose(shares, 1 / 3, atol=0.05)


def test_a_column_of_one_level_depends_on_nothing() -> None:
    rng = np.random.default_rng(10)
    plan = MixedPlan(("one",), (1,), ("x", "y"), (0.0,) * 2, (1.0,) * 2, (1,) * 2, 100.0, 2.0, 10)
    released = release(plan, [np.zeros(500), *rng.standard_normal((2, 500))], 5.0, rng)
    evidence = MixedEvidence(covariance_from_mixed(released, ("one", "x", "y")))
    assert evidence.test(Questions.of([(0, 1, ()), (0, 2, ())])).p_value.tolist() == [1.0, 1.0]
    assert np.isfinite(evidence.test(Questions.of([(1, 2, (0,))])).p_value).all()
    assert evidence.redraw(rng).columns == ("one", "x", "y")


def test_a_release_survives_json_and_gives_tests() -> None:
    rng = np.random.default_rng(11)
    released = release(make_plan(2), draw(500, rng), 5.0, rng)
    back = decode_json(encode_json((released,)), tuple[Release, ...])
    assert back == (released,)
    assert isinstance(independence_from(NAMES, back), MixedEvidence)
