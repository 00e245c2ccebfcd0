"""The method `lap-mech`: Laplace noise on the table of counts of all columns, once (Xu, Yuan and Wu 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import Asked, Level, Order, check_countable
from dagveil.methods.measure import measure_jointly
from dagveil.methods.measured import Measured
from dagveil.methods.method import COUNTED, TWO_COLUMNS, XU_2017, Method, SharpCase
from dagveil.methods.published import sum_logarithms, tell_published
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.progress import Progress
from dagveil.search.constraint.pc import prune

MOST_CELLS = 2**22
"""Cells of the joint table beyond which the method refuses: its evidence would take gigabytes."""

FLAW = "under replaced records its loss is twice what is stated, and floating-point Laplace noise gives records away"


class JointTests:
    """G tests of any axes of one table, each marginal table cut at 0 before its test.

    G² is made of sums of n ln n over a table and its margins. Those of a set of axes serve every pair in it.

    Parameters
    ----------
    joint
        Counts by all columns, noise included.

    Examples
    --------
    >>> round(JointTests(np.array([[30.0, 20.0], [20.0, 30.0]])).p_value(0, 1, []), 4)
    0.0448
    """

    def __init__(self, joint: NDArray[np.float64]) -> None:
        self._joint = joint
        self._known: dict[frozenset[int], dict[frozenset[int], float]] = {}

    def p_value(self, x: int, y: int, given: Sequence[int]) -> float:
        """Return the p-value of independence of two axes given others."""
        axes = frozenset((x, y, *given))
        if axes not in self._known:
            self._known[axes] = self._summarise(sorted(axes))
        sums = self._known[axes]
        whole, without_both = sums[frozenset()], sums[frozenset((x, y))]
        statistic = 2.0 * (whole - sums[frozenset((x,))] - sums[frozenset((y,))] + without_both)
        levels = self._joint.shape
        freedom = (levels[x] - 1) * (levels[y] - 1) * math.prod(levels[axis] for axis in given)
        return float(chdtrc(freedom, max(statistic, 0.0))) if freedom else 1.0

    def _summarise(self, axes: Sequence[int]) -> dict[frozenset[int], float]:
        """Return the sum of n ln n of a marginal table, and without any one or two of its axes."""
        others = tuple(axis for axis in range(self._joint.ndim) if axis not in axes)
        table = np.maximum(self._joint.sum(axis=others), 0.0)
        sums = {frozenset[int](): sum_logarithms(table)}
        for first, axis in enumerate(axes):
            margin = table.sum(axis=first)
            sums[frozenset((axis,))] = sum_logarithms(margin)
            for second in range(first + 1, len(axes)):
                sums[frozenset((axis, axes[second]))] = sum_logarithms(margin.sum(axis=second - 1))
        return sums


class LapMechSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The sound `lap-mech` has no settings of its own; those of the search apply."""


class LapMechPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the publication.

    Parameters
    ----------
    level
        Of the G test.
    largest_order
        Size of the largest conditioning set; None goes on while there are neighbours.
    """

    level: Level = 0.01
    largest_order: Order | None = None


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse a domain that does not fit, with its size."""
    check_countable(schema)
    knowledge.check(schema.columns)
    cells = math.prod(column.n_levels for column in schema.columns.values())
    if cells > MOST_CELLS:
        raise MethodError(
            f"lap-mech puts noise on every cell of the declared domain, which has {cells:.4g} cells; the limit is "
            f"{MOST_CELLS}. Leave columns out, group levels, or choose `measure`, which needs small tables only."
        )


def accounting(
    budget: Budget, schema: Schema, settings: LapMechSettings, knowledge: Knowledge = NO_KNOWLEDGE
) -> Filter:
    """One release of Laplace noise is cheapest by plain addition."""
    return PureFilter(budget)


def release(curator: Curator, knowledge: Knowledge, settings: LapMechSettings, progress: Progress) -> Measured:
    """Release the joint table."""
    return measure_jointly(curator, progress)


def publish(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: LapMechPublished, progress: Progress
) -> Asked:
    """Run the published method: floating-point noise, and the ordinary G test on what comes out."""
    columns = tuple(access.schema.columns)
    joint = access.exact_joint().astype(np.float64)
    joint += access.rng.laplace(0.0, 1.0 / float(budget.epsilon), joint.shape)
    place = {name: axis for axis, name in enumerate(columns)}
    tests = JointTests(joint)

    def is_independent(question: Question) -> bool:
        x, y, given = question
        return tests.p_value(place[x], place[y], [place[name] for name in given]) > settings.level

    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, is_independent, largest, knowledge, progress=progress)
    return tell_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))


METHOD = Method(
    name="lap-mech",
    title="Laplace noise on the table of all columns",
    paper=XU_2017,
    data=COUNTED + "; small domains",
    cost="one release",
    settings=LapMechSettings,
    accounting=accounting,
    check=check,
    release=release,
    published=LapMechPublished,
    publish=publish,
    flaw=FLAW,
    sharp=(SharpCase(TWO_COLUMNS),),
)
