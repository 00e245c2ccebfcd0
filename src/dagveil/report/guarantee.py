"""What a result may claim: the promise in words, where the budget went, and every reason to doubt, loudest first."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Unbounded
from dagveil.privacy.receipt import NO_GUARANTEE, PLUGIN, Calibration, Receipt
from dagveil.privacy.recount import filter_named
from dagveil.runs.result import Result, ResultGraph

MOST_SLICES: Final = 9
"""More labels than this are told together; an adaptive search asks hundreds of questions."""


class Standing(enum.Enum):
    """Whether the promise of a receipt holds."""

    PROMISED = "promised"
    CAUTION = "caution"
    NOT_PRIVATE = "not-private"


@dataclass(frozen=True, slots=True)
class Alarm:
    """One line of the banner."""

    headline: str
    text: str
    standing: Standing


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the receipt, split into its opening words ("Who is protected") and the rest."""

    lead: str
    text: str


@dataclass(frozen=True, slots=True)
class Promise:
    """The sentences of a receipt, sorted by what they are about."""

    sentences: tuple[Sentence, ...]
    limits: tuple[str, ...]
    accounting: str = ""


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

    Slices are in the order in which they were first charged; `unspent` is the share of the total that never was.
    `unpriced` counts events that the accounting cannot charge. `contradictions` say what does not add up; there are
    none in a receipt that dagveil wrote.
    """

    slices: tuple[Slice, ...]
    unspent: float
    unpriced: int
    contradictions: tuple[str, ...]


def itemise(receipt: Receipt) -> Spending:
    """Price the events of a receipt again, and set them against what it says was spent."""
    total, spent = Fraction(receipt.accounting_total), Fraction(receipt.accounting_spent)
    try:
        price = filter_named(receipt.accounting, Budget(Fraction(receipt.epsilon), Fraction(receipt.delta))).cost
    except BudgetError:
        price = None
    amounts: dict[str, Fraction] = {}
    counts: dict[str, int] = {}
    unpriced = 0
    for event in receipt.events:
        try:
            cost = None if price is None else price(event)
        except BudgetError:
            cost = None
        if cost is None:
            unpriced += 1
            continue
        amounts[event.label] = amounts.get(event.label, Fraction(0)) + cost
        counts[event.label] = counts.get(event.label, 0) + 1
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


def _merge(slices: Sequence[Slice]) -> list[Slice]:
    """Keep the largest slices and tell the others together."""
    if len(slices) <= MOST_SLICES:
        return list(slices)
    largest = sorted(slices, key=lambda part: part.amount, reverse=True)[: MOST_SLICES - 1]
    others = [part for part in slices if part not in largest]
    rest = Slice(
        f"{len(others)} smaller ones",
        sum(part.events for part in others),
        sum((part.amount for part in others), Fraction(0)),
        sum(part.share for part in others),
    )
    return [*(part for part in slices if part in largest), rest]


def find_alarms(result: Result, spending: Spending) -> tuple[Alarm, ...]:
    """List all that a reader must know before believing the promise, worst first."""
    receipt = result.receipt
    alarms = []
    if {result.method.calibration, receipt.calibration.value} != {Calibration.SOUND.value}:
        text = f"{NO_GUARANTEE.capitalize()}. The noise follows a publication to the letter, for comparison only."
        alarms.append(Alarm("No privacy guarantee", text, Standing.NOT_PRIVATE))
    for reason in dict.fromkeys(event.reason for event in receipt.events if isinstance(event, Unbounded)):
        alarms.append(Alarm("A release without guarantee", reason, Standing.NOT_PRIVATE))
    for line in spending.contradictions:
        text = f"{line} Do not rely on it; ask for the original result.json."
        alarms.append(Alarm("The receipt does not add up", text, Standing.NOT_PRIVATE))
    if receipt.plugin is not None:
        text = f"The method comes from {receipt.plugin}, and {PLUGIN}. No proof of dagveil covers it."
        alarms.append(Alarm("A plug-in", text, Standing.CAUTION))
    for warning in receipt.warnings:
        if warning.startswith("seeded"):
            text = (
                "The noise came from a seed, so whoever knows the seed can take it away. "
                "Seeds are for tests and benchmarks; do not use this result with real data."
            )
            alarms.append(Alarm(_as_sentence(warning, ""), text, Standing.NOT_PRIVATE))
        else:
            alarms.append(Alarm("Warning", _as_sentence(warning), Standing.CAUTION))
    return tuple(sorted(alarms, key=lambda alarm: alarm.standing is Standing.CAUTION))


def judge(alarms: Sequence[Alarm]) -> Standing:
    """Return the worst standing of all alarms.

    >>> judge([]).value
    'promised'
    """
    for standing in (Standing.NOT_PRIVATE, Standing.CAUTION):
        if any(alarm.standing is standing for alarm in alarms):
            return standing
    return Standing.PROMISED


def sort_promise(receipt: Receipt) -> Promise:
    """Sort the sentences of a receipt by where they stand on the page."""
    sentences, limits, accounting = [], [], ""
    for words in receipt.words():
        lead, colon, text = words.partition(": ")
        if lead.startswith("Public facts") or lead == "Warning":
            continue  # they have places of their own on the page
        if lead == "Not promised":
            limits.append(_as_sentence(text))
        elif lead == "Accounting":
            accounting = _as_sentence(text)  # for those who add up: beside the budget, not on the first page
        else:
            split = bool(colon) and len(lead) <= 24
            sentences.append(Sentence(lead if split else "", _as_sentence(text if split else words)))
    return Promise(tuple(sentences), tuple(limits), accounting)


def list_limits(standing: Standing, promise: Promise, graph: ResultGraph, meaning: str) -> tuple[str, ...]:
    """Say what neither the receipt nor the graph itself promises."""
    broken = standing is Standing.NOT_PRIVATE
    limits = [
        *(["Privacy of any kind. The top of this page says why."] if broken else promise.limits),
        "That an edge is true. Noise and sampling can hide edges and invent them.",
        "That an arrow is a cause. It is one only if no unmeasured quantity drives both of its ends, and if no "
        "column stands for something else.",
    ]
    if graph.lines:
        limits.append("A direction for undirected edges. What was released fits either direction.")
    if graph.family == "mpdag":
        limits.append("That every arrow comes from data. Some follow from the background knowledge that was given.")
    if meaning:
        limits.append(f"That a confidence is the chance of being right. {_as_sentence(meaning)}")
    return tuple(limits)


def _as_sentence(text: str, stop: str = ".") -> str:
    text = text.strip()
    if not text.startswith("zCDP"):
        text = text[:1].upper() + text[1:]
    return text if not stop or text.endswith((".", "!", "?")) else text + stop
