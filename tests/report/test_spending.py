from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    DiscreteGaussian,
    GaussianFilter,
    PureFilter,
    SparseVectorRound,
    Unbounded,
    ZcdpFilter,
)
from dagveil.privacy.receipt import Calibration, Receipt
from dagveil.report.formatting import write_delta, write_epsilon, write_share
from dagveil.report.guarantee import MOST_SLICES, itemise

BUDGET = Budget.of(1, 1e-6)


def receipt_of(accounting: Any, events: list[Any]) -> Receipt:
    """What a filter that charged these events puts on a receipt."""
    for event in events:
        accounting.charge(event)
    return Receipt(
        calibration=Calibration.SOUND,
        epsilon=str(BUDGET.epsilon),
        delta=str(BUDGET.delta),
        spent="",
        relation=Relation.ADD_REMOVE,
        unit="patient",
        nominal_rows=None,
        accounting=accounting.name,
        accounting_total=str(accounting.total),
        accounting_spent=str(accounting.spent),
        dataset="visits",
        software="dagveil",
        noise="OpenDP",
        events=tuple(events),
    )


@pytest.mark.parametrize(
    ("accounting", "event"),
    [
        (GaussianFilter(BUDGET), DiscreteGaussian("pairs", 4, Fraction(2), Fraction(5000))),
        (ZcdpFilter(BUDGET), DiscreteGaussian("pairs", 4, Fraction(2), Fraction(5000))),
        (PureFilter(BUDGET), SparseVectorRound("pairs", Fraction(1, 10))),
    ],
)
def test_slices_are_the_prices_of_the_filter(accounting: Any, event: Any) -> None:
    receipt = receipt_of(accounting, [event, event])
    spending = itemise(receipt)
    (part,) = spending.slices
    assert part.events == 2
    assert part.amount == 2 * accounting.cost(event) == accounting.spent
    assert spending.unspent == pytest.approx(float(1 - accounting.spent / accounting.total))
    assert spending.contradictions == ()


def test_many_labels_are_told_together_and_nothing_is_lost() -> None:
    accounting = PureFilter(Budget.of(100, 0))
    events = [SparseVectorRound(f"question {i}", Fraction(1 + i, 10)) for i in range(30)]
    spending = itemise(receipt_of(accounting, events))
    assert len(spending.slices) == MOST_SLICES
    assert sum(part.amount for part in spending.slices) == accounting.spent
    assert sum(part.events for part in spending.slices) == 30
    assert spending.slices[-1].label == "22 smaller ones"
    assert "question 29" in {part.label for part in spending.slices}


def test_unknown_accounting_or_events_are_told_as_not_itemised() -> None:
    receipt = receipt_of(PureFilter(BUDGET), [SparseVectorRound("pairs", Fraction(1, 4))])
    for change in ({"accounting": "a new accounting"}, {"events": (Unbounded("pairs", "for a test"),)}):
        spending = itemise(replace(receipt, **change))
        assert [(part.label, part.share) for part in spending.slices] == [("not itemised", 0.25)]
        assert spending.contradictions == ()


def test_amounts_beyond_all_floats_are_a_contradiction_and_no_crash() -> None:
    receipt = receipt_of(PureFilter(BUDGET), [SparseVectorRound("pairs", Fraction(1, 4))])
    spending = itemise(replace(receipt, accounting_total="1/" + "9" * 400))
    assert spending.contradictions == ("The receipt says that more was spent than there was.",)


@given(st.fractions(0, 1, max_denominator=10**9))
def test_budgets_are_never_shown_too_small(amount: Fraction) -> None:
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    mantissa, _, power = write_delta(amount).rpartition("10")
    shown = (
        Fraction(0)
        if amount == 0
        else Fraction(mantissa.strip(" ×") or 1) * Fraction(10) ** int(power.translate(digits))
    )
    assert amount <= shown <= amount * Fraction(11, 10)
    assert amount <= Fraction(write_epsilon(amount)) <= amount * Fraction(1001, 1000)


@given(st.floats(0, 1))
def test_shares_are_never_rounded_to_certainty(share: float) -> None:
    assert (write_share(share) == "100 %") == (share == 1)
    assert (write_share(share) == "0 %") == (share == 0)
