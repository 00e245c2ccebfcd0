"""Studies that run: scores beside a slow twin, failures that are not fatal, kills that cost nothing, pages, figures."""

from __future__ import annotations

import csv
import io
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pyarrow import parquet

import dagveil
import dagveil_bench
from dagveil.cli.main import group
from dagveil.data.memory import MemoryTable
from dagveil.evaluation.comparison import cpdag_shd, marked_edge_f1, rate_skeleton, skeleton_f1
from dagveil.examples.networks import load_network, network_schema, sample_codes
from dagveil.graphs.cpdag import Cpdag
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.runs.discovery import discover
from dagveil_bench.studies import runner
from dagveil_bench.studies.figure import list_panels
from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.machine import describe_software, read_peak, reset_peak
from dagveil_bench.studies.metrics import METRICS_OF, Metric, Task
from dagveil_bench.studies.page import Form, write_page
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.reading import load_study, parse_study, shipped_studies
from dagveil_bench.studies.runner import run_plan
from dagveil_bench.studies.store import Store
from dagveil_bench.studies.summary import estimate_mean, summarise
from dagveil_bench.studies.trial import Outcome, run_job

SOURCE = os.pathsep.join(str(Path(package.__file__ or "").parents[1]) for package in (dagveil, dagveil_bench))

TOML = """
name = "small"
title = "A small study"
reproduces = "Nothing."
data = ["cancer", "child"]
budgets = [0.5, 2]
rows = [300]
repetitions = 2
metrics = ["skeleton-f1", "questions", "cpu-seconds"]
notes = ["A note."]
[[methods]]
method = "svt-pc"
[[methods]]
method = "lap-mech"
[[methods]]
label = "a_b & c"
method = "measure"
role = "ceiling"
[[published]]
method = "svt-pc"
metric = "skeleton-f1"
source = "a table"
budgets = [2]
values = { cancer = [0.625] }
"""


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@pytest.fixture(scope="module")
def study() -> Study:
    """Return a study in which lap-mech fails on child."""
    return parse_study(TOML)


@pytest.fixture(scope="module")
def outcomes(study: Study) -> dict[str, Outcome]:
    """Return the outcomes of its runs."""
    return {job.key: run_job(job) for job in list_jobs(study)}


def find(study: Study, **facts: object) -> list[Job]:
    return [job for job in list_jobs(study) if all(getattr(job, name) == value for name, value in facts.items())]


def test_scores_are_those_of_a_run_by_hand(study: Study, outcomes: dict[str, Outcome]) -> None:
    (job,) = find(study, data="cancer", label="svt-pc", epsilon=2.0, repetition=1)
    network = load_network("cancer")
    codes = sample_codes(network, 300, np.random.default_rng(job.sample_seed))
    table = MemoryTable.from_codes(codes, network_schema(network, 300))
    result = discover(
        table, table.schema, 2.0, 1e-6, method="svt-pc", noise=NoiseKind.SEEDED, seed=job.noise_seed, ledger=None
    )
    graph, truth, found = result.graph.cpdag, network.dag().cpdag(), outcomes[job.key]
    twin = rate_skeleton(graph, network.dag())
    assert found.error is None
    assert [found.of(m) for m in (Metric.SKELETON_F1, Metric.TPR, Metric.FPR, Metric.TDR)] == [
        twin.f1,
        twin.recall,
        twin.fpr,
        twin.precision,
    ]
    assert (found.of(Metric.CPDAG_F1), found.of(Metric.SHD)) == (
        marked_edge_f1(graph, truth),
        cpdag_shd(graph, truth),
    )
    hits = len(graph.directed & truth.directed)
    assert found.of(Metric.ARROW_PRECISION) == (hits / len(graph.directed) if graph.directed else 1.0)
    assert found.of(Metric.ARROW_RECALL) == hits / len(truth.directed)
    assert found.of(Metric.QUESTIONS) == result.questions
    assert math.isnan(found.of(Metric.EPSILON_REPORTED))
    assert found.of(Metric.CPU_SECONDS) > 0 < found.of(Metric.WALL_SECONDS)
    assert 10 < found.of(Metric.PEAK_MEMORY) < 100_000
    again = run_job(job)
    assert all(again.of(m) == found.of(m) for m in Metric if m.is_share and not math.isnan(found.of(m)))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("measure", {}),
        ("lap-mech", {}),
        ("em-pc", {}),
        ("svt-pc", {}),
        ("curate", {"statistic": "median-g"}),
        ("sampled-gaussian-pc", {}),
    ],
)
def test_spent_epsilon_is_above_0_and_within_the_budget(study: Study, method: str, settings: dict[str, str]) -> None:
    job = replace(find(study, data="cancer")[0], method=method, settings=settings, epsilon=0.7)
    outcome = run_job(job)
    assert outcome.error is None
    assert 0.0 < outcome.of(Metric.EPSILON_SPENT) <= 0.7
    published = replace(job, method="svt-pc", settings={}, calibration=Calibration.PROGRAM)
    assert math.isnan(run_job(published).of(Metric.EPSILON_SPENT))
    assert run_job(published).of(Metric.EPSILON_REPORTED) > 0


def test_floors_are_scored_and_failures_are_outcomes(study: Study, outcomes: dict[str, Outcome]) -> None:
    for label, graph in (("the complete graph", Cpdag.complete), ("the empty graph", Cpdag.empty)):
        dag = load_network("child").dag()
        for job in find(study, data="child", label=label):
            assert outcomes[job.key].of(Metric.SKELETON_F1) == skeleton_f1(graph(dag.nodes), dag)
            assert outcomes[job.key].of(Metric.SHD) == cpdag_shd(graph(dag.nodes), dag.cpdag())
            assert math.isnan(outcomes[job.key].of(Metric.CPU_SECONDS))
    failed = {job.key for job in find(study, data="child", method="lap-mech")}
    assert {key for key, outcome in outcomes.items() if outcome.error is not None} == failed
    assert all("MethodError: lap-mech puts noise on every cell" in str(outcomes[key].error) for key in failed)


def test_peak_memory_falls_again_after_a_reset() -> None:
    reset_peak()
    before = read_peak()
    block = np.ones(40_000_000)  # 305 MiB
    high = read_peak()
    del block
    reset_peak()
    assert high > before + 250
    if Path("/proc/self/clear_refs").exists():
        assert read_peak() < high - 200


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    estimates = [estimate_mean(rng.normal(3.0, 2.0, 6).tolist()) for _ in range(4000)]
    covered = np.mean([abs(e.mean - 3.0) <= e.half_width for e in estimates])
    assert 0.938 < covered < 0.962
    assert math.isnan(estimate_mean([1.0]).half_width)


@pytest.mark.parametrize("name", list(shipped_studies()))
def test_a_miniature_of_each_shipped_study_runs_and_has_its_page(name: str) -> None:
    study = load_study(name).miniature()
    if study.task is Task.LOCAL:
        pytest.importorskip("causallearn")
    found = {job.key: run_job(job) for job in list_jobs(study)}
    assert [outcome.error for outcome in found.values() if outcome.error] == []
    spots = summarise(study, found)
    assert all(spot.stored == spot.planned for spot in spots)
    page = write_page(study, spots, [], Form.MARKDOWN)
    assert f"dagveil bench run {name} --quick" in page
    for entry in study.methods:
        assert f"| {entry.title} |" in page
    for metric in study.metrics:
        assert f"## {metric.title}" in page


def test_the_page_has_figures_of_others_failures_and_floors(study: Study, outcomes: dict[str, Outcome]) -> None:
    page = write_page(study, summarise(study, outcomes), [], Form.MARKDOWN)
    lines = page.splitlines()
    assert lines[0] == "# A small study"
    assert "28 of 28 runs are stored." in page
    assert "- A note." in lines
    assert "- Published under 'Skeleton F1': a table." in lines
    place = lines.index("### cancer, 300 rows")
    assert lines[place + 2] == "| method | ε = 0.5 | ε = 2 | published |"
    assert lines[place + 4].startswith("| svt-pc | 0.")
    assert lines[place + 4].endswith("| 0.625 |")
    assert "| the complete graph | 0.57 ± 0.00 | 0.57 ± 0.00 |  |" in lines
    assert "| lap-mech | failed | failed |" in lines[lines.index("### child, 300 rows") :]
    seconds = lines[lines.index("## CPU seconds of a run") :]
    assert not any(line.startswith("| the complete graph") for line in seconds)
    assert lines[lines.index("## Failed runs") + 2].startswith(
        "- lap-mech on 300 rows of child, 4 runs: MethodError: lap-mech puts noise"
    )


@pytest.mark.filterwarnings("error")
def test_totals_that_are_too_large_to_add_up_are_averaged_in_silence() -> None:
    assert estimate_mean([1e308, 1e308]).mean == math.inf


def test_half_a_study_has_a_page(study: Study, outcomes: dict[str, Outcome]) -> None:
    half = {job.key: outcomes[job.key] for job in find(study, repetition=0)}
    page = write_page(study, summarise(study, half), [], Form.MARKDOWN)
    assert "14 of 28 runs are stored." in page
    assert "| the complete graph | 0.57 | 0.57 |  |" in page
    assert "- svt-pc: 1 of 2 repetitions on cancer, 300 rows; child, 300 rows." in page
    one = {job.key: outcomes[job.key] for job in list_jobs(study) if job.repetition == 0 or job.epsilon != 2.0}
    some = write_page(study, summarise(study, one), [], Form.MARKDOWN)
    assert "- svt-pc: 1 of 2 repetitions at ε = 2 on cancer, 300 rows; child, 300 rows." in some
    assert "repetitions on" not in write_page(study, summarise(study, outcomes), [], Form.MARKDOWN)
    nothing = write_page(study, summarise(study, {}), [], Form.MARKDOWN)
    assert "0 of 28 runs are stored." in nothing
    assert "- svt-pc: none of 2 repetitions on cancer, 300 rows; child, 300 rows." in nothing


def test_csv_and_latex(study: Study, outcomes: dict[str, Outcome]) -> None:
    spots = summarise(study, outcomes)
    rows = list(csv.DictReader(io.StringIO(write_page(study, spots, [], Form.CSV))))
    (row,) = [
        r
        for r in rows
        if (r["data"], r["method"], r["epsilon"], r["metric"]) == ("cancer", "svt-pc", "2.0", "skeleton-f1")
    ]
    values = [
        outcomes[job.key].of(Metric.SKELETON_F1) for job in find(study, data="cancer", label="svt-pc", epsilon=2.0)
    ]
    assert float(row["mean"]) == pytest.approx(np.mean(values), rel=1e-5)
    assert float(row["deviation"]) == pytest.approx(np.std(values, ddof=1), rel=1e-5, abs=1e-9)
    assert (row["runs"], row["failed"], row["published"]) == ("2", "0", "0.625")
    assert {r["metric"] for r in rows} == {metric.value for metric in METRICS_OF[Task.GRAPH]} - {"epsilon-reported"}
    latex = write_page(study, spots, [], Form.LATEX)
    assert r"a\_b \& c & " in latex
    assert r"$\varepsilon$ = 0.5 & $\varepsilon$ = 2 & published \\" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 6


def test_figures_have_intervals_ceilings_floors_and_reported_places(outcomes: dict[str, Outcome], study: Study) -> None:
    panels = list_panels(study, summarise(study, outcomes), Metric.SKELETON_F1)
    assert [panel.title for panel in panels] == ["cancer", "child"]
    assert list(panels[0].levels) == ["a_b & c", "the complete graph", "the empty graph"]
    assert panels[0].levels["the complete graph"] == pytest.approx(8 / 14)
    assert [line.label for line in panels[1].lines] == ["svt-pc", "lap-mech"]
    assert list(panels[0].lines[0].places) == [0.5, 2.0]
    assert list(panels[1].lines[1].heights) == []
    assert list(list_panels(study, summarise(study, outcomes), Metric.QUESTIONS)[0].levels) == []
    (entry, *others) = study.methods
    paper = replace(entry, calibration=Calibration.PROGRAM, budget_setting="round_epsilon", label="p")
    reporting = replace(study, methods=(paper, *others), published=(), data=("cancer",))
    found = {job.key: run_job(job) for job in list_jobs(reporting)}
    line = list_panels(reporting, summarise(reporting, found), Metric.SKELETON_F1)[0].lines[0]
    reported = [
        np.mean([found[j.key].of(Metric.EPSILON_REPORTED) for j in find(reporting, label="p", epsilon=epsilon)])
        for epsilon in (0.5, 2.0)
    ]
    assert list(line.places) == pytest.approx(reported)
    assert reported[0] > 0.5


def test_all_commands_on_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(TOML, encoding="utf-8")

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(group, ["bench", *words])
        assert result.exit_code == code, result.output
        return result.output

    listed = run("list")
    assert "curate-fig4: F1 against ε on six networks. Bhattacharjee and Tandon, CURATE (2024), figure 4 (" in listed
    refused = run("run", "small.toml", "--workers", "1", code=2)
    assert "'lap-mech' cannot be run on 'child': lap-mech puts noise on every cell" in refused
    assert "holds no study yet" in run("table", "small.sqlite", code=2)
    monkeypatch.setattr(runner, "check_first", lambda jobs, study: None)  # so that runs fail
    part = run("run", "small.toml", "--workers", "1", "--only", "data=child", "--only", "method=lap-mech", code=1)
    assert "4 runs done, 0 of 4 were stored before, 4 failed" in part
    assert "most often: MethodError: lap-mech puts noise on every cell" in part
    assert "--retry" in part
    whole = run("run", "small.toml", "--workers", "1", code=1)
    assert "24 runs done, 4 of 28 were stored before, 4 failed" in whole
    assert "0 runs done, 28 of 28 were stored before, 4 failed" in run("run", "small.toml", code=1)
    again = run("run", "small.toml", "--retry", "--workers", "1", code=1)
    assert "4 runs done, 24 of 28 were stored before, 4 failed" in again
    assert "not counted" not in again
    assert "versions" not in again
    page = run("table", "small.sqlite")
    assert "28 of 28 runs are stored" in page
    assert f"Run with dagveil {describe_software()['dagveil']}, python " in page
    assert "processor: " in page
    run("table", "small.sqlite", "--form", "latex", "--metric", "shd", "-o", "shd.tex")
    assert "Structural Hamming distance" in Path("shd.tex").read_text(encoding="utf-8")
    for words in (("table", "small.sqlite"), ("plot", "small.sqlite", "-o", "figures")):
        assert "runs of the task graph have no rejected; choose from skeleton-f1" in run(
            *words, "--metric", "rejected", code=2
        )
    run("export", "small.sqlite", "-o", "runs.parquet")
    runs = parquet.read_table("runs.parquet")
    assert runs.num_rows == 32
    assert set(runs["attempt"].to_pylist()) == {1, 2}
    assert set(runs["is_planned"].to_pylist()) == {True}
    assert b"numpy" in runs.schema.metadata[b"dagveil.sessions"]
    assert "must end in .csv or .parquet" in run("export", "small.sqlite", "-o", "runs.txt", code=2)
    assert "--only takes NAME=VALUE" in run("run", "small.toml", "--only", "child", code=2)
    assert "holds the study 'small'" in run("run", "headline", "--store", "small.sqlite", code=2)
    pytest.importorskip("matplotlib")
    run("plot", "small.sqlite", "-o", "figures")
    drawn = Path("figures/small-skeleton-f1.svg").read_text(encoding="utf-8")
    assert all(words in drawn for words in ("svt-pc", "the complete graph", "the empty graph", "cancer", "child", "ε"))
    assert "![" not in run("table", "small.sqlite")
    run("table", "small.sqlite", "-o", "figures/small.md")
    shown = Path("figures/small.md").read_text(encoding="utf-8")
    assert "## Skeleton F1\n\n![Skeleton F1](small-skeleton-f1.svg)\n\n### cancer" in shown
    first = Path("figures/small-skeleton-f1.svg").read_bytes()
    run("plot", "small.sqlite", "-o", "figures", "--metric", "skeleton-f1")
    assert Path("figures/small-skeleton-f1.svg").read_bytes() == first


ONE = """
name = "one"
title = "One method"
data = ["cancer"]
budgets = [1]
rows = [200]
repetitions = 2
champion = "svt-pc"
[[methods]]
method = "svt-pc"
"""


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that writes a study of few runs, with changes, and runs it into one.sqlite."""
    monkeypatch.chdir(tmp_path)

    def run(*changes: tuple[str, str], words: tuple[str, ...] = ()) -> str:
        text = ONE
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        Path("one.toml").write_text(text, encoding="utf-8")
        result = CliRunner().invoke(group, ["bench", "run", "one.toml", "--workers", "1", *words])
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_runs_of_an_earlier_form_are_told_and_marked(one: Callable[..., str]) -> None:
    assert "not counted" not in one()
    more = one(("repetitions = 2", "repetitions = 3"))
    assert "3 runs done, 6 of 9 were stored before" in more
    assert "not counted" not in more
    assert "9 stored runs of another seed, delta, source or setting are not counted" in one(("rows", "seed = 5\nrows"))
    CliRunner().invoke(group, ["bench", "export", "one.sqlite", "-o", "runs.parquet"])
    assert sorted(parquet.read_table("runs.parquet")["is_planned"].to_pylist()) == [False] * 9 + [True] * 6


def test_means_over_different_versions_are_told(one: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    one()
    monkeypatch.setattr(runner, "describe_software", lambda: {"dagveil": "0.0", "numpy": np.__version__})
    before = describe_software()["dagveil"]
    assert f"different versions: dagveil {before}, 0.0." in one(("repetitions = 2", "repetitions = 3"))
    page = CliRunner().invoke(group, ["bench", "table", "one.sqlite"]).output
    assert f"- Means are over runs of different versions: dagveil {before}, 0.0." in page


def test_a_metric_that_no_run_has_is_told(one: Callable[..., str]) -> None:
    one()
    page = CliRunner().invoke(group, ["bench", "table", "one.parquet", "--metric", "epsilon-reported"]).output
    assert page.rstrip().endswith("No run has it.")


def test_the_page_names_the_files_that_were_given(one: Callable[..., str]) -> None:
    one(words=("--store", "my runs.sqlite"))
    page = CliRunner().invoke(group, ["bench", "table", "my runs.sqlite"]).output
    assert "    dagveil bench run one.toml --store 'my runs.sqlite'\n" in page
    assert "    dagveil bench table 'my runs.sqlite'\n" in page


def test_a_damaged_store_is_told_with_a_way_out(one: Callable[..., str]) -> None:
    one()
    content = bytearray(Path("one.sqlite").read_bytes())
    content[4096:] = b"\x07" * (len(content) - 4096)
    Path("one.sqlite").write_bytes(bytes(content))
    for words in (("run", "one.toml"), ("table", "one.sqlite"), ("export", "one.sqlite", "-o", "runs.csv")):
        result = CliRunner().invoke(group, ["bench", *words])
        assert result.exit_code == 2
        assert "one.sqlite cannot be used" in result.output
        assert ".recover" in result.output


def test_data_that_cannot_be_drawn_stop_the_study_before_it_starts(
    one: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one()

    def refuse(*words: object) -> object:
        raise FileNotFoundError(2, "No such file", "rows.csv")

    monkeypatch.setattr(runner, "sample_source", refuse)
    assert "0 runs done" in one()  # nothing is left, so nothing is drawn
    Path("one.toml").write_text(ONE.replace("[200]", "[100]"), encoding="utf-8")
    result = CliRunner().invoke(group, ["bench", "run", "one.toml"])
    assert result.exit_code == 2
    assert "100 rows of 'cancer' cannot be drawn: FileNotFoundError" in result.output
    assert "6 of 6 runs are stored" in CliRunner().invoke(group, ["bench", "table", "one.sqlite"]).output


def test_a_data_set_with_too_few_rows_for_some_runs_costs_only_those(
    one: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the smaller ones are done: then only the larger ones wait."""
    one()
    true_sample = runner.sample_source

    def has_few(source: str, n_rows: int, rng: np.random.Generator) -> object:
        if n_rows > 200:
            raise ValueError("there are 200 rows")
        return true_sample(source, n_rows, rng)

    monkeypatch.setattr(runner, "sample_source", has_few)
    assert "6 of 12 were stored before" in one(("[200]", "[200, 300]"))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_study_goes_on_where_it_was(tmp_path: Path) -> None:
    text = TOML.replace("rows = [300]", "rows = [10_000]").replace("repetitions = 2", "repetitions = 4")
    text = text.replace('method = "lap-mech"', 'method = "lap-mech"\ndata = ["cancer"]')
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    path = tmp_path / "small.sqlite"
    command = [sys.executable, "-m", "dagveil.cli.main", "bench", "run", "small.toml", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    jobs = list_jobs(parse_study(text))

    def stored() -> list[str]:
        try:
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as connection:
                return [key for (key,) in connection.execute("SELECT key FROM runs ORDER BY rowid")]
        except sqlite3.OperationalError:  # not made yet
            return []

    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while len(stored()) < 5 and process.poll() is None:
        time.sleep(0.02)
    children = _children(process.pid)
    process.kill()
    process.wait()
    before = stored()
    assert 5 <= len(before) < len(jobs)
    assert children
    for child in children:  # orphans end by themselves, so that they do not compete with the next call
        while _is_alive(child):
            time.sleep(0.02)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=True)
    assert f"{len(jobs) - len(before)} runs done, {len(before)} of {len(jobs)} were stored before" in done.stdout
    after = stored()
    assert after[: len(before)] == before
    assert sorted(after) == sorted(job.key for job in jobs)


def _children(pid: int) -> list[int]:
    """Return the processes of a process, where the system tells."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _is_alive(pid: int) -> bool:
    """Tell whether a process is alive and not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_runner_counts_what_was_lost(tmp_path: Path, study: Study) -> None:
    hurried = replace(study, limit=1e-6, repetitions=1, data=("cancer",))
    with Store(tmp_path / "s.sqlite", create=True) as store:
        tally = run_plan(hurried, store, 1, silent, {"role": ["ceiling"]})
        assert (tally.total, tally.done) == (1, 1)
        (outcome,) = store.outcomes().values()
    assert outcome.error in (None, "given up after 1e-06 seconds")
    assert tally.failed == (outcome.error is not None)
    assert {job.role for job in list_jobs(hurried)} == set(Role)
