"""The studies of persons with many records: what they draw, what an attacker learns, and what may be asked."""

from __future__ import annotations

import numpy as np
import pytest

from dagveil.errors import MethodError
from dagveil.examples.networks import load_network
from dagveil.privacy.budget import Budget
from dagveil_bench.persons import MOST_RECORDS, TRIALS, UNITS, WAYS, attack, draw_visits, truncate
from dagveil_bench.studies.jobs import list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.reading import load_study, parse_study
from dagveil_bench.studies.trial import run_job


def test_truncation_keeps_so_many_records_of_each_person() -> None:
    visits = draw_visits(load_network("cancer"), 50, np.random.default_rng(1))
    sizes = np.bincount(visits["person"].to_numpy())
    assert sizes.max() <= MOST_RECORDS
    kept = np.bincount(truncate(visits, 5, np.random.default_rng(2))["person"].to_numpy())
    assert np.array_equal(kept, np.minimum(sizes, 5))


def test_an_attacker_of_rows_is_certain_about_a_person_with_fifty() -> None:
    assert attack(load_network("cancer"), "rows", 2000, Budget.of(1.0, 1e-6), 5, range(40)) == 1.0


def test_the_studies_have_all_ways_and_attacks() -> None:
    assert {entry.method for entry in load_study("persons").methods} == set(WAYS)
    study = load_study("membership")
    assert {entry.method for entry in study.methods} == set(UNITS)
    assert study.repetitions * TRIALS == 2000
    for job in list_jobs(study.miniature()):
        outcome = run_job(job)
        assert outcome.of(Metric.ADVANTAGE) >= -1.0
        assert (outcome.of(Metric.ADVANTAGE_BOUND) == 1.0) is (job.method == "rows")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ('{ method = "two" }', r"methods\[0\]: no way is called 'two'; choose rows or one or weigh or truncate"),
        ('{ method = "one", role = "ceiling" }', r"methods\[0\]: calibration, role: a way is run at every budget"),
        ('{ method = "one", settings = { a = 1 } }', r"methods\[0\]: settings: a way has none; leave it out"),
    ],
)
def test_ways_that_cannot_be_run_are_refused(method: str, told: str) -> None:
    text = 'name = "p"\ntitle = "P"\ntask = "persons"\ndata = ["asia"]\nbudgets = [1]\nrows = [9]\n'
    with pytest.raises(MethodError, match=told):
        parse_study(f"{text}methods = [{method}]")
