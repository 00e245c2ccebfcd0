"""How time, memory and utility change as a synthetic table gets wider, and how time grows with each size."""

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from dagveil.data.column import Categorical, Column, Numeric
from dagveil.data.machine import peak_memory
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.evaluation.comparison import rate_skeleton
from dagveil.evidence.bundle import Evidence
from dagveil.forecast.synthetic import SyntheticLaw, SyntheticTable, make_synthetic
from dagveil.graphs.knowledge import NO_KNOWLEDGE
from dagveil.methods.measure import MOST_COLUMNS_AT_FULL_LEVEL, search_constants
from dagveil.privacy.noise.kind import NoiseKind
from dagveil.progress import Progress
from dagveil.runs.cost import describe_bytes, describe_seconds
from dagveil.runs.discovery import measure_source
from dagveil.runs.search import search_evidence
from dagveil.search.settings import SearchSettings
from dagveil_bench.plots import Line, Panel, draw_panels
from dagveil_bench.tables import write_table

EDGES_PER_COLUMN = 1.0  # of the synthetic graphs
REACH = 6.0  # declared bounds of numbers, in spreads
# methods that release evidence and then search it: by tests, by score, and by least squares without cycles
WIDE_METHODS = ("measure", "measure-ges", "measure-notears")
_BLOCK_ROWS = 4096
_RADIUS_PER_COLUMN = 4.0
_TRIES = 3
_LONG = 30.0


class WideKind(enum.Enum):
    """What the columns hold."""

    LEVELS = "levels"  # two to four levels each: pair tables are released
    NUMBERS = "numbers"  # numbers: second moments are released


@dataclass(frozen=True, slots=True)
class WideCase:
    """One synthetic table and one run of a method on it."""

    kind: WideKind
    columns: int
    rows: int
    epsilon: float
    seed: int
    method: str = WIDE_METHODS[0]


@dataclass(frozen=True, slots=True)
class WideStage:
    """What a run released in one stage."""

    name: str
    tables: int
    noise: float


@dataclass(frozen=True, slots=True)
class WideRun:
    """Processor seconds from rows to evidence and from there to the graph, peak memory, and rates.

    Memory has the synthetic table in it. Where columns are numbers, `moments` has the seconds of exact second moments,
    and `product` those of the same matrix products without anything else. `fixed_f1` is that of a search whose levels
    do not fall with the number of columns; None where they do not anyway.
    """

    case: WideCase
    measure: float
    search: float
    memory: float
    precision: float
    recall: float
    f1: float
    stages: tuple[WideStage, ...]
    moments: float | None = None
    product: float | None = None
    fixed_f1: float | None = None


def wide_schema(kind: WideKind, columns: int, rows: int) -> Schema:
    """Declare so many columns."""
    declared: dict[str, Column] = {}
    for place in range(columns):
        if kind is WideKind.NUMBERS:
            declared[f"c{place}"] = Numeric(bounds=(-REACH, REACH), center=0.0, spread=1.0)
        else:
            levels = tuple(f"level {k}" for k in range(2 + place % 3))
            declared[f"c{place}"] = Categorical(levels, levels[0])
    return Schema(dataset="wide", reviewed=True, public=True, nominal_rows=rows, columns=declared)


def run_wide(cases: Sequence[WideCase], told: Progress) -> list[WideRun]:
    """Run each case in a process of its own. `told` is told before and after each case."""
    found = []
    told("runs", 0, len(cases))
    for done, case in enumerate(cases, start=1):
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            found.append(pool.submit(run_case, case).result())
        told("runs", done, len(cases))
    return found


def run_case(case: WideCase) -> WideRun:
    """Make up a table, run on it, and rate the graph."""
    small = replace(case, columns=5, rows=1000)
    search_evidence(_release(_make(small), small), SearchSettings(redraws=0))  # imports are not the run's
    made = _make(case)
    watch = [time.process_time()]
    evidence = _release(made, case)
    watch.append(time.process_time())
    found = search_evidence(evidence, SearchSettings(redraws=0))
    watch.append(time.process_time())
    rates = rate_skeleton(found.graph.cpdag, made.dag)
    moments, product = _time_moments(made) if case.kind is WideKind.NUMBERS else (None, None)
    return WideRun(
        case,
        watch[1] - watch[0],
        watch[2] - watch[1],
        peak_memory(),
        rates.precision,
        rates.recall,
        rates.f1,
        tuple(WideStage(stage.stage, stage.tables, stage.noise_sd) for stage in evidence.plan),
        moments,
        product,
        _rate_fixed(evidence, made),
    )


def _rate_fixed(evidence: Evidence, made: SyntheticTable) -> float | None:
    tests = evidence.independence()
    if tests is None or len(tests.columns) <= MOST_COLUMNS_AT_FULL_LEVEL:
        return None
    full = search_constants(tests)
    settings = SearchSettings(marginal_level=full.marginal_level, conditional_level=full.conditional_level, redraws=0)
    return rate_skeleton(search_evidence(evidence, settings).graph.cpdag, made.dag).f1


def _make(case: WideCase) -> SyntheticTable:
    schema = wide_schema(case.kind, case.columns, case.rows)
    return make_synthetic(
        schema, NO_KNOWLEDGE, SyntheticLaw(degree=EDGES_PER_COLUMN), case.rows, np.random.default_rng(case.seed)
    )


def _release(made: SyntheticTable, case: WideCase) -> Evidence:
    return measure_source(
        made.table, made.table.schema, case.epsilon, method=case.method, noise=NoiseKind.EXACT, ledger=None
    )


def _time_moments(made: SyntheticTable) -> tuple[float, float]:
    """Return seconds of the exact moments, and of multiplying as many blocks of the same size."""
    names = tuple(made.table.schema.columns)
    plan = _plan_moments(names)
    block = np.random.default_rng(1).standard_normal((len(names) + 1, _BLOCK_ROWS))

    def multiply() -> None:
        for first in range(0, made.table.n_rows, _BLOCK_ROWS):
            part = block[:, : min(_BLOCK_ROWS, made.table.n_rows - first)]
            part @ part.T

    moments = product = float("inf")
    # in turn, so that other work on the machine meets both
    for _ in range(_TRIES):
        moments = min(moments, time_once(lambda: made.table.outer_products(plan)))
        product = min(product, time_once(multiply))
        if moments + product > _LONG:
            break
    return moments, product


def _plan_moments(names: tuple[str, ...]) -> MomentPlan:
    width = len(names)
    return MomentPlan(names, (0.0,) * width, (1.0,) * width, _RADIUS_PER_COLUMN * width, 1.0, bits=10)


def time_once(run: Callable[[], object]) -> float:
    """Return processor seconds, and never nothing."""
    start = time.process_time()
    run()
    return max(time.process_time() - start, 1e-6)


def wide_page(runs: Sequence[WideRun], command: str) -> str:
    """Write what was found as a page."""
    methods = " and ".join(f"`{method}`" for method in dict.fromkeys(run.case.method for run in runs))
    parts = [
        "# Wide tables",
        f"{methods} on synthetic tables with {EDGES_PER_COLUMN:g} edge per column, one run each, exact noise, no "
        "redraws, rows held in memory. Time is processor time of one core; memory is the most that the process held, "
        "the table included. F1, precision and recall are those of the skeleton, with levels of tests that fall as "
        f"{MOST_COLUMNS_AT_FULL_LEVEL} / columns, and beside them F1 if they did not. Written by",
        f"    {command}",
    ]
    for kind, head in ((WideKind.LEVELS, "Columns with levels"), (WideKind.NUMBERS, "Numeric columns")):
        mine = [run for run in runs if run.case.kind is kind]
        if mine:
            parts += [f"## {head}", _table(mine, kind)]
            for method in dict.fromkeys(run.case.method for run in mine):
                parts += _fits([run for run in mine if run.case.method == method])
    return "\n\n".join(parts)


def _table(runs: Sequence[WideRun], kind: WideKind) -> str:
    heads = ["columns", "method", "rows", "ε", "rows to evidence", "search", "memory", "F1", "precision", "recall"]
    heads.append("F1 at fixed levels")
    heads += (
        ["stages: tables (noise)"] if kind is WideKind.LEVELS else ["moments alone, beside the bare product", "noise"]
    )
    lines = []
    for run in runs:
        cells = [f"{run.case.columns}", run.case.method, f"{run.case.rows}", f"{run.case.epsilon:g}"]
        cells += [describe_seconds(run.measure), describe_seconds(run.search), describe_bytes(run.memory)]
        cells += [f"{rate:.2f}" for rate in (run.f1, run.precision, run.recall)]
        cells.append("" if run.fixed_f1 is None else f"{run.fixed_f1:.2f}")
        if run.moments is not None and run.product is not None:
            beside = f"{describe_seconds(run.moments)}, {run.moments / run.product:.2f}"
            cells += [beside, f"{run.stages[-1].noise:.0f}"]
        else:
            cells.append("; ".join(f"{stage.name}: {stage.tables} ({stage.noise:.0f})" for stage in run.stages))
        lines.append(cells)
    return write_table(heads, lines)


def _fits(runs: Sequence[WideRun]) -> list[str]:
    """Say with which power of the number of columns one method's time grows, if there are sizes to tell it from."""
    sizes = [run.case.columns for run in runs]
    if len(set(sizes)) < 2 or len({run.case.rows for run in runs}) > 1:
        return []
    measure, search = (fit_power(sizes, [getattr(run, what) for run in runs]) for what in ("measure", "search"))
    told = f"rows to evidence grows as columns^{measure:.1f}, the search as columns^{search:.1f}."
    return [f"`{runs[0].case.method}`: {told}"]


def fit_power(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of the power of size that fits the seconds best, by least squares of the logarithms."""
    slope, _ = np.polyfit(np.log(np.asarray(sizes, dtype=float)), np.log(np.asarray(seconds, dtype=float)), 1)
    return float(slope)


EPSILON = 1.0  # budget of the runs


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
    """Time every stage at every size. The fastest of so many tries is reported; `told` is told after each size."""
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
    release = partial(
        measure_source, made, made.schema, EPSILON, noise=NoiseKind.EXACT, options={"plan": "pairs"}, ledger=None
    )
    found[GrowthStage.RELEASE] = _best(release, tries)
    evidence = release()
    found[GrowthStage.SEARCH] = _best(lambda: search_evidence(evidence, SearchSettings(redraws=0)), tries)
    if moments:
        numbers = make_synthetic(
            wide_schema(WideKind.NUMBERS, columns, rows), NO_KNOWLEDGE, law, rows, np.random.default_rng(2)
        ).table
        plan = _plan_moments(tuple(schema.columns))
        found[GrowthStage.MOMENTS] = _best(lambda: numbers.outer_products(plan), tries)
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
    fitted, timed = [], []
    for stage in GrowthStage:
        cells = [f"{fits[stage, other]:.2f}" if (stage, other) in fits else "" for other in Dimension]
        fitted.append((stage.value, *cells))
    for point in points:
        cells = [f"{point.seconds[stage] * 1e3:.1f} ms" if stage in point.seconds else "" for stage in GrowthStage]
        timed.append((f"{point.size} {point.dimension.value}", *cells))
    usual = ", ".join(f"{sizes.usual(other)} {other.value}" for other in Dimension)
    return "\n\n".join(
        [
            "# How time grows",
            f"Processor seconds of one core on synthetic tables, ε = {EPSILON:g}, exact noise, no redraws; what does "
            f"not change stays at {usual}. Counting starts from codes in memory; noise and search start from counted "
            "pairs. Written by",
            f"    {command}",
            "Fitted exponents:",
            write_table(("stage", *(dimension.value for dimension in Dimension)), fitted),
            write_table(("what changes", *(stage.value for stage in GrowthStage)), timed),
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
