"""`dagveil report`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.output import check_writable
from dagveil.methods.result import load_result
from dagveil.report.html import write_report, write_svg


@click.command(short_help="Draw the report and the graph of a result again.")
@click.argument("result", metavar="RESULT.json")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Folder for report.html and graph.svg, or another name ending in .html.  [default: beside the result]",
)
def report(result: str, output: str | None) -> None:
    """Draw report.html and graph.svg again from RESULT.json, at no cost. Existing ones are replaced."""
    loaded = load_result(result)
    place = Path(output) if output else Path(result).parent
    page = place if place.suffix == ".html" else place / "report.html"
    drawing = page.with_name("graph.svg")
    check_writable(page, drawing)
    write_report(loaded, page)
    write_svg(loaded, drawing)
    click.echo(f"wrote {page} and {drawing}")
