"""`dagveil budget`: lifetime budgets, shares of a team, and the history behind them."""

from itertools import groupby

import click
from rich.table import Table

from dagveil.cli.failure import PlainGroup
from dagveil.cli.options import (
    choice_option,
    describe,
    describe_shares,
    ledger_option,
    name_ledger,
    open_ledger,
    option,
)
from dagveil.cli.output import count, open_console
from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.ledger.account import Composition, tidy_name
from dagveil.privacy.ledger.accounts import Head
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.text import clean_text


def _tidy(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Write the name as the ledger does, which does not tell capitals from small letters."""
    return None if name is None else tidy_name(name)


@click.group(cls=PlainGroup)
def budget() -> None:
    """Set and show the lifetime budget of a data set.

    DATASET is the name in the schema, under [dataset]. ANALYST is a role of the PostgreSQL database that holds the
    ledger; an SQLite file is one person's.
    """


@budget.command("set")
@click.argument("dataset", callback=_tidy)
@option("--epsilon NUMBER", "What all runs together may spend, for example 3.", required=True)
@option(
    "--delta NUMBER", "The same for delta; the default has room for runs with their default of 1e-6.", default="1e-5"
)
@choice_option(
    "--composition",
    Composition,
    "How runs count: their epsilons and deltas add up (sum), or they also compose, so that many small runs fit "
    "(concentrated). It cannot be changed after the first run.  [default: as before, or else concentrated]",
)
@ledger_option
def set_budget(dataset: str, epsilon: str, delta: str, composition: str | None, ledger: str) -> None:
    """Set the budget that all runs on DATASET together may spend.

    It can be changed later, but never below what is already spent. In a team only the ledger's owner may do it.
    """
    lifetime = Budget.of(epsilon, delta)
    books = open_ledger(ledger)
    books.set_budget(dataset, lifetime, None if composition is None else Composition(composition))
    click.echo(describe(books.account(dataset)))


@budget.command(short_help="Set what one analyst may spend on a data set.")
@click.argument("dataset", callback=_tidy)
@click.argument("analyst")
@option("--epsilon NUMBER", "What this analyst's runs together may spend.")
@option("--delta NUMBER", "The same for delta.", default="1e-5")
@option("lift --none", "Lift the limit: only the data set's budget binds.")
@ledger_option
def limit(dataset: str, analyst: str, epsilon: str | None, delta: str, lift: bool, ledger: str) -> None:
    """Set what ANALYST may spend on DATASET, within the data set's own budget.

    It can be changed later, but never below what they have already spent. Only the ledger's owner may do it.
    """
    if (epsilon is None) != lift:
        raise click.UsageError("give --epsilon NUMBER to set a limit, or --none to lift it")
    share = None if epsilon is None else Budget.of(epsilon, delta)
    books = open_ledger(ledger)
    books.set_limit(dataset, analyst, share)
    account = books.account(dataset)
    click.echo(describe(account))
    click.echo(describe_shares(account), nl=False)


@budget.command(short_help="Let a database role spend, and nothing else.")
@click.argument("analyst")
@ledger_option
def grant(analyst: str, ledger: str) -> None:
    """Let the database role ANALYST spend, and nothing else: not raise a budget, not change the history."""
    books = open_ledger(ledger)
    books.grant(analyst)
    click.echo(f"{analyst} may spend; `dagveil budget limit DATASET {analyst} --epsilon NUMBER` says how much")


@budget.command()
@click.argument("analyst")
@ledger_option
def revoke(analyst: str, ledger: str) -> None:
    """Take back what `grant` gave. A run in progress stops before it draws any more noise."""
    open_ledger(ledger).revoke(analyst)
    click.echo(f"{analyst} may not spend any more")


@budget.command()
@click.argument("dataset", required=False, callback=_tidy)
@ledger_option
def show(dataset: str | None, ledger: str) -> None:
    """Show what is spent, reserved and left, of DATASET or of all."""
    books = open_ledger(ledger)
    for name in _known_datasets(books, dataset, ledger):
        account = books.account(name)
        click.echo(describe(account))
        click.echo(describe_shares(account), nl=False)


@budget.command()
@click.argument("dataset", required=False, callback=_tidy)
@ledger_option
def history(dataset: str | None, ledger: str) -> None:
    """List every run with its charges, of DATASET or of all.

    A run counts with its whole epsilon and delta as soon as it has a charge. A released run has none.
    """
    books = open_ledger(ledger)
    _known_datasets(books, dataset, ledger)
    runs = books.history(dataset)
    if not runs:
        click.echo("no runs yet")
        return
    headings = ("run", "data set", "started", "analyst", "method", "state", "epsilon", "delta", "for", "charges")
    table = Table(*headings)
    for run in runs:
        charges = ", ".join(
            label if (times := len(list(same))) == 1 else f"{label} ×{times}"
            for label, same in groupby(event.label for event in run.events)
        )
        if run.unreadable:
            charges += f", {run.unreadable} that cannot be read"
        state = f"{run.state.value}, unbounded" if run.unbounded else run.state.value
        spent = (round_up(run.budget.epsilon, 4), round_up(run.budget.delta, 4))
        cells = (run.dataset, run.started, run.analyst or "unknown", run.method, state, *spent, run.terms.words)
        table.add_row(str(run.id), *map(clean_text, cells), clean_text(charges or "none"))
    open_console().print(table)


@budget.command(short_help="Look for changes to the history.")
@option("kept --head HEAD", "A head that you noted earlier: shows whether anything up to it was changed or cut off.")
@ledger_option
@click.pass_context
def verify(context: click.Context, kept: str | None, ledger: str) -> None:
    """Look for entries of the history that were changed, taken out or put in.

    Each entry is bound to the one before it by a digest. The head that is printed stands for the whole history: note it
    where those who can write the ledger cannot. The exit code is 1 if something does not fit.
    """
    noted = None if kept is None else Head.read(kept)
    verdict = open_ledger(ledger).verify(noted)
    if verdict.problem is None:
        click.echo(f"{count(verdict.entries, 'entry', 'entries')} fit; head {verdict.head}")
        return
    click.echo(f"the ledger was tampered with or damaged: {clean_text(verdict.problem)}", err=True)
    click.echo(f"{count(verdict.entries, 'entry', 'entries')} before that fit", err=True)
    context.exit(1)


@budget.command()
@click.argument("dataset", callback=_tidy)
@ledger_option
def release(dataset: str, ledger: str) -> None:
    """Free what crashed runs on DATASET reserved and never used.

    Runs with a charge stay charged. A living run that has no charge yet will stop before it draws noise. In a team,
    analysts free their own runs and the owner all.
    """
    books = open_ledger(ledger)
    _known_datasets(books, dataset, ledger)
    click.echo(f"released {count(books.abandon_untouched(dataset), 'run')}")
    click.echo(describe(books.account(dataset)))


def _known_datasets(books: Ledger, dataset: str | None, ledger: str) -> tuple[str, ...]:
    """Give the data sets that are asked for; a name that the ledger does not know is probably misspelt."""
    known = books.datasets()
    if dataset is None:
        if not known:
            click.echo(f"the ledger {name_ledger(ledger)} knows no data set yet", err=True)
        return known
    if dataset not in known:
        raise LedgerError(
            f"the ledger {name_ledger(ledger)} knows no data set {dataset!r}; it knows: {', '.join(known) or 'none'}. "
            "Check the name and --ledger."
        )
    return (dataset,)
