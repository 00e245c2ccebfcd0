"""Runs what a store still lacks of its study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dagveil.benchmarks.local_data import PACKAGES
from dagveil.benchmarks.local_source import read_source
from dagveil.benchmarks.studies.crew import Crew, Lost
from dagveil.benchmarks.studies.jobs import Job, choose_jobs, list_jobs
from dagveil.benchmarks.studies.machine import describe_hardware, describe_packages, describe_software
from dagveil.benchmarks.studies.plan import Study
from dagveil.benchmarks.studies.store import Store
from dagveil.benchmarks.studies.task import Task
from dagveil.benchmarks.studies.trial import Outcome, run_job
from dagveil.methods.catalogue import METHODS, method_plugins

Told = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Tally:
    """How a call of the runner went: runs in all, stored before, done now, and failed among the latter."""

    total: int
    before: int
    done: int
    failed: int


def run_plan(
    study: Study,
    store: Store,
    workers: int,
    told: Told,
    only: Mapping[str, Sequence[str]] | None = None,
    *,
    retry: bool = False,
) -> Tally:
    """Run all that is not stored yet; what is finished is stored at once.

    Parameters
    ----------
    study
        The plan; it becomes the latest of the store.
    store
        Where outcomes go.
    workers
        Processes.
    told
        Told after each run.
    only
        Values by name, as in `choose_jobs`.
    retry
        Whether runs that failed are tried again.
    """
    chosen = choose_jobs(list_jobs(study), only or {})
    store.put_study(study)
    waiting = store.pending(chosen, retry=retry)
    done = failed = 0
    if waiting:
        session = store.begin_session(workers, describe_software() | _packages(study), describe_hardware())
        told("runs", 0, len(waiting))
        for job, product in Crew[Job, Outcome](run_job, min(workers, len(waiting)), study.limit).do(waiting):
            outcome = Outcome(error=product.reason) if isinstance(product, Lost) else product
            store.add(job, outcome, session)
            done += 1
            failed += outcome.error is not None
            told("runs", done, len(waiting))
    return Tally(len(chosen), len(chosen) - len(waiting), done, failed)


def _packages(study: Study) -> dict[str, str]:
    """Return the other packages that the runs of a study depend on: of plug-in methods, algorithms and records."""
    if study.task is Task.GRAPH:
        added = method_plugins()
        names = {entry.method for entry in study.methods if entry.method not in METHODS}
        return {f"plug-in {name}": added.origin(name) for name in sorted(names)}
    if study.task is Task.INDEPENDENCE:
        return {}
    sources = {read_source(data.source).data for data in study.data_sets}
    needed = {"causal-learn", *(package for source in sources for package in PACKAGES.get(source, ()))}
    return describe_packages(sorted(needed))
