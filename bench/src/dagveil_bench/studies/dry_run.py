"""What would fail in every run is found before the first: each data set is drawn once, and each method looks at it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dagveil.data.schema import Schema
from dagveil.errors import DagveilError, MethodError
from dagveil.methods.catalogue import method_named
from dagveil.runs.run import schema_knowledge
from dagveil_bench.local_algorithms import check_peers
from dagveil_bench.studies.datasets import sample_source
from dagveil_bench.studies.jobs import Job
from dagveil_bench.studies.plan import Role
from dagveil_bench.studies.task import Task
from dagveil_bench.studies.trial import tell_error


def check_first(jobs: Sequence[Job], study: Sequence[Job]) -> None:
    """Refuse jobs of which some could never succeed; the error names data set and method.

    Data sets are drawn with the fewest rows that the study wants of them, done or not. What goes wrong with more rows,
    or in the search, is found by the runs themselves.
    """
    wanted = {job.source for job in jobs if job.task is Task.GRAPH}
    fewest: dict[str, Job] = {}
    for job in sorted(study, key=lambda job: job.n_rows):
        fewest.setdefault(job.source, job)
    schemas = {source: _draw(fewest[source]) for source in fewest if source in wanted}
    tried = {(job.source, job.method): job for job in jobs if job.role is not Role.FLOOR}
    for job in tried.values():
        try:
            if job.task is Task.GRAPH:
                method_named(job.method).check(schemas[job.source], schema_knowledge(schemas[job.source]))
            elif job.task is Task.LOCAL:
                check_peers(job.method)
        except DagveilError as error:
            raise MethodError(
                f"{job.label!r} cannot be run on {job.data!r}: {error}. Nothing was run; name the data sets that the "
                "method takes under data, or choose a part with --only"
            ) from error


def _draw(job: Job) -> Schema:
    try:
        return sample_source(job.source, job.n_rows, np.random.default_rng(job.sample_seed))[0].schema
    except Exception as error:  # whatever a plug-in does
        raise MethodError(
            f"{job.n_rows} rows of {job.data!r} cannot be drawn: {tell_error(error)}. Nothing was run; mend the data "
            "set, or choose others with --only"
        ) from error
