"""Small examples of what the functions of local/ return."""

from __future__ import annotations

import io
import math
from pathlib import Path
from uuid import UUID

import numpy as np

from dagveil.data.column import Boolean
from dagveil.data.schema import Schema
from dagveil.local.channel import (
    WHOLE,
    Channel,
    bounded_geometric,
    channel_from_weights,
    distances_on_line,
    find_rate,
    geometric_with_epsilon,
    lower,
    published_parameter,
    randomised_response,
    response_with_truth,
    round_up,
    truth_of_response,
    widest_gaps,
    write_size,
)
from dagveil.local.collector import is_loopback, knows_host
from dagveil.local.combined_geometric import CombinedGeometric, distances_between
from dagveil.local.device import Device
from dagveil.local.law import apply_to_axes, invert_reports, round_counts, update_by_bayes
from dagveil.local.pairwise import (
    PairRule,
    compare_conditionals,
    compare_entropies,
    compare_pair,
    compare_regression_errors,
    compare_residuals,
    cut,
    normalised_hsic,
    regression_error,
    scale_to_unit,
    spacing_entropy,
    standardise,
)
from dagveil.local.planning import plan_protocol
from dagveil.local.protocol import Figures, Mechanism, ResponseWeights, success_with_priors
from dagveil.local.record import (
    ComponentWise,
    Norm,
    Split,
    Undo,
    combined_response,
    combined_response_with_epsilon,
    component_wise_response,
    join,
    split_epsilon,
    truths_of_columns,
)
from dagveil.local.reports import (
    LineFormat,
    Reports,
    check_labels,
    guess_format,
    read_records,
    score_table,
    split_lines,
)
from dagveil.local.store import LabelReader, ReportStore
from slow_twins import epsilon_of_response


def test_channel() -> None:
    channel = Channel(np.array([[3, 1], [1, 3]], dtype=np.int64) * 2**51)
    assert (channel.matrix.tolist(), round(channel.epsilon(), 6) == round(math.log(3), 6)) == (
        [[0.75, 0.25], [0.25, 0.75]],
        True,
    )


def test_channel_from_weights() -> None:
    assert channel_from_weights(np.array([[2.0, 1.0, 1.0]])).matrix.tolist() == [[0.5, 0.25, 0.25]]


def test_widest_gaps() -> None:
    assert widest_gaps(channel_from_weights(np.ones((3, 4)))).tolist() == [0.0, 0.0, 0.0]


def test_distances_on_line() -> None:
    assert distances_on_line(2).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_round_up() -> None:
    assert round_up(0.0) == 1e-13


def test_randomised_response() -> None:
    channel = randomised_response(4, math.log(3))
    assert ([round(float(p), 6) for p in channel.matrix[0]], channel.epsilon() <= math.log(3)) == (
        [0.5, 0.166667, 0.166667, 0.166667],
        True,
    )


def test_response_with_truth() -> None:
    assert response_with_truth(2, 0.75).matrix.tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_truth_of_response() -> None:
    assert truth_of_response(2, 0.0) == 0.5


def test_epsilon_of_response() -> None:
    assert round(epsilon_of_response(4, 0.5), 6) == round(math.log(3), 6)


def test_lower() -> None:
    assert (lower(0.0), 1.0 - 1e-11 < lower(1.0) < 1.0) == (0.0, True)


def test_write_size() -> None:
    assert (write_size(45), write_size(2**1200)) == ("45", "(about 2**1200)")


def test_bounded_geometric() -> None:
    assert bounded_geometric(3, 0.5).matrix.round(3).tolist() == [
        [0.5, 0.309, 0.191],
        [0.25, 0.5, 0.25],
        [0.191, 0.309, 0.5],
    ]


def test_find_rate() -> None:
    assert round(find_rate(np.array([0.0, 1.0]), np.ones(2), 0.75), 6) == round(math.log(3), 6)


def test_published_parameter() -> None:
    channel = bounded_geometric(100, 0.05)
    assert round(channel.gap_of_neighbours() / published_parameter(100, 0.05), 2) == 2.16


def test_geometric_with_epsilon() -> None:
    assert geometric_with_epsilon(5, 2.0).epsilon() <= 2.0


def test_is_loopback() -> None:
    assert (is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")) == (True, True, False)


def test_knows_host() -> None:
    hosts = ("localhost:8080", "127.0.0.1:8080", "evil.example:8080", "127.0.0.1")
    assert [knows_host(header, "127.0.0.1", 8080) for header in hosts] == [True, True, False, False]


def test_combined_geometric() -> None:
    channel = CombinedGeometric((3, 3), 0.5, Norm.MANHATTAN)
    assert (round(channel.truth(), 6), channel.epsilon() > 1.0) == (0.5, True)


def test_distances_between() -> None:
    assert distances_between(np.array([[0, 0]]), np.array([[3, 4]]), Norm.EUCLIDEAN).tolist() == [[5.0]]


def test_device() -> None:
    schema = Schema(dataset="demo", columns={"smokes": Boolean("false"), "fit": Boolean("false")})
    device = Device(plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0))
    assert sorted(device.randomise({"smokes": True, "fit": False})) == ["fit", "smokes"]


def test_update_by_bayes() -> None:
    matrix = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert update_by_bayes(np.array([60.0, 40.0]), [matrix]).round(3).tolist() == [0.7, 0.3]


def test_invert_reports() -> None:
    undo = Undo((np.linalg.inv(np.array([[0.75, 0.25], [0.25, 0.75]])),))
    assert invert_reports(np.array([60.0, 40.0]), undo, [0]).shares.round(3).tolist() == [0.7, 0.3]


def test_round_counts() -> None:
    assert round_counts(np.array([1.6, 0.7, 0.7])).tolist() == [1, 1, 1]


def test_apply_to_axes() -> None:
    assert apply_to_axes(np.eye(2), [np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])]).tolist() == [
        [0.0, 1.0],
        [1.0, 0.0],
    ]


def test_compare_pair() -> None:
    cause = np.linspace(0.0, 1.0, 200)
    assert compare_pair(PairRule.RECI, cause, (cause - 0.5) ** 2) > 0


def test_compare_entropies() -> None:
    cause = np.linspace(0.0, 1.0, 200)
    assert compare_entropies(cause, cause**5) > 0


def test_spacing_entropy() -> None:
    assert round(spacing_entropy(np.linspace(0.0, 1.0, 10_001)), 2) == 0.58


def test_standardise() -> None:
    assert standardise(np.array([1.0, 3.0])).tolist() == [-1.0, 1.0]


def test_compare_regression_errors() -> None:
    cause = np.linspace(0.0, 1.0, 200)
    assert compare_regression_errors(cause, (cause - 0.5) ** 2) > 0


def test_regression_error() -> None:
    assert round(regression_error(np.arange(9.0), np.arange(9.0) ** 3), 9) == 0.0


def test_scale_to_unit() -> None:
    assert scale_to_unit(np.array([2.0, 3.0, 4.0])).tolist() == [0.0, 0.5, 1.0]


def test_compare_conditionals() -> None:
    rng = np.random.default_rng(0)
    cause = rng.uniform(-1, 1, 2000)
    assert compare_conditionals(cause, cause**3 + rng.uniform(-0.3, 0.3, 2000)) > 0


def test_cut() -> None:
    assert cut(np.array([-9.0, 0.2, 0.3, 2.9])).tolist() == [-6, 0, 1, 6]


def test_compare_residuals() -> None:
    rng = np.random.default_rng(0)
    cause = rng.uniform(-1, 1, 500)
    assert compare_residuals(cause, cause**2 + rng.uniform(-0.2, 0.2, 500)) > 0


def test_normalised_hsic() -> None:
    assert round(normalised_hsic(np.arange(5.0) / 4, np.arange(5.0) / 4), 9) == 1.0


def test_plan_protocol() -> None:
    schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")})
    assert plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0).epsilon <= 2.0


def test_response_weights_of() -> None:
    assert ResponseWeights.of(Channel(np.array([[WHOLE]], dtype=np.int64))).other == 0


def test_figures_check() -> None:
    Figures(1.0, 0.7, 1.0).check(Figures(0.9, 0.7, 0.9), "a record")


def test_success_with_priors() -> None:
    assert round(success_with_priors(combined_response((2,), 0.75), [np.array([0.9, 0.1])]), 4) == 0.9


def test_component_wise() -> None:
    channel = ComponentWise((response_with_truth(2, 0.75), response_with_truth(2, 0.75)))
    assert (round(channel.epsilon(), 4) == round(2 * math.log(3), 4), channel.truth()) == (True, 0.5625)


def test_combined_response() -> None:
    assert combined_response((2, 3), 0.5).epsilon() > math.log(5) - 1e-9


def test_combined_response_with_epsilon() -> None:
    assert 2.9 < combined_response_with_epsilon((2, 3), 3.0).epsilon() <= 3.0


def test_component_wise_response() -> None:
    assert component_wise_response((2, 4), 3.0, Split.BY_LEVELS).epsilon() <= 3.0 + 1e-9


def test_split_epsilon() -> None:
    assert split_epsilon((2, 6), 4.0, Split.BY_LEVELS) == [1.0, 3.0]


def test_truths_of_columns() -> None:
    assert [round(p, 4) for p in truths_of_columns((2, 2), 0.64, Split.UNIFORM)] == [0.8, 0.8]


def test_join() -> None:
    assert join([np.eye(2), np.ones((1, 1))]).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_split_lines() -> None:
    assert list(split_lines(io.StringIO('a,b\r\n1,"2\n3', newline="\n"))) == ["a,b", '1,"2', "3"]


def test_guess_format() -> None:
    assert (guess_format(["a,b"])[0].value, guess_format(['{"a": 1}'])[0].value) == ("csv", "jsonl")


def test_read_records() -> None:
    assert list(read_records(["a,b", "1,", "broken"], LineFormat.CSV, ["a", "b"])) == [
        {"a": "1", "b": None},
        {"a": None, "b": None},
    ]


def test_check_labels() -> None:
    check_labels(LineFormat.CSV, {"a": ["no", "yes"]})


def test_reports_of() -> None:
    assert Reports.of(np.array([[0, 1], [0, 1], [1, 1]])).counts.tolist() == [2.0, 1.0]


def test_score_table() -> None:
    shares = np.array([[[0.4], [0.1]], [[0.1], [0.4]]])
    statistic, freedom = score_table(shares, np.eye(2), np.eye(2), np.ones((1, 1)), 1.0, 100.0)
    assert (round(statistic, 2), freedom) == (56.25, 1.0)


def test_report_store(tmp_path: Path) -> None:
    schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")})
    protocol = plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0)
    with ReportStore.open(str(tmp_path / "r.db"), protocol) as store:
        batch = store.pack(UUID(int=1), [[0, 1], [1, 1]])
        assert (store.append([batch]), store.append([batch]), store.totals().reports) == ([True], [True], 2)


def test_label_reader() -> None:
    schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")})
    assert LabelReader(plan_protocol(schema, Mechanism.RESPONSE, epsilon=2.0)).read({"a": "true", "b": "false"}, 1) == [
        1,
        0,
    ]
