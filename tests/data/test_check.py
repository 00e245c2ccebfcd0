from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from dagveil.data.check import CUSTODIAN_WARNING, check_source
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import DataError
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.runs.discovery import measure_source

WORD = Categorical(("a", "b", "c"), "a", "own-level")
NUMBER = Numeric(bounds=(0, 10), bins=2)


@pytest.mark.parametrize(
    ("column", "cells", "outside", "missing", "clipped", "unused"),
    [
        (WORD, ["a", "b", "z", "", None], 1, 2, 0, ("c",)),
        (WORD, ["z"], 1, 0, 0, ("a", "b", "c")),  # an outside value does not use the level that it is put in
        (Boolean("false"), [True, True], 0, 0, 0, ("false",)),
        (NUMBER, [1.0, 11.0, -math.inf, math.nan, None], 0, 2, 2, ()),
        (NUMBER, ["1", " 2 ", "?", "", "NaN", None], 1, 3, 0, ()),
        (NUMBER, [1, 2], 0, 0, 0, ("[5, 10]",)),
        (NUMBER, [], 0, 0, 0, ("[0, 5)", "[5, 10]")),
    ],
)
def test_counts(
    column: Column, cells: list[Any], outside: int, missing: int, clipped: int, unused: tuple[str, ...]
) -> None:
    report = check_source({"x": cells}, Schema(dataset="d", columns={"x": column}))
    (found,) = report.columns
    assert (found.outside, found.missing, found.clipped, found.unused) == (outside, missing, clipped, unused)
    assert report.n_rows == len(cells)


@pytest.mark.parametrize(
    ("column", "cells", "fits"),
    [
        (WORD, ["a", None], True),
        (WORD, ["a", "z"], False),
        (Categorical(("a",), "a"), ["a", None], False),
        (NUMBER, [1.0, None], False),
        (Numeric(bounds=(0, 10), center=3), [1.0, None], True),
        (Numeric(bounds=(0, 10), bins=2, missing="own-level"), [1.0, None], True),
        (Numeric(bounds=(0, 10), center=3, missing_words=("k.A.", "-9")), ["1.5", "k.A.", "-9", "-9.0"], True),
        (Numeric(bounds=(0, 10), center=3, missing_words=("-9",)), [1, -9], True),
        (Boolean(missing="own-level", spellings={"true": ("ja",)}, missing_words=("NA",)), ["ja", "no", "NA"], True),
        (NUMBER, [1.0, 11.0], False),
        (NUMBER, ["1", "?"], False),
    ],
)
def test_fits(column: Column, cells: list[Any], fits: bool) -> None:
    assert check_source({"x": cells}, Schema(dataset="d", columns={"x": column})).fits is fits


def test_words_warn_and_show_no_cell() -> None:
    report = check_source({"x": ["a", "secret", None]}, Schema(dataset="d", columns={"x": WORD}))
    lines = report.words()
    assert lines[0] == CUSTODIAN_WARNING
    assert lines[1:-1] == ("3 rows", "x: 1 outside, 1 missing (33.3%), counted as (missing), 2 levels without a record")
    assert lines[-1].startswith("1 column holds values")
    assert "secret" not in repr(report)


def test_texts_in_a_column_of_numbers_are_called_so() -> None:
    report = check_source({"x": ["1.5", "2,5"]}, Schema(dataset="d", columns={"x": Numeric((0, 10), center=3)}))
    assert report.words()[2] == "x: 1 no numbers, counted as 3, 2 levels without a record"


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (Categorical(("a", "b"), "a", "pairwise"), [None, "", None, None]),
        (Numeric(bounds=(0, 10), missing="pairwise"), [None, math.nan, None, None]),
    ],
)
def test_a_column_without_values_is_told(column: Column, cells: list[Any]) -> None:
    schema = Schema(dataset="d", columns={"x": column})
    line = check_source({"x": cells}, schema).columns[0].words()
    assert line.startswith(
        "x: 4 missing (100.0%), counted as (missing), no cell holds a value, so leave the column out"
    )


PERSONS: dict[str, Any] = {"person": "id", "records": "one", "which": "last", "order": "day"}
DAYS = ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]


@pytest.mark.parametrize(
    ("ids", "days", "words"),
    [
        (["a", "b", "c", "d"], DAYS, "every id occurs once, so a row is a person"),
        (["a", "a", "a", "a"], DAYS, "all records have the same id"),
        (["a", "a", None, ""], DAYS, "2 records have no id and are left out. That is a fifth of all"),
        ([None, "", None, None], DAYS, "no record has an id in 'id'"),
        (["a", "a", "b", "b"], DAYS[:2] * 2, "with 2 to 2 records"),
        (
            ["a", "a", "b", "b"],
            [DAYS[0], DAYS[0], *DAYS[:2]],
            "1 times several records of a person have the same place",
        ),
        (
            ["a", "a", "b", "b"],
            [DAYS[0], "1.2.2024", *DAYS[:2]],
            "1 cells of 'day' are missing or written in another way",
        ),
        (
            ["a", "a", "b", "b"],
            [DAYS[0], "1.2.2024", *DAYS[:2]],
            '1 of these 1 are dates such as "%d.%m.%Y" reads; write all dates in one way',
        ),
        (
            ["a", "a", "b", "b"],
            ["13/2/2024", "14/2/2024", "1/2/2024", "sometime"],
            '3 of these 4 are dates such as "%d/%m/%Y" reads; declare order_format = "%d/%m/%Y"',
        ),
        (["a", "a", "b", "b"], [DAYS[0], "17", *DAYS[:2]], "numbers and dates, which cannot be compared"),
        (["a", " NA", "Unknown", "NA"], DAYS, '3 records have an id such as "NA" or "unknown"'),
    ],
)
def test_odd_ids_and_orders_are_told_without_a_cell(ids: list[Any], days: list[str], words: str) -> None:
    schema = Schema(dataset="d", columns={"x": WORD}, **PERSONS)
    told = check_source({"id": ids, "day": days, "x": ["a", "b", "c", "a"]}, schema).persons
    assert words in " ".join(told)
    # the one date that is quoted shows how dates are written
    assert not any(day in line for line in told for day in days)


def test_ids_that_cannot_be_compared_are_refused_before_anything_is_charged() -> None:
    schema = Schema(
        dataset="d",
        columns={"x": WORD, "y": Boolean("false")},
        reviewed=True,
        nominal_rows=4,
        person="id",
        unit="patient",
    )
    table = pa.table({"id": [[1], [2], [3], [3]], "x": ["a", "b", "c", "a"], "y": [True, False, True, True]})
    books = MemoryLedger()
    with pytest.raises(DataError, match="'id'"):
        measure_source(table, schema, 1, "1e-6", ledger=books)
    assert books.account("d").spent_epsilon == books.account("d").spending.reserved.epsilon == 0
