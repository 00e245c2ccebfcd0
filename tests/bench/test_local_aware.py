"""Discovery that knows the channel in small: the laws it draws from, the size of both tests, and the page."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from dagveil.errors import MethodError
from dagveil.evidence.questions import Questions
from dagveil.examples.simulate import random_network, sample_codes
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil_bench.commands.measurements import bench
from dagveil_bench.local_aware import (
    AwareSetting,
    Noise,
    Statistic,
    View,
    draw_reports,
    list_aware_settings,
    make_component_channel,
    make_evidence,
    measure_size,
    random_law,
    run_aware,
)
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


def test_the_blind_test_rejects_what_is_true_and_the_aware_one_keeps_its_level() -> None:
    sizes = measure_size(5000, 120, 1)
    assert len(sizes) == 8
    for size in sizes:
        if size.view is View.AWARE:
            assert abs(size.rejected - 0.05) < 4.0 * size.error
        else:
            assert size.rejected > 0.5


def test_without_noise_both_views_agree() -> None:
    dag, law = random_law(Statistic.CHI_SQUARE, np.random.default_rng(3))
    channel = make_component_channel(Noise.RESPONSE, law.shape, 100.0)
    reports = draw_reports(law, channel, 3000, np.random.default_rng(4))
    question = Questions.of([(0, 1, (2,)), (3, 4, (0,))])
    for test in Statistic:
        aware, blind = (make_evidence(test, view, dag.nodes, channel, reports).test(question) for view in View)
        assert aware.statistic == pytest.approx(blind.statistic, rel=1e-4)


def test_many_records_tell_an_aware_search_everything() -> None:
    found = [
        o
        for run in range(3)
        for o in run_aware(AwareSetting(Statistic.CHI_SQUARE, Noise.RESPONSE, 10.0, 500_000), run, 1)
    ]
    aware = [o for o in found if o.view is View.AWARE]
    blind = [o for o in found if o.view is View.BLIND]
    assert np.mean([o.f1 for o in aware]) > 0.95
    assert sum(o.false_edges for o in aware) < sum(o.false_edges for o in blind)
    assert all(o.epsilon <= 10.0 + 1e-9 for o in found)


def test_bad_settings_of_the_aware_study() -> None:
    with pytest.raises(MethodError, match="positive"):
        list_aware_settings([0.0], [1000])
    with pytest.raises(MethodError, match="10 records"):
        list_aware_settings([1.0], [1])


def test_the_command_prints_both_tables() -> None:
    options = ["--epsilons", "8", "--sizes", "2000", "--repeats", "20", "--runs", "2", "--workers", "1"]
    done = CliRunner().invoke(bench, ["local-aware", *options])
    assert done.exit_code == 0, done.output
    assert done.output.count("| χ² | k-RR |") == 2
    assert "± nan" not in done.output
