"""The store: what is added stays, what failed can be tried again, and strangers are refused."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from dagveil.errors import DataError
from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.reading import load_study, parse_study
from dagveil_bench.studies.store import COLUMNS, Store
from dagveil_bench.studies.trial import Outcome

STUDY = parse_study(
    """
    name = "small"
    title = "A small study"
    data = ["cancer"]
    budgets = [1]
    rows = [100]
    repetitions = 2
    [[methods]]
    method = "measure"
    settings = {}
    """
)
JOBS = list_jobs(STUDY)
GOOD = Outcome({"skeleton_f1": 0.5, "shd": 3.0})
BAD = Outcome(error="MethodError: no")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store with one session."""
    kept = Store(tmp_path / "deep" / "small.sqlite", create=True)
    kept.put_study(STUDY)
    assert kept.begin_session(2, {"dagveil": "0"}, {"cores": "2"}) == 1
    return kept


def attempts(store: Store, job: Job) -> list[tuple[int, str | None]]:
    places = [COLUMNS.index(name) for name in ("key", "attempt", "error")]
    return [(row[places[1]], row[places[2]]) for row in store.rows() if row[places[0]] == job.key]


def test_an_outcome_comes_back_as_it_went_in(store: Store, tmp_path: Path) -> None:
    store.add(JOBS[0], GOOD, 1)
    with Store(tmp_path / "deep" / "small.sqlite") as again:
        assert again.outcomes() == {JOBS[0].key: GOOD}
        assert again.study() == STUDY
        (session,) = again.sessions()
        assert (session.workers, session.software, session.hardware) == (2, {"dagveil": "0"}, {"cores": "2"})
        (row,) = again.rows()
    facts = dict(zip(COLUMNS, row, strict=True))
    assert facts["sample_seed"] == JOBS[0].sample_seed
    assert facts["noise_seed"] == JOBS[0].noise_seed
    assert facts["settings"] == "{}"
    assert facts["questions"] is None
    assert math.isnan(GOOD.of(Metric.QUESTIONS))
    assert {metric.column for metric in Metric} <= set(facts)


def test_a_finished_run_is_never_stored_twice(store: Store) -> None:
    assert store.add(JOBS[0], GOOD, 1)
    assert not store.add(JOBS[0], Outcome({"skeleton_f1": 1.0}), 1)
    assert attempts(store, JOBS[0]) == [(1, None)]
    assert store.outcomes()[JOBS[0].key] == GOOD
    assert store.pending(JOBS) == JOBS[1:]


def test_failures_stay_and_can_be_tried_again(store: Store) -> None:
    store.add(JOBS[0], BAD, 1)
    assert store.pending(JOBS) == JOBS[1:]
    assert store.pending(JOBS, retry=True) == JOBS
    store.add(JOBS[0], BAD, 1)
    store.add(JOBS[0], GOOD, 1)
    assert attempts(store, JOBS[0]) == [(1, BAD.error), (2, BAD.error), (3, None)]
    assert store.outcomes()[JOBS[0].key] == GOOD
    assert store.pending(JOBS, retry=True) == JOBS[1:]


def test_a_changed_plan_follows_the_old_one_and_another_study_is_refused(store: Store) -> None:
    store.put_study(STUDY)
    longer = replace(STUDY, repetitions=5)
    store.put_study(longer)
    assert store.study() == longer
    with pytest.raises(DataError, match="holds the study 'small', not 'headline'; choose another file with --store"):
        store.put_study(load_study("headline"))


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(TypeError):
        store.add(JOBS[0], Outcome({"skeleton_f1": "x"}), 1)  # type: ignore[dict-item]
    store.add(JOBS[0], GOOD, 1)
    assert len(list(store.rows())) == 1


def test_files_that_are_no_stores(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no store"):
        Store(tmp_path / "none.sqlite")
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be looked at" * 30)
    with pytest.raises(DataError, match=r"cannot open .* as the store of a study"):
        Store(text)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE runs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="a database of something else"):
        Store(other)
    with pytest.raises(DataError, match="a database of something else"):
        Store(other, create=True)
    blank = tmp_path / "blank.sqlite"
    blank.touch()
    with pytest.raises(DataError, match="is empty; choose the file of a study"):
        Store(blank)
    newer = tmp_path / "newer.sqlite"
    Store(newer, create=True).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DataError, match="has layout 99, this program reads 1"):
        Store(newer)
    empty = Store(tmp_path / "empty.sqlite", create=True)
    with pytest.raises(DataError, match="holds no study yet"):
        empty.study()
