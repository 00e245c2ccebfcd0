"""`dagveil sample` and `dagveil synthesize`: rows that nobody gave."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from pyarrow import csv, parquet

from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import show_progress
from dagveil.data.schema import save_schema
from dagveil.examples.networks import NETWORK_NAMES, load_network, network_schema, sample_table
from dagveil.runs.synthesis import MARK, check_format
from dagveil.runs.synthesis import synthesize as draw_rows
from dagveil.text import clean_text

HELP = (
    "Sample rows from a known network and write its schema: public data, to try things on.\n\n"
    f"NETWORK is one of {', '.join(NETWORK_NAMES)}."
)


@click.command(help=HELP, short_help="Generate public example data from a known network.")
@click.argument("network", type=click.Choice(NETWORK_NAMES), metavar="NETWORK")
@click.option("--rows", type=click.IntRange(1), default=100_000, help="How many rows.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Random seed.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="A .csv or .parquet file; its schema goes to the same name with .toml. Existing files are replaced.",
)
def sample(network: str, rows: int, seed: int, output: str) -> None:
    """Write sampled rows and their schema."""
    path = Path(output)
    if path.suffix not in (".csv", ".parquet"):
        raise click.UsageError(f"the output {path.name} must end in .csv or .parquet")
    schema_path = path.with_suffix(".toml")
    check_writable(path, schema_path)
    known = load_network(network)
    table = sample_table(known, rows, np.random.default_rng(seed))
    if path.suffix == ".parquet":
        write_output(path, lambda part: parquet.write_table(table, part))
    else:
        write_output(path, lambda part: csv.write_csv(table, part))
    schema = network_schema(known, rows)
    write_output(schema_path, lambda part: save_schema(schema, part))
    click.echo(f"wrote {rows} rows to {path} and the schema of {schema.dataset!r} to {schema_path}")


@click.command(short_help="Draw synthetic rows from released evidence.")
@click.argument("evidence", metavar="EVIDENCE.json")
@click.option("--rows", type=click.IntRange(1), default=10_000, help="How many rows.")
@click.option("--seed", type=click.IntRange(0), default=1, help="Random seed.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="A .csv, .parquet, .feather or .arrow file; its schema goes to the same name with .toml. Existing files are "
    "replaced.",
)
def synthesize(evidence: str, rows: int, seed: int, output: str) -> None:
    """Draw synthetic rows from a graphical model fitted to EVIDENCE.json, at no cost.

    Every row is marked as synthetic by a column of its own. The rows show the dependences that the evidence shows; do
    not take p-values from them as if they were measured.
    """
    path = Path(output)
    check_format(path)
    schema_path = path.with_suffix(".toml")
    check_writable(path, schema_path, reads=(evidence,))
    with show_progress() as progress:
        drawn = draw_rows(evidence, rows, seed=seed, progress=progress)
    write_output(path, lambda part: drawn.save(part))
    write_output(schema_path, lambda part: save_schema(drawn.schema, part))
    click.echo(f"wrote {rows} synthetic rows, marked by the column {MARK}, to {path} and their schema to {schema_path}")
    for note in drawn.notes:
        click.echo(clean_text(note), err=True)
