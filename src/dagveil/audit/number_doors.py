"""The doors of gradient and kernel questions with a recording behind them: the same code, every call noted."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagveil.audit.exact_answers import read_curvature, read_difference, read_gradient, read_permuted, read_sums
from dagveil.audit.recording import Recording
from dagveil.curator import Question
from dagveil.curator.gate import Gate
from dagveil.curator.gradients import GradientQuestions
from dagveil.curator.kernel_questions import (
    HsicTest,
    KernelQuestions,
    NoisyDifference,
    PublicFunctions,
    Regression,
    Ridge,
)
from dagveil.curator.residual_sums import NoisySums
from dagveil.data.moments import MomentPlan
from dagveil.data.table import Table
from dagveil.privacy.filter import Filter
from dagveil.privacy.relation import Relation


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
