"""A run on rows as the command line orders it: checked, and with the options that every run takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dagveil.cli.account import tell_account
from dagveil.cli.options import find_rows, require_schema
from dagveil.cli.output import check_writable, tell_recovery
from dagveil.cli.stopping import open_watched_ledger
from dagveil.data.engine import Rows
from dagveil.data.schema import Schema
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.ledger import Ledger
from dagveil.runs.run import check_reviewed


@dataclass(frozen=True, slots=True)
class Order:
    """The options of a run on rows, checked."""

    rows: Rows
    schema: Schema
    budget: Budget
    books: Ledger
    place: str
    options: dict[str, Any]
    """What every run takes: `RunOptions`."""

    def tell_account(self) -> None:
        """Say what the data set has spent."""
        tell_account(self.books, self.place, self.schema.dataset)


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

    Parameters
    ----------
    file
        The table.
    outputs, recovery
        What the run writes, and what keeps its answers until then.
    run
        The options of `run_options`.
    reads
        What it reads beside rows and schema.
    schema, budget
        Where they are not those that the options name.
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
    tell_recovery(recovery, goes_on=True)
    rows = find_rows(file, run.pop("engine"), run.pop("memory_limit"), run.pop("table"))
    books = open_watched_ledger(place)
    options = {**run, "ledger": books, "recovery": recovery}
    return Order(rows, schema, budget, books, place, options)
