"""The method `measure-notears`: a linear model without cycles, from one matrix of second moments.

Its `paper` calibration is the published NOTEARS: exact moments, no noise, no privacy.
"""

from __future__ import annotations

import enum
from fractions import Fraction

import msgspec
import numpy as np

from dagveil.curator import Curator, PublishedAccess
from dagveil.data.column import LevelColumn, Numeric
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.evidence.moments import NoisyCovariance
from dagveil.graphs.dag import Dag
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import Asked, NotNegative
from dagveil.methods.measure import ROUND_SEARCH, check_measurable, release_rows
from dagveil.methods.measure_moments import measure_moments
from dagveil.methods.measured import Measured
from dagveil.methods.method import TWO_NUMBERS, ZHENG_2018, Method, SharpCase
from dagveil.methods.noleaks import BITS, read_graph, row_plan
from dagveil.methods.scores import LEVELS_SHARE, read_shares, release_levels, scale_levels
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian
from dagveil.privacy.filter import Filter, tightest_filter
from dagveil.progress import Progress
from dagveil.search.score.acyclicity import Acyclicity
from dagveil.search.score.linear import find_linear_dag
from dagveil.search.score.notears import NotearsSettings, find_weights, forbidden_entries
from dagveil.search.settings import SearchRule

WHOLE_RADIUS = 100.0
"""Squared radius per column, in squared spreads, within which hardly any row is shrunk."""

LEVEL_WIDTH = 1.6
"""Spread of a column with levels, in deviations of its scores: rows of levels are shrunk less, since shrinking them
joins independent columns."""

LEVEL_REACH = 2.0
"""No level lies farther from the centre than this many spreads: a rare level would shrink the rest of its row."""

SMALLEST_VARIANCE = 1e-9
"""Added to the variances of exact columns: one that never changes has none."""

NOT_PRIVATE = "it adds no noise: it is the twin without privacy, for comparison"


class MeasureNotearsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`measure-notears` has no settings of its own: penalty and threshold follow from the known noise."""


class Rule(enum.Enum):
    """Where the penalty and the threshold of exact NOTEARS come from."""

    PUBLISHED = "published"
    """The settings `penalty` and `threshold`, in the units of the data."""

    NOISE = "noise"
    """The search of the sound method, told that there is no noise: its ceiling."""


class ExactNotearsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of NOTEARS without noise.

    Parameters
    ----------
    penalty
        λ of the ℓ₁ penalty.
    threshold
        Smallest weight that counts as an edge.
    acyclicity
        How cycles are kept out: exponential, as published, or log-determinant, which is faster.
    rule
        Published takes penalty and threshold as they are; noise takes the whole search of the sound method at no noise,
        and reads none of the other settings.
    """

    penalty: NotNegative = 0.1
    threshold: NotNegative = 0.3
    acyclicity: Acyclicity = Acyclicity.LOG_DETERMINANT
    rule: Rule = Rule.PUBLISHED


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse what a linear model cannot take."""
    check_measurable(schema, knowledge)


def accounting(
    budget: Budget, schema: Schema, settings: MeasureNotearsSettings, knowledge: Knowledge = NO_KNOWLEDGE
) -> Filter:
    """Gaussian noise only."""
    return tightest_filter(budget, [DiscreteGaussian])


def release(curator: Curator, knowledge: Knowledge, settings: MeasureNotearsSettings, progress: Progress) -> Measured:
    """Release the moments of all columns, levels by their scores."""
    schema = curator.schema
    rows, released, plan = release_rows(curator)
    share = 1 - sum((Fraction(stage.share).limit_denominator(1000) for stage in plan), Fraction(0))
    levels = {}
    tables = release_levels(curator, LEVELS_SHARE)
    for table in tables:
        column = schema.columns[table.columns[0]]
        if not isinstance(column, Numeric):
            levels[table.columns[0]] = widen_levels(column, *scale_levels(column, read_shares(table)))
    if tables:
        share -= LEVELS_SHARE
        why = "columns with levels are centred and scaled by them"
        cells = sum(len(table.values) for table in tables)
        deviation = tables[0].count_variance ** 0.5
        plan.append(Stage("one-way tables", len(tables), cells, float(LEVELS_SHARE), deviation, why))
    measured = measure_moments(curator, knowledge, rows, share, ROUND_SEARCH, progress, levels)
    findings = measured.findings
    if levels:
        findings = (*findings, "Columns with levels took part by public scores: 0, 1, 2, … where none are declared.")
    return Measured((*released, *tables, *measured.releases), (*plan, *measured.plan), findings)


def widen_levels(column: LevelColumn, center: float, spread: float) -> tuple[float, float]:
    """Return the centre and the spread by which scores of levels enter moments.

    Examples
    --------
    >>> from dagveil.data.column import Boolean
    >>> widen_levels(Boolean(outside="false"), 0.5, 0.5), widen_levels(Boolean(outside="false"), 0.04, 0.2)
    ((0.5, 0.8), (0.04, 0.48))
    """
    reach = max(abs(number - center) for number in column.numbers)
    return center, max(LEVEL_WIDTH * spread, reach / LEVEL_REACH)


def publish(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: ExactNotearsSettings, progress: Progress
) -> Asked:
    """Run linear NOTEARS on the exact moments."""
    schema = access.schema
    columns = tuple(schema.columns)
    levels = {
        name: access.exact_table((name,)) / max(access.n_rows, 1)
        for name, column in schema.columns.items()
        if not isinstance(column, Numeric)
    }
    plan = row_plan(schema, levels, WHOLE_RADIUS)
    moments = access.exact_moments(plan).astype(np.float64) / 4.0**BITS
    n = max(moments[0, 0], 1.0)
    mean = moments[0, 1:] / n
    scaled = moments[1:, 1:] / n - np.outer(mean, mean)
    spreads = np.array(plan.spreads)
    forbidden = forbidden_entries(columns, knowledge)
    progress("optimising", 0, 1)
    if settings.rule is Rule.NOISE:
        matrix = scaled + SMALLEST_VARIANCE * np.eye(len(columns))
        noisy = NoisyCovariance(columns, matrix, 0.0, float(n), 0.0, np.zeros(len(columns)))
        unitless = np.array([name in levels for name in columns], dtype=np.bool_)
        place = {name: position for position, name in enumerate(columns)}
        required = [(place[cause], place[effect]) for cause, effect in sorted(knowledge.required)]
        edges = find_linear_dag(noisy, np.where(unitless, 1.0, spreads), unitless, forbidden, required)
        graph = Dag(columns, frozenset((columns[i], columns[j]) for i, j in edges)).cpdag()
        progress("optimising", 1, 1)
        return Asked(knowledge.orient(graph), (), ("The rows were read once, without noise.",), 1)
    # in the units of the data, as published
    covariance = scaled * np.outer(spreads, spreads)
    chosen = NotearsSettings(penalty=settings.penalty, acyclicity=settings.acyclicity)
    weights = find_weights(covariance, chosen, forbidden)
    progress("optimising", 1, 1)
    graph = read_graph(columns, weights.matrix, settings.threshold, knowledge)
    told = f"{weights.rounds} rounds and {weights.evaluations} evaluations; the rows were read once, without noise."
    return Asked(graph, (), (told,), 1)


METHOD = Method(
    name="measure-notears",
    title="noisy second moments once, then a linear model without cycles",
    paper=ZHENG_2018,
    data="numeric, and levels by their scores",
    cost="one to three releases",
    settings=MeasureNotearsSettings,
    accounting=accounting,
    check=check,
    release=release,
    published=ExactNotearsSettings,
    publish=publish,
    flaw=NOT_PRIVATE,
    search=SearchRule.NOTEARS,
    sharp=(SharpCase(TWO_NUMBERS),),
)
