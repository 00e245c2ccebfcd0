"""`dagveil audit`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from dagveil.audit.certificate import Certificate, encode_certificate, read_amount
from dagveil.audit.examination import examine_method
from dagveil.audit.search import Effort
from dagveil.cli.options import read_options
from dagveil.cli.output import check_writable
from dagveil.cli.progress import show_progress
from dagveil.cli.summary import open_console, print_written
from dagveil.methods.catalogue import method_named
from dagveil.privacy.budget import Budget


@click.command(short_help="Try to break a method's guarantee.")
@click.argument("method")
@click.option(
    "--quick",
    "effort",
    flag_value=Effort.QUICK.value,
    default=Effort.QUICK.value,
    help="Some thousand neighbours and some hundred runs: seconds to a few minutes. The default.",
)
@click.option("--full", "effort", flag_value=Effort.FULL.value, help="A million neighbours, ten thousand runs: hours.")
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
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="INTEGER", help="For other runs.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, metavar="INTEGER", help="Processes.")
@click.option("--keep", metavar="FOLDER", help="Where runs are kept, so that an audit that was stopped goes on.")
@click.option("-o", "--output", metavar="FILE", help="Where the certificate goes, as JSON.")
def audit(
    method: str,
    effort: str,
    epsilon: str,
    delta: str,
    options: tuple[str, ...],
    runs: int | None,
    seed: int,
    workers: int,
    keep: str | None,
    output: str | None,
) -> None:
    """Try to break the guarantee of METHOD on made-up tables, and say how far that got.

    No data are read and no budget is spent. Exits with 1 if something breaks the claim.
    """
    chosen = method_named(method)
    path = None if output is None else Path(output)
    if path is not None:
        check_writable(path)
    with show_progress() as progress:
        certificate = examine_method(
            chosen,
            Effort(effort),
            Budget.of(epsilon, delta),
            {name: tuple(value) if isinstance(value, list) else value for name, value in read_options(options).items()},
            runs=runs,
            seed=seed,
            folder=None if keep is None else Path(keep),
            workers=workers,
            progress=progress,
        )
    _tell(certificate)
    if path is not None:
        path.write_bytes(encode_certificate(certificate))
        print_written([path], "every search, replay and attack, with the neighbours that came closest")
    if certificate.violations:
        raise click.exceptions.Exit(1)


def _tell(certificate: Certificate) -> None:
    """Print what was claimed beside what was proved, then the verdict."""
    console = open_console()
    claimed = f"{read_amount(certificate.epsilon):g}, delta {read_amount(certificate.delta):g}"
    rows = [("claimed epsilon", claimed)]
    strongest, closest = certificate.strongest, certificate.closest
    if strongest is not None:
        rows.append(("lower bound by attack", f"{strongest.bound:.3f} ({strongest.relation.value}, 95 % confidence)"))
        rows.append(("ceiling of the attack", f"{strongest.ceiling:.3f} with {strongest.runs} judged runs"))
    if closest is not None:
        words = f"{closest.ratio:.6f} ({closest.statistic}, {closest.relation.value})"
        rows.append(("largest change / declared", words))
        rows.append(("neighbours tried", str(sum(line.pairs for line in certificate.statistics))))
    furthest = max(certificate.replays, key=lambda line: line.largest, default=None)
    if furthest is not None:
        broken = sum(bool(line.violations) for line in certificate.replays)
        verdict = "holds" if not broken else f"broken on {broken} of {len(certificate.replays)} pairs"
        rows.append(("replay on neighbours", f"{verdict}; furthest answer {furthest.largest:.6f} of its charge"))
    table = Table(show_edge=False, show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    for violation in certificate.violations:
        console.print(violation, style="bold red")
    silence = "Nothing broke the claim. That is no proof: docs/guarantees.md lists the proofs."
    console.print("The claim is broken." if certificate.violations else silence)
