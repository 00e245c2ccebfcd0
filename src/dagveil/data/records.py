"""How the records of one person become what counts: the declarations of a schema, all public.

`persons.py` carries them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from dagveil.data.column import Boolean, Categorical, Numeric, Ordinal
from dagveil.errors import SchemaError

if TYPE_CHECKING:
    from dagveil.data.schema import Schema

RECORDS: Final = ("one", "weigh")  # what a schema may say of a person's records: one counts, or all weigh one together
WHICH: Final = ("first", "last", "any")  # which record counts, if one does
MISSING_PERSON: Final = ("drop", "own")  # what becomes of a record without an id
TAKES: Final = ("any", "count", "last", "mean")  # what a reducer makes of records
MOST_COUNTED: Final = 10**6
RECORD_KEYS: Final = ("records", "which", "order", "order_format", "missing_person")


class Reducer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a column of the table of persons takes from all records of a person.

    - `take`: "any": whether a record matches `where`; "count": how many do, up to `up_to`; "last": the cell of the last
      record that matches and has one; "mean": the mean of the numbers of those that match, each clipped to the column's
      bounds.
    - `of`: the column of the source that "last" and "mean" read; left out, the one of the same name.
    - `where`: texts by column of the source: a record matches if each of these columns holds one of its texts.
    - `up_to`: the largest count.
    """

    take: str
    of: str | None = None
    where: Mapping[str, tuple[str, ...]] = {}
    up_to: int | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "where", {name: tuple(texts) for name, texts in self.where.items()})

    def source(self, name: str) -> str | None:
        """Return the column of the source whose cells are taken; None if records are only matched."""
        return (self.of or name) if self.take in ("last", "mean") else None


def check_records(schema: Schema) -> None:
    """Refuse declarations about persons that contradict each other or lack something."""
    if schema.person is None:
        unused = [f"dataset.{key}" for key in RECORD_KEYS if getattr(schema, key) is not None]
        unused += [f"reducers.{name}" for name in schema.reducers]
        if unused:
            raise SchemaError(
                f'{unused[0]} is declared, and no person; write person = "…" under [dataset] with the name of the '
                "column of ids, or remove it"
            )
        return
    for problem in _problems(schema.person, schema):
        raise SchemaError(problem)
    for name, reducer in schema.reducers.items():
        for problem in _reducer_problems(name, reducer, schema):
            raise SchemaError(f"reducers.{name}: {problem}")


def _problems(person: str, schema: Schema) -> Iterator[str]:
    which, order, form = schema.which, schema.order, schema.order_format
    if not person.strip():
        yield "dataset.person is empty; name the column of ids, or leave it out"
    if person in schema.columns:
        yield f"dataset.person is {person!r}, which is declared as a column too; an id is no node: remove the column"
    if person in schema.ignore:
        yield f"dataset.ignore names {person!r}, which dataset.person names too; take it out of ignore"
    for key, allowed in (("records", RECORDS), ("which", WHICH), ("missing_person", MISSING_PERSON)):
        if (given := getattr(schema, key)) is not None and given not in allowed:
            yield f"dataset.{key} is {given!r}; write one of {', '.join(allowed)}"
    if order == person:
        yield f"dataset.order is {order!r}, which names persons; name a column of dates or numbers"
    if form is not None and (order is None or "%" not in form):
        yield (
            'dataset.order_format says how dates of dataset.order are written, such as "%d.%m.%Y"; name an order too, '
            "and write the format with its percent signs"
        )
    if schema.records == "weigh":
        used = [f"dataset.{key}" for key in ("which", "order") if getattr(schema, key) is not None]
        used += [f"reducers.{name}" for name in schema.reducers]
        if used:
            yield f'{used[0]} chooses among records, and records = "weigh" takes all; keep one of both'
        return
    if which in ("first", "last") and order is None:
        yield f'dataset.which is "{which}", which needs an order; add order = "…", a column of dates or numbers'
    ordered = any(reducer.take == "last" for reducer in schema.reducers.values())
    if which is None:
        yield 'dataset.order is declared without dataset.which; write which = "first", "last" or "any"'
    if order is not None and which == "any" and not ordered:
        yield 'dataset.order is declared, and which = "any" needs none; write "first" or "last", or remove the order'


def _reducer_problems(name: str, reducer: Reducer, schema: Schema) -> Iterator[str]:
    take, column = reducer.take, schema.columns.get(name)
    if take not in TAKES:
        yield f"take is {take!r}; write one of {', '.join(TAKES)}"
    if column is None:
        yield f"there is no column of this name; declare [columns.{name}] too, as it will be in the table of persons"
    if schema.person in (reducer.of, *reducer.where):
        yield "it reads the column of ids, which is never released; name another column"
    if any(not texts for texts in reducer.where.values()):
        yield "where has a column without texts; name at least one for each"
    if take == "any" and not reducer.where:
        yield 'take = "any" asks whether a record matches; say which in where, such as where = { code = ["E11"] }'
    if take == "any" and not isinstance(column, Boolean):
        yield f'take = "any" gives yes or no; declare columns.{name} with kind = "boolean"'
    if reducer.of is not None and take in ("any", "count"):
        yield f'take = "{take}" reads no cells, so `of` has no use; remove it'
    if (reducer.up_to is not None) != (take == "count"):
        yield 'up_to belongs to take = "count" and must stand there: the largest count, a public number'
    if reducer.up_to is not None and not 1 <= reducer.up_to <= MOST_COUNTED:
        yield f"up_to must lie between 1 and {MOST_COUNTED}"
    if take == "count" and isinstance(column, Categorical | Ordinal) and reducer.up_to is not None:
        texts = {*column.levels, *chain.from_iterable((column.spellings or {}).values())}
        if texts.isdisjoint(map(str, range(min(reducer.up_to, MOST_COUNTED) + 1))):
            yield f"no count from 0 to {reducer.up_to} is a level of columns.{name}; declare them there"
    if take == "mean" and not isinstance(column, Numeric):
        yield f'take = "mean" gives a number; declare columns.{name} with kind = "numeric" and bounds'
    if take == "last" and schema.order is None:
        yield 'take = "last" needs an order; add order = "…" under [dataset], a column of dates or numbers'
