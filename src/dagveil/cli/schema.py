"""`dagveil schema draft`, `dagveil schema bounds` and `dagveil schema check`."""

import shlex
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from dagveil.cli import output as terminal
from dagveil.cli.failure import PlainGroup, stoppable
from dagveil.cli.options import option, option_group, read_order, run_options, split_names
from dagveil.data.check import check_source
from dagveil.data.draft import draft_schema, find_doubts
from dagveil.data.schema import DECIMALS, ENCODINGS, load_schema, save_schema
from dagveil.errors import EvidenceError, SchemaError
from dagveil.runs.bounds import find_bounds, list_open_columns, load_open_schema
from dagveil.text import clean_text

# they say how a delimited file is written
_layout_options = option_group(
    option(
        "--separator MARK",
        'What separates cells: "," or ";" or "|" or tab.  [default: found, or as the schema says]',
        callback=lambda _context, _option, mark: {"tab": "\t", "\\t": "\t"}.get(mark, mark),
    ),
    option("--decimal", "The mark in numbers.  [default: as above]", type=click.Choice(DECIMALS)),
    option("--encoding", "Of the file.  [default: utf-8, or as declared]", type=click.Choice(ENCODINGS)),
)


@click.group(cls=PlainGroup)
def schema() -> None:
    """Declare what is public about a table.

    That is: levels, bounds, a nominal number of rows, the unit that is protected, and background knowledge.
    """


@schema.command(short_help="Write a first schema from a table, for you to review.")
@click.argument("file")
@option("-o --output FILE", "Where the draft goes.", default="schema.toml")
@option("--dataset NAME", "Name of the data set in the ledger.  [default: the file's name]")
@option("--force", "Replace an existing schema.")
@_layout_options
def draft(file: str, output: str, dataset: str | None, force: bool, **layout: str | None) -> None:
    """Write a first schema from FILE, marked as unreviewed.

    Its levels, bounds and bins are read from the data, so it can give records away: keep it to yourself until you have
    replaced them by what is public knowledge. A run refuses an unreviewed schema unless told --accept-draft.

    Separator and decimal mark are found from the first lines, and written into the schema: a run reads by that alone.
    """
    path = Path(output)
    _check_free(path, force=force)
    terminal.check_writable(path, reads=(file,))
    drafted = draft_schema(file, dataset, **layout)
    doubts = find_doubts(file, drafted)
    terminal.write_output(path, lambda part: save_schema(drafted, part))
    next_step = shlex.join(["dagveil", "schema", "check", file, "--schema", str(path)])
    click.echo(
        f"wrote {path}: {terminal.count(len(drafted.columns), 'column')}, unreviewed: levels, bounds, bins, centers "
        "and spreads were read from the data."
    )
    if drafted.file.words:
        click.echo(f"The file is read with {drafted.file.words}, as [file] in the schema says.")
    if doubts:
        click.echo("Look at these first; to leave a column out, delete its section and name it under `ignore`:")
        for name, doubt in doubts.items():
            click.echo(f"  {clean_text(name)}: {clean_text(doubt)}")
    click.echo(
        "Next: replace what was read by what is public knowledge, declare nominal_rows, and set reviewed = true. Where "
        'no other value can occur, name a level for outside instead of "own-level": each level costs noise.\n'
        f"`{next_step}` then tells you what does not fit."
    )


@schema.command(short_help="Privately estimate bounds for numeric columns that have none.")
@click.argument("file")
@run_options
@option(
    "--columns NAMES",
    "Columns to find, with commas or given several times; those that have bounds are found anew.  "
    "[default: all numeric columns without bounds]",
    multiple=True,
)
@option(
    "--coverage SHARE",
    "Share of the rows that the bounds need to hold, for example 0.999: leaves out outer cells with few rows.",
    default=1.0,
)
@option("-o --output FILE", "Where the schema with bounds goes.", required=True)
@option("--force", "Replace an existing schema.")
@click.pass_context
@stoppable
def bounds(
    context: click.Context,
    /,
    file: str,
    output: str,
    force: bool,
    columns: tuple[str, ...],
    coverage: float,
    **run: Any,
) -> None:
    """Find bounds of numeric columns of FILE privately, and write a schema that has them.

    This spends budget, as a run of its own. The schema is one in which numeric columns lack bounds; their center, if
    declared, is where the search starts. What is found is public from now on.

    An unreviewed schema is taken too, but its numbers for these columns are not used unless told --accept-draft. Name
    its columns with --columns: otherwise the receipt warns that rows decided which ones are numeric. The exit code is 1
    if some columns still lack bounds.
    """
    if run["schema_path"] is None or run["epsilon"] is None:
        raise click.UsageError("finding bounds needs --schema and --epsilon, for example --epsilon 0.5")
    path = Path(output)
    recovery = terminal.name_recovery(path)
    _check_free(path, force=force)
    declared = load_open_schema(run["schema_path"])
    order = read_order(file, (path,), recovery, run, schema=declared)
    try:
        budget, names = order.budget, split_names(columns, declared.columns) if columns else None
        public = (declared, budget.epsilon, budget.delta)
        found = find_bounds(order.rows, *public, columns=names, coverage=coverage, **order.options)
    except EvidenceError:
        recovery.unlink(missing_ok=True)  # that nothing stood out is all there was to find
        raise
    terminal.write_paid(path, found.save, recovery)
    order.print_account()
    for column in found.columns:
        facts = [f"bounds {column.bounds[0]:g} to {column.bounds[1]:g}", f"center {column.center:g}"]
        facts += [] if column.spread is None else [f"spread {column.spread:g}"]
        terminal.open_console().print(clean_text(f"{column.column}: {', '.join(facts)}"))
    terminal.print_findings(found.findings, found.receipt)
    still_open = list_open_columns(found.schema)
    hint = (
        f"Next: declare bounds for {', '.join(still_open)}."
        if still_open
        else f"Next: `{shlex.join(['dagveil', 'schema', 'check', file, '--schema', str(path)])}` shows what they clip."
        if found.schema.reviewed
        else "Next: review the other columns, and set reviewed = true."
    )
    terminal.print_written([path], clean_text(hint))
    if still_open:
        context.exit(1)


@schema.command(short_help="Report values that do not match the schema (for the data custodian only).")
@click.argument("file")
@option("schema_path --schema SCHEMA.toml", "The schema.", default="schema.toml")
@_layout_options
@click.pass_context
def check(context: click.Context, /, file: str, schema_path: str, **given: str | None) -> None:
    """Tell, column by column, what in FILE does not fit the schema.

    For the custodian's eyes only: these are exact counts without noise. A run does not need a perfect fit, since the
    schema says where other and missing values go. The exit code is 1 if something does not fit.
    """
    still_open = list_open_columns(load_open_schema(schema_path))
    if still_open:
        raise SchemaError(
            f"{', '.join(map(repr, still_open))}: bounds are missing. Declare the lowest and the highest value, or let "
            "`dagveil schema bounds` find them privately"
        )
    declared = load_schema(schema_path)
    layout = replace(declared.file, **{key: value for key, value in given.items() if value is not None})
    report = check_source(file, replace(declared, file=layout))
    click.echo("\n".join(map(clean_text, report.words())))
    if layout != declared.file:
        click.echo("This file was read as the options say. A run goes by [file] in the schema: declare it there.")
    if not report.fits:
        context.exit(1)


def _check_free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise SchemaError(f"{path} exists; choose another output, or --force to replace it")
