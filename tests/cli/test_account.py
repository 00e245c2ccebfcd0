"""The account in words, whatever the ledger holds."""

from __future__ import annotations

from fractions import Fraction

from dagveil.cli.account import describe
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.account import Account, Spending


def test_an_overspent_account_is_described() -> None:
    spending = Spending(spent_epsilon=Fraction(7, 2), spent_delta=Fraction(1, 10**6), runs=4)
    words = describe(Account("visits", Budget.of(3, "1e-5"), spending, unbounded=False))
    assert "spent epsilon 3.5" in words
    assert "left epsilon 0, delta 9e-6" in words
    assert "overspent by epsilon 0.5, delta 0" in words


def test_an_account_with_something_left_is_not_overspent() -> None:
    words = describe(Account("visits", Budget.of(3, 0), Spending(spent_epsilon=Fraction(3), runs=1), unbounded=False))
    assert words.endswith("left epsilon 0, delta 0")
