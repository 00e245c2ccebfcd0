"""The method `lap-mech`: Laplace noise on the table of counts of all columns, once (Xu, Yuan and Wu 2017)."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import Asked, Level, Order, check_countable
from dagveil.methods.measure import measure_jointly
from dagveil.methods.measured import Measured, Progress
from dagveil.methods.published import g_p_value, tell_published
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import Filter, PureFilter
from dagveil.search.constraint.pc import prune

MOST_CELLS = 2**22
"""Cells of the joint table beyond which the method refuses: its evidence would take gigabytes."""

FLAW = "under replaced records its loss is twice what is stated, and floating-point Laplace noise gives records away"


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
    known: dict[Question, bool] = {}

    def is_independent(question: Question) -> bool:
        x, y, given = question
        question = (min(x, y), max(x, y), given)
        if question not in known:
            axes = [place[name] for name in (*given, *question[:2])]
            table = joint.sum(axis=tuple(axis for axis in range(joint.ndim) if axis not in axes))
            order = [sorted(axes).index(axis) for axis in axes]
            shaped = table.transpose(order).reshape(-1, joint.shape[axes[-2]], joint.shape[axes[-1]])
            known[question] = g_p_value(np.maximum(shaped, 0.0)) > settings.level
        return known[question]

    largest = len(columns) - 2 if settings.largest_order is None else settings.largest_order
    sweep = prune(columns, is_independent, largest, knowledge, progress=progress)
    return tell_published(access.schema, sweep, knowledge, (float(budget.epsilon), 0.0))
