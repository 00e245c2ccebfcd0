"""The doors of a question session with a recording behind them: the same code, every call noted."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from dagveil.audit.exact_answers import read_answer, read_median, read_notes, read_sampled, scales_in_records
from dagveil.audit.recording import Exact, Recording, Rule
from dagveil.curator import Answer, Question, QuestionSession, ThresholdRounds
from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD, Sample
from dagveil.data.table import Table
from dagveil.privacy.mechanisms.subsampling import Sampling, strengthen
from dagveil.privacy.relation import Relation
from dagveil.statistics.statistic import Statistic

_FAR: Final = 2**60
"""A score, in grid steps, that no noise brings back across a threshold."""


class AuditedQuestions(QuestionSession):
    """A recorded question session. It notes the exact scores that its mechanisms are given."""

    def __init__(
        self, table: Table, relation: Relation, statistic: Statistic, gate: Gate, recording: Recording
    ) -> None:
        super().__init__(table, relation, statistic, gate)
        self._recording = recording
        self._drawn: list[float] = []
        self.steered: bool | None = None

    def answer(self, question: Question, epsilon: Fraction, label: str) -> Answer:
        """Return the score with Laplace noise."""
        call = super().answer

        def read(answer: Answer, recording: Recording) -> Exact:
            self._drawn += scales_in_records(recording)
            return read_answer(answer, self._drawn)

        return self._recording.ask("answer", (question, epsilon, label), lambda: call(question, epsilon, label), read)

    def answer_by_median(self, question: Question, epsilon: Fraction, delta: Fraction, label: str) -> float:
        """Return the median p-value with smooth noise."""
        call = super().answer_by_median
        asked = (question, epsilon, delta, label)
        return self._recording.ask(
            "answer_by_median", asked, lambda: call(question, epsilon, delta, label), read_median
        )

    def answer_from_sample(self, question: Question, rate: Fraction, variance: Fraction, label: str) -> Answer:
        """Return the score of a fresh sub-sample with Gaussian noise."""
        call = super().answer_from_sample
        asked = (question, rate, variance, label)
        return self._recording.ask(
            "answer_from_sample", asked, lambda: call(question, rate, variance, label), read_sampled
        )

    def open_rounds(self, epsilon: Fraction, threshold_share: Fraction, rate: Fraction, label: str) -> ThresholdRounds:
        """Return recorded rounds."""
        call = super().open_rounds
        # what a round may cost on its sub-sample
        sampling = Sampling.POISSON if self._relation is Relation.ADD_REMOVE else Sampling.WITHOUT_REPLACEMENT
        allowed = epsilon if rate == 1 else strengthen(epsilon, rate, sampling, self._relation)
        rounds = self._recording.open(
            "open_rounds",
            (epsilon, threshold_share, rate, label),
            lambda: call(epsilon, threshold_share, rate, label),
        )
        return AuditedRounds(self, rounds, float(allowed), self._recording)

    def choose_number(self, options: Sequence[Sequence[tuple[Question, float]]], epsilon: Fraction, label: str) -> int:
        """Choose how many neighbours look independent."""
        call = super().choose_number
        asked = (tuple(tuple(questions) for questions in options), epsilon, label)
        return self._recording.ask("choose_number", asked, lambda: call(options, epsilon, label), read_notes)

    def choose_separation(self, options: Sequence[tuple[Question, float]], epsilon: Fraction, label: str) -> int:
        """Choose the question that looks most independent."""
        call = super().choose_separation
        return self._recording.ask(
            "choose_separation", (tuple(options), epsilon, label), lambda: call(options, epsilon, label), read_notes
        )

    def flip_coin(self) -> bool:
        """Flip a fair coin; on a replay the same side comes up."""
        call = super().flip_coin
        return self._recording.ask("flip_coin", (), call, lambda given, recording: Exact(Rule.NOTHING))

    def _score(self, question: Question, sample: Sample) -> int:
        exact = super()._score(question, sample)
        if self.steered is None:
            return exact
        self._recording.note(exact / RECORD)
        expected = self._recording.expected
        if expected is None:
            return exact
        # on a replay the mechanism must come to the answer on the recording, whatever the score is here
        return -_FAR if expected.answer else _FAR

    def _choose(self, scores: Sequence[int], epsilon: Fraction, label: str, asked: object) -> int:
        for score in scores:
            self._recording.note(score / RECORD)
        with self._recording.noise.free():
            return super()._choose(scores, epsilon, label, asked)


class AuditedRounds(ThresholdRounds):
    """Recorded rounds. On a replay they start and end as on the recording."""

    def __init__(
        self, session: AuditedQuestions, rounds: ThresholdRounds, allowed: float, recording: Recording
    ) -> None:
        own = (1 / Fraction(rounds.threshold_scale), 2 / Fraction(rounds.question_scale))
        super().__init__(session, rounds._vector, own, rounds._rate)
        self._audited = session
        self._allowed = allowed
        self._recording = recording
        self._scales = (rounds.threshold_scale, rounds.question_scale)
        self._is_fresh = True

    def looks_independent(self, question: Question, threshold: float) -> bool:
        """Ask whether the score lies below a public threshold."""
        call = super().looks_independent

        def compute() -> bool:
            self._audited.steered = True
            try:
                return call(question, threshold)
            finally:
                self._audited.steered = None

        return self._recording.ask(
            "looks_independent",
            (question, threshold),
            compute,
            lambda given, recording: Exact(Rule.ROUND, recording.notes, (*self._observe(recording), self._allowed)),
        )

    def _observe(self, recording: Recording) -> tuple[float, float]:
        """Return the scales of threshold and questions, in records, as they were drawn and not as they are told.

        Draws come in blocks: the first question draws one for the threshold and then one for the questions.
        """
        drawn = scales_in_records(recording)
        if self._is_fresh:
            self._scales = (drawn[0], drawn[-1]) if drawn else (0.0, 0.0)
            self._is_fresh = False
        elif drawn and min(drawn) < min(self._scales):
            self._scales = (min(drawn), min(drawn))
        return self._scales
