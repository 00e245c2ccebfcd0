"""The method `measure-ges`: the releases of `measure`, searched by a noise-aware score.

A score has no rule for numbers beside levels, so numbers are counted in their bins there.
"""

from dataclasses import replace
from functools import partial

from dagveil.methods import measure
from dagveil.search.settings import SearchRule

METHOD = replace(
    measure.METHOD,
    name="measure-ges",
    title="the same releases, searched by a noise-aware score",
    search=SearchRule.SCORE,
    accounting=partial(measure.accounting, counted=True),
    release=partial(measure.measure, counted=True),
)
