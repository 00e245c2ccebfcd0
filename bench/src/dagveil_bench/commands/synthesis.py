"""`dagveil bench synthesis`."""

from __future__ import annotations

import click

from dagveil.cli.output import show_progress
from dagveil.examples.networks import NETWORK_NAMES
from dagveil_bench.commands.group import bench, command_line, output_option, publish
from dagveil_bench.synthesis import compare_all, synthesis_page


@bench.command(short_help="Compare synthetic rows with the rows behind their evidence.")
@click.option("--networks", metavar="NAMES", default="asia,sachs,child", help="Networks to run on.")
@click.option("--rows", type=click.IntRange(100), default=100_000, help="Rows of each table.")
@click.option("--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, help="Budget of each run.")
@click.option("--runs", type=click.IntRange(1), default=5, help="Runs of each network.")
@click.option(
    "--aim",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Run AIM beside, each time for at most so many seconds of the processor.",
)
@output_option
def synthesis(networks: str, rows: int, epsilon: float, runs: int, aim: float | None, output: str | None) -> None:
    """Compare synthetic rows with the rows behind their evidence: margins, and the graph that plain PC finds."""
    names = [name.strip() for name in networks.split(",")]
    if unknown := [name for name in names if name not in NETWORK_NAMES]:
        raise click.UsageError(f"{unknown[0]!r} is no network; choose from {', '.join(NETWORK_NAMES)}")
    with show_progress() as progress:
        found = compare_all(names, rows, epsilon, runs, progress, aim)
    publish(synthesis_page(found, rows, epsilon, command_line(), aim), output)
