"""What the commands of `dagveil bench` have in common."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import click

from dagveil.cli.failure import PlainGroup
from dagveil.cli.output import check_writable, write_output
from dagveil_bench.studies.machine import THREADS

Chosen = TypeVar("Chosen")


@click.group(cls=PlainGroup)
def bench() -> None:
    """Measure dagveil on data whose truth is known.

    These studies take minutes to hours with their defaults; fewer runs, networks or rows make them short. Where an
    option takes a list, write it with commas.
    """


def _check_output(_: click.Context, __: click.Parameter, output: str | None) -> str | None:
    """Refuse a place that cannot be written before the hours are spent."""
    if output:
        check_writable(Path(output))
    return output


epsilon_option = click.option(
    "--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, help="Budget of each run."
)


output_option = click.option(
    "-o", "--output", metavar="FILE", callback=_check_output, help="Also write the tables to this Markdown file."
)


workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="all cores",
    help="Processes that share the work.",
)


def publish(page: str, output: str | None) -> None:
    """Print a page, and write it where one asked for it."""
    click.echo(page)
    if output:
        write_output(Path(output), f"{page}\n".encode())


def read_numbers(text: str) -> list[float]:
    """Read a list of positive numbers with commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < math.inf for number in numbers):
        raise click.UsageError(f"{text!r} is not a list of positive numbers such as 0.1,1,10")
    return numbers


def command_line() -> str:
    """Return the command that is running, as a reader would type it, with the threads that its times depend on."""
    threads = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    words = [f'"{part}"' if " " in part or not part else part for part in sys.argv[1:]]
    return " ".join([*threads, "dagveil", *words])


def choose(name: str, choices: Mapping[str, Chosen]) -> Chosen:
    """Return what a name stands for, or say what can be chosen."""
    if name.strip() not in choices:
        raise click.UsageError(f"{name.strip()!r} is none of {', '.join(choices)}")
    return choices[name.strip()]


def read_sizes(text: str, least: int) -> list[int]:
    """Read a list of whole numbers with commas, none below `least`."""
    numbers = read_numbers(text)
    if any(number != int(number) or number < least for number in numbers):
        raise click.UsageError(f"{text!r} is not a list of whole numbers of at least {least}")
    return [int(number) for number in numbers]
