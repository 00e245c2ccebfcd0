"""`dagveil start`: from a file, or from names of columns alone, to a folder to begin with."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from dagveil.cli.options import option
from dagveil.cli.output import show_progress
from dagveil.cli.plan import print_exploration
from dagveil.data.column import Boolean, Column, Numeric, Ordinal
from dagveil.data.draft import draft_schema, name_dataset
from dagveil.data.files import read_names
from dagveil.data.schema import MOST_ROWS, PLAIN_LAYOUT, FileLayout, Schema
from dagveil.errors import DagveilError, InvalidBudgetError, SchemaError
from dagveil.forecast import answers
from dagveil.forecast.answers import DELTA, KINDS, ColumnAnswer, Kind
from dagveil.forecast.explore import Exploration
from dagveil.forecast.project import check_empty, write_project
from dagveil.privacy.budget import Budget
from dagveil.text import clean_text

BY_RULE = "by rule"


@click.command(short_help="Answer some plain questions, and get a folder to begin with.")
@click.argument("file", required=False)
@option("--columns NAMES", "Names of columns, with commas, where there is no file yet.")
@option("-o --output FOLDER", "A new or empty folder.  [default: the data set's name]")
@option("--no-explore", "Do not try budgets on synthetic tables.")
def start(file: str | None, columns: str | None, output: str | None, no_explore: bool) -> None:
    """Ask what is public about a table, in plain questions, and leave a folder to begin with.

    FILE is looked at for the names of its columns, no more, unless you say that its rows may be read. The folder holds
    schema.toml, a plan, what budgets would show on synthetic tables, a commented script, a notebook and a Makefile.
    Nothing is spent.
    """
    if (file is None) == (columns is None):
        raise click.UsageError("give a FILE, or --columns NAMES where there is none yet")
    names, layout, draft = _look(file, columns)
    _tell("What is public", answers.PUBLIC)
    dataset = click.prompt(answers.ASK_DATASET, default=name_dataset(file) if file else None)
    folder = Path(output or "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in dataset))
    check_empty(folder)
    unit = click.prompt(answers.ASK_UNIT, default="one row")
    most = click.prompt(answers.ASK_MOST, type=click.IntRange(1), default=1)
    person = _ask_person(names, most) if most > 1 else None
    if person is not None:
        unit = click.prompt(answers.ASK_PERSON_UNIT, default="person")
    rows = click.prompt(answers.ASK_ROWS, type=click.IntRange(1, MOST_ROWS))
    fixed = click.confirm(answers.ASK_FIXED, default=False)
    _tell("What that means", answers.FIXED[fixed])
    declared = _ask_columns(tuple(name for name in names if name != person), draft)
    reviewed = click.confirm(answers.ASK_REVIEWED, default=draft is None)
    schema = answers.make_schema(
        dataset, declared, unit=unit, rows=rows, fixed=fixed, reviewed=reviewed, person=person, layout=layout
    )
    if not reviewed:
        _tell("What that means", answers.UNREVIEWED)
    found = None if no_explore or not reviewed else _explore(schema)
    epsilon = _ask_epsilon(found)
    written = write_project(folder, schema, epsilon, DELTA, source=file, exploration=found)
    click.echo(f"wrote {', '.join(path.name for path in written)} to {folder}")
    look = f"`make -C {folder} check` (it reads the rows, and shows their custodian what does not fit)"
    click.echo(f"Next: read {folder / 'schema.toml'}; then {look};")
    click.echo(f"then `make -C {folder} budget graph`, or open discover.ipynb.")


def _look(file: str | None, columns: str | None) -> tuple[tuple[str, ...], FileLayout, Schema | None]:
    """Find the names of columns; read rows only if a person says so."""
    if file is None:
        names = tuple(dict.fromkeys(name.strip() for name in (columns or "").split(",") if name.strip()))
        if len(names) < 2:
            raise click.UsageError("--columns names fewer than two columns: write --columns age,sex,smokes")
        return names, PLAIN_LAYOUT, None
    names, layout = read_names(file)
    click.echo(f"Read the {len(names)} names of columns in {file}, and no row.")
    if click.confirm("May the rows be read, on this machine, to propose levels and bounds", default=False):
        draft = draft_schema(file)
        click.echo("READ ALL ROWS. What is proposed below comes from them: replace it by what is public.")
        return (*draft.columns, *draft.ignore), draft.file, draft
    if layout.separator == ";" and click.confirm(answers.ASK_COMMA, default=False):
        layout = FileLayout(separator=";", decimal=",")
    return names, layout, None


def _tell(lead: str, text: str) -> None:
    click.echo(f"  {lead}: {text}")


def _ask_person(names: tuple[str, ...], most: int) -> str | None:
    nobody = "none"
    choice = click.Choice([*names, nobody])
    person: str = click.prompt(answers.ASK_PERSON, type=choice, default=nobody, show_choices=False)
    _tell("What that means", answers.describe_most(most) if person == nobody else answers.PERSON)
    return None if person == nobody else person


def _ask_columns(names: tuple[str, ...], draft: Schema | None) -> dict[str, Column | None]:
    proposed: Mapping[str, Column] = {} if draft is None else draft.columns
    while True:
        kinds = ", ".join(f"{kind} ({words})" if kind != words else kind for kind, words in KINDS.items())
        _tell("Columns", f"{kinds}. {answers.COLUMNS}")
        declared = {name: _ask_column(clean_text(name), proposed.get(name), draft is not None) for name in names}
        if sum(column is not None for column in declared.values()) > 1:
            return declared
        click.echo("A graph needs at least two columns.")


def _ask_column(name: str, proposed: Column | None, drafted: bool) -> Column | None:
    default = "skip" if drafted and proposed is None else None if proposed is None else _name_kind(proposed)
    kind: Kind = click.prompt(f"{name}: what is it", type=click.Choice(list(KINDS)), default=default)
    if kind == "skip":
        return None
    same = proposed is not None and kind == _name_kind(proposed)
    if proposed is not None and same and click.confirm(f"{name}: {_show(proposed)}. Is that public", default=False):
        return proposed
    while True:
        try:
            return _ask_details(name, kind).declare()
        except (SchemaError, ValueError) as error:
            click.echo(f"That cannot be: {error}")


def _ask_details(name: str, kind: Kind) -> ColumnAnswer:
    if kind == "number":
        bounds = tuple(_read_numbers(click.prompt(f"{name}: {answers.ASK_BOUNDS}")))
        said = click.prompt(f"{name}: {answers.ASK_USUAL}", default="no")
        usual = () if said == "no" else tuple(_read_numbers(said))
        said = click.prompt(f"{name}: {answers.ASK_CUTS}", default=BY_RULE)
        cuts = () if said == BY_RULE else tuple(_read_numbers(said))
        other = click.confirm(f"{name}: {answers.ASK_MISSING}", default=False)
        return ColumnAnswer(kind, bounds=bounds, usual=usual, cuts=cuts, other=other)
    levels: tuple[str, ...] = ()
    if kind != "yes-no":
        asked = answers.ASK_LEVELS + ("; lowest first" * (kind == "ordered"))
        levels = tuple(click.prompt(f"{name}: {asked}").split(","))
    return ColumnAnswer(kind, levels, other=click.confirm(f"{name}: {answers.ASK_OTHER}", default=False))


def _read_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SchemaError("write numbers with a point, and commas between them") from None


def _name_kind(column: Column) -> str:
    return {Boolean: "yes-no", Ordinal: "ordered", Numeric: "number"}.get(type(column), "categories")


def _show(column: Column) -> str:
    if isinstance(column, Numeric):
        return f"from {column.bounds[0]:g} to {column.bounds[1]:g}"
    return "levels " + ", ".join(clean_text(level) for level in column.levels)


def _explore(schema: Schema) -> Exploration | None:
    """Show what budgets would find on synthetic tables: a first answer at once, and a better one within a minute."""
    click.echo("Trying budgets on synthetic tables of this schema; no row is read, and nothing is spent.")
    try:
        with show_progress() as progress:
            found = answers.try_budgets(schema, click.echo, progress, workers=os.cpu_count() or 1)
    except DagveilError as error:
        click.echo(f"This cannot be explored: {error}")
        return None
    print_exploration(found)
    return found


def _ask_epsilon(found: Exploration | None) -> str:
    _tell("Epsilon", answers.EPSILON_MEANS)
    while True:
        said = str(click.prompt("Epsilon of the run", default=answers.advise_epsilon(found)))
        try:
            Budget.of(said, DELTA)
        except InvalidBudgetError as error:
            click.echo(f"That cannot be: {error}")
        else:
            return said
