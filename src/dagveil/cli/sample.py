"""`dagveil sample`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from pyarrow import csv, parquet

from dagveil.benchmarks.networks import NETWORK_NAMES, load_network
from dagveil.benchmarks.simulate import network_schema, sample_table
from dagveil.data.schema import save_schema


@click.command()
@click.argument("network", type=click.Choice(NETWORK_NAMES))
@click.option("--rows", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("-o", "--output", required=True, help="A .csv or .parquet file; NETWORK.toml beside it gets the schema.")
def sample(network: str, rows: int, seed: int, output: str) -> None:
    """Sample rows from a known network, with its schema: public data to try things on."""
    known = load_network(network)
    table = sample_table(known, rows, np.random.default_rng(seed))
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        csv.write_csv(table, path)
    schema_path = path.with_suffix(".toml")
    save_schema(network_schema(known, rows), schema_path)
    click.echo(f"wrote {rows} rows to {path} and their schema to {schema_path}")
