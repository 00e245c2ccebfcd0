"""`dagveil bench`: what times, loads and compares the library, each a command that writes its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click

from dagveil.cli.output import check_writable
from dagveil.cli.terminal import show_progress
from dagveil.data.engine import Engine
from dagveil.data.machine import read_bytes
from dagveil.data.schema import load_schema
from dagveil.examples.networks import load_network
from dagveil.runs.machine_speed import measure_speed
from dagveil.search.score.notears import Acyclicity
from dagveil_bench import hidden_causes as hiding
from dagveil_bench import missing as missing_values
from dagveil_bench import mixed as mixed_tables
from dagveil_bench import ordinal as ordered_levels
from dagveil_bench import wide as wide_tables
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers, workers_option
from dagveil_bench.effects import NETWORKS as EFFECT_NETWORKS
from dagveil_bench.effects import Case as EffectCase
from dagveil_bench.effects import effects_page
from dagveil_bench.kernel_speed import compare, compare_graphs, kernel_speed_page
from dagveil_bench.mutated import run_mutations, write_tally
from dagveil_bench.mutated_readers import find_readers
from dagveil_bench.notears_peers import Error, comparison_page, list_cases
from dagveil_bench.notears_peers import compare as compare_notears
from dagveil_bench.persons import persons_page, run_persons
from dagveil_bench.plan_cost import NETWORKS, Case, compare_costs, cost_page
from dagveil_bench.scale import run_scale, scale_page
from dagveil_bench.score_speed import Peer, score_speed_page, time_scores
from dagveil_bench.shifted_sites import run_shifted, shifted_section
from dagveil_bench.speed import CASES, methods_speed_page, speed_page, time_loading, time_methods, time_runs
from dagveil_bench.speed_history import append_entry, describe_changes, list_ratios, make_entry, read_history
from dagveil_bench.trust import CONTENDERS, EPSILONS, read_contender, run_trust
from dagveil_bench.trust_page import trust_page
from dagveil_bench.trust_tables import TABLES, TrustTable, load_table, read_table

Chosen = TypeVar("Chosen")
FC = TypeVar("FC", bound=Callable[..., Any])

_METHODS_TOLD = ", ".join(wide_tables.WIDE_METHODS)

QUICK_RUNS = 5
QUICK_EPSILONS = "1"  # of the quick form of `trust`
_epsilon_option = click.option(
    "--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, help="Budget of each run."
)


def _tries_option(tries: int) -> Callable[[FC], FC]:
    return click.option(
        "--tries", type=click.IntRange(1), default=tries, help="Number of timing attempts; the fastest is reported."
    )


@bench.command(short_help="Time private runs beside non-private peers, and loading.")
@_tries_option(5)
@_epsilon_option
@click.option("--load-rows", type=click.IntRange(1), default=10_000_000, help="Rows of the file to load.")
@click.option("--load-columns", type=click.IntRange(2), default=20, help="Columns of that file.")
@click.option("--cases", metavar="NAMES", default=",".join(CASES), help="Networks to run on.")
@click.option(
    "--history",
    metavar="FILE",
    help="Add the ratios to this file of JSON lines, tell what changed since its last entry, and warn of slowdowns.",
)
@output_option
def speed(
    tries: int, epsilon: float, load_rows: int, load_columns: int, cases: str, history: str | None, output: str | None
) -> None:
    """Time whole private runs beside non-private peers on the same rows, and loading beside a plain read.

    A private run is also set beside an exact PC of dagveil itself, which is not private. With --history a ratio that
    fell by more than a fifth since the last entry is warned about.
    """
    names = [name.strip() for name in cases.split(",")]
    if unknown := [name for name in names if name not in CASES]:
        raise click.UsageError(f"{unknown[0]!r} is no case; choose from {', '.join(CASES)}")
    before = None
    if history:
        check_writable(Path(history))
        before = next(reversed(read_history(history)), None)
    with show_progress() as progress:
        runs = time_runs(tries, epsilon, progress, names)
        loading = time_loading(load_rows, load_columns, min(tries, 3))
    publish(speed_page(runs, loading, command_line()), output)
    if history:
        now = make_entry(list_ratios(runs, loading))
        append_entry(history, now)
        lines, warnings = describe_changes(before, now)
        click.echo("\n".join(lines))
        for warning in warnings:
            click.echo(f"Warning: {warning}", err=True)


@bench.command("methods-speed", short_help="Time every method beside a non-private peer.")
@_tries_option(5)
@_epsilon_option
@output_option
def methods_speed(tries: int, epsilon: float, output: str | None) -> None:
    """Time every method, in every calibration, beside causal-learn's non-private PC on the same rows."""
    with show_progress() as progress:
        timings = time_methods(tries, epsilon, progress)
    publish(methods_speed_page(timings, command_line()), output)


@bench.command(short_help="Compare NOTEARS with gCastle's on random graphs.")
@click.option("--nodes", metavar="NUMBERS", default="10,20,50", help="Sizes of the graphs.")
@click.option("--rows", type=click.IntRange(2), default=1000, help="Rows of each sample.")
@click.option(
    "--many-rows",
    type=click.IntRange(0),
    default=100_000,
    help="Rows of one more sample per shape, with the most nodes; 0: none.",
)
@click.option(
    "--errors", metavar="NAMES", default=",".join(law.name.lower() for law in Error), help="Laws of the errors."
)
@click.option(
    "--measures",
    metavar="NAMES",
    default=",".join(measure.value for measure in Acyclicity),
    help="Our measures of cycles.",
)
@click.option("--edges", type=click.IntRange(1), default=2, help="Edges per node.")
@click.option("--runs", metavar="NUMBERS", default="5", help="Samples per setting: one number, or one per size.")
@click.option("--seed", type=click.IntRange(0), default=101, help="Seed of the first sample.")
@click.option(
    "--limit",
    type=click.FloatRange(0),
    default=600.0,
    help="CPU seconds after which a fit of gCastle is given up; 0: no gCastle.",
)
@click.option("--workers", type=click.IntRange(1), default=1, help="Samples at the same time.")
@output_option
def notears(
    nodes: str,
    rows: int,
    many_rows: int,
    errors: str,
    measures: str,
    edges: int,
    runs: str,
    seed: int,
    limit: float,
    workers: int,
    output: str | None,
) -> None:
    """Fit linear NOTEARS and gCastle's, which must be installed with PyTorch, to the same rows of random graphs."""
    sizes = [int(number) for number in read_numbers(nodes)]
    counts = [int(number) for number in read_numbers(runs)]
    counts = counts * len(sizes) if len(counts) == 1 else counts
    if len(counts) != len(sizes) or min(counts) < 1:
        raise click.UsageError(f"--runs must be one number or {len(sizes)}, one for each size, all 1 or more")
    laws = [_choose(name, {law.name.lower(): law for law in Error}) for name in errors.split(",")]
    tried = [_choose(name, {measure.value: measure for measure in Acyclicity}) for name in measures.split(",")]
    cases = list_cases(dict(zip(sizes, counts, strict=True)), rows, many_rows, laws, edges)
    fits = compare_notears(
        cases, list(cases.values()), seed, limit, lambda fit: click.echo(fit, err=True), tried, workers
    )
    publish(comparison_page(fits, command_line()), output)


@bench.command("score-speed", short_help="Time measure-ges beside causal-learn's GES, and on many columns.")
@click.option("--network", default="child", help="Network whose rows both programs get.")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="How many.")
@click.option("--nodes", type=click.IntRange(2), default=200, help="Numeric columns.")
@click.option("--sizes", metavar="NUMBERS", default="10000,100000", help="Rows of numeric columns.")
@_epsilon_option
@_tries_option(5)
@click.option(
    "--peer",
    type=click.Choice([peer.value for peer in Peer]),
    default=Peer.CAUSAL_LEARN.value,
    help="What to compare with.",
)
@output_option
def score_speed(
    network: str, rows: int, nodes: int, sizes: str, epsilon: float, tries: int, peer: str, output: str | None
) -> None:
    """Time `measure-ges` beside causal-learn's non-private GES on the same rows, and on many numeric columns."""
    counts = [int(number) for number in read_numbers(sizes)]
    with show_progress() as progress:
        outcomes = time_scores(network, rows, nodes, counts, epsilon, tries, Peer(peer), progress)
    publish(score_speed_page(outcomes, epsilon, command_line()), output)


@bench.command("kernel-speed", short_help="Time kernel tests beside causal-learn's.")
@click.option("--rows", type=click.IntRange(10), default=2000, help="Rows of the sample.")
@click.option("--permutations", type=click.IntRange(1), default=100, help="Of our tests.")
@click.option("--given", metavar="NUMBERS", default="1,5", help="Numbers of conditioning columns.")
@click.option("--network", default="alarm", help="Graph of the rows for whole searches.")
@click.option("--graph-rows", type=click.IntRange(10), default=50_000, help="How many.")
@_tries_option(7)
@output_option
def kernel_speed(
    rows: int, permutations: int, given: str, network: str, graph_rows: int, tries: int, output: str | None
) -> None:
    """Time exact RCIT and its linear form beside causal-learn's KCI, FastKCI and RCIT on the same rows."""
    with show_progress() as progress:
        timings = compare(rows, permutations, [int(number) for number in read_numbers(given)], tries, progress)
        graphs = compare_graphs(network, graph_rows, tries, progress)
    publish(kernel_speed_page(timings, graphs, command_line()), output)


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


@bench.command(short_help="Compare the forecasts of `dagveil plan` with real runs.")
@click.option("--networks", metavar="NAMES", default=",".join(NETWORKS), help="Names of networks.")
@click.option("--rows", type=click.IntRange(1), default=20_000, help="Rows of each file.")
@_epsilon_option
@click.option("--redraws", type=click.IntRange(0), default=10, help="Redraws of each search.")
@output_option
def cost(networks: str, rows: int, epsilon: float, redraws: int, output: str | None) -> None:
    """Time this machine, foresee runs on known networks, and set the real runs beside that."""
    cases = [Case(name.strip(), rows, epsilon, redraws) for name in networks.split(",")]
    for case in cases:
        load_network(case.network)
    with show_progress() as progress:
        found = compare_costs(cases, measure_speed(), progress)
    publish(cost_page(found, cases, command_line()), output)


@bench.command(short_help="Time a table larger than memory beside DuckDB's own scan.")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, help="Rows of the table.")
@click.option("--columns", type=click.IntRange(2, 1000), default=20, help="Columns of the table.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine if engine is not Engine.AUTO]),
    default=Engine.DUCKDB.value,
    help="What counts the rows; spark starts two workers on this machine and counts beside DuckDB.",
)
@click.option("--memory-limit", metavar="SIZE", default="8GB", help="For DuckDB.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Where the files go while this runs.")
@_epsilon_option
@output_option
def scale(
    rows: int, columns: int, engine: str, memory_limit: str, folder: str | None, epsilon: float, output: str | None
) -> None:
    """Write a synthetic table to disk in pieces, count it where it is, and discover its graph.

    The times stand beside those of a plain DuckDB query that scans the files once and groups by all columns.
    """
    read_bytes(memory_limit)
    place = Path(folder) if folder else None
    with show_progress() as progress:
        study = run_scale(rows, columns, Engine(engine), memory_limit, place, epsilon, progress)
    publish(scale_page(study, command_line()), output)


@bench.command(short_help="Attack a person with many records, and compare ways to protect persons.")
@click.option("--network", default="asia", help="Known network that records follow.")
@click.option("--persons", metavar="NUMBERS", default="500,2000,10000", help="Numbers of persons.")
@click.option("--runs", type=click.IntRange(1), default=10, help="Tables for each number of persons.")
@click.option("--trials", type=click.IntRange(2), default=1000, help="Trials of each attack.")
@_epsilon_option
@output_option
def persons(network: str, persons: str, runs: int, trials: int, epsilon: float, output: str | None) -> None:
    """Draw tables with 1 to 50 records per person; protect rows, or persons by one record, weights or truncation."""
    with show_progress() as progress:
        study = run_persons(load_network(network), _read_sizes(persons, 1), epsilon, runs, trials, progress)
    publish(persons_page(study, command_line()), output)


@bench.command(short_help="Add the evidence of sites that differ, with and without a column for the site.")
@click.option("--networks", metavar="NAMES", default="asia,sachs,child", help="Known networks that rows follow.")
@click.option("--rows", type=click.IntRange(100), default=10_000, help="Rows of each of the four sites.")
@click.option("--runs", type=click.IntRange(1), default=50, help="Runs of each network and number of changed nodes.")
@_epsilon_option
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


@bench.command(short_help="Time, memory and utility as a table gets wider.")
@click.option("--levels", metavar="NUMBERS", default="50,100,300", help="Numbers of columns with levels.")
@click.option("--numbers", metavar="NUMBERS", default="100,300,1000", help="Numbers of numeric columns.")
@click.option("--rows", metavar="NUMBERS", default="100000", help="Rows of each table.")
@click.option("--epsilons", metavar="NUMBERS", default="1", help="Budgets to try.")
@click.option("--method", "methods", metavar="NAMES", default="measure", help=f"Some of {_METHODS_TOLD}.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the synthetic tables.")
@output_option
def wide(levels: str, numbers: str, rows: str, epsilons: str, methods: str, seed: int, output: str | None) -> None:
    """Run methods that release evidence on synthetic tables of more and more columns.

    Write none for a kind of columns to leave it out.
    """
    cases = [
        wide_tables.WideCase(kind, columns, n_rows, epsilon, seed, method)
        for kind, text in ((wide_tables.WideKind.LEVELS, levels), (wide_tables.WideKind.NUMBERS, numbers))
        if text.strip() != "none"
        for epsilon, n_rows, columns, method in product(
            read_numbers(epsilons), _read_sizes(rows, 1), _read_sizes(text, 2), _read_methods(methods)
        )
    ]
    if not cases:
        raise click.UsageError("both kinds of columns are left out; give --levels or --numbers")
    with show_progress() as progress:
        runs = wide_tables.run_wide(cases, progress)
    publish(wide_tables.wide_page(runs, command_line()), output)


@bench.command(short_help="Fit how time grows with rows, columns and levels.")
@click.option("--rows", metavar="NUMBERS", default="25000,50000,100000,200000", help="Rows to try.")
@click.option("--columns", metavar="NUMBERS", default="10,20,40,80", help="Columns to try.")
@click.option("--levels", metavar="NUMBERS", default="2,4,8,16", help="Levels to try.")
@_tries_option(3)
@click.option("--plot", metavar="FILE", help="Also draw the times into this SVG file.")
@output_option
def growth(rows: str, columns: str, levels: str, tries: int, plot: str | None, output: str | None) -> None:
    """Time each stage of a run while one size changes, and fit the power with which it grows.

    The other sizes stay at the second number of their lists.
    """
    sizes = wide_tables.Sizes(*(tuple(_read_sizes(text, 2)) for text in (rows, columns, levels)))
    if plot:
        check_writable(Path(plot))
    with show_progress() as progress:
        points = wide_tables.measure_growth(sizes, tries, progress)
    if plot:
        wide_tables.draw_growth(points, plot)
    publish(wide_tables.growth_page(points, sizes, command_line()), output)


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
        _choose(way, dict.fromkeys(_MIXED_WAYS))
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


def _choose(name: str, choices: Mapping[str, Chosen]) -> Chosen:
    if name.strip() not in choices:
        raise click.UsageError(f"{name.strip()!r} is none of {', '.join(choices)}")
    return choices[name.strip()]


def _read_methods(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in wide_tables.WIDE_METHODS]:
        raise click.UsageError(f"--method {', '.join(unknown)}: choose from {_METHODS_TOLD}")
    return list(dict.fromkeys(names))


def _read_sizes(text: str, least: int) -> list[int]:
    numbers = read_numbers(text)
    if any(number != int(number) or number < least for number in numbers):
        raise click.UsageError(f"{text!r} is not a list of whole numbers of at least {least}")
    return [int(number) for number in numbers]


@bench.command("effects", short_help="Compare effects from private evidence with exact do-laws.")
@click.option("--networks", metavar="NAMES", default=",".join(EFFECT_NETWORKS), help="Networks of levels.")
@click.option("--pairs", type=click.IntRange(1), default=8, help="Pairs of a cause and an effect in each network.")
@click.option("--runs", type=click.IntRange(1), default=20, help="Repetitions with the true graph.")
@click.option("--unknown", type=click.IntRange(0), default=3, help="Repetitions with the graph of the evidence.")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="Rows of each sample.")
@_epsilon_option
@click.option("--redraws", type=click.IntRange(1), default=20, help="Redraws of graph and effect.")
@output_option
def effects(
    networks: str, pairs: int, runs: int, unknown: int, rows: int, epsilon: float, redraws: int, output: str | None
) -> None:
    """Compare effects from private evidence with exact do-laws of known networks: error, coverage and width.

    Also linear Gaussian networks, NSW with controls from the CPS (package causaldata), and rivals' widths by formula.
    """
    names = [name.strip() for name in networks.split(",")]
    with show_progress(lines=True) as progress:
        page = effects_page(EffectCase(names, pairs, runs, unknown, rows, epsilon, redraws), command_line(), progress)
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
