"""The account in words, whatever the ledger holds."""

from __future__ import annotations

from fractions import Fraction

from dagveil.cli.options import describe
from dagveil.privacy.budget import Budget
from dagveil.privacy.ledger.account import Account, Allowance, Composition, Spending, Totals


def test_an_overspent_account_is_described() -> None:
    spending = Spending(Totals(Fraction(7, 2), Fraction(1, 10**6), Fraction(1)), runs=4)
    words = describe(Account("visits", Allowance.of(Budget.of(3, "1e-5"), Composition.SUM), spending))
    assert "spent epsilon 3.5" in words
    assert "overspent by epsilon 0.5, delta 0" in words
    composed = describe(Account("visits", Allowance.of(Budget.of(3, "1e-5"), Composition.CONCENTRATED), spending))
    assert "overspent: the runs together exceed it" in composed


def test_an_account_with_something_left_is_not_overspent() -> None:
    spending = Spending(Totals(Fraction(3)), runs=1)
    words = describe(Account("visits", Allowance.of(Budget.of(3, 0), Composition.SUM), spending))
    assert words.endswith("left epsilon 0, delta 0")
