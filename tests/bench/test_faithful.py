"""The study of paper calibrations: without noise nothing is random, and runs share a sample but not the noise."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dagveil.papers.publication import PAPERS
from dagveil.privacy.receipt import Calibration
from dagveil_bench.speed import Timing, methods_speed_page
from dagveil_bench.studies.jobs import Job, list_jobs
from dagveil_bench.studies.metrics import Metric
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.reading import load_study
from dagveil_bench.studies.trial import run_job

ROWS = 3000


@pytest.fixture(scope="module")
def study() -> Study:
    return replace(load_study("faithful"), rows=(ROWS,))


def find(study: Study, data: str, method: str, role: Role, sample: int) -> list[Job]:
    jobs = [job for job in list_jobs(study) if (job.data, job.method, job.role) == (data, method, role)]
    return [job for job in jobs if job.sample == sample]


def test_methods_have_a_paper_calibration_and_totals_are_looked_for(study: Study) -> None:
    assert all(entry.method in PAPERS for entry in study.methods)
    for epsilon in study.budgets:
        jobs = [job for job in find(study, "cancer", "svt-pc", Role.CONTENDER, 0) if job.epsilon == epsilon]
        for job in jobs[:2]:
            assert epsilon / 3 < run_job(job).of(Metric.EPSILON_REPORTED) < 3 * epsilon


@pytest.mark.parametrize("method", ["svt-pc", "priv-pc", "curate"])
def test_without_noise_nothing_is_random(study: Study, method: str) -> None:
    # EM-PC's program draws among ties, since a pair that one record turns has distance 0
    # priv-pc still draws a sub-sample; on this sample it decides nothing
    outcomes = [run_job(job) for job in find(study, "survey", method, Role.CEILING, 4)[:3]]
    assert len({(o.of(Metric.SKELETON_F1), o.of(Metric.QUESTIONS)) for o in outcomes}) == 1


def test_runs_share_a_sample_but_not_the_noise(study: Study) -> None:
    jobs = [job for job in find(study, "asia", "svt-pc", Role.CONTENDER, 1) if job.epsilon == 1.0]
    jobs = [replace(job, calibration=Calibration.SOUND, epsilon=0.3) for job in jobs[:6]]
    assert len({job.sample_seed for job in jobs}) == 1
    outcomes = [run_job(job) for job in jobs]
    assert len({o.of(Metric.SKELETON_F1) for o in outcomes}) > 1
    assert run_job(jobs[2]).of(Metric.SKELETON_F1) == outcomes[2].of(Metric.SKELETON_F1)


def test_ratios_of_speed() -> None:
    timings = [
        Timing("asia", "causal-learn PC, χ²", 1.0),
        Timing("asia", "dagveil svt-pc, sound", 0.25),
    ]
    page = methods_speed_page(timings, "command")
    assert "| dagveil svt-pc, sound | 0.250 | 4.0 × | 7.9 s |" in page
