"""`dagveil schema draft` and `dagveil schema check`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dagveil.cli.failure import PlainGroup
from dagveil.cli.output import check_writable
from dagveil.cli.summary import count
from dagveil.data.check import check_source
from dagveil.data.draft import draft_schema
from dagveil.data.schema import load_schema, save_schema
from dagveil.errors import SchemaError


@click.group(cls=PlainGroup)
def schema() -> None:
    """Declare what is public about a table.

    That is: levels, bounds, a nominal number of rows, the unit that is protected, and background knowledge.
    """


@schema.command(short_help="Write a first schema from a table, for you to review.")
@click.argument("file")
@click.option("-o", "--output", metavar="FILE", default="schema.toml", show_default=True, help="Where the draft goes.")
@click.option("--dataset", metavar="NAME", help="Name of the data set in the ledger.  [default: the file's name]")
@click.option("--force", is_flag=True, help="Replace an existing schema.")
def draft(file: str, output: str, dataset: str | None, force: bool) -> None:
    """Write a first schema from FILE, marked as unreviewed.

    Its levels and bounds are read from the data, so it can give records away: keep it to yourself until you have
    replaced them by what is public knowledge. A run refuses an unreviewed schema unless told --accept-draft.
    """
    path = Path(output)
    if path.exists() and not force:
        raise SchemaError(f"{path} exists; choose another output, or --force to replace it")
    check_writable(path)
    drafted = draft_schema(file, dataset)
    save_schema(drafted, path)
    next_step = shlex.join(["dagveil", "schema", "check", file, "--schema", str(path)])
    click.echo(
        f"wrote {path}: {count(len(drafted.columns), 'column')}, unreviewed: levels and bounds were read from the "
        "data.\n"
        "Next: replace levels and bounds by what is public knowledge, declare nominal_rows, and set reviewed = true.\n"
        f"`{next_step}` then tells you what does not fit."
    )


@schema.command(short_help="Tell the custodian what in a table does not fit its schema.")
@click.argument("file")
@click.option(
    "--schema", "schema_path", metavar="SCHEMA.toml", default="schema.toml", show_default=True, help="The schema."
)
@click.pass_context
def check(context: click.Context, file: str, schema_path: str) -> None:
    """Tell, column by column, what in FILE does not fit the schema.

    For the custodian's eyes only: these are exact counts without noise. A run does not need a perfect fit, since the
    schema says where other and missing values go. The exit code is 1 if something does not fit.
    """
    report = check_source(file, load_schema(schema_path))
    click.echo("\n".join(report.words()))
    if not report.fits:
        context.exit(1)
