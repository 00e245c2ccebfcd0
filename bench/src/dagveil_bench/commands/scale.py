"""`dagveil bench scale`."""

from __future__ import annotations

from pathlib import Path

import click

from dagveil.cli.terminal import show_progress
from dagveil.data.engine import Engine
from dagveil.data.machine import read_bytes
from dagveil_bench.commands.group import bench, command_line, output_option, publish
from dagveil_bench.scale import run_scale, scale_page


@bench.command(short_help="Time a table larger than memory beside DuckDB's own scan.")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Rows of the table.")
@click.option("--columns", type=click.IntRange(2, 1000), default=20, show_default=True, help="Columns of the table.")
@click.option(
    "--engine",
    type=click.Choice([engine.value for engine in Engine if engine is not Engine.AUTO]),
    default=Engine.DUCKDB.value,
    show_default=True,
    help="What counts the rows; spark starts two workers on this machine and counts beside DuckDB.",
)
@click.option("--memory-limit", metavar="SIZE", default="8GB", show_default=True, help="For DuckDB.")
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Where the files go while this runs.")
@click.option("--epsilon", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Budget.")
@output_option
def scale(
    rows: int, columns: int, engine: str, memory_limit: str, folder: str | None, epsilon: float, output: str | None
) -> None:
    """Write a synthetic table to disk in pieces, count it where it is, and discover its graph.

    The times stand beside those of a plain DuckDB query that scans the files once and groups by all columns.
    """
    read_bytes(memory_limit)
    place = Path(folder) if folder else None
    with show_progress() as progress:
        study = run_scale(rows, columns, Engine(engine), memory_limit, place, epsilon, progress)
    publish(scale_page(study, command_line()), output)
