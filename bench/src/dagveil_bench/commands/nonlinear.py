"""`dagveil bench kernel-speed | levels | nonlinear`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.terminal import show_progress
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers, study_options
from dagveil_bench.kernel_speed import compare, compare_graphs, kernel_speed_page
from dagveil_bench.level_tables import draw_levels, levels_page
from dagveil_bench.levels import TESTS, Design, list_trials, run_trials
from dagveil_bench.nonlinear_study import CONTENDERS, count_columns, list_cells, nonlinear_page
from dagveil_bench.utility import run_study

BUDGETS = "0.1,0.2,0.4,0.8,1,2,4,8"
"""Those of the publication."""


@bench.command("kernel-speed", short_help="Time kernel tests beside causal-learn's.")
@click.option("--rows", type=click.IntRange(10), default=2000, show_default=True, help="Rows of the sample.")
@click.option("--permutations", type=click.IntRange(1), default=100, show_default=True, help="Of our tests.")
@click.option("--given", metavar="NUMBERS", default="1,5", show_default=True, help="Numbers of conditioning columns.")
@click.option("--network", default="alarm", show_default=True, help="Graph of the rows for whole searches.")
@click.option("--graph-rows", type=click.IntRange(10), default=50_000, show_default=True, help="How many.")
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help="Number of timing attempts; the fastest is reported.",
)
@output_option
def kernel_speed(
    rows: int, permutations: int, given: str, network: str, graph_rows: int, tries: int, output: str | None
) -> None:
    """Time exact RCIT and its linear form beside causal-learn's KCI, FastKCI and RCIT on the same rows."""
    with show_progress() as progress:
        timings = compare(rows, permutations, [int(number) for number in read_numbers(given)], tries, progress)
        graphs = compare_graphs(network, graph_rows, tries, progress)
    publish(kernel_speed_page(timings, graphs, command_line()), output)


@bench.command(short_help="Measure level and power of private tests.")
@click.option("--rows", metavar="NUMBERS", default="200,500,2000", show_default=True, help="Rows of the samples.")
@click.option("--epsilons", metavar="NUMBERS", default=BUDGETS, show_default=True, help="Budgets of one test.")
@click.option("--tests", metavar="NAMES", help="Tests, separated by ';'. All if not given.")
@click.option("--figure", type=click.Path(dir_okay=False), help="Also draw the figure, as SVG.")
@study_options
def levels(
    rows: str,
    epsilons: str,
    tests: str | None,
    runs: int,
    seed: int,
    workers: int,
    figure: str | None,
    output: str | None,
) -> None:
    """Reject true and false independence by every private test, on the two designs of PCD's simulation."""
    names = [name.strip() for name in tests.split(";")] if tests else list(TESTS)
    unknown = [name for name in names if name not in TESTS]
    if unknown:
        raise click.UsageError(f"{unknown[0]!r} is none of {'; '.join(TESTS)}")
    sizes = [int(number) for number in read_numbers(rows)]
    trials = list_trials(names, list(Design), sizes, read_numbers(epsilons), runs, seed)
    with show_progress() as progress:
        found = run_trials(trials, workers, progress)
    if figure:
        Path(figure).parent.mkdir(parents=True, exist_ok=True)
        draw_levels(found, figure)
    publish(levels_page(found, command_line(), figure), output)


@bench.command(short_help="Score methods on nonlinear numeric columns.")
@click.option(
    "--networks", metavar="NAMES", default="cancer,asia,child,alarm", show_default=True, help="Graphs; or sachs-cells."
)
@click.option("--rows", metavar="NUMBERS", default="1000,2000,4000,8000,50000", show_default=True, help="Rows.")
@click.option("--epsilons", metavar="NUMBERS", default=BUDGETS, show_default=True, help="Total budgets.")
@click.option("--contenders", metavar="NUMBERS", help="Which of the methods, by position from 1. All if not given.")
@study_options
def nonlinear(
    networks: str,
    rows: str,
    epsilons: str,
    contenders: str | None,
    runs: int,
    seed: int,
    workers: int,
    output: str | None,
) -> None:
    """Score methods on the nonlinear simulation of PCD over the graphs of known networks."""
    places = [int(number) for number in read_numbers(contenders)] if contenders else range(1, len(CONTENDERS) + 1)
    if any(not 1 <= place <= len(CONTENDERS) for place in places):
        listed = "; ".join(f"{place} {contender.title}" for place, contender in enumerate(CONTENDERS, 1))
        raise click.UsageError(f"choose from {listed}")
    names = [name.strip() for name in networks.split(",")]
    cells = list_cells(
        [CONTENDERS[place - 1] for place in places],
        [(name, count_columns(name)) for name in names],
        [int(number) for number in read_numbers(rows)],
        read_numbers(epsilons),
    )
    with show_progress() as progress:
        summaries = run_study(list(cells), runs, seed, workers, progress)
    publish(nonlinear_page(summaries, cells, command_line(), "Graphs from nonlinear numeric columns"), output)
