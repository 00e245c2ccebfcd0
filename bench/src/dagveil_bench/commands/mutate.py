"""`dagveil bench mutate`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.terminal import show_progress
from dagveil_bench.commands.group import bench, command_line, output_option, publish
from dagveil_bench.mutated import run_mutations, write_tally
from dagveil_bench.mutated_readers import find_readers


@bench.command(short_help="Read damaged and hostile inputs of every kind.")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="Inputs in all.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the mutations.")
@click.option("--seconds", type=click.FloatRange(0.1), default=10.0, show_default=True, help="For one input.")
@click.option("--only", metavar="READER", help="One kind of input, as the table names it.")
@click.option(
    "--keep", type=click.Path(exists=True, file_okay=False), help="Folder for the first input of each failure."
)
@output_option
@click.pass_context
def mutate(
    context: click.Context,
    /,
    count: int,
    seed: int,
    seconds: float,
    only: str | None,
    keep: str | None,
    output: str | None,
) -> None:
    """Mutate sound inputs of every kind, and read each in a process that may die.

    Bytes flip, pieces vanish or return, and values of documents become odd ones, which are then sealed again. An input
    must be read or refused with a sentence. The exit code is 1 if one crashed or hung its reader, raised anything else,
    or was charged for although it was refused.
    """
    if only is not None and only not in find_readers():
        raise click.UsageError(f"no reader is called {only!r}; choose one of {', '.join(find_readers())}")
    with show_progress() as progress:
        tally = run_mutations(find_readers, count, seed, seconds, only, None if keep is None else Path(keep), progress)
    publish(write_tally(tally, command_line()), output)
    if tally.failed:
        context.exit(1)
