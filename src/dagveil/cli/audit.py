"""`dagveil audit`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from dagveil.audit.cases import Setting
from dagveil.audit.certificate import Certificate, encode_certificate
from dagveil.audit.examination import Plan, examine_method
from dagveil.audit.findings import list_findings
from dagveil.audit.membership import FEWEST_TRIALS
from dagveil.audit.search import Effort
from dagveil.audit.store import BlockStore
from dagveil.cli.options import read_options
from dagveil.cli.output import check_writable
from dagveil.cli.progress import show_progress
from dagveil.cli.summary import open_console, print_written
from dagveil.methods.catalogue import method_named
from dagveil.methods.result import Result
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration


@click.command(short_help="Try to break a method's guarantee.")
@click.argument("method")
@click.option(
    "--quick",
    "effort",
    flag_value=Effort.QUICK.value,
    default=Effort.QUICK.value,
    help="Some thousand neighbours and some hundred runs: seconds to a minute. The default.",
)
@click.option(
    "--full",
    "effort",
    flag_value=Effort.FULL.value,
    help="A million neighbours of each statistic, a hundred thousand runs (slow methods: ten thousand): hours.",
)
@click.option(
    "--calibration",
    type=click.Choice([calibration.value for calibration in Calibration]),
    default=Calibration.SOUND.value,
    show_default=True,
    help="Paper tries the claims of the publication, on its program.",
)
@click.option("--epsilon", default="1", show_default=True, metavar="NUMBER", help="The epsilon that is claimed.")
@click.option("--delta", default="1e-6", show_default=True, metavar="NUMBER", help="The delta that is claimed.")
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the method; `dagveil methods NAME` lists them. May be given several times.",
)
@click.option("--runs", type=click.IntRange(8), metavar="INTEGER", help="Runs on each table, in place of the effort's.")
@click.option(
    "--trials",
    type=click.IntRange(FEWEST_TRIALS),
    metavar="INTEGER",
    help="Trials of membership inference, in place of the effort's.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="INTEGER", help="For other runs.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, metavar="INTEGER", help="Processes.")
@click.option(
    "--store", metavar="FILE", help="Where finished parts are kept, so that an audit that was stopped goes on."
)
@click.option("-o", "--output", metavar="FILE", help="Where the certificate goes, as JSON.")
def audit(
    method: str,
    effort: str,
    epsilon: str,
    delta: str,
    options: tuple[str, ...],
    calibration: str,
    runs: int | None,
    trials: int | None,
    seed: int,
    workers: int,
    store: str | None,
    output: str | None,
) -> None:
    """Try to break the guarantee of METHOD on made-up tables, and say how far that got.

    No data are read and no budget is spent. Exits with 1 if something breaks the claim.
    """
    chosen = method_named(method)
    given = _read_settings(options)
    path = None if output is None else Path(output)
    kept = None if store is None else Path(store)
    check_writable(*(place for place in (path, kept) if place is not None))
    with show_progress() as progress, BlockStore(kept) as blocks:
        plan = Plan(Effort(effort), runs, trials, seed, blocks, workers, progress)
        certificate = examine_method(
            chosen, Budget.of(epsilon, delta), given, plan, calibration=Calibration(calibration)
        )
    _tell(certificate)
    if path is not None:
        path.write_bytes(encode_certificate(certificate))
        print_written([path], "every search, replay and attack, with the neighbours that came closest")
    if certificate.violations:
        raise click.exceptions.Exit(1)


def audit_result(result: Result, options: tuple[str, ...], effort: Effort) -> Certificate:
    """Audit the method of a result at its budget; the rows are not touched."""
    method = method_named(result.method.name)
    budget = Budget.of(result.receipt.epsilon, result.receipt.delta)
    with show_progress() as progress:
        return examine_method(
            method,
            budget,
            _read_settings(options),
            Plan(effort, progress=progress),
            calibration=Calibration(result.method.calibration),
        )


def _read_settings(options: tuple[str, ...]) -> dict[str, Setting]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in read_options(options).items()}


def _tell(certificate: Certificate) -> None:
    """Print what was claimed beside what was proved, then the verdict."""
    console = open_console()
    table = Table(show_edge=False, show_header=False)
    for name, value in list_findings(certificate):
        table.add_row(name, value)
    console.print(table)
    for violation in certificate.violations:
        console.print(violation, style="bold red")
    silence = "Nothing broke the claim. That is no proof: docs/guarantees.md lists the proofs."
    console.print("The claim is broken." if certificate.violations else silence)
