from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.data.cells import place_codes, spell_levels
from dagveil.data.column import MAX_LEVELS, Boolean, Categorical, Numeric, Ordinal
from dagveil.errors import SchemaError


@pytest.mark.parametrize("kind", [Categorical, Ordinal])
def test_labels_hold_the_levels_then_other_then_missing(kind: Any) -> None:
    assert kind(("a", "b"), "b", "a").labels == ("a", "b")
    assert kind(("a", "b"), "own-level", "own-level").labels == ("a", "b", "(other)", "(missing)")
    assert kind(["a", "b"]).labels == ("a", "b", "(other)")
    assert kind(("a", "b"), "own-level", "own-level").n_levels == 4


def test_missing_values_without_a_place_go_outside() -> None:
    assert place_codes(Categorical(("a", "b"), "b")) == (0, 1, 1, 1)
    assert place_codes(Categorical(("a", "b"), "own-level", "a")) == (0, 1, 2, 0)
    assert place_codes(Boolean("own-level", "own-level")) == (0, 1, 2, 3)


def test_booleans_have_documented_spellings() -> None:
    spelled = spell_levels(Boolean())
    assert {text for text, level in spelled.items() if level == 1} == {
        "true",
        "TRUE",
        "True",
        "t",
        "T",
        "yes",
        "YES",
        "Yes",
        "1",
    }
    assert {text for text, level in spelled.items() if level == 0} == {
        "false",
        "FALSE",
        "False",
        "f",
        "F",
        "no",
        "NO",
        "No",
        "0",
    }


def test_numeric_bins() -> None:
    assert Numeric(bounds=(0, 10)).labels == ("[0, 2.5)", "[2.5, 5)", "[5, 7.5)", "[7.5, 10]")
    assert Numeric(bounds=(0, 10), bins=1).labels == ("[0, 10]",)
    assert Numeric(bounds=(0, 10), bins=(0, 4, 10)).cuts == (4.0,)
    assert Numeric(bounds=(0, 10), bins=(4,)).labels == ("[0, 4)", "[4, 10]")
    assert Numeric(bounds=(0, 10), bins=(4,), missing="own-level").labels[-1] == "(missing)"
    assert Numeric(bounds=(-9, 9), center=0, spread=1).cuts == pytest.approx((-0.674, 0, 0.674))
    assert Numeric(bounds=(0, 9), center=0, spread=1).cuts == pytest.approx((0.674,))
    assert Numeric(bounds=(0, 4), center=0, spread=100).cuts == (1, 2, 3)


def test_labels_of_narrow_bins_stay_apart() -> None:
    labels = Numeric(bounds=(1e6, 1e6 + 1), bins=1000).labels
    assert len(set(labels)) == 1000


def test_zero_has_one_sign() -> None:
    # equal columns must have equal text, because digests are taken from it
    assert repr(Numeric(bounds=(-1, 1), bins=(-0.0,), missing=-0.0, center=-0.0)) == repr(
        Numeric(bounds=(-1, 1), bins=(0.0,), missing=0.0, center=0.0)
    )


def test_the_number_for_missing_values() -> None:
    assert Numeric(bounds=(0, 10)).missing_value == 5
    assert Numeric(bounds=(0, 10), center=3).missing_value == 3
    assert Numeric(bounds=(0, 10), center=3, missing=7).missing_value == 7
    assert Numeric(bounds=(0, 10), center=3, bins=2, missing="own-level").missing_value == 3


@settings(deadline=None)
@given(
    st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, MAX_LEVELS),
)
def test_equal_bins_always_increase_inside_the_bounds(bounds: tuple[float, float], bins: int) -> None:
    column = Numeric(bounds=bounds, bins=bins)
    edges = [bounds[0], *column.cuts, bounds[1]]
    assert all(left < right for left, right in itertools.pairwise(edges))
    assert len(column.labels) == column.n_levels <= bins
    assert bounds[0] <= column.missing_value <= bounds[1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"levels": ()}, "levels is empty"),
        ({"levels": "abc"}, "list of texts"),
        ({"levels": (1, 2)}, "list of texts"),
        ({"levels": ("a", "b", "a")}, "declared twice"),
        ({"levels": ("a", "")}, "empty name"),
        ({"levels": ("a" * 201,)}, "longer than 200"),
        ({"levels": ("own-level",)}, "meaning of its own"),
        ({"levels": ("a",), "outside": "b"}, "outside is 'b', which is no level"),
        ({"levels": ("a",), "outside": None}, "outside is empty"),
        ({"levels": ("a",), "missing": "b"}, "missing is 'b', which is no level"),
        ({"levels": ("a", "(other)")}, "already declared"),
        ({"levels": ("a", "(missing)"), "missing": "own-level"}, "already declared"),
        ({"levels": tuple(map(str, range(1001)))}, "1001 levels .* limit is 1000; group"),
        ({"levels": tuple(map(str, range(100_000)))}, "100000 levels"),
    ],
)
@pytest.mark.parametrize("kind", [Categorical, Ordinal])
def test_bad_levels_are_refused(kind: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        kind(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"bounds": (1, 0)}, "do not increase"),
        ({"bounds": (1, 1)}, "do not increase"),
        ({"bounds": (0, math.inf)}, "finite"),
        ({"bounds": (math.nan, 1)}, "finite"),
        ({"bounds": (0,)}, "two numbers"),
        ({"bins": 0}, "between 1 and 1000"),
        ({"bins": 1001}, "between 1 and 1000"),
        ({"bins": True}, "between 1 and 1000"),
        ({"bins": ()}, "0 edges"),
        ({"bins": (2,)}, "outside the bounds"),
        ({"bins": (math.nan,)}, "outside the bounds"),
        ({"bins": (0.5, 0.5)}, "do not increase"),
        ({"bins": (0.7, 0.5)}, "do not increase"),
        ({"missing": "other"}, "must be a number"),
        ({"missing": 2.0}, "missing is 2, outside the bounds"),
        ({"missing": math.nan}, "outside the bounds"),
        ({"center": 2.0}, "center is 2, outside the bounds"),
        ({"spread": 0.0}, "spread is 0"),
        ({"spread": math.inf}, "spread is inf"),
    ],
)
def test_bad_numeric_columns_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Numeric(**({"bounds": (0, 1)} | fields))


@pytest.mark.parametrize("missing", ["own-level", "pairwise"])
def test_missing_values_have_a_code_of_their_own(missing: Any) -> None:
    assert Categorical(("a", "b"), "a", missing).labels == ("a", "b", "(missing)")
    assert Numeric(bounds=(0, 4), bins=2, missing=missing).labels == ("[0, 2)", "[2, 4]", "(missing)")
    assert Numeric(bounds=(0, 4), missing=missing).n_levels == 5
    assert Numeric(bounds=(0, 4), missing=missing).missing_value == 2.0


def test_pairwise_is_no_level() -> None:
    with pytest.raises(SchemaError, match="meaning of its own"):
        Categorical(("a", "pairwise"), "a", "pairwise")
    with pytest.raises(SchemaError, match="already declared"):
        Categorical(("a", "(missing)"), "a", "pairwise")
    with pytest.raises(SchemaError, match="no level"):
        Categorical(("a", "b"), "pairwise")
