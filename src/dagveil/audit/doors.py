"""The curator's doors with a recording behind them: the same code, every call noted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.recording import Exact, NoiseLaw, Recording, Rule
from dagveil.curator import Answer, Curator, Question, QuestionSession, ThresholdRounds
from dagveil.curator.gate import Gate
from dagveil.curator.gradients import GradientQuestions
from dagveil.curator.kernel_questions import (
    COLUMN_REACH,
    RESIDUAL_REACH,
    HsicTest,
    KernelQuestions,
    NoisyDifference,
    NoisySums,
    PublicFunctions,
    Regression,
    Ridge,
)
from dagveil.curator.questions import RECORD, Sample
from dagveil.data.features import FeaturePlan
from dagveil.data.moments import MomentPlan
from dagveil.data.residuals import ResidualPlan
from dagveil.data.table import Table
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.filter import Filter
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.mechanisms.subsampling import Sampling, strengthen
from dagveil.privacy.relation import Relation
from dagveil.privacy.release import (
    NoisyCounts,
    NoisyFeatureMoments,
    NoisyInteractions,
    NoisyMagnitudes,
    NoisyMoments,
    Release,
)
from dagveil.statistics.hsic import root_hsic_sensitivity
from dagveil.statistics.kernels import kernel_features
from dagveil.statistics.reconciled import GRID
from dagveil.statistics.residuals import residual_sensitivity
from dagveil.statistics.statistic import Statistic


def read_releases(releases: Sequence[Release], recording: Recording) -> Exact:
    """Read released integers, and the noise that was drawn for them; those with no noise claim to be public."""
    public = tuple(float(value) for release in releases if release.variance == 0 for value in release.values)
    releases = [release for release in releases if release.variance != 0]
    values = tuple(float(value) for release in releases for value in release.values)
    draws = recording.noise.draws
    if any(draw.law is NoiseLaw.LAPLACE for draw in draws):
        enough = sum(draw.size for draw in draws) >= len(values)
        scale = float(min(draw.width for draw in draws)) if enough else 0.0
        return Exact(Rule.SCALED_SIZES, values, (scale,) * len(values))
    told = [width for release in releases for width in _variances(release)]
    return Exact(Rule.WEIGHTED_SQUARES, values, _see_through(told, recording), public)


def _see_through(told: Sequence[float], recording: Recording) -> tuple[float, ...]:
    """Return the variances that an answer tells of, made smaller if smaller ones were drawn; 0 if a number got none."""
    draws = [draw for draw in recording.noise.draws if draw.law is NoiseLaw.GAUSSIAN]
    if not told or sum(draw.size for draw in draws) < len(told):
        return (0.0,) * len(told)
    part = min(1.0, float(min(draw.width for draw in draws)) / min(told))
    # told variances went through floats
    return tuple(width * (1.0 if part > 1.0 - 1e-9 else part) for width in told)


def _variances(release: Release) -> list[float]:
    if not isinstance(release, NoisyMoments | NoisyFeatureMoments):
        return [float(release.variance)] * len(release.values)
    # the upper triangle of a square of this size
    size = (math.isqrt(8 * len(release.values) + 1) - 1) // 2
    rows, columns = np.triu_indices(size)
    off, on = float(release.variance), float(release.diagonal_variance)
    return [on if row == column else off for row, column in zip(rows, columns, strict=True)]


def scales_in_records(recording: Recording) -> list[float]:
    """Return the scales of the Laplace noise of this exchange, in records."""
    return [float(draw.width) / RECORD for draw in recording.noise.draws if draw.law is NoiseLaw.LAPLACE]


def read_answer(answer: Answer, drawn: Sequence[float]) -> Exact:
    """Read a score with Laplace noise, in records.

    Draws come in blocks, so the answer tells the scale. If nothing of that scale was drawn so far, the smallest that
    was drawn counts.
    """
    told = answer.deviation / math.sqrt(2.0)
    scale = told if any(math.isclose(told, width, rel_tol=1e-9) for width in drawn) else min(drawn, default=0.0)
    return Exact(Rule.SCALED_SIZES, (answer.score,), (scale,))


def read_sampled(answer: Answer, recording: Recording) -> Exact:
    """Read the score of a sub-sample, in grid steps."""
    return Exact(Rule.SAMPLED, (answer.score * RECORD,), _see_through([(answer.deviation * RECORD) ** 2], recording))


def read_median(answer: float, recording: Recording) -> Exact:
    """Read a median p-value, in steps of its grid; the scale of its noise is a secret that a recording sees."""
    return Exact(Rule.SMOOTH, (answer * GRID,), tuple(float(draw.width) for draw in recording.noise.draws))


def read_notes(answer: int, recording: Recording) -> Exact:
    """Read the scores that a choice was made from, in records."""
    return Exact(Rule.RECORDS, recording.notes)


def read_gradient(answer: tuple[NDArray[np.float64], float], bits: int, recording: Recording) -> Exact:
    """Read a sum of gradients, in fixed point."""
    total, deviation = answer
    values = tuple((total * 4.0**bits).reshape(-1).tolist())
    return Exact(Rule.WEIGHTED_SQUARES, values, _see_through([(deviation * 4.0**bits) ** 2] * len(values), recording))


def read_curvature(answer: tuple[float, float], bits: int, recording: Recording) -> Exact:
    """Read a sum of curvatures, in fixed point."""
    total, deviation = answer
    return Exact(Rule.WEIGHTED_SQUARES, (total * 2.0**bits,), _see_through([(deviation * 2.0**bits) ** 2], recording))


def read_difference(answer: NoisyDifference, recording: Recording) -> Exact:
    """Read a difference of scores, in its own unit; the scale that it tells of counts as far as it was drawn."""
    (wanted,) = _grid_scales(recording, (1,))
    part = min(1.0, min(scales_in_records(recording), default=0.0) * RECORD / wanted)
    return Exact(Rule.SCALED_SIZES, (answer.value,), (answer.scale * part,))


def read_sums(answer: NoisySums, recording: Recording) -> Exact:
    """Read sums of residuals and products, in grid steps of each."""
    values = (answer.products, answer.squares, answer.first, answer.second)
    variances = (
        answer.variance_products,
        answer.variance_squares,
        answer.variance_first,
        answer.variance_second,
    )
    # one charge each for products and squares, one for both sums of residuals
    wanted = _grid_scales(recording, (1, 1, 2))
    steps = tuple(
        value / math.sqrt(variance / float(laplace_variance(Fraction(scale))))
        for value, variance, scale in zip(values, variances, wanted, strict=True)
    )
    drawn = [float(draw.width) for draw in recording.noise.draws]
    return Exact(Rule.SCALED_SIZES, steps, tuple(drawn) if len(drawn) == len(steps) else (0.0,) * len(steps))


def _grid_scales(recording: Recording, shares: Sequence[int]) -> list[float]:
    """Return the scales, in grid steps, that the charges of this exchange ask for: a record each."""
    epsilons = [event.epsilon for event in recording.events if isinstance(event, DiscreteLaplace)]
    if len(epsilons) != len(shares):
        return [float(RECORD)] * sum(shares)  # nobody paid for this, which is a finding of its own
    return [
        float(recording.noise.representable_scale(RECORD * share / epsilon))
        for epsilon, share in zip(epsilons, shares, strict=True)
        for _ in range(share)
    ]


def read_permuted(recording: Recording, slots: int, test: HsicTest, question: Question) -> Exact:
    """Read the statistic and the permuted ones, in records: in units of what one slot moves a permuted one by."""
    kernel = kernel_features(test.bandwidth, RESIDUAL_REACH if question[2] else COLUMN_REACH)
    ridge = test.regression if question[2] and isinstance(test.regression, Ridge) else None
    residual = 0.0 if ridge is None else residual_sensitivity(slots, ridge.penalty)
    unit = root_hsic_sensitivity(slots, kernel, kernel, residual, residual)
    scale = min(scales_in_records(recording), default=0.0)
    return Exact(Rule.PERMUTED, tuple(value / unit for value in recording.notes), (scale,))


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


class AuditedGradients(GradientQuestions):
    """Recorded gradient questions."""

    def __init__(
        self, table: Table, relation: Relation, rows: MomentPlan, accounting: Filter, gate: Gate, recording: Recording
    ) -> None:
        super().__init__(table, relation, rows, accounting, gate)
        self._recording = recording

    def gradient(
        self, weights: NDArray[np.float64], clip: float, share: Fraction, label: str
    ) -> tuple[NDArray[np.float64], float]:
        """Return the noisy sum of clipped gradients."""
        call = super().gradient
        return self._recording.ask(
            "gradient",
            (weights.tobytes(), clip, share, label),
            lambda: call(weights, clip, share, label),
            lambda given, recording: read_gradient(given, self._rows.bits, recording),
        )

    def curvature(self, direction: NDArray[np.float64], cap: float, share: Fraction, label: str) -> tuple[float, float]:
        """Return the noisy sum of clipped curvatures."""
        call = super().curvature
        return self._recording.ask(
            "curvature",
            (direction.tobytes(), cap, share, label),
            lambda: call(direction, cap, share, label),
            lambda given, recording: read_curvature(given, self._rows.bits, recording),
        )


class AuditedKernels(KernelQuestions):
    """Recorded kernel questions. They note the exact statistics that the permutation test compares."""

    def __init__(self, table: Table, relation: Relation, slots: int, gate: Gate, recording: Recording) -> None:
        super().__init__(table, relation, slots, gate)
        self._recording = recording

    def permutation_bit(self, question: Question, epsilon: Fraction, test: HsicTest, label: str) -> bool:
        """Tell whether x and y look dependent, by a private permutation test."""
        call = super().permutation_bit
        tests = (test.level, test.permutations, test.bandwidth)
        asked = (question, epsilon, tests, _tell_regression(test.regression, question), label)
        return self._recording.ask(
            "permutation_bit",
            asked,
            lambda: call(question, epsilon, test, label),
            lambda given, recording: read_permuted(recording, self.slots, test, question),
        )

    def gcm(
        self,
        question: Question,
        epsilons: tuple[Fraction, Fraction, Fraction],
        functions: PublicFunctions,
        bound: float,
        label: str,
    ) -> NoisySums:
        """Return noisy sums of residual products."""
        call = super().gcm
        asked = (question, epsilons, _tell_regression(functions, question), bound, label)
        return self._recording.ask("gcm", asked, lambda: call(question, epsilons, functions, bound, label), read_sums)

    def hsic_difference(
        self, x: str, y: str, epsilon: Fraction, regression: Regression, bandwidth: float, label: str
    ) -> NoisyDifference:
        """Return the difference of two root HSICs."""
        call = super().hsic_difference
        asked = (x, y, epsilon, _tell_pair(regression, x, y), bandwidth, label)
        return self._recording.ask(
            "hsic_difference", asked, lambda: call(x, y, epsilon, regression, bandwidth, label), read_difference
        )

    def rank_difference(
        self, x: str, y: str, epsilon: Fraction, functions: PublicFunctions, label: str
    ) -> NoisyDifference:
        """Return the difference of two scores by ranks."""
        call = super().rank_difference
        asked = (x, y, epsilon, _tell_pair(functions, x, y), label)
        return self._recording.ask(
            "rank_difference", asked, lambda: call(x, y, epsilon, functions, label), read_difference
        )

    def _permuted(self, u: NDArray[np.float64], v: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        found = super()._permuted(u, v, count)
        for value in found.tolist():
            self._recording.note(value)
        return found


def _tell_regression(regression: Regression, question: Question) -> tuple[Any, ...]:
    """Return what a regression is, in values that can be compared: functions must come from answers alone."""
    if isinstance(regression, Ridge):
        return (regression,)
    x, y, given = question
    return tuple(regression.function(target, given) for target in (x, y))


def _tell_pair(regression: Regression, x: str, y: str) -> tuple[Any, ...]:
    if isinstance(regression, Ridge):
        return (regression,)
    return regression.function(y, (x,)), regression.function(x, (y,))


class WatchedTable:
    """A table that tells the recording whenever rows are read. The schema is public and may be read by anyone."""

    def __init__(self, table: Table, recording: Recording) -> None:
        self._table = table
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        if name != "schema":
            self._recording.touch(name)
        return getattr(self._table, name)


class AuditedCurator(Curator):
    """A curator whose every door is recorded."""

    def __init__(self, table: Table, relation: Relation, accounting: Filter, recording: Recording) -> None:
        super().__init__(cast(Table, WatchedTable(table, recording)), relation, accounting, recording, recording.noise)
        self._recording = recording

    def count_rows(self, share: Fraction) -> NoisyCounts:
        """Release the number of rows."""
        call = super().count_rows
        return self._recording.ask(
            "count_rows", (share,), lambda: call(share), lambda given, recording: read_releases((given,), recording)
        )

    def count_tables(
        self, column_sets: Sequence[tuple[str, ...]], share: Fraction, label: str
    ) -> tuple[NoisyCounts, ...]:
        """Release the tables of counts of several sets of columns."""
        call = super().count_tables
        if not column_sets:
            return ()
        asked = (tuple(column_sets), share, label)
        return self._recording.ask("count_tables", asked, lambda: call(column_sets, share, label), read_releases)

    def interactions(
        self, pairs: Sequence[tuple[str, str]], share: Fraction, label: str
    ) -> tuple[NoisyInteractions, ...]:
        """Release what the tables of pairs of columns hold beyond their margins."""
        call = super().interactions
        return self._recording.ask(
            "interactions", (tuple(pairs), share, label), lambda: call(pairs, share, label), read_releases
        )

    def margins(
        self, columns: Sequence[str], share: Fraction, label: str
    ) -> tuple[NoisyCounts | NoisyInteractions, ...]:
        """Release the number of rows, and what the one-way tables of columns hold beyond it."""
        call = super().margins
        return self._recording.ask(
            "margins", (tuple(columns), share, label), lambda: call(columns, share, label), read_releases
        )

    def magnitudes(self, centers: dict[str, float], exponents: range, share: Fraction) -> tuple[NoisyMagnitudes, ...]:
        """Release how far values lie from public centres."""
        call = super().magnitudes
        asked = (tuple(centers.items()), exponents, share)
        return self._recording.ask("magnitudes", asked, lambda: call(centers, exponents, share), read_releases)

    def moments(self, plan: MomentPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of clipped rows."""
        call = super().moments
        return self._recording.ask(
            "moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def features(self, plan: FeaturePlan, share: Fraction, label: str) -> NoisyFeatureMoments:
        """Release the second moments of public features of clipped columns."""
        call = super().features
        return self._recording.ask(
            "features",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def residual_moments(self, plan: ResidualPlan, share: Fraction, label: str) -> NoisyMoments:
        """Release the second moments of residuals of public functions."""
        call = super().residual_moments
        return self._recording.ask(
            "residual_moments",
            (plan, share, label),
            lambda: call(plan, share, label),
            lambda given, recording: read_releases((given,), recording),
        )

    def ask_questions(self, statistic: Statistic) -> QuestionSession:
        """Return a recorded question session, after the curator's own checks."""
        call = super().ask_questions

        def make() -> QuestionSession:
            call(statistic)  # refuses what the curator refuses
            return AuditedQuestions(self._table, self.relation, statistic, self._gate, self._recording)

        return self._recording.open("ask_questions", (statistic,), make)

    def ask_gradients(self, rows: MomentPlan) -> GradientQuestions:
        """Return recorded gradient questions."""
        return self._recording.open(
            "ask_gradients",
            (rows,),
            lambda: AuditedGradients(self._table, self.relation, rows, self.accounting, self._gate, self._recording),
        )

    def ask_kernels(self, slots: int) -> KernelQuestions:
        """Return recorded kernel questions."""
        return self._recording.open(
            "ask_kernels",
            (slots,),
            lambda: AuditedKernels(self._table, self.relation, slots, self._gate, self._recording),
        )
