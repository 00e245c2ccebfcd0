"""Sensitivity of sums of outer products of capped rows, of their features, and of clipped gradients."""

import math
from fractions import Fraction

from dagveil.data.gradients import GradientPlan
from dagveil.data.mixed import MixedPairs
from dagveil.data.moments import MomentPlan, OuterProducts
from dagveil.privacy.budget import Relation


def moments_squared_sensitivity(relation: Relation, query: OuterProducts) -> Fraction:
    """Return the weighted squared sensitivity of the upper triangle of Σ q qᵀ, where q is a function of one record.

    Diagonal entries get noise of twice the variance, so they weigh half: Σ_{i<j} M_ij² + ½ Σ M_ii² = ½ ‖M‖² for the
    symmetric change M. One record more is M = q qᵀ with ‖M‖ = ‖q‖² ≤ c; one record replaced is M = q qᵀ − q′ q′ᵀ with
    ‖M‖² = ‖q‖⁴ + ‖q′‖⁴ − 2 (q·q′)² ≤ 2 c².
    """
    cap = query.rows.norm_squared_bound()
    return Fraction(cap**2, 2 if relation is Relation.ADD_REMOVE else 1)


def pair_moments_squared_sensitivity(relation: Relation, query: MixedPairs) -> Fraction:
    """Return the squared sensitivity of the blocks of chosen pairs, each entry once.

    A record adds a vector whose squared length is Σ ‖z_i‖²‖z_j‖² over the pairs, at most B². Replacing it moves the sum
    by at most twice the length.
    """
    bound = query.squared_bound()
    return Fraction(bound if relation is Relation.ADD_REMOVE else 4 * bound)


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
