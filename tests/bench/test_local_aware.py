"""Discovery that knows the channel in small: the laws it draws from and the size of both tests."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.errors import MethodError
from dagveil.evidence.questions import Questions
from dagveil.examples.networks import sample_codes
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil_bench.drawn_tables import random_network
from dagveil_bench.local_aware import (
    Noise,
    Statistic,
    View,
    draw_reports,
    make_component_channel,
    make_evidence,
    open_reports,
    random_law,
    read_reports,
    rejects_null,
)
from dagveil_bench.studies.jobs import list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.reading import load_study, parse_study, shipped_studies
from dagveil_bench.studies.trial import Outcome, run_job
from separation import is_separated


def test_the_law_is_that_of_the_rows() -> None:
    rng = np.random.default_rng(5)
    dag, law = random_law(Statistic.CHI_SQUARE, np.random.default_rng(1))
    network = random_network(5, 0.4, np.random.default_rng(1), (3, 5))
    assert dag == network.dag()
    codes = sample_codes(network, 200_000, rng)
    seen = np.zeros(law.shape)
    np.add.at(seen, tuple(codes[node] for node in network.nodes), 1 / 200_000)
    assert np.abs(seen - law).sum() / 2 < 0.06
    for pair in ((0, 1), (2, 4)):
        others = tuple(axis for axis in range(5) if axis not in pair)
        assert np.abs(seen.sum(axis=others) - law.sum(axis=others)).max() < 0.005


@pytest.mark.parametrize("seed", range(4))
def test_means_of_ordered_levels_are_linear(seed: int) -> None:
    """Partial covariances of the exact law vanish where the graph separates, and only there."""
    dag, law = random_law(Statistic.LINEAR, np.random.default_rng(seed))
    assert law.sum() == pytest.approx(1.0)
    cells = np.indices(law.shape).reshape(5, -1).astype(float)
    weights = law.reshape(-1)
    centred = cells - (cells @ weights)[:, None]
    covariance = (centred * weights) @ centred.T
    for x in range(5):
        for y in range(x):
            rest = [z for z in range(5) if z not in (x, y)]
            for given in ([], rest[:1], rest[1:], rest):
                block = covariance[np.ix_([x, y, *given], [x, y, *given])]
                partial = abs(np.linalg.inv(block)[0, 1])
                separated = is_separated(dag, dag.nodes[x], dag.nodes[y], tuple(dag.nodes[z] for z in given))
                assert (partial < 1e-9) == separated


@pytest.mark.parametrize("noise", Noise)
def test_counts_are_those_of_randomised_records(noise: Noise) -> None:
    law = np.random.default_rng(2).dirichlet(np.ones(6)).reshape(2, 3)
    channel = make_component_channel(noise, (2, 3), 4.0)
    assert channel.epsilon() <= 4.0 + 1e-9
    rng = np.random.default_rng(3)
    records = np.stack(np.unravel_index(rng.choice(6, 200_000, p=law.reshape(-1)), (2, 3)), axis=1)
    reports = channel.report(records, noise_source(NoiseKind.SEEDED, 4))
    slow = np.zeros((2, 3))
    np.add.at(slow, tuple(reports.T), 1 / 200_000)
    fast = draw_reports(law, channel, 200_000, rng).table((0, 1), (2, 3)) / 200_000
    assert np.abs(slow - fast).max() < 0.006


@pytest.mark.parametrize("source", [f"{test.value} {noise.value} null" for test in Statistic for noise in Noise])
def test_the_blind_test_rejects_what_is_true_and_the_aware_one_keeps_its_level(source: str) -> None:
    null = read_reports(source)
    shares = {
        view: np.mean([rejects_null(open_reports(null, view, 6.0, 5000, seed)) for seed in range(120)]) for view in View
    }
    assert abs(shares[View.AWARE] - 0.05) < 4.0 * np.sqrt(0.05 * 0.95 / 120)
    assert shares[View.BLIND] > 0.5


def test_without_noise_both_views_agree() -> None:
    dag, law = random_law(Statistic.CHI_SQUARE, np.random.default_rng(3))
    channel = make_component_channel(Noise.RESPONSE, law.shape, 100.0)
    reports = draw_reports(law, channel, 3000, np.random.default_rng(4))
    question = Questions.of([(0, 1, (2,)), (3, 4, (0,))])
    for test in Statistic:
        aware, blind = (make_evidence(test, view, dag.nodes, channel, reports).test(question) for view in View)
        assert aware.statistic == pytest.approx(blind.statistic, rel=1e-4)


def test_many_records_tell_an_aware_search_everything() -> None:
    study = load_study("local-aware")
    rates: dict[str, list[Outcome]] = {"aware": [], "blind": []}
    for job in list_jobs(study):
        wanted = (job.source, job.epsilon, job.n_rows) == ("chi-square response", 10.0, 500_000)
        if wanted and job.repetition < 3:
            rates[job.method].append(run_job(job))
    assert np.mean([outcome.of(Metric.SKELETON_F1) for outcome in rates["aware"]]) > 0.95
    false = {view: sum(outcome.of(Metric.FPR) for outcome in outcomes) for view, outcomes in rates.items()}
    assert false["aware"] < false["blind"]


def test_sources_and_views_that_nobody_knows_are_refused() -> None:
    for text in ("", "linear", "linear noise", "linear response nil", "linear response null null"):
        with pytest.raises(MethodError, match="needs one of chi-square, linear, one of response, geometric"):
            read_reports(text)
    with pytest.raises(MethodError, match="no view is called 'deaf'; choose aware or blind"):
        parse_study(shipped_studies()["local-aware"].replace('"blind"', '"deaf"'))


def test_the_studies_have_both_views_and_their_floors() -> None:
    for name, floor in (("local-aware", "the empty graph"), ("local-aware-size", "a test that looks at no rows")):
        outcomes = {job.label: run_job(job) for job in list_jobs(load_study(name).miniature())}
        assert {"knows the channel", "blind", floor} <= outcomes.keys()
        assert all(outcome.error is None and outcome.numbers for outcome in outcomes.values())
