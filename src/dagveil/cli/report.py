"""`dagveil report`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.audit.certificate import load_certificate
from dagveil.cli.output import check_writable, write_output
from dagveil.effects.answer import load_effect
from dagveil.report.card import build_card, encode_card
from dagveil.report.html import render_report, render_svg
from dagveil.report.model import build_model
from dagveil.runs.result import load_result


@click.command(short_help="Draw the report and the graph of a result again.")
@click.argument("result", metavar="RESULT.json")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Folder for report.html and graph.svg, or another name ending in .html.  [default: beside the result]",
)
@click.option(
    "--card", metavar="FILE", help="Also write the card: what a public registry of deployments asks for, as JSON."
)
@click.option(
    "--certificate",
    metavar="FILE",
    help="A certificate of `dagveil audit`: the report shows what was tried against the method.",
)
@click.option("--effect", "effects", multiple=True, metavar="FILE", help="An effect.json of `dagveil effect` to show.")
def report(
    result: str, output: str | None, card: str | None, certificate: str | None, effects: tuple[str, ...]
) -> None:
    """Draw report.html and graph.svg again from RESULT.json, at no cost. Existing ones are replaced."""
    loaded = load_result(result)
    audited = None if certificate is None else load_certificate(certificate)
    answers = [load_effect(path) for path in effects]
    place = Path(output) if output else Path(result).parent
    page = place if place.suffix == ".html" else place / "report.html"
    drawing = page.with_name("graph.svg")
    written = [page, drawing, *([Path(card)] if card else ())]
    read = [Path(result), *([Path(certificate)] if certificate else ()), *map(Path, effects)]
    if len({path.absolute() for path in written}) < len(written):
        raise click.UsageError("the report, the drawing and the card must be different files")
    check_writable(*written, reads=read)
    model = build_model(loaded, audited, answers)
    write_output(page, render_report(model).encode())
    write_output(drawing, f"{render_svg(model)}\n".encode())
    if card:
        write_output(Path(card), f"{encode_card(build_card(model))}\n".encode())
    click.echo(f"wrote {' and '.join(map(str, written))}")
