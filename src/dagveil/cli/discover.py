"""`dagveil measure` and `dagveil discover`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from dagveil.cli.failure import stoppable
from dagveil.cli.options import (
    has_search_options,
    method_options,
    read_options,
    refuse_run_options,
    refuse_search_options,
    releasing_options,
    run_options,
    search_options,
    search_settings,
)
from dagveil.cli.order import Order, read_order
from dagveil.cli.output import check_writable, name_recovery, print_recovery, write_output, write_paid
from dagveil.cli.terminal import count, print_receipt, print_result, print_written, show_progress
from dagveil.evidence.bundle import AUTO, Choice, Evidence, load_evidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.catalogue import method_named
from dagveil.methods.method import Method
from dagveil.papers.publication import read_settings
from dagveil.privacy.receipt import Calibration
from dagveil.report.html import render_report, render_svg
from dagveil.report.model import build_model
from dagveil.runs.discovery import discover as run_discovery
from dagveil.runs.discovery import measure_source
from dagveil.runs.result import Result
from dagveil.runs.run import load_knowledge
from dagveil.runs.search import check_search, search_evidence
from dagveil.search.settings import SearchRule


@click.command(short_help="Release noisy evidence about a table, to search at no cost.")
@click.argument("file")
@run_options
@releasing_options
@click.option(
    "-o", "--output", metavar="FILE", default="evidence.json", show_default=True, help="Where the evidence goes."
)
@click.option("--plan", "plan_path", metavar="PLAN.json", help="Follow an agreed plan: it fixes questions and budget.")
@click.option("--site", metavar="NAME", help="Which site of the plan this is; only with --plan.")
@click.option(
    "--dataset",
    metavar="NAME",
    help="What the ledger calls this site's table, if the plan's schema is taken as it is; only with --plan.",
)
@click.pass_context
@stoppable
def measure(
    context: click.Context,
    /,
    file: str,
    output: str,
    method: str,
    options: tuple[str, ...],
    plan_path: str | None,
    site: str | None,
    dataset: str | None,
    **run: Any,
) -> None:
    """Release noisy evidence about FILE, a table (CSV, TSV, Parquet, Feather, Arrow).

    This spends the budget once. `dagveil discover evidence.json` then searches the evidence as often as you like, at
    no cost and without the rows. With --plan the questions and the budget are those of an agreed plan, and `dagveil
    combine` adds what several sites release.
    """
    path = Path(output)
    recovery = name_recovery(path)
    if plan_path is not None:
        from dagveil.cli.combine import measure_by_plan

        measured = measure_by_plan(context, file, path, recovery, plan_path, site, dataset, run)
    elif site is not None or dataset is not None:
        raise click.UsageError("--site and --dataset say which part of a plan this is; give --plan PLAN.json with them")
    else:
        places = _Places((path,), recovery, ())
        chosen, choice = _resolve_method(file, method, places, None, options, Calibration.SOUND, True, **run)
        if chosen.release is None:
            raise click.UsageError(f"{method} asks adaptively and leaves no evidence; use `dagveil discover` with it")
        measured = _measure(file, None, places, method=chosen, choice=choice, options=options, **run)
    evidence, tell = measured
    write_paid(path, evidence.save, recovery)
    tell()
    print_receipt(evidence.receipt)
    releases = count(len(evidence.releases), "release")
    print_written([path], f"Next: `dagveil discover {shlex.quote(str(path))}` searches its {releases} at no cost.")


@click.command(short_help="Discover the causal graph of a table or of released evidence.")
@click.argument("file")
@run_options
@method_options
@search_options
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default="dagveil-out",
    show_default=True,
    help="Folder for result.json, graph.svg, report.html and, if evidence was released, evidence.json.",
)
@click.option(
    "--audit",
    "effort",
    type=click.Choice(["quick"]),
    help="Audit the method at this budget, on synthetic tables, and show in the report what came of it.",
)
@click.pass_context
@stoppable
def discover(
    context: click.Context,
    /,
    file: str,
    output: str,
    marginal_level: float | None,
    conditional_level: float | None,
    largest_order: int | None,
    arrows: str,
    redraws: int,
    search: str | None,
    false_edges: float,
    knowledge_path: str | None,
    method: str,
    calibration: str,
    options: tuple[str, ...],
    effort: str | None,
    **run: Any,
) -> None:
    """Discover the causal graph of FILE.

    FILE is a table (CSV, TSV, Parquet, Feather, Arrow; a folder; or with --table a database or cluster): then
    --schema and --epsilon are needed and the budget is spent. Or it is evidence.json, released before: then the search
    is free and never sees the rows.
    """
    settings = search_settings(marginal_level, conditional_level, largest_order, arrows, redraws, search, false_edges)
    knowledge = load_knowledge(knowledge_path) if knowledge_path else None
    folder = Path(output)
    written = [folder / "result.json", folder / "graph.svg", folder / "report.html"]
    free = Path(file).suffix.lower() == ".json"
    outputs = (*written, *(() if effort is None else (folder / "certificate.json",)))
    places = _Places(outputs, folder / "recovery.jsonl", (knowledge_path,))
    evidence: Evidence | None = None
    if free:
        refuse_run_options(context)
        evidence = load_evidence(file)
        check_writable(*places.outputs, reads=(file, knowledge_path))
        print_recovery(places.recovery, goes_on=False)
    else:
        drawn_as = Calibration(calibration)
        only = has_search_options(context)
        chosen, choice = _resolve_method(file, method, places, knowledge, options, drawn_as, only, **run)
        if chosen.release is None or drawn_as is Calibration.PAPER:
            refuse_search_options(context, method)
            result, tell = _ask(file, knowledge, places, chosen, choice, drawn_as, options, **run)
            write_paid(folder / "result.json", result.save, places.recovery)
            tell()
        else:
            written.append(folder / "evidence.json")
            places = replace(places, outputs=(*places.outputs, folder / "evidence.json"))
            evidence, tell = _measure(
                *(file, knowledge, places),
                method=chosen,
                choice=choice,
                options=options,
                redraws=redraws,
                search=settings.search,
                **run,
            )
            # saved before the search: whatever happens to that, what was paid for is kept
            write_paid(folder / "evidence.json", evidence.save, places.recovery)
            tell()
    if evidence is not None:
        with show_progress() as progress:
            result = search_evidence(evidence, settings, knowledge=knowledge, progress=progress)
        write_output(folder / "result.json", result.save)
    model = build_model(result)
    write_output(folder / "graph.svg", f"{render_svg(model)}\n".encode())
    write_output(folder / "report.html", render_report(model).encode())
    if effort is not None:
        from dagveil.audit.certificate import encode_certificate
        from dagveil.audit.search import Effort
        from dagveil.cli.audit import audit_result

        found = audit_result(result, options, Effort(effort))
        write_output(folder / "certificate.json", encode_certificate(found))
        written.append(folder / "certificate.json")
        # the report without it stands already: an audit that fails loses nothing
        write_output(folder / "report.html", render_report(build_model(result, found)).encode())
    print_result(result)
    if free:
        click.echo("This search cost nothing; the receipt is that of the evidence.")
    print_written(written, f"Next: open {folder / 'report.html'} in a browser.")


def _resolve_method(
    file: str,
    method: str,
    places: _Places,
    knowledge: Knowledge | None,
    options: tuple[str, ...],
    calibration: Calibration,
    releasing_only: bool,
    **run: Any,
) -> tuple[Method, Choice | None]:
    """Return the method by its name; or, after everything that could be refused was, let public facts choose one."""
    if method != AUTO:
        return method_named(method), None
    from dagveil.forecast.choose import check_auto, choose_method

    check_auto(bool(options), calibration)
    order = places.order(file, run)
    with show_progress() as progress:
        choice = choose_method(
            order.schema,
            order.budget.epsilon,
            order.budget.delta,
            knowledge=knowledge,
            releasing_only=releasing_only,
            progress=progress,
        )
    return method_named(choice.method), choice


def _measure(
    file: str,
    knowledge: Knowledge | None,
    places: _Places,
    *,
    method: Method,
    choice: Choice | None,
    options: tuple[str, ...],
    redraws: int = 0,
    search: SearchRule | None = None,
    **run: Any,
) -> tuple[Evidence, Callable[[], None]]:
    """Refuse what can be refused without the ledger, then spend; return also what tells the account."""
    given = read_options(options)
    method.read_settings(given)
    order = places.order(file, run)
    check_search(method.name, order.schema, search)
    with show_progress() as progress:
        evidence = measure_source(
            *(order.rows, order.schema, order.budget.epsilon, order.budget.delta),
            method=choice or method.name,
            options=given,
            knowledge=knowledge,
            redraws=redraws,
            progress=progress,
            **order.options,
        )
    return evidence, order.print_account


def _ask(
    file: str,
    knowledge: Knowledge | None,
    places: _Places,
    method: Method,
    choice: Choice | None,
    calibration: Calibration,
    options: tuple[str, ...],
    **run: Any,
) -> tuple[Result, Callable[[], None]]:
    """Refuse what can be refused without the ledger, then ask; return also what tells the account."""
    given = read_options(options)
    read_settings(method, calibration, given)
    order = places.order(file, run)
    with show_progress() as progress:
        result = run_discovery(
            *(order.rows, order.schema, order.budget.epsilon, order.budget.delta),
            method=choice or method.name,
            calibration=calibration,
            options=given,
            knowledge=knowledge,
            progress=progress,
            **order.options,
        )
    return result, order.print_account


@dataclass(frozen=True, slots=True)
class _Places:
    """Files of a run: what it writes, what keeps its answers until then, and what it reads beside rows and schema."""

    outputs: tuple[Path, ...]
    recovery: Path
    reads: tuple[str | None, ...]

    def order(self, file: str, run: dict[str, Any]) -> Order:
        """Check a run on rows."""
        return read_order(file, self.outputs, self.recovery, run, reads=self.reads)
