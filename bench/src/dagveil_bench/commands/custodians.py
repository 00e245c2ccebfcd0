"""`dagveil bench custodians` and `dagveil bench cost`."""

from __future__ import annotations

import click

from dagveil.cli.terminal import show_progress
from dagveil.examples.networks import load_network
from dagveil.runs.machine_speed import measure_speed
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers, study_options
from dagveil_bench.custodians import custodians_page, run_custodians
from dagveil_bench.plan_cost import NETWORKS, Case, compare_costs, cost_page


@bench.command(short_help="Score graphs from the added evidence of several sites.")
@click.option("--networks", metavar="NAMES", default="sachs,child", show_default=True, help="Names of networks.")
@click.option("--epsilons", metavar="NUMBERS", default="0.1,1,10", show_default=True, help="Budgets of each site.")
@click.option("--sites", metavar="NUMBERS", default="1,2,5,20", show_default=True, help="Numbers of sites.")
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True, help="Rows of all sites together.")
@lambda command: study_options(command, runs=10)
def custodians(
    networks: str, epsilons: str, sites: str, rows: int, runs: int, seed: int, workers: int, output: str | None
) -> None:
    """Deal the rows of known networks out to several sites, add their evidence, and compare with the pooled run."""
    names = [name.strip() for name in networks.split(",")]
    for name in names:
        load_network(name)
    counts = [int(number) for number in read_numbers(sites)]
    if rows < max(counts):
        raise click.UsageError(f"{rows} rows cannot be dealt out to {max(counts)} sites")
    with show_progress() as progress:
        lines = run_custodians(names, read_numbers(epsilons), counts, rows, runs, seed, workers, progress)
    publish(custodians_page(lines, rows, runs, command_line()), output)


@bench.command(short_help="Compare the forecasts of `dagveil plan` with real runs.")
@click.option("--networks", metavar="NAMES", default=",".join(NETWORKS), show_default=True, help="Names of networks.")
@click.option("--rows", type=click.IntRange(1), default=20_000, show_default=True, help="Rows of each file.")
@click.option("--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Budget.")
@click.option("--redraws", type=click.IntRange(0), default=10, show_default=True, help="Redraws of each search.")
@output_option
def cost(networks: str, rows: int, epsilon: float, redraws: int, output: str | None) -> None:
    """Time this machine, foresee runs on known networks, and set the real runs beside that."""
    cases = [Case(name.strip(), rows, epsilon, redraws) for name in networks.split(",")]
    for case in cases:
        load_network(case.network)
    with show_progress() as progress:
        found = compare_costs(cases, measure_speed(), progress)
    publish(cost_page(found, cases, command_line()), output)
