"""The method `priv-pc-star`: noise on the covariance matrix, once (Xu, Yuan and Wu 2017, there "PrivPC*")."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.column import Numeric
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import Asked, Level, Order
from dagveil.methods.measure import check_measurable, is_numeric, measure
from dagveil.methods.measured import Measured
from dagveil.methods.method import TWO_NUMBERS, XU_2017, Method, SharpCase
from dagveil.methods.published import tell_published
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian
from dagveil.privacy.filter import Filter, tightest_filter
from dagveil.progress import Progress
from dagveil.search.constraint.pc import prune
from dagveil.statistics.kendall import normal_quantile

FLAW = (
    "the stated sensitivity assumes that no record is larger than a typical one, but normal records are unbounded: of "
    "ten independent columns every sixth record exceeds it"
)

FIXED_POINT_BITS = 8
"""Fixed-point bits with which the exact moments of the published version are summed."""


class PrivPcStarSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The sound `priv-pc-star` has no settings of its own; those of the search apply."""


class PrivPcStarPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    Parameters
    ----------
    level
        Of Fisher's z test.
    largest_order
        Size of the largest conditioning set; None goes on while there are neighbours.
    """

    level: Level = 0.01
    largest_order: Order | None = None


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse tables with columns that are not numeric."""
    check_measurable(schema, knowledge)
    if not is_numeric(schema):
        raise MethodError(
            "priv-pc-star needs numeric columns without bins only; choose `measure`, or leave the other columns out"
        )


def accounting(
    budget: Budget, schema: Schema, settings: PrivPcStarSettings, knowledge: Knowledge = NO_KNOWLEDGE
) -> Filter:
    """Gaussian noise only."""
    return tightest_filter(budget, [DiscreteGaussian])


def release(curator: Curator, knowledge: Knowledge, settings: PrivPcStarSettings, progress: Progress) -> Measured:
    """Release the moments of clipped rows: repaired, PrivPC* is what `measure` does with numeric columns."""
    return measure(curator, knowledge, progress)


def published_sensitivity(n_columns: int, n_rows: int) -> float:
    """Return p(p + 1)/(2(n − 1)), the stated L1 sensitivity of the covariance matrix. False for large records."""
    return n_columns * (n_columns + 1) / (2.0 * (n_rows - 1))


def publish(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PrivPcStarPublished, progress: Progress
) -> Asked:
    """Run the published method on standardised columns."""
    columns = tuple(access.schema.columns)
    n = access.n_rows
    covariance = _correlations(access)
    noise = access.rng.laplace(0.0, published_sensitivity(len(columns), n) / float(budget.epsilon), covariance.shape)
    covariance += np.tril(noise) + np.tril(noise, -1).T
    place = {name: i for i, name in enumerate(columns)}

    def is_independent(question: Question) -> bool:
        x, y, given = question
        chosen = [place[name] for name in (x, y, *given)]
        inverse = np.linalg.pinv(covariance[np.ix_(chosen, chosen)])
        scale = inverse[0, 0] * inverse[1, 1]
        # noise can leave a matrix that is no covariance: its partial correlation then means nothing, as published
        partial = -inverse[0, 1] / math.sqrt(scale) if scale > 0.0 else 0.0
        partial = min(max(partial, -0.999999), 0.999999)
        return math.sqrt(max(n - len(given) - 3, 1)) * abs(math.atanh(partial)) <= normal_quantile(settings.level)

    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, is_independent, largest, knowledge, progress=progress)
    return tell_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


def _correlations(access: PublishedAccess) -> NDArray[np.float64]:
    """Return the exact correlation matrix; rows are not clipped beyond their declared bounds."""
    columns = {name: column for name, column in access.schema.columns.items() if isinstance(column, Numeric)}
    centers = tuple((column.bounds[0] + column.bounds[1]) / 2.0 for column in columns.values())
    # in units of a 64th of the bounds' width, a ball of radius 32 per column holds everything
    spreads = tuple((column.bounds[1] - column.bounds[0]) / 64.0 for column in columns.values())
    plan = MomentPlan(tuple(columns), centers, spreads, 32.0**2 * len(columns), 1.0, FIXED_POINT_BITS)
    moments = access.exact_moments(plan).astype(np.float64) / 4.0**FIXED_POINT_BITS
    n = moments[0, 0]
    mean = moments[0, 1:] / n
    covariance = moments[1:, 1:] / n - np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    return np.asarray(covariance / np.outer(deviation, deviation))


METHOD = Method(
    name="priv-pc-star",
    title="noise on the covariance matrix",
    paper=XU_2017,
    data="numeric",
    cost="one or two releases",
    settings=PrivPcStarSettings,
    accounting=accounting,
    check=check,
    release=release,
    published=PrivPcStarPublished,
    publish=publish,
    flaw=FLAW,
    sharp=(SharpCase(TWO_NUMBERS),),
)
