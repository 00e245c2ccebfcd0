from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagveil.errors import InvalidBudgetError
from dagveil.privacy.budget import Budget, Relation, exact, round_down, round_up


@pytest.mark.parametrize("epsilon", [0.1, "0.1", Decimal("0.1"), Fraction(1, 10), np.float64(0.1), "1/10"])
def test_every_way_to_write_a_tenth_is_a_tenth(epsilon):
    assert Budget.of(epsilon, "1e-6") == Budget(Fraction(1, 10), Fraction(1, 10**6))


@pytest.mark.parametrize(
    "epsilon",
    [
        0,
        -1,
        float("nan"),
        float("inf"),
        "nan",
        "many",
        "1/0",
        Decimal("Infinity"),
        True,
        None,
        "1e999999999",
        "1" * 500,
    ],
)
def test_bad_epsilons_are_refused_in_words(epsilon):
    with pytest.raises(InvalidBudgetError, match="epsilon"):
        Budget.of(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [-1e-9, 1, 2.5, float("nan"), "x"])
def test_bad_deltas_are_refused_in_words(delta):
    with pytest.raises(InvalidBudgetError, match="delta"):
        Budget.of(1, delta)


def test_the_constructor_takes_fractions_only():
    with pytest.raises(InvalidBudgetError, match=r"Budget\.of"):
        Budget(0.1, Fraction(0))


@given(st.fractions(min_value=0, max_value=10**6), st.integers(1, 12))
def test_printing_rounds_towards_its_side(x, digits):
    above, below = Fraction(round_up(x, digits)), Fraction(round_down(x, digits))
    assert below <= x <= above
    assert above - below <= max(x, Fraction(1, 10**9)) * Fraction(10) ** (1 - digits)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_float_means_its_shortest_decimal(x):
    assert exact(x) == Fraction(repr(x))
    assert float(exact(x)) == x


def test_relations_have_words():
    assert "added or removed" in Relation.ADD_REMOVE.words
    assert "replaced" in Relation.REPLACE_ONE.words


@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_amounts_with_hundreds_of_digits_are_refused(name: str) -> None:
    """Their squares could not be written to the ledger."""
    long = Fraction(10**500 + 1, 10**500) / 2
    amounts = {"epsilon": Fraction(1), "delta": Fraction(0)} | {name: long}
    with pytest.raises(InvalidBudgetError, match=f"{name} has hundreds of digits"):
        Budget(**amounts)
