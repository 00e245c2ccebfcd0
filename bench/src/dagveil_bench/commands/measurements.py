"""`dagveil bench`: studies on data whose truth is known, each a command that writes its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click

from dagveil.cli.options import read_options
from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import show_progress
from dagveil.examples.networks import NETWORK_NAMES, load_network
from dagveil.methods.catalogue import METHODS, method_named
from dagveil.methods.lap_mech import MOST_CELLS
from dagveil.papers.publication import read_settings
from dagveil.privacy.receipt import Calibration
from dagveil.search.score.acyclicity import Acyclicity
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers, study_options
from dagveil_bench.faithful import EXACT_F1, EXACT_QUESTIONS, FIGURES, compare, run_without_noise
from dagveil_bench.local_aware import aware_page, list_aware_settings, measure_size, run_aware_study
from dagveil_bench.local_figures import draw_figures
from dagveil_bench.local_study import list_settings, run_local_study
from dagveil_bench.local_tables import local_csv, local_page
from dagveil_bench.notears_peers import Error, comparison_page, list_cases
from dagveil_bench.notears_peers import compare as compare_notears
from dagveil_bench.score_speed import Peer, score_speed_page, time_scores
from dagveil_bench.speed import CASES, FOR_NUMBERS, time_loading, time_methods, time_runs
from dagveil_bench.speed_history import append_entry, list_ratios, make_entry, read_history, tell_changes
from dagveil_bench.tables import (
    faithful_page,
    methods_page,
    methods_speed_page,
    numeric_page,
    speed_page,
    utility_page,
)
from dagveil_bench.utility import Cell, Summary, run_study

Chosen = TypeVar("Chosen")

COUNTING = tuple(name for name in METHODS if name not in FOR_NUMBERS)
"""Methods that count levels."""

SMALL = ("cancer", "earthquake", "survey", "asia", "sachs", "child")


@bench.command()
@click.option(
    "--networks",
    metavar="NAMES",
    default=",".join(NETWORK_NAMES),
    show_default="all of the package",
    help='Names of networks; "random 20 0.1" is a random one of 20 nodes and sparseness 0.1.',
)
@click.option("--epsilons", metavar="NUMBERS", default="0.01,0.03,0.1,1,10", show_default=True, help="Budgets to try.")
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="Rows of each sample.")
@study_options
def utility(networks: str, epsilons: str, rows: int, runs: int, seed: int, workers: int, output: str | None) -> None:
    """Score the graphs of `measure` on known categorical networks."""
    names = [name.strip() for name in networks.split(",")]
    cells = [Cell(name, rows, epsilon) for epsilon, name in product(read_numbers(epsilons), names)]
    publish(utility_page(_run(cells, runs, seed, workers), command_line(), "Utility on categorical networks"), output)


@bench.command(short_help="Score `measure` on random linear Gaussian networks.")
@click.option("--nodes", metavar="NUMBERS", default="10,20,50", show_default=True, help="Sizes of the networks.")
@click.option(
    "--sparseness", metavar="NUMBERS", default="0.1,0.4", show_default=True, help="Shares of pairs that are joined."
)
@click.option("--rows", metavar="NUMBERS", default="1000,10000", show_default=True, help="Rows of each sample.")
@click.option("--epsilons", metavar="NUMBERS", default="0.1,1,10", show_default=True, help="Budgets to try.")
@click.option("--unscaled", is_flag=True, help="Do not declare spreads: runs find them privately.")
@study_options
def numeric(
    nodes: str,
    sparseness: str,
    rows: str,
    epsilons: str,
    unscaled: bool,
    runs: int,
    seed: int,
    workers: int,
    output: str | None,
) -> None:
    """Score the graphs of `measure` on random linear Gaussian networks."""
    kind = "gaussian-unscaled" if unscaled else "gaussian"
    cells = [
        Cell(f"{kind} {int(d)} {s:g}", int(n), epsilon)
        for d, s, n, epsilon in product(
            read_numbers(nodes), read_numbers(sparseness), read_numbers(rows), read_numbers(epsilons)
        )
    ]
    publish(
        numeric_page(_run(cells, runs, seed, workers), command_line(), "Utility on linear Gaussian networks"), output
    )


@bench.command(short_help="Compare all methods in their sound calibration.")
@click.option(
    "--methods",
    "names",
    metavar="NAMES",
    default=",".join(COUNTING),
    show_default="all on counts",
    help="Names of methods.",
)
@click.option(
    "--networks", metavar="NAMES", default=",".join(SMALL), show_default=True, help="Names of networks, or random ones."
)
@click.option("--epsilons", metavar="NUMBERS", default="0.1,1,10", show_default=True, help="Budgets to try.")
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="Rows of each sample.")
@study_options
def methods(
    names: str, networks: str, epsilons: str, rows: int, runs: int, seed: int, workers: int, output: str | None
) -> None:
    """Score the sound calibration of every method on known networks, on the same samples."""
    chosen = [_read_method(item.strip()) for item in names.split(",")]
    cells = [
        Cell(network.strip(), rows, epsilon, 1e-6, *method)
        for epsilon, method, network in product(read_numbers(epsilons), chosen, networks.split(","))
        if _fits(method[0], network.strip())
    ]
    publish(methods_page(_run(cells, runs, seed, workers), command_line()), output)


def _read_method(item: str) -> tuple[str, Calibration, tuple[tuple[str, Any], ...]]:
    """Read NAME, NAME:paper or NAME:setting=value; parts after colons may be repeated."""
    name, *parts = item.split(":")
    calibration = Calibration.PAPER if "paper" in parts else Calibration.SOUND
    options = read_options(tuple(part for part in parts if part != "paper"))
    read_settings(method_named(name), calibration, options)
    return name, calibration, tuple(options.items())


def _fits(method: str, network: str) -> bool:
    """Tell whether a method can take a network: lap-mech needs a small domain."""
    if method != "lap-mech" or network not in NETWORK_NAMES:
        return True
    return math.prod(map(len, load_network(network).levels.values())) <= MOST_CELLS


@bench.command(short_help="Compare the paper calibrations with the authors' programs.")
@click.option(
    "--methods", "names", metavar="NAMES", default=",".join(FIGURES), show_default=True, help="Names of methods."
)
@click.option("--networks", metavar="NAMES", default=",".join(EXACT_F1), show_default=True, help="Names of networks.")
@click.option("--samples", type=click.IntRange(2), default=10, show_default=True, help="Samples of each network.")
@study_options
def faithful(names: str, networks: str, samples: int, runs: int, seed: int, workers: int, output: str | None) -> None:
    """Run the paper calibrations at the reported epsilons of the published figures, and without noise."""
    methods = [method_named(name.strip()).name for name in names.split(",")]
    sources = [name.strip() for name in networks.split(",")]
    with show_progress() as progress:
        comparisons = compare(methods, sources, samples, runs, seed, workers, progress)
        smaller = [name for name in sources if name in EXACT_QUESTIONS] or sources
        quiet = run_without_noise(methods, smaller, runs, seed, workers, progress)
    publish(faithful_page(comparisons, quiet, command_line()), output)


@bench.command(short_help="Time private runs beside non-private peers, and loading.")
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of timing attempts; the fastest is reported.",
)
@click.option(
    "--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Budget of each run."
)
@click.option(
    "--load-rows", type=click.IntRange(1), default=10_000_000, show_default=True, help="Rows of the file to load."
)
@click.option("--load-columns", type=click.IntRange(2), default=20, show_default=True, help="Columns of that file.")
@click.option("--cases", metavar="NAMES", default=",".join(CASES), show_default=True, help="Networks to run on.")
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
        lines, warnings = tell_changes(before, now)
        click.echo("\n".join(lines))
        for warning in warnings:
            click.echo(f"Warning: {warning}", err=True)


@bench.command("methods-speed", short_help="Time every method beside a non-private peer.")
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of timing attempts; the fastest is reported.",
)
@click.option(
    "--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Budget of each run."
)
@output_option
def methods_speed(tries: int, epsilon: float, output: str | None) -> None:
    """Time every method, in both calibrations, beside causal-learn's non-private PC on the same rows."""
    with show_progress() as progress:
        timings = time_methods(tries, epsilon, progress)
    publish(methods_speed_page(timings, command_line()), output)


@bench.command(short_help="Compare NOTEARS with gCastle's on random graphs.")
@click.option("--nodes", metavar="NUMBERS", default="10,20,50", show_default=True, help="Sizes of the graphs.")
@click.option("--rows", type=click.IntRange(2), default=1000, show_default=True, help="Rows of each sample.")
@click.option(
    "--many-rows",
    type=click.IntRange(0),
    default=100_000,
    show_default=True,
    help="Rows of one more sample per shape, with the most nodes; 0: none.",
)
@click.option(
    "--errors",
    metavar="NAMES",
    default=",".join(law.name.lower() for law in Error),
    show_default=True,
    help="Laws of the errors.",
)
@click.option(
    "--measures",
    metavar="NAMES",
    default=",".join(measure.value for measure in Acyclicity),
    show_default=True,
    help="Our measures of cycles.",
)
@click.option("--edges", type=click.IntRange(1), default=2, show_default=True, help="Edges per node.")
@click.option(
    "--runs",
    metavar="NUMBERS",
    default="5",
    show_default=True,
    help="Samples per setting: one number, or one per size.",
)
@click.option("--seed", type=click.IntRange(0), default=101, show_default=True, help="Seed of the first sample.")
@click.option(
    "--limit",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    help="CPU seconds after which a fit of gCastle is given up; 0: no gCastle.",
)
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Samples at the same time.")
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
@click.option("--network", default="child", show_default=True, help="Network whose rows both programs get.")
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="How many.")
@click.option("--nodes", type=click.IntRange(2), default=200, show_default=True, help="Numeric columns.")
@click.option("--sizes", metavar="NUMBERS", default="10000,100000", show_default=True, help="Rows of numeric columns.")
@click.option(
    "--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Budget of each run."
)
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of timing attempts; the fastest is reported.",
)
@click.option(
    "--peer",
    type=click.Choice([peer.value for peer in Peer]),
    default=Peer.CAUSAL_LEARN.value,
    show_default=True,
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


@bench.command(short_help="Run nine algorithms on locally randomised records.")
@click.option(
    "--data",
    metavar="NAMES",
    default="sachs,galton,synth10,synth5,pairs",
    show_default=True,
    help="Data sets; the first two and pairs ship in other packages and have stand-ins such as sachs-simulated.",
)
@click.option(
    "--p-max", metavar="NUMBERS", default="0.05,0.1,0.5", show_default=True, help="Probabilities of the true record."
)
@click.option("--algorithms", metavar="NAMES", default=None, show_default="all", help="Names of algorithms.")
@click.option("--most-rows", type=click.IntRange(10), default=1000, show_default=True, help="Rows of each pair.")
@click.option("--most-bins", type=click.IntRange(2, 100), default=20, show_default=True, help="Bins of each pair.")
@partial(study_options, runs=5)
def local(
    data: str,
    p_max: str,
    algorithms: str | None,
    most_rows: int,
    most_bins: int,
    runs: int,
    seed: int,
    workers: int,
    output: str | None,
) -> None:
    """Run nine algorithms on records that four local mechanisms have randomised, at equal protection.

    With -o, a CSV file and a figure for each data set are written beside the page.
    """
    names = [name.strip() for name in data.split(",")]
    chosen = None if algorithms is None else [name.strip() for name in algorithms.split(",")]
    settings = list_settings(names, read_numbers(p_max), most_rows, most_bins)
    with show_progress() as progress:
        outcomes = run_local_study(settings, runs, seed, workers, progress, chosen)
    figures, file = {}, None
    if output:
        stem = Path(output).with_suffix("")
        file = f"{stem.name}.csv"
        write_output(stem.with_name(file), local_csv(outcomes).encode())
        figures = draw_figures(outcomes, stem)
    publish(local_page(outcomes, command_line(), figures, file), output)


@bench.command("local-aware", short_help="Compare PC that knows a local channel with blind PC.")
@click.option("--epsilons", metavar="NUMBERS", default="5,10", show_default=True, help="Exact ε per record.")
@click.option("--sizes", metavar="NUMBERS", default="5000,50000,500000", show_default=True, help="Records.")
@click.option("--repeats", type=click.IntRange(10), default=2000, show_default=True, help="Samples for the size.")
@partial(study_options, runs=50)
def local_aware(
    epsilons: str, sizes: str, repeats: int, runs: int, seed: int, workers: int, output: str | None
) -> None:
    """Search the same reports with and without knowledge of their channel, and measure the size of both tests."""
    counts = [int(number) for number in read_numbers(sizes)]
    with show_progress() as progress:
        outcomes = run_aware_study(list_aware_settings(read_numbers(epsilons), counts), runs, seed, workers, progress)
        found = [size for n in counts for size in measure_size(n, repeats, seed)]
    publish(aware_page(outcomes, found, command_line()), output)


def _run(cells: list[Cell], runs: int, seed: int, workers: int) -> list[Summary]:
    with show_progress() as progress:
        return run_study(cells, runs, seed, workers, progress)


def _choose(name: str, choices: Mapping[str, Chosen]) -> Chosen:
    if name.strip() not in choices:
        raise click.UsageError(f"{name.strip()!r} is none of {', '.join(choices)}")
    return choices[name.strip()]
