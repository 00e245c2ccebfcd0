"""Sums of clipped per-record gradients, and how far one record can move them (docs/proofs/gradients.md)."""

from __future__ import annotations

import math
from fractions import Fraction

from dagveil.data.gradients import GradientPlan
from dagveil.data.moments import MomentPlan
from dagveil.privacy.relation import Relation


def gradient_squared_sensitivity(relation: Relation, plan: GradientPlan) -> Fraction:
    """Return the squared L2 sensitivity of the integer sum of clipped gradients.

    A record adds an outer product u vᵀ of length ‖u‖‖v‖, at most the cap K. Replacing it moves the sum by at most 2K.
    """
    cap = plan.cap()
    return Fraction(cap**2 if relation is Relation.ADD_REMOVE else (2 * cap) ** 2)


def curvature_squared_sensitivity(plan: MomentPlan, cap: float) -> Fraction:
    """Return the squared sensitivity of the integer sum of clipped curvatures, under either relation.

    A record adds an integer between 0 and ⌊2**bits · cap⌋; replacing it moves the sum by no more than that either.
    """
    return Fraction(math.floor(Fraction(cap) * (1 << plan.bits)) ** 2)
