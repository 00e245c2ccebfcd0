"""Small examples of what the functions of bench/ return."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np

from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.privacy.receipt import Calibration
from dagveil_bench.adult import adult_network
from dagveil_bench.bayesian_scores import BdeuScore, BgeScore, bge_of_rows
from dagveil_bench.custodians import count_sites
from dagveil_bench.exact_searches import chi_square
from dagveil_bench.levels import draw_design
from dagveil_bench.mutated import mutate_bytes, mutate_json
from dagveil_bench.nonlinear import nonlinear_dag, sample_nonlinear
from dagveil_bench.notears_peers import Case, Error, Shape, count_differences, draw_weights, rate_arrows
from dagveil_bench.speed import describe_ratio
from dagveil_bench.studies.datasets import sample_source
from dagveil_bench.studies.machine import describe_packages, list_changes
from dagveil_bench.studies.metrics import Metric, score_graph
from dagveil_bench.studies.page import write_number
from dagveil_bench.studies.plan import Entry, Printed
from dagveil_bench.studies.reading import _describe_choices, _name_place, parse_study
from dagveil_bench.studies.results import results_beside
from dagveil_bench.studies.summary import estimate_mean
from dagveil_bench.wide import WideKind, fit_power, wide_schema


def test_adult_network() -> None:
    network = adult_network()
    assert (len(network.nodes), network.levels["hours-per-week"]) == (14, ("up to 39", "40", "above 40"))


def test_bdeu_score() -> None:
    score = BdeuScore(("a", "b"), (2, 2), np.array([[0, 0], [1, 1]]), np.array([50.0, 50.0]))
    assert (score.score(0, (1,)) > 0, round(score.score(0, (1,)) - score.score(1, (0,)), 9)) == (True, 0.0)


def test_bge_score() -> None:
    score = BgeScore(("a", "b"), 100.0, np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert (round(score.score(1, (0,)) - score.score(0, (1,)), 9), score.score(0, (1,)) > 0) == (0.0, True)


def test_bge_of_rows() -> None:
    assert bge_of_rows(("a", "b"), np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])).score(0, (1,)) > 0


def test_count_sites() -> None:
    assert (count_sites("pooled"), count_sites("1 site"), count_sites("20 sites")) == ((0, 1), (1, 1), (20, 1))
    assert count_sites("5 sites, two rounds") == (5, 2)


def test_draw_design() -> None:
    assert sorted(draw_design(3, np.random.default_rng(0))) == ["x", "y", "z1", "z2", "z3", "z4", "z5"]


def test_mutate_bytes() -> None:
    assert mutate_bytes(b"a = 1", random.Random(1)) != b"a = 1"


def test_mutate_json() -> None:
    assert mutate_json(b'{"a": 1}', random.Random(2)) != b'{"a": 1}'


def test_sample_nonlinear() -> None:
    dag = Dag(("x", "y"), frozenset({("x", "y")}))
    assert {name: column.shape for name, column in sample_nonlinear(dag, 4, np.random.default_rng(0)).items()} == {
        "x": (4,),
        "y": (4,),
    }


def test_nonlinear_dag() -> None:
    assert len(nonlinear_dag("asia").edges) == 8


def test_draw_weights() -> None:
    assert draw_weights(Case(Shape.SCALE_FREE, Error.GAUSSIAN, 6, 10), np.random.default_rng(0)).shape == (6, 6)


def test_count_differences() -> None:
    assert count_differences(np.array([[False, True], [False, False]]), np.array([[False, False], [True, False]])) == 1


def test_rate_arrows() -> None:
    truth = np.array([[False, True, True], [False, False, False], [False, False, False]])
    assert rate_arrows(np.array([[False, True, False], [False, False, False], [True, False, False]]), truth) == (
        0.5,
        0.5,
    )


def test_chi_square() -> None:
    assert round(chi_square(np.array([[10, 20], [30, 40]])), 4) == 0.373


def test_describe_ratio() -> None:
    assert (describe_ratio(34.7), describe_ratio(0.678)) == ("35 ×", "0.68 ×")


def test_sample_source() -> None:
    table, dag = sample_source("asia", 10, np.random.default_rng(0))
    assert tuple(table.schema.columns) == dag.nodes


def test_describe_packages() -> None:
    assert describe_packages(["no-such-package"]) == {}


def test_list_changes() -> None:
    assert list_changes([{"numpy": "2.3", "scipy": "1.17"}, {"numpy": "2.4", "scipy": "1.17"}]) == ("numpy 2.3, 2.4",)


def test_score_graph() -> None:
    dag = Dag(("a", "b", "c"), frozenset({("a", "b"), ("c", "b")}))
    scores = score_graph(Cpdag.complete(dag.nodes), dag)
    assert (scores[Metric.SKELETON_F1], scores[Metric.FPR], scores[Metric.SHD]) == (0.8, 1.0, 3.0)


def test_write_number() -> None:
    assert (write_number(0.125, 2), write_number(1.7e300, 2)) == ("0.12", "1.7e+300")


def test_entry_title() -> None:
    assert Entry("pcd", calibration=Calibration.PAPER, settings={"level": 0.1}).title == "pcd, level=0.1, as published"


def test_printed_at() -> None:
    printed = Printed("pc", Metric.SHD, "table 1", {"asia": (3.0, math.nan)}, (0.1, 1.0))
    assert (printed.at("asia", 0.1, 50), printed.at("asia", 1.0, 50), printed.at("child", 0.1, 50)) == (3.0, None, None)
    printed = Printed("pc", Metric.SHD, "table 2", {"asia": (3.0, 2.0)}, rows=(50, 100))
    assert (printed.at("asia", 0.1, 100), printed.at("asia", 0.1, 200)) == (2.0, None)


def test_parse_study() -> None:
    study = parse_study("""
    name = "mine"
    title = "measure on Asia"
    data = ["asia"]
    budgets = [0.1, 1]
    rows = [1000]
    [[methods]]
    method = "measure"
    """)
    assert (study.repetitions, study.data_sets[0].title) == (20, "asia")


def test_name_place() -> None:
    assert _name_place("Expected `int` >= 1 - at `$.rows[0]`") == "rows[0]: expected `int` >= 1"


def test_describe_choices() -> None:
    assert _describe_choices("Object contains unknown field `repetition`", "") == "; did you mean repetitions?"
    assert (
        _describe_choices("Invalid enum value 'published'", "methods[0].calibration")
        == "; choose from sound, paper, program, none"
    )


def test_results_beside() -> None:
    assert results_beside(Path("headline.sqlite")).name == "headline.parquet"


def test_estimate() -> None:
    estimate = estimate_mean([1.0, 2.0, 3.0])
    assert (estimate.mean, estimate.deviation, round(estimate.half_width, 2)) == (2.0, 1.0, 2.48)


def test_wide_schema() -> None:
    assert [column.n_levels for column in wide_schema(WideKind.LEVELS, 4, 100).columns.values()] == [2, 3, 4, 2]


def test_fit_power() -> None:
    assert round(fit_power([1, 2, 4], [3.0, 12.0, 48.0]), 6) == 2.0
