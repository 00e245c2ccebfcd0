"""`dagveil bench`: what compares graphs with the truth, each a command that writes its page."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.output import show_progress
from dagveil.data.schema import load_schema
from dagveil.examples.networks import load_network
from dagveil_bench import hidden_causes as hiding
from dagveil_bench import missing as missing_values
from dagveil_bench import mixed as mixed_tables
from dagveil_bench import ordinal as ordered_levels
from dagveil_bench.commands.group import (
    bench,
    choose,
    command_line,
    epsilon_option,
    output_option,
    publish,
    read_numbers,
    read_sizes,
    workers_option,
)
from dagveil_bench.effects import NETWORKS as EFFECT_NETWORKS
from dagveil_bench.effects import Case as EffectCase
from dagveil_bench.effects_page import effects_page
from dagveil_bench.mutated import run_mutations, write_tally
from dagveil_bench.mutated_readers import find_readers
from dagveil_bench.persons import persons_page, run_persons
from dagveil_bench.real_effects import REAL
from dagveil_bench.shifted_sites import run_shifted, shifted_section
from dagveil_bench.trust import CONTENDERS, EPSILONS, read_contender, run_trust
from dagveil_bench.trust_page import trust_page
from dagveil_bench.trust_tables import TABLES, TrustTable, load_table, read_table

QUICK_RUNS = 5
QUICK_EPSILONS = "1"  # of the quick form of `trust`


@bench.command("hidden-causes", short_help="Hide columns of networks, and find what is left of their graph.")
@click.option("--networks", metavar="NAMES", default="asia,sachs,child", help="Networks whose columns are hidden.")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="Rows sampled from each of them.")
@click.option("--large", metavar="NAMES", default="insurance,alarm", help="Networks that get fewer rows and sets.")
@click.option("--large-rows", type=click.IntRange(1), default=20_000, help="Rows sampled from each of these.")
@click.option("--large-sets", type=click.IntRange(0), default=3, help="Columns of each of these that are hidden.")
@click.option("--pairs", type=click.IntRange(0), default=1, help="Random pairs of columns hidden, per network.")
@click.option("--epsilons", metavar="LIST", default=f"0.1,1,10,{hiding.NO_NOISE:g}", help="Budgets.")
@click.option("--redraws", type=click.IntRange(0), default=10, help="Redraws of each search.")
@click.option("--seconds", type=click.FloatRange(0), default=60.0, help="Time for causal-learn's FCI; 0 leaves it out.")
@output_option
def hidden_causes(
    networks: str,
    rows: int,
    large: str,
    large_rows: int,
    large_sets: int,
    pairs: int,
    epsilons: str,
    redraws: int,
    seconds: float,
    output: str | None,
) -> None:
    """Hide columns of known networks, and hold PAGs against the true one, beside causal-learn's FCI."""
    small, wide = ([name.strip() for name in names.split(",") if name.strip()] for names in (networks, large))
    cases = hiding.list_cases(small, rows, rows, pairs)
    cases += hiding.list_cases(wide, large_rows, large_sets, pairs)
    with show_progress() as progress:
        scores = hiding.run_hidden(cases, read_numbers(epsilons), redraws, seconds, progress)
    publish(hiding.hidden_page(scores, redraws, seconds, command_line()), output)


@bench.command(short_help="Attack a person with many records, and compare ways to protect persons.")
@click.option("--network", default="asia", help="Known network that records follow.")
@click.option("--persons", metavar="NUMBERS", default="500,2000,10000", help="Numbers of persons.")
@click.option("--runs", type=click.IntRange(1), default=10, help="Tables for each number of persons.")
@click.option("--trials", type=click.IntRange(2), default=1000, help="Trials of each attack.")
@epsilon_option
@output_option
def persons(network: str, persons: str, runs: int, trials: int, epsilon: float, output: str | None) -> None:
    """Draw tables with 1 to 50 records per person; protect rows, or persons by one record, weights or truncation."""
    with show_progress() as progress:
        study = run_persons(load_network(network), read_sizes(persons, 1), epsilon, runs, trials, progress)
    publish(persons_page(study, command_line()), output)


@bench.command(short_help="Add the evidence of sites that differ, with and without a column for the site.")
@click.option("--networks", metavar="NAMES", default="asia,sachs,child", help="Known networks that rows follow.")
@click.option("--rows", type=click.IntRange(100), default=10_000, help="Rows of each of the four sites.")
@click.option("--runs", type=click.IntRange(1), default=50, help="Runs of each network and number of changed nodes.")
@epsilon_option
@output_option
def sites(networks: str, rows: int, runs: int, epsilon: float, output: str | None) -> None:
    """Change the laws of some nodes at one of four sites, and find them as children of the site.

    What is printed is a section of bench/results/custodians.md.
    """
    names = [name.strip() for name in networks.split(",")]
    for name in names:
        load_network(name)  # an unknown one is refused before the hours are spent
    with show_progress() as progress:
        found = run_shifted(names, rows, epsilon, runs, progress)
    publish(shifted_section(found, command_line()), output)


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


_MIXED_WAYS = (*mixed_tables.WAYS, *mixed_tables.ANCHORS)


@bench.command(short_help="Graphs of numbers beside levels: one matrix, bins, and tests without privacy.")
@click.option("--graphs", type=click.IntRange(1), default=20, help="Networks in each cell.")
@click.option("--seed", type=click.IntRange(0), default=6000, help="Seed of the first network.")
@click.option(
    "--columns", metavar="NUMBERS", default=",".join(map(str, mixed_tables.COLUMNS)), help="Columns of the networks."
)
@click.option("--rows", metavar="NUMBERS", default=",".join(map(str, mixed_tables.ROWS)), help="Rows of the tables.")
@click.option("--ways", metavar="NAMES", default=",".join(_MIXED_WAYS), help=f"Some of {', '.join(_MIXED_WAYS)}.")
@workers_option
@output_option
def mixed(graphs: int, seed: int, columns: str, rows: str, ways: str, workers: int, output: str | None) -> None:
    """Find graphs of random tables of numbers and levels, and score them against the networks they come from."""
    chosen = [way.strip() for way in ways.split(",")]
    for way in chosen:
        choose(way, dict.fromkeys(_MIXED_WAYS))
    widths, lengths = (list(map(int, read_numbers(text))) for text in (columns, rows))
    cases = list(mixed_tables.list_cases(graphs, seed, chosen, widths, lengths))
    with show_progress(lines=True) as progress:
        found = mixed_tables.run_mixed(cases, workers, progress)
    publish(mixed_tables.mixed_page(found, graphs, command_line()), output)


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
    help="Methods that release evidence; a colon precedes another rule of search.",
)
@click.option(
    "--epsilons", metavar="NUMBERS", default=",".join(f"{epsilon:g}" for epsilon in EPSILONS), help="Budgets to try."
)
@click.option("--quick", is_flag=True, help=f"Only epsilon = {QUICK_EPSILONS} and {QUICK_RUNS} runs.")
@click.option("--runs", type=click.IntRange(1), default=20, help="Runs per cell of the table.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of samples and of noise.")
@workers_option
@output_option
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


@bench.command("effects", short_help="Compare effects from private evidence with exact do-laws.")
@click.option("--networks", metavar="NAMES", default=",".join(EFFECT_NETWORKS), help="Networks of levels.")
@click.option("--pairs", type=click.IntRange(1), default=8, help="Pairs of a cause and an effect in each network.")
@click.option("--runs", type=click.IntRange(1), default=20, help="Repetitions with the true graph.")
@click.option("--unknown", type=click.IntRange(0), default=3, help="Repetitions with the graph of the evidence.")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="Rows of each sample.")
@epsilon_option
@click.option("--redraws", type=click.IntRange(1), default=20, help="Redraws of graph and effect.")
@click.option("--real", metavar="NAMES", default=",".join(REAL), help="Tables of packages; none if it is empty.")
@output_option
def effects(
    networks: str,
    pairs: int,
    runs: int,
    unknown: int,
    rows: int,
    epsilon: float,
    redraws: int,
    real: str,
    output: str | None,
) -> None:
    """Compare effects from private evidence with exact do-laws of known networks: error, coverage and width.

    Also linear Gaussian networks, NSW with controls from the CPS (package causaldata), tables of ACIC 2016 (package
    causallib), and rivals' widths by formula.
    """
    names, tables = ([name.strip() for name in text.split(",") if name.strip()] for text in (networks, real))
    for name in tables:
        choose(name, dict.fromkeys(REAL))
    case = EffectCase(names, pairs, runs, unknown, rows, epsilon, redraws)
    with show_progress(lines=True) as progress:
        page = effects_page(case, tables, command_line(), progress)
    publish(page, output)


@bench.command(short_help="Graphs of tables with missing values, by what the schema says of them.")
@click.option("--runs", type=click.IntRange(1), default=6, help="Runs of each cell.")
@click.option("--seed", type=click.IntRange(0), default=7000, help="Seed of the first run.")
@click.option(
    "--networks", metavar="NAMES", default=",".join(missing_values.NETWORKS), help="Known networks, and `mixed`."
)
@click.option("--rows", metavar="NUMBERS", default=",".join(map(str, missing_values.ROWS)), help="Rows of the tables.")
@output_option
def missing(runs: int, seed: int, networks: str, rows: str, output: str | None) -> None:
    """Remove values from known networks and from random mixed ones, and score the graphs that are found."""
    names = [name.strip() for name in networks.split(",")]
    cases = list(missing_values.list_cases(names, list(map(int, read_numbers(rows))), runs, seed))
    with show_progress(lines=True) as progress:
        found = missing_values.run_missing(cases, progress)
    publish(missing_values.missing_page(found, runs, command_line()), output)


@bench.command(short_help="Graphs of ordered levels: by trends where noise is heavy, and without order.")
@click.option("--graphs", type=click.IntRange(1), default=20, help="Networks in each cell.")
@click.option("--seed", type=click.IntRange(0), default=8000, help="Seed of the first network.")
@output_option
def ordinal(graphs: int, seed: int, output: str | None) -> None:
    """Find graphs of random networks of ordinal columns, declared with and without their order."""
    with show_progress(lines=True) as progress:
        found = ordered_levels.run_ordinal(list(ordered_levels.list_cases(graphs, seed)), progress)
    publish(ordered_levels.ordinal_page(found, graphs, command_line()), output)
