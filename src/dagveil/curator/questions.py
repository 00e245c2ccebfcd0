"""Adaptive questions about independence, and those of a gradient method, each charged before its noise is drawn.

Every statistic becomes a *score in records*, its exact integer value over its sensitivity, on a grid of 2⁻²⁰ records:
one record moves any score by at most 1 (docs/proofs/scores-in-records.md), which is all that a mechanism must know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.gate import Gate
from dagveil.data.gradients import GradientPlan
from dagveil.data.moments import MomentPlan
from dagveil.data.table import Table
from dagveil.errors import BudgetError
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, SubsampledGaussian
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.mechanisms.subsampling import SAMPLING_FOR, strengthen
from dagveil.statistics.moments import curvature_squared_sensitivity, gradient_squared_sensitivity
from dagveil.statistics.reconciled import GRID, Reconciled, part_statistics
from dagveil.statistics.statistic import Statistic, TableShape

Floats = NDArray[np.float64]
Question = tuple[str, str, tuple[str, ...]]  # are x and y independent given these columns?
# grid steps per record, and so the sensitivity of every score: values that differ by at most that much before they are
# rounded down to integers differ by at most that much after
RECORD: Final = 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """A noisy score, in records, and the standard deviation of its noise."""

    score: float
    deviation: float


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A table or a random part of it, dealt out to parts where the statistic votes, and the scores known already."""

    table: Table
    parts: Sequence[Table]
    scores: dict[Question, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Sample({len(self.parts)} parts)"


class QuestionSession:
    """Questions to one table with one statistic: the larger, the more dependent."""

    def __init__(self, table: Table, relation: Relation, statistic: Statistic, gate: Gate) -> None:
        self._relation = relation
        self._gate = gate
        self._levels = {name: column.n_levels for name, column in table.schema.columns.items()}
        self.statistic = statistic
        self._whole = self._deal(table)
        self._open: ThresholdRounds | None = None
        self.asked = 0

    def critical_score(self, question: Question, level: float, rows: float, ties: float = 1.0) -> float:
        """Return the score, in records, above which the exact statistic would say "dependent" at this level."""
        shape = self._shape(question)
        critical = self.statistic.critical_value(level, rows, shape, ties)
        return critical / self.statistic.sensitivity(self._relation, shape)

    def answer(self, question: Question, epsilon: Fraction, label: str) -> Answer:
        """Return the score with Laplace noise."""
        self._check_no_round()
        exact = self._score(question, self._whole)
        scale = self._gate.representable_scale(RECORD / epsilon)
        event = DiscreteLaplace(label, 1, epsilon)
        noisy = self._gate.add_one_laplace(exact, event, scale, question)
        self.asked += 1
        return Answer(noisy / RECORD, math.sqrt(2.0) * float(scale) / RECORD)

    def answer_by_median(self, question: Question, epsilon: Fraction, delta: Fraction, label: str) -> float:
        """Return the median p-value of the statistic's parts, with noise scaled to its smooth sensitivity."""
        if not isinstance(self.statistic, Reconciled):
            raise BudgetError(f"{self.statistic.name} has one part only, so there is no median; use a reconciled test.")
        self._check_no_round()
        p_values = part_statistics(self._count(question, self._whole), self.statistic.test)
        released = self._gate.release_median(p_values, (0, GRID), epsilon, delta, label, question)
        self.asked += 1
        return min(max(released / GRID, 0.0), 1.0)

    def answer_from_sample(self, question: Question, rate: Fraction, variance: Fraction, label: str) -> Answer:
        """Return the score of a fresh Poisson sub-sample with Gaussian noise of a variance in records²."""
        if self._relation is not Relation.ADD_REMOVE:
            raise BudgetError(
                "Poisson sub-samples are accounted for under add/remove neighbours only; declare that relation in the "
                "schema, or choose a method that takes no sub-samples."
            )
        self._check_no_round()
        squared = Fraction(RECORD**2)
        variance = self._gate.representable_variance(variance * squared)
        exact = np.array([self._score(question, self._draw_sample(rate))], dtype=np.int64)
        noisy = self._gate.add_gaussian(exact, SubsampledGaussian(label, rate, squared, variance), question)
        self.asked += 1
        return Answer(int(noisy[0]) / RECORD, math.sqrt(variance) / RECORD)

    def open_rounds(self, epsilon: Fraction, threshold_share: Fraction, rate: Fraction, label: str) -> ThresholdRounds:
        """Return a sparse vector over questions, with a fresh sub-sample for every round.

        `epsilon` is the price of one round on the whole table, `threshold_share` its share for the noise of the
        threshold, and `rate` the share of the records in each round's sub-sample; 1 takes all.
        """
        if not 0 < rate <= 1 or not 0 < threshold_share < 1:
            raise BudgetError("rounds need a rate above 0 and at most 1, and a threshold share between 0 and 1.")
        # the mechanism's own epsilon on the sub-sample, whose amplified price is `epsilon`
        inner = epsilon if rate == 1 else strengthen(epsilon, rate, SAMPLING_FOR[self._relation], self._relation)
        own = (inner * threshold_share, inner * (1 - threshold_share))
        vector = self._gate.open_sparse_vector(own, RECORD, label, epsilon)
        return ThresholdRounds(self, vector, own, rate)

    def choose_number(self, options: Sequence[Sequence[tuple[Question, float]]], epsilon: Fraction, label: str) -> int:
        """Choose how many neighbours look independent, from each one's questions with thresholds in records."""
        # sorted utilities move no further than the utilities themselves
        best = sorted((max(self._utility(*asked) for asked in questions) for questions in options), reverse=True)
        # t neighbours fit if the t-th utility is above zero and the next one below
        scores = [-best[0], *(min(left, -right) for left, right in pairwise(best)), best[-1]]
        return self._choose(scores, epsilon, label, tuple(map(tuple, options)))

    def choose_separation(self, options: Sequence[tuple[Question, float]], epsilon: Fraction, label: str) -> int:
        """Choose, by the exponential mechanism, the question that looks most independent; returns its position."""
        utilities = [self._utility(question, threshold) for question, threshold in options]
        return self._choose(utilities, epsilon, label, tuple(options))

    def flip_coin(self) -> bool:
        """Flip a fair coin; it depends on nothing."""
        return self._gate.flip_coin()

    def _draw_sample(self, rate: Fraction) -> Sample:
        """Draw a fresh sub-sample: Poisson if records come and go, of fixed size if they are replaced."""
        whole = self._whole.table
        if rate == 1:
            return self._whole
        if self._relation is Relation.ADD_REMOVE:
            return self._deal(whole.thin(lambda n_rows: self._gate.keep_each(rate, n_rows)))
        return self._deal(whole.thin(lambda n_rows: self._gate.keep_some(math.floor(rate * n_rows), n_rows)))

    def _score(self, question: Question, sample: Sample) -> int:
        """Return the **exact** score in grid steps, for mechanisms only; it does not depend on the order of columns."""
        x, y, given = question
        question = (min(x, y), max(x, y), tuple(sorted(given)))
        if question not in sample.scores:
            value = int(self.statistic.values(self._count(question, sample)))
            sensitivity = self.statistic.sensitivity(self._relation, self._shape(question))
            sample.scores[question] = value * RECORD // sensitivity
        return sample.scores[question]

    def _count(self, question: Question, sample: Sample) -> NDArray[np.int64]:
        """Return exact counts in the shape (strata, levels of x, levels of y), by part where there are several."""
        x, y, given = question
        shape = self._shape(question)
        tables = [table.counts((*given, x, y)).reshape(shape) for table in sample.parts]
        return np.stack(tables) if self.statistic.parts > 1 else tables[0]

    def _choose(self, scores: Sequence[int], epsilon: Fraction, label: str, asked: object) -> int:
        self._check_no_round()
        chosen = self._gate.choose([Fraction(score, RECORD) for score in scores], epsilon, label, asked)
        self.asked += 1
        return chosen

    def _check_no_round(self, asking: ThresholdRounds | None = None) -> None:
        """Refuse a question in the middle of a round: the proof of rounds on sub-samples does not cover it."""
        if self._open is not None and self._open is not asking:
            raise BudgetError("a round of the sparse vector is open; nothing else may be asked until it has ended.")

    def _utility(self, question: Question, threshold: float) -> int:
        """Grid steps by which the score stays below its threshold."""
        return math.floor(threshold * RECORD) - self._score(question, self._whole)

    def _shape(self, question: Question) -> TableShape:
        x, y, given = question
        return TableShape(math.prod(self._levels[name] for name in given), self._levels[x], self._levels[y])

    def _deal(self, table: Table) -> Sample:
        """Deal the records out to the statistic's parts, each record on its own."""
        parts = self.statistic.parts
        if parts == 1:
            return Sample(table, [table])
        return Sample(table, table.split(parts, lambda n_rows: self._gate.deal(parts, n_rows)))


class ThresholdRounds:
    """A sparse vector over questions: tells which look independent; a round ends with the first that does."""

    def __init__(
        self, session: QuestionSession, vector: SparseVector, own_epsilons: tuple[Fraction, Fraction], rate: Fraction
    ) -> None:
        self._session = session
        self._vector = vector
        self._rate = rate
        self._sample: Sample | None = None
        self.threshold_scale = float(1 / own_epsilons[0])
        self.question_scale = float(2 / own_epsilons[1])

    def looks_independent(self, question: Question, threshold: float) -> bool:
        """Ask whether the score on the round's sub-sample lies below a public threshold, in records."""
        self._session._check_no_round(self)
        if self._sample is None:
            self._sample = self._session._draw_sample(self._rate)
        exact = self._session._score(question, self._sample)
        gate = self._session._gate
        below = gate.is_above(self._vector, -exact, -math.floor(threshold * RECORD), question)
        self._session.asked += 1
        self._session._open = None if below else self
        if below:
            self._sample = None
        return below


class GradientQuestions:
    """Gradients of the linear model's loss on clipped rows."""

    def __init__(self, table: Table, relation: Relation, rows: MomentPlan, gate: Gate) -> None:
        self._table = table
        self._relation = relation
        self._rows = rows
        self._gate = gate
        self.asked = 0

    def gradient(self, weights: Floats, clip: float, share: Fraction, label: str) -> tuple[Floats, float]:
        """Return the noisy sum over rows of gradients of ½‖z − zW‖², clipped to a length, and its deviation."""
        plan = GradientPlan(self._rows, tuple(tuple(row) for row in weights.tolist()), clip)
        plan.check_reach()
        exact = self._table.gradients(plan)
        sensitivity = gradient_squared_sensitivity(self._relation, plan)
        noisy, deviation = self._release(exact, sensitivity, share, label, plan)
        unit = 4.0**self._rows.bits
        return -noisy / unit, deviation / unit

    def curvature(self, direction: Floats, cap: float, share: Fraction, label: str) -> tuple[float, float]:
        """Return the noisy sum over rows of ‖z P‖², each cut off at the cap, and the deviation of its noise."""
        exact = np.array(self._table.curvature(self._rows, direction, cap), dtype=np.int64)
        sensitivity = curvature_squared_sensitivity(self._rows, cap)
        noisy, deviation = self._release(exact, sensitivity, share, label, (direction.tolist(), cap))
        unit = 2.0**self._rows.bits
        return float(noisy) / unit, deviation / unit

    def _release(
        self, exact: NDArray[np.int64], squared_sensitivity: Fraction, share: Fraction, label: str, asked: object
    ) -> tuple[Floats, float]:
        variance = self._gate.variance_for(squared_sensitivity, share)
        event = DiscreteGaussian(label, exact.size, squared_sensitivity, variance)
        noisy = self._gate.add_gaussian(exact.reshape(-1), event, asked)
        self.asked += 1
        return noisy.reshape(exact.shape).astype(np.float64), math.sqrt(variance)
