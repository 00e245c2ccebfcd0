"""Adaptive questions of a gradient method: clipped gradients and curvatures, each charged before its noise is drawn."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.gate import Gate
from dagveil.data.gradients import GradientPlan
from dagveil.data.moments import MomentPlan
from dagveil.data.table import Table
from dagveil.privacy.events import DiscreteGaussian
from dagveil.privacy.relation import Relation
from dagveil.statistics.moments import curvature_squared_sensitivity, gradient_squared_sensitivity


class GradientQuestions:
    """Gradients of the linear model's loss on clipped rows."""

    def __init__(self, table: Table, relation: Relation, rows: MomentPlan, gate: Gate) -> None:
        self._table = table
        self._relation = relation
        self._rows = rows
        self._gate = gate
        self.asked = 0

    def __repr__(self) -> str:
        return f"GradientQuestions({len(self._rows.columns)} columns, {self.asked} questions)"

    def gradient(
        self, weights: NDArray[np.float64], clip: float, share: Fraction, label: str
    ) -> tuple[NDArray[np.float64], float]:
        """Return the noisy sum over rows of gradients of ½‖z − zW‖², clipped to a length, and its deviation."""
        plan = GradientPlan(self._rows, tuple(tuple(row) for row in weights.tolist()), clip)
        plan.check_reach()
        exact = self._table.gradients(plan)
        sensitivity = gradient_squared_sensitivity(self._relation, plan)
        noisy, deviation = self._release(exact, sensitivity, share, label, plan)
        unit = 4.0**self._rows.bits
        return -noisy / unit, deviation / unit

    def curvature(self, direction: NDArray[np.float64], cap: float, share: Fraction, label: str) -> tuple[float, float]:
        """Return the noisy sum over rows of ‖z P‖², each cut off at the cap, and the deviation of its noise."""
        exact = np.array(self._table.curvature(self._rows, direction, cap), dtype=np.int64)
        sensitivity = curvature_squared_sensitivity(self._rows, cap)
        noisy, deviation = self._release(exact, sensitivity, share, label, (direction.tolist(), cap))
        unit = 2.0**self._rows.bits
        return float(noisy) / unit, deviation / unit

    def _release(
        self, exact: NDArray[np.int64], squared_sensitivity: Fraction, share: Fraction, label: str, asked: object
    ) -> tuple[NDArray[np.float64], float]:
        variance = self._gate.variance_for(squared_sensitivity, share)
        event = DiscreteGaussian(label, exact.size, squared_sensitivity, variance)
        noisy = self._gate.add_gaussian(exact.reshape(-1), event, asked)
        self.asked += 1
        return noisy.reshape(exact.shape).astype(np.float64), math.sqrt(variance)
