"""`dagveil plan --explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.table import Table

from dagveil.cli.options import ledger_option
from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import open_console, print_written, show_progress
from dagveil.data.schema import Schema
from dagveil.forecast.explore import EPSILONS, MODELS, SECONDS, WANTED_F1, Exploration, check_ending, explore
from dagveil.forecast.synthetic import EDGES_PER_COLUMN, STRENGTH
from dagveil.report.exploration import tabulate
from dagveil.report.formatting import write_epsilon, write_number
from dagveil.text import clean_text

_OPTIONS = (
    click.option(
        "--explore",
        "exploring",
        is_flag=True,
        help="Show what accuracy each epsilon would buy, on synthetic tables of this schema, and recommend one.",
    ),
    click.option(
        "--epsilons", default=",".join(EPSILONS), metavar="LIST", show_default=True, help="Budgets to explore."
    ),
    click.option("--methods", metavar="LIST", help="Methods to explore.  [default: all that fit and are not slow]"),
    click.option(
        "--wanted-f1", type=float, default=WANTED_F1, metavar="SHARE", show_default=True, help="Accuracy to reach."
    ),
    click.option(
        "--degree",
        type=float,
        metavar="NUMBER",
        help=f"Edges per column of synthetic graphs.  [default: {EDGES_PER_COLUMN:g}, or half of all pairs]",
    ),
    click.option(
        "--strength",
        type=float,
        default=STRENGTH,
        metavar="NUMBER",
        show_default=True,
        help="Mean strength of synthetic edges, about a correlation.",
    ),
    click.option(
        "--models", type=int, default=MODELS, metavar="INTEGER", show_default=True, help="Synthetic tables to draw."
    ),
    click.option("--rows", type=int, metavar="INTEGER", help="Rows to expect.  [default: the schema's nominal rows]"),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        metavar="INTEGER",
        show_default=True,
        help="Random seed for the synthetic tables.",
    ),
    click.option(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="NUMBER",
        show_default=True,
        help="Processor time that the exploration may take by the forecast.",
    ),
    click.option(
        "--workers", type=click.IntRange(1), default=1, metavar="INTEGER", show_default=True, help="Processes."
    ),
    ledger_option,
)
_NAMES = (
    "ledger",
    "epsilons",
    "methods",
    "wanted_f1",
    "degree",
    "strength",
    "models",
    "rows",
    "seed",
    "seconds",
    "workers",
)
_OTHERS = ("epsilon", "method", "options", "sites", "tables", "redraws", "noise", "engine")
"""Options of a plan that fixes questions."""


def exploring_options(command: Any) -> Any:
    """Add the options of an exploration."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_options(context: click.Context, exploring: bool) -> None:
    """Refuse options that have no meaning beside `--explore`, or without it, rather than ignore them."""
    names, why = (
        (_OTHERS, "an exploration tries several budgets and methods; give --epsilons and --methods, and leave out")
        if exploring
        else (_NAMES, "these belong to --explore; add it, or leave out")
    )
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{why} {', '.join(given)}", context)


def run_exploration(schema: Schema, delta: str, output: str | None, chosen: dict[str, Any]) -> None:
    """Explore, print what was found, and write it.

    Parameters
    ----------
    schema
        Of the table.
    delta
        Of all budgets.
    output
        Where curves go: an SVG, HTML or JSON file.
    chosen
        Options of the exploration.
    """
    if output:
        check_ending(output)
        check_writable(Path(output))
    names = chosen.pop("methods")
    epsilons = read_list(chosen.pop("epsilons"))
    with show_progress() as progress:
        found = explore(
            schema,
            epsilons,
            delta,
            methods=None if names is None else read_list(names),
            progress=progress,
            **chosen,
        )
    if output:
        write_output(Path(output), found.save)
    print_exploration(found)
    if output:
        advice = found.recommendation
        # an epsilon that does not even reach what was wanted is no advice to follow blindly
        step, epsilon = (
            ("", write_epsilon(advice.epsilon)) if advice.reached else ("choose an E you can promise, ", "E")
        )
        print_written(
            [Path(output)],
            f"Next: {step}`dagveil discover DATA --schema SCHEMA.toml --epsilon {epsilon} --method {advice.method}`.",
        )


def read_list(text: str) -> list[str]:
    """Read a list that is written with commas.

    Examples
    --------
    >>> read_list("0.1, 1,")
    ['0.1', '1']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def print_exploration(found: Exploration) -> None:
    """Print the curves as a table, and what they say."""
    console = open_console()
    points = found.curves[0].points
    title = f"{found.dataset}: expected skeleton F1 by epsilon, with 95 % intervals"
    table = Table(title=clean_text(title), title_justify="left")
    table.add_column("method")
    for point in points:
        table.add_column(write_epsilon(point.epsilon), justify="right")
    for name, cells in tabulate(found.curves):
        table.add_row(clean_text(name), *cells)
    table.add_section()
    table.add_row(f"weakest {points[0].weakest.scale} seen", *(write_number(point.weakest.typical) for point in points))
    console.print(table)
    for sentence in (*found.recommendation.words, *found.notes, *_tell_failures(found)):
        console.print(clean_text(sentence))


def _tell_failures(found: Exploration) -> list[str]:
    return [
        f"{curve.method} at epsilon {write_epsilon(point.epsilon)}: {point.failure}"
        for curve in found.curves
        for point in curve.points
        if point.failure is not None
    ]
