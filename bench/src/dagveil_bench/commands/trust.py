"""`dagveil bench trust`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.terminal import show_progress
from dagveil.data.schema import load_schema
from dagveil_bench.commands.group import bench, command_line, publish, read_numbers, study_options
from dagveil_bench.trust import CONTENDERS, EPSILONS, read_contender, run_trust
from dagveil_bench.trust_page import trust_page
from dagveil_bench.trust_tables import TABLES, TrustTable, load_table, read_table

QUICK_RUNS = 5
QUICK_EPSILONS = "1"


@bench.command(short_help="How far graphs of real tables may be believed.")
@click.option(
    "--tables", "names", metavar="NAMES", show_default="all, without --table", help=f"Some of {', '.join(TABLES)}."
)
@click.option("--table", "path", metavar="FILE", help="A table of your own.")
@click.option("--schema", "schema_path", metavar="FILE", help="Its schema.")
@click.option(
    "--accept-no-guarantee",
    is_flag=True,
    help="Read a table of your own whose schema does not say public = true. The page tells of exact rows.",
)
@click.option(
    "--methods",
    metavar="NAMES",
    default=",".join(CONTENDERS),
    show_default=True,
    help="Methods that release evidence; a colon precedes another rule of search.",
)
@click.option(
    "--epsilons",
    metavar="NUMBERS",
    default=",".join(f"{epsilon:g}" for epsilon in EPSILONS),
    show_default=True,
    help="Budgets to try.",
)
@click.option("--quick", is_flag=True, help=f"Only epsilon = {QUICK_EPSILONS} and {QUICK_RUNS} runs.")
@study_options
def trust(
    names: str | None,
    path: str | None,
    schema_path: str | None,
    accept_no_guarantee: bool,
    methods: str,
    epsilons: str,
    quick: bool,
    runs: int,
    seed: int,
    workers: int,
    output: str | None,
) -> None:
    """Ask of real tables how far their graphs may be believed.

    Edges when every column is shuffled; precision against non-private PC; stability of the strongest edges; confidence
    beside fresh runs. Needs dagveil-bench[tables].
    """
    contenders = [name.strip() for name in methods.split(",")]
    for contender in contenders:
        read_contender(contender)
    if (path is None) != (schema_path is None):
        raise click.UsageError("give --table and --schema together")
    chosen = names.split(",") if names else () if path else tuple(TABLES)
    if quick:
        runs, epsilons = QUICK_RUNS, QUICK_EPSILONS
    budgets = list(dict.fromkeys(read_numbers(epsilons)))
    own = [_open_own(path, schema_path, accept_no_guarantee)] if path and schema_path else []
    tables = [*(load_table(name.strip()) for name in chosen), *own]
    with show_progress(lines=True) as progress:
        study = run_trust(tables, contenders, budgets, runs, seed, workers, progress)
    publish(trust_page(study, command_line()), output)


def _open_own(path: str, schema_path: str, accept_no_guarantee: bool) -> TrustTable:
    schema = load_schema(Path(schema_path))
    if not (schema.public or accept_no_guarantee):
        raise click.UsageError(
            "the page tells of exact rows, without privacy, and this schema does not say that its data set is public; "
            "write public = true below [dataset] if it is, or accept that with --accept-no-guarantee"
        )
    return read_table(path, schema)
