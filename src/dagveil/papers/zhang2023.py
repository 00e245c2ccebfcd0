"""Zhang, Xia, Ren, Guan and Zhou 2023 as published: PCD."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Question
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Order, Positive
from dagveil.papers.access import PublishedAccess
from dagveil.papers.common import describe_published
from dagveil.papers.publication import Publication
from dagveil.privacy.budget import Budget
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune
from dagveil.statistics.rcit import Rcit, RcitSettings, exact_rcit, feature_rcit


def published_hsic_bound(slots: int) -> float:
    """Return (12m − 11)/(m − 1)², equation (4): published for HSIC of columns. False if bandwidths depend on the rows.

    Examples
    --------
    >>> round(published_hsic_bound(1000), 4)
    0.012
    """
    return (12.0 * slots - 11.0) / (slots - 1.0) ** 2


def published_residual_hsic_bound(slots: int, penalty: float, bandwidth_u: float, bandwidth_v: float) -> float:
    """Return equation (3), published for HSIC of residuals. False: it forgets the changed record itself.

    Examples
    --------
    >>> round(published_residual_hsic_bound(1000, 1.0, 0.5, 0.5), 5)
    0.00205
    """
    exponent = -128.0 / (slots**2 * penalty**3)
    lost = -math.expm1(exponent / bandwidth_u**2) - math.expm1(exponent / bandwidth_v**2)
    return 2.0 * (slots**2 - slots) * lost / (slots - 1.0) ** 2


def published_residual_bound(slots: int, penalty: float) -> float:
    """Return 8/(mλ^1.5), published for the residual of every record. False for the changed record itself.

    Examples
    --------
    >>> published_residual_bound(400, 1.0)
    0.02
    """
    return 8.0 / (slots * penalty * math.sqrt(penalty))


def published_p_value_range(rcit: Rcit, slots: int, settings: RcitSettings) -> tuple[float, float]:
    """Return A and B of theorem 4: published as the range of a neighbour's p-value. False, as the bounds it uses are.

    Examples
    --------
    >>> answer = Rcit(0.5, 0.1, np.array([0.01, 0.05, 0.2, 0.3]), 0.5, 0.5, 0)
    >>> published_p_value_range(answer, 1000, RcitSettings())
    (0.5, 0.5)
    """
    if rcit.n_given:
        step = published_residual_hsic_bound(slots, settings.penalty, rcit.bandwidth_u, rcit.bandwidth_v)
    else:
        step = published_hsic_bound(slots)
    lowest = float(np.mean(rcit.score < rcit.permuted - 2.0 * step))
    highest = float(np.mean(rcit.score < rcit.permuted + 2.0 * step))
    return lowest, highest


PCD_FLAW = (
    "answers that one record is said not to turn are given without noise, and the noise of the others is scaled to the "
    "rows, by a bound that forgets the changed record's own residual"
)


class RcitForm(enum.Enum):
    """How the published test is computed."""

    EXACT = "exact"
    """By Gram matrices, as published."""

    FEATURES = "features"
    """By Fourier features: linear in the rows."""


class PcdPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    Parameters
    ----------
    level
        α.
    permutations
        Of HSIC.
    penalty
        λ of ridge regression.
    largest_order
        Size of the largest conditioning set; None goes on while there are neighbours.
    statistic
        exact, or features for speed.
    question_epsilon
        ε of every noisy answer. None takes the run's epsilon.
    """

    level: Level = 0.05
    permutations: Count = 100
    penalty: Positive = 1.0
    largest_order: Order | None = None
    statistic: RcitForm = RcitForm.EXACT
    question_epsilon: Positive | None = None


class PublishedDecision:
    """Lines 3-17 of Algorithm 1 as printed, for one question at a time.

    Parameters
    ----------
    rows
        Exact columns.
    epsilon
        Of each noisy answer.
    settings
        Constants of the publication.
    rng
        For noise and permutations.
    """

    def __init__(
        self,
        rows: Mapping[str, NDArray[np.float64]],
        epsilon: float,
        settings: PcdPublished,
        rng: np.random.Generator,
    ) -> None:
        self._rows = rows
        self._n_rows = len(next(iter(rows.values())))
        self._epsilon = epsilon
        self._level = settings.level
        self._test = exact_rcit if settings.statistic is RcitForm.EXACT else feature_rcit
        self._constants = RcitSettings(settings.penalty, settings.permutations)
        self._rng = rng
        self.noisy_answers = 0

    def is_independent(self, question: Question) -> bool:
        """Decide a question; most answers get no noise at all."""
        x, y, given = question
        conditions = np.stack([self._rows[name] for name in given], axis=1) if given else None
        rcit = self._test(self._rows[x], self._rows[y], conditions, self._constants, self._rng)
        lowest, highest = published_p_value_range(rcit, self._n_rows, self._constants)
        p_value = rcit.p_value
        if p_value > self._level:  # lines 4-11
            if lowest > self._level:
                return True
            sensitivity = p_value - lowest
        else:  # lines 12-17
            if highest < self._level:
                return False
            sensitivity = highest - p_value
        self.noisy_answers += 1
        noisy = p_value + self._rng.laplace(0.0, 4.0 * sensitivity / self._epsilon)
        return bool(noisy >= self._level + self._rng.laplace(0.0, 2.0 * sensitivity / self._epsilon))


def publish_pcd(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PcdPublished, progress: Progress
) -> Asked:
    """Run Algorithm 1 as printed."""
    columns = tuple(access.schema.columns)
    if access.n_rows < 2:
        raise MethodError("the published test needs at least 2 rows; give more rows")
    rows = dict(zip(columns, access.exact_rows(columns).T, strict=True))
    epsilon = settings.question_epsilon or float(budget.epsilon)
    decision = PublishedDecision(rows, epsilon, settings, access.rng)
    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, decision.is_independent, largest, knowledge, Traversal.ONCE, progress=progress)
    return describe_published(access.schema, sweep, knowledge, (decision.noisy_answers * epsilon, 0.0))


PUBLICATIONS = {
    "pcd": Publication(PcdPublished, publish_pcd, PCD_FLAW),
}
