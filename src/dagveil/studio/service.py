"""What the studio does when it is asked: the same library as the command line, answered in public facts."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import tomli_w
from pyarrow import csv

from dagveil.data.column import Column
from dagveil.data.draft import draft_schema, find_doubts
from dagveil.data.files import read_names
from dagveil.data.schema import PERSON_KEYS, PLAIN_LAYOUT, FileLayout, Schema, schema_from_toml, schema_to_toml
from dagveil.effects.answer import Effect
from dagveil.errors import SchemaError
from dagveil.evaluation.comparison import Comparison, compare_graphs
from dagveil.evidence.bundle import load_evidence
from dagveil.evidence.estimates import TableEstimate, TableOne
from dagveil.examples.networks import load_network, network_schema, sample_table
from dagveil.forecast.answers import DELTA, make_schema
from dagveil.forecast.explore import EPSILONS, Exploration, load_exploration
from dagveil.forecast.project import write_project
from dagveil.local.collector import Refused
from dagveil.methods.method import METHODS, method_named, method_plugins
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.ledger import account as books_account
from dagveil.privacy.ledger.account import RunRecord, price_run
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.report.registry import DeploymentFacts
from dagveil.runs.effects import effect as find_effect
from dagveil.runs.result import Result, load_result
from dagveil.runs.run import knowledge_from_toml, schema_knowledge
from dagveil.runs.search import check_search
from dagveil.search.settings import SearchSettings
from dagveil.studio import requests, responses, views
from dagveil.studio.folder import DataFile, Folder, SchemaState, file_id
from dagveil.studio.jobs import START, Job, JobKind, JobOrder, JobRunner, JobState, JobStore

SAMPLE: Final = "asia"
SAMPLE_ROWS: Final = 10_000
# what a schema may say and its form does not ask for: it stays as it is, and the schema's text can change it
KEPT: Final = ("file", "tiers", "forbidden", "required", *PERSON_KEYS, "reducers")


class StudioService:
    """Everything that a visitor can ask for. `shown` is the ledger's place without a password."""

    def __init__(self, folder: Folder, store: JobStore, runner: JobRunner, books: Ledger, shown: str) -> None:
        self.folder, self.store, self.runner, self.books, self.shown = folder, store, runner, books, shown

    def datasets(self) -> responses.Datasets:
        """List the data sets with their budgets."""
        found = [self._show(table) for table in self.folder.tables()]
        return responses.Datasets(ledger=self.shown, analyst=self.books.analyst, datasets=found)

    def dataset(self, table: str) -> responses.Dataset:
        """Show one data set."""
        return self._show(self.folder.table(table))

    def uploaded(self, asked: requests.UploadQuery) -> responses.Dataset:
        """Show a data set that has just come in."""
        return self.dataset(file_id(asked.name + asked.ending))

    def draft(self, table_id: str, asked: requests.NewDraft) -> responses.Dataset:
        """Write a first schema from the data; what it holds is not shown."""
        table = self.folder.table(table_id)
        if table.state is not SchemaState.NONE and not asked.replace:
            raise Refused(409, "schema exists", f"{table.schema_path.name} exists; say that it may be replaced")
        self._check_rows(table)
        draft = draft_schema(table.path, asked.name or None)
        self.folder.write_text(table.schema_path, views.write_draft(draft, find_doubts(table.path, draft)))
        return self.dataset(table_id)

    def declare(self, table_id: str, asked: requests.NewSchema) -> responses.Dataset:
        """Write a schema that a person has declared; what was not asked for stays, and so does an equal schema."""
        table = self.folder.table(table_id)
        columns = {
            name: {key: value for key, value in column.items() if value is not None}
            for name, column in asked.columns.items()
        }
        facts = {"name": asked.name, "reviewed": asked.reviewed, "unit": asked.unit, "relation": asked.relation}
        rows = {} if asked.nominal_rows is None else {"nominal_rows": asked.nominal_rows}
        try:
            text = tomli_w.dumps({"dataset": {**facts, "public": asked.public, **rows}, "columns": columns})
        except TypeError:
            raise Refused(422, "wrong layout", "a list or table in a column holds null; leave it out") from None
        kept: dict[str, Any] = {}
        if table.schema is not None:
            kept = {name: getattr(table.schema, name) for name in (*KEPT, "ignore")}
        if asked.ignore is not None:
            kept["ignore"] = tuple(asked.ignore)
        schema = msgspec.structs.replace(schema_from_toml(text), **kept)
        if schema != table.schema:
            self.folder.write_text(table.schema_path, schema_to_toml(schema))
        return self.dataset(table_id)

    def schema_text(self, table_id: str) -> bytes:
        """Return the schema's file as it is, or of a draft an outline without what was read from the data."""
        table = self.folder.table(table_id)
        if table.schema is None:
            raise Refused(404, "no schema", f"{table.file} has no schema that can be read")
        return table.schema_bytes() if table.schema.reviewed else views.outline_draft(table.schema).encode()

    def declare_text(self, table_id: str, text: str) -> responses.Dataset:
        """Write the text of a schema.toml; a text that was not changed stays as it is, byte by byte."""
        table = self.folder.table(table_id)
        views.read_schema(text)
        if not views.is_same_text(text, table.schema_bytes()):
            self.folder.write_text(table.schema_path, text)
        return self.dataset(table_id)

    def begin(self, asked: requests.NewStart) -> responses.Started:
        """Write the schema that follows from plain answers, and look at budgets if it is reviewed. No row is read."""
        if asked.table is None:
            table, layout = self.folder.await_table(asked.dataset), PLAIN_LAYOUT
        else:
            table, names, layout = self.header(asked.table)
            if set(names) != set(asked.columns):
                raise Refused(409, "other columns", f"{table.file} has the columns {', '.join(names)}")
        columns: dict[str, Column | None] = {}
        for name, said in asked.columns.items():
            try:
                columns[name] = said.declare()
            except SchemaError as error:
                raise SchemaError(f"{name}: {error}") from None
        if asked.comma:
            layout = msgspec.structs.replace(layout, decimal=",")
        facts = {name: getattr(asked, name) for name in ("unit", "rows", "fixed", "reviewed", "person")}
        schema = make_schema(asked.dataset, columns, layout=layout, **facts)
        self.folder.write_text(table.schema_path, schema_to_toml(schema))
        if not schema.reviewed:
            return responses.Started(dataset=self.dataset(table.id), page=f"datasets/{table.id}")
        order = self._order_exploration(table, schema, EPSILONS, method=START, delta=DELTA)
        return responses.Started(dataset=self.dataset(table.id), page=f"jobs/{self.runner.queue(order).id}")

    def header(self, table_id: str) -> tuple[DataFile, tuple[str, ...], FileLayout]:
        """Return a data set without a schema, with the names of its columns; no row is read."""
        table = self.folder.table(table_id)
        if table.state is not SchemaState.NONE:
            raise Refused(409, "schema exists", f"{table.file} has a schema already; change that one")
        return table, *read_names(table.path)

    def add_sample(self) -> responses.Dataset:
        """Put sampled rows of a known network into the folder, with their schema: public, to try things on."""
        network = load_network(SAMPLE)
        table = f"{SAMPLE}-sample.csv"
        if not (self.folder.root / table).exists():
            with self.folder.incoming(f"{SAMPLE}-sample", ".csv") as handle, os.fdopen(os.dup(handle), "wb") as file:
                csv.write_csv(sample_table(network, SAMPLE_ROWS, np.random.default_rng(1)), file)
        found = self.folder.table(file_id(table))
        if found.state is SchemaState.NONE:
            self.folder.write_text(found.schema_path, schema_to_toml(network_schema(network, SAMPLE_ROWS)))
        return self.dataset(found.id)

    def leave_project(self, job_id: str, asked: requests.NewProject) -> responses.Project:
        """Write a folder to begin with, from an exploration and its schema."""
        order = self._job(job_id).order
        table = self.folder.table(order.table)
        if (schema := table.reviewed_schema()).digest() != order.schema_digest:
            raise Refused(409, "schema changed", "the schema was changed after this exploration; explore again")
        place = self.folder.root / f"{table.schema_path.stem}-project"
        source = table.path if table.has_rows else None
        found = self.exploration(job_id)
        written = write_project(place, schema, asked.epsilon, DELTA, source=source, exploration=found)
        return responses.Project(folder=str(place), files=[path.name for path in written])

    def set_budget(self, table_id: str, asked: requests.NewBudget) -> responses.Account:
        """Set the lifetime budget of a data set."""
        table = self.folder.table(table_id)
        if (schema := table.schema) is None:
            raise Refused(409, "no schema", f"{table.file} has no schema yet, so it has no name in the ledger")
        self.books.set_budget(schema.dataset, Budget.of(asked.epsilon, asked.delta))
        return views.show_account(self.books.account(schema.dataset))

    def methods(self) -> responses.Methods:
        """List the methods."""
        every = [*METHODS.values(), *(method_named(name) for name in method_plugins().names)]
        sound = [method for method in every if method.release is not None or method.ask is not None]
        told = [views.copy_facts(responses.MethodFacts, m, releases_evidence=m.release is not None) for m in sound]
        return responses.Methods(methods=told)

    def plan(self, table_id: str, asked: requests.PlanQuery) -> responses.PlanFacts:
        """Tell what a run would ask and take."""
        schema = self.folder.table(table_id).reviewed_schema()
        return views.forecast_run(schema, asked.method, Budget.of(asked.epsilon, asked.delta), asked.redraws)

    def start(self, asked: requests.NewJob) -> responses.JobFacts:
        """Check what can be checked without rows, then queue a run."""
        table = self.folder.table(asked.dataset)
        schema = table.reviewed_schema()
        self._check_rows(table)
        budget = Budget.of(asked.epsilon, asked.delta)
        method = method_named(asked.method)
        if method.release is None and method.ask is None:
            why = f"{method.name} has no sound calibration, and the studio runs no other"
            raise Refused(422, "no such method", why)
        settings = method.read_settings(asked.options)
        knowledge = schema_knowledge(schema)
        method.check_schema(schema, knowledge)
        accounting = method.accounting(budget, schema, settings, knowledge)
        _ = SearchSettings(redraws=asked.redraws)
        price = price_run(budget, accounting.name)
        terms = books_account.Terms.of(Relation(schema.relation), schema.protected)
        books_account.admit(self.books.account(schema.dataset), budget, price, terms, self.books.analyst)
        facts = {"epsilon": asked.epsilon, "delta": asked.delta, "options": dict(asked.options)}
        redraws = asked.redraws if method.release is not None else 0
        order = self._order(table, schema, method=method.name, redraws=redraws, noise=asked.noise.value, **facts)
        return self._show_job(self.runner.queue(order))

    def explore(self, table_id: str, asked: requests.NewExploration) -> responses.JobFacts:
        """Queue a look at what each budget would buy: it reads no row and costs nothing."""
        table = self.folder.table(table_id)
        schema = table.reviewed_schema()
        for epsilon in asked.epsilons:
            Budget.of(epsilon, asked.delta)
        if schema.nominal_rows is None:
            raise Refused(409, "no nominal rows", "synthetic tables need a public number of rows; declare nominal rows")
        order = self._order_exploration(
            table, schema, asked.epsilons, method="explore", delta=asked.delta, options={"seconds": asked.seconds}
        )
        return self._show_job(self.runner.queue(order))

    def exploration(self, job_id: str) -> Exploration:
        """Return what a job has explored."""
        return load_exploration(self.exploration_file(job_id))

    def exploration_file(self, job_id: str) -> Path:
        """Return the file of what a job has explored."""
        return self._find(job_id, "exploration.json", 404, "no exploration", "this job has explored nothing")

    def latest_exploration(self, table_id: str) -> responses.JobFacts | None:
        """Return the last exploration of a data set as its schema is now, running or done."""
        schema = self.folder.table(table_id).schema
        for job in reversed(self.store.all()):
            order = job.order
            same = order.table == table_id and schema is not None and order.schema_digest == schema.digest()
            if same and order.kind is JobKind.EXPLORATION and (job.state is JobState.DONE or not job.state.ended):
                return self._show_job(job)
        return None

    def search(self, job_id: str, asked: requests.NewSearch) -> responses.JobFacts:
        """Queue another search over a job's evidence: it costs nothing."""
        job = self._job(job_id)
        evidence = load_evidence(self.evidence(job_id))
        check_search(evidence.method, evidence.schema, asked.settings)
        if asked.knowledge is not None:
            knowledge_from_toml(asked.knowledge).check(tuple(evidence.schema.columns))
        source = job.order.evidence or job.id
        searched = {"evidence": source, "settings": asked.settings, "knowledge": asked.knowledge}
        order = msgspec.structs.replace(job.order, kind=JobKind.SEARCH, redraws=asked.settings.redraws, **searched)
        return self._show_job(self.runner.queue(order))

    def evidence(self, job_id: str) -> Path:
        """Return the file of a job's evidence."""
        source = self._job(job_id).order.evidence or job_id
        return self._find(source, "evidence.json", 409, "no evidence", "this job left no evidence")

    def tables(self, job_id: str, first: str = "", second: str = "") -> TableOne | TableEstimate:
        """Return the counts of one or two columns as a job's evidence tells them, or each column by itself. Free."""
        evidence = load_evidence(self.evidence(job_id))
        named = [name for name in (first, second) if name]
        return evidence.table(*named) if named else evidence.table_one()

    def synthetic(self, job_id: str, rows: int, seed: int) -> bytes:
        """Draw synthetic rows from a job's evidence, as a zip. Free."""
        return views.zip_synthetic(load_evidence(self.evidence(job_id)), rows, seed)

    def keep_facts(self, table_id: str, asked: requests.NewFacts) -> responses.Dataset:
        """Keep what only people know about a data set's releases."""
        table = self.folder.table(table_id)
        self.folder.write_text(self.folder.facts_path(table), views.write_facts(asked.facts))
        return self.dataset(table_id)

    def facts(self, job_id: str) -> DeploymentFacts:
        """Return what is known about the releases of a job's data set."""
        return views.read_facts(self.folder.facts_path(self.folder.table(self._job(job_id).order.table)))

    def certification(self, job_id: str) -> bytes:
        """Write the certification pack of a job's result, unsigned, as a zip. Free."""
        return views.zip_certification(self.result(job_id), self.facts(job_id))

    def export(self, job_id: str, asked: requests.ExportQuery) -> str:
        """Write the graph of a job for another program."""
        return self.result(job_id).graph.export(asked.to, asked.extend)

    def jobs(self) -> responses.Jobs:
        """List all jobs, newest first."""
        runs = self._runs()
        return responses.Jobs(jobs=[self._show_job(job, runs) for job in reversed(self.store.all())])

    def job(self, job_id: str) -> responses.JobFacts:
        """Show one job."""
        return self._show_job(self._job(job_id))

    def cancel(self, job_id: str) -> responses.JobFacts:
        """Stop a job."""
        return self._show_job(self.runner.cancel(self._job(job_id)))

    def finish(self, job_id: str) -> responses.JobFacts:
        """Queue a run that stopped after it was charged: it goes on at no further charge, whatever budget is left."""
        job = self._job(job_id)
        if not self._show_job(job).can_finish:
            raise Refused(
                409, "nothing to finish", "only a run that stopped between its first charge and its end is finished"
            )
        if self.folder.table(job.order.table).reviewed_schema().digest() != job.order.schema_digest:
            raise Refused(409, "schema changed", "a run is finished with the schema that it began with; put that back")
        return self._show_job(self.runner.finish(job))

    def result(self, job_id: str) -> Result:
        """Return a job's result."""
        return load_result(self.result_file(job_id))

    def result_file(self, job_id: str) -> Path:
        """Return the file of a job's result."""
        words = f"this job is {self._job(job_id).state.value} and has no result"
        return self._find(job_id, "result.json", 404, "no result", words)

    def effect(self, job_id: str, asked: requests.EffectQuery) -> Effect:
        """Say what changing one column does to another, from a job's result and evidence: it costs nothing."""
        result, evidence = self.result(job_id), load_evidence(self.evidence(job_id))
        names = requests.split_names(asked.adjust) or None
        return find_effect(result, asked.cause, asked.effect, evidence=evidence, adjust=names)

    def group_results(self) -> list[list[responses.JobFacts]]:
        """Return the results that can be compared, newest first, by their columns; each group has at least two."""
        groups: dict[frozenset[str], list[responses.JobFacts]] = {}
        for job in self.jobs().jobs:
            if job.has_result:
                groups.setdefault(_read_columns(self.result_file(job.id)), []).append(job)
        return [group for group in groups.values() if group[1:]]

    def comparable(self, job_id: str) -> list[responses.JobFacts]:
        """Return the results of the same columns as a job's, itself included; of other data sets too."""
        return next((group for group in self.group_results() if any(one.id == job_id for one in group)), [])

    def compare(self, asked: requests.ComparisonQuery) -> responses.ComparisonFacts:
        """Put two results side by side."""
        found = self.compare_results(asked.here, asked.there)
        facts: dict[str, Any] = {
            name: msgspec.convert(getattr(found, name), list[responses.Differing], from_attributes=True)
            for name in ("only_here", "only_there", "turned", "marked")
        }
        facts |= {"same": found.same, "shd": found.shd, "skeleton_f1": found.skeleton.f1}
        return responses.ComparisonFacts(here=self.job(asked.here), there=self.job(asked.there), **facts)

    def compare_results(self, here: str, there: str) -> Comparison:
        """Compare the graphs of two results."""
        graphs = [self.result(job).graph for job in (here, there)]
        if set(graphs[0].nodes) != set(graphs[1].nodes):
            raise Refused(409, "other columns", "these two results have different columns; compare results of the same")
        return compare_graphs(graphs[0].structure, graphs[1].structure)

    def history(self) -> responses.History:
        """List every run of the ledger, newest first, with the job that made it."""
        made = {job.run: job.id for job in self.store.all() if job.order.ledger == self.shown}
        return responses.History(runs=[views.show_run(run, made.get(run.id)) for run in reversed(self.books.history())])

    def _check_rows(self, table: DataFile) -> None:
        if not table.has_rows:
            why = f"there are no rows yet; put a table {table.schema_path.stem}.csv beside {table.schema_path.name}"
            raise Refused(409, "no rows", why)

    def _order(self, table: DataFile, schema: Schema, **asked: Any) -> JobOrder:
        public = {"dataset": schema.dataset, "schema_digest": schema.digest(), **asked}
        return JobOrder(table=table.id, file=table.file, ledger=self.shown, **public)

    def _order_exploration(self, table: DataFile, schema: Schema, epsilons: tuple[str, ...], **asked: Any) -> JobOrder:
        told = f"{epsilons[0]} to {epsilons[-1]}" if epsilons[1:] else epsilons[0]
        asked |= {"redraws": 0, "noise": requests.Noise.EXACT.value, "kind": JobKind.EXPLORATION}
        return self._order(table, schema, epsilon=told, epsilons=epsilons, **asked)

    def _job(self, job_id: str) -> Job:
        job = self.store.get(job_id)
        if job is None:
            raise Refused(404, "no such job", "there is no job with this id")
        return job

    def _find(self, job_id: str, name: str, status: int, error: str, words: str) -> Path:
        place = self.folder.results(self._job(job_id).id) / name
        if not place.exists():
            raise Refused(status, error, words)
        return place

    def _runs(self) -> dict[int, RunRecord]:
        return {run.id: run for run in self.books.history()}

    def _show_job(self, job: Job, runs: dict[int, RunRecord] | None = None) -> responses.JobFacts:
        run = None
        if job.run is not None and job.order.ledger == self.shown:
            run = (self._runs() if runs is None else runs).get(job.run)
        return views.show_job(job, run, self.folder.results(job.id), self.shown)

    def _show(self, table: DataFile) -> responses.Dataset:
        return views.show_dataset(table, None if table.schema is None else self.books.account(table.schema.dataset))


@lru_cache(maxsize=1024)
def _read_columns(result: Path) -> frozenset[str]:
    """Return the columns of a result; what is written once stays."""
    return frozenset(load_result(result).graph.nodes)
