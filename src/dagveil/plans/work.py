"""What a run or a plan will ask, how noisy the answers will be, and how large the work is, before any row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dagveil.data.schema import Schema
from dagveil.plans.plan_file import (
    Ask,
    AskFeatures,
    AskInteractions,
    AskMargins,
    AskMoments,
    MeasurementPlan,
    NoiseLaw,
    PlannedSite,
    count_cells,
    list_sets,
)
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.privacy.relation import Relation
from dagveil.runs.cost import Search, Work
from dagveil.statistics.contingency import (
    counts_sensitivity,
    counts_squared_sensitivity,
    interactions_squared_sensitivity,
    margins_squared_sensitivity,
)
from dagveil.statistics.features import feature_moments_squared_sensitivity
from dagveil.statistics.moments import moments_squared_sensitivity


@dataclass(frozen=True, slots=True)
class StageForecast:
    """One stage of a plan in numbers: what each site releases, and the deviation of the noise of all sites together."""

    stage: str
    share: Fraction
    tables: int
    cells: int
    site_noise: tuple[float, ...]

    @property
    def noise(self) -> float:
        """Deviation of the noise in the sum over sites."""
        return math.sqrt(sum(deviation**2 for deviation in self.site_noise))


def forecast_plan(plan: MeasurementPlan) -> tuple[StageForecast, ...]:
    """Tell what a plan asks, and how noisy its answers will be at each site."""
    stages = []
    for ask in plan.asks:
        noise = tuple(forecast_noise(ask, plan.schema, plan.noise, site) for site in plan.sites)
        tables = 1 if isinstance(ask, AskMoments | AskFeatures) else len(list_sets(ask))
        stages.append(StageForecast(ask.stage, ask.share, tables, count_cells(ask, plan.schema), noise))
    return tuple(stages)


def forecast_noise(ask: Ask, schema: Schema, noise: NoiseLaw, site: PlannedSite) -> float:
    """Return the deviation of the noise at one site: in rows for counts, in scaled units for moments."""
    relation = Relation(schema.relation)
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    amount = ask.share * noise.filter(site.budget).total
    if noise is NoiseLaw.LAPLACE:
        return math.sqrt(laplace_variance(counts_sensitivity(relation, len(list_sets(ask))) / amount))
    if isinstance(ask, AskMoments):
        return math.sqrt(moments_squared_sensitivity(relation, ask.rows) / amount) / 4.0**ask.rows.bits
    if isinstance(ask, AskFeatures):
        return math.sqrt(feature_moments_squared_sensitivity(relation, ask.rows) / amount) / 4.0**ask.rows.bits
    if isinstance(ask, AskInteractions):
        return math.sqrt(interactions_squared_sensitivity(relation, ask.pairs, levels) / amount)
    if isinstance(ask, AskMargins):
        return math.sqrt(margins_squared_sensitivity(relation, [levels[name] for name in ask.columns]) / amount)
    return math.sqrt(counts_squared_sensitivity(relation, len(ask.sets)) / amount)


def work_at_site(plan: MeasurementPlan, site: PlannedSite, noise: NoiseKind, *, held: bool = False) -> Work:
    """Return the size of one site's run: it reads, counts and draws; the search is someone else's."""
    return _plan_work(plan, site.nominal_rows, 0, noise, held=held)


def work_of_search(plan: MeasurementPlan, redraws: int) -> Work:
    """Return the size of the search over the evidence of all sites: no rows."""
    return _plan_work(plan, 0, redraws, NoiseKind.OPENDP, held=True)


def _plan_work(plan: MeasurementPlan, rows: int, redraws: int, noise: NoiseKind, *, held: bool) -> Work:
    counted: list[tuple[str, ...]] = []
    features = 0
    for ask in plan.asks:
        if isinstance(ask, AskMoments | AskFeatures):
            features = 1 + len(ask.rows.columns) * (ask.rows.degree if isinstance(ask, AskFeatures) else 1)
        else:
            counted += list_sets(ask)
    cells = sum(count_cells(ask, plan.schema) for ask in plan.asks)
    search = Search.MATRIX if features else _table_search(counted, plan.noise is NoiseLaw.LAPLACE)
    return Work(plan.schema, rows, counted, max(len(counted), 1), cells, features, search, redraws, noise, held)


def _table_search(counted: Sequence[tuple[str, ...]], joint: bool) -> Search:
    if joint:
        return Search.JOINT
    return Search.TRIPLES if max(map(len, counted)) > 2 else Search.PAIRS
