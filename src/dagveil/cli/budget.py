"""`dagveil budget set | show | history`."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from dagveil.cli.options import ledger_option, open_ledger
from dagveil.privacy.budget import Budget, round_up


@click.group()
def budget() -> None:
    """Set and show the lifetime budget of a data set."""


@budget.command("set")
@click.argument("dataset")
@click.option("--epsilon", required=True)
@click.option("--delta", default="1e-6", show_default=True)
@ledger_option
def set_budget(dataset: str, epsilon: str, delta: str, ledger: str) -> None:
    """Set the budget that all runs on DATASET together may spend."""
    books = open_ledger(ledger)
    books.set_budget(dataset, Budget.of(epsilon, delta))
    click.echo(f"{dataset}: {books.account(dataset).words}")


@budget.command()
@click.argument("dataset", required=False)
@ledger_option
def show(dataset: str | None, ledger: str) -> None:
    """Show what is spent, reserved and left."""
    books = open_ledger(ledger)
    names = (dataset,) if dataset else books.datasets()
    if not names:
        click.echo(f"{ledger} knows no data set yet")
    for name in names:
        click.echo(f"{name}: {books.account(name).words}")


@budget.command()
@click.argument("dataset", required=False)
@ledger_option
def history(dataset: str | None, ledger: str) -> None:
    """List every run with its charges."""
    table = Table()
    for heading in ("run", "data set", "started", "method", "state", "ε", "δ", "charges"):
        table.add_column(heading)
    for run in open_ledger(ledger).history(dataset):
        charges = ", ".join(event.label for event in run.events) or "none"
        table.add_row(
            str(run.id),
            run.dataset,
            run.started,
            run.method,
            run.state.value,
            round_up(run.budget.epsilon, 4),
            round_up(run.budget.delta, 4),
            charges,
        )
    Console().print(table)
