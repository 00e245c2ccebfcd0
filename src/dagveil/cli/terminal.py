"""What a run says on the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dagveil.cli.failure import INTERRUPT
from dagveil.privacy.receipt import Receipt
from dagveil.progress import Progress as Report
from dagveil.runs.result import MarkShares, Result, ResultEdge
from dagveil.text import clean_lines, clean_text

PAUSE = 60.0  # seconds between two lines where there is no terminal


@contextmanager
def show_progress(*, lines: bool = False) -> Iterator[Report]:
    """Give a callback that draws one bar per stage.

    If the error stream is not a terminal it is silent, or writes a line a minute for work that takes hours.
    """
    console = Console(stderr=True)
    if lines and not console.is_terminal:
        yield _Lines().report
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            INTERRUPT.check()
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


class _Lines:
    """Progress for a log: a line now and then, with the time left."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        """Write a line if the last one is old."""
        now = time.monotonic()
        if done == 0:
            self._began = self._told = now
        elif now - self._told >= PAUSE:
            self._told = now
            left = (now - self._began) / done * (total - done) / 60.0
            click.echo(f"{stage}: {done} of {total}, about {left:.0f} minutes left", err=True)


SHOWN_MISSES = 5  # how many near misses are listed; the report has them all
WIDE = 10_000  # columns of text when a program reads the output: nothing is wrapped or cut


class _PlainConsole(Console):
    """Prints text and cells of tables without what would steer a terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Make a text printable; every string comes through here."""
        return super().render_str(clean_lines(text), **options)


def echo_document(text: str) -> None:
    """Print a document as it is for another program, and without what would steer a terminal on one."""
    click.echo(clean_lines(text) if sys.stdout.isatty() else text, nl=False)


def open_console() -> Console:
    """Give a console that prints names as they are and wraps only on a terminal."""
    # names of columns may look like Rich's markup or emoji codes
    console = _PlainConsole(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDE
    return console


def print_result(result: Result) -> None:
    """Print the graph, what a reader should know about it, and the receipt."""
    console = open_console()
    size = f"{count(len(result.graph.edges), 'edge')} among {count(len(result.graph.nodes), 'column')}"
    for sentence in result.summary:
        console.print(clean_text(sentence))
    if result.graph.edges:
        console.print(_edge_table(result.graph.edges, size))
    elif not result.summary:
        console.print(f"{size}: nothing stood out from noise and chance")
    for miss in result.near_misses[:SHOWN_MISSES]:
        console.print(
            clean_text(
                f"{'doubtful' if miss.found else 'only in redraws'}: {miss.source} — {miss.target}, edge confidence "
                f"{_percent(miss.confidence)}"
                f"{'' if miss.probability is None else f', probability {_percent(miss.probability)}'}"
                f"{'' if miss.explained_by is None else f'; {miss.explained_by} alone could explain it'}"
            )
        )
    hidden = result.near_misses[SHOWN_MISSES:]
    if hidden:
        found = sum(miss.found for miss in hidden) or "none"
        console.print(f"and {len(hidden)} more in the report, {found} of them doubtful")
    print_findings(result.findings, result.receipt)


def print_findings(findings: Iterable[str], receipt: Receipt) -> None:
    """Print what a reader should know, and the receipt."""
    console = open_console()
    for finding in findings:
        console.print(clean_text(finding))
    console.print()
    print_receipt(receipt)


def print_receipt(receipt: Receipt) -> None:
    """Print the receipt in sentences, warnings in red."""
    console = open_console()
    for sentence in receipt.words():
        console.print(clean_text(sentence), style="bold red" if sentence.startswith("Warning") else None)


def print_written(paths: Iterable[Path], hint: str) -> None:
    """Say which files were written, and what to do with them."""
    open_console().print(f"\nwrote {', '.join(str(path) for path in paths)}\n{hint}")


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """Count things in words."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def _edge_table(edges: Sequence[ResultEdge], title: str) -> Table:
    table = Table("from", "", "to", title=title, title_justify="left")
    # methods that ask adaptively leave nothing to draw again
    redrawn = any(edge.confidence is not None for edge in edges)
    marked = any(edge.marks_at_source is not None for edge in edges)
    joins = ("at from: arrow/tail/o", "at to: arrow/tail/o") if marked else ("→", "←", "—")
    likely = any(edge.probability is not None for edge in edges)
    for heading in ("probability", "of the arrow") if likely else ():
        table.add_column(heading, justify="right")
    for heading in ("edge confidence", *joins, "none") if redrawn else ():
        table.add_column(heading, justify="right")
    for edge in edges:
        absent = None if edge.confidence is None else 1.0 - edge.confidence
        shares: tuple[str, ...] = tuple(map(_percent, (edge.forward, edge.backward, edge.line)))
        if marked:
            shares = tuple(map(_write_marks, (edge.marks_at_source, edge.marks_at_target)))
        confidences = (_percent(edge.confidence), *shares, _percent(absent)) if redrawn else ()
        arrow = edge.forward_probability if edge.kind == "directed" else None
        probabilities = (_percent(edge.probability), _percent(arrow)) if likely else ()
        table.add_row(clean_text(edge.source), edge.sign, clean_text(edge.target), *probabilities, *confidences)
    return table


def _write_marks(shares: MarkShares | None) -> str:
    return "" if shares is None else " / ".join(map(_percent, (shares.arrow, shares.tail, shares.circle)))


def _percent(share: float | None) -> str:
    return "" if share is None else ">99%" if 0.995 <= share < 1 else f"{share:.0%}"
