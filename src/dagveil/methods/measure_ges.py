"""The method `measure-ges`: the releases of `measure`, searched by a noise-aware score."""

from __future__ import annotations

from dataclasses import replace

from dagveil.methods import measure
from dagveil.search.settings import SearchRule

METHOD = replace(
    measure.METHOD,
    name="measure-ges",
    title="the same releases, searched by a noise-aware score",
    search=SearchRule.SCORE,
)
