"""How what the library knows becomes what a visitor is told: public facts, rounded towards privacy."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from dagveil.evaluation.comparison import Difference
from dagveil.privacy.budget import round_down, round_up
from dagveil.privacy.ledger import account as books
from dagveil.privacy.ledger.account import RunRecord
from dagveil.studio.folder import DataFile, SchemaState
from dagveil.studio.jobs import STOPPED, Job, JobKind, JobState
from dagveil.studio.responses import Account, Charge, Dataset, DeclaredColumn, Differing, JobFacts, LedgerEntry
from dagveil.studio.schema_text import read_doubts
from dagveil.studio.stopped import is_kept

NOTHING: Final = Charge(epsilon="0", delta="0", releases=[], words="nothing was drawn, and nothing is charged")

_FREE: Final = {
    JobKind.SEARCH: "a search over released evidence costs nothing",
    JobKind.EXPLORATION: "synthetic tables cost nothing, and no row was read",
}


def show_charge(job: Job, run: RunRecord | None, ledger: str) -> Charge:
    """Tell what a job has cost according to the ledger.

    Parameters
    ----------
    job
        The job.
    run
        Its run in the ledger, if there is one.
    ledger
        Place of the ledger that the studio uses now.
    """
    if job.order.kind is not JobKind.RUN:
        return _nothing(_FREE[job.order.kind])
    if job.order.ledger != ledger:
        words = f"what it has charged stands in another ledger: {job.order.ledger}"
        return Charge(epsilon="?", delta="?", releases=[], words=words)
    if run is not None and run.events:
        epsilon, delta = round_up(run.budget.epsilon, 4), round_up(run.budget.delta, 4)
        words = f"charged epsilon {epsilon}, delta {delta}: the run's whole reservation, since noise was drawn"
        return Charge(epsilon=epsilon, delta=delta, releases=tell_releases(run), words=words)
    if job.state.ended:
        return NOTHING
    return _nothing("nothing is charged yet" if run is None else "reserved, and nothing is drawn yet")


def _nothing(words: str) -> Charge:
    return msgspec.structs.replace(NOTHING, words=words)


def show_job(job: Job, run: RunRecord | None, place: Path, ledger: str) -> JobFacts:
    """Show a job.

    Parameters
    ----------
    job, run, ledger
        As in `show_charge`.
    place
        The folder of its files.
    """
    order = job.order
    return JobFacts(
        id=job.id,
        kind=order.kind.value,
        state=job.state.value,
        dataset=order.table,
        file=order.file,
        name=order.dataset,
        method=order.method,
        epsilon=order.epsilon,
        delta=order.delta,
        redraws=order.redraws,
        created=job.created,
        started=job.started,
        ended=job.ended,
        stage=job.stage,
        done=job.done,
        total=job.total,
        message=job.message,
        cancelling=job.cancelling and not job.state.ended,
        run=job.run,
        charge=show_charge(job, run, ledger),
        has_result=job.state is JobState.DONE and (place / "result.json").exists(),
        has_evidence=job.state.ended and (place / "evidence.json").exists(),
        has_exploration=job.state is JobState.DONE and (place / "exploration.json").exists(),
        can_finish=job.state in STOPPED and is_kept(place, run),
        evidence_of=order.evidence,
    )


def show_dataset(table: DataFile, account: books.Account | None) -> Dataset:
    """Show a data set with its account; of an unreviewed schema only what was not read from the rows."""
    schema = table.schema
    declared = table.state is SchemaState.REVIEWED
    return Dataset(
        id=table.id,
        file=table.file,
        schema_file=table.schema_path.name,
        schema_state=table.state.value,
        name=None if schema is None else schema.dataset,
        unit=None if schema is None else schema.unit,
        relation=None if schema is None else schema.relation,
        nominal_rows=None if schema is None else schema.nominal_rows,
        public=schema is not None and schema.public,
        columns=[]
        if schema is None
        else [show_column(name, column, declared) for name, column in schema.columns.items()],
        ignored=[] if schema is None else list(schema.ignore),
        doubts=read_doubts(table.schema_bytes().decode("utf-8-sig")) if table.state is SchemaState.DRAFT else {},
        account=None if account is None else show_account(account),
    )


def show_run(run: RunRecord, job: str | None) -> LedgerEntry:
    """Show a run of the ledger, with the job that made it if it was one of this studio's."""
    return LedgerEntry(
        run=run.id,
        dataset=run.dataset,
        started=run.started,
        ended=run.ended,
        analyst=run.analyst,
        method=run.method,
        state=f"{run.state.value}, unbounded" if run.unbounded else run.state.value,
        epsilon=round_up(run.budget.epsilon, 4),
        delta=round_up(run.budget.delta, 4),
        releases=tell_releases(run),
        job=job,
    )


def show_column(name: str, column: msgspec.Struct, declared: bool) -> DeclaredColumn:
    """Show a column; levels and bounds of a draft were read from the data, so they stay in its file."""
    facts: dict[str, Any] = msgspec.to_builtins(column)
    kind = str(facts.pop("kind"))
    shown = {key: value for key, value in facts.items() if value is not None} if declared else {}
    return DeclaredColumn(name=name, kind=kind, facts=shown)


def show_account(account: books.Account) -> Account:
    """Show what a data set has spent."""
    budget = account.budget
    left = account.left
    return Account(
        budget_epsilon=None if budget is None else round_up(budget.epsilon, 4),
        budget_delta=None if budget is None else round_up(budget.delta, 4),
        spent_epsilon=round_up(account.spent_epsilon, 4),
        spent_delta=round_up(account.spent_delta, 4),
        reserved_epsilon=round_up(account.reserved_epsilon, 4),
        reserved_delta=round_up(account.reserved_delta, 4),
        left_epsilon=None if budget is None else "0" if left is None else round_down(left.epsilon, 4),
        left_delta=None if budget is None else "0" if left is None else round_down(left.delta, 4),
        spent_share=None if budget is None else float(account.lifetime_epsilon / budget.epsilon),
        runs=account.runs,
        unbounded=account.unbounded,
        words=account.words,
    )


def tell_releases(run: RunRecord) -> list[str]:
    """Name the releases of a run."""
    return [
        label if (times := len(list(same))) == 1 else f"{label} ×{times}"
        for label, same in groupby(event.label for event in run.events)
    ]


def show_differences(differences: tuple[Difference, ...]) -> list[Differing]:
    """Show the pairs that two graphs join differently."""
    return [Differing(first=one.first, second=one.second, here=one.here, there=one.there) for one in differences]
