"""Where the budget went: the price of each event as a part of the total, priced again from the events themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from dagveil.privacy.events import Event, approximate_zcdp_cost, gaussian_cost, pure_cost, zcdp_cost
from dagveil.privacy.filter import ApproximateZcdpFilter, GaussianFilter, PureFilter, ZcdpFilter
from dagveil.privacy.renyi import MOST_ORDER, renyi_cost
from dagveil.report.fields import Record, read_amount

MOST_SLICES: Final = 9
"""More labels than this are told together; an adaptive search asks hundreds of questions."""

_PRICES: Final[Mapping[str, Callable[[Event], Fraction | None]]] = {
    PureFilter.name: pure_cost,
    ZcdpFilter.name: zcdp_cost,
    GaussianFilter.name: gaussian_cost,
    ApproximateZcdpFilter.name: approximate_zcdp_cost,
}
_RENYI: Final = re.compile(r"Renyi accounting at order (\d{1,4})")


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the budget: exact, and as a share of the total."""

    label: str
    events: int
    amount: Fraction
    share: float


@dataclass(frozen=True, slots=True)
class Spending:
    """The budget of a receipt in slices.

    Parameters
    ----------
    slices
        Spent parts, in the order in which they were first charged.
    unspent
        Share of the total that was never charged.
    unpriced
        Number of events that the accounting cannot charge.
    contradictions
        What does not add up, in sentences; empty for every receipt that dagveil wrote.
    """

    slices: tuple[Slice, ...]
    unspent: float
    unpriced: int
    contradictions: tuple[str, ...]


def itemise(receipt: Record) -> Spending:
    """Price the events of a receipt and set them against what it says was spent.

    Parameters
    ----------
    receipt
        The field `receipt` of a result.
    """
    total, spent = read_accounting(receipt, "total"), read_accounting(receipt, "spent")
    price = _price_list(receipt.text("accounting"))
    amounts: dict[str, Fraction] = {}
    counts: dict[str, int] = {}
    unpriced = 0
    for record in receipt.records("events"):
        cost = None if price is None else _price(record.content, price)
        if cost is None:
            unpriced += 1
            continue
        label = record.text("label")
        amounts[label] = amounts.get(label, Fraction(0)) + cost
        counts[label] = counts.get(label, 0) + 1
    priced = sum(amounts.values(), Fraction(0))
    contradictions = []
    if spent > total:
        contradictions.append("The receipt says that more was spent than there was.")
    if priced > spent:
        contradictions.append("The events of the receipt cost more than it says was spent.")
    if spent > priced and not unpriced and price is not None:
        contradictions.append("The events of the receipt cost less than it says was spent.")
    if total <= 0:
        return Spending((), 0.0, unpriced, tuple(contradictions))
    slices = _merge([Slice(label, counts[label], cost, _share(cost, total)) for label, cost in amounts.items()])
    if spent > priced:
        rest = spent - priced
        slices = [*slices, Slice("not itemised", unpriced, rest, _share(rest, total))]
    unspent = max(Fraction(0), total - max(spent, priced))
    return Spending(tuple(slices), _share(unspent, total), unpriced, tuple(contradictions))


def _share(part: Fraction, total: Fraction) -> float:
    """Return part/total; a receipt that contradicts itself may ask for more than a float holds."""
    return float(min(part / total, Fraction(10**6)))


def _price_list(accounting: str) -> Callable[[Event], Fraction | None] | None:
    """Return what events cost under an accounting, by the name that its filter puts on receipts."""
    renyi = _RENYI.fullmatch(accounting)
    if renyi is None:
        return _PRICES.get(accounting)
    order = int(renyi[1])
    return (lambda event: renyi_cost(event, order)) if 2 <= order <= MOST_ORDER else None


def read_accounting(receipt: Record, name: str) -> Fraction:
    """Read the total, or what was spent, in the units of the accounting."""
    long = f"accounting_{name}"
    return receipt.fraction(long if long in receipt.content else name)


def _price(content: Mapping[str, Any], price: Callable[[Event], Fraction | None]) -> Fraction | None:
    """Price one event, or None for an event of a kind or shape that this program does not know."""
    try:
        event: Event = msgspec.convert(dict(content), type=Event, dec_hook=read_amount)
    except msgspec.ValidationError:
        return None
    return price(event)


def _merge(slices: Sequence[Slice]) -> list[Slice]:
    """Keep the largest slices and tell the others together."""
    if len(slices) <= MOST_SLICES:
        return list(slices)
    largest = sorted(slices, key=lambda part: part.amount, reverse=True)[: MOST_SLICES - 1]
    names = {part.label for part in largest}
    others = [part for part in slices if part.label not in names]
    rest = Slice(
        f"{len(others)} smaller ones",
        sum(part.events for part in others),
        sum((part.amount for part in others), Fraction(0)),
        sum(part.share for part in others),
    )
    return [*(part for part in slices if part.label in names), rest]
