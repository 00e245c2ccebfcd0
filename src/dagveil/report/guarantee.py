"""What a result may claim: its promise, where the budget went, every reason to doubt, and what an audit tried."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Unbounded
from dagveil.privacy.receipt import NO_GUARANTEE, PLUGIN, Calibration, Receipt, filter_named
from dagveil.report.formatting import write_epsilon
from dagveil.runs.result import Confidence, Result, ResultGraph

if TYPE_CHECKING:
    from dagveil.audit.certificate import Certificate

MOST_SLICES: Final = 9  # more labels than this are told together; an adaptive search asks hundreds of questions


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
    """The budget of a receipt in slices, in the order in which they were first charged."""

    slices: tuple[Slice, ...]
    unspent: float  # the share of the total that was never charged
    unpriced: int  # events that the accounting cannot charge
    contradictions: tuple[str, ...]  # what does not add up; nothing in a receipt that dagveil wrote


def itemise(receipt: Receipt) -> Spending:
    """Price the events of a receipt again, and set them against what it says was spent."""
    total, spent = Fraction(receipt.accounting_total), Fraction(receipt.accounting_spent)
    try:
        price = filter_named(receipt.accounting, Budget(Fraction(receipt.epsilon), Fraction(receipt.delta))).cost
    except BudgetError:
        price = None
    amounts: dict[str, Fraction] = defaultdict(Fraction)
    counts: Counter[str] = Counter()
    unpriced = 0
    for event in receipt.events:
        try:
            cost = None if price is None else price(event)
        except BudgetError:
            cost = None
        if cost is None:
            unpriced += 1
        else:
            amounts[event.label] += cost
            counts[event.label] += 1
    priced = sum(amounts.values(), Fraction(0))
    wrong = {
        "The receipt says that more was spent than there was.": spent > total,
        "The events of the receipt cost more than it says was spent.": priced > spent,
        "The events of the receipt cost less than it says was spent.": spent > priced and not unpriced and price,
    }
    contradictions = tuple(words for words, holds in wrong.items() if holds)
    if total <= 0:
        return Spending((), 0.0, unpriced, contradictions)
    slices = _merge([Slice(label, counts[label], cost, _share(cost, total)) for label, cost in amounts.items()])
    if spent > priced:
        rest = spent - priced
        slices = [*slices, Slice("not itemised", unpriced, rest, _share(rest, total))]
    unspent = max(Fraction(0), total - max(spent, priced))
    return Spending(tuple(slices), _share(unspent, total), unpriced, contradictions)


def _share(part: Fraction, total: Fraction) -> float:
    """Return part/total; a receipt that contradicts itself may ask for more than a float holds."""
    return float(min(part / total, Fraction(10**6)))


def _merge(slices: Sequence[Slice]) -> list[Slice]:
    """Keep the largest slices and tell the others together."""
    if len(slices) <= MOST_SLICES:
        return list(slices)
    largest = sorted(slices, key=lambda part: part.amount, reverse=True)[: MOST_SLICES - 1]
    others = [part for part in slices if part not in largest]
    amount, share = sum((part.amount for part in others), Fraction(0)), sum(part.share for part in others)
    rest = Slice(f"{len(others)} smaller ones", sum(part.events for part in others), amount, share)
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
            text = "The noise came from a seed, so whoever knows the seed can take it away. "
            text += "Seeds are for tests and benchmarks; do not use this result with real data."
            alarms.append(Alarm(_as_sentence(warning, ""), text, Standing.NOT_PRIVATE))
        else:
            alarms.append(Alarm("Warning", _as_sentence(warning), Standing.CAUTION))
    return tuple(sorted(alarms, key=lambda alarm: alarm.standing is Standing.CAUTION))


def judge(alarms: Sequence[Alarm]) -> Standing:
    """Return the worst standing of all alarms."""
    found = {alarm.standing for alarm in alarms}
    return next((one for one in (Standing.NOT_PRIVATE, Standing.CAUTION) if one in found), Standing.PROMISED)


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


def list_limits(standing: Standing, promise: Promise, graph: ResultGraph, confidence: Confidence) -> tuple[str, ...]:
    """Say what neither the receipt nor the graph itself promises."""
    broken = standing is Standing.NOT_PRIVATE
    limits = [
        *(["Privacy of any kind. The top of this page says why."] if broken else promise.limits),
        "That an edge is true. Noise and sampling can hide edges and invent them.",
    ]
    if graph.family == "pag":
        limits.append(
            "That an arrow is a direct cause. It says that its tail is a cause, maybe by way of other columns or of "
            "unmeasured ones; an unmeasured cause of both may come on top. A circle promises nothing about its end."
        )
    else:
        limits.append(
            "That an arrow is a cause. It is one only if no unmeasured quantity drives both of its ends, and if no "
            "column stands for something else."
        )
    if graph.lines and graph.family != "pag":
        limits.append("A direction for undirected edges. What was released fits either direction.")
    if graph.family == "mpdag":
        limits.append("That every arrow comes from data. Some follow from the background knowledge that was given.")
    if confidence.probabilities:
        limits.append(f"Probabilities where what they assume does not hold. They are {confidence.probabilities}.")
    if confidence.meaning:
        limits.append(f"That a confidence is the chance of being right. {_as_sentence(confidence.meaning)}")
    return tuple(limits)


def _as_sentence(text: str, stop: str = ".") -> str:
    text = text.strip()
    if not text.startswith("zCDP"):
        text = text[:1].upper() + text[1:]
    return text if not stop or text.endswith((".", "!", "?")) else text + stop


@dataclass(frozen=True, slots=True)
class Attempts:
    """What was tried, in words."""

    effort: str
    created: str
    rows: tuple[tuple[str, str], ...]  # what was tried, and how far that got
    violations: tuple[str, ...]
    mismatches: tuple[str, ...]  # where the certificate is about something else than the result
    bound: str = ""  # the largest epsilon that was proved; empty if no tables were told apart


def describe_attempts(certificate: Certificate, result: Result) -> Attempts:
    """Tell a certificate beside the result that it is shown with."""
    strongest = certificate.strongest
    return Attempts(
        effort=certificate.effort.value,
        created=certificate.created[:10],
        rows=tuple(_describe_tries(certificate)),
        violations=certificate.violations,
        mismatches=tuple(find_mismatches(certificate, result)),
        bound="" if strongest is None else f"{strongest.bound:.3f}",
    )


def find_mismatches(certificate: Certificate, result: Result) -> list[str]:
    """Return where a certificate and a result differ: method, calibration, program, budget and neighbours."""
    facts = [
        ("the method", certificate.method, result.method.name),
        ("the calibration", certificate.calibration.value, result.method.calibration),
        ("the program", certificate.software.removeprefix("dagveil "), result.software),
    ]
    found = [f"{what} is {audited}, and that of the result is {own}" for what, audited, own in facts if audited != own]
    for name in ("epsilon", "delta"):
        tried, claimed = (Fraction(getattr(one, name)) for one in (certificate, result.receipt))
        if tried != claimed:
            found.append(f"{name} is {float(tried):.4g}, and that of the result is {float(claimed):.4g}")
    relation = result.receipt.relation
    if relation not in certificate.relations:
        found.append(f"the neighbours are others: it does not tell about {relation.value}")
    return found


def _describe_tries(certificate: Certificate) -> list[tuple[str, str]]:
    epsilon, delta = write_epsilon(Fraction(certificate.epsilon)), float(Fraction(certificate.delta))
    rows = [("claim", f"epsilon {epsilon}, delta {delta:.3g}")]
    if strongest := certificate.strongest:
        words = f"epsilon is at least {strongest.bound:.3f} (95 % confidence, {strongest.runs} judged runs on each)"
        rows.append(("telling two tables apart", words))
        if strongest.reachable is not None:
            rows.append(("the best attack with so many runs", f"could prove {strongest.reachable:.3f}"))
    if best := certificate.farthest:
        words = f"advantage {best.advantage:.3f} ({best.advantage_low:.3f} to {best.advantage_high:.3f})"
        rows.append(("telling who is in the table", f"{words}; the claim allows {best.advantage_bound:.3f}"))
    if closest := certificate.closest:
        pairs = sum(line.pairs for line in certificate.statistics)
        words = f"{pairs:,} pairs; the largest change is {closest.ratio:.4g} of the declared one"
        rows.append(("worst neighbours", words))
    if count := len(certificate.replays):
        broken = sum(bool(line.violations) for line in certificate.replays)
        words = f"broke on {broken} of {count} pairs" if broken else f"held on all {count} pairs"
        rows.append(("frozen answers on a neighbour", words))
    return rows
