"""The gate: the one place where an exact number becomes a released one. It alone holds noise, filter and run.

It works in one order: refuse, record, draw. With a journal each answer is on disk before it is handed out; a run that
stopped gets the answers of the journal again, and goes on where they end (docs/proofs/recovery.md).
"""

from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.journal import Journal, Kept, digest_question
from dagveil.errors import LedgerError, MethodError
from dagveil.privacy.events import (
    DiscreteGaussian,
    Event,
    ExponentialChoice,
    Filter,
    HomeProcess,
    SubsampledGaussian,
    Unbounded,
)
from dagveil.privacy.mechanisms import exponential
from dagveil.privacy.mechanisms.gaussian import deviation_for
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.privacy.mechanisms.smooth_median import release_median
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.noise import source
from dagveil.privacy.noise.source import LaplaceBlocks, NoiseSource
from dagveil.privacy.receipt import SEEDED

Integers = NDArray[np.int64]
Part = tuple[Fraction, NDArray[np.intp] | NDArray[np.bool_]]  # a variance or scale, and which values get noise of it
ELSEWHERE: Final = (
    "the run cannot be finished: it asks something else now than before. Finish it with the version of dagveil and the "
    "settings that began it"
)


class Record(Protocol):
    """Where a charge is written before noise is drawn: a run of the ledger."""

    def record(self, event: Event) -> None:
        """Store the event durably."""


class Gate:
    """Refuses, records, draws.

    The journal keeps what is released; its answers, if it has any, are given again first. `written` is what the ledger
    holds of this run already.
    """

    representable_scale = staticmethod(source.representable_scale)
    representable_variance = staticmethod(source.representable_variance)

    def __init__(
        self,
        accounting: Filter,
        run: Record,
        noise: NoiseSource,
        journal: Journal | None = None,
        written: Sequence[Event] = (),
    ) -> None:
        self._accounting = accounting
        self._run = run
        self._noise = noise
        self._laplace = LaplaceBlocks(noise)
        self._events: list[Event] = []
        self._home = HomeProcess()
        self._journal = journal
        self._known = deque[Kept](() if journal is None else journal.answers)
        self._expected: deque[Event] | None = None
        self._standing = deque(_find_standing(journal, written))

    @property
    def events(self) -> tuple[Event, ...]:
        """What was charged so far."""
        return tuple(self._events)

    def variance_for(self, squared_sensitivity: Fraction, share: Fraction) -> Fraction:
        """Variance of noise that costs at most this share of the whole budget, and that can be drawn."""
        deviation = deviation_for(self._accounting, squared_sensitivity, share * self._accounting.total)
        return self.representable_variance(Fraction(deviation**2))

    def epsilon_of_choices(self, count: int, share: Fraction) -> Fraction:
        """Epsilon of each of so many choices that cost at most this share of the whole budget together."""
        return epsilon_for(self._accounting, share * self._accounting.total / count, ExponentialChoice)

    def charge(self, event: Event) -> None:
        """Refuse first, record second; whoever calls this draws last."""
        self._home.check("a curator")
        self._accounting.charge(event)
        if self._expected is not None:
            self._meet(event, self._expected.popleft() if self._expected else None)
            if not self._expected:
                raise _Answered
            return
        if not self._noise.private and not self._events:
            # whoever has the seed can take the noise away: the ledger must not count that as an ordinary charge
            self._run.record(Unbounded("seeded noise", SEEDED))
        self.write(event)

    def write(self, event: Event) -> None:
        """Record an event that no filter can charge."""
        self._home.check("a curator")
        if self._standing:
            # charged when the run stopped, and never answered: it is answered now, and not charged twice
            self._meet(event, self._standing.popleft())
            return
        if self._journal is not None:
            self._journal.sync()
        self._run.record(event)
        self._events.append(event)

    def _meet(self, event: Event, before: Event | None) -> None:
        """Take an event that the ledger holds already."""
        if event != before:
            raise MethodError(ELSEWHERE)
        self._events.append(event)

    # --- what is released; `asked` is the question itself, all of it public ---

    def add_gaussian(
        self, exact: Integers, event: DiscreteGaussian | SubsampledGaussian, asked: object, *parts: Part
    ) -> Integers:
        """Return integers with discrete Gaussian noise: of the event's variance, or of a variance for each part."""

        def draw() -> Integers:
            self.charge(event)
            if not parts:
                return exact + self._noise.discrete_gaussian(event.variance, exact.size)
            noisy = exact.copy()
            for variance, places in parts:
                noisy[places] += self._noise.discrete_gaussian(variance, noisy[places].size)
            return noisy

        return self._release(draw, asked)

    def add_laplace(
        self, exact: Integers, events: Sequence[Event], scales: Sequence[Fraction], asked: object
    ) -> Integers:
        """Return integers with discrete Laplace noise: of one scale for all of them, or of a scale for each."""

        def draw() -> Integers:
            for event in events:
                self.charge(event)
            size = exact.size if len(scales) == 1 else 1
            noise: Integers = np.concatenate([self._noise.discrete_laplace(scale, size) for scale in scales])
            return exact + noise

        return self._release(draw, asked)

    def add_one_laplace(self, exact: int, event: Event, scale: Fraction, asked: object) -> int:
        """Return one integer with discrete Laplace noise from a block of draws."""

        def draw() -> int:
            self.charge(event)
            return exact + self._laplace.draw(scale)

        return self._release_one(draw, asked)

    def is_among_largest(self, scores: Integers, scale: Fraction, event: Event, rank: int, asked: object) -> bool:
        """Tell whether the first score is among so many largest, with Laplace noise on all of them."""

        def draw() -> bool:
            self.charge(event)
            noisy = scores + self._noise.discrete_laplace(scale, len(scores))
            return int((noisy[1:] >= noisy[0]).sum()) + 1 <= rank

        return bool(self._release_one(draw, asked))

    def choose(self, scores_in_records: Sequence[Fraction], epsilon: Fraction, label: str, asked: object) -> int:
        """Choose a position by the exponential mechanism."""
        return self._release_one(
            lambda: exponential.choose(scores_in_records, epsilon, self._noise, self.charge, label), asked
        )

    def choose_in_turn(
        self,
        steps: Sequence[int],
        grid: int,
        epsilon: Fraction,
        count: int,
        allowed: Callable[[Sequence[int]], Sequence[int] | NDArray[np.intp]],
        label: str,
        asked: object,
    ) -> list[int]:
        """Choose positions by the exponential mechanism, one after the other, among those that are allowed next."""
        facts = steps, grid, epsilon, count, allowed, self._noise, self.charge, label
        chosen = self._release(lambda: np.array(exponential.choose_in_turn(*facts), dtype=np.int64), asked)
        return [int(position) for position in chosen]

    def release_median(
        self, values: Integers, bounds: tuple[int, int], epsilon: Fraction, delta: Fraction, label: str, asked: object
    ) -> int:
        """Return the median with smooth noise."""
        return self._release_one(
            lambda: release_median(values, *bounds, epsilon, delta, self._noise, self.charge, label), asked
        )

    def is_above(self, vector: SparseVector, value: int, threshold: int, asked: object) -> bool:
        """Ask a sparse vector of this gate."""
        return bool(self._release_one(lambda: vector.is_above(value, threshold), asked))

    def release_public(self, number: int, asked: object) -> int:
        """Return a number on which all neighbours agree, as it is; it is kept like any answer."""
        return self._release_one(lambda: number, asked)

    def flip_coin(self) -> bool:
        """Flip a fair coin; it depends on nothing."""
        return bool(self._release_one(lambda: int(self._noise.uniform_below(2, 1)[0]), "coin"))

    def _release_one(self, draw: Callable[[], int], asked: object) -> int:
        return int(self._release(lambda: np.array([draw()], dtype=np.int64), asked)[0])

    def _release(self, draw: Callable[[], Integers], asked: object) -> Integers:
        """Let a question be charged and its noise be drawn, keep the answer, and only then hand it out."""
        self._home.check("a curator")
        if self._journal is None:
            return draw()
        if self._known:
            return self._repeat(draw, digest_question(asked))
        before = len(self._events)
        values = draw()
        if self._standing:
            raise LedgerError(
                f"the ledger holds {len(self._standing)} more charges of this run than its recovery file tells of: an "
                "older copy of the file cannot finish the run. Put the newest one back"
            )
        self._journal.add(self._events[before:], digest_question(asked), values.tolist())
        return values

    def _repeat(self, draw: Callable[[], Integers], question: str) -> Integers:
        """Give an answer of the journal again; the question comes as far as its last charge, and draws nothing.

        A question that the filter refuses was refused before, too, and the journal knows nothing of it.
        """
        known = self._known[0]
        is_paid = not known.events
        if question != known.question or known.events:
            self._expected = deque(known.events)
            try:
                draw()
            except _Answered:
                is_paid = True
            finally:
                self._expected = None
        if question != known.question or not is_paid:
            raise MethodError(ELSEWHERE)
        self._known.popleft()
        return np.array(known.values, dtype=np.int64)

    # --- randomness that stays inside ---

    def open_sparse_vector(
        self, own_epsilons: tuple[Fraction, Fraction], sensitivity: int, label: str, price: Fraction
    ) -> SparseVector:
        """Return a sparse vector whose rounds this gate charges, for `is_above`."""
        return SparseVector(*own_epsilons, self._noise, self.charge, sensitivity, label, price)

    def keep_each(self, rate: Fraction, n_rows: int) -> NDArray[np.bool_]:
        """Choose rows, each by itself with this probability."""
        self._home.check("a curator")
        return self._noise.bernoulli(rate, n_rows)

    def keep_some(self, size: int, n_rows: int) -> NDArray[np.bool_]:
        """Choose so many rows, every set of them equally likely."""
        self._home.check("a curator")
        while True:
            tickets = self._noise.uniform_below(2**63, n_rows)
            order = np.argsort(tickets)
            # a tie on the border would favour one of the two: draw again
            if not 0 < size < n_rows or tickets[order[size - 1]] != tickets[order[size]]:
                kept = np.zeros(n_rows, dtype=np.bool_)
                kept[order[:size]] = True
                return kept

    def deal(self, parts: int, n_rows: int) -> Integers:
        """Deal rows out to parts, each row by itself."""
        self._home.check("a curator")
        return self._noise.uniform_below(parts, n_rows)

    def permute(self, size: int) -> NDArray[np.intp]:
        """Draw an order, all equally likely."""
        self._home.check("a curator")
        while True:
            tickets = self._noise.uniform_below(2**63, size)
            order = np.argsort(tickets)
            # equal tickets would favour one order: draw again
            if not (np.diff(tickets[order]) == 0).any():
                return order


class _Answered(Exception):
    """A question was charged as before, so the journal's answer stands: nothing is drawn."""


def _find_standing(journal: Journal | None, written: Sequence[Event]) -> Sequence[Event]:
    """Return what the ledger holds beyond the journal: charges that were written and never answered."""
    answered = [] if journal is None else [event for kept in journal.answers for event in kept.events]
    if list(written[: len(answered)]) != answered:
        raise LedgerError(
            "the recovery file does not fit the ledger: it tells of charges that the run does not have. Name the "
            "ledger that the run was charged to"
        )
    return written[len(answered) :]
