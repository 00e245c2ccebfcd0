"""`dagveil export`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import echo_document
from dagveil.graphs.exchange.formats import EXPORTERS, Extension, Format
from dagveil.runs.result import load_result


@click.command(short_help="Write the graph of a result for another program.")
@click.argument("result", metavar="RESULT.json", type=click.Path())
@click.option(
    "--to",
    "form",
    type=click.Choice([form.value for form in Format]),
    required=True,
    help="The other program's format. dowhy takes DAGs only, and neither it nor pgmpy a PAG.",
)
@click.option(
    "--extend",
    "extension",
    flag_value=Extension.CONSISTENT.value,
    help="Write one DAG of the equivalence class. The choice is arbitrary: the data do not make it.",
)
@click.option(
    "--extend-nearest",
    "extension",
    flag_value=Extension.NEAREST.value,
    help="Like --extend, but accept the closest DAG if no exact extension exists.",
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(), help="File to write; otherwise it is printed.")
def export(result: str, form: str, extension: str | None, output: str | None) -> None:
    """Write the graph of RESULT.json for another program, at no cost.

    Edges without a direction stay so. dowhy cannot have them: without --extend such a graph is refused. For dowhy a DAG
    is written as GML, for pgmpy a Python program, for causal-learn Tetrad's text.
    """
    graph = load_result(result).graph
    chosen, rule = Format(form), Extension(extension or Extension.REFUSE.value)
    text = graph.export(chosen, rule)
    if output is None:
        echo_document(text)
        return
    path = Path(output)
    check_writable(path, reads=(result,))
    write_output(path, text.encode())
    hint = EXPORTERS[chosen].hint.replace("{path}", str(path))
    click.echo(f"wrote {path}" + (f"; read it with {hint}" if hint else ""))
    undirected = len(graph.lines)
    if rule is not Extension.REFUSE and undirected:
        click.echo(f"{undirected} of its arrows were chosen arbitrarily: other DAGs fit the data as well", err=True)
