"""From a sensitive table to evidence, and from evidence to a graph: the steps behind every command."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np

from dagveil.data.schema import Schema, load_schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import AUTO, EVIDENCE_VERSION, Choice, Evidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Method, method_named
from dagveil.papers.publication import PublishedAccess, read_settings, require_reading, settings_of
from dagveil.privacy.budget import Amount, Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import silent
from dagveil.runs import result as results
from dagveil.runs.run import RunOptions, check_reviewed, open_run
from dagveil.runs.search import check_search, describe_shares, search_evidence
from dagveil.runs.summary import describe_knowledge
from dagveil.search.confidence import Shares
from dagveil.search.settings import SearchSettings

DEFAULT_DELTA = "1e-6"  # delta of a run that names none


def measure_source(
    source: Any,
    schema: Schema | str | Path,
    epsilon: Amount,
    delta: Amount = DEFAULT_DELTA,
    *,
    method: str | Choice = "measure",
    options: Mapping[str, Any] | None = None,
    knowledge: Knowledge | None = None,
    redraws: int = 0,
    **run: Unpack[RunOptions],
) -> Evidence:
    """Release evidence about a table: tables or moments, with their receipt.

    - `source`: a path, frame or array; see `dagveil.data.reading`. Also a folder or a pattern of files, a
      `DatabaseTable`, a frame of Spark; and what `choose_engine` gives. A table that was opened with this very schema
      is taken as it is.
    - `schema`: levels, bounds and public facts; or the path of a schema.toml.
    - `epsilon`, `delta`: budget of this run.
    - `method`: a method that releases evidence: `measure`, `lap-mech` or `priv-pc-star`. Or "auto", which lets public
      facts choose; or what `choose_method` chose before.
    - `options`: settings of the method, by name.
    - `knowledge`: background knowledge; None takes the schema's.
    - `redraws`: those of the search that is to follow: a run that would not fit into memory is refused before it
      spends.
    - `run`: ledger, noise, engine, recovery and whatever else every run takes: `RunOptions`.
    """
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    chosen, choice = _resolve_method(
        method, schema, epsilon, delta, options, Calibration.SOUND, knowledge, releasing_only=True, run=run
    )
    if chosen.release is None:
        raise MethodError(f"{chosen.name} asks adaptively and leaves no evidence to search; use `discover` with it")
    settings = chosen.read_settings(options)
    budget = Budget.of(epsilon, delta)
    with open_run(source, schema, budget, chosen, settings, knowledge=knowledge, redraws=redraws, run=run) as opened:
        prepared, curator = opened
        measured = chosen.release(curator, prepared.knowledge, settings, run.get("progress", silent))
    return Evidence(
        **results.head("dagveil-evidence", EVIDENCE_VERSION),
        method=chosen.name,
        schema=schema,
        plan=measured.plan,
        findings=(*_describe_choice(choice), *measured.findings),
        receipt=prepared.receipt(curator.events),
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
    knowledge: Knowledge | None = None,
    **run: Unpack[RunOptions],
) -> results.Result:
    """Discover the causal graph of a table under differential privacy.

    Parameters beyond those of `measure_source` and `search_evidence`:

    - `source`, `schema`, `epsilon`, `delta`, `knowledge`, `run`: as in `measure_source`.
    - `method`: name of a method; `dagveil methods` lists them. Or as in `measure_source`; with `settings`, "auto"
      chooses among methods that release evidence.
    - `calibration`: sound; or as the paper prints it, or as its authors' program has it: these claim nothing.
    - `options`: settings of the method, by name.
    - `settings`: of the search over evidence; for methods that release evidence only.

    Examples
    --------
    >>> import numpy as np
    >>> from dagveil.data.column import Boolean
    >>> from dagveil.privacy.noise.kind import NoiseKind
    >>> schema = Schema(dataset="demo", columns={"a": Boolean("false"), "b": Boolean("false")}, reviewed=True)
    >>> rows = {"a": np.arange(1000) % 2 == 0, "b": np.arange(1000) % 2 == 0}
    >>> result = discover(rows, schema, epsilon=1, delta=1e-6, ledger=None, noise=NoiseKind.SEEDED, seed=1)
    >>> [(edge.source, edge.target, edge.kind) for edge in result.graph.edges]
    [('a', 'b', 'undirected')]
    """
    calibration = Calibration(calibration)
    schema = schema if isinstance(schema, Schema) else load_schema(schema)
    chosen, choice = _resolve_method(
        *(method, schema, epsilon, delta, options, calibration, knowledge), releasing_only=settings is not None, run=run
    )
    if chosen.release is not None and calibration is Calibration.SOUND:
        check_search(chosen.name, schema, settings or SearchSettings(), Budget.of(epsilon, delta), knowledge)
        evidence = measure_source(
            source,
            schema,
            epsilon,
            delta,
            method=choice or chosen.name,
            options=options,
            knowledge=knowledge,
            redraws=(settings or SearchSettings()).redraws,
            **run,
        )
        return search_evidence(evidence, settings, knowledge=knowledge, progress=run.get("progress", silent))
    if settings is not None:
        raise MethodError(
            f"{chosen.name} ({calibration.value}) releases no evidence, so there is nothing to search at other "
            "settings; give its own settings as options: "
            f"{', '.join(settings_of(chosen, calibration).__struct_fields__) or 'it has none'}"
        )
    read = read_settings(chosen, calibration, options)
    if calibration is not Calibration.SOUND:
        require_reading(chosen, calibration).check(schema, read)
    # a method that asks adaptively, or any method as published
    progress, budget = run.get("progress", silent), Budget.of(epsilon, delta)
    asking = (source, schema, budget, chosen, read)
    with open_run(*asking, knowledge=knowledge, calibration=calibration, run=run) as (prepared, curator):
        if calibration is not Calibration.SOUND:
            reading = require_reading(chosen, calibration)
            table = curator.open_as_published(f"{chosen.name}: {reading.flaw}.")
            access = PublishedAccess(table, np.random.default_rng(run.get("seed")))
            asked = reading.publish(access, budget, prepared.knowledge, read, progress)
        elif chosen.ask is not None:
            asked = chosen.ask(curator, prepared.knowledge, read, progress)
        else:
            raise MethodError(f"{chosen.name} has no {calibration.value} calibration")
    return results.Result(
        **results.head("dagveil-result", results.RESULT_VERSION),
        method=results.MethodUsed(chosen.name, calibration.value, msgspec.json.decode(msgspec.json.encode(read))),
        graph=results.assemble_graph(asked.graph, Shares.none(), prepared.knowledge),
        near_misses=(),
        confidence=results.Confidence(0, *describe_shares("nothing was released that could be drawn again")),
        schema=results.summarise(schema),
        plan=asked.plan,
        findings=(*_describe_choice(choice), *asked.findings, *describe_knowledge(prepared.knowledge)),
        receipt=prepared.receipt(curator.events),
        questions=asked.questions,
        unanswered=tuple(results.Unanswered(*edge) for edge in asked.unanswered),
        reported=None if asked.reported is None else results.Reported(*asked.reported, asked.counted),
        choice=choice,
    )


def _resolve_method(
    method: str | Choice,
    schema: Schema,
    epsilon: Amount,
    delta: Amount,
    options: Mapping[str, Any] | None,
    calibration: Calibration,
    knowledge: Knowledge | None,
    *,
    releasing_only: bool,
    run: RunOptions,
) -> tuple[Method, Choice | None]:
    choice = method if isinstance(method, Choice) else None
    if method == AUTO:
        # a choice rests on trial runs, so its module lies above this one
        forecast = import_module("dagveil.forecast.choose")
        forecast.check_auto(bool(options), calibration)
        check_reviewed(schema, accept_draft=run.get("accept_draft", False))
        public = {"knowledge": knowledge, "releasing_only": releasing_only, "progress": run.get("progress", silent)}
        choice = forecast.choose_method(schema, epsilon, delta, **public)
    return method_named(str(method) if choice is None else choice.method), choice


def _describe_choice(choice: Choice | None) -> tuple[str, ...]:
    return () if choice is None else (choice.why,)
