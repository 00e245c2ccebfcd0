"""`dagveil bench`: what compares graphs with the truth, each a command that writes its page."""

from pathlib import Path
from typing import Any

import click

from dagveil.cli.output import show_progress
from dagveil.data.schema import load_schema
from dagveil.examples.networks import NETWORK_NAMES
from dagveil.progress import Progress
from dagveil_bench import probabilities as likely
from dagveil_bench.commands.group import (
    bench,
    command_line,
    epsilon_option,
    list_option,
    names,
    numbers,
    output_option,
    page_command,
    publish,
    workers_option,
)
from dagveil_bench.effects import NETWORKS as EFFECT_NETWORKS
from dagveil_bench.effects import Case as EffectCase
from dagveil_bench.mutated import run_mutations, write_tally
from dagveil_bench.mutated_readers import find_readers
from dagveil_bench.real_effects import REAL, effects_page
from dagveil_bench.trust import CONTENDERS, EPSILONS, read_contender, run_trust
from dagveil_bench.trust_page import trust_page
from dagveil_bench.trust_tables import TABLES, TrustTable, load_table, read_table

QUICK_RUNS = 5
QUICK_EPSILONS = (1.0,)  # of the quick form of `trust`
KNOWN = names(NETWORK_NAMES)


@bench.command(short_help="Read damaged and hostile inputs of every kind.")
@click.option("--count", type=click.IntRange(1), default=10_000, help="Inputs in all.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the mutations.")
@click.option("--seconds", type=click.FloatRange(0.1), default=10.0, help="For one input.")
@click.option("--only", metavar="READER", help="One kind of input, as the table names it.")
@click.option(
    "--keep", type=click.Path(exists=True, file_okay=False), help="Folder for the first input of each failure."
)
@output_option
@click.pass_context
def mutate(
    context: click.Context,
    /,
    count: int,
    seed: int,
    seconds: float,
    only: str | None,
    keep: str | None,
    output: str | None,
) -> None:
    """Mutate sound inputs of every kind, and read each in a process that may die.

    Bytes flip, pieces vanish or return, and values of documents become odd ones, which are then sealed again. An input
    must be read or refused with a sentence. The exit code is 1 if one crashed or hung its reader, raised anything else,
    or was charged for although it was refused.
    """
    if only is not None and only not in find_readers():
        raise click.UsageError(f"no reader is called {only!r}; choose one of {', '.join(find_readers())}")
    with show_progress() as progress:
        tally = run_mutations(find_readers, count, seed, seconds, only, None if keep is None else Path(keep), progress)
    publish(write_tally(tally, command_line()), output)
    if tally.failed:
        context.exit(1)


@page_command("How far graphs of real tables may be believed.", lines=True)
@list_option("--tables", None, names(TABLES), f"Some of {', '.join(TABLES)}; all of them without --table.")
@click.option("--table", metavar="FILE", help="A table of your own.")
@click.option("--schema", metavar="FILE", help="Its schema.")
@click.option(
    "--accept-no-guarantee",
    is_flag=True,
    help="Read a table of your own whose schema does not say public = true. The page tells of exact rows.",
)
@list_option(
    "--methods", CONTENDERS, names(), "Methods that release evidence; a colon precedes another rule of search."
)
@list_option("--epsilons", EPSILONS, numbers(), "Budgets to try.")
@click.option("--quick", is_flag=True, help=f"Only epsilon = {QUICK_EPSILONS[0]:g} and {QUICK_RUNS} runs.")
@click.option("--runs", type=click.IntRange(1), default=20, help="Runs per cell of the table.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of samples and of noise.")
@workers_option
def trust(
    tables: list[str] | None,
    table: str | None,
    schema: str | None,
    accept_no_guarantee: bool,
    methods: list[str],
    epsilons: list[float],
    quick: bool,
    runs: int,
    seed: int,
    workers: int,
    progress: Progress,
) -> str:
    """Ask of real tables how far their graphs may be believed.

    Edges when every column is shuffled; precision against non-private PC; stability of the strongest edges; confidence
    beside fresh runs. Needs dagveil-bench[tables].
    """
    for contender in methods:
        read_contender(contender)
    if (table is None) != (schema is None):
        raise click.UsageError("give --table and --schema together")
    chosen = tables or (() if table else TABLES)
    budgets = list(dict.fromkeys(QUICK_EPSILONS if quick else epsilons))
    own = [_open_own(table, schema, accept_no_guarantee)] if table and schema else []
    opened = [*map(load_table, chosen), *own]
    study = run_trust(opened, methods, budgets, QUICK_RUNS if quick else runs, seed, workers, progress)
    return trust_page(study, command_line())


def _open_own(path: str, schema_path: str, accept_no_guarantee: bool) -> TrustTable:
    schema = load_schema(Path(schema_path))
    if not (schema.public or accept_no_guarantee):
        raise click.UsageError(
            "the page tells of exact rows, without privacy, and this schema does not say that its data set is public; "
            "write public = true below [dataset] if it is, or accept that with --accept-no-guarantee"
        )
    return read_table(path, schema)


@page_command("Compare effects from private evidence with exact do-laws.", lines=True)
@list_option("--networks", EFFECT_NETWORKS, KNOWN, "Networks of levels.")
@click.option("--pairs", type=click.IntRange(1), default=8, help="Pairs of a cause and an effect in each network.")
@click.option("--runs", "repetitions", type=click.IntRange(1), default=20, help="Repetitions with the true graph.")
@click.option("--unknown", type=click.IntRange(0), default=3, help="Repetitions with the graph of the evidence.")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="Rows of each sample.")
@epsilon_option
@click.option("--redraws", type=click.IntRange(1), default=20, help="Redraws of graph and effect.")
@list_option("--real", REAL, names(REAL), "Tables of packages; none if it is empty.")
def effects(real: list[str], progress: Progress, **case: Any) -> str:
    """Compare effects from private evidence with exact do-laws of known networks: error, coverage and width.

    Also linear Gaussian networks, NSW with controls from the CPS (package causaldata), tables of ACIC 2016 (package
    causallib), and rivals' widths by formula.
    """
    return effects_page(EffectCase(**case), real, command_line(), progress)


@page_command("Hold probabilities of edges and arrows against known graphs.")
@click.option("--fit", is_flag=True, help="Fit the correction on its own networks instead, and print its constants.")
@list_option("--rows", (2000, 10_000, 100_000), numbers(1), "Rows of the tables.")
@list_option("--epsilons", (0.1, 1, 10), numbers(), "Budgets.")
@click.option("--runs", type=click.IntRange(1), default=1, help="Tables of each network, rows and budget.")
@click.option("--redraws", type=click.IntRange(20), default=50, help="Redraws of each search.")
@list_option("--networks", None, names(), "Networks to use instead.")
@click.option("--figure", metavar="FILE.svg", help="Draw what is said and what is true into this file.")
def probabilities(
    fit: bool,
    rows: list[int],
    epsilons: list[float],
    runs: int,
    redraws: int,
    networks: list[str] | None,
    figure: str | None,
    progress: Progress,
) -> str:
    """Hold probabilities of edges and arrows against known graphs that the correction was not fitted on."""
    kinds = networks or (likely.FITTED_ON if fit else likely.HELD_OUT)
    found = likely.run_cases(likely.list_cases(kinds, rows, epsilons, runs), redraws, progress)
    if fit:
        return str(likely.fit_correction([claim for one in found for claim in one.claims]))
    others = () if networks else likely.list_cases(likely.OUTSIDE, rows, epsilons, runs)
    outside = likely.run_cases(others, redraws, progress)
    if figure:
        likely.draw_reliability(found, figure)
    shown = None if figure is None else Path(figure).name
    return likely.probabilities_page(found, outside, redraws, command_line(), shown)
