"""One run of a study: sample, discover, score, and what it took."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import msgspec
import numpy as np

from dagveil.benchmarks.studies.datasets import sample_source
from dagveil.benchmarks.studies.jobs import COMPLETE, Job
from dagveil.benchmarks.studies.machine import read_peak, reset_peak
from dagveil.benchmarks.studies.metrics import Metric, score_graph, spent_epsilon
from dagveil.benchmarks.studies.plan import Role
from dagveil.graphs.cpdag import Cpdag
from dagveil.methods.catalogue import method_named
from dagveil.methods.discovery import discover
from dagveil.methods.settings import SearchSettings
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration

LONGEST_ERROR = 500
"""Characters of an error that the store keeps."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a run: numbers, or the error that ended it."""

    numbers: dict[str, float] = {}
    error: str | None = None

    def of(self, metric: Metric) -> float:
        """Return one number; NaN if the run has none."""
        return self.numbers.get(metric.column, math.nan)


def run_job(job: Job) -> Outcome:
    """Run once. An error is an outcome: one bad cell must not end a night's work.

    Seconds count from the encoded rows to the graph; drawing and encoding rows is not part of a run.
    """
    try:
        return Outcome({metric.column: value for metric, value in _run(job).items() if not math.isnan(value)})
    except Exception as error:
        return Outcome(error=tell_error(error))


def tell_error(error: BaseException) -> str:
    """Say an error in one line; rows of studies are public, so its text may be kept."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"


def _run(job: Job) -> Mapping[Metric, float]:
    table, dag = sample_source(job.source, job.n_rows, np.random.default_rng(job.sample_seed))
    if job.role is Role.FLOOR:
        graph = Cpdag.complete(dag.nodes) if job.method == COMPLETE else Cpdag.empty(dag.nodes)
        return score_graph(graph, dag)
    # confidence is not scored, so nothing is drawn again
    searched = job.calibration is Calibration.SOUND and method_named(job.method).release is not None
    reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    result = discover(
        table,
        table.schema,
        job.epsilon,
        job.delta,
        method=job.method,
        calibration=job.calibration,
        options=job.settings,
        settings=SearchSettings(redraws=0) if searched else None,
        noise=NoiseKind.SEEDED,
        seed=job.noise_seed,
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        **score_graph(result.graph.cpdag, dag),
        Metric.QUESTIONS: math.nan if result.questions is None else float(result.questions),
        Metric.EPSILON_SPENT: spent_epsilon(result.receipt),
        Metric.EPSILON_REPORTED: math.nan if result.reported is None else result.reported.epsilon,
        Metric.CPU_SECONDS: cpu,
        Metric.WALL_SECONDS: wall,
        Metric.PEAK_MEMORY: read_peak(),
    }
