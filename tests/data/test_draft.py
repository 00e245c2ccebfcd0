from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dagveil.data.check import check_source
from dagveil.data.column import Boolean, Categorical, Column, Numeric, Ordinal
from dagveil.data.draft import draft_schema, find_doubts
from dagveil.data.schema import schema_from_toml, schema_to_toml
from dagveil.errors import DataError

OWN = "own-level"
CASES: dict[str, tuple[list[Any], Column]] = {
    "texts": (["b", "a", "b"], Categorical(("a", "b"))),
    "texts with gaps": (["b", None, ""], Categorical(("b",), missing=OWN)),
    "two whole numbers": ([10, 9, 9], Categorical(("9", "10"))),
    "whole numbers": ([1, 2, 3, 3], Ordinal(("1", "2", "3"))),
    "whole numbers with gaps between": ([0, 1, 5], Ordinal(("0", "1", "5"), scores=(0, 1, 5))),
    "whole numbers as floats": ([10.0, 9.0, math.nan], Categorical(("9", "10"), missing=OWN)),
    "whole numbers as texts": (["3", "10", "9", "9"], Ordinal(("3", "9", "10"), scores=(3, 9, 10))),
    "padded codes": (["01", "02", "02"], Categorical(("01", "02"))),
    "booleans": ([True, False, None], Boolean("false", OWN)),
    "booleans as texts": (["TRUE", "false"], Boolean()),
    "a scale of words": (["high", "low", "medium"], Ordinal(("low", "medium", "high"))),
    "a scale of ranges": (["10-19", "80+", "0-9"], Ordinal(("0-9", "10-19", "80+"))),
    "words without an order": (["x", "low", "high"], Categorical(("high", "low", "x"))),
    "spellings": (["f", "f", "F", "m "], Categorical(("f", "m "), spellings={"f": ("F",)})),
    "words for missing": (["f", "m", "k.A.", "NA"], Categorical(("f", "m"), missing=OWN, missing_words=("NA", "k.A."))),
    "numbers and words for missing": (
        ["1.5", "2.5", "na"],
        Numeric((1.5, 2.5), bins=(1.8, 2.0, 2.2), missing=OWN, center=2.0, spread=0.5, missing_words=("na",)),
    ),
    "floats": (
        [0.5, 2.0, math.inf, math.nan],
        Numeric((0.5, 2.0), bins=(0.9, 1.2, 1.6), missing=OWN, center=1.2, spread=0.75),
    ),
    "floats as texts": (
        ["0.5", "2.0", ""],
        Numeric((0.5, 2.0), bins=(0.9, 1.2, 1.6), missing=OWN, center=1.2, spread=0.75),
    ),
    "many numbers and a few words": (
        [*map(str, np.arange(50) ** 2), "?!"],
        Numeric((0, 2500), bins=(200.0, 600.0, 1400.0), center=800.0, spread=730.0),
    ),
    "mostly the lowest number": (
        [0.0] * 30 + [0.5 + k for k in range(10)],
        Numeric((0, 9.5), bins=(0.5,), center=1.0, spread=2.6),
    ),
    "a constant": ([0.5, 0.5], Numeric((-0.5, 0.5))),
    "a negative constant": ([-1e300 - 0.5], Categorical((repr(-1e300),))),
    "a constant text": (["a", "a"], Categorical(("a",))),
    "nothing": ([None, None], Categorical(("(none)",), "(none)")),
    "only not-a-number": ([math.nan, math.inf], Numeric((0, 1), bins=1, missing=OWN)),
    "reserved words": (["own-level", "a", "(other)"], Categorical(("a",))),
    "giant cells": (["x" * 10_000_000, "a"], Categorical(("a",))),
    "whole decimals": ([Decimal("1.0"), Decimal("2"), 2], Categorical(("1", "2"))),
}
"""Column, and what is drafted of it: nothing goes to a level that means something else, or to the middle."""


@pytest.mark.parametrize(("cells", "wanted"), CASES.values(), ids=list(CASES))
def test_kinds(cells: list[Any], wanted: Column) -> None:
    draft = draft_schema({"x": cells}, "demo")
    assert draft.columns["x"] == wanted
    assert draft.reviewed is False
    assert draft.nominal_rows is None
    assert schema_from_toml(schema_to_toml(draft)) == draft


def test_many_texts_of_many_rows_keep_the_most_frequent() -> None:
    cells = [f"v{k:03}" for k in range(101)] * 30 + [f"v{k:03}" for k in range(50, 70)]
    draft = draft_schema({"x": cells, "y": ["a", "b"] * (len(cells) // 2)})
    assert draft.columns["x"] == Categorical(tuple(f"v{k:03}" for k in range(50, 70)))


RNG = np.random.default_rng(1)
VISITS = np.repeat(np.arange(6000), RNG.integers(1, 6, 6000))
MEMBERS = RNG.choice(np.arange(4, 99_998_824), 9000, replace=False)[
    np.repeat(np.arange(9000), RNG.integers(1, 4, 9000))
]

NAMES: dict[str, Any] = {
    "ids of persons": [f"P{k:05}" for k in VISITS],
    "running ids of persons": VISITS + 1,
    "random ids of persons": MEMBERS,
    "random ids as texts": [str(number) for number in MEMBERS],
    "ids that became floats": np.append(MEMBERS.astype(float), np.nan),
    "a panel": np.repeat(np.arange(545), 8),
    "free texts": [f"v{k // 2}" for k in range(300)],
    "names of records": [f"P{k}" for k in range(30)],
    "running numbers": np.arange(7, 37),
    "dates": ["2020-01-01", "2020-02-29", "2020-01-01"],
    "a panel's numbers": np.repeat(np.sort(RNG.choice(13_000, 545, replace=False) ** 2 // 13_000 + np.arange(545)), 8),
    "few numbers of a panel": np.repeat(np.arange(1, 317), 24),
    "a panel's names": [f"person {k}" for k in range(316) for _ in range(24)],
}
VARIABLES: dict[str, Any] = {
    "ages": RNG.integers(18, 100, 20_000),
    "postcodes": RNG.choice(RNG.integers(10_000, 99_999, 90), 5000),
    "wards of texts": [f"ward {k}" for k in RNG.integers(0, 120, 20_000)],
    "days of follow-up": np.minimum(RNG.exponential(3000, 8000), 5200).astype(int),
    "incomes": (RNG.lognormal(8, 0.6, 8000) // 10 * 10).astype(int),
    "incomes that all differ": 20_000 + 997 * np.arange(30) ** 2,
    "pressures": RNG.normal(128, 19, 1600).astype(int),
    "claims": RNG.poisson(12, 20_000),
    "amounts": RNG.normal(0, 1, 5000),
}


@pytest.mark.parametrize("cells", NAMES.values(), ids=list(NAMES))
def test_names_of_persons_and_records_are_left_out(cells: Any) -> None:
    rows = {"id": cells, "x": np.arange(len(cells)) % 2}
    draft = draft_schema(rows)
    assert (draft.ignore, list(draft.columns)) == (("id",), ["x"])
    assert not any(str(cell) in schema_to_toml(draft) for cell in list(cells)[:50] if len(str(cell)) > 3)
    assert "left out" in find_doubts(rows, draft)["id"]


@pytest.mark.parametrize("cells", VARIABLES.values(), ids=list(VARIABLES))
def test_variables_are_kept(cells: Any) -> None:
    assert draft_schema({"x": cells}).ignore == ()


def test_a_doubt_explains_persons_with_several_records() -> None:
    rows = {"id": NAMES["ids of persons"], "x": VISITS % 2}
    doubt = find_doubts(rows, draft_schema(rows))["id"]
    assert "6000 different texts" in doubt
    assert "a person with k records has k times the epsilon" in doubt


def test_nothing_is_written_if_every_column_is_a_name() -> None:
    with pytest.raises(DataError, match="all 1 columns look like"):
        draft_schema({"id": NAMES["ids of persons"]})


def test_bins_hold_about_as_many_rows_each_and_have_few_digits() -> None:
    skewed = np.random.default_rng(2).lognormal(0.3, 0.5, 5000)
    column = draft_schema({"x": skewed}).columns["x"]
    assert isinstance(column, Numeric)
    shares = np.bincount(np.searchsorted(column.cuts, skewed, side="right")) / 5000
    assert len(shares) == 4
    assert shares.min() > 0.15
    assert all(len(f"{edge:g}") <= 4 for edge in (*column.bounds, *column.cuts, column.center or 0))


def test_names(tmp_path: Path) -> None:
    path = tmp_path / "people.csv.gz"
    pd.DataFrame({"a": [1], "b": [2]}).to_csv(path, index=False)
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


def test_a_table_of_numbers_has_no_bins_and_missing_numbers_take_the_centre() -> None:
    rng = np.random.default_rng(1)
    full, holed = rng.normal(50, 10, 500), rng.normal(5, 1, 500)
    holed[:50] = np.nan
    draft = draft_schema({"full": full, "holed": holed})
    for name, missing in (("full", None), ("holed", draft.columns["holed"].center)):  # type: ignore[union-attr]
        column = draft.columns[name]
        assert isinstance(column, Numeric)
        assert (column.bins, column.missing) == (None, missing)
    doubts = find_doubts({"full": full, "holed": holed}, draft)
    assert set(doubts) == {"holed"}
    assert "count as the center" in doubts["holed"]
    mixed = draft_schema({"full": full, "holed": holed, "sex": ["f", "m"] * 250})
    assert all(column.bins is not None for column in mixed.columns.values() if isinstance(column, Numeric))


def test_numbers_with_the_other_decimal_mark_are_no_persons(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    lines = [f"{place % 7},5;{place % 400}.25;{'x' if place % 2 else 'y'}" for place in range(1200)]
    file.write_text("\n".join(["years;income;kind", *lines]), encoding="utf-8")
    draft = draft_schema(file, decimal=",")
    assert (draft.file.decimal, draft.ignore) == (",", ("income",))
    doubt = find_doubts(file, draft)["income"]
    assert "another decimal mark" in doubt
    assert "persons" not in doubt
