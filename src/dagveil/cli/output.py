"""What a run says on the terminal, and files that a command will write.

One rule for all commands: nothing that was read or paid for is destroyed. A file that the command reads, and the
ledger, are refused as an output. A file that an earlier run paid for is kept aside under another name. All others are
replaced, in one step.
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from dagveil.cli.failure import INTERRUPT
from dagveil.curator.journal import read_order
from dagveil.errors import DataError
from dagveil.privacy.receipt import Receipt
from dagveil.progress import Progress as Report
from dagveil.runs.recovery import describe_stopped, save_whole
from dagveil.runs.result import MarkShares, Result, ResultEdge
from dagveil.text import clean_lines, clean_text

if TYPE_CHECKING:
    from dagveil.report.model import ReportModel

_BESIDE_LEDGER: Final = ("", "-journal", "-wal", "-shm")  # SQLite keeps these files beside its own
_SQLITE: Final = b"SQLite format 3\0"


def check_writable(
    *paths: Path, reads: Iterable[str | Path | None] = (), ledger: str | None = None, option: str = "-o"
) -> None:
    """Find out, before any budget is spent, whether all these files can be written, and should be.

    Folders are made. Existing files keep their content, and no new ones stay behind.

    What the command reads may be a folder or a pattern, which stands for its files; None is left out. `option` names
    the output, for the message.
    """
    read = [place for one in reads if one is not None for place in _list_files(str(one))]
    books = [] if ledger is None else _ledger_files(ledger)
    for path in paths:
        for others, what in ((read, "a file that this command reads"), (books, "the ledger")):
            if any(_is_same(path, other) for other in others):
                raise DataError(f"{path} is {what}; choose another place with {option}. Nothing was spent.")
        try:
            if path.is_symlink() and not path.exists():
                raise DataError(f"{path} is a link to nothing; remove it or choose another place with {option}.")
            if path.exists() and not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
                raise DataError(f"{path} is a pipe or a device, no file; choose another place with {option}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                with path.open("ab"):
                    pass
            part = Path(os.path.realpath(path)).with_name(f".part-{path.name}")
            with part.open("ab"):
                pass
            part.unlink()
        except OSError as error:
            raise DataError(
                f"cannot write {path}: {error.strerror}; choose another place with {option}. Nothing was spent."
            ) from error


def write_output(path: Path, content: bytes | Callable[[Path], Any]) -> None:
    """Write a file in one step: some bytes, or whatever a function writes. One that was paid for is kept aside."""
    if path.is_file():
        with path.open("rb") as file:
            # an SQLite file is told by its content: commands that know no ledger must spare one, too
            if file.read(len(_SQLITE)) == _SQLITE:
                raise DataError(f"{path} is the ledger, or another database; choose another place with -o.")
        if _is_paid(path):
            _keep_earlier(path)
    with save_whole(path) as part:
        if isinstance(content, bytes):
            part.write_bytes(content)
        else:
            content(part)


def write_pages(model: ReportModel, page: Path, drawing: Path) -> None:
    """Write the report of a result, and the drawing of its graph."""
    from dagveil.report.html import render_report, render_svg

    write_output(drawing, f"{render_svg(model)}\n".encode())
    write_output(page, render_report(model).encode())


def write_paid(path: Path, save: Callable[[Path], Any], recovery: Path) -> None:
    """Write what has cost budget, and then let go of its recovery file."""
    try:
        write_output(path, save)
    except DataError as error:
        if recovery.exists():
            error.add_note(f"What was paid for is kept in {recovery}: the same command finishes it at no further cost.")
        raise
    recovery.unlink(missing_ok=True)


def name_recovery(output: Path) -> Path:
    """Return the file beside an output that keeps what a run released until the output is written."""
    return output.with_suffix(".recovery.jsonl")


def print_recovery(recovery: Path, *, goes_on: bool) -> None:
    """Say that a run stopped here, and what becomes of it."""
    if not recovery.exists():
        return
    order, answers = read_order(recovery)
    going_on = f"going on with run {order.run}, which stopped: {answers} answers are in {recovery}"
    click.echo(going_on if goes_on else describe_stopped(recovery, order), err=True)


def _list_files(text: str) -> Iterator[Path]:
    """Yield the files that a source names; a folder is walked."""
    path = Path(text)
    if path.is_dir():
        for folder, _, names in os.walk(path):
            yield from (Path(folder, name) for name in names if not name.endswith((".json", ".jsonl", ".html", ".svg")))
    elif glob.has_magic(text) and not path.exists():
        yield from map(Path, glob.iglob(text, recursive=True))
    else:
        yield path


def _ledger_files(place: str) -> list[Path]:
    with suppress(ArgumentError):  # a path is no URL
        url = make_url(place)
        place = (url.database or "") if url.get_backend_name() == "sqlite" else ""
    return [Path(place + end).expanduser() for end in _BESIDE_LEDGER] if place else []


def _is_same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    with suppress(OSError):
        return os.path.samefile(one, other)
    return False


def _is_paid(path: Path) -> bool:
    """Tell whether nothing else could give a file back: evidence, a direction, or what an adaptive run found."""
    named = path.suffix.lower() == ".json"
    try:
        with path.open("rb") as file:
            if not named and file.read(1) != b"{":
                return False
        head = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return named  # damaged, perhaps: whatever it was stays
    if not isinstance(head, dict) or head.get("receipt") is None:
        return False
    return head.get("format") != "dagveil-result" or head.get("questions") is not None


def _keep_earlier(path: Path) -> None:
    """Move what an earlier run wrote aside: it was paid for."""
    places = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(1))
    aside = next(place for place in places if not place.exists())
    path.rename(aside)
    click.echo(f"kept the {path.stem} of an earlier run as {aside}", err=True)


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


def say(*sentences: str, style: str | None = None) -> None:
    """Print sentences, a line each, without what would steer a terminal."""
    for sentence in sentences:
        open_console().print(clean_text(sentence), style=style)


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
    size = f"{count(len(result.graph.edges), 'edge')} among {count(len(result.graph.nodes), 'column')}"
    say(*result.summary)
    if result.graph.edges:
        open_console().print(_edge_table(result.graph.edges, size))
    elif not result.summary:
        say(f"{size}: nothing stood out from noise and chance")
    for miss in result.near_misses[:SHOWN_MISSES]:
        say(
            f"{'doubtful' if miss.found else 'only in redraws'}: {miss.source} — {miss.target}, edge confidence "
            f"{_percent(miss.confidence)}"
            f"{'' if miss.probability is None else f', probability {_percent(miss.probability)}'}"
            f"{'' if miss.explained_by is None else f'; {miss.explained_by} alone could explain it'}"
        )
    if hidden := result.near_misses[SHOWN_MISSES:]:
        say(f"and {len(hidden)} more in the report, {sum(miss.found for miss in hidden) or 'none'} doubtful")
    print_findings(result.findings, result.receipt)


def print_findings(findings: Iterable[str], receipt: Receipt) -> None:
    """Print what a reader should know, and the receipt."""
    say(*findings, "")
    print_receipt(receipt)


def print_receipt(receipt: Receipt) -> None:
    """Print the receipt in sentences, warnings in red."""
    for sentence in receipt.words():
        say(sentence, style="bold red" if sentence.startswith("Warning") else None)


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
        shares = tuple(map(_percent, (edge.forward, edge.backward, edge.line)))
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
