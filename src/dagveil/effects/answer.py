"""The answer to "what happens if we change x": intervals for each reading of the graph, their union, and a sentence."""

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from dagveil.files import Document, SavedRecord
from dagveil.privacy.receipt import Receipt

EFFECT_VERSION = 1  # version of the JSON
COVERED: Final = 1.959964  # deviations on either side of an estimate: 95 %
POST_SELECTION = (
    "Intervals count sampling and noise for a graph that is fixed: the graph was chosen with the same evidence, so "
    "they leave out that another draw might have chosen another one."
)
REDRAWS = "Counting that too takes redraws of graph and effect."
ASSUMPTIONS = "It holds if the graph around {cause} is right and no unmeasured column causes both {cause} and {effect}."
ASSUMPTIONS_OF_PAGS = (
    "It holds if the marks of the graph are right and rows were not selected by what is studied; unmeasured causes are "
    "allowed for."
)

Form = Literal["table", "additive", "linear", "nothing", "unanswered"]


class Estimate(msgspec.Struct, frozen=True):
    """A number with its 95 % interval; `sampling_sd` and `noise_sd` are the parts of its standard error.

    Other parts are what rare strata, or rows that were shrunk, may leave out.
    """

    value: float
    low: float
    high: float
    sampling_sd: float
    noise_sd: float


class Probability(msgspec.Struct, frozen=True):
    """P(effect = outcome) if the cause were set to a level; None if noise hides that level."""

    level: str
    outcome: str
    estimate: Estimate | None


class Contrast(msgspec.Struct, frozen=True):
    """How much larger P(effect = outcome) is if the cause were set to `level` than to `instead`.

    For numbers `level` and `instead` are empty, and the contrast is per unit of the cause.
    """

    level: str
    instead: str
    outcome: str
    estimate: Estimate | None


class PossibleEffect(msgspec.Struct, frozen=True):
    """The effect in one reading of the graph: the cause has these parents."""

    # None if the graph allows for hidden causes, and the answer holds in all graphs that it stands for
    parents: tuple[str, ...] | None
    adjust: tuple[str, ...]
    # from the joint `table` of all of them; `additive`, from pairs as if they added up; `linear`, from moments;
    # `nothing`, if the graph says that there is no effect; `unanswered`, if the evidence cannot tell
    form: Form
    why: str | None = None
    probabilities: tuple[Probability, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    notes: tuple[str, ...] = ()


class Interval(msgspec.Struct, frozen=True):
    """From the lowest to the highest."""

    low: float
    high: float


class Redrawn(msgspec.Struct, frozen=True):
    """What graph and effect give when both are drawn again: 95 % of redraws lie in the interval."""

    redraws: int
    interval: Interval | None
    nothing: float  # share of redraws in which the cause does nothing in some reading of the graph
    unanswered: float


class Release(msgspec.Struct, frozen=True):
    """A release that would answer: tables of these columns, or moments of them, and the ε for a wanted width."""

    tables: tuple[tuple[str, ...], ...]
    width: float | None = None
    epsilon: float | None = None
    reason: str | None = None


class Effect(SavedRecord, frozen=True):
    """What a graph and its evidence say about an intervention.

    - `possible`: one answer for each possible parent set of the cause.
    - `main`: the contrast that the sentence is about: last level of the cause against its first, last level of the
      effect.
    - `union`: from the lowest to the highest end of all readings, nothing included; None if one has no answer.
    - `settles`: knowledge that would leave fewer readings.
    - `release`: what would have to be released for an answer, or for a narrower one.
    - `receipt`: of the release that was made for this answer, if there was one.
    """

    format: Literal["dagveil-effect"]
    version: int
    software: str
    created: str
    dataset: str
    cause: str
    effect: str
    sentence: str
    possible: tuple[PossibleEffect, ...]
    main: Contrast
    union: Interval | None
    settles: tuple[str, ...]
    notes: tuple[str, ...]
    redrawn: Redrawn | None = None
    release: Release | None = None
    receipt: Receipt | None = None

    @property
    def alike(self) -> tuple[tuple[PossibleEffect, ...], ...]:
        """The readings of the graph, those with the same answer together."""
        groups: dict[PossibleEffect, list[PossibleEffect]] = {}
        for one in self.possible:
            groups.setdefault(msgspec.structs.replace(one, parents=()), []).append(one)
        return tuple(map(tuple, groups.values()))

    def _repr_html_(self) -> str:
        """Show the answer and what it rests on in a notebook."""
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p>{html.escape(self.sentence)}</p><ul>{notes}</ul>"


_DOCUMENT = Document(
    Effect,
    "dagveil-effect",
    EFFECT_VERSION,
    "an effect",
    "an effect.json",
    "`dagveil effect`",
    "ask for it again",
    sealed=True,
)


def load_effect(path: str | Path) -> Effect:
    """Read an answer from a file."""
    return _DOCUMENT.open(path)


def make_estimate(value: float, variance: float, sampling: float, noise: float, *, share: bool) -> Estimate:
    """Return an estimate with its interval; a share lies between 0 and 1, a difference of shares between −1 and 1."""
    half = COVERED * math.sqrt(max(variance, 0.0))
    low, high = value - half, value + half
    if share:
        low, high = max(low, 0.0), min(high, 1.0)
    return Estimate(value, low, high, math.sqrt(max(sampling, 0.0)), math.sqrt(max(noise, 0.0)))


def describe_readings(readings: Sequence[PossibleEffect], cause: str) -> str:
    """Say which columns cause the cause: in this reading, or in that one."""
    if readings[0].parents is None:
        return "In every graph that this one stands for, hidden causes included"
    told = []
    for place, one in enumerate(readings):
        names = one.parents or ("none of these columns",)
        several = len(names) > 1
        listed = f"{', '.join(names[:-1])} and {names[-1]}" if several else names[0]
        told.append(f"{listed} {'cause' if several else 'causes'} {cause}" if place == 0 else
                    f"{listed} {'do' if several else 'does'}")  # fmt: skip
    return f"If {', or '.join(told)}"


def pick_main(possible: PossibleEffect, main: Contrast) -> Estimate | None:
    """Return the estimate of the contrast that the sentence is about."""
    key = (main.level, main.instead, main.outcome)
    return next((one.estimate for one in possible.contrasts if (one.level, one.instead, one.outcome) == key), None)


def unite(possible: Sequence[PossibleEffect], main: Contrast) -> Interval | None:
    """Return the union of all readings' intervals of the main contrast; None if one of them has no answer."""
    nothing = Interval(0.0, 0.0)
    found = [nothing if one.form == "nothing" else pick_main(one, main) for one in possible]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return None
    return Interval(min(one.low for one in known), max(one.high for one in known))


def write_sentence(possible: Sequence[PossibleEffect], main: Contrast, cause: str, effect: str) -> str:
    """Say the answer in one sentence."""
    told = [one for one in possible if one.form not in ("nothing", "unanswered")]
    nothing = list(dict.fromkeys(one.why or "" for one in possible if one.form == "nothing"))
    silent = [one for one in possible if one.form == "unanswered"]
    estimates = [estimate for one in told if (estimate := pick_main(one, main)) is not None]

    def describe(found: Sequence[Estimate]) -> str:
        return describe_change(min(one.low for one in found), max(one.high for one in found), points=bool(main.level))

    if not estimates:
        if nothing and not silent and not told:
            allowed = [estimate for one in possible if (estimate := pick_main(one, main)) is not None]
            rest = f"; the evidence alone would allow {describe(allowed)} (95 %)" if allowed else ""
            return f"By this graph, changing {cause} does nothing to {effect}: {' or '.join(nothing)}{rest}."
        why = silent[0].why if silent else f"noise hides {cause} = {main.level} or {main.instead}"
        rest = f" It would be nothing if {' or '.join(nothing)}." if nothing else ""
        return f"This evidence cannot say what changing {cause} does to {effect}: {why}.{rest}"
    start = f"One unit more of {cause} would make {effect} "
    if main.level:
        start = f"Setting {cause} to {main.level} instead of {main.instead} would make {effect} = {main.outcome} "
    ends = [f", or nothing {'where' if why.startswith('no arrows') else 'if'} {why}" for why in nothing]
    ends += [", or something that this evidence cannot say in other readings of the graph"] if silent else []
    several = "" if len(estimates) == 1 else f", over {len(estimates)} ways to read the graph"
    additive = any(one.form == "additive" for one in told)
    formed = ", if columns act on it one by one (no interactions)" if additive else ""
    return f"{start}{describe(estimates)} (95 %{several}{formed}){''.join(ends)}."


def describe_change(low: float, high: float, *, points: bool) -> str:
    """Say by how much something grows or shrinks: a probability in points, or a number in its own units."""
    if points:
        digits = 1 if max(abs(low), abs(high)) >= 0.005 else 2
        a, b = f"{100 * abs(low):.{digits}f}", f"{100 * abs(high):.{digits}f}"
        grows, shrinks = f"between {a} and {b} points more likely", f"between {b} and {a} points less likely"
        either = f"anything from {a} points less to {b} points more likely"
    else:
        a, b = f"{abs(low):.3g}", f"{abs(high):.3g}"
        grows, shrinks = f"larger by {a} to {b}", f"smaller by {b} to {a}"
        either = f"anything from {a} smaller to {b} larger"
    return grows if low >= 0.0 else shrinks if high <= 0.0 else either
