"""Recovery of true laws, and tests on reports: against slow twins, and their level by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dagveil.errors import EvidenceError
from dagveil.evidence.questions import Questions
from dagveil.local.law import invert_reports, update_by_bayes
from dagveil.local.record import (
    RecordChannel,
    Split,
    Undo,
    combined_response,
    component_wise_geometric,
    component_wise_response,
    join,
)
from dagveil.local.reports import LinearReportEvidence, ReportEvidence, Reports, score_table
from dagveil.privacy.noise.kind import NoiseKind, noise_source

LEVELS = (3, 3, 3)
NAMES = ("x", "y", "z")
GIVEN_Z = Questions.of([(0, 1, (2,))])
MARGINAL = Questions.of([(0, 1, ())])

CHANNELS: dict[str, RecordChannel] = {
    "response": component_wise_response(LEVELS, 5.0, Split.UNIFORM),
    "geometric": component_wise_geometric(LEVELS, 6.0, Split.UNIFORM),
    "combined response": combined_response(LEVELS, 0.4),
}


def draw_common_cause(n: int, rng: np.random.Generator) -> np.ndarray:
    """x ← z → y: dependent, and independent given z."""
    z = rng.integers(0, 3, n)
    x = np.where(rng.random(n) < 0.6, z, rng.integers(0, 3, n))
    y = np.where(rng.random(n) < 0.6, (z * 2) % 3, rng.integers(0, 3, n))
    return np.stack([x, y, z], axis=1)


def draw_linear(n: int, rng: np.random.Generator) -> np.ndarray:
    """The same on a line: the mean of x and of y is linear in z."""
    z = rng.integers(0, 3, n)
    return np.stack([(rng.random((n, 2)) < (0.25 + 0.25 * z)[:, None]).sum(axis=1) for _ in range(2)] + [z], axis=1)


def evidence(channel: RecordChannel, reports: np.ndarray) -> ReportEvidence:
    return ReportEvidence(NAMES, LEVELS, Reports.of(reports), channel.undo())


def linear(channel: RecordChannel, reports: np.ndarray) -> LinearReportEvidence:
    return LinearReportEvidence(NAMES, Reports.of(reports), channel.undo(), (np.arange(3.0),) * 3)


@pytest.mark.parametrize("kind", ["response", "geometric"])
def test_recovered_laws(kind: str) -> None:
    channel = CHANNELS[kind]
    rng = np.random.default_rng(1)
    records = draw_common_cause(200_000, rng)
    truth = Reports.of(records).table((0, 2), LEVELS) / len(records)
    counts = Reports.of(channel.report(records, noise_source(NoiseKind.SEEDED, seed=2))).table((0, 2), LEVELS)
    matrices = [channel.channels[column].matrix for column in (0, 2)]
    law = update_by_bayes(counts, matrices)
    assert (law >= 0.0).all()
    assert law.sum() == pytest.approx(1.0)
    assert np.abs(law - truth).sum() < 0.06
    recovered = invert_reports(counts, channel.undo(), (0, 2))
    deviations = np.sqrt(np.diag(recovered.covariance)).reshape(3, 3)
    assert (np.abs(recovered.shares - truth) < 5.0 * deviations).all()
    # the plain counts are not the truth: the channel matters
    assert np.abs(counts / counts.sum() - truth).sum() > 0.1


def test_bayes_never_lowers_the_likelihood_and_meets_the_inverse_inside() -> None:
    matrix = component_wise_response((3,), 1.0, Split.UNIFORM).channels[0].matrix
    counts = np.array([50.0, 30.0, 40.0])
    rounds = [update_by_bayes(counts, [matrix], 0.0, rounds) for rounds in (1, 2, 5, 50)]
    likelihoods = [float(counts @ np.log(law @ matrix)) for law in rounds]
    assert likelihoods == sorted(likelihoods)
    inverse = invert_reports(counts, component_wise_response((3,), 1.0, Split.UNIFORM).undo(), (0,))
    assert (inverse.shares > 0.0).all()
    assert update_by_bayes(counts, [matrix], 1e-14) == pytest.approx(inverse.shares, abs=1e-4)


@pytest.mark.parametrize("kind", CHANNELS)
def test_variance_of_the_inverse_is_what_repetitions_show(kind: str) -> None:
    channel = CHANNELS[kind]
    noise = noise_source(NoiseKind.SEEDED, seed=3)
    records = draw_common_cause(1000, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    found, claimed = [], []
    for _ in range(400):
        sample = records[rng.integers(0, 1000, 1000)]
        counts = Reports.of(channel.report(sample, noise)).table((0, 2), LEVELS)
        recovered = invert_reports(counts, channel.undo(), (0, 2))
        found.append(recovered.shares.ravel())
        claimed.append(np.diag(recovered.covariance))
    ratio = np.var(found, axis=0).sum() / np.mean(claimed, axis=0).sum()
    assert 0.85 < ratio < 1.15
    truth = Reports.of(records).table((0, 2), LEVELS).ravel() / 1000
    assert np.abs(np.mean(found, axis=0) - truth).max() < 6.0 * np.sqrt(np.mean(claimed) / 400)


@pytest.mark.parametrize("kind", CHANNELS)
@pytest.mark.parametrize("form", ["tables", "linear"])
def test_level_and_power(kind: str, form: str) -> None:
    channel = CHANNELS[kind]
    noise = noise_source(NoiseKind.SEEDED, seed=5)
    rng = np.random.default_rng(6)
    runs, n = 300, 6000
    rejected = powerful = 0
    for _ in range(runs):
        records = (draw_common_cause if form == "tables" else draw_linear)(n, rng)
        tests = (evidence if form == "tables" else linear)(channel, channel.report(records, noise))
        rejected += tests.test(GIVEN_Z).p_value[0] < 0.05
        powerful += tests.test(MARGINAL).p_value[0] < 0.05
    # at level 0.05 more than 32 of 300 happen once in 10⁵ such tests, fewer than 3 once in 10⁴
    assert 3 <= rejected <= 32
    assert powerful > runs / 2


def test_blind_tests_are_wrong_where_ours_are_right() -> None:
    """Randomised response on a strong common cause: the plain χ² given the *reported* cause rejects almost always."""
    channel = component_wise_response(LEVELS, 4.5, Split.UNIFORM)
    noise = noise_source(NoiseKind.SEEDED, seed=7)
    rng = np.random.default_rng(8)
    blind = aware = 0
    for _ in range(40):
        records = draw_common_cause(20_000, rng)
        reports = channel.report(records, noise)
        table = Reports.of(reports).table((0, 1, 2), LEVELS)
        statistic = sum(stats.chi2_contingency(table[:, :, z], correction=False)[0] for z in range(3))
        blind += stats.chi2.sf(statistic, 12) < 0.05
        aware += evidence(channel, reports).test(GIVEN_Z).p_value[0] < 0.05
    assert blind > 30
    assert aware < 12


def test_without_noise_the_pooled_statistic_is_the_one_of_counts() -> None:
    """With identity channels the statistic is vec(U)ᵀ C⁻¹ vec(U) of stratified counts, written out slowly here."""
    rng = np.random.default_rng(9)
    records = draw_common_cause(2000, rng)
    n = len(records)
    table = Reports.of(records).table((0, 1, 2), LEVELS) / n
    total = np.zeros((2, 2))
    outer = np.zeros((4, 4))
    mean = np.zeros(4)
    for z in range(3):
        share = table[:, :, z].sum()
        p, q = table[:, :, z].sum(axis=1) / share, table[:, :, z].sum(axis=0) / share
        total += (table[:, :, z] - share * np.outer(p, q))[:2, :2]
        for x in range(3):
            for y in range(3):
                influence = np.outer(np.eye(3)[x] - p, np.eye(3)[y] - q)[:2, :2].ravel()
                outer += table[x, y, z] * np.outer(influence, influence)
                mean += table[x, y, z] * influence
    covariance = (outer - np.outer(mean, mean)) / n
    slow = float(total.ravel() @ np.linalg.solve(covariance, total.ravel()))
    tests = ReportEvidence(NAMES, LEVELS, Reports.of(records), Undo((np.eye(3),) * 3))
    assert tests.test(GIVEN_Z).statistic[0] == pytest.approx(slow)


def test_linear_covariance_is_unbiased() -> None:
    rng = np.random.default_rng(10)
    records = draw_linear(300_000, rng)
    truth = np.cov(records.T)
    for kind, channel in CHANNELS.items():
        tests = linear(channel, channel.report(records, noise_source(NoiseKind.SEEDED, seed=11)))
        assert tests._covariance == pytest.approx(truth, abs=0.03), kind


def test_redraws_differ_and_keep_the_number_of_records() -> None:
    channel = CHANNELS["response"]
    reports = channel.report(
        draw_common_cause(3000, np.random.default_rng(12)), noise_source(NoiseKind.SEEDED, seed=13)
    )
    for tests in (evidence(channel, reports), linear(channel, reports)):
        again = tests.redraw(np.random.default_rng(14))
        assert again.reports.n_records == 3000
        assert again.test(MARGINAL).statistic[0] != tests.test(MARGINAL).statistic[0]


def test_large_tables_are_refused() -> None:
    with pytest.raises(EvidenceError, match="too large"):
        invert_reports(np.ones((100, 100)), component_wise_response((100, 100), 9.0, Split.UNIFORM).undo(), (0, 1))
    wide = ReportEvidence(
        NAMES, (100, 100, 100), Reports.of(np.zeros((1, 3), dtype=np.int64)), CHANNELS["response"].undo()
    )
    assert wide.answers(MARGINAL).tolist() == [True]
    assert wide.answers(GIVEN_Z).tolist() == [False]
    assert join([]).tolist() == [[1.0]]


def test_reports_drawn_again_do_not_look_dependent() -> None:
    """Reports drawn from reports hold chance twice: without a remedy T is twice its degrees of freedom."""
    rng = np.random.default_rng(31)
    asked = Questions.of([(x, y, ()) for x in range(4) for y in range(x)])
    undo = Undo((np.eye(6),) * 4)
    tables, lines = [], []
    for _ in range(6):
        reports = Reports.of(rng.integers(0, 6, (3000, 4)))
        for evidence, found in (
            (ReportEvidence(tuple("abcd"), (6,) * 4, reports, undo), tables),
            (LinearReportEvidence(tuple("abcd"), reports, undo, (np.arange(6.0),) * 4), lines),
        ):
            before = evidence.test(asked)
            aimed = np.maximum(before.statistic, before.freedom).mean()
            found += [evidence.redraw(rng).test(asked).statistic.mean() / aimed for _ in range(5)]
    assert np.mean(tables) == pytest.approx(1.0, abs=0.1)
    assert np.mean(lines) == pytest.approx(1.0, abs=0.2)


def test_columns_that_always_agree_depend_on_each_other() -> None:
    """Every product of deviations is the same then, so that no variance is left."""
    statistic, _ = score_table(np.eye(2)[..., None] / 2, np.eye(2), np.eye(2), np.ones((1, 1)), 1.0, 600.0)
    assert statistic > 1e3
