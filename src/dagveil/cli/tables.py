"""`dagveil tables`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from pyarrow import csv, parquet
from rich.table import Table

from dagveil.cli.output import check_writable, write_output
from dagveil.cli.terminal import open_console
from dagveil.data.column import Column
from dagveil.evidence.bundle import load_evidence
from dagveil.evidence.estimates import TableEstimate, TableOne

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
@click.option(
    "--columns",
    multiple=True,
    metavar="NAMES",
    help="Show the joint counts of these columns, with commas between them.  [default: each column by itself]",
)
@click.option("-o", "--output", metavar="FILE", help="Write the estimates to this .csv or .parquet file instead.")
def tables(evidence: str, columns: tuple[str, ...], output: str | None) -> None:
    """Show what EVIDENCE.json tells about each column, or about several together, at no cost."""
    path = None if output is None else Path(output)
    if path is not None:
        if path.suffix not in (".csv", ".parquet"):
            raise click.UsageError(f"the output {path.name} must end in .csv or .parquet")
        check_writable(path, reads=(evidence,))
    loaded = load_evidence(evidence)
    chosen = split_names(columns, loaded.schema.columns)
    found = loaded.table(*chosen) if chosen else loaded.table_one()
    if path is not None:
        write = csv.write_csv if path.suffix == ".csv" else parquet.write_table
        write_output(path, lambda part: write(found.to_arrow(), part))
        click.echo(f"wrote {path}")
        return
    console = open_console()
    if isinstance(found, TableEstimate):
        console.print(_lay_out(found))
    else:
        for table in found.tables.values():
            console.print(_lay_out(table))
        _print_moments(found)
    console.print(NOTE)


def split_names(words: tuple[str, ...], columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Split lists of names at commas; a word that is itself a column stays whole."""
    return tuple(name for word in words for name in ([word] if word in columns else map(str.strip, word.split(","))))


def _lay_out(found: TableEstimate) -> Table:
    table = Table(*found.columns)
    for head in ("count", "±", "share", "±"):
        table.add_column(head, justify="right")
    for row in found.to_arrow().to_pylist():
        *levels, count, error, share, share_error = row.values()
        table.add_row(*levels, f"{count:,.0f}", f"{error:,.1f}", f"{share:.2%}", f"{share_error:.2%}")
    return table


def _print_moments(found: TableOne) -> None:
    console = open_console()
    if found.moments:
        table = Table("column", "mean", "±", "standard deviation", "±")
        for name, numbers in found.moments.items():
            table.add_row(name, *(f"{number:.4g}" for number in numbers))
        console.print(table)
        console.print(SHRUNK)
    if found.unknown:
        console.print(f"Nothing was released about {', '.join(found.unknown)} by itself.")
