"""`dagveil start`: from a file, or from names of columns alone, to a folder to begin with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from dagveil.cli.plan import print_exploration
from dagveil.cli.terminal import show_progress
from dagveil.data.column import OWN_LEVEL, Boolean, Categorical, Column, Numeric, Ordinal
from dagveil.data.draft import draft_schema, name_dataset
from dagveil.data.file_layout import PLAIN_LAYOUT, FileLayout
from dagveil.data.header import read_header
from dagveil.data.schema import MOST_ROWS, Schema
from dagveil.errors import DagveilError, InvalidBudgetError, SchemaError
from dagveil.forecast.explore import Exploration, explore
from dagveil.forecast.project import check_empty, write_project
from dagveil.privacy.budget import Budget
from dagveil.report.formatting import write_epsilon
from dagveil.text import clean_text

SECONDS = 20.0  # processor seconds of the exploration, by the forecast
MODELS = 5
EPSILONS = ("0.1", "0.3", "1", "3", "10")
DELTA = "1e-6"
BY_RULE = "by rule"
KINDS = ("yes-no", "categories", "ordered", "number", "skip")


@click.command(short_help="Answer some plain questions, and get a folder to begin with.")
@click.argument("file", required=False)
@click.option("--columns", metavar="NAMES", help="Names of columns, with commas, where there is no file yet.")
@click.option("-o", "--output", metavar="FOLDER", help="A new or empty folder.  [default: the data set's name]")
@click.option("--no-explore", is_flag=True, help="Do not try budgets on synthetic tables.")
def start(file: str | None, columns: str | None, output: str | None, no_explore: bool) -> None:
    """Ask what is public about a table, in plain questions, and leave a folder to begin with.

    FILE is looked at for the names of its columns, no more, unless you say that its rows may be read. The folder holds
    schema.toml, a plan, what budgets would show on synthetic tables, a commented script, a notebook and a Makefile.
    Nothing is spent.
    """
    if (file is None) == (columns is None):
        raise click.UsageError("give a FILE, or --columns NAMES where there is none yet")
    names, layout, draft = _look(file, columns)
    _tell("What is public", "Answers go into the schema, which is published with every result. Write only what anyone "
          "may know without seeing these rows.")  # fmt: skip
    dataset = click.prompt("Name of the data set", default=name_dataset(file) if file else None)
    folder = Path(output or "".join(sign if sign.isalnum() or sign in "-_" else "-" for sign in dataset))
    check_empty(folder)
    unit = click.prompt("What is one record, in words", default="one row")
    most = click.prompt("How many records may one person have, at most", type=click.IntRange(1), default=1)
    person = _ask_person(names, most) if most > 1 else None
    if person is not None:
        unit = click.prompt("What is a person, in words", default="person")
    counted = "records" if person is None else "persons"
    rows = click.prompt(f"About how many {counted} are there (a public guess)", type=click.IntRange(1, MOST_ROWS))
    fixed = click.confirm("Does everyone know exactly how many there are?", default=False)
    _tell("What that means", f"Neighbours replace one of the {counted}: their number is public." if fixed else
          f"Neighbours add or remove one of the {counted}: that someone is in the table at all is protected, "
          "too.")  # fmt: skip
    declared = _ask_columns([name for name in names if name != person], draft)
    reviewed = click.confirm(
        "Are all levels and bounds above public knowledge, and none taken from these rows?", default=draft is None
    )
    schema = Schema(
        dataset=dataset,
        columns=_cut_beside_levels(declared),
        reviewed=reviewed,
        unit=unit,
        relation="replace-one" if fixed else "add-remove",
        nominal_rows=rows,
        file=layout,
        ignore=tuple(name for name in names if name not in declared and name != person),
        person=person,
    )
    if not reviewed:
        _tell("What that means", "The schema is marked as unreviewed, and a run refuses it. Replace what was read from "
              "rows, set reviewed = true, and explore then: `dagveil plan schema.toml --explore`.")  # fmt: skip
    found = None if no_explore or not reviewed else _explore(schema)
    epsilon = _ask_epsilon(found)
    written = write_project(folder, schema, epsilon, DELTA, source=file, exploration=found)
    click.echo(f"wrote {', '.join(path.name for path in written)} to {folder}")
    click.echo(f"Next: read {folder / 'schema.toml'}, then `make -C {folder} budget graph`, or open discover.ipynb.")


def _look(file: str | None, columns: str | None) -> tuple[tuple[str, ...], FileLayout, Schema | None]:
    """Find the names of columns; read rows only if a person says so."""
    if file is None:
        names = tuple(dict.fromkeys(name.strip() for name in (columns or "").split(",") if name.strip()))
        if len(names) < 2:
            raise click.UsageError("--columns names fewer than two columns: write --columns age,sex,smokes")
        return names, PLAIN_LAYOUT, None
    names, layout = read_header(file)
    click.echo(f"Read the {len(names)} names of columns in {file}, and no row.")
    if click.confirm("May the rows be read, on this machine, to propose levels and bounds?", default=False):
        draft = draft_schema(file)
        click.echo("READ ALL ROWS. What is proposed below comes from them: replace it by what is public.")
        return (*draft.columns, *draft.ignore), draft.file, draft
    if layout.separator == ";" and click.confirm("Do numbers in it have a comma, such as 3,5?", default=False):
        layout = FileLayout(separator=";", decimal=",")
    return names, layout, None


def _tell(lead: str, text: str) -> None:
    click.echo(f"  {lead}: {text}")


def _ask_person(names: Sequence[str], most: int) -> str | None:
    """Ask which column names persons, where one may have several records."""
    nobody = "none"
    person: str = click.prompt("Which column says whose record it is", type=click.Choice([*names, nobody]),
                               default=nobody, show_choices=False)  # fmt: skip
    if person == nobody:
        _tell("What that means", f"The promise is about records. A person with {most} records has {most} times the "
              "epsilon: take one record per person if you can, or divide epsilon.")  # fmt: skip
        return None
    _tell("What that means", "Persons are protected with all their records. One record of each counts, any of them; "
          "`which` and `order` in schema.toml can make it the first or the last.")  # fmt: skip
    return person


def _ask_columns(names: Sequence[str], draft: Schema | None) -> dict[str, Column]:
    declared: dict[str, Column] = {}
    proposed: Mapping[str, Column] = {} if draft is None else draft.columns
    while len(declared) < 2:
        _tell("Columns", "yes-no, categories, ordered (categories, lowest first), number, or skip. Fewer columns and "
              "levels leave more budget for each.")  # fmt: skip
        for name in names:
            column = _ask_column(clean_text(name), proposed.get(name), draft is not None)
            if column is not None:
                declared[name] = column
        if len(declared) < 2:
            click.echo("A graph needs at least two columns.")
    return declared


def _cut_beside_levels(declared: dict[str, Column]) -> dict[str, Column]:
    """Cut numbers beside levels into groups: then tables are released, and not one matrix that tells a graph only."""
    if all(isinstance(column, Numeric) for column in declared.values()):
        return declared
    return {
        name: replace(column, bins=column.cuts) if isinstance(column, Numeric) and column.bins is None else column
        for name, column in declared.items()
    }


def _ask_column(name: str, proposed: Column | None, drafted: bool) -> Column | None:
    default = "skip" if drafted and proposed is None else None if proposed is None else _name_kind(proposed)
    kind = click.prompt(f"{name}: what is it", type=click.Choice(KINDS), default=default)
    if kind == "skip":
        return None
    same = proposed is not None and kind == _name_kind(proposed)
    if proposed is not None and same and click.confirm(f"{name}: {_show(proposed)}. Is that public?", default=False):
        return proposed
    while True:
        try:
            return _ask_details(name, kind)
        except (SchemaError, ValueError) as error:
            click.echo(f"That cannot be: {error}")


def _ask_details(name: str, kind: str) -> Column:
    if kind == "number":
        bounds = click.prompt(f"{name}: lowest and highest value that can be, with a comma between them")
        lowest, highest = _read_numbers(bounds, 2)
        usual = click.prompt(f"{name}: its usual mean and standard deviation, with a comma, if public", default="no")
        center, spread = (None, None) if usual == "no" else _read_numbers(usual, 2)
        cuts = click.prompt(f"{name}: where to cut it into groups, with commas", default=BY_RULE)
        bins = None if cuts == BY_RULE else tuple(_read_numbers(cuts))
        return Numeric(bounds=(lowest, highest), bins=bins, center=center, spread=spread)
    if kind == "yes-no":
        other = click.confirm(f"{name}: can it be missing, or neither?", default=False)
        return Boolean(outside=OWN_LEVEL if other else "false")
    levels = click.prompt(f"{name}: all levels that can be, with commas" + (", lowest first" * (kind == "ordered")))
    named = tuple(level.strip() for level in levels.split(",") if level.strip())
    other = click.confirm(f"{name}: can it be missing, or none of these?", default=False)
    make = Ordinal if kind == "ordered" else Categorical
    return make(levels=named, outside=OWN_LEVEL if other else named[0] if named else OWN_LEVEL)


def _read_numbers(text: str, count: int | None = None) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise SchemaError("write numbers with a point, and commas between them") from None
    if count is not None and len(numbers) != count:
        raise SchemaError(f"{count} numbers are needed, not {len(numbers)}")
    return numbers


def _name_kind(column: Column) -> str:
    return {Boolean: "yes-no", Ordinal: "ordered", Numeric: "number"}.get(type(column), "categories")


def _show(column: Column) -> str:
    if isinstance(column, Numeric):
        return f"from {column.bounds[0]:g} to {column.bounds[1]:g}"
    return "levels " + ", ".join(clean_text(level) for level in column.levels)


def _explore(schema: Schema) -> Exploration | None:
    """Show what budgets would find on synthetic tables: a first answer at once, and a better one within a minute."""
    click.echo("Trying budgets on synthetic tables of this schema; no row is read, and nothing is spent.")
    workers = os.cpu_count() or 1
    try:
        first = explore(schema, ("1",), DELTA, methods=["measure"], models=2, seconds=SECONDS / 10, ledger=None)
        f1 = first.curves[0].points[0].f1
        if f1 is not None:
            click.echo(f"A first look, from two tables: at epsilon 1 an F1 of about {f1:.2f}, 1 being the whole graph.")
        with show_progress() as progress:
            found = explore(
                schema,
                EPSILONS,
                DELTA,
                methods=["measure"],
                models=MODELS,
                seconds=SECONDS,
                workers=workers,
                ledger=None,
                progress=progress,
            )
    except DagveilError as error:
        click.echo(f"This cannot be explored: {error}")
        return None
    print_exploration(found)
    return found


def _ask_epsilon(found: Exploration | None) -> str:
    _tell("Epsilon", "the smaller, the stronger: at 0.1 nobody can tell much about one record, at 1 the promise is "
          "usual in research, and at 10 it is weak.")  # fmt: skip
    # an epsilon that does not even reach what was wanted is no advice to follow blindly
    reached = found is not None and found.recommendation.reached
    default = write_epsilon(found.recommendation.epsilon) if found is not None and reached else "1"
    while True:
        said = str(click.prompt("Epsilon of the run", default=default))
        try:
            Budget.of(said, DELTA)
        except InvalidBudgetError as error:
            click.echo(f"That cannot be: {error}")
        else:
            return said
