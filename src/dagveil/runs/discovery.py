"""From a sensitive table to evidence, and from evidence to a graph: the steps behind every command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dagveil._version import __version__
from dagveil.data.engine import Engine, choose_engine
from dagveil.data.schema import Schema, load_schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import EVIDENCE_VERSION, Evidence
from dagveil.evidence.choice import AUTO, Choice
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import method_named, method_origin
from dagveil.methods.method import Method
from dagveil.papers.access import PublishedAccess
from dagveil.papers.publication import read_settings, require_publication, settings_of
from dagveil.privacy.budget import Amount, Budget
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress, silent
from dagveil.runs.assemble import summarise, tell_knowledge, write_graph
from dagveil.runs.default_ledger import LedgerPlace, UnnamedLedger
from dagveil.runs.machine_speed import Speed
from dagveil.runs.memory_check import check_fits
from dagveil.runs.recovery import open_curator
from dagveil.runs.result import (
    RESULT_VERSION,
    Confidence,
    MethodUsed,
    Reported,
    Result,
    Unanswered,
    now,
)
from dagveil.runs.run import prepare_run
from dagveil.runs.search import check_search, search_evidence
from dagveil.runs.work import work_of_reading, work_of_run
from dagveil.search.confidence import MEANING, Shares
from dagveil.search.settings import SearchSettings

DEFAULT_DELTA = "1e-6"
"""Delta of a run that names none."""


def measure_source(
    source: Any,
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    method: str | Choice = "measure",
    options: Mapping[str, Any] | None = None,
    ledger: LedgerPlace = UnnamedLedger.DEFAULT,
    noise: NoiseKind = NoiseKind.OPENDP,
    seed: int | None = None,
    accept_draft: bool = False,
    accept_no_guarantee: bool = False,
    knowledge: Knowledge | None = None,
    redraws: int = 0,
    engine: Engine | str = Engine.AUTO,
    memory_limit: str | int | None = None,
    recovery: str | Path | None = None,
    progress: Progress = silent,
) -> Evidence:
    """Release evidence about a table.

    Parameters
    ----------
    source
        A path, frame or array; see `dagveil.data.reading`. Also a folder or a pattern of files, a `DatabaseTable`, a
        frame of Spark; and what `choose_engine` gives. A table that was opened with this very schema is taken as it is.
    schema
        Levels, bounds and public facts; or the path of a schema.toml.
    epsilon, delta
        Budget of this run.
    method
        A method that releases evidence: `measure`, `lap-mech` or `priv-pc-star`. Or "auto", which lets public facts
        choose; or what `choose_method` chose before.
    options
        Settings of the method, by name.
    ledger
        Where the charge is written: a ledger, its path or its URL. Left out, it is the one that the command line uses,
        `default_ledger()`; for data that the schema calls public, none. None records nothing: for simulated data.
    noise
        Where noise comes from.
    seed
        For `NoiseKind.SEEDED` only: tests and benchmarks. The result then says that it is not private.
    accept_draft
        Take an unreviewed schema; the receipt then says so.
    accept_no_guarantee
        Let a run with seeded noise, or a `paper` calibration, touch a data set that has a budget and is not public.
    knowledge
        Background knowledge; None takes the schema's.
    redraws
        Those of the search that is to follow: a run that would not fit into memory is refused before it spends.
    engine
        Where rows are held and counted: in memory while files are small, or else by DuckDB; answers are the same.
    memory_limit
        Such as 8GB, for engines that do not hold the rows.
    recovery
        A file that keeps every answer as it is released: if the run stops, the same call finishes it at no further
        cost. Delete it once you have saved the evidence. Nothing is kept without a ledger or with seeded noise.
    progress
        Told what is being done.

    Returns
    -------
    Evidence
        Released tables or moments with their receipt.
    """
    noise = NoiseKind(noise)
    method, choice = _settle(
        method,
        schema,
        epsilon,
        delta,
        options=options,
        calibration=Calibration.SOUND,
        accept_draft=accept_draft,
        knowledge=knowledge,
        releasing_only=True,
        progress=progress,
    )
    chosen = method_named(method)
    if chosen.release is None:
        raise MethodError(f"{method} asks adaptively and leaves no evidence to search; use `discover` with it")
    settings = chosen.read_settings(options)
    origin = method_origin(method)
    rows = choose_engine(source, engine, memory_limit)
    run = prepare_run(
        rows, schema, Budget.of(epsilon, delta), chosen, ledger, noise, seed, accept_draft, knowledge, origin
    )
    run.check_guarded(Calibration.SOUND, accept_no_guarantee=accept_no_guarantee)
    accounting = chosen.accounting(run.budget, run.schema, settings, run.knowledge)
    run = run.charged_by(accounting)
    work = work_of_run(
        run.schema, chosen, accounting, settings, run.knowledge, redraws=redraws, noise=noise, held=rows.held
    )
    check_fits(replace(work, engine=rows.engine), Speed())  # memory does not hang on how fast the machine is
    with open_curator(run, chosen, accounting, settings, recovery) as curator:
        measured = chosen.release(curator, run.knowledge, settings, progress)
    return Evidence(
        format="dagveil-evidence",
        version=EVIDENCE_VERSION,
        software=__version__,
        created=now(),
        method=method,
        schema=run.schema,
        plan=measured.plan,
        findings=(*_tell_choice(choice), *measured.findings),
        receipt=run.receipt(accounting, curator.events),
        releases=measured.releases,
        choice=choice,
    )


def discover(
    source: Any,
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    method: str | Choice = "measure",
    calibration: Calibration = Calibration.SOUND,
    options: Mapping[str, Any] | None = None,
    settings: SearchSettings | None = None,
    ledger: LedgerPlace = UnnamedLedger.DEFAULT,
    noise: NoiseKind = NoiseKind.OPENDP,
    seed: int | None = None,
    accept_draft: bool = False,
    accept_no_guarantee: bool = False,
    knowledge: Knowledge | None = None,
    engine: Engine | str = Engine.AUTO,
    memory_limit: str | int | None = None,
    recovery: str | Path | None = None,
    progress: Progress = silent,
) -> Result:
    """Discover the causal graph of a table under differential privacy.

    Parameters beyond those of `measure_source` and `search_evidence`:

    Parameters
    ----------
    source, schema, epsilon, delta, ledger, noise, seed, accept_draft, accept_no_guarantee, knowledge
        As in `measure_source`.
    engine, memory_limit, recovery, progress
        As in `measure_source`.
    method
        Name of a method; `dagveil methods` lists them. Or as in `measure_source`; with `settings`, "auto" chooses among
        methods that release evidence.
    calibration
        Sound, or as published: the latter claims nothing.
    options
        Settings of the method, by name.
    settings
        Of the search over evidence; for methods that release evidence only.

    Examples
    --------
    >>> import numpy as np
    >>> from dagveil.data.column import Boolean
    >>> schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")}, reviewed=True)
    >>> rows = {"a": np.arange(1000) % 2 == 0, "b": np.arange(1000) % 2 == 0}
    >>> result = discover(rows, schema, epsilon=1, delta=1e-6, ledger=None, noise=NoiseKind.SEEDED, seed=1)
    >>> [(edge.source, edge.target, edge.kind) for edge in result.graph.edges]
    [('a', 'b', 'undirected')]
    """
    calibration, noise = Calibration(calibration), NoiseKind(noise)
    source = choose_engine(source, engine, memory_limit)
    method, choice = _settle(
        method,
        schema,
        epsilon,
        delta,
        options=options,
        calibration=calibration,
        accept_draft=accept_draft,
        knowledge=knowledge,
        releasing_only=settings is not None,
        progress=progress,
    )
    chosen = method_named(method)
    if chosen.release is not None and calibration is Calibration.SOUND:
        if settings is not None:
            schema = schema if isinstance(schema, Schema) else load_schema(schema)
            check_search(method, schema, settings.search)
        evidence = measure_source(
            source,
            schema,
            epsilon,
            delta,
            method=choice or method,
            options=options,
            ledger=ledger,
            noise=noise,
            seed=seed,
            accept_draft=accept_draft,
            accept_no_guarantee=accept_no_guarantee,
            knowledge=knowledge,
            redraws=(settings or SearchSettings()).redraws,
            recovery=recovery,
            progress=progress,
        )
        return search_evidence(evidence, settings, knowledge=knowledge, progress=progress)
    if settings is not None:
        raise MethodError(
            f"{method} ({calibration.value}) releases no evidence, so there is nothing to search at other settings; "
            f"give its own settings as options: {_tell_settings(chosen, calibration)}"
        )
    return ask_source(
        source,
        schema,
        Budget.of(epsilon, delta),
        chosen,
        calibration,
        read_settings(chosen, calibration, options),
        ledger=ledger,
        noise=noise,
        seed=seed,
        accept_draft=accept_draft,
        accept_no_guarantee=accept_no_guarantee,
        knowledge=knowledge,
        recovery=recovery,
        progress=progress,
        choice=choice,
    )


def ask_source(
    source: Any,
    schema: Schema | str | Path,
    budget: Budget,
    method: Method,
    calibration: Calibration,
    options: msgspec.Struct,
    *,
    ledger: LedgerPlace,
    noise: NoiseKind,
    seed: int | None,
    accept_draft: bool,
    accept_no_guarantee: bool,
    knowledge: Knowledge | None,
    progress: Progress,
    recovery: str | Path | None = None,
    choice: Choice | None = None,
) -> Result:
    """Run a method that asks adaptively, or the `paper` calibration of any method; parameters as in `discover`."""
    origin = method_origin(method.name)
    run = prepare_run(source, schema, budget, method, ledger, noise, seed, accept_draft, knowledge, origin)
    run.check_guarded(calibration, accept_no_guarantee=accept_no_guarantee)
    publication = require_publication(method) if calibration is Calibration.PAPER else None
    if publication is not None:
        accounting: Filter = PureFilter(budget)
    else:
        accounting = method.accounting(budget, run.schema, options, run.knowledge)
        run = run.charged_by(accounting)
    work = work_of_reading(run.schema, held=run.source.held)
    check_fits(replace(work, engine=run.source.engine), Speed())
    with open_curator(run, method, accounting, options, recovery, calibration) as curator:
        if publication is not None:
            table = curator.open_as_published(f"{method.name}: {publication.flaw}.")
            access = PublishedAccess(table, np.random.default_rng(seed))
            asked = publication.publish(access, budget, run.knowledge, options, progress)
        elif method.ask is not None:
            asked = method.ask(curator, run.knowledge, options, progress)
        else:
            raise MethodError(f"{method.name} has no {calibration.value} calibration")
    return Result(
        format="dagveil-result",
        version=RESULT_VERSION,
        software=__version__,
        created=now(),
        method=MethodUsed(method.name, calibration.value, msgspec.json.decode(msgspec.json.encode(options))),
        graph=write_graph(asked.graph, Shares.none(), run.knowledge),
        near_misses=(),
        confidence=Confidence(0, MEANING),
        schema=summarise(run.schema),
        plan=asked.plan,
        findings=(*_tell_choice(choice), *asked.findings, *tell_knowledge(run.knowledge)),
        receipt=run.receipt(accounting, curator.events, calibration),
        questions=asked.questions,
        unanswered=tuple(Unanswered(*edge) for edge in asked.unanswered),
        reported=None if asked.reported is None else Reported(*asked.reported),
        choice=choice,
    )


def _settle(
    method: str | Choice, schema: Schema | str | Path, *budget: Amount, **rest: Any
) -> tuple[str, Choice | None]:
    if isinstance(method, Choice):
        return method.method, method
    if method != AUTO:
        return method, None
    # a choice rests on trial runs, so its module lies above this one
    choice: Choice = import_module("dagveil.forecast.choose").settle_method(schema, *budget, **rest)
    return choice.method, choice


def _tell_choice(choice: Choice | None) -> tuple[str, ...]:
    return () if choice is None else (choice.why,)


def _tell_settings(method: Method, calibration: Calibration) -> str:
    return ", ".join(settings_of(method, calibration).__struct_fields__) or "it has none"
