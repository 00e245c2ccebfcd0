"""`dagveil tables`, `dagveil synthesize` and `dagveil sample`."""

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from rich.table import Column, Table

from dagveil.cli.options import option, split_names
from dagveil.cli.output import check_writable, open_console, say, show_progress, write_output
from dagveil.data.schema import save_schema
from dagveil.evidence.bundle import load_evidence
from dagveil.evidence.estimates import TableEstimate, TableOne
from dagveil.examples.networks import NETWORK_NAMES, load_network, network_schema, sample_table
from dagveil.runs.synthesis import MARK, check_format
from dagveil.runs.synthesis import synthesize as draw_rows
from dagveil.text import clean_text

NOTE = (
    "± is one standard error of the noise. Estimates are unbiased, so a rare level can have a count below 0; the rows "
    "are a sample themselves, which ± does not tell."
)

SHRUNK = (
    "Means and deviations are of rows as they were added up: clipped to the schema's bounds and shrunk to a ball. The "
    "rows' own deviations are larger."
)


@click.command(short_help="Show released evidence as tables with standard errors.")
@click.argument("evidence", metavar="EVIDENCE.json")
@option(
    "--columns NAMES",
    "Show the joint counts of these columns, with commas between them.  [default: each column by itself]",
    multiple=True,
)
@option("-o --output FILE", "Write them to this .csv or .parquet file, or as bars to .svg, instead.")
def tables(evidence: str, columns: tuple[str, ...], output: str | None) -> None:
    """Show what EVIDENCE.json tells about each column, or about several together, at no cost."""
    path = Path(output or "")
    if output is not None:
        if path.suffix not in (".csv", ".parquet", ".svg"):
            raise click.UsageError(f"the output {path.name} must end in .csv, .parquet or .svg")
        check_writable(path, reads=(evidence,))
    loaded = load_evidence(evidence)
    chosen = split_names(columns, loaded.schema.columns)
    found = loaded.table(*chosen) if chosen else loaded.table_one()
    if output is not None:
        if path.suffix == ".svg":
            write_output(path, found.to_svg().encode())
        else:
            _write_rows(path, found.to_arrow())
        click.echo(f"wrote {path}")
        return
    for table in [found] if isinstance(found, TableEstimate) else found.tables.values():
        open_console().print(_lay_out(table))
    if isinstance(found, TableOne):
        _print_moments(found)
    say(NOTE)


def _write_rows(path: Path, rows: pa.Table) -> None:
    write = csv.write_csv if path.suffix == ".csv" else parquet.write_table
    write_output(path, lambda part: write(rows, part))


def _lay_out(found: TableEstimate) -> Table:
    table = Table(*found.columns, *(Column(head, justify="right") for head in ("count", "±", "share", "±")))
    for row in found.to_arrow().to_pylist():
        *levels, count, error, share, share_error = row.values()
        table.add_row(*levels, f"{count:,.0f}", f"{error:,.1f}", f"{share:.2%}", f"{share_error:.2%}")
    return table


def _print_moments(found: TableOne) -> None:
    if found.moments:
        table = Table("column", "mean", "±", "standard deviation", "±")
        for name, numbers in found.moments.items():
            table.add_row(name, *(f"{number:.4g}" for number in numbers))
        open_console().print(table)
        say(SHRUNK)
    if found.unknown:
        say(f"Nothing was released about {', '.join(found.unknown)} by itself.")


HELP = (
    "Sample rows from a known network and write its schema: public data, to try things on.\n\n"
    f"NETWORK is one of {', '.join(NETWORK_NAMES)}."
)


@click.command(help=HELP, short_help="Generate public example data from a known network.")
@click.argument("network", type=click.Choice(NETWORK_NAMES), metavar="NETWORK")
@option("--rows", "How many rows.", type=click.IntRange(1), default=100_000)
@option("--seed", "Random seed.", type=click.IntRange(0), default=1)
@option(
    "-o --output FILE",
    "A .csv or .parquet file; its schema goes to the same name with .toml. Existing files are replaced.",
    required=True,
)
def sample(network: str, rows: int, seed: int, output: str) -> None:
    """Write sampled rows and their schema."""
    path = Path(output)
    if path.suffix not in (".csv", ".parquet"):
        raise click.UsageError(f"the output {path.name} must end in .csv or .parquet")
    schema_path = path.with_suffix(".toml")
    check_writable(path, schema_path)
    known = load_network(network)
    _write_rows(path, sample_table(known, rows, np.random.default_rng(seed)))
    schema = network_schema(known, rows)
    write_output(schema_path, lambda part: save_schema(schema, part))
    click.echo(f"wrote {rows} rows to {path} and the schema of {schema.dataset!r} to {schema_path}")


@click.command(short_help="Draw synthetic rows from released evidence.")
@click.argument("evidence", metavar="EVIDENCE.json")
@option("--rows", "How many rows.", type=click.IntRange(1), default=10_000)
@option("--seed", "Random seed.", type=click.IntRange(0), default=1)
@option(
    "-o --output FILE",
    "A .csv, .parquet, .feather or .arrow file; its schema goes to the same name with .toml. Existing files are "
    "replaced.",
    required=True,
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
