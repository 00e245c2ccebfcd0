"""A run on rows as the command line orders it: checked, and with the options that every run takes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dagveil.cli.failure import open_watched_ledger
from dagveil.cli.options import name_ledger, require_schema
from dagveil.cli.output import check_writable, print_recovery
from dagveil.data.engine import DatabaseTable, Rows, choose_engine
from dagveil.data.schema import Schema
from dagveil.errors import LedgerError
from dagveil.privacy.budget import Budget, round_up
from dagveil.privacy.ledger.account import Account, describe_left
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.run import check_reviewed
from dagveil.text import clean_text


def describe(account: Account) -> str:
    """Say what is spent, reserved and left."""
    words = [account.words]
    if account.reserved_epsilon:
        words.append(
            f"reserved by open runs epsilon {round_up(account.reserved_epsilon, 4)}, "
            f"delta {round_up(account.reserved_delta, 4)}"
        )
    if account.lifetime is None:
        words.append(f"`dagveil budget set {shlex.quote(account.dataset)} --epsilon NUMBER` sets one")
    else:
        words.append(describe_left(account.lifetime, account.spending))
    # analysts name data sets, and whoever keeps the ledger reads this on a terminal
    return clean_text("; ".join(words))


def describe_shares(account: Account) -> str:
    """Say what each analyst has spent and has left, a line each; nothing if one person spends without a limit."""
    if len(account.shares) < 2 and all(share.limit is None for share in account.shares):
        return ""
    return "".join(f"  {clean_text(share.words)}\n" for share in account.shares)


@dataclass(frozen=True, slots=True)
class Order:
    """The options of a run on rows, checked."""

    rows: Rows
    schema: Schema
    budget: Budget
    books: Ledger
    place: str
    options: dict[str, Any]  # what every run takes: `RunOptions`

    def print_account(self) -> None:
        """Say what the data set has spent; a ledger that cannot be read now is no failure of a run."""
        try:
            told = describe(self.books.account(self.schema.dataset))
        except LedgerError:
            told = "the account cannot be read just now; `dagveil budget show` tells it later"
        click.echo(f"ledger {name_ledger(self.place)}: {told}", err=True)


def read_order(
    file: str,
    outputs: tuple[Path, ...],
    recovery: Path,
    run: dict[str, Any],
    *,
    reads: tuple[str | None, ...] = (),
    schema: Schema | None = None,
    budget: Budget | None = None,
) -> Order:
    """Refuse what can be refused before the ledger and the rows are opened.

    The recovery file keeps the answers until the outputs are written. A schema or a budget that is given stands in
    place of the one that the options name.
    """
    run = dict(run)
    path, epsilon, delta, place = (run.pop(name) for name in ("schema_path", "epsilon", "delta", "ledger"))
    if budget is None:
        if epsilon is None:
            raise click.UsageError("a run on rows needs --epsilon, for example --epsilon 1")
        budget = Budget.of(epsilon, delta)
    if schema is None:
        schema = require_schema(path)
        check_reviewed(schema, accept_draft=run["accept_draft"])
    check_writable(*outputs, recovery, reads=(file, path, *reads), ledger=place)
    print_recovery(recovery, goes_on=True)
    table = run.pop("table")
    source = file if table is None else DatabaseTable(file, table)
    rows = choose_engine(source, run.pop("engine"), run.pop("memory_limit"))  # nothing is read yet
    books = open_watched_ledger(place)
    options = {**run, "ledger": books, "recovery": recovery}
    return Order(rows, schema, budget, books, place, options)
