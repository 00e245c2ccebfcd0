"""Runs what a store still lacks of its study; what would fail in every run is found before the first."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dagveil.data.schema import Schema
from dagveil.errors import DagveilError, MethodError
from dagveil.methods.method import METHODS, method_named, method_plugins
from dagveil.progress import Progress, silent
from dagveil.runs.run import schema_knowledge
from dagveil_bench.exact_searches import EXACT_SEARCHES
from dagveil_bench.hidden_causes import PEER
from dagveil_bench.local_algorithms import check_peers
from dagveil_bench.local_data import PACKAGES
from dagveil_bench.local_source import read_source
from dagveil_bench.peers import import_peer
from dagveil_bench.studies.datasets import plugin_origin, sample_source
from dagveil_bench.studies.jobs import Job, choose_jobs, list_jobs
from dagveil_bench.studies.machine import describe_hardware, describe_packages, describe_software, list_changes
from dagveil_bench.studies.metrics import Task
from dagveil_bench.studies.plan import Role, Study
from dagveil_bench.studies.store import COLUMNS, Store
from dagveil_bench.studies.trial import Outcome, describe_failure, run_job
from dagveil_bench.studies.worker_pool import Lost, WorkerPool
from dagveil_bench.synthesis import AIM

# programs of others that are searched for before a study runs: their modules, and the extras that bring them
_PEERS = {PEER: ("causallearn.search.ConstraintBased.FCI", "peers"), AIM: ("snsynth.aim", "aim")}


@dataclass(frozen=True, slots=True)
class Tally:
    """How a call of the runner went.

    Of the runs that were asked for, the store had some `before`, and others were `done`; the latest outcome of the
    `failed` is an error, the most frequent being the `reason`. `strangers` are stored runs of another seed, δ, setting
    or source, and `changes` versions that differ from those of an earlier call: means are over runs of both.
    """

    total: int
    before: int
    done: int
    failed: int
    reason: str | None = None
    strangers: int = 0
    changes: tuple[str, ...] = ()


def run_plan(
    study: Study,
    store: Store,
    workers: int = os.cpu_count() or 1,
    told: Progress = silent,
    only: Mapping[str, Sequence[str]] | None = None,
    *,
    retry: bool = False,
) -> Tally:
    """Run all that is not stored yet; what is finished is stored at once.

    `only` chooses a part, as in `choose_jobs`. The study becomes the latest of the store. With `retry`, runs that
    failed are tried again.
    """
    planned = list_jobs(study)
    chosen = choose_jobs(planned, only or {})
    waiting = store.pending(chosen, retry=retry)
    check_first(waiting, planned)
    store.put_study(study)
    done = 0
    changes: tuple[str, ...] = ()
    if waiting:
        software = describe_software() | _packages(study)
        changes = list_changes([*(session.software for session in store.sessions()), software])
        session = store.begin_session(workers, software, describe_hardware())
        told("runs", 0, len(waiting))
        finished = WorkerPool[Job, Outcome](run_job, min(workers, len(waiting)), study.limit).do(waiting)
        for number, (job, product) in enumerate(finished, start=1):
            outcome = Outcome(error=product.reason) if isinstance(product, Lost) else product
            done += store.add(job, outcome, session)
            told("runs", number, len(waiting))
    outcomes = store.outcomes()
    errors = Counter(error for job in chosen if (error := outcomes[job.key].error) is not None)
    return Tally(
        total=len(chosen),
        before=len(chosen) - len(waiting),
        done=done,
        failed=errors.total(),
        reason=errors.most_common(1)[0][0] if errors else None,
        strangers=len(outcomes.keys() - {job.key for job in planned}),
        changes=changes,
    )


def take_over(study: Study, store: Store, other: Store) -> int:
    """Copy the runs that a study has in common with another store, whatever its name; return how many were not there.

    So a study can go on from published results, from another machine's part of it, or from those of a study that has
    some of the same methods.
    """
    planned = {job.key for job in list_jobs(study)}
    key = COLUMNS.index("key")
    store.put_study(study)
    return store.absorb(other.sessions(), (row for row in other.rows() if row[key] in planned))


def _packages(study: Study) -> dict[str, str]:
    """Return the other packages that the runs of a study depend on: of plug-in methods, algorithms and records."""
    if study.task is Task.GRAPH:
        exact = {entry.method for entry in study.methods if entry.method in EXACT_SEARCHES}
        added = {entry.method for entry in study.methods if entry.method not in METHODS} - exact
        found = {f"plug-in {name}": method_plugins().origin(name) for name in sorted(added)}
        sources = {source for item in study.data_sets for source in (item.source, *item.variants.values())}
        origins = {source.split()[0]: plugin_origin(source) for source in sorted(sources)}
        found |= {f"data plug-in {name}": origin for name, origin in origins.items() if origin is not None}
        return found | (describe_packages(("causal-learn", "pgmpy")) if exact else {})
    if study.task is not Task.LOCAL:
        used = any(entry.method in _PEERS for entry in study.methods)
        return describe_packages(("causal-learn", "smartnoise-synth")) if used else {}
    sources = {read_source(data.source).data for data in study.data_sets}
    needed = {"causal-learn", *(package for source in sources for package in PACKAGES.get(source, ()))}
    return describe_packages(sorted(needed))


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
            if job.task is Task.GRAPH and job.method not in EXACT_SEARCHES:
                method_named(job.method).check(schemas[job.source], schema_knowledge(schemas[job.source]))
            elif job.task is Task.LOCAL:
                check_peers(job.method)
            elif job.method in _PEERS:
                import_peer(*_PEERS[job.method])
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
            f"{job.n_rows} rows of {job.data!r} cannot be drawn: {describe_failure(error)}. Nothing was run; mend the "
            "data set, or choose others with --only"
        ) from error
