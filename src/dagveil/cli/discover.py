"""`dagveil measure` and `dagveil discover`."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from dagveil.cli import options as shared
from dagveil.cli import output as terminal
from dagveil.cli.failure import stoppable
from dagveil.cli.options import Order, option, read_order
from dagveil.evidence.bundle import AUTO, Choice, Evidence, load_evidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.method import Method, method_named
from dagveil.papers.publication import read_settings
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.report.html import render_report
from dagveil.report.model import build_model
from dagveil.runs import discovery
from dagveil.runs.run import load_knowledge
from dagveil.runs.search import check_search, search_evidence
from dagveil.search.settings import SearchSettings

Done = TypeVar("Done")


@click.command(short_help="Release noisy evidence about a table, to search at no cost.")
@click.argument("file")
@shared.run_options
@shared.releasing_options
@option("-o --output FILE", "Where the evidence goes.", default="evidence.json")
@option("plan_path --plan PLAN.json", "Follow an agreed plan: it fixes questions and budget.")
@option("--site NAME", "Which site of the plan this is; only with --plan.")
@option(
    "--dataset NAME",
    "What the ledger calls this site's table, if the plan's schema is taken as it is; only with --plan.",
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
    recovery = terminal.name_recovery(path)
    if plan_path is not None:
        from dagveil.cli.plan import measure_by_plan

        measured = measure_by_plan(context, file, path, recovery, plan_path, site, dataset, run)
    elif site is not None or dataset is not None:
        raise click.UsageError("--site and --dataset say which part of a plan this is; give --plan PLAN.json with them")
    else:
        order = partial(read_order, file, (path,), recovery, run)
        chosen, choice = _resolve_method(order, method, None, options, Calibration.SOUND, True)
        if chosen.release is None:
            raise click.UsageError(f"{method} asks adaptively and leaves no evidence; use `dagveil discover` with it")
        measured = _spend(discovery.measure_source, order, None, chosen, choice, options)
    evidence, tell = measured
    terminal.write_paid(path, evidence.save, recovery)
    tell()
    terminal.print_receipt(evidence.receipt)
    releases, named = terminal.count(len(evidence.releases), "release"), shlex.quote(str(path))
    if evidence.study is not None and evidence.study.after is not None:
        next_step = f"Next: `dagveil combine` adds its {releases} to the first round and to those of the other sites."
    else:
        next_step = f"Next: `dagveil discover {named}` searches its {releases} at no cost."
    terminal.print_written([path], next_step)


@click.command(short_help="Discover the causal graph of a table or of released evidence.")
@click.argument("file")
@shared.run_options
@shared.method_options
@shared.search_options
@option(
    "-o --output FOLDER",
    "Folder for result.json, graph.svg, report.html and, if evidence was released, evidence.json.",
    default="dagveil-out",
)
@option(
    "effort --audit",
    "Audit the method at this budget, on synthetic tables, and show in the report what came of it.",
    type=click.Choice(["quick"]),
)
@click.pass_context
@stoppable
def discover(
    context: click.Context,
    /,
    file: str,
    output: str,
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
    settings = shared.search_settings(run)
    knowledge = load_knowledge(knowledge_path) if knowledge_path else None
    folder = Path(output)
    written = [folder / "result.json", folder / "graph.svg", folder / "report.html"]
    free = Path(file).suffix.lower() == ".json"
    outputs = (*written, *(() if effort is None else (folder / "certificate.json",)))
    recovery = folder / "recovery.jsonl"
    evidence: Evidence | None = None
    if free:
        why = "evidence is searched without the rows and at no cost: leave out {}"
        shared.refuse_given(context, shared.RUN_NAMES, why)
        evidence = load_evidence(file)
        terminal.check_writable(*outputs, reads=(file, knowledge_path))
        terminal.print_recovery(recovery, goes_on=False)
    else:
        drawn_as = Calibration(calibration)
        if drawn_as is Calibration.NONE and run["epsilon"] is None:
            run["epsilon"] = "1"  # read by nobody: the run is recorded as unbounded
        only = bool(shared.list_given(context, shared.SEARCH_NAMES))
        order = partial(read_order, file, outputs, recovery, run, reads=(knowledge_path,))
        chosen, choice = _resolve_method(order, method, knowledge, options, drawn_as, only)
        if chosen.release is None or drawn_as is not Calibration.SOUND:
            why = (
                f"{method} releases no evidence that could be searched at other settings: leave out {{}}; its own "
                f"settings go with --set, see `dagveil methods {method}`"
            )
            shared.refuse_given(context, shared.SEARCH_NAMES, why)
            act = partial(discovery.discover, calibration=drawn_as)
            result, tell = _spend(act, order, knowledge, chosen, choice, options, drawn_as)
            terminal.write_paid(folder / "result.json", result.save, recovery)
            tell()
        else:
            written.append(folder / "evidence.json")
            order = partial(read_order, file, (*outputs, written[-1]), recovery, run, reads=(knowledge_path,))
            measure_source = partial(discovery.measure_source, redraws=settings.redraws)
            measured, tell = _spend(measure_source, order, knowledge, chosen, choice, options, search=settings)
            # saved before the search: whatever happens to that, what was paid for is kept
            terminal.write_paid(folder / "evidence.json", measured.save, recovery)
            evidence = measured
            tell()
    if evidence is not None:
        with terminal.show_progress() as progress:
            result = search_evidence(evidence, settings, knowledge=knowledge, progress=progress)
        terminal.write_output(folder / "result.json", result.save)
    terminal.write_pages(build_model(result), folder / "report.html", folder / "graph.svg")
    if effort is not None:
        from dagveil.audit.certificate import encode_certificate
        from dagveil.audit.examination import Plan, examine_method
        from dagveil.audit.search import Effort
        from dagveil.cli.audit import read_settings as read_tried

        at = Budget.of(result.receipt.epsilon, result.receipt.delta)
        tried, kind = method_named(result.method.name), Calibration(result.method.calibration)
        with terminal.show_progress() as progress:
            plan = Plan(Effort(effort), progress=progress)
            found = examine_method(tried, at, read_tried(options), plan, calibration=kind)
        terminal.write_output(folder / "certificate.json", encode_certificate(found))
        written.append(folder / "certificate.json")
        # the report without it stands already: an audit that fails loses nothing
        terminal.write_output(folder / "report.html", render_report(build_model(result, found)).encode())
    terminal.print_result(result)
    if free:
        click.echo("This search cost nothing; the receipt is that of the evidence.")
    terminal.print_written(written, f"Next: open {folder / 'report.html'} in a browser.")


def _resolve_method(
    order: Callable[[], Order],
    method: str,
    knowledge: Knowledge | None,
    options: tuple[str, ...],
    calibration: Calibration,
    releasing_only: bool,
) -> tuple[Method, Choice | None]:
    """Return the method by its name; or, after everything that could be refused was, let public facts choose one."""
    if method != AUTO:
        return method_named(method), None
    from dagveil.forecast.choose import check_auto, choose_method

    check_auto(bool(options), calibration)
    asked = order()
    public = (asked.schema, asked.budget.epsilon, asked.budget.delta)
    with terminal.show_progress() as progress:
        choice = choose_method(*public, knowledge=knowledge, releasing_only=releasing_only, progress=progress)
    return method_named(choice.method), choice


def _spend(
    act: Callable[..., Done],
    order: Callable[[], Order],
    knowledge: Knowledge | None,
    method: Method,
    choice: Choice | None,
    options: tuple[str, ...],
    calibration: Calibration = Calibration.SOUND,
    search: SearchSettings = SearchSettings(),  # noqa: B008
) -> tuple[Done, Callable[[], None]]:
    """Refuse what can be refused without the ledger, then measure or ask; return also what prints the account."""
    given = shared.read_options(options)
    read_settings(method, calibration, given)
    asked = order()
    check_search(method.name, asked.schema, search, asked.budget, knowledge)
    public = (asked.schema, asked.budget.epsilon, asked.budget.delta)
    chosen = {"method": choice or method.name, "options": given, "knowledge": knowledge}
    with terminal.show_progress() as progress:
        done = act(asked.rows, *public, progress=progress, **chosen, **asked.options)
    return done, asked.print_account
