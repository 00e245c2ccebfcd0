"""The method `measure-ges`: the releases of `measure`, searched by a noise-aware score.

A score has no rule for numbers beside levels, so numbers are counted in their bins there.
"""

from __future__ import annotations

from dataclasses import replace

from dagveil.curator import Curator
from dagveil.data.schema import Schema
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure
from dagveil.methods.method import Measured
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Filter
from dagveil.progress import Progress
from dagveil.search.settings import SearchRule


def accounting(budget: Budget, schema: Schema, settings: measure.MeasureSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter as `measure` does for columns that are counted."""
    return measure.accounting(budget, schema, settings, knowledge, counted=True)


def release(curator: Curator, knowledge: Knowledge, settings: measure.MeasureSettings, progress: Progress) -> Measured:
    """Release what `measure` does, but tables of counts where numbers stand beside levels."""
    return measure.measure(curator, knowledge, progress, settings.plan, counted=True)


METHOD = replace(
    measure.METHOD,
    name="measure-ges",
    title="the same releases, searched by a noise-aware score",
    search=SearchRule.SCORE,
    accounting=accounting,
    release=release,
)
