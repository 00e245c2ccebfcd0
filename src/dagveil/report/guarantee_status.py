"""What a result may claim: the promise in words, and every reason to doubt it, loudest first."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dagveil.privacy.receipt import NO_GUARANTEE, PLUGIN, Calibration, Receipt
from dagveil.report.fields import Record, read_amount
from dagveil.report.graph import DrawnGraph
from dagveil.report.spending import Spending


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


def find_alarms(receipt: Record, calibration: str, spending: Spending) -> tuple[Alarm, ...]:
    """List all that a reader must know before believing the promise, worst first."""
    alarms = []
    if calibration != Calibration.SOUND.value or receipt.text("calibration") != Calibration.SOUND.value:
        text = f"{NO_GUARANTEE.capitalize()}. The noise follows a publication to the letter, for comparison only."
        alarms.append(Alarm("No privacy guarantee", text, Standing.NOT_PRIVATE))
    reasons = dict.fromkeys(
        event.text("reason", "it carries no guarantee")
        for event in receipt.records("events")
        if event.text("kind") == "unbounded"
    )
    for reason in reasons:
        alarms.append(Alarm("A release without guarantee", reason, Standing.NOT_PRIVATE))
    for line in spending.contradictions:
        text = f"{line} Do not rely on it; ask for the original result.json."
        alarms.append(Alarm("The receipt does not add up", text, Standing.NOT_PRIVATE))
    if receipt.content.get("plugin") is not None:
        text = f"The method comes from {receipt.text('plugin')}, and {PLUGIN}. No proof of dagveil covers it."
        alarms.append(Alarm("A plug-in", text, Standing.CAUTION))
    for warning in receipt.texts("warnings"):
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

    Examples
    --------
    >>> judge([]).value
    'promised'
    """
    for standing in (Standing.NOT_PRIVATE, Standing.CAUTION):
        if any(alarm.standing is standing for alarm in alarms):
            return standing
    return Standing.PROMISED


def read_promise(receipt: Record) -> Promise:
    """Read the sentences of a receipt; where the JSON has none, let the receipt say them."""
    sentences, limits, accounting = [], [], ""
    for words in receipt.texts("words") or _say(receipt):
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


def list_limits(graph: DrawnGraph, meaning: str) -> tuple[str, ...]:
    """Say what the graph itself does not promise."""
    limits = [
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


def _say(receipt: Record) -> tuple[str, ...]:
    for name in ("epsilon", "delta"):
        receipt.fraction(name)  # refuses what the receipt itself would choke on
    try:
        return msgspec.convert(dict(receipt.content), Receipt, dec_hook=read_amount).words()
    except msgspec.ValidationError:
        return ("This program cannot put the receipt of this result into words; read the technical receipt below.",)


def _as_sentence(text: str, stop: str = ".") -> str:
    text = text.strip()
    if not text.startswith("zCDP"):
        text = text[:1].upper() + text[1:]
    return text if not stop or text.endswith((".", "!", "?")) else text + stop
