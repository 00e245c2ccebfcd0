"""`dagveil measure` and `dagveil discover`."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

import click

from dagveil.cli.account import describe
from dagveil.cli.options import (
    name_ledger,
    open_ledger,
    refuse_run_options,
    require_schema,
    run_options,
    search_options,
    search_settings,
)
from dagveil.cli.output import check_writable
from dagveil.cli.progress import show_progress
from dagveil.cli.summary import count, print_receipt, print_result, print_written
from dagveil.errors import DataError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.discovery import check_reviewed, measure_source, search_evidence
from dagveil.methods.knowledge_file import load_knowledge
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.report.html import write_report, write_svg


@click.command(short_help="Release noisy evidence about a table, to search at no cost.")
@click.argument("file")
@run_options
@click.option(
    "-o", "--output", metavar="FILE", default="evidence.json", show_default=True, help="Where the evidence goes."
)
def measure(file: str, output: str, **run: Any) -> None:
    """Release noisy evidence about FILE, a table (CSV, TSV, Parquet, Feather, Arrow).

    This spends the budget once. `dagveil discover evidence.json` then searches the evidence as often as you like, at
    no cost and without the rows.
    """
    path = Path(output)
    evidence = _measure(file, None, (path,), **run)
    _save_paid(evidence, path)
    print_receipt(evidence.receipt)
    releases = count(len(evidence.releases), "release")
    print_written([path], f"Next: `dagveil discover {shlex.quote(str(path))}` searches its {releases} at no cost.")


@click.command(short_help="Discover the causal graph of a table or of released evidence.")
@click.argument("file")
@run_options
@search_options
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    default="dagveil-out",
    show_default=True,
    help="Folder for result.json, graph.svg, report.html and, from rows, evidence.json.",
)
@click.pass_context
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
    knowledge_path: str | None,
    **run: Any,
) -> None:
    """Discover the causal graph of FILE.

    FILE is a table (CSV, TSV, Parquet, Feather, Arrow): then --schema and --epsilon are needed and the budget is
    spent. Or it is evidence.json, released before: then the search is free and never sees the rows.
    """
    settings = search_settings(marginal_level, conditional_level, largest_order, arrows, redraws)
    knowledge = load_knowledge(knowledge_path) if knowledge_path else None
    folder = Path(output)
    written = [folder / "result.json", folder / "graph.svg", folder / "report.html"]
    if Path(file).suffix.lower() == ".json":
        refuse_run_options(context)
        evidence = load_evidence(file)
        check_writable(*written)
    else:
        written.append(folder / "evidence.json")
        evidence = _measure(file, knowledge, tuple(written), **run)
        # saved before the search: whatever happens to that, what was paid for is kept
        _keep_earlier(folder / "evidence.json")
        _save_paid(evidence, folder / "evidence.json")
    with show_progress() as progress:
        result = search_evidence(evidence, settings, knowledge=knowledge, progress=progress)
    result.save(folder / "result.json")
    write_svg(result, folder / "graph.svg")
    write_report(result, folder / "report.html")
    print_result(result)
    if Path(file).suffix.lower() == ".json":
        click.echo("This search cost nothing; the receipt is that of the evidence.")
    print_written(written, f"Next: open {folder / 'report.html'} in a browser.")


def _measure(
    file: str,
    knowledge: Knowledge | None,
    outputs: tuple[Path, ...],
    schema_path: str | None,
    epsilon: str | None,
    delta: str,
    ledger: str,
    noise: str,
    seed: int | None,
    accept_draft: bool,
) -> Evidence:
    """Refuse what can be refused without the ledger, then spend."""
    if epsilon is None:
        raise click.UsageError("a run on rows needs --epsilon, for example --epsilon 1")
    budget = Budget.of(epsilon, delta)
    schema = require_schema(schema_path)
    check_reviewed(schema, accept_draft=accept_draft)
    check_writable(*outputs)
    books = open_ledger(ledger)
    with show_progress() as progress:
        evidence = measure_source(
            file,
            schema,
            budget.epsilon,
            budget.delta,
            ledger=books,
            noise=NoiseKind(noise),
            seed=seed,
            accept_draft=accept_draft,
            knowledge=knowledge,
            progress=progress,
        )
    click.echo(f"ledger {name_ledger(ledger)}: {describe(books.account(schema.dataset))}", err=True)
    return evidence


def _save_paid(evidence: Evidence, path: Path) -> None:
    """Save evidence that has cost budget; if its place fails now (a full disk), save it elsewhere."""
    try:
        evidence.save(path)
    except OSError as error:
        handle, refuge = tempfile.mkstemp(prefix="dagveil-evidence-", suffix=".json")
        os.close(handle)
        evidence.save(refuge)
        raise DataError(
            f"cannot write {path}: {error.strerror}. The budget is spent, so the evidence was saved as {refuge}: move "
            "it to a safe place and search it with `dagveil discover`."
        ) from error


def _keep_earlier(path: Path) -> None:
    """Move evidence of an earlier run aside: it was paid for."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}-{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    click.echo(f"kept the evidence of an earlier run as {aside}", err=True)
