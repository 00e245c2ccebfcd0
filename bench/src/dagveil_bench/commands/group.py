"""What the commands of `dagveil bench` have in common."""

import math
import os
import sys
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from dagveil.cli.failure import PlainGroup
from dagveil.cli.output import check_writable, show_progress, write_output
from dagveil_bench.studies.machine import THREADS

FC = TypeVar("FC", bound=Callable[..., Any])


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


workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="all cores",
    help="Processes that share the work.",
)


output_option = click.option(
    "-o", "--output", metavar="FILE", callback=_check_output, help="Also write the tables to this Markdown file."
)


def publish(page: str, output: str | None) -> None:
    """Print a page, and write it where one asked for it."""
    click.echo(page)
    if output:
        write_output(Path(output), f"{page}\n".encode())


def page_command(short_help: str, name: str | None = None, *, lines: bool = False) -> Callable[..., click.Command]:
    """Return a decorator: what returns a page, and tells its `progress`, becomes a command that prints or writes it."""

    def decorate(write: Callable[..., str]) -> click.Command:
        @output_option
        @wraps(write)
        def run(output: str | None, **given: Any) -> None:
            with show_progress(lines=lines) as progress:
                page = write(progress=progress, **given)
            publish(page, output)

        return bench.command(name or write.__name__, short_help=short_help)(run)

    return decorate


def tries_option(tries: int) -> Callable[[FC], FC]:
    """Return the option that says how often each program is timed."""
    return click.option(
        "--tries", type=click.IntRange(1), default=tries, help="Number of timing attempts; the fastest is reported."
    )


Reader = Callable[[click.Context, click.Parameter, str | None], Any]


def names(known: Collection[str] = ()) -> Reader:
    """Return what reads names with commas, each among those that are `known`, if these are given."""

    def read(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
        if text is None:
            return None
        found = [name.strip() for name in text.split(",") if name.strip()]
        if known and (unknown := [name for name in found if name not in known]):
            raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}")
        return list(dict.fromkeys(found))

    return read


def numbers(least: int | None = None, *, or_none: bool = False) -> Reader:
    """Return what reads positive numbers with commas: whole ones, none below `least`, if that is given.

    With `or_none`, the word none is a list without any.
    """

    def read(_: click.Context, __: click.Parameter, text: str | None) -> list[float] | list[int]:
        assert text is not None
        if or_none and text.strip() == "none":
            return []
        try:
            found = [float(part) for part in text.split(",")]
        except ValueError:
            found = []
        if not found or not all(0 < number < math.inf for number in found):
            raise click.BadParameter(f"{text!r} is not a list of positive numbers such as 0.1,1,10")
        if least is None:
            return found
        if any(number != int(number) or number < least for number in found):
            raise click.BadParameter(f"{text!r} is not a list of whole numbers of at least {least}")
        return [int(number) for number in found]

    return read


def list_option(flag: str, default: Iterable[object] | None, read: Reader, words: str) -> Callable[[FC], FC]:
    """Return an option that takes a list, with a default; None is left to the command."""
    listed = [f"{item:g}" if isinstance(item, float) else str(item) for item in default or ()]
    return click.option(flag, metavar="LIST", callback=read, default=",".join(listed) or None, help=words)


def command_line() -> str:
    """Return the command that is running, as a reader would type it, with the threads that its times depend on."""
    threads = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    words = [f'"{part}"' if " " in part or not part else part for part in sys.argv[1:]]
    return " ".join([*threads, "dagveil", *words])
