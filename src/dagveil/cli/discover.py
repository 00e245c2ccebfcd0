"""`dagveil measure` and `dagveil discover`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table as RichTable

from dagveil.cli.options import open_ledger, require_schema, run_options, search_options, search_settings
from dagveil.cli.progress import show_progress
from dagveil.errors import DataError
from dagveil.evidence.bundle import Evidence, load_evidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.discovery import measure_source, search_evidence
from dagveil.methods.knowledge_file import load_knowledge
from dagveil.methods.result import Result
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.report.html import write_report, write_svg


@click.command()
@click.argument("file")
@run_options
@click.option("-o", "--output", default="evidence.json", show_default=True, help="Where the evidence goes.")
def measure(file: str, output: str, **run: Any) -> None:
    """Release noisy evidence about FILE; `dagveil discover` searches it as often as you like, at no cost."""
    path = _writable(Path(output))
    evidence = _measure(file, None, **run)
    evidence.save(path)
    console = Console()
    for sentence in evidence.receipt.words():
        console.print(sentence, highlight=False)
    console.print(f"\nwrote {path}: {len(evidence.releases)} releases", highlight=False)


@click.command()
@click.argument("file")
@run_options
@search_options
@click.option("-o", "--output", default="dagveil-out", show_default=True, help="Folder for result, graph and report.")
def discover(file: str, output: str, knowledge_path: str | None, **options: Any) -> None:
    """Discover the causal graph of FILE: a table (CSV, Parquet, Arrow), or evidence that `measure` released."""
    search = {
        name: options.pop(name)
        for name in ("marginal_level", "conditional_level", "largest_order", "arrows", "redraws")
    }
    settings = search_settings(**search)
    knowledge = load_knowledge(knowledge_path) if knowledge_path else None
    folder = _writable_folder(Path(output))
    if file.endswith(".json"):
        if options["epsilon"] is not None:
            raise click.UsageError("evidence is searched at no cost: leave --epsilon out")
        evidence = load_evidence(file)
    else:
        evidence = _measure(file, knowledge, **options)
        evidence.save(folder / "evidence.json")
    with show_progress() as progress:
        result = search_evidence(evidence, settings, knowledge=knowledge, progress=progress)
    result.save(folder / "result.json")
    write_svg(result, folder / "graph.svg")
    write_report(result, folder / "report.html")
    _print_summary(result, folder)


def _measure(
    file: str,
    knowledge: Knowledge | None,
    schema_path: str | None,
    epsilon: str | None,
    delta: str,
    ledger: str,
    noise: str,
    seed: int | None,
    accept_draft: bool,
) -> Evidence:
    if epsilon is None:
        raise click.UsageError("a run on rows needs --epsilon, for example --epsilon 1")
    schema = require_schema(schema_path)
    books = open_ledger(ledger)
    with show_progress() as progress:
        evidence = measure_source(
            file,
            schema,
            epsilon,
            delta,
            ledger=books,
            noise=NoiseKind(noise),
            seed=seed,
            accept_draft=accept_draft,
            knowledge=knowledge,
            progress=progress,
        )
    account = books.account(schema.dataset)
    click.echo(f"ledger {ledger}: {account.words}", err=True)
    return evidence


def _writable(path: Path) -> Path:
    """Find out before the budget is spent that the output cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}; choose another output") from error
    return path


def _writable_folder(folder: Path) -> Path:
    _writable(folder / "result.json")
    return folder


def _print_summary(result: Result, folder: Path) -> None:
    console = Console()
    edges = RichTable(title=f"{len(result.graph.edges)} edges among {len(result.graph.nodes)} columns")
    for heading in ("from", "", "to"):
        edges.add_column(heading)
    edges.add_column("returns", justify="right")
    edges.add_column("arrow returns", justify="right")
    for edge in result.graph.edges:
        mark = "→" if edge.kind == "directed" else "—"
        edges.add_row(edge.source, mark, edge.target, _percent(edge.confidence), _percent(edge.arrow_confidence))
    console.print(edges)
    for miss in result.near_misses[:5]:
        console.print(f"near miss: {miss.source} — {miss.target}, returns {_percent(miss.confidence)}", highlight=False)
    for finding in result.findings:
        console.print(finding, highlight=False)
    console.print()
    for sentence in result.receipt.words():
        style = "bold red" if sentence.startswith("Warning") else None
        console.print(sentence, style=style, highlight=False)
    console.print(
        f"\nwrote {folder}/result.json, graph.svg and report.html: open the report in a browser", highlight=False
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
