"""`dagveil audit`."""

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from dagveil.audit.attacks import FEWEST_TRIALS
from dagveil.audit.certificate import Certificate, encode_certificate, list_findings, write_overview, write_searches
from dagveil.audit.examination import Plan, examine_method, search_in_parallel
from dagveil.audit.neighbours import Setting
from dagveil.audit.runs import BlockStore
from dagveil.audit.search import Effort
from dagveil.audit.sensitivity import audited_statistics
from dagveil.cli.options import choice_option, option, read_options, settings_option
from dagveil.cli.output import check_writable, open_console, print_written, say, show_progress, write_output
from dagveil.methods.method import METHODS, Method, method_named
from dagveil.papers.publication import readings_of
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration

STORE = "audit.db"  # where the audit of all methods keeps what is done, in its folder


@click.command(short_help="Try to break a method's guarantee.")
@click.argument("method", required=False)
@option("all_methods --all", "Audit every method, one after the other.")
@option("--statistics", "Search the neighbours of every statistic, whichever method uses it; no METHOD.")
@option(
    "effort --quick",
    "Some thousand neighbours and some hundred runs: seconds to a minute. The default.",
    flag_value=Effort.QUICK.value,
    default=Effort.QUICK.value,
    show_default=False,
)
@option(
    "effort --full",
    "A million neighbours of each statistic, a hundred thousand runs (slow methods: ten thousand): minutes.",
    flag_value=Effort.FULL.value,
)
@choice_option(
    "--calibration",
    Calibration.SOUND,
    "Paper and program try the claims of the publication, on that reading of it.",
    Calibration.NONE,
)
@option("--epsilon NUMBER", "The epsilon that is claimed.", default="1")
@option("--delta NUMBER", "The delta that is claimed.", default="1e-6")
@settings_option
@option("--pairs INTEGER", "Neighbours of each statistic, in place of the effort's.", type=click.IntRange(1))
@option("--runs INTEGER", "Runs on each table, in place of the effort's.", type=click.IntRange(8))
@option(
    "--trials INTEGER", "Trials of membership inference, in place of the effort's.", type=click.IntRange(FEWEST_TRIALS)
)
@option("--seed INTEGER", "For other runs.", type=click.IntRange(0), default=0)
@option("--workers INTEGER", "Processes.", type=click.IntRange(1), default=1)
@option(
    "--store FILE",
    "Where finished parts are kept, so that an audit that was stopped goes on. With --all it is in the folder.",
)
@option("--table FILE", "Where tables of all that was tried go, as Markdown.")
@option("-o --output PATH", "Where the certificate goes, as JSON. With --all a folder for all of them.")
def audit(
    method: str | None,
    all_methods: bool,
    statistics: bool,
    effort: str,
    epsilon: str,
    delta: str,
    options: tuple[str, ...],
    calibration: str,
    store: str | None,
    table: str | None,
    output: str | None,
    **plans: Any,
) -> None:
    """Try to break the guarantee of METHOD on synthetic tables, and say how far that got.

    With --all every method is audited, and tables of all that was tried are printed. No data are read and no budget is
    spent. Exits with 1 if something breaks a claim.
    """
    if statistics:
        if method is not None or all_methods or output is not None:
            raise click.UsageError("--statistics stands by itself; leave METHOD, --all and -o out, and give --table")
        _search_statistics(Effort(effort), plans, store, table)
        return
    kind = Calibration(calibration)
    methods = _choose_methods(method, all_methods, options, output, kind)
    given = read_settings(options)
    # all methods write into a folder, one writes a file
    places: dict[str, Path] = {}
    if output is not None:
        places = {name: Path(output) / f"{name}.json" if all_methods else Path(output) for name in methods}
    kept = Path(store) if store is not None else Path(output) / STORE if all_methods and output else None
    drawn = [] if table is None else [Path(table)]
    check_writable(*places.values(), *([] if kept is None else [kept]), *drawn)
    certificates = []
    with BlockStore(kept) as blocks:
        for name, chosen in methods.items():
            with show_progress() as progress:
                plan = Plan(Effort(effort), store=blocks, progress=progress, **plans)
                found = examine_method(chosen, Budget.of(epsilon, delta), given, plan, calibration=kind)
            certificates.append(found)
            if name in places:
                write_output(places[name], encode_certificate(found))
            if all_methods:
                click.echo(_sum_up(found), err=True)
    overview = write_overview(certificates)
    if all_methods:
        click.echo(overview, nl=False)
    else:
        _print_findings(certificates[0])
    for place in drawn:
        write_output(place, overview.encode())
    if places or drawn:
        hint = "every search, replay and attack, with the neighbours that came closest"
        print_written([*places.values(), *drawn], hint)
    if any(certificate.violations for certificate in certificates):
        raise click.exceptions.Exit(1)


def _search_statistics(effort: Effort, plans: dict[str, Any], store: str | None, table: str | None) -> None:
    """Search the worst neighbours of every statistic, and exit with 1 if one moves by more than is declared."""
    places = [Path(place) for place in (store, table) if place is not None]
    check_writable(*places)
    with BlockStore(Path(store) if store else None) as blocks, show_progress() as progress:
        plan = Plan(effort, store=blocks, progress=progress, **plans | {"runs": None, "trials": None})
        found = search_in_parallel([one.name for one in audited_statistics()], None, plan)
    text = write_searches(found) + "\n"
    click.echo(text, nl=False)
    if table is not None:
        write_output(Path(table), text.encode())
    if not all(line.holds for line in found):
        raise click.exceptions.Exit(1)


def _choose_methods(
    method: str | None, all_methods: bool, options: tuple[str, ...], output: str | None, calibration: Calibration
) -> dict[str, Method]:
    if all_methods == (method is not None):
        raise click.UsageError("give the name of a method, or --all; `dagveil methods` lists them")
    if method is not None:
        return {method: method_named(method)}
    if options:
        raise click.UsageError("--set is for one method; give its name in place of --all")
    if output is None:
        raise click.UsageError("--all writes one certificate for each method; give a folder with -o")
    if Path(output).is_file():
        raise click.UsageError(f"--all writes into a folder, and {output} is a file; give another -o")
    return {
        name: one
        for name, one in METHODS.items()
        if calibration is Calibration.SOUND or calibration in readings_of(name)
    }


def _sum_up(certificate: Certificate) -> str:
    """Say in one line what the audit of one method of many found."""
    strongest = certificate.strongest
    bound = "" if strongest is None else f", epsilon at least {strongest.bound:.3f} of {strongest.claimed:.3g}"
    verdict = "the claim is broken" if certificate.violations else "nothing broke the claim"
    return f"{certificate.method}: {verdict}{bound}"


def read_settings(options: tuple[str, ...]) -> dict[str, Setting]:
    """Read NAME=VALUE pairs as settings of an audit, which must not change."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in read_options(options).items()}


def _print_findings(certificate: Certificate) -> None:
    """Print what was claimed beside what was proved, then the verdict."""
    table = Table(show_edge=False, show_header=False)
    for name, value in list_findings(certificate):
        table.add_row(name, value)
    open_console().print(table)
    say(*certificate.violations, style="bold red")
    silence = "Nothing broke the claim. That is no proof: docs/guarantees.md lists the proofs."
    say("The claim is broken." if certificate.violations else silence)
