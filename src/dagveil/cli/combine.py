"""Runs by an agreed plan: `dagveil measure --plan` at a site, and `dagveil combine`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dagveil.cli.options import list_given, refuse_given
from dagveil.cli.order import read_order
from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import print_findings, print_written, show_progress
from dagveil.errors import InvalidBudgetError
from dagveil.evidence.bundle import Evidence
from dagveil.plans.combine import combine_evidence
from dagveil.plans.plan_file import PlannedSite, load_plan
from dagveil.plans.site_run import measure_planned, site_schema
from dagveil.privacy.budget import Budget


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
    """Refuse whatever is not the plan's, then release what it asks for; return also what tells the account."""
    refuse_given(context, ("method", "options", "accept_draft"), "the plan decides that: leave out {}")
    plan = load_plan(plan_path)
    chosen = plan.site_named(site)
    _check_budget(context, chosen, run["epsilon"], run["delta"])
    schema = site_schema(plan, chosen.nominal_rows, run["schema_path"], dataset)
    order = read_order(file, (output,), recovery, run, reads=(plan_path,), schema=schema, budget=chosen.budget)
    with show_progress() as progress:
        evidence = measure_planned(order.rows, plan, chosen.name, schema=schema, progress=progress, **order.options)
    return evidence, order.print_account


def _check_budget(context: click.Context, site: PlannedSite, epsilon: str | None, delta: str) -> None:
    """Refuse a budget that is not the plan's; the plan's own may be repeated."""
    given = list_given(context, ("delta",))
    own = Budget.of(site.epsilon if epsilon is None else epsilon, delta if given else site.delta)
    if own != site.budget:
        raise InvalidBudgetError(
            f"the plan gives site {site.name!r} {site.budget.words}, and {own.words} was asked for; leave --epsilon "
            "and --delta out, or agree on another plan"
        )


@click.command(short_help="Add the evidence of several custodians who followed one plan.")
@click.argument("files", nargs=-1, required=True, metavar="EVIDENCE.json...")
@click.option("-o", "--output", metavar="FILE", default="combined.json", help="Output file for the combined evidence.")
@click.option(
    "--shared-columns",
    is_flag=True,
    help="Allow different plans: add what they have in common, and name the columns that are left out.",
)
@click.option(
    "--site-column",
    metavar="NAME",
    help="Add a column of this name for the site: its children in the graph are what differs between sites.",
)
def combine(files: tuple[str, ...], output: str, shared_columns: bool, site_column: str | None) -> None:
    """Add evidence that several sites released by the same plan, at no cost and without any rows.

    Counts, moments and the variances of their noise add up. Every site's receipt stands for itself and is kept. Files
    of other plans, and a second file of the same site, are refused. Where sites differ beyond noise and chance, the
    columns are named.
    """
    path = Path(output)
    check_writable(path, reads=files)
    combined = combine_evidence(files, shared_columns=shared_columns, site_column=site_column)
    write_output(path, combined.save)
    print_findings(combined.findings, combined.receipt)
    print_written([path], f"Next: `dagveil discover {shlex.quote(str(path))}` finds one graph from all of it.")
