"""`dagveil compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from dagveil.cli.terminal import count, echo_document, open_console
from dagveil.errors import DataError
from dagveil.evaluation.comparison import Comparison, Difference, Graph, Reading, compare_graphs
from dagveil.graphs.exchange.formats import load_graph
from dagveil.runs.result import load_result, result_from_json
from dagveil.text import clean_text


@click.command(short_help="Compare a result with a known graph or with another result.")
@click.argument("result", metavar="RESULT.json", type=click.Path())
@click.argument("known", metavar="KNOWN", type=click.Path())
@click.option(
    "--drawn",
    is_flag=True,
    help="Take the arrows of a known DAG as they are drawn. Otherwise those that data alone cannot tell do not count.",
)
@click.option("--json", "as_json", is_flag=True, help="Print numbers and edges as JSON.")
def compare(result: str, known: str, drawn: bool, as_json: bool) -> None:
    """Say how the graph of RESULT.json (here) differs from another one (there), at no cost.

    KNOWN is another result, or a graph as .dot, .graphml, .gml, .dagitty, .txt (dagitty, Tetrad) or .json (networkx).
    Both graphs must have the same columns. In the scores KNOWN counts as the truth.
    """
    reading = Reading.DRAWN if drawn else Reading.CLASS
    here = load_result(result).graph.structure
    found = compare_graphs(here, _read_known(known), reading)
    if as_json:
        echo_document(msgspec.json.format(msgspec.json.encode(_summarise(found)), indent=2).decode() + "\n")
    else:
        _print(found, known)


def _read_known(path: str) -> Graph:
    """Read a result, or a graph; a JSON file may be either."""
    file = Path(path)
    if file.suffix.lower() == ".json":
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}; check the path") from error
        if b'"dagveil-result"' in content:
            return result_from_json(content).graph.structure
    return load_graph(file)


def _summarise(found: Comparison) -> dict[str, object]:
    rates = {f"skeleton_{name}": getattr(found.skeleton, name) for name in ("f1", "precision", "recall")}
    scores = ("shd", "marked_f1", "arrow_precision", "arrow_recall")
    edges = ("same", "only_here", "only_there", "turned", "marked")
    return rates | {name: getattr(found, name) for name in (*scores, *edges)}


def _print(found: Comparison, known: str) -> None:
    console = open_console()
    rates = found.skeleton
    console.print(clean_text(f"taking {known} (there) as the truth:"))
    console.print(
        f"skeleton: F1 {rates.f1:.3f}, precision {rates.precision:.3f}, recall {rates.recall:.3f}; "
        f"structural Hamming distance {found.shd}"
    )
    console.print(
        f"arrows: precision {found.arrow_precision:.3f}, recall {found.arrow_recall:.3f}; "
        f"F1 of edges with their marks {found.marked_f1:.3f}"
    )
    console.print(f"{count(found.same, 'edge')} the same in both")
    sections: dict[str, Sequence[Difference]] = {
        "only here": found.only_here,
        "only there": found.only_there,
        "turned, as they are here": found.turned,
    }
    for title, differences in sections.items():
        if differences:
            console.print(f"{title}: {count(len(differences), 'edge')}")
        for difference in differences:
            console.print(f"  {_write(difference, difference.here or difference.there)}")
    if found.marked:
        plain = all({difference.here, difference.there} <= {"→", "←", "—"} for difference in found.marked)
        title = "with a direction in one only" if plain else "with other marks"
        console.print(f"{title}: {count(len(found.marked), 'edge')}")
        for difference in found.marked:
            here, there = _write(difference, difference.here), _write(difference, difference.there)
            console.print(f"  {here} here, {there} there")


def _write(difference: Difference, sign: str) -> str:
    first, second = clean_text(difference.first), clean_text(difference.second)
    return f"{second} {sign[1:]}→ {first}" if sign.startswith("←") else f"{first} {sign} {second}"
