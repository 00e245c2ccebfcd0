"""`dagveil doctor`."""

from __future__ import annotations

import sys

import click
import msgspec
from rich.table import Table

from dagveil.cli.options import ledger_option, option
from dagveil.cli.output import open_console
from dagveil.runs.installation import check_installation

SIGNS = {"ok": "ok", "missing": "–", "failed": "FAILED"}


@click.command(short_help="Tell what is installed, and what answers.")
@ledger_option
@option("as_json --json", "Print the findings as JSON.", is_flag=True)
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
