"""One site's `dagveil measure --plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dagveil.cli.account import tell_account
from dagveil.cli.options import find_rows
from dagveil.cli.output import check_writable, tell_recovery
from dagveil.cli.progress import show_progress
from dagveil.cli.stopping import open_watched_ledger
from dagveil.errors import InvalidBudgetError
from dagveil.evidence.bundle import Evidence
from dagveil.plans.plan_file import PlannedSite, load_plan
from dagveil.plans.site_run import measure_planned, site_schema
from dagveil.privacy.budget import Budget
from dagveil.privacy.noise.kind import NoiseKind

_FIXED = ("method", "options", "accept_draft")
"""What the plan decides, so that no option may."""


def measure_by_plan(
    context: click.Context,
    file: str,
    output: Path,
    recovery: Path,
    plan_path: str,
    site: str | None,
    dataset: str | None,
    run: dict[str, Any],
) -> tuple[Evidence, Callable[[], None]]:
    """Refuse whatever is not the plan's, then release what it asks for; return also what tells the account.

    Parameters
    ----------
    context
        Of the command, to tell which options were given.
    file
        The site's table.
    output
        Where the evidence will go.
    recovery
        What keeps the answers until then.
    plan_path, site, dataset
        The plan, the name of the site in it, and that of its data set in the ledger.
    run
        Options of a run on rows.
    """
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in _FIXED and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"the plan decides that: leave out {', '.join(given)}", context)
    plan = load_plan(plan_path)
    chosen = plan.site_named(site)
    _check_budget(context, chosen, run["epsilon"], run["delta"])
    schema = site_schema(plan, chosen.nominal_rows, run["schema_path"], dataset)
    reads = (file, plan_path, run["schema_path"])
    check_writable(output, recovery, reads=reads, ledger=run["ledger"])
    tell_recovery(recovery, goes_on=True)
    books = open_watched_ledger(run["ledger"])
    with show_progress() as progress:
        evidence = measure_planned(
            find_rows(file, run["engine"], run["memory_limit"], run["table"]),
            plan,
            chosen.name,
            schema=schema,
            ledger=books,
            noise=NoiseKind(run["noise"]),
            seed=run["seed"],
            accept_no_guarantee=run["accept_no_guarantee"],
            recovery=recovery,
            progress=progress,
        )
    return evidence, lambda: tell_account(books, run["ledger"], schema.dataset)


def _check_budget(context: click.Context, site: PlannedSite, epsilon: str | None, delta: str) -> None:
    """Refuse a budget that is not the plan's; the plan's own may be repeated."""
    told = context.get_parameter_source("delta") is ParameterSource.COMMANDLINE
    own = Budget.of(site.epsilon if epsilon is None else epsilon, delta if told else site.delta)
    if own != site.budget:
        raise InvalidBudgetError(
            f"the plan gives site {site.name!r} {site.budget.words}, and {own.words} was asked for; leave --epsilon "
            "and --delta out, or agree on another plan"
        )
