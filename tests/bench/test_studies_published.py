"""Printed figures of the shipped studies, tables over rows and over data sets, and where a champion is not the best."""

from __future__ import annotations

import csv
import io
import math
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from dagveil.errors import MethodError
from dagveil.methods.noleaks import Schedule, iterations_allowed
from dagveil_bench.studies.figure import list_panels
from dagveil_bench.studies.jobs import list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.page import Form, describe_defeats, list_defeats, write_page
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.reading import load_study, parse_study, shipped_studies
from dagveil_bench.studies.summary import Axis, Estimate, Spot, choose_axis, summarise
from dagveil_bench.studies.trial import Outcome

TABLES = tuple(f"privpc-table{number}" for number in (3, 4, 5, 6, 8, 9, 10, 11))

TOML = """
name = "sizes"
title = "Several sizes"
data = ["asia"]
budgets = [1]
rows = [100, 200]
repetitions = 2
champion = "measure"
[[methods]]
method = "measure"
[[methods]]
method = "svt-pc"
[[methods]]
method = "measure"
role = "ceiling"
[[published]]
method = "svt-pc"
metric = "skeleton-f1"
source = "a table"
rows = [200, 300]
values = { asia = [0.625, 0.75] }
"""


def nodes_and_sparseness(study: Study, label: str) -> tuple[int, float]:
    (source,) = [data.source for data in study.data_sets if data.title == label]
    _, nodes, sparseness = source.split()
    return int(nodes), float(sparseness)


@pytest.mark.parametrize("name", TABLES)
def test_exchanged_columns_explain_the_printed_rates(name: str) -> None:
    """With r, p and o as recall, precision and false omission rate, o = (1 − r) e / (m − r e / p) for e edges."""
    study = load_study(name)
    found: dict[Metric, dict[tuple[str, str, float, int], float]] = {}
    for printed in study.published:
        for label in printed.values:
            for epsilon in printed.budgets or study.budgets:
                for n_rows in printed.rows or study.rows:
                    figure = printed.at(label, epsilon, n_rows)
                    assert figure is not None
                    found.setdefault(printed.metric, {})[printed.method, label, epsilon, n_rows] = figure
    cells = found[Metric.TPR]
    assert cells.keys() == found[Metric.TDR].keys() == found[Metric.OMISSION].keys()
    labels = {label for _, label, _, _ in cells}
    assert labels == {data.title for data in study.data_sets}
    assert len(cells) == len(labels) * len(study.budgets) * len(study.rows) * len({cell[0] for cell in cells})
    for cell, recall in cells.items():
        nodes, sparseness = nodes_and_sparseness(study, cell[1])
        pairs = nodes * (nodes - 1) / 2
        precision, omission = found[Metric.TDR][cell], found[Metric.OMISSION][cell]
        edges = sparseness * pairs
        # a mean of ratios is not the ratio of means, and five runs have few edges
        expected = (1 - recall) * edges / (pairs - recall * edges / precision)
        assert omission == pytest.approx(expected, abs=0.05), cell


def test_rates_of_adult_are_fractions_of_whole_numbers_of_edges() -> None:
    study = load_study("privpc-adult")
    text = next(note for note in study.notes if "22/28" in note)
    assert "22/31" in text
    assert (round(22 / 28, 3), round(22 / 31, 3), round(9 / 63, 3)) == (0.786, 0.71, 0.143)
    assert 14 * 13 // 2 - 28 == 63


def test_every_shipped_study_is_on_the_page_of_reproductions() -> None:
    page = (Path(__file__).parents[2] / "bench" / "results" / "studies" / "README.md").read_text(encoding="utf-8")
    assert [name for name in shipped_studies() if f"`{name}`" not in page] == []


def test_schedules_have_the_iterations_of_lemma_2() -> None:
    study = load_study("curate-fig3")
    entries = [entry for entry in study.methods if entry.method == "curate-score"]
    assert len(entries) == 12
    for entry in entries:
        schedule = Schedule(entry.settings["schedule"])
        for total in entry.budgets or study.budgets:
            assert entry.settings["iterations"] == math.floor(iterations_allowed(schedule, total, total / 20))
            assert f"{schedule.value}, {entry.settings['iterations']} iterations" in entry.title


def test_seconds_and_tests_of_curate_are_those_of_its_figures() -> None:
    times = load_study("curate-fig7")
    walls = {p.method: p.values for p in times.published if p.metric is Metric.WALL_SECONDS}
    assert walls["curate, as published"]["child"] == (92.3662,)
    assert walls["em-pc, all nodes, as published"]["sachs"] == (2797.6196,)
    four, five = load_study("curate-fig4"), load_study("curate-fig5")
    for method in ("curate", "svt-pc", "priv-pc"):
        label = f"{method}, as published"
        (old,) = [p for p in four.published if p.method == label and p.metric is Metric.QUESTIONS]
        (new,) = [p for p in five.published if p.method == label and p.metric is Metric.QUESTIONS]
        assert old.values == new.values


@pytest.mark.parametrize(
    "name", [*TABLES, "curate-fig3", "curate-fig4", "curate-fig5", "curate-fig6", "curate-fig7", "priv-pc-fig1"]
)
def test_reproductions_have_both_calibrations_our_own_and_a_limit_of_time(name: str) -> None:
    study = load_study(name)
    contenders = [entry for entry in study.methods if entry.role is Role.CONTENDER]
    assert {entry.calibration.value for entry in contenders} > {"sound"}
    ours = {entry.method for entry in contenders if entry.method.startswith("measure")}
    assert len(ours) >= (1 if name == "curate-fig3" else 2)  # measure and its kin
    assert study.repetitions >= 20
    assert all(smaller < larger for smaller, larger in pairwise(study.budgets))
    if name != "curate-fig7":
        assert any(entry.role is Role.CEILING for entry in study.methods)
    assert study.limit is not None


def outcomes_of(study: Study, scores: dict[tuple[str, int, float], tuple[float, float]]) -> dict[str, Outcome]:
    """Return two outcomes for each label, rows and budget."""
    return {
        job.key: Outcome({"skeleton_f1": scores[job.label, job.n_rows, job.epsilon][job.repetition]})
        for job in list_jobs(study)
        if (job.label, job.n_rows, job.epsilon) in scores
    }


def test_figures_can_depend_on_rows() -> None:
    study = parse_study(TOML)
    (printed,) = study.published
    assert [printed.at("asia", 1.0, n_rows) for n_rows in (100, 200, 300)] == [None, 0.625, 0.75]
    both = replace(printed, budgets=(1.0, 2.0), values={"asia": (0.1, 0.2, 0.3, 0.4)})
    assert [both.at("asia", epsilon, n_rows) for n_rows in (200, 300) for epsilon in (1.0, 2.0)] == [0.1, 0.2, 0.3, 0.4]
    with pytest.raises(MethodError, match="has 2 figures for 2 budgets and 2 numbers of rows"):
        parse_study(TOML.replace("rows = [200, 300]", "rows = [200, 300]\nbudgets = [1, 2]"))


def test_one_budget_and_several_sizes_make_one_table_over_rows() -> None:
    study = parse_study(TOML)
    found = outcomes_of(
        study,
        {
            ("measure", 100, 1.0): (0.4, 0.6),
            ("svt-pc", 100, 1.0): (0.2, 0.2),
            ("svt-pc", 200, 1.0): (0.3, 0.5),
            ("measure, without noise", 200, 1e6): (0.9, 0.9),
        },
    )
    spots = summarise(study, found)
    assert choose_axis(spots) is Axis.ROWS
    lines = write_page(study, spots, [], Form.MARKDOWN).splitlines()
    place = lines.index("### asia, ε = 1")
    assert lines[place + 2] == "| method | 100 rows | 200 rows | published |"
    assert "| svt-pc | 0.20 ± 0.00 | 0.40 ± 1.27 | 0.625 |" in lines
    assert "| measure, without noise |  | 0.90 ± 0.00 |  |" in lines
    rows = list(csv.DictReader(io.StringIO(write_page(study, spots, [], Form.CSV))))
    assert {(r["rows"], r["method"]): r["published"] for r in rows if r["published"]} == {("200", "svt-pc"): "0.625"}
    (panel,) = list_panels(study, spots, Metric.SKELETON_F1)
    known = {line.label: (list(line.places), list(line.heights)) for line in panel.lines}
    assert known["svt-pc"] == ([100.0, 200.0], [0.2, 0.4])
    assert known["measure, without noise"] == ([200.0], [0.9])
    assert panel.title == "asia, ε = 1"


def test_one_budget_and_several_data_sets_make_a_panel_over_them() -> None:
    study = replace(parse_study(TOML), data=("asia", "cancer"), rows=(100,), published=())
    jobs = [job for job in list_jobs(study) if job.label == "svt-pc" and job.data == "cancer"]
    spots = summarise(study, {job.key: Outcome({"skeleton_f1": 0.5}) for job in jobs})
    assert choose_axis(spots) is Axis.DATA
    (panel,) = list_panels(study, spots, Metric.SKELETON_F1)
    known = {line.label: list(line.heights) for line in panel.lines}
    assert known["svt-pc"] == [None, 0.5]
    assert known["measure"] == []
    assert panel.levels == {}


def spot(label: str, epsilon: float, mean: float, half: float, role: Role = Role.CONTENDER) -> Spot:
    estimate = {Metric.SKELETON_F1: Estimate(5, mean, 0.1, half)}
    return Spot("asia", 100, label, "sound", role, epsilon, 5, 5, (), estimate)


def test_defeats_are_listed_and_told_apart() -> None:
    study = replace(parse_study(TOML), rows=(100,), budgets=(1.0, 2.0, 3.0))
    spots = [
        *(spot("measure", epsilon, 0.5, 0.05) for epsilon in (1.0, 2.0, 3.0)),
        spot("svt-pc", 1.0, 0.59, 0.05),
        spot("em-pc", 1.0, 0.61, 0.05),
        spot("svt-pc", 2.0, 0.5, 0.0),
        spot("svt-pc", 3.0, 0.9, math.nan),
        spot("measure, without noise", 1e6, 1.0, 0.0, Role.CEILING),
    ]
    defeats = list_defeats(study, spots, Metric.SKELETON_F1)
    assert [(d.champion.epsilon, d.rival.label, d.is_clear) for d in defeats] == [
        (1.0, "em-pc", True),
        (1.0, "svt-pc", False),
        (3.0, "svt-pc", False),
    ]
    told = describe_defeats(study, spots, Metric.SKELETON_F1).splitlines()
    assert told[0] == (
        "`measure` has not the highest mean in 2 of 3 cells, in 1 of them by more than both half-widths together:"
    )
    assert told[2] == "- asia, ε = 1: em-pc 0.610, measure 0.500; beyond both intervals"
    assert told[3] == "- asia, ε = 1: svt-pc 0.590, measure 0.500; within the intervals"
    assert told[4] == "- asia, ε = 3: svt-pc 0.900, measure 0.500; one run has no interval"
    highest = describe_defeats(study, spots[:3], Metric.SKELETON_F1)
    assert highest == "`measure` has the highest mean in all 3 cells."
    assert describe_defeats(study, spots, Metric.TPR) == ""
    assert describe_defeats(replace(study, champion=""), spots, Metric.SKELETON_F1) == ""
    assert "`measure` has not the highest mean" in write_page(study, spots, [], Form.MARKDOWN)


def test_a_champion_is_one_of_the_contenders() -> None:
    assert load_study("headline").champion == "measure"
    with pytest.raises(MethodError, match="champion: method: nothing is called 'x'; there are: measure; svt-pc"):
        parse_study(TOML.replace('champion = "measure"', 'champion = "x"'))
    study = replace(parse_study(TOML), quick=replace(parse_study(TOML).quick, methods=("svt-pc",)))
    assert study.miniature().champion == ""
