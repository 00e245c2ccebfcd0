"""The process of one job: it runs the method, notes how far it is, and writes what came out.

Started as ``python -m dagveil.studio.worker FOLDER JOB``, with the ledger's address in the environment, where other
users of the machine cannot read its password. It needs no server: whoever started it may be gone. What a run releases
is kept in a recovery file until it is saved, so that a run that stopped can be finished at no further charge.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dagveil.data.schema import Schema
from dagveil.errors import DagveilError, DataError, LedgerError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.forecast.answers import try_budgets
from dagveil.forecast.explore import Exploration, explore
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import method_named
from dagveil.privacy.ledger.ledger import Ledger, WatchedLedger
from dagveil.progress import Cancelled, CancelSignal
from dagveil.runs.discovery import discover, measure_source
from dagveil.runs.recovery import save_whole
from dagveil.runs.run import LEDGER_VARIABLE, knowledge_from_toml
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil.studio.folder import Folder
from dagveil.studio.jobs import FOUND, RECOVERY, START, Job, JobKind, JobState, JobStore, resolve_run
from dagveil.studio.responses import WITHHELD

TELL_SECONDS: Final = 0.2  # how often progress is noted, at most
CHANGED: Final = (
    "the schema was changed after this run was asked for; nothing was drawn. Look at the plan and start again"
)
GONE: Final = "the recovery file of this run is gone, so it cannot be finished; nothing more was drawn or charged"


class Worker:
    """One job while it runs."""

    def __init__(self, folder: Folder, store: JobStore, job: Job, cancel: CancelSignal) -> None:
        self.folder, self.store, self.job, self.signal = folder, store, job, cancel
        self._told, self._stage, self._run, self._place = 0.0, "", job.run, folder.results(job.id)

    def work(self) -> None:
        """Run the job, and note how it ended."""
        try:
            self._find_graph()
        except Cancelled:
            # it may have come too late: what was found is found
            found = any((self._place / name).exists() for name in FOUND)
            self.store.end(self.job.id, JobState.DONE if found else JobState.CANCELLED)
        except DagveilError as error:
            self.store.end(self.job.id, JobState.FAILED, str(error))
        except BaseException as error:  # whatever it is, the job must not look as if it went on
            self.store.end(self.job.id, JobState.FAILED, WITHHELD.format(kind=type(error).__name__))
        else:
            self.store.end(self.job.id, JobState.DONE)

    def _find_graph(self) -> None:
        order = self.job.order
        settings = order.settings or SearchSettings(redraws=order.redraws)
        if order.kind is JobKind.SEARCH and order.evidence is not None:
            knowledge = None if order.knowledge is None else knowledge_from_toml(order.knowledge)
            self._search(load_evidence(self.folder.results(order.evidence) / "evidence.json"), settings, knowledge)
            return
        table = self.folder.table(order.table)
        schema = table.reviewed_schema()
        if schema.digest() != order.schema_digest:
            raise DataError(CHANGED)
        if order.kind is JobKind.EXPLORATION:
            self._keep("exploration.json", self._explore(schema).save)
            return
        books = WatchedLedger(Ledger.open(os.environ[LEDGER_VARIABLE]), self.signal, self._note_run)
        try:
            self._spend(table.path, schema, books, settings)
        finally:
            if self._run is not None:
                # a cancel may have come before the run could look after itself
                with self.signal.shield(), contextlib.suppress(LedgerError):
                    resolve_run(books, self._run, self._place)
            books.close()

    def _explore(self, schema: Schema) -> Exploration:
        order = self.job.order
        if order.method != START:
            seconds = float(order.options["seconds"])
            return explore(schema, order.epsilons, order.delta, seconds=seconds, progress=self._report)
        first: list[str] = []
        self._report("a first look", 0, 1)

        def report(stage: str, done: int, total: int) -> None:
            self._report(" ".join([*first, stage]), done, total)

        return try_budgets(schema, first.append, report)

    def _spend(self, path: Path, schema: Schema, books: Ledger, settings: SearchSettings) -> None:
        order = self.job.order
        asked = (path, schema, order.epsilon, order.delta)
        recovery = self._place / RECOVERY
        if self._run is not None and not recovery.exists():
            raise DataError(GONE)  # a run that was charged before must find what it released
        run: dict[str, Any] = {name: getattr(order, name) for name in ("method", "options", "noise")}
        run |= {"ledger": books, "recovery": recovery, "progress": self._report}
        if method_named(order.method).release is None:
            self._keep("result.json", discover(*asked, **run).save)
            return
        evidence = measure_source(*asked, redraws=order.redraws, **run)
        self._keep("evidence.json", evidence.save)
        self._search(evidence, settings)

    def _search(self, evidence: Evidence, settings: SearchSettings, knowledge: Knowledge | None = None) -> None:
        self._keep("result.json", search_evidence(evidence, settings, knowledge=knowledge, progress=self._report).save)

    def _keep(self, name: str, save: Callable[[Path], None]) -> None:
        """Write a file in one step and durably, and then let go of what it recovers: what has its name is whole."""
        with self.signal.shield():
            try:
                with save_whole(self._place / name) as part:
                    save(part)
            except DataError as error:
                raise DataError(f"{error}; what was charged stays charged") from None
            (self._place / RECOVERY).unlink(missing_ok=True)

    def _note_run(self, run: int) -> None:
        self._run = run
        self.store.note_run(self.job.id, run)

    def _report(self, stage: str, done: int, total: int) -> None:
        self.signal.check()
        moment = time.monotonic()
        if stage != self._stage or done == total or moment - self._told >= TELL_SECONDS:
            self._told, self._stage = moment, stage
            with self.signal.shield():
                self.store.note_progress(self.job.id, stage, done, total)


def main() -> None:
    """Run the job that the command line names."""
    place, job_id = sys.argv[1:3]
    cancel = CancelSignal()
    folder = Folder.open(place)
    store = JobStore(folder.jobs_path)
    try:
        cancel.listen()
        job = store.get(job_id)
        if job is not None and job.state is JobState.RUNNING and not job.cancelling:
            store.note_process(job_id, os.getpid())
            Worker(folder, store, job, cancel).work()
            return
    except Cancelled:
        pass
    store.end(job_id, JobState.CANCELLED)


if __name__ == "__main__":
    main()
