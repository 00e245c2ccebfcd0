"""The method `measure`: release noisy sufficient statistics in a few rounds, then search as long as you like."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.evidence.moments import MomentEvidence
from dagveil.evidence.questions import Independence
from dagveil.evidence.triples import TripleEvidence
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.measure_moments import measure_moments
from dagveil.methods.measure_tables import measure_tables
from dagveil.methods.measured import Measured, Progress
from dagveil.privacy.release import Release
from dagveil.search.constraint.skeleton import RemovalOrder, SkeletonSettings

ROWS_SHARE = Fraction(1, 100)
"""Share of the budget that estimates the number of rows when the schema declares none."""

TABLE_SEARCH = SkeletonSettings()
"""Search constants for tables of counts."""

PAIRS_LEVEL = 1e-5
"""Conditional level where evidence comes from pairs alone."""

MOMENT_SEARCH = SkeletonSettings(marginal_level=0.003, conditional_level=0.01, largest_order=3)
"""Search constants for numeric columns: their marginal tests have one degree of freedom and more power."""


def is_numeric(schema: Schema) -> bool:
    """Tell whether the table is measured by moments: numeric columns only, none with declared bins."""
    return all(isinstance(column, Numeric) and column.bins is None for column in schema.columns.values())


def search_defaults(tests: Independence) -> SkeletonSettings:
    """Return the search constants that fit the evidence.

    Evidence from pairs alone means that noise would have drowned larger tables: then the weakest edge goes first. Main
    effects of larger sets leave some dependence behind, so an edge must stand out more to be kept.
    """
    if isinstance(tests, MomentEvidence):
        return MOMENT_SEARCH
    if isinstance(tests, TripleEvidence):
        return TABLE_SEARCH
    return replace(TABLE_SEARCH, conditional_level=PAIRS_LEVEL, removal_order=RemovalOrder.WEAKEST_EDGE)


def check_measurable(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse, before anything is reserved, what no run could do."""
    if len(schema.columns) < 2:
        raise MethodError(f"the schema has {len(schema.columns)} column; a causal graph needs at least 2")
    knowledge.check(schema.columns)


def measure(curator: Curator, knowledge: Knowledge, progress: Progress) -> Measured:
    """Release the evidence for one table.

    Parameters
    ----------
    curator
        The door to the rows.
    knowledge
        Pairs that it excludes are never asked about.
    progress
        Told about each round.
    """
    schema = curator.schema
    releases: list[Release] = []
    plan: list[Stage] = []
    share = Fraction(1)
    rows = schema.nominal_rows
    if rows is None:
        share -= ROWS_SHARE
        released = curator.count_rows(ROWS_SHARE)
        releases.append(released)
        rows = max(1, round(float(released.counts)))
        plan.append(
            Stage(
                "number of rows",
                1,
                1,
                float(ROWS_SHARE),
                released.count_variance**0.5,
                "the schema declares no nominal number of rows, so a small share estimated it",
            )
        )
    run = measure_moments if is_numeric(schema) else measure_tables
    measured = run(curator, knowledge, rows, share, TABLE_SEARCH, progress)
    return Measured((*releases, *measured.releases), (*plan, *measured.plan), measured.findings)
