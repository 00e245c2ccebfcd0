from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from dagveil.data.check import check_source
from dagveil.data.column import Boolean, Categorical, Column, Numeric
from dagveil.data.draft import draft_schema
from dagveil.data.schema import schema_from_toml, schema_to_toml
from dagveil.errors import DataError

CASES: dict[str, tuple[list[Any], Column]] = {
    "texts": (["b", "a", "b"], Categorical(("a", "b"), "b")),
    "texts with gaps": (["b", None, ""], Categorical(("b",), "b", "own-level")),
    "whole numbers": ([10, 9, 9], Categorical(("9", "10"), "9")),
    "whole numbers as floats": ([10.0, 9.0, math.nan], Categorical(("9", "10"), "9", "own-level")),
    "whole numbers as texts": (["10", "9", "9"], Categorical(("9", "10"), "9")),
    "padded codes": (["01", "02", "02"], Categorical(("01", "02"), "02")),
    "booleans": ([True, False, None], Boolean("false", "own-level")),
    "booleans as texts": (["TRUE", "false"], Boolean("false")),
    "floats": ([0.5, 2.0, math.inf, math.nan], Numeric((0.5, 2.0), missing=1.25)),
    "floats as texts": (["0.5", "2.0", ""], Numeric((0.5, 2.0), missing=1.25)),
    "floats without gaps": ([0.5, 2.0], Numeric((0.5, 2.0))),
    "many whole numbers": (list(range(21)), Numeric((0, 20))),
    "many numbers and a few words": ([*map(str, range(50)), "?"], Numeric((0, 49))),
    "a constant": ([0.5, 0.5], Numeric((-0.5, 0.5))),
    "a negative constant": ([-1e300 - 0.5], Categorical((repr(-1e300),), repr(-1e300))),
    "a constant text": (["a", "a"], Categorical(("a",), "a")),
    "nothing": ([None, None], Categorical(("(none)",), "(none)")),
    "only not-a-number": ([math.nan, math.inf], Numeric((0, 1), missing=0.5)),
    "reserved words": (["own-level", "a", "(other)"], Categorical(("a",), "own-level")),
    "giant cells": (["x" * 10_000_000, "a"], Categorical(("a",), "own-level")),
    "decimals": ([Decimal("0.50"), Decimal("2.25")], Numeric((0.5, 2.25))),
    "whole decimals": ([Decimal("1.0"), Decimal("2"), 2], Categorical(("1", "2"), "2")),
    "mixed numbers": ([1, 2.5, Decimal("0.5")], Numeric((0.5, 2.5))),
    "hundred texts": ([f"v{k:03}" for k in range(100)], Categorical(tuple(f"v{k:03}" for k in range(100)), "v000")),
}


@pytest.mark.parametrize(("cells", "wanted"), CASES.values(), ids=list(CASES))
def test_kinds(cells: list[Any], wanted: Column) -> None:
    draft = draft_schema({"x": cells}, "demo")
    assert draft.columns["x"] == wanted
    assert draft.reviewed is False
    assert draft.nominal_rows is None
    assert schema_from_toml(schema_to_toml(draft)) == draft


def test_too_many_texts_keep_the_most_frequent() -> None:
    cells = [f"v{k:03}" for k in range(101)] + [f"v{k:03}" for k in range(50, 70)]
    column = draft_schema({"x": cells}).columns["x"]
    assert column == Categorical(tuple(f"v{k:03}" for k in range(50, 70)), "own-level")


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    pd.DataFrame({"a": [1]}).to_csv(path, index=False)
    assert draft_schema(path).dataset == "people"
    assert draft_schema(str(path), "other").dataset == "other"
    assert draft_schema({"a": [1]}).dataset == "data"


def test_drafts_fit_their_own_data(tmp_path: Path) -> None:
    frame = {"a": ["x", "y", None], "b": [0.5, 1.5, 9.0], "c": [1, 2, 2], "d": ["true", "FALSE", "true"]}
    pd.DataFrame(frame).to_csv(tmp_path / "t.csv", index=False)
    for source in (frame, tmp_path / "t.csv"):
        assert check_source(source, draft_schema(source)).fits


def test_what_cannot_be_drafted() -> None:
    with pytest.raises(DataError, match="no columns"):
        draft_schema({})
    with pytest.raises(DataError, match="neither text nor numbers"):
        draft_schema(pa.table({"x": [[1], [2]]}))
