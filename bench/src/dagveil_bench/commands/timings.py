"""`dagveil bench`: what times and loads the library beside its peers, each a command that writes its page."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click

from dagveil.cli.output import check_writable, show_progress
from dagveil.data.engine import Engine
from dagveil.data.machine import read_bytes
from dagveil.examples.networks import load_network
from dagveil.runs.machine_speed import measure_speed
from dagveil.search.score.notears import Acyclicity
from dagveil_bench import wide as wide_tables
from dagveil_bench.commands.group import (
    bench,
    choose,
    command_line,
    epsilon_option,
    output_option,
    publish,
    read_numbers,
    read_sizes,
)
from dagveil_bench.kernel_speed import compare, compare_graphs, kernel_speed_page
from dagveil_bench.notears_peers import Error, comparison_page, list_cases
from dagveil_bench.notears_peers import compare as compare_notears
from dagveil_bench.plan_cost import NETWORKS, Case, compare_costs, cost_page
from dagveil_bench.scale import run_scale, scale_page
from dagveil_bench.score_speed import Peer, score_speed_page, time_scores
from dagveil_bench.speed import CASES, methods_speed_page, speed_page, time_loading, time_methods, time_runs
from dagveil_bench.speed_history import append_entry, describe_changes, list_ratios, make_entry, read_history

FC = TypeVar("FC", bound=Callable[..., Any])
_METHODS_TOLD = ", ".join(wide_tables.WIDE_METHODS)


def _tries_option(tries: int) -> Callable[[FC], FC]:
    return click.option(
        "--tries", type=click.IntRange(1), default=tries, help="Number of timing attempts; the fastest is reported."
    )


@bench.command(short_help="Time private runs beside non-private peers, and loading.")
@_tries_option(5)
@epsilon_option
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
@epsilon_option
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
    laws = [choose(name, {law.name.lower(): law for law in Error}) for name in errors.split(",")]
    tried = [choose(name, {measure.value: measure for measure in Acyclicity}) for name in measures.split(",")]
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
@epsilon_option
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


@bench.command(short_help="Compare the forecasts of `dagveil plan` with real runs.")
@click.option("--networks", metavar="NAMES", default=",".join(NETWORKS), help="Names of networks.")
@click.option("--rows", type=click.IntRange(1), default=20_000, help="Rows of each file.")
@epsilon_option
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
@epsilon_option
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
            read_numbers(epsilons), read_sizes(rows, 1), read_sizes(text, 2), _read_methods(methods)
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
    sizes = wide_tables.Sizes(*(tuple(read_sizes(text, 2)) for text in (rows, columns, levels)))
    if plot:
        check_writable(Path(plot))
    with show_progress() as progress:
        points = wide_tables.measure_growth(sizes, tries, progress)
    if plot:
        wide_tables.draw_growth(points, plot)
    publish(wide_tables.growth_page(points, sizes, command_line()), output)


def _read_methods(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in wide_tables.WIDE_METHODS]:
        raise click.UsageError(f"--method {', '.join(unknown)}: choose from {_METHODS_TOLD}")
    return list(dict.fromkeys(names))
