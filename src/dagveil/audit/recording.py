"""A recording of one run: every question to the curator, what was charged, which noise was drawn, what was answered.

A recording can be played back. Then the questions must be the same ones, the answers are the recorded ones, the noise
is zero, so that each door tells its exact answer, and random choices are those of the recording.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import BudgetError, DagveilError
from dagveil.privacy.events import Event, Unbounded
from dagveil.privacy.noise.source import NoiseSource

Answer = TypeVar("Answer")


class Divergence(DagveilError):
    """A replayed run left the recording: something other than an answer told it which rows it had."""


class NoiseLaw(enum.Enum):
    """The laws that noise is drawn from."""

    GAUSSIAN = "discrete Gaussian"
    LAPLACE = "discrete Laplace"


@dataclass(frozen=True, slots=True)
class Draw:
    """One request for noise: the law, its variance or scale, how many numbers, and which came."""

    law: NoiseLaw
    width: Fraction
    size: int
    numbers: NDArray[np.int64] = field(compare=False, repr=False)


class RecordedNoise:
    """Noise that is noted. On a replay it is zero, and random choices are the ones on the recording."""

    def __init__(self, source: NoiseSource) -> None:
        self._source = source
        self._waiting: Iterator[NDArray[Any]] | None = None
        self._is_free = False
        self.draws: list[Draw] = []
        self.luck: list[NDArray[Any]] = []

    @property
    def name(self) -> str:
        """Name for the receipt."""
        return f"audited {self._source.name}"

    @property
    def private(self) -> bool:
        """As private as the source."""
        return self._source.private

    def begin(self, luck: Sequence[NDArray[Any]] | None) -> None:
        """Start an exchange; on a replay with the random choices of the recording."""
        self.draws, self.luck = [], []
        self._waiting = None if luck is None else iter(luck)

    @contextmanager
    def free(self) -> Iterator[None]:
        """Draw from the source meanwhile, note nothing: for mechanisms whose draws are noise, not choices."""
        self._is_free = True
        try:
            yield
        finally:
            self._is_free = False

    def discrete_gaussian(self, variance: Fraction, size: int) -> NDArray[np.int64]:
        """Draw Gaussian integers."""
        return self._draw(NoiseLaw.GAUSSIAN, self._source.discrete_gaussian, variance, size)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Draw Laplace integers."""
        return self._draw(NoiseLaw.LAPLACE, self._source.discrete_laplace, scale, size)

    def uniform_below(self, bound: int, size: int) -> NDArray[np.int64]:
        """Draw integers from 0 to bound − 1; a record that is new on a replay gets the middle one."""
        return self._choose(lambda: self._source.uniform_below(bound, size), size, bound // 2)

    def bernoulli(self, p: Fraction, size: int) -> NDArray[np.bool_]:
        """Draw true with probability p; a record that is new on a replay is taken."""
        return self._choose(lambda: self._source.bernoulli(p, size), size, True)

    def _choose(self, draw: Callable[[], NDArray[Any]], size: int, new: int | bool) -> NDArray[Any]:
        if self._is_free:
            return draw()
        if self._waiting is None:
            chosen = draw()
        else:
            recorded = next(self._waiting, None)
            if recorded is None or abs(len(recorded) - size) > 1:
                raise Divergence(f"the run asked for {size} random choices that the recording does not have")
            chosen = np.append(recorded, recorded.dtype.type(new))[:size]
        self.luck.append(chosen.copy())
        return chosen

    def _draw(
        self, law: NoiseLaw, draw: Callable[[Fraction, int], NDArray[np.int64]], width: Fraction, size: int
    ) -> NDArray[np.int64]:
        drawn = draw(width, size) if self._waiting is None else np.zeros(size, dtype=np.int64)
        self.draws.append(Draw(law, width, size, drawn.copy()))
        return drawn


class End(enum.Enum):
    """When a replay ends."""

    RESULT = "with the result"
    LAST_ANSWER = "after the last answer on the recording"


class Finished(Exception):
    """A replay has come to the last answer on the recording, and more is not wanted."""


class Rule(enum.Enum):
    """How the exact answers of two neighbours are compared with what was declared."""

    NOTHING = "nothing is answered"
    WEIGHTED_SQUARES = "Gaussian noise: squares of changes, weighted by the variances"
    SCALED_SIZES = "Laplace noise: sizes of changes over their scales"
    SAMPLED = "Gaussian noise on a sub-sample"
    RECORDS = "scores in records: each moves by at most one"
    ROUND = "scores in records, compared with a noisy threshold"
    PERMUTED = "a statistic and permuted ones, in records"
    SMOOTH = "a median with smooth noise"


_NOTED: Final = frozenset({Rule.RECORDS, Rule.ROUND, Rule.PERMUTED})  # rules whose numbers are not in the answer


@dataclass(frozen=True, slots=True)
class Exact:
    """What a door computed before noise, as the noise meets it, and the width of the noise of each number."""

    rule: Rule
    values: tuple[float, ...] = ()
    widths: tuple[float, ...] = ()  # variances for Gaussian noise and scales for Laplace noise
    public: tuple[float, ...] = ()  # without noise: neighbours must agree on them


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One question and its answer."""

    door: str
    asked: tuple[Any, ...]
    answer: Any
    exact: Exact  # on a replay the answer before noise; in a first run what the answer tells, noise included
    events: tuple[Event, ...]
    draws: tuple[Draw, ...]
    luck: tuple[NDArray[Any], ...]  # random numbers that choose sub-samples, parts and permutations
    refusal: str | None  # why nothing was answered, if the filter refused


class Recording:
    """Exchanges in their order. It also stands for the ledger, and sees every charge before noise is drawn.

    `played` are the exchanges to play back, None for a first run; `end` says when a replay ends: that of an attacker
    needs the answers only. `answer_scales` are those of the Laplace noise that was drawn for single answers so far, in
    records: it comes in blocks.
    """

    def __init__(self, source: NoiseSource, played: Sequence[Exchange] | None = None, end: End = End.RESULT) -> None:
        self.noise = RecordedNoise(source)
        self.exchanges: list[Exchange] = []
        self.touched: list[str] = []
        self._played = played
        self._end = end
        self._events: list[Event] = []
        self._notes: list[float] = []
        self.door: str | None = None
        self.answer_scales: list[float] = []

    @property
    def expected(self) -> Exchange | None:
        """The exchange on the recording that comes next, on a replay."""
        place = len(self.exchanges)
        return self._played[place] if self._played is not None and place < len(self._played) else None

    def record(self, event: Event) -> None:
        """Note a charge, as the ledger would; what only says that noise is seeded is left out."""
        if not isinstance(event, Unbounded):
            self._events.append(event)

    def note(self, *values: float) -> None:
        """Note exact numbers that the mechanism of the current exchange was given."""
        self._notes += values

    def touch(self, what: str) -> None:
        """Note that rows were read; outside of an exchange nobody may."""
        if self.door is None:
            self.touched.append(what)

    def ask(
        self,
        door: str,
        asked: tuple[Any, ...],
        compute: Callable[[], Answer],
        read: Callable[[Answer, Recording], Exact],
    ) -> Answer:
        """Put one question through a door, on a replay with the recorded answer; `read` reads its numbers."""
        expected = self._start(door, asked)
        try:
            answer = compute()
        except BudgetError as refusal:
            self._close(door, asked, None, Exact(Rule.NOTHING), str(refusal))
            _check_refusal(door, expected, str(refusal))
            raise
        exact = read(answer, self)
        if self._played is None and exact.rule in _NOTED:
            # notes are exact numbers that nobody outside is told
            exact = Exact(exact.rule)
        self._close(door, asked, answer, exact, None)
        _check_refusal(door, expected, None)
        return answer if expected is None else cast(Answer, expected.answer)

    def open(self, door: str, asked: tuple[Any, ...], make: Callable[[], Answer]) -> Answer:
        """Open a question session or its like: it may draw parts, but answers nothing, so nothing is frozen."""
        self._start(door, asked)
        made = make()
        self._close(door, asked, None, Exact(Rule.NOTHING), None)
        return made

    @property
    def events(self) -> tuple[Event, ...]:
        """What was charged in the current exchange."""
        return tuple(self._events)

    @property
    def notes(self) -> tuple[float, ...]:
        """The exact numbers of the current exchange."""
        return tuple(self._notes)

    def _start(self, door: str, asked: tuple[Any, ...]) -> Exchange | None:
        expected = self.expected
        if self._played is not None:
            if expected is None:
                raise Divergence(f"question {len(self.exchanges) + 1} ({door}) was not asked on the first table")
            if expected.door != door or expected.asked != asked:
                raise Divergence(f"question {len(self.exchanges) + 1} differs: {expected.door} first, then {door}")
        self.noise.begin(None if expected is None else expected.luck)
        self.door, self._events, self._notes = door, [], []
        return expected

    def _close(self, door: str, asked: tuple[Any, ...], answer: Any, exact: Exact, refusal: str | None) -> None:
        self.door = None
        events, draws, luck = tuple(self._events), tuple(self.noise.draws), tuple(self.noise.luck)
        self.exchanges.append(Exchange(door, asked, answer, exact, events, draws, luck, refusal))
        if self._end is End.LAST_ANSWER and self._played is not None and len(self.exchanges) == len(self._played):
            raise Finished


def _check_refusal(door: str, expected: Exchange | None, refusal: str | None) -> None:
    if expected is not None and expected.refusal != refusal:
        raise Divergence(f"{door}: one run was refused this question and the other was not")
