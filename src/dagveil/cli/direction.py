"""`dagveil direction`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dagveil.cli.account import tell_account
from dagveil.cli.options import find_rows, require_schema, run_options
from dagveil.cli.output import check_writable, name_recovery, tell_recovery, write_paid
from dagveil.cli.progress import show_progress
from dagveil.cli.stopping import open_watched_ledger, stoppable
from dagveil.cli.terminal import open_console, print_receipt, print_written
from dagveil.methods.pcd import RegressionRule
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.runs.direction import DirectionSettings, Score, find_direction
from dagveil.runs.run import check_reviewed
from dagveil.text import clean_text


@click.command(short_help="Find which of two numeric columns is the cause.")
@click.argument("file")
@click.option("--columns", metavar="X,Y", required=True, help="Two numeric columns, with a comma between them.")
@run_options
@click.option(
    "--score",
    type=click.Choice([score.value for score in Score]),
    default=Score.HSIC.value,
    show_default=True,
    help="How the dependence of a residual on the other column is scored.",
)
@click.option(
    "--regression",
    type=click.Choice([rule.value for rule in RegressionRule]),
    default=RegressionRule.RELEASED.value,
    show_default=True,
    help="Polynomials from a noisy table that is released first, or kernel ridge regression on the rows.",
)
@click.option(
    "-o", "--output", metavar="FILE", default="direction.json", show_default=True, help="Where the answer goes."
)
@stoppable
def direction(file: str, columns: str, score: str, regression: str, output: str, **run: Any) -> None:
    """Find which of two numeric columns of FILE, a table (CSV, TSV, Parquet, Feather, Arrow), is the cause.

    The additive noise model is fitted both ways; the way whose residual looks more independent wins. This spends the
    budget.
    """
    x, y = _two_names(columns)
    path = Path(output)
    settings = DirectionSettings(score=Score(score), regression=RegressionRule(regression))
    if run["epsilon"] is None:
        raise click.UsageError("a run on rows needs --epsilon, for example --epsilon 1")
    budget = Budget.of(run["epsilon"], run["delta"])
    schema = require_schema(run["schema_path"])
    check_reviewed(schema, accept_draft=run["accept_draft"])
    recovery = name_recovery(path)
    check_writable(path, recovery, reads=(file, run["schema_path"]), ledger=run["ledger"])
    tell_recovery(recovery, goes_on=True)
    books = open_watched_ledger(run["ledger"])
    with show_progress() as progress:
        found = find_direction(
            find_rows(file, run["engine"], run["memory_limit"], run["table"]),
            schema,
            x,
            y,
            budget.epsilon,
            budget.delta,
            settings=settings,
            ledger=books,
            noise=NoiseKind(run["noise"]),
            seed=run["seed"],
            accept_draft=run["accept_draft"],
            accept_no_guarantee=run["accept_no_guarantee"],
            recovery=recovery,
            progress=progress,
        )
    write_paid(path, found.save, recovery)
    tell_account(books, run["ledger"], schema.dataset)
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
    """Split the names.

    Examples
    --------
    >>> _two_names("age, dose")
    ('age', 'dose')
    """
    names = [name.strip() for name in columns.split(",")]
    if len(names) != 2 or not all(names):
        raise click.UsageError(f"--columns takes two names with a comma between them, such as x,y; got {columns!r}")
    return names[0], names[1]
