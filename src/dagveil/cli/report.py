"""`dagveil report`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.methods.result import load_result
from dagveil.report.html import write_report, write_svg


@click.command()
@click.argument("result", metavar="RESULT.json")
@click.option("-o", "--output", help="Where the report goes.  [default: report.html beside the result]")
def report(result: str, output: str | None) -> None:
    """Draw the report and the graph of a result again."""
    loaded = load_result(result)
    path = Path(output) if output else Path(result).with_name("report.html")
    write_report(loaded, path)
    write_svg(loaded, path.with_name("graph.svg"))
    click.echo(f"wrote {path} and {path.with_name('graph.svg')}")
