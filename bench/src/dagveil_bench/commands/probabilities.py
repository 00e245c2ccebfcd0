"""`dagveil bench probabilities`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.output import show_progress
from dagveil_bench import probabilities as likely
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers


@bench.command(short_help="Hold probabilities of edges and arrows against known graphs.")
@click.option("--fit", is_flag=True, help="Fit the correction on its own networks instead, and print its constants.")
@click.option("--rows", metavar="NUMBERS", default="2000,10000,100000", help="Rows of the tables.")
@click.option("--epsilons", metavar="LIST", default="0.1,1,10", help="Budgets.")
@click.option("--runs", type=click.IntRange(1), default=1, help="Tables of each network, rows and budget.")
@click.option("--redraws", type=click.IntRange(20), default=50, help="Redraws of each search.")
@click.option("--networks", metavar="NAMES", help="Networks to use instead.")
@click.option("--figure", metavar="FILE.svg", help="Draw what is said and what is true into this file.")
@output_option
def probabilities(
    fit: bool,
    rows: str,
    epsilons: str,
    runs: int,
    redraws: int,
    networks: str | None,
    figure: str | None,
    output: str | None,
) -> None:
    """Hold probabilities of edges and arrows against known graphs that the correction was not fitted on."""
    grid = [int(number) for number in read_numbers(rows)], read_numbers(epsilons), runs
    kinds = networks.split(",") if networks else likely.FITTED_ON if fit else likely.HELD_OUT
    with show_progress() as progress:
        found = likely.run_cases(likely.list_cases([kind.strip() for kind in kinds], *grid), redraws, progress)
        if fit:
            click.echo(likely.fit_correction([claim for one in found for claim in one.claims]))
            return
        outside = [] if networks else likely.run_cases(likely.list_cases(likely.OUTSIDE, *grid), redraws, progress)
    if figure:
        likely.draw_reliability(found, figure)
    shown = None if figure is None else Path(figure).name
    publish(likely.probabilities_page(found, outside, redraws, command_line(), shown), output)
