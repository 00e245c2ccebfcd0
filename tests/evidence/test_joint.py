"""Tests from one joint table: the contract, plain formulas, levels and power."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from independence_contract import IndependenceContract
from scipy import stats
from simulated_tables import EXACT, count, draw_codes, pooled_partial, release

from dagveil.errors import EvidenceError
from dagveil.evidence import joint
from dagveil.evidence.bundle import independence_from, marginal_evidence
from dagveil.evidence.joint import JointEvidence
from dagveil.evidence.pairs import PairEvidence
from dagveil.evidence.questions import Independence, Questions
from dagveil.evidence.strata import lay_out
from dagveil.evidence.tables import NoisyTable
from dagveil.evidence.triples import TripleEvidence
from dagveil.privacy.release import NoisyCounts

LEVELS = {"a": 2, "b": 3, "c": 2, "one": 1, "d": 4, "e": 2}


def draw_evidence(
    n_rows: int, variance: float, seed: int, levels: dict[str, int] = LEVELS, noisy: bool = True
) -> JointEvidence:
    rng = np.random.default_rng(seed)
    codes = draw_codes(n_rows, rng, levels)
    (table,) = release(codes, levels, [tuple(levels)], variance, rng if noisy else None)
    return JointEvidence(table)


class TestJointEvidence(IndependenceContract):
    constant = 3

    def make(self) -> Independence:
        return draw_evidence(3000, 9.0, 21)


class TestAConstantColumn(IndependenceContract):
    """A column that declares two levels and only ever takes one, without noise."""

    constant = 0

    def make(self) -> Independence:
        levels = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 2}
        codes = draw_codes(2000, np.random.default_rng(22), levels) | {"a": np.zeros(2000, dtype=np.intp)}
        return JointEvidence(release(codes, levels, [tuple(levels)], EXACT)[0])


class TestATableOfNoise(IndependenceContract):
    """Noise that drowns everything: no test may fail on it."""

    def make(self) -> Independence:
        return draw_evidence(50, 1e6, 23)


class TestManyLevels(IndependenceContract):
    """Columns whose rare levels are merged, so that cells carry different noise."""

    def make(self) -> Independence:
        return draw_evidence(20_000, 4.0, 24, {"a": 2, "b": 11, "c": 3, "d": 9, "e": 2})


# --- plain formulas ---------------------------------------------------------------------------------------------------


def plain_cmh(strata: np.ndarray) -> float:
    """Cochran, Mantel and Haenszel for tables without noise, one stratum after the other; axes z, x, y."""
    a, b = strata.shape[1] - 1, strata.shape[2] - 1
    total, covariance = np.zeros((a, b)), np.zeros((a * b, a * b))
    for table in strata:
        n, p, q = table.sum(), table.sum(axis=1) / table.sum(), table.sum(axis=0) / table.sum()
        total += (table - n * np.outer(p, q))[:a, :b]
        within = [(np.diag(s) - np.outer(s, s))[:-1, :-1] for s in (p, q)]
        covariance += n * np.kron(*within)
    return float(total.reshape(-1) @ np.linalg.solve(covariance, total.reshape(-1)))


@pytest.mark.parametrize("given", [(), (2,), (2, 4), (1, 2, 5)])
def test_without_noise_it_is_the_cmh_test(given: tuple[int, ...]) -> None:
    codes = draw_codes(40_000, np.random.default_rng(1), LEVELS)
    names = list(LEVELS)
    evidence = draw_evidence(40_000, EXACT, 1, noisy=False)
    for x, y in combinations([k for k in range(6) if k not in (*given, 3)], 2):
        table = count(codes, LEVELS, tuple(names[k] for k in (*given, x, y)))
        strata = table.reshape(-1, *table.shape[-2:])
        answer = evidence.test(Questions.of([(x, y, given)]))
        np.testing.assert_allclose(answer.statistic[0], plain_cmh(strata), rtol=1e-5)
        assert answer.freedom[0] == (strata.shape[1] - 1) * (strata.shape[2] - 1)


def test_strengths_are_pooled_partial_covariances() -> None:
    codes = draw_codes(30_000, np.random.default_rng(2), LEVELS)
    evidence = draw_evidence(30_000, EXACT, 2, noisy=False)
    table = count(codes, LEVELS, ("a", "b", "c"))
    whiten = []
    for margin in (table.sum(axis=(1, 2)), table.sum(axis=(0, 2))):
        p = (margin / margin.sum())[:-1]
        whiten.append(np.linalg.inv(np.linalg.cholesky(np.diag(p) - np.outer(p, p))))
    expected = whiten[0] @ pooled_partial(table)[:-1, :-1] @ whiten[1].T
    strength = evidence.strength(Questions.of([(0, 1, (2,))]))
    np.testing.assert_allclose(strength, (expected**2).sum(), rtol=1e-5)


def test_other_evidence_agrees() -> None:
    """Without noise the tests from pairs and triples are the same tests, up to how rare cells are treated."""
    codes = draw_codes(30_000, np.random.default_rng(3), LEVELS)
    names = [name for name in LEVELS if name != "one"]
    sets = [*combinations(names, 2), *combinations(names, 3)]
    other = marginal_evidence(names, release(codes, LEVELS, sets, EXACT))
    assert isinstance(other, TripleEvidence)
    one = JointEvidence(release(codes, LEVELS, [tuple(names)], EXACT)[0])
    for order in range(3):
        questions = Questions.of(
            [
                (x, y, given)
                for x, y in combinations(range(5), 2)
                for given in combinations([z for z in range(5) if z not in (x, y)], order)
            ]
        )
        np.testing.assert_allclose(one.test(questions).statistic, other.test(questions).statistic, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(one.association(), other.association(), atol=1e-6)


@pytest.mark.parametrize(("n_rows", "variance"), [(3000, 9.0), (50, 1e6)])
@pytest.mark.parametrize("order", range(4))
def test_all_at_once_is_one_after_the_other(
    order: int, n_rows: int, variance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small questions are answered together and remembered; alone, and without memory, answers are the same.

    Where noise drowns everything all strata count, so that those which only fill up must have none.
    """
    for levels in (LEVELS, dict.fromkeys("abcdef", 2), {"a": 2, "b": 11, "c": 3, "d": 9}):
        asked = [
            (x, y, given)
            for x, y in combinations(range(len(levels)), 2)
            for given in combinations([z for z in range(len(levels)) if z not in (x, y)], order)
        ]
        together = draw_evidence(n_rows, variance, 25, levels)
        questions = Questions.of([*asked, *asked[::-1]])
        answers, strength = together.test(questions), together.strength(questions)
        with monkeypatch.context() as patch:
            patch.setattr(joint, "ANSWERS_REMEMBERED", 0)
            alone = draw_evidence(n_rows, variance, 25, levels)
            for row in range(0, len(asked), 3):
                one = Questions.of([asked[row]])
                for twin in (row, len(questions) - 1 - row):
                    np.testing.assert_allclose(answers.statistic[twin], alone.test(one).statistic[0], rtol=1e-8)
                    np.testing.assert_allclose(answers.p_value[twin], alone.test(one).p_value[0], rtol=1e-7)
                    np.testing.assert_allclose(strength[twin], alone.strength(one)[0], rtol=1e-8, atol=1e-15)
        np.testing.assert_allclose(
            answers.p_value[answers.freedom > 0],
            stats.chi2.sf(answers.statistic, answers.freedom)[answers.freedom > 0],
            rtol=1e-9,
        )


def test_batches_may_overlap() -> None:
    asked = [(0, 1, (2, 4, 5)), (1, 4, (0, 2, 5)), (0, 5, (1, 2, 4))]
    fresh, evidence = draw_evidence(3000, 9.0, 27), draw_evidence(3000, 9.0, 27)
    evidence.test(Questions.of(asked[:1]))
    answers, whole = evidence.test(Questions.of(asked)), fresh.test(Questions.of(asked))
    np.testing.assert_allclose(answers.statistic, whole.statistic)
    np.testing.assert_allclose(answers.p_value, whole.p_value)


def test_what_a_redraw_answers_is_its_own() -> None:
    questions = Questions.of([(0, 1, ()), (1, 4, ())])
    evidence = draw_evidence(3000, 9.0, 26)
    before = evidence.test(questions).statistic
    assert not np.isclose(evidence.redraw(np.random.default_rng(1)).test(questions).statistic, before).any()
    np.testing.assert_array_equal(evidence.test(questions).statistic, before)


def test_noise_has_the_covariance_that_the_test_uses() -> None:
    """Tables with noise and no sampling: T is on average what the noise's share of C says, merged levels included."""
    rng = np.random.default_rng(5)
    y_law = np.array([0.3, 0.3, *([0.4 / 12] * 12)])
    law = np.einsum("x,y,z->xyz", [0.3, 0.7], y_law, rng.dirichlet(np.full(3, 5.0)))
    question = Questions.of([(0, 1, (2,))])
    deviation, ratios, shares = 60.0, [], []
    for _ in range(400):
        counts = 50_000 * law + deviation * rng.standard_normal(law.shape)
        evidence = JointEvidence(NoisyTable(("x", "y", "z"), counts, deviation**2))
        wald = evidence._pool(*lay_out(question, evidence._levels, evidence._margins))
        assert wald.partial.shape[1] < 13  # levels of y were merged
        ratios.append(wald.statistic()[0] / wald.partial.shape[1])
        shares.append(1.0 - wald.efficiency()[0])
    assert 0.2 < np.mean(shares) < 0.95
    assert np.mean(ratios) == pytest.approx(np.mean(shares), abs=4 * np.std(ratios) / 20)


def test_the_number_of_rows_scales_strengths_only() -> None:
    codes = draw_codes(3000, np.random.default_rng(6), LEVELS)
    (table,) = release(codes, LEVELS, [tuple(LEVELS)], 400.0, np.random.default_rng(7))
    questions = Questions.of([(0, 1, (2,)), (1, 4, (2,)), (0, 5, (1,))])
    plain = JointEvidence(table)
    sharp = JointEvidence(table, NoisyTable((), np.array(3000.0), 1e-6))
    assert sharp.covariance.n_rows == pytest.approx(3000, abs=0.1)
    assert abs(plain.covariance.n_rows - 3000) > 1
    np.testing.assert_allclose(sharp.test(questions).statistic, plain.test(questions).statistic, rtol=1e-9)
    scale = (plain.covariance.n_rows / sharp.covariance.n_rows) ** 2
    np.testing.assert_allclose(sharp.strength(questions), scale * plain.strength(questions), rtol=1e-9)


def test_one_column_is_no_joint_table() -> None:
    with pytest.raises(EvidenceError, match="2 columns"):
        JointEvidence(NoisyTable(("a",), np.ones(3), 1.0))


# --- redraws ----------------------------------------------------------------------------------------------------------


def test_redrawn_statistics_scatter_around_what_is_more_than_noise() -> None:
    (table,) = release(draw_codes(3000, np.random.default_rng(1), LEVELS), LEVELS, [tuple(LEVELS)], 4.0)
    evidence = JointEvidence(table)
    for given in ((), (2,), (2, 3)):
        questions = Questions.of([(0, 1, given)])
        released = evidence.test(questions)
        rng = np.random.default_rng(2)
        drawn = [evidence.redraw(rng).test(questions).statistic for _ in range(1500)]
        np.testing.assert_allclose(np.mean(drawn, axis=0), np.maximum(released.statistic, released.freedom), rtol=0.08)


# --- which releases become joint evidence -----------------------------------------------------------------------------


def noisy_counts(columns: tuple[str, ...], shape: tuple[int, ...]) -> NoisyCounts:
    values = np.random.default_rng(len(columns)).integers(300, 900, int(np.prod(shape, dtype=int)))
    return NoisyCounts(columns, shape, 3, Fraction(36), tuple(values.tolist()))


def test_one_table_of_all_columns_becomes_joint_evidence() -> None:
    table, rows = noisy_counts(("a", "b", "c"), (2, 3, 2)), noisy_counts((), ())
    evidence = independence_from(("c", "a", "b"), (table, rows))
    assert isinstance(evidence, JointEvidence)
    assert evidence.columns == ("c", "a", "b")
    np.testing.assert_allclose(evidence._table.counts, table.counts.transpose(2, 0, 1))
    assert evidence._table.variance == 4.0
    assert isinstance(independence_from(("a", "b", "c"), (table,)), JointEvidence)


def test_other_releases_do_not() -> None:
    triple, pair, single = (
        noisy_counts(("a", "b", "c"), (2, 3, 2)),
        noisy_counts(("a", "b"), (2, 3)),
        noisy_counts(("a",), (2,)),
    )
    for columns, releases in [
        (("a", "b", "c", "d"), (triple,)),
        (("a", "b", "c"), (triple, pair)),
        (("a", "b", "c"), (triple, single)),
    ]:
        assert isinstance(independence_from(columns, releases), PairEvidence)


# --- levels and power -------------------------------------------------------------------------------------------------

NOMINAL = 0.01


def tree_law(d: int, rng: np.random.Generator) -> np.ndarray:
    """Binary columns; column k > 0 leans on column (k − 1) // 2, with chances that leave some cells nearly empty."""
    law = np.ones((2,) * d)
    for k in range(d):
        chance = rng.uniform(0.03, 0.15) if k == 0 else np.array([rng.uniform(0.05, 0.2), rng.uniform(0.5, 0.9)])
        if k == 0:
            law = law * np.reshape([1 - chance, chance], (2, *([1] * (d - 1))))
        else:
            table = np.stack([1 - chance, chance], axis=1)
            law = law * np.reshape(table, [2 if axis in ((k - 1) // 2, k) else 1 for axis in range(d)])
    return law


def draw_p_values(
    law: np.ndarray, asked: Questions, variance: float, laplace: bool, seed: int, replicates: int
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    names = tuple("abcdefgh"[: law.ndim])
    p_values = []
    for sample in rng.multinomial(100_000, law.reshape(-1), size=replicates):
        noise = (
            rng.laplace(0, np.sqrt(variance / 2), law.size) if laplace else rng.normal(0, np.sqrt(variance), law.size)
        )
        p_values.append(
            JointEvidence(NoisyTable(names, (sample + noise).reshape(law.shape), variance)).test(asked).p_value
        )
    return np.array(p_values)


# Laplace noise at ε = 1 and 0.1; Gaussian noise at ε = 1 and 0.1 with δ = 1e-6
@pytest.mark.parametrize(("variance", "laplace"), [(2.0, True), (200.0, True), (18.0, False), (1500.0, False)])
@pytest.mark.parametrize("d", [5, 8])
def test_levels(d: int, variance: float, laplace: bool) -> None:
    """The children 1 and 2 of the root are independent given the root and anything that hangs below one of them."""
    law = tree_law(d, np.random.default_rng(31))
    below = [(), (3,), (3, 4)] if d == 5 else [(), (5,), (3, 4, 5), (3, 4, 5, 6)]
    replicates = 300 if d == 5 else 150
    rejected = sum(
        int(
            (draw_p_values(law, Questions.of([(1, 2, (0, *s))]), variance, laplace, len(s), replicates) < NOMINAL).sum()
        )
        for s in below
    )
    trials = replicates * len(below)
    assert stats.binomtest(rejected, trials, 0.02, alternative="greater").pvalue > 1e-3, rejected / trials
    assert stats.binomtest(rejected, trials, 0.003, alternative="less").pvalue > 1e-3, rejected / trials


@pytest.mark.parametrize(("variance", "laplace"), [(2.0, True), (18.0, False)])
def test_power(variance: float, laplace: bool) -> None:
    law = tree_law(8, np.random.default_rng(32))
    for asked in ([(0, 1, ())], [(0, 1, (2,))], [(1, 3, (0, 2, 5))], [(0, 2, (1, 3, 4, 7))]):
        p = draw_p_values(law, Questions.of(asked), variance, laplace, 1, 40)
        assert (p < NOMINAL).mean() > 0.9, asked
