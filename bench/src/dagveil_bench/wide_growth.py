"""With which power of rows, columns and levels the stages of a run grow, fitted to measured times."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from dagveil.data.column import Categorical
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.forecast.synthetic import SyntheticLaw, make_synthetic
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.plots import Line, Panel, draw_panels
from dagveil_bench.wide import EDGES_PER_COLUMN, WideKind, fit_power, time_once, wide_schema

EPSILON = 1.0
"""Budget of the runs."""


class Dimension(enum.Enum):
    """What changes while the rest stays."""

    ROWS = "rows"
    COLUMNS = "columns"
    LEVELS = "levels"


class GrowthStage(enum.Enum):
    """What is timed."""

    COUNT = "count all pairs"
    MOMENTS = "second moments"
    RELEASE = "noise, choice, later tables"
    SEARCH = "search"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes to try; while one dimension changes, the others stay at their second size."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    levels: tuple[int, ...]

    def of(self, dimension: Dimension) -> tuple[int, ...]:
        """Return the sizes of a dimension."""
        return {Dimension.ROWS: self.rows, Dimension.COLUMNS: self.columns, Dimension.LEVELS: self.levels}[dimension]

    def usual(self, dimension: Dimension) -> int:
        """Return the size at which a dimension stays."""
        sizes = self.of(dimension)
        return sizes[min(1, len(sizes) - 1)]


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """Processor seconds of each stage at one size of one dimension."""

    dimension: Dimension
    size: int
    seconds: Mapping[GrowthStage, float]


def measure_growth(sizes: Sizes, tries: int, told: Progress) -> list[GrowthPoint]:
    """Time every stage at every size.

    Parameters
    ----------
    sizes
        What to try.
    tries
        Number of timing attempts; the fastest is reported.
    told
        Told after each size.
    """
    wanted = [(dimension, size) for dimension in Dimension for size in sizes.of(dimension)]
    points = []
    _time_stages(200, 5, 2, 1, moments=True)  # imports are nobody's
    for done, (dimension, size) in enumerate(wanted, start=1):
        rows, columns, levels = (
            size if other is dimension else sizes.usual(other)
            for other in (Dimension.ROWS, Dimension.COLUMNS, Dimension.LEVELS)
        )
        timed = _time_stages(rows, columns, levels, tries, moments=dimension is not Dimension.LEVELS)
        points.append(GrowthPoint(dimension, size, timed))
        told("sizes", done, len(wanted))
    return points


def _time_stages(rows: int, columns: int, levels: int, tries: int, *, moments: bool) -> dict[GrowthStage, float]:
    texts = tuple(f"level {k}" for k in range(levels))
    schema = Schema(
        dataset="growth",
        reviewed=True,
        public=True,
        nominal_rows=rows,
        columns={f"c{place}": Categorical(texts, texts[0]) for place in range(columns)},
    )
    law = SyntheticLaw(degree=min(EDGES_PER_COLUMN, (columns - 1) / 4))
    pairs = list(combinations(schema.columns, 2))
    # a table keeps what it has counted, so every try gets a fresh one
    fresh = [make_synthetic(schema, NO_KNOWLEDGE, law, rows, np.random.default_rng(1)).table for _ in range(tries)]
    tables = iter(fresh)
    found = {GrowthStage.COUNT: _best(lambda: next(tables).counts_many(pairs), tries)}
    made = fresh[0]
    found[GrowthStage.RELEASE] = _best(
        lambda: measure_source(
            made, made.schema, EPSILON, noise=NoiseKind.EXACT, options={"plan": "tables"}, ledger=None
        ),
        tries,
    )
    evidence = measure_source(
        made, made.schema, EPSILON, noise=NoiseKind.EXACT, options={"plan": "tables"}, ledger=None
    )
    found[GrowthStage.SEARCH] = _best(lambda: search_evidence(evidence, SearchSettings(redraws=0)), tries)
    if moments:
        numbers = make_synthetic(
            wide_schema(WideKind.NUMBERS, columns, rows), NO_KNOWLEDGE, law, rows, np.random.default_rng(2)
        ).table
        plan = MomentPlan(tuple(schema.columns), (0.0,) * columns, (1.0,) * columns, 4.0 * columns, 1.0, bits=10)
        found[GrowthStage.MOMENTS] = _best(lambda: numbers.moments(plan), tries)
    return found


def _best(run: Callable[[], object], tries: int) -> float:
    """Return the processor seconds of the best try."""
    return min(time_once(run) for _ in range(tries))


def fit_growth(points: Sequence[GrowthPoint]) -> dict[tuple[GrowthStage, Dimension], float]:
    """Return the exponent of each stage in each dimension that has at least two sizes."""
    fits = {}
    for dimension in Dimension:
        for stage in GrowthStage:
            mine = [point for point in points if point.dimension is dimension and stage in point.seconds]
            if len({point.size for point in mine}) > 1:
                fits[stage, dimension] = fit_power(
                    [point.size for point in mine], [point.seconds[stage] for point in mine]
                )
    return fits


def growth_page(points: Sequence[GrowthPoint], sizes: Sizes, command: str) -> str:
    """Write times and exponents as a page."""
    fits = fit_growth(points)
    fitted = ["| stage | " + " | ".join(dimension.value for dimension in Dimension) + " |", "|---" * 4 + "|"]
    for stage in GrowthStage:
        cells = [f"{fits[stage, other]:.2f}" if (stage, other) in fits else "" for other in Dimension]
        fitted.append(f"| {stage.value} | {' | '.join(cells)} |")
    timed = ["| what changes | " + " | ".join(stage.value for stage in GrowthStage) + " |", "|---" * 5 + "|"]
    for point in points:
        cells = [f"{point.seconds[stage] * 1e3:.1f} ms" if stage in point.seconds else "" for stage in GrowthStage]
        timed.append(f"| {point.size} {point.dimension.value} | {' | '.join(cells)} |")
    usual = ", ".join(f"{sizes.usual(other)} {other.value}" for other in Dimension)
    return "\n\n".join(
        [
            "# How time grows",
            f"Processor seconds of one core on synthetic tables, ε = {EPSILON:g}, exact noise, no redraws; what does "
            f"not change stays at {usual}. Counting starts from codes in memory; noise and search start from counted "
            "pairs. Written by",
            f"    {command}",
            "Fitted exponents:",
            "\n".join(fitted),
            "\n".join(timed),
        ]
    )


def draw_growth(points: Sequence[GrowthPoint], path: str | Path) -> None:
    """Draw, for each dimension, how often the time of each stage has doubled as the size grew."""
    panels = []
    for dimension in Dimension:
        along = [point for point in points if point.dimension is dimension]
        lines = []
        for stage in GrowthStage:
            mine = [point for point in along if stage in point.seconds]
            heights = [float(np.log2(point.seconds[stage] / mine[0].seconds[stage])) for point in mine]
            lines.append(Line(stage.value, heights, places=[point.size / mine[0].size for point in mine]))
        panels.append(Panel(f"{dimension.value}, from {along[0].size} on", lines))
    tallest = max((height or 0.0 for panel in panels for line in panel.lines for height in line.heights), default=0.0)
    draw_panels(
        panels,
        (),
        "size, in multiples of the smallest",
        "doublings of the time",
        path,
        columns=3,
        limits=(-1.0, tallest + 0.5),
    )
