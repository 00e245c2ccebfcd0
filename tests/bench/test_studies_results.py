"""One Parquet file has all of a study: it comes back whole, makes the same page, and other studies go on from it."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from dagveil.cli.main import group
from dagveil.errors import DataError
from dagveil_bench.studies import results
from dagveil_bench.studies.jobs import list_jobs
from dagveil_bench.studies.machine import find_commit
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.page import Form, figure_name, write_page
from dagveil_bench.studies.reading import parse_study
from dagveil_bench.studies.results import open_results, results_beside, write_results
from dagveil_bench.studies.runner import take_over
from dagveil_bench.studies.store import COLUMNS, Store
from dagveil_bench.studies.summary import summarise
from dagveil_bench.studies.trial import Outcome

TOML = """
name = "small"
title = "A small study"
data = ["cancer"]
budgets = [1]
rows = [200]
repetitions = 2
[[methods]]
method = "svt-pc"
"""
MORE = """
[[methods]]
method = "em-pc"
"""
STUDY = parse_study(TOML)
JOBS = list_jobs(STUDY)


def fill(path: Path, *outcomes: Outcome, session: str = "0") -> Store:
    """Return a store whose first runs have these outcomes."""
    kept = Store(path, create=True)
    kept.put_study(STUDY)
    kept.begin_session(2, {"dagveil": "never used"}, {})
    number = kept.begin_session(2, {"dagveil": session}, {"cores": "2"})
    for job, outcome in zip(JOBS, outcomes, strict=False):
        kept.add(job, outcome, number)
    return kept


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """Return a store with a good run, and one that failed and was tried again."""
    kept = fill(tmp_path / "small.sqlite", Outcome({"skeleton_f1": 0.5}), Outcome(error="MethodError: no"))
    kept.add(JOBS[1], Outcome({"shd": 3.0}), 2)
    return kept


def test_a_parquet_file_comes_back_whole(kept: Store, tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    assert write_results(kept, path) == 3
    with open_results(path) as again:
        assert again.study() == STUDY
        assert again.outcomes() == kept.outcomes()
        assert len(again.outcomes()) == 2
        assert again.pending(JOBS) == JOBS[2:]
        # the session without a run stays behind, so the other one has another number
        assert [session.software for session in again.sessions()] == [{"dagveil": "0"}]
        place = COLUMNS.index("session")
        assert {row[place] for row in again.rows()} == {1}
        assert {row[place] for row in kept.rows()} == {2}
        without = [[(*row[:place], *row[place + 1 :]) for row in store.rows()] for store in (kept, again)]
        assert without[0] == without[1]
    facts = parquet.read_table(path)
    assert facts.schema.field("shd").type == pa.float64()
    assert facts["shd"].to_pylist() == [None, None, 3.0]
    assert facts["is_planned"].to_pylist() == [True] * 3
    assert not list(tmp_path.glob("*.part"))


def test_an_interrupted_write_leaves_the_file_of_before(
    kept: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small.parquet"
    write_results(kept, path)
    before = path.read_bytes()

    def break_off(table: pa.Table, where: Path, **_: object) -> None:
        where.write_bytes(b"half a f")
        raise OSError("no space left on device")

    monkeypatch.setattr(results.parquet, "write_table", break_off)
    with pytest.raises(OSError, match="no space"):
        write_results(kept, path)
    assert path.read_bytes() == before


def test_a_metric_that_is_newer_than_the_file_has_no_numbers(kept: Store, tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    write_results(kept, path)
    parquet.write_table(parquet.read_table(path).drop_columns(["omission"]), path)
    with open_results(path) as old:
        assert math.isnan(old.outcomes()[JOBS[0].key].of(Metric.OMISSION))
        assert old.outcomes()[JOBS[0].key].of(Metric.SKELETON_F1) == 0.5


def test_other_files_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.parquet"
    text.write_text("no Parquet", encoding="utf-8")
    with pytest.raises(DataError, match=r"cannot read .*text.parquet as Parquet"):
        open_results(text)
    other = tmp_path / "other.parquet"
    parquet.write_table(pa.table({"x": [1]}), other)
    with pytest.raises(DataError, match="has no runs of a study; `dagveil bench export"):
        open_results(other)
    with pytest.raises(DataError, match=r"choose .*small.sqlite, or go on from those runs with --from"):
        results_beside(tmp_path / "small.parquet")


@pytest.mark.parametrize(("column", "value"), [("session", 7), ("session", None), ("key", None)])
def test_a_file_whose_runs_do_not_fit_together_is_refused(
    kept: Store, tmp_path: Path, column: str, value: object
) -> None:
    path = tmp_path / "bent.parquet"
    write_results(kept, path)
    runs = parquet.read_table(path)
    place = runs.column_names.index(column)
    bent = pa.array([value] * len(runs), runs.schema.field(column).type)
    parquet.write_table(runs.set_column(place, runs.schema.field(column), bent), path)
    with pytest.raises(DataError, match=r"bent.parquet is damaged: .*; write it anew with `dagveil bench export`"):
        open_results(path)


def test_runs_are_taken_over_once_and_only_those_in_common(kept: Store, tmp_path: Path) -> None:
    mine = fill(tmp_path / "mine.sqlite", Outcome({"skeleton_f1": 0.25}), session="1")
    assert take_over(STUDY, mine, kept) == 2  # both attempts of the second run
    assert mine.outcomes()[JOBS[0].key] == Outcome({"skeleton_f1": 0.25})
    assert mine.outcomes()[JOBS[1].key] == Outcome({"shd": 3.0})
    assert [session.software["dagveil"] for session in mine.sessions()] == ["never used", "1", "0"]
    assert take_over(STUDY, mine, kept) == 0
    fewer = parse_study(TOML.replace("budgets = [1]", "budgets = [2]").replace("repetitions = 2", "repetitions = 1"))
    common = {job.key for job in list_jobs(fewer)} & {job.key for job in JOBS}
    with Store(tmp_path / "fewer.sqlite", create=True) as store:
        take_over(fewer, store, kept)
        assert store.outcomes().keys() == common & kept.outcomes().keys()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that calls `dagveil bench`."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(group, ["bench", *words])
        assert result.exit_code == code, result.output
        return result.output

    return call


def test_a_study_ends_in_a_file_from_which_others_go_on(bench: Callable[..., str]) -> None:
    Path("small.toml").write_text(TOML, encoding="utf-8")
    Path("longer.toml").write_text(TOML.replace('"small"', '"longer"') + MORE, encoding="utf-8")
    assert "All are in small.parquet" in bench("run", "small.toml", "--workers", "1")
    page = bench("table", "small.sqlite")
    assert "6 of 6 runs are stored" in page
    assert bench("table", "small.parquet") == page.replace("small.sqlite", "small.parquet")
    assert "--store" not in page
    Path("small.sqlite").unlink()
    longer = bench("run", "longer.toml", "--workers", "1", "--from", "small.parquet")
    assert "6 runs taken over from small.parquet" in longer
    assert "2 runs done, 6 of 8 were stored before, 0 failed" in longer
    twice = bench(
        "run", "longer.toml", "--store", "other.sqlite", "--from", "small.parquet", "--from", "longer.parquet"
    )
    assert "6 runs taken over from small.parquet" in twice
    assert "2 runs taken over from longer.parquet" in twice
    assert "0 runs done, 8 of 8 were stored before" in twice
    assert "0 runs taken over from small.parquet: all that" in bench("run", "longer.toml", "--from", "small.parquet")
    with open_results("longer.parquet") as store:
        assert {job.key for job in list_jobs(store.study())} == store.outcomes().keys()
    assert "cannot be a store" in bench("run", "small.toml", "--store", "small.parquet", code=2)
    assert "wrote 6 runs to again.csv" in bench("export", "small.parquet", "-o", "again.csv")
    assert Path("again.csv").read_text(encoding="utf-8").count("\n") == 7


def test_the_commit_of_a_checkout_is_told_and_of_nothing_else(tmp_path: Path) -> None:
    package, installed = tmp_path / "src" / "dagveil", tmp_path / "lib" / "dagveil"
    for folder in (package, installed):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    assert find_commit(package) == ""

    def git(*words: str) -> str:
        names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(["git", "-C", str(tmp_path), *names, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet")
    git("add", "src")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "--short", "HEAD")
    assert find_commit(package) == commit
    (package / "__init__.py").write_text("changed", encoding="utf-8")
    assert find_commit(package) == f"{commit}-dirty"
    assert find_commit(installed) == ""


STUDIES = Path(__file__).parents[2] / "bench" / "results" / "studies"


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.parquet")), ids=lambda path: path.stem)
def test_the_page_of_a_study_is_what_its_committed_runs_make(path: Path) -> None:
    with open_results(path) as store:
        study, sessions = store.study(), store.sessions()
        spots = summarise(study, store.outcomes())
    assert study.name == path.stem
    drawn = [metric for metric in Metric if (STUDIES / figure_name(study, metric)).exists()]
    assert drawn
    page = write_page(study, spots, sessions, Form.MARKDOWN, (), path.name, drawn)
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page + "\n"
