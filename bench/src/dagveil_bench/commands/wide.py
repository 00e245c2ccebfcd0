"""`dagveil bench wide` and `dagveil bench growth`."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import click

from dagveil.cli.output import check_writable
from dagveil.cli.terminal import show_progress
from dagveil_bench.commands.group import bench, command_line, output_option, publish, read_numbers
from dagveil_bench.wide import WIDE_METHODS, WideCase, WideKind, run_wide, wide_page
from dagveil_bench.wide_growth import Sizes, draw_growth, growth_page, measure_growth

_METHODS_TOLD = ", ".join(WIDE_METHODS)


@bench.command(short_help="Time, memory and utility as a table gets wider.")
@click.option(
    "--levels", metavar="NUMBERS", default="50,100,300", show_default=True, help="Numbers of columns with levels."
)
@click.option(
    "--numbers", metavar="NUMBERS", default="100,300,1000", show_default=True, help="Numbers of numeric columns."
)
@click.option("--rows", metavar="NUMBERS", default="100000", show_default=True, help="Rows of each table.")
@click.option("--epsilons", metavar="NUMBERS", default="1", show_default=True, help="Budgets to try.")
@click.option(
    "--method", "methods", metavar="NAMES", default="measure", show_default=True, help=f"Some of {_METHODS_TOLD}."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the synthetic tables.")
@output_option
def wide(levels: str, numbers: str, rows: str, epsilons: str, methods: str, seed: int, output: str | None) -> None:
    """Run methods that release evidence on synthetic tables of more and more columns.

    Write none for a kind of columns to leave it out.
    """
    cases = [
        WideCase(kind, columns, n_rows, epsilon, seed, method)
        for kind, text in ((WideKind.LEVELS, levels), (WideKind.NUMBERS, numbers))
        for epsilon, n_rows, columns, method in product(
            read_numbers(epsilons), _read_sizes(rows, 1), _read_widths(text), _read_methods(methods)
        )
    ]
    if not cases:
        raise click.UsageError("both kinds of columns are left out; give --levels or --numbers")
    with show_progress() as progress:
        runs = run_wide(cases, progress)
    publish(wide_page(runs, command_line()), output)


@bench.command(short_help="Fit how time grows with rows, columns and levels.")
@click.option("--rows", metavar="NUMBERS", default="25000,50000,100000,200000", show_default=True, help="Rows to try.")
@click.option("--columns", metavar="NUMBERS", default="10,20,40,80", show_default=True, help="Columns to try.")
@click.option("--levels", metavar="NUMBERS", default="2,4,8,16", show_default=True, help="Levels to try.")
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Number of timing attempts; the fastest is reported.",
)
@click.option("--plot", metavar="FILE", help="Also draw the times into this SVG file.")
@output_option
def growth(rows: str, columns: str, levels: str, tries: int, plot: str | None, output: str | None) -> None:
    """Time each stage of a run while one size changes, and fit the power with which it grows.

    The other sizes stay at the second number of their lists.
    """
    sizes = Sizes(*(tuple(_read_sizes(text, 2)) for text in (rows, columns, levels)))
    if plot:
        check_writable(Path(plot))
    with show_progress() as progress:
        points = measure_growth(sizes, tries, progress)
    if plot:
        draw_growth(points, plot)
    publish(growth_page(points, sizes, command_line()), output)


def _read_methods(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in WIDE_METHODS]:
        raise click.UsageError(f"--method {', '.join(unknown)}: choose from {_METHODS_TOLD}")
    return list(dict.fromkeys(names))


def _read_widths(text: str) -> list[int]:
    return [] if text.strip() == "none" else _read_sizes(text, 2)


def _read_sizes(text: str, least: int) -> list[int]:
    numbers = read_numbers(text)
    if any(number != int(number) or number < least for number in numbers):
        raise click.UsageError(f"{text!r} is not a list of whole numbers of at least {least}")
    return [int(number) for number in numbers]
