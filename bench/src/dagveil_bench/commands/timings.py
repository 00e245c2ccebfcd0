"""`dagveil bench`: what times and loads the library beside its peers, each a command that writes its page."""

from itertools import product
from pathlib import Path

import click

from dagveil.cli.output import check_writable
from dagveil.data.engine import Engine
from dagveil.data.machine import read_bytes
from dagveil.examples.networks import NETWORK_NAMES
from dagveil.progress import Progress
from dagveil.runs.machine_speed import measure_speed
from dagveil.search.score.notears import Acyclicity
from dagveil_bench import wide as wide_tables
from dagveil_bench.commands.group import (
    command_line,
    epsilon_option,
    list_option,
    names,
    numbers,
    page_command,
    tries_option,
)
from dagveil_bench.notears_peers import Error, comparison_page, list_cases
from dagveil_bench.notears_peers import compare as compare_notears
from dagveil_bench.plan_cost import NETWORKS, Case, compare_costs, cost_page
from dagveil_bench.scale import run_scale, scale_page
from dagveil_bench.speed import CASES, speed_page, time_loading, time_runs

_LAWS = {law.name.lower(): law for law in Error}
_MEASURES = {measure.value: measure for measure in Acyclicity}


@page_command("Time private runs beside non-private peers, and loading.")
@tries_option(5)
@epsilon_option
@click.option("--load-rows", type=click.IntRange(1), default=10_000_000, help="Rows of the file to load.")
@click.option("--load-columns", type=click.IntRange(2), default=20, help="Columns of that file.")
@list_option("--cases", CASES, names(CASES), "Networks to run on.")
def speed(tries: int, epsilon: float, load_rows: int, load_columns: int, cases: list[str], progress: Progress) -> str:
    """Time whole private runs beside non-private peers on the same rows, and loading beside a plain read.

    A private run is also set beside an exact PC of dagveil itself, which is not private.
    """
    runs = time_runs(tries, epsilon, progress, cases)
    return speed_page(runs, time_loading(load_rows, load_columns, min(tries, 3)), command_line())


@page_command("Compare NOTEARS with gCastle's on random graphs.")
@list_option("--nodes", (10, 20, 50), numbers(1), "Sizes of the graphs.")
@click.option("--rows", type=click.IntRange(2), default=1000, help="Rows of each sample.")
@click.option(
    "--many-rows",
    type=click.IntRange(0),
    default=100_000,
    help="Rows of one more sample per shape, with the most nodes; 0: none.",
)
@list_option("--errors", _LAWS, names(_LAWS), "Laws of the errors.")
@list_option("--measures", _MEASURES, names(_MEASURES), "Our measures of cycles.")
@click.option("--edges", type=click.IntRange(1), default=2, help="Edges per node.")
@list_option("--runs", (5,), numbers(1), "Samples per setting: one number, or one per size.")
@click.option("--seed", type=click.IntRange(0), default=101, help="Seed of the first sample.")
@click.option(
    "--limit",
    type=click.FloatRange(0),
    default=600.0,
    help="CPU seconds after which a fit of gCastle is given up; 0: no gCastle.",
)
@click.option("--workers", type=click.IntRange(1), default=1, help="Samples at the same time.")
def notears(
    nodes: list[int],
    rows: int,
    many_rows: int,
    errors: list[str],
    measures: list[str],
    edges: int,
    runs: list[int],
    seed: int,
    limit: float,
    workers: int,
    progress: Progress,
) -> str:
    """Fit linear NOTEARS and gCastle's, which must be installed with PyTorch, to the same rows of random graphs."""
    counts = runs * len(nodes) if len(runs) == 1 else runs
    if len(counts) != len(nodes):
        raise click.UsageError(f"--runs must be one number or {len(nodes)}, one for each size, all 1 or more")
    laws, tried = [_LAWS[name] for name in errors], [_MEASURES[name] for name in measures]
    cases = list_cases(dict(zip(nodes, counts, strict=True)), rows, many_rows, laws, edges)
    fits = compare_notears(
        cases, list(cases.values()), seed, limit, lambda fit: click.echo(fit, err=True), tried, workers
    )
    return comparison_page(fits, command_line())


@page_command("Compare the forecasts of `dagveil plan` with real runs.")
@list_option("--networks", NETWORKS, names(NETWORK_NAMES), "Names of networks.")
@click.option("--rows", type=click.IntRange(1), default=20_000, help="Rows of each file.")
@epsilon_option
@click.option("--redraws", type=click.IntRange(0), default=10, help="Redraws of each search.")
def cost(networks: list[str], rows: int, epsilon: float, redraws: int, progress: Progress) -> str:
    """Time this machine, foresee runs on known networks, and set the real runs beside that."""
    cases = [Case(name, rows, epsilon, redraws) for name in networks]
    return cost_page(compare_costs(cases, measure_speed(), progress), cases, command_line())


@page_command("Time a table larger than memory beside DuckDB's own scan.")
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
def scale(
    rows: int, columns: int, engine: str, memory_limit: str, folder: str | None, epsilon: float, progress: Progress
) -> str:
    """Write a synthetic table to disk in pieces, count it where it is, and discover its graph.

    The times stand beside those of a plain DuckDB query that scans the files once and groups by all columns.
    """
    read_bytes(memory_limit)
    place = Path(folder) if folder else None
    study = run_scale(rows, columns, Engine(engine), memory_limit, place, epsilon, progress)
    return scale_page(study, command_line())


@page_command("Time, memory and utility as a table gets wider.")
@list_option("--levels", (50, 100, 300), numbers(2, or_none=True), "Numbers of columns with levels.")
@list_option("--numbers", (100, 300, 1000), numbers(2, or_none=True), "Numbers of numeric columns.")
@list_option("--rows", (100_000,), numbers(1), "Rows of each table.")
@list_option("--epsilons", (1,), numbers(), "Budgets to try.")
@list_option(
    "--method",
    ("measure",),
    names(wide_tables.WIDE_METHODS),
    f"Some of {', '.join(wide_tables.WIDE_METHODS)}.",
)
@click.option("--seed", type=click.IntRange(0), default=1, help="Seed of the synthetic tables.")
def wide(
    levels: list[int],
    numbers: list[int],
    rows: list[int],
    epsilons: list[float],
    method: list[str],
    seed: int,
    progress: Progress,
) -> str:
    """Run methods that release evidence on synthetic tables of more and more columns.

    Write none for a kind of columns to leave it out.
    """
    cases = [
        wide_tables.WideCase(kind, columns, n_rows, epsilon, seed, name)
        for kind, sizes in ((wide_tables.WideKind.LEVELS, levels), (wide_tables.WideKind.NUMBERS, numbers))
        for epsilon, n_rows, columns, name in product(epsilons, rows, sizes, method)
    ]
    if not cases:
        raise click.UsageError("both kinds of columns are left out; give --levels or --numbers")
    return wide_tables.wide_page(wide_tables.run_wide(cases, progress), command_line())


@page_command("Fit how time grows with rows, columns and levels.")
@list_option("--rows", (25_000, 50_000, 100_000, 200_000), numbers(2), "Rows to try.")
@list_option("--columns", (10, 20, 40, 80), numbers(2), "Columns to try.")
@list_option("--levels", (2, 4, 8, 16), numbers(2), "Levels to try.")
@tries_option(3)
@click.option("--plot", metavar="FILE", help="Also draw the times into this SVG file.")
def growth(
    rows: list[int], columns: list[int], levels: list[int], tries: int, plot: str | None, progress: Progress
) -> str:
    """Time each stage of a run while one size changes, and fit the power with which it grows.

    The other sizes stay at the second number of their lists.
    """
    sizes = wide_tables.Sizes(tuple(rows), tuple(columns), tuple(levels))
    if plot:
        check_writable(Path(plot))
    points = wide_tables.measure_growth(sizes, tries, progress)
    if plot:
        wide_tables.draw_growth(points, plot)
    return wide_tables.growth_page(points, sizes, command_line())
