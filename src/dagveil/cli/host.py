"""`dagveil doctor` and `dagveil studio`: what is on this machine, and a web application on it."""

import sys

import click
import msgspec
from rich.table import Table

from dagveil.cli.options import ledger_option, option
from dagveil.cli.output import open_console
from dagveil.errors import DataError
from dagveil.runs.installation import check_installation

SIGNS = {"ok": "ok", "missing": "–", "failed": "FAILED"}


@click.command(short_help="Tell what is installed, and what answers.")
@ledger_option
@option("as_json --json", "Print the findings as JSON.")
def doctor(ledger: str, as_json: bool) -> None:
    """Tell what is installed, which engines and services answer, where the ledger is, and how to install the rest.

    No table is read and nothing is sent elsewhere. The exit code is 1 if something that is needed fails.
    """
    found = check_installation(ledger)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        console = open_console()
        for title, findings in found.sections.items():
            table = Table(title=title, title_justify="left", show_header=False, box=None)
            for finding in findings:
                table.add_row(SIGNS[finding.state], finding.subject, finding.said)
            console.print(table)
            console.print()
        console.print(
            "All that is needed is there." if found.healthy else "Something that is needed fails: see FAILED above."
        )
    sys.exit(0 if found.healthy else 1)


@click.command(short_help="Open a web application on this machine: budgets, schemas, plans, runs, results.")
@click.argument("folder", default="dagveil-studio", metavar="[FOLDER]")
@option("--host", "Where to listen.", default="127.0.0.1")
@option("--port", "0 takes a free one.", type=click.IntRange(0, 65535), default=0)
@ledger_option
@option("--largest-upload MB", "Maximum upload size.", type=click.IntRange(1), default=2048)
@option("--jobs", "Runs at the same time.", type=click.IntRange(1, 64), default=2)
@option("--allow-remote", "Let other machines reach the studio; needed for any other --host.")
def studio(folder: str, host: str, port: int, ledger: str, largest_upload: int, jobs: int, allow_remote: bool) -> None:
    """Serve FOLDER as a web application, for you alone, until stopped by Ctrl-C or a signal.

    FOLDER holds tables with their schemas (visits.csv and visits.toml), and what runs find. Open the
    address that is printed: it holds the token that lets you in. Runs go on when the studio stops, and are found again
    when it starts.
    """
    from dagveil.local.collector import is_loopback
    from dagveil.studio.app import Limits, serve

    if not is_loopback(host):
        if not allow_remote:
            raise DataError(
                f"{host} can be reached from other machines, and the studio has no encryption: whoever listens on the "
                "way gets the token. Use 127.0.0.1 and a tunnel such as `ssh -L`, or say --allow-remote"
            )
        click.echo(
            f"Warning: the studio at {host} has no encryption. Whoever listens on the way can take the token, and with "
            "it spend the budget and read all results.",
            err=True,
        )

    def tell(address: str, place: str) -> None:
        click.echo(f"studio of {folder} at {address}")
        click.echo(f"ledger {place}; Ctrl-C stops the studio, and no run", err=True)

    try:
        serve(folder, ledger, host, port, tell, limits=Limits(largest_upload * 2**20, jobs))
    except KeyboardInterrupt:
        click.echo("stopped; runs that had begun go on, and are found again at the next start", err=True)
