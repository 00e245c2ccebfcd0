"""What `dagveil start` and the studio ask about a table, what each answer means, and the schema that follows."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from dagveil.data.column import OWN_LEVEL, Boolean, Categorical, Column, Numeric, Ordinal
from dagveil.data.schema import PLAIN_LAYOUT, FileLayout, Schema
from dagveil.errors import SchemaError
from dagveil.forecast.explore import EPSILONS, Exploration, explore
from dagveil.privacy.budget import round_up
from dagveil.progress import Progress, silent

SECONDS: Final = 20.0  # processor seconds of the exploration, by the forecast
MODELS: Final = 5
DELTA: Final = "1e-6"
EPSILON: Final = "1"  # where nothing was explored, or nothing reached what was wanted
METHOD: Final = "measure"

Kind = Literal["yes-no", "categories", "ordered", "number", "skip"]
KINDS: Final[dict[Kind, str]] = {
    "yes-no": "yes or no",
    "categories": "categories",
    "ordered": "categories in an order",
    "number": "a number",
    "skip": "leave it out",
}

PUBLIC: Final = (
    "Answers go into the schema, which is published with every result. Write only what anyone may know without seeing "
    "these rows."
)
ASK_DATASET: Final = "Name of the data set"
ASK_UNIT: Final = "What is one record, in words"
ASK_MOST: Final = "How many records may one person have, at most"
ASK_PERSON: Final = "Which column says whose record it is"
ASK_PERSON_UNIT: Final = "What is a person, in words"
ASK_ROWS: Final = "About how many records (or persons, if a column names them) are there (a public guess)"
ASK_FIXED: Final = "Does everyone know exactly how many there are"
ASK_COMMA: Final = "Do numbers in it have a comma, such as 3,5"
ASK_LEVELS: Final = "all levels that can be, with commas, and other spellings of one after | (male|m,female|f)"
ASK_BOUNDS: Final = "lowest and highest value that can be, with a comma between them"
ASK_USUAL: Final = "its usual mean and standard deviation, with a comma, if public"
ASK_CUTS: Final = "where to cut it into groups, with commas"
ASK_MISSING: Final = "can it be missing"
ASK_OTHER: Final = "can it be missing, or none of these"
ASK_REVIEWED: Final = "Are all levels and bounds above public knowledge, and none taken from these rows"
COLUMNS: Final = (
    "Yes or no takes yes and no, true and false, 1 and 0; two other words are categories. Fewer columns and levels "
    "leave more budget for each."
)
DATASET: Final = "The ledger adds up what is spent under this name."
UNIT: Final = "Every result says what a record is. It protects records, unless a column says whose they are."
PERSON: Final = (
    "Persons are protected with all their records. One record of each counts, any of them; `which` and `order` in "
    "schema.toml can make it the first or the last."
)
ROWS: Final = "Noise is weighed against it before any row is read. It is published, so a round number will do."
FIXED: Final = {
    True: "Neighbours replace one record, or person: their number is public.",
    False: "Neighbours add or remove one record, or person: that someone is in the table at all is protected, too.",
}
UNREVIEWED_HERE: Final = "Otherwise the schema is marked as unreviewed, and no run takes it."
UNREVIEWED: Final = (
    "The schema is marked as unreviewed, and a run refuses it. Replace what was read from rows, set reviewed = true, "
    "and explore then: `dagveil plan schema.toml --explore`."
)
EPSILON_MEANS: Final = (
    "the smaller, the stronger: at 0.1 nobody can tell much about one record, at 1 the promise is usual in research, "
    "and at 10 it is weak."
)


def advise_epsilon(found: Exploration | None) -> str:
    """Return the epsilon to propose; one that does not even reach what was wanted is no advice to follow blindly."""
    if found is None or not found.recommendation.reached:
        return EPSILON
    return round_up(found.recommendation.epsilon, 4)


def describe_most(most: int | Literal["k"]) -> str:
    """Say what it means that a person may have several records."""
    return (
        f"The promise is about records. A person with {most} records has {most} times the epsilon: take one record per "
        "person if you can, or divide epsilon."
    )


class ColumnAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said about one column.

    `levels` are for categories, lowest first if ordered, with other spellings of each after |; `bounds`, `usual` (mean
    and standard deviation) and `cuts` for a number. `other` says that it can be missing, or none of these.
    """

    kind: Kind
    levels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()
    cuts: tuple[float, ...] = ()
    other: bool = False

    def declare(self) -> Column | None:
        """Return the column's declaration, or None if it is left out; SchemaError says what cannot be."""
        if self.kind == "skip":
            return None
        if self.kind == "yes-no":
            return Boolean(outside=OWN_LEVEL if self.other else "false")
        if self.kind == "number":
            if len(self.bounds) != 2:
                raise SchemaError(
                    f"2 numbers are needed, not {len(self.bounds)}: the lowest and the highest that can be"
                )
            if len(self.usual) not in (0, 2):
                raise SchemaError(f"2 numbers are needed, not {len(self.usual)}: the mean and the standard deviation")
            center, spread = self.usual or (None, None)
            number = Numeric(bounds=self.bounds, bins=self.cuts or None, center=center, spread=spread)
            return (
                msgspec.structs.replace(number, bins=number.bins or number.cuts, missing=OWN_LEVEL)
                if self.other
                else number
            )
        spelled = [[word for part in said.split("|") if (word := part.strip())] for said in self.levels]
        levels = tuple(words[0] for words in spelled if words)
        make = Ordinal if self.kind == "ordered" else Categorical
        return make(
            levels=levels,
            outside=OWN_LEVEL if self.other or not levels else levels[0],
            spellings={words[0]: tuple(words[1:]) for words in spelled if words[1:]} or None,
        )


def make_schema(
    dataset: str,
    columns: Mapping[str, Column | None],
    *,
    unit: str,
    rows: int,
    fixed: bool,
    reviewed: bool,
    person: str | None = None,
    layout: FileLayout = PLAIN_LAYOUT,
) -> Schema:
    """Return the schema that follows from the answers; columns without a declaration are left out.

    Numbers beside levels are cut into groups: then tables are released, and not one matrix that tells a graph only.
    """
    declared = {name: column for name, column in columns.items() if column is not None and name != person}
    if not all(isinstance(column, Numeric) for column in declared.values()):
        declared = {
            name: msgspec.structs.replace(column, bins=column.cuts)
            if isinstance(column, Numeric) and column.bins is None
            else column
            for name, column in declared.items()
        }
    if len(declared) < 2:
        raise SchemaError("a graph needs at least two columns; leave fewer out")
    return Schema(
        dataset=dataset,
        columns=declared,
        reviewed=reviewed,
        unit=unit,
        relation="replace-one" if fixed else "add-remove",
        nominal_rows=rows,
        file=layout,
        ignore=tuple(name for name in columns if name not in declared and name != person),
        person=person,
    )


def try_budgets(
    schema: Schema, tell: Callable[[str], object], progress: Progress = silent, *, workers: int = 1
) -> Exploration:
    """Try budgets on synthetic tables of a schema: `tell` hears a first answer at once, the rest takes up to a minute.

    No row is read, and nothing is spent.
    """
    first = explore(schema, (EPSILON,), DELTA, methods=[METHOD], models=2, seconds=SECONDS / 10, ledger=None)
    f1 = first.curves[0].points[0].f1
    if f1 is not None:
        tell(f"A first look, from two tables: at epsilon {EPSILON} an F1 of about {f1:.2f}, 1 being the whole graph.")
    return explore(
        schema, EPSILONS, DELTA, methods=[METHOD], models=MODELS, seconds=SECONDS, workers=workers, ledger=None,
        progress=progress,
    )  # fmt: skip
