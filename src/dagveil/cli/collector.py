"""`dagveil local collect` and `dagveil local export`: what runs beside the collector."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.output import check_writable
from dagveil.cli.terminal import count
from dagveil.errors import DataError
from dagveil.local.collected import export_reports
from dagveil.local.collector import serve
from dagveil.local.protocol import load_protocol
from dagveil.local.serving import is_loopback
from dagveil.local.store import ReportStore
from dagveil.runs.saving import save_whole
from dagveil.text import clean_text


@click.command(short_help="Collect reports over HTTP, durably.")
@click.option("--protocol", "protocol_path", metavar="FILE", required=True, help="Of the reports.")
@click.option("--store", "store_path", metavar="FILE.db", required=True, help="Where reports go: an SQLite file.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--allow-remote", is_flag=True, help="Let other machines reach the collector; needed for any --host.")
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
@click.option("--store", "store_path", metavar="FILE.db", required=True, help="Where the collector keeps reports.")
@click.option(
    "-o", "--output", metavar="FILE", default="reports.parquet", show_default=True, help="A .parquet or .csv file."
)
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
