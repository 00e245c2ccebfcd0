"""Spirtes, Glymour and Scheines 2000: PC with exact tests, the yardstick of every paper here. It has no privacy."""

import enum
from collections.abc import Callable

import msgspec
import numpy as np
from scipy.special import chdtrc

from dagveil.curator import Question
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Level, Order, describe_sweep
from dagveil.methods.measure import is_numeric
from dagveil.papers.publication import Counts, Publication, PublishedAccess, Reading, g_p_value, prune_published
from dagveil.papers.xu2017 import exact_correlations, fisher_z_test
from dagveil.papers.zhang2023 import RcitSettings, exact_rcit
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress


class ExactTest(enum.Enum):
    """Tests of conditional independence, without noise."""

    G = "g"
    CHI_SQUARE = "chi-square"
    FISHER_Z = "fisher-z"
    RCIT = "rcit"


class PcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of PC without noise.

    - `test`: g or chi-square for columns with levels, fisher-z or rcit for numbers. None takes the first that fits.
    - `level`: Of the test.
    - `largest_order`: Size of the largest conditioning set; None goes on while there are neighbours.
    """

    test: ExactTest | None = None
    level: Level = 0.01
    largest_order: Order | None = None


def chi_square_p_value(tables: Counts) -> float:
    """Return the p-value of Pearson's χ², summed over strata, with the degrees of freedom of the G test."""
    observed = tables.astype(np.float64)
    rows = np.maximum(observed.sum(axis=(1, 2)), 1.0)[:, None, None]
    expected = observed.sum(axis=2, keepdims=True) * observed.sum(axis=1, keepdims=True) / rows
    statistic = float(((observed - expected) ** 2 / np.where(expected > 0.0, expected, 1.0)).sum())
    strata, x_levels, y_levels = tables.shape
    freedom = strata * (x_levels - 1) * (y_levels - 1)
    return float(chdtrc(freedom, statistic)) if freedom else 1.0


def run_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PcSettings, progress: Progress
) -> Asked:
    """Run PC on the rows themselves."""
    test = settings.test or _fitting_tests(access.schema)[0]
    decide = _decide(access, test, settings.level)
    sweep = prune_published(access, decide, knowledge, progress, settings.largest_order)
    graph, findings = describe_sweep(tuple(access.schema.columns), sweep, knowledge)
    told = f"Exact {test.value} tests at {settings.level:g}: the rows were read without noise."
    return Asked(graph, (), (*findings, told), sweep.questions)


def _fitting_tests(schema: Schema) -> tuple[ExactTest, ExactTest]:
    return (ExactTest.FISHER_Z, ExactTest.RCIT) if is_numeric(schema) else (ExactTest.G, ExactTest.CHI_SQUARE)


def check(schema: Schema, settings: PcSettings) -> None:
    """Refuse a test that does not take the columns."""
    fitting = _fitting_tests(schema)
    if settings.test is not None and settings.test not in fitting:
        words = " or ".join(test.value for test in fitting)
        raise MethodError(f"the test {settings.test.value!r} does not take these columns; set test={words}")


def _decide(access: PublishedAccess, test: ExactTest, level: float) -> Callable[[Question], bool]:
    columns = tuple(access.schema.columns)
    if test is ExactTest.FISHER_Z:
        return fisher_z_test(exact_correlations(access), columns, access.n_rows, level)
    if test is ExactTest.RCIT:
        rows = dict(zip(columns, access.exact_rows(columns).T, strict=True))

        def is_independent(question: Question) -> bool:
            x, y, given = question
            others = np.stack([rows[name] for name in given], axis=1) if given else None
            return exact_rcit(rows[x], rows[y], others, RcitSettings(), access.rng).p_value > level

        return is_independent
    p_value = g_p_value if test is ExactTest.G else chi_square_p_value
    return lambda question: p_value(access.exact_counts(*question)) > level


PUBLICATIONS = {
    "pc": Publication(
        {Calibration.NONE: Reading(PcSettings, run_pc, "it adds no noise: it is for data that anyone may see", check)},
        "it adds no noise",
    )
}
