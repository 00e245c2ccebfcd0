"""A receipt's own arithmetic: what its events cost under its accounting must be what it says, and be allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetError, DataError
from dagveil.privacy.budget import Budget
from dagveil.privacy.conversion import TOTAL_MARGIN
from dagveil.privacy.events import Unbounded
from dagveil.privacy.filter import ApproximateZcdpFilter, Filter, GaussianFilter, PureFilter, ZcdpFilter
from dagveil.privacy.receipt import Calibration, Receipt
from dagveil.privacy.renyi import RenyiFilter

_BY_NAME: Final = {kind.name: kind for kind in (PureFilter, ZcdpFilter, ApproximateZcdpFilter, GaussianFilter)}
_RENYI: Final = re.compile(r"Renyi accounting at order ([0-9]{1,6})")


def filter_named(name: str, budget: Budget) -> Filter:
    """Make the filter that a receipt or a reservation names."""
    found = _RENYI.fullmatch(name)
    if found is not None:
        return RenyiFilter(budget, int(found[1]))
    if name not in _BY_NAME:
        raise BudgetError(f"there is no accounting {name!r}; it is one of {', '.join(_BY_NAME)} or Renyi accounting.")
    return _BY_NAME[name](budget)


_LARGEST_EPSILON: Final = 10**9  # no accounting goes further
# bits of a denominator: what a receipt states has fewer, so that a longer sum cannot be equal to it
_LONGEST_SUM: Final = 20_000
# totals come from floating point, which another machine may round otherwise: epsilon with a little room for that
_ROOM: Final = 1 + Fraction(1, 2**30)


def check_receipt(receipt: Receipt, *, asked: bool = True) -> None:
    """Refuse a receipt whose events do not cost what it says, or cost more than its epsilon and delta allow.

    Anyone may have edited the file. `asked`: whether anything was asked of the rows at all; a run whose background
    knowledge answers everything asks nothing.
    """
    unbounded = any(isinstance(event, Unbounded) for event in receipt.events)
    if receipt.calibration is not Calibration.SOUND:
        if not unbounded:
            _refuse("it is of a published calibration, and the event that says so is missing")
        return
    if unbounded:
        _refuse("it claims a guarantee, and one of its events has none")
    if asked and not receipt.events:
        _refuse("it claims a guarantee for a release, and lists no event")
    if Fraction(receipt.epsilon) > _LARGEST_EPSILON:
        _refuse(f"its epsilon is above {_LARGEST_EPSILON}, which no run has")
    try:
        _recount(receipt)
    except BudgetError:
        _refuse("its events cost more than its epsilon and delta allow, or its accounting cannot price them")


def check_summary(receipt: Receipt, parts: Iterable[Receipt]) -> None:
    """Refuse the receipt of a sum of several sites that does not follow from the sites' own, or one of these."""
    receipts = list(parts)
    for part in receipts:
        check_receipt(part)
    stated = (Fraction(receipt.epsilon), Fraction(receipt.delta))
    largest = tuple(max(Fraction(getattr(part, name)) for part in receipts) for name in ("epsilon", "delta"))
    if stated != largest:
        _refuse("its epsilon and delta are not the largest of the sites'")
    if receipt.events not in [part.events for part in receipts if Fraction(part.epsilon) == stated[0]]:
        _refuse("its events are not those of the site with the largest epsilon")
    if any(one.calibration is not Calibration.SOUND for one in (receipt, *receipts)):
        _refuse("one of the sites claims no guarantee, and only sound releases are added")


_REFUSAL: Final = "the receipt does not follow from its events"


def _refuse(reason: str) -> None:
    raise DataError(f"{_REFUSAL}: {reason}; ask for the file as it was written")


def _recount(receipt: Receipt) -> None:
    total, spent = Fraction(receipt.accounting_total), Fraction(receipt.accounting_spent)
    budget = Budget(Fraction(receipt.epsilon), Fraction(receipt.delta))
    allowed = filter_named(receipt.accounting, budget).total
    counted = filter_named(receipt.accounting, Budget(budget.epsilon * _ROOM, budget.delta))
    for event in receipt.events:
        counted.charge(event)
        if counted.spent.denominator.bit_length() > _LONGEST_SUM:
            _refuse("its events have too many digits to add up")
    # only these prices and totals come from floating point
    price_margin, total_margin = (
        Fraction(0) if exact else Fraction(TOTAL_MARGIN)
        for exact in (not isinstance(counted, RenyiFilter), isinstance(counted, PureFilter))
    )
    if abs(counted.spent - spent) > price_margin * spent:
        _refuse("what it says was spent is not what its events cost")
    if abs(total - allowed) > total_margin * allowed:
        _refuse(f"its total is not that of {budget.words}")
    if spent > total:
        _refuse(f"its events cost more than {budget.words} allows")
