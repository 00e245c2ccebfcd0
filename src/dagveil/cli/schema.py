"""`dagveil schema draft` and `dagveil schema check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from dagveil.data.check import check_source
from dagveil.data.draft import draft_schema
from dagveil.data.schema import load_schema, save_schema
from dagveil.errors import SchemaError


@click.group()
def schema() -> None:
    """Declare what is public about a table."""


@schema.command()
@click.argument("file")
@click.option("-o", "--output", default="schema.toml", show_default=True, help="Where the draft goes.")
@click.option("--dataset", help="Identity of the data set in the ledger.  [default: the file's name]")
@click.option("--force", is_flag=True, help="Overwrite an existing schema.")
def draft(file: str, output: str, dataset: str | None, force: bool) -> None:
    """Write a first schema from FILE, marked as unreviewed."""
    path = Path(output)
    if path.exists() and not force:
        raise SchemaError(f"{path} exists; choose another output, or --force to overwrite it")
    drafted = draft_schema(file, dataset)
    save_schema(drafted, path)
    click.echo(
        f"wrote {path}: {len(drafted.columns)} columns, unreviewed: levels and bounds were read from the data.\n"
        "Next: replace levels and bounds by what is public knowledge, declare nominal_rows, set reviewed = true,\n"
        f"and look at `dagveil schema check {file} --schema {path}`."
    )


@schema.command()
@click.argument("file")
@click.option("--schema", "schema_path", default="schema.toml", show_default=True)
def check(file: str, schema_path: str) -> None:
    """Tell the custodian, column by column, what in FILE does not fit. For the custodian's eyes only: no noise."""
    report = check_source(file, load_schema(schema_path))
    click.echo(report.words())
    if not report.fits:
        sys.exit(1)
