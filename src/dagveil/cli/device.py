"""`dagveil local` on a device and at the collector."""

import contextlib
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from dagveil.cli.options import option
from dagveil.cli.output import check_writable, count
from dagveil.errors import DataError
from dagveil.local.collector import is_loopback, serve
from dagveil.local.device import MOST_TRIES, NOT_PRIVATE, Device, Sender
from dagveil.local.protocol import load_protocol
from dagveil.local.reports import LineFormat, RecordWriter, check_labels, guess_format, read_records, split_lines
from dagveil.local.store import LabelReader, ReportStore, export_reports
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.runs.recovery import save_whole
from dagveil.text import clean_lines, clean_text

_ENDINGS = {".csv": LineFormat.CSV, ".jsonl": LineFormat.JSON, ".ndjson": LineFormat.JSON, ".json": LineFormat.JSON}

_TOGETHER = 1000  # records of a file that are randomised together; those of a stream go one by one
_format_option = option(
    "form --format",
    "How records are written: CSV with a first line of names, or one JSON object per line.  [default: by the "
    "file's name, or by the first line]",
    type=click.Choice([form.value for form in LineFormat]),
)


@click.command(short_help="Randomise one record or a stream of them, before they leave the person.")
@click.argument("records", default="-")
@option("protocol_path --protocol FILE", "How to randomise.", required=True)
@_format_option
@option("-o --output FILE", "Where reports go.  [default: standard output]", default="-", show_default=False)
@option("--seed", "For tests only: the reports are not private.", type=click.IntRange(0), hidden=True)
def randomise(records: str, protocol_path: str, form: str | None, output: str, seed: int | None) -> None:
    """Randomise RECORDS, a file or - for standard input.

    Of a stream, each report leaves before the next record is read.
    Reports have the form of the records: labels of levels, and numbers by the labels of their bins. A value that the
    schema does not foresee goes where the schema says. One line is one record and gives one report, whatever it holds.
    The record itself is never printed.
    """
    protocol = load_protocol(protocol_path)
    device = Device(protocol, None if seed is None else noise_source(NoiseKind.SEEDED, seed))
    names = (*protocol.names, *(() if device.private else (NOT_PRIVATE,)))
    if not device.private:
        click.echo("Warning: seeded, so these reports are not private. For tests only.", err=True)
    with open_lines(records, form) as (lines, found), _open_output(output, records, protocol_path) as stream:
        check_labels(found, {column.name: column.labels for column in protocol.columns})
        # the first line of names is checked before anything is written
        given = read_records(lines, found, protocol.names)
        given = itertools.chain(list(itertools.islice(given, 1)), given)
        writer = RecordWriter(stream, found, names)
        together = 1 if records == "-" else _TOGETHER
        while block := list(itertools.islice(given, together)):
            for report in device.report(block):
                writer.write(device.label(report))


@click.command(short_help="Send randomised records to a collector.")
@click.argument("reports", default="-")
@option("url --to URL", "The collector, such as http://127.0.0.1:8765.", required=True)
@option(
    "protocol_path --protocol FILE", "Of the reports; refused if the collector has another.  [default: the collector's]"
)
@_format_option
@option("--batch-size", "Reports sent together.", type=click.IntRange(1, 10_000), default=500)
@option("--tries", "Of one batch, before giving up.", type=click.IntRange(1, 50), default=MOST_TRIES)
def send(reports: str, url: str, protocol_path: str | None, form: str | None, batch_size: int, tries: int) -> None:
    """Send REPORTS, a file or - for standard input, that `dagveil local randomise` wrote.

    A batch counts as sent when the collector has it on disk. It is sent again after a failure, and stored once.
    """
    with contextlib.closing(Sender(url, tries)) as sender:
        theirs = sender.fetch_protocol()
        if protocol_path is not None and load_protocol(protocol_path).digest() != theirs.digest():
            raise DataError("the collector has another protocol than the one given; nothing was sent")
        digest, reader = theirs.digest(), LabelReader(theirs)
        sent, waiting = 0, []
        try:
            with open_lines(reports, form) as (lines, found):
                # a blank line is a record of a person, but no report of one
                written = (line for line in lines if line.strip())
                for place, report in enumerate(read_records(written, found, theirs.names, (NOT_PRIVATE,)), start=1):
                    if report.get(NOT_PRIVATE) is not None:
                        raise DataError("these records were randomised from a seed: they are not private, so not sent")
                    waiting.append(reader.read(report, place))
                    if len(waiting) == batch_size:
                        sender.send(waiting, digest)
                        sent, waiting = sent + len(waiting), []
            if waiting:
                sender.send(waiting, digest)
                sent += len(waiting)
        except DataError as error:
            raise DataError(f"{error} ({count(sent, 'record')} before that were acknowledged)") from None
    click.echo(f"sent {count(sent, 'record')}; all were acknowledged", err=True)


@contextlib.contextmanager
def open_lines(place: str, form: str | None) -> Iterator[tuple[Iterator[str], LineFormat]]:
    """Open a file or standard input; give its lines and their format."""
    path = Path(place)
    with contextlib.ExitStack() as stack:
        if place == "-":
            stream = _as_utf8(sys.stdin)
        elif form is None and path.suffix.lower() not in _ENDINGS:
            raise DataError(f"{path.name} must end in {', '.join(_ENDINGS)}; or say --format csv or --format jsonl")
        else:
            try:
                stream = stack.enter_context(path.open(encoding="utf-8", errors="replace", newline="\n"))
            except OSError as error:
                raise DataError(f"cannot read {path}: {error.strerror}; check the path") from None
        lines = split_lines(stream)
        if form is not None:
            yield lines, LineFormat(form)
        elif place != "-":
            yield lines, _ENDINGS[path.suffix.lower()]
        else:
            guessed, lines = guess_format(lines)
            yield lines, guessed


def _as_utf8(stream: TextIO) -> TextIO:
    """Let a standard stream carry every label, whatever the terminal's encoding; a bad byte stops nothing.

    Only a line feed ends a line, on the way in and on the way out.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    return stream


class _Screen(io.StringIO):
    """A terminal, to which labels go without what would steer it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        """Print a text."""
        return self._stream.write(clean_lines(text))

    def flush(self) -> None:
        """Let it go."""
        self._stream.flush()


@contextlib.contextmanager
def _open_output(output: str, records: str, protocol: str) -> Iterator[TextIO]:
    if output == "-":
        stream = _as_utf8(sys.stdout)
        yield _Screen(stream) if stream.isatty() else stream
        return
    path = Path(output)
    check_writable(path, reads=(None if records == "-" else records, protocol))
    with save_whole(path) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


@click.command(short_help="Collect reports over HTTP, durably.")
@option("protocol_path --protocol FILE", "Of the reports.", required=True)
@option("store_path --store FILE.db", "Where reports go: an SQLite file.", required=True)
@option("--host", "Where to listen.", default="127.0.0.1")
@option("--port", "0 takes a free one.", type=click.IntRange(0, 65535), default=8765)
@option("--allow-remote", "Let other machines reach the collector; needed for any --host.")
def collect(protocol_path: str, store_path: str, host: str, port: int, allow_remote: bool) -> None:
    """Collect reports until stopped, by Ctrl-C or a signal.

    A batch is acknowledged when it is on disk, and a repeated one is not stored twice. Start again with the same store
    to go on. Only this machine is listened to unless told otherwise.
    """
    if not is_loopback(host):
        if not allow_remote:
            raise DataError(
                f"{host} can be reached from other machines. The collector has no encryption and no passwords: put a "
                "server that has both in front of it. Or say --allow-remote"
            )
        click.echo(
            f"Warning: anyone who reaches {host} can send reports, and anyone on the way can read them and their "
            "senders' addresses.",
            err=True,
        )
    protocol = load_protocol(protocol_path)
    path = Path(store_path)
    check_writable(path)
    store = ReportStore.open(path, protocol)

    def tell(address: str) -> None:
        held = count(store.totals().reports, "report")
        click.echo(
            f"collecting reports of {clean_text(protocol.schema.dataset)} at {address} into {path}, which has {held}"
        )

    try:
        serve(store, host, port, tell)
    except KeyboardInterrupt:
        click.echo(f"stopped; every batch that was acknowledged is in {path}", err=True)
    finally:
        store.close()


@click.command(short_help="Write the reports of a store to a Parquet or CSV file.")
@option("store_path --store FILE.db", "Where the collector keeps reports.", required=True)
@option("-o --output FILE", "A .parquet or .csv file.", default="reports.parquet")
def export(store_path: str, output: str) -> None:
    """Write the reports of a store as labels. The collector may be running."""
    path = Path(output)
    if path.suffix.lower() not in (".parquet", ".csv"):
        raise click.UsageError(f"the output {path.name} must end in .parquet or .csv")
    with ReportStore.open(store_path) as store:
        check_writable(path, reads=(store_path,))
        with save_whole(path) as part:
            written = export_reports(store, part)
    click.echo(f"wrote {count(written, 'report')} to {path}")
