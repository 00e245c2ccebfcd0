"""Columns that a person should look at before a draft becomes a schema."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dagveil.data.draft import draft_schema, find_doubts

MANY = range(30)

DOUBTFUL: dict[str, tuple[list[Any], str]] = {
    "dates": ([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], "looks like dates"),
    "times": ([datetime.datetime(2020, 1, 1, 12), None], "looks like dates"),
    "dates as texts": (["2020-01-01", "2020-02-29", "2020-01-01"], "looks like dates"),
    "dates with times": (["2020-01-01T12:30", "2020-02-29 23:59:59"], "looks like dates"),
    "dates of other countries": (["31.12.2020", "1/2/20", "1.1.1999"], "looks like dates"),
    "names of records": ([f"P{k}" for k in MANY], "all 30 values differ"),
    "running numbers": ([7 + k for k in MANY], "all 30 values differ"),
    "running numbers as texts": ([str(7 + k) for k in MANY], "all 30 values differ"),
    "one text": (["a", "a", None], "one value only"),
    "one number": ([0.5, 0.5], "one value only"),
    "nothing": ([None, None], "no value"),
    "many texts": ([f"v{k % 150}" for k in range(6030)], "150 different texts, of which 20 became levels"),
    "persons": ([f"v{k // 2}" for k in range(300)], "150 different texts, 150 of them more than once"),
    "missing numbers": ([0.5, 1.5, 2.25, None], "has missing values: a bin of their own"),
    "spellings": (["Basic", "basic ", "BASIC", "plus"], "4 spellings of 2 levels, such as 'BASIC' and 'Basic'"),
}

FINE: dict[str, list[Any]] = {
    "texts": ["a", "b", "a"],
    "booleans": [True, False],
    "booleans as texts": ["TRUE", "true", "false"],
    "numbers that all differ": [k * 1.5 for k in MANY],
    "numbers as texts": [str(k + 0.25) for k in MANY],
    "incomes": [20_000 + 997 * k for k in MANY],
    "few numbers": [1, 2, 3, 4],
    "versions": ["1.2", "1.3"],
    "numbers and a date": [*map(str, range(1, 20)), "2020-01-01"] * 2,
}


@pytest.mark.parametrize(("cells", "wanted"), DOUBTFUL.values(), ids=list(DOUBTFUL))
def test_doubtful(cells: list[Any], wanted: str) -> None:
    rows = {"x": cells, "y": [True] * len(cells)}
    assert wanted in find_doubts(rows, draft_schema(rows))["x"]


@pytest.mark.parametrize("cells", FINE.values(), ids=list(FINE))
def test_fine(cells: list[Any]) -> None:
    rows = {"x": cells}
    assert find_doubts(rows, draft_schema(rows)) == {}


def test_frames_and_coded_columns_are_read_as_well() -> None:
    texts = pa.array(["2020-01-01", "2020-01-02"]).dictionary_encode()
    frame = pd.DataFrame({"day": pd.date_range("2020-01-01", periods=30), "plan": pd.Categorical(["a", "A "] * 15)})
    coded = {"x": texts, "y": [True, False]}
    assert find_doubts(coded, draft_schema(coded)).keys() == {"x"}
    assert find_doubts(frame, draft_schema(frame)).keys() == {"day", "plan"}


def test_a_column_that_was_left_out_is_not_doubted() -> None:
    assert find_doubts({"x": ["a", "A"], "y": ["a", "b"]}, draft_schema({"y": ["a", "b"]})) == {}
