from __future__ import annotations

import math
from typing import Any

import pytest

from dagveil.data.check import CUSTODIAN_WARNING, check_source
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.schema import Schema

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
    assert lines[1:-1] == ("3 rows", "x: 1 outside, 1 missing, counted as (missing), 2 levels without a record")
    assert lines[-1].startswith("1 column holds values")
    assert "secret" not in repr(report)


def test_texts_in_a_column_of_numbers_are_called_so() -> None:
    report = check_source({"x": ["1.5", "2,5"]}, Schema(dataset="d", columns={"x": Numeric((0, 10), center=3)}))
    assert report.words()[2] == "x: 1 no numbers, counted as 3, 2 levels without a record"
