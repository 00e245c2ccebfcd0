"""`dagveil direction`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dagveil.cli.failure import stoppable
from dagveil.cli.options import choice_option, run_options
from dagveil.cli.order import read_order
from dagveil.cli.output import name_recovery, write_paid
from dagveil.cli.terminal import open_console, print_receipt, print_written, show_progress
from dagveil.methods.pcd import RegressionRule
from dagveil.runs.direction import DirectionSettings, Score, find_direction
from dagveil.text import clean_text


@click.command(short_help="Find which of two numeric columns is the cause.")
@click.argument("file")
@click.option("--columns", metavar="X,Y", required=True, help="Two numeric columns, with a comma between them.")
@run_options
@choice_option("--score", Score.HSIC, "How the dependence of a residual on the other column is scored.")
@choice_option(
    "--regression",
    RegressionRule.RELEASED,
    "Polynomials from a noisy table that is released first, or kernel ridge regression on the rows.",
)
@click.option("-o", "--output", metavar="FILE", default="direction.json", help="Where the answer goes.")
@stoppable
def direction(file: str, columns: str, score: str, regression: str, output: str, **run: Any) -> None:
    """Find which of two numeric columns of FILE, a table (CSV, TSV, Parquet, Feather, Arrow), is the cause.

    The additive noise model is fitted both ways; the way whose residual looks more independent wins. This spends the
    budget.
    """
    x, y = _two_names(columns)
    path = Path(output)
    settings = DirectionSettings(score=Score(score), regression=RegressionRule(regression))
    recovery = name_recovery(path)
    order = read_order(file, (path,), recovery, run)
    with show_progress() as progress:
        found = find_direction(
            *(order.rows, order.schema, x, y, order.budget.epsilon, order.budget.delta),
            settings=settings,
            progress=progress,
            **order.options,
        )
    write_paid(path, found.save, recovery)
    order.print_account()
    console = open_console()
    if found.doubt is not None:
        console.print(clean_text(f"No direction: {found.doubt}."))
        console.print("Background knowledge, such as which was measured first, may settle it: `tiers` in the schema.")
    else:
        console.print(clean_text(f"{found.cause} → {found.effect}, confidence {found.confidence:.0%}"))
    if found.difference is not None and found.noise_scale is not None:
        console.print(f"difference of scores {found.difference:.4g}, scale of its noise {found.noise_scale:.4g}")
    console.print(found.meaning)
    console.print()
    print_receipt(found.receipt)
    print_written([path], "Next: `dagveil discover` finds the graph of all columns.")


def _two_names(columns: str) -> tuple[str, str]:
    """Split the names."""
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2 or not all(names):
        raise click.UsageError(f"--columns takes two names with a comma between them, such as x,y; got {columns!r}")
    return names[0], names[1]
