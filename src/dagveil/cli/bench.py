"""`dagveil bench utility | numeric | speed`."""

from __future__ import annotations

import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

import click

from dagveil.benchmarks.networks import NETWORK_NAMES
from dagveil.benchmarks.speed import time_loading, time_runs
from dagveil.benchmarks.tables import numeric_page, speed_page, utility_page
from dagveil.benchmarks.utility import Cell, Summary, run_study
from dagveil.cli.progress import show_progress


@click.group()
def bench() -> None:
    """Measure dagveil on data whose truth is known."""


_output_option = click.option("-o", "--output", help="Also write the tables to this Markdown file.")


def _study_options(command: Any) -> Any:
    """Add the options of a study with repetitions."""
    for option in (
        _output_option,
        click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="all cores"),
        click.option("--seed", type=int, default=1, show_default=True),
        click.option("--runs", type=click.IntRange(1), default=20, show_default=True, help="Runs per cell."),
    ):
        command = option(command)
    return command


@bench.command()
@click.option("--networks", default=",".join(NETWORK_NAMES), show_default=True)
@click.option("--epsilons", default="0.01,0.03,0.1,1,10", show_default=True)
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True)
@_study_options
def utility(networks: str, epsilons: str, rows: int, runs: int, seed: int, workers: int, output: str | None) -> None:
    """Score the graphs of `measure` on known networks; "random 20 0.1" is a random one."""
    names = [name.strip() for name in networks.split(",")]
    cells = [Cell(name, rows, epsilon) for epsilon, name in product(_numbers(epsilons), names)]
    _publish(utility_page(_run(cells, runs, seed, workers), _command(), "Utility on categorical networks"), output)


@bench.command()
@click.option("--nodes", default="10,20,50", show_default=True)
@click.option("--sparseness", default="0.1,0.4", show_default=True)
@click.option("--rows", default="1000,10000", show_default=True)
@click.option("--epsilons", default="0.1,1,10", show_default=True)
@click.option("--unscaled", is_flag=True, help="Do not declare spreads: runs find them privately.")
@_study_options
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
        for d, s, n, epsilon in product(_numbers(nodes), _numbers(sparseness), _numbers(rows), _numbers(epsilons))
    ]
    _publish(numeric_page(_run(cells, runs, seed, workers), _command(), "Utility on linear Gaussian networks"), output)


@bench.command()
@click.option("--tries", type=click.IntRange(1), default=5, show_default=True, help="The best of so many counts.")
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--load-rows", type=click.IntRange(1), default=10_000_000, show_default=True)
@click.option("--load-columns", type=click.IntRange(2), default=20, show_default=True)
@_output_option
def speed(tries: int, epsilon: float, load_rows: int, load_columns: int, output: str | None) -> None:
    """Time whole private runs beside non-private peers on the same rows, and loading beside a plain read."""
    with show_progress() as progress:
        runs = time_runs(tries, epsilon, progress)
        loading = time_loading(load_rows, load_columns, min(tries, 3))
    _publish(speed_page(runs, loading, _command()), output)


def _run(cells: list[Cell], runs: int, seed: int, workers: int) -> list[Summary]:
    with show_progress() as progress:
        return run_study(cells, runs, seed, workers, progress)


def _publish(page: str, output: str | None) -> None:
    click.echo(page)
    if output:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        Path(output).write_text(page + "\n", encoding="utf-8")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise click.UsageError(f"{text!r} is not a list of numbers such as 0.1,1,10") from error


def _command() -> str:
    return "dagveil " + " ".join(f'"{part}"' if " " in part or not part else part for part in sys.argv[1:])
