"""Record and replay: a run on one table, then the same run on its neighbour with the answers frozen.

If the second asks, charges, draws and concludes the same, it saw the rows through the answers alone; if no exact answer
moved by more than its charge covers, the accounting of the run holds for this pair.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from dagveil.audit.doors import AuditedCurator
from dagveil.audit.neighbours import DataKind, Pair
from dagveil.audit.recording import End, Exact, Exchange, Finished, NoiseLaw, Recording, Rule
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.errors import DagveilError, MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.methods.method import Measured, Method
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Filter,
    GaussianFilter,
    PureFilter,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    ZcdpFilter,
)
from dagveil.privacy.mechanisms.smooth_median import dilation_bound
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.renyi import RenyiFilter
from dagveil.progress import silent

MOST_REPLAYS: Final = 20_000  # replays that are remembered
# what a run asked, in its order, and the choices and bits that it was told: enough to know the exact answers
Course = tuple[tuple[Any, ...], ...]
# a movement may be above 1 by this much: scores stand on a grid of a millionth, and are read back as floats
ROUNDING: Final = 1e-5
_SILENT: Final = noise_source(NoiseKind.SEEDED, 0)  # a replay draws nothing that anyone sees, so all can share a source
# filters that are nothing but sums of fractions, so that a shallow copy starts anew
_COPIED: Final = frozenset({PureFilter, ZcdpFilter, ApproximateZcdpFilter, GaussianFilter, RenyiFilter})
# which noise each event pays for; others pay for none
_LAWS: Final[Mapping[type[Event], NoiseLaw]] = {
    DiscreteGaussian: NoiseLaw.GAUSSIAN,
    SubsampledGaussian: NoiseLaw.GAUSSIAN,
    DiscreteLaplace: NoiseLaw.LAPLACE,
    SparseVectorRound: NoiseLaw.LAPLACE,
    SmoothLaplace: NoiseLaw.LAPLACE,
}


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found."""

    method: str
    relation: Relation
    kind: DataKind
    questions: int
    largest: float  # the furthest that an exact answer moved, as a part of what was declared
    where: str  # the door of that answer
    doors: tuple[tuple[str, float], ...]  # the furthest movement at each
    violations: tuple[str, ...]  # what breaks the guarantee, in words; empty if it holds


def replay_method(
    method: Method, pair: Pair, budget: Budget, options: Mapping[str, Any] | None = None, seed: int = 0
) -> Replay:
    """Record a method on the first table of a pair and replay it on both."""
    recorded = Recording(noise_source(NoiseKind.SEEDED, seed))
    repeatable = RepeatableRun(method, pair.relation, budget, options)
    result = repeatable.run(pair.first, recorded)
    violations = [f"rows were read outside of a door: {name}" for name in dict.fromkeys(recorded.touched)]
    replays = []
    for words, table in (("the same", pair.first), ("the neighbouring", pair.second)):
        recording = Recording(noise_source(NoiseKind.SEEDED, seed + 1), recorded.exchanges)
        try:
            again = repeatable.run(table, recording)
        except DagveilError as problem:
            violations.append(f"on {words} table the run left the recording: {problem}")
            continue
        if len(recording.exchanges) != len(recorded.exchanges):
            violations.append(f"on {words} table the run ended after {len(recording.exchanges)} questions")
        elif again != result:
            violations.append(f"on {words} table the result differs, though all answers were the same")
        else:
            replays.append(recording.exchanges)
    doors: dict[str, float] = {}  # the furthest movement at each door that answers
    if len(replays) == 2:
        violations += [*find_unpaid(replays[0]), *_find_differences(*replays)]
        for one, other in zip(*replays, strict=True):
            if one.exact.rule is not Rule.NOTHING:
                doors[one.door] = max(doors.get(one.door, 0.0), measure_movement(one, other))
    for door, part in doors.items():
        if part > 1.0 + ROUNDING:
            violations.append(f"{door}: an exact answer moved by {part:.4g} of what its charge covers")
    where, largest = max(doors.items(), key=lambda moved: moved[1], default=("", 0.0))
    moved = float(largest), where, tuple(doors.items())
    return Replay(method.name, pair.relation, pair.kind, len(recorded.exchanges), *moved, tuple(violations))


@dataclass(frozen=True, slots=True, eq=False)
class RepeatableRun:
    """A method with its settings read and its filter chosen, ready to run many times."""

    method: Method
    relation: Relation
    budget: Budget
    options: Mapping[str, Any] | None
    settings: Any = field(init=False)
    _filters: dict[int, tuple[Schema, Filter]] = field(default_factory=dict, init=False)
    _known: dict[Course, list[list[Exchange]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", self.method.read_settings(self.options))

    def run(self, table: Table, recording: Recording) -> Asked | Measured:
        """Run the sound calibration at a curator that is recorded."""
        knowledge = Knowledge.none()
        curator = AuditedCurator(table, self.relation, self._open_filter(table.schema, knowledge), recording)
        if self.method.ask is not None:
            return self.method.ask(curator, knowledge, self.settings, silent)
        if self.method.release is not None:
            return self.method.release(curator, knowledge, self.settings, silent)
        raise MethodError(f"{self.method.name} neither asks nor releases, so there is nothing to audit")

    def replay(self, table: Table, told: Sequence[Exchange]) -> list[Exchange]:
        """Return the exchanges of a run with this table's exact answers; it stops after the last answer."""
        recording = Recording(_SILENT, told, End.LAST_ANSWER)
        with suppress(Finished):
            self.run(table, recording)
        return recording.exchanges

    def replay_all(
        self, tables: Sequence[Table], told: Sequence[Exchange], course: Course | None
    ) -> list[list[Exchange]]:
        """Return the replays on some tables, the same ones in all calls; those of a known course are not done again."""
        if course is not None and course in self._known:
            return self._known[course]
        replays = [self.replay(table, told) for table in tables]
        if course is not None and len(self._known) * len(tables) < MOST_REPLAYS:
            self._known[course] = replays
        return replays

    def _open_filter(self, schema: Schema, knowledge: Knowledge) -> Filter:
        """Return a filter that nothing was charged to; choosing it can take longer than the run."""
        known = self._filters.get(id(schema))
        if known is None or known[0] is not schema:
            fresh = self.method.accounting(self.budget, schema, self.settings, knowledge)
            if type(fresh) not in _COPIED:
                return fresh
            known = self._filters[id(schema)] = (schema, fresh)
        return copy(known[1])


def read_course(told: Sequence[Exchange]) -> Course | None:
    """Return what a run asked and which bits it was told; None if exact answers depend on more, as on parts."""
    if any(exchange.luck and exchange.exact.rule is not Rule.SAMPLED for exchange in told):
        return None
    course = tuple(
        (exchange.door, exchange.asked, exchange.answer if isinstance(exchange.answer, int) else None, exchange.refusal)
        for exchange in told
    )
    try:
        hash(course)
    except TypeError:
        return None  # a plug-in may ask with arguments that cannot be remembered
    return course


def _find_differences(first: Sequence[Exchange], second: Sequence[Exchange]) -> list[str]:
    """Return where charges or noise differ between neighbours: both are public, or else they tell about rows."""
    found = []
    for place, (one, other) in enumerate(zip(first, second, strict=True), start=1):
        if one.events != other.events:
            found.append(f"question {place} ({one.door}): the charge depends on the rows")
        # the scale of smooth noise is a secret, and its own rule compares it
        if one.exact.rule is not Rule.SMOOTH and one.draws != other.draws:
            found.append(f"question {place} ({one.door}): the noise depends on the rows")
    return found


def measure_movement(one: Exchange, other: Exchange) -> float:
    """Return how far the exact answers moved, as a part of what the charge covers: above 1 breaks the guarantee."""
    first, second = one.exact, other.exact
    if len(first.values) != len(second.values) or first.public != second.public:
        return math.inf
    moved = [abs(a - b) for a, b in zip(first.values, second.values, strict=True)]
    if not any(moved) and first.rule is not Rule.SMOOTH:
        return 0.0
    if not all(width > 0.0 for width in (*first.widths, *second.widths)):
        return math.inf  # a number that moved has no noise
    match first.rule:
        case Rule.NOTHING:
            return 0.0
        case Rule.RECORDS:
            return max(moved)
        case Rule.ROUND:
            # widths are the scales of threshold and questions in records, and the epsilon that a round may have
            threshold, question, epsilon = first.widths
            return max(moved) * (1.0 / threshold + 2.0 / question) / epsilon
        case Rule.SMOOTH:
            return _measure_smooth(first, second, one.events)
        case _:
            return _measure_noisy(first, moved, one.events)


def _measure_noisy(exact: Exact, moved: Sequence[float], events: Sequence[Event]) -> float:
    event = events[0] if len(events) == 1 else None
    if exact.rule is Rule.WEIGHTED_SQUARES and isinstance(event, DiscreteGaussian):
        weighted = math.fsum(change**2 / width for change, width in zip(moved, exact.widths, strict=True))
        return math.sqrt(weighted * float(event.variance) / float(event.squared_sensitivity))
    if exact.rule is Rule.SAMPLED and isinstance(event, SubsampledGaussian):
        return moved[0] * math.sqrt(float(event.variance / event.squared_sensitivity) / exact.widths[0])
    epsilon = math.fsum(float(paid.epsilon) for paid in events if isinstance(paid, DiscreteLaplace))
    if epsilon == 0.0:
        return math.inf
    if exact.rule is Rule.PERMUTED:
        # given all other noise, the noise of the statistic covers its own change and that of any permuted one
        return (moved[0] + max(moved[1:], default=0.0)) / exact.widths[0] / epsilon
    return math.fsum(change / width for change, width in zip(moved, exact.widths, strict=True)) / epsilon


def _measure_smooth(first: Exact, second: Exact, events: Sequence[Event]) -> float:
    """Half of epsilon covers the shift of the median; the rest, with delta, covers two different scales."""
    event = events[0] if len(events) == 1 else None
    if not isinstance(event, SmoothLaplace) or not first.widths or not second.widths:
        return math.inf
    scales = first.widths[0], second.widths[0]
    shift = abs(first.values[0] - second.values[0]) / (min(scales) * float(event.epsilon) / 2)
    dilation = math.log(max(scales) / min(scales)) / math.log(dilation_bound(event.epsilon, event.delta))
    return max(shift, dilation)


def find_unpaid(exchanges: Sequence[Exchange]) -> list[str]:
    """Return what no charge covers: no event, or another law; a round's charge covers all of its questions."""
    unpaid = []
    round_is_open = False
    for place, exchange in enumerate(exchanges, start=1):
        if exchange.refusal is not None or exchange.exact.rule is Rule.NOTHING:
            continue
        where = f"question {place} ({exchange.door})"
        started = any(isinstance(event, SparseVectorRound) for event in exchange.events)
        if exchange.exact.rule is Rule.ROUND:
            if not started and not round_is_open:
                unpaid.append(f"{where} starts a round that was not charged")
            if started and round_is_open:
                unpaid.append(f"{where} was charged in the middle of a round")
        elif not exchange.events and not (exchange.exact.public and not exchange.exact.values):
            unpaid.append(f"{where} was not charged")
        allowed = {_LAWS.get(type(event)) for event in exchange.events}
        if exchange.exact.rule is Rule.ROUND:
            allowed = {NoiseLaw.LAPLACE}
        wrong = [draw.law for draw in exchange.draws if draw.law not in allowed]
        if wrong:
            unpaid.append(f"{where} drew noise from the {wrong[0].value}, which its charge does not cover")
        if exchange.exact.rule is Rule.ROUND:
            round_is_open = (round_is_open or started) and not exchange.answer
    return unpaid
