"""Second moments of public features, and how far one record can move them (docs/proofs/features.md)."""

from __future__ import annotations

from fractions import Fraction

from dagveil.data.features import FeaturePlan
from dagveil.privacy.relation import Relation
from dagveil.statistics.moments import moments_squared_sensitivity


def feature_moments_squared_sensitivity(relation: Relation, plan: FeaturePlan) -> Fraction:
    """Return the weighted squared sensitivity of the upper triangle of Σ q qᵀ over rows of features.

    A record's integer vector is a function of that record, and no longer than the plan's cap c. So the bound is that of
    second moments: c²/2 if a record is added or removed, c² if it is replaced, with diagonal entries weighing half.

    Examples
    --------
    >>> from dagveil.data.features import Basis
    >>> plan = FeaturePlan(("x",), (0.0,), (1.0,), Basis.LEGENDRE, degree=2, radius_squared=3.0, constant=1.0, bits=0)
    >>> [int(feature_moments_squared_sensitivity(relation, plan)) for relation in Relation]
    [8, 16]
    """
    return moments_squared_sensitivity(relation, plan.rows)
