"""What an attacker gains: the sentence, the bound, and a walk through all tests that a promise allows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagveil.privacy.budget import Relation
from dagveil.privacy.receipt import bound_advantage, describe_guessing, name_unit, write_accuracy


@given(st.floats(0.01, 8.0), st.floats(0.0, 0.2))
def test_accuracy_and_advantage_are_those_of_the_best_test(epsilon: float, delta: float) -> None:
    """The slow twin tries every false positive rate, for an even chance."""
    false = np.linspace(0.0, 1.0, 20_001)
    factor = math.exp(epsilon)
    true = np.minimum(np.minimum(1.0, factor * false + delta), 1.0 - np.maximum(0.0, (1.0 - delta - false) / factor))
    best = 100.0 * float((0.5 * true + 0.5 * (1.0 - false)).max())
    assert 50.0 * (1.0 + bound_advantage(epsilon, delta)) == pytest.approx(best, abs=0.02)
    printed = float(write_accuracy(Fraction(epsilon), Fraction(delta)))
    # printed to a tenth, never below
    assert best - 1e-6 <= printed <= best + 0.13


def test_the_sentence_speaks_of_what_neighbours_differ_in() -> None:
    one, none = Fraction(1), Fraction(0)
    both = describe_guessing(one, none, Relation.ADD_REMOVE)
    assert "whether one record is in the table is right at most 73.2 %" in both
    assert "which of two values one record has is right at most 88.1 %" in both
    replaced = describe_guessing(one, none, Relation.REPLACE_ONE)
    assert "in the table" not in replaced
    assert describe_guessing(one, none, Relation.ADD_REMOVE, contents_only=True) == replaced


def test_a_huge_epsilon_protects_nobody() -> None:
    assert write_accuracy(Fraction(10**6), Fraction(0)) == "100.0"
    assert bound_advantage(1e6, 0.0) == 1.0
    assert "may be right every time" in describe_guessing(Fraction(10**6), Fraction(1, 10**6), Relation.ADD_REMOVE)


def test_units_lose_their_article() -> None:
    assert [name_unit(unit) for unit in ("one row", "a person", "household")] == ["row", "person", "household"]
