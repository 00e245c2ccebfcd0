"""What a publication does under the name of a method, with exact access to rows, and no guarantee.

The curator writes an `Unbounded` event to the ledger before it hands the rows over, and sound
methods cannot import this room. What the published programs share stands here too: their p-values, their composition
and their largest order.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, xlogy

from dagveil.curator import Question
from dagveil.data.column import Column, Numeric
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.data.table import Table
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, describe_sweep
from dagveil.methods.method import Method, read_options
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Sweep, Traversal, prune
from dagveil.statistics.kendall import count_concordance
from dagveil.statistics.statistic import Tables

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
PUBLISHED_KENDALL_CONSTANT: Final = 4.5
"""Priv-PC, theorem 3: sensitivity of the conditional statistic times √n. False: 5.25 and 6 in one block, no bound of
this form with small blocks, because the published divisor depends on the rows."""


def published_scores(tables: Tables, *, as_printed: bool = False) -> Floats:
    """Return the published |z| = |Σ wτ|/√Σw for each table: exact, and without a bounded sensitivity.

    Blocks with at most two rows, in which x or y is constant, or whose variance the program takes for negative, are
    left out of both sums, as the program does; definition 6 of Priv-PC keeps all. Without a block left, 0.
    """
    top, weight = _published_sums(tables, as_printed=as_printed)
    # a kept block weighs at least 1, so the floor touches only tables without one
    return np.asarray(np.abs(top) / np.sqrt(np.maximum(weight, 1.0)))


def published_p_values(tables: Tables) -> Floats:
    """Return the published one-sided p-values sf(|z|), at most ½: exact, and not to be released as they are.

    Without a block left the published programs divide zero by zero, and what comes out never passes for independent:
    0 stands for it here.
    """
    top, weight = _published_sums(tables)
    scores = np.abs(top) / np.sqrt(np.maximum(weight, 1.0))
    return np.asarray(np.where(weight > 0.0, ndtr(-scores), 0.0))


def _published_sums(tables: Tables, *, as_printed: bool = False) -> tuple[Floats, Floats]:
    """Return Σ wτ and Σ w over the blocks that are kept."""
    tables = np.asarray(tables, dtype=np.int64)
    x_counts, y_counts = tables.sum(axis=-1), tables.sum(axis=-2)
    rows = x_counts.sum(axis=-1)
    concordance = count_concordance(tables)
    kept = (rows > 2) & (x_counts.max(axis=-1) < rows) & (y_counts.max(axis=-1) < rows)
    if tables.shape[-3] > 1:
        variance = _program_variance(x_counts, y_counts)
        kept &= (variance > 0.0) | ((variance == 0.0) & (concordance != 0))
    slope = 9.0 / (2.0 * rows + 5.0) * (kept | as_printed)
    return (slope * concordance).sum(axis=-1), (0.5 * slope * rows * (rows - 1.0)).sum(axis=-1)


def _program_variance(x_counts: Counts, y_counts: Counts) -> Floats:
    """Return the variance of C − D with ties as the program has it (src/Kendalltaua.py).

    Its middle term is a quarter of the right one, so the variance can be negative, and the program drops such blocks.
    """

    def sums(counts: Counts) -> tuple[Floats, ...]:
        c = counts.astype(np.float64)
        pairs = c * (c - 1.0)
        return (pairs / 2.0).sum(axis=-1), (pairs * (c - 2.0)).sum(axis=-1), (pairs * (2.0 * c + 5.0)).sum(axis=-1)

    n = x_counts.sum(axis=-1).astype(np.float64)
    (x_ties, x_triples, x_sum), (y_ties, y_triples, y_sum) = sums(x_counts), sums(y_counts)
    pairs = np.maximum(n * (n - 1.0), 1.0)
    whole = (pairs * (2.0 * n + 5.0) - x_sum - y_sum) / 18.0
    last = x_triples * y_triples / (9.0 * pairs * np.maximum(n - 2.0, 1.0))
    return np.asarray(whole + x_ties * y_ties / (2.0 * pairs) + last)


def published_p_value_sensitivity(n_rows: int) -> float:
    """Return Φ(6/√n) − ½, Priv-PC's sensitivity of the p-value. False: blocks switch in and out, whatever n is."""
    return float(ndtr(6.0 / math.sqrt(n_rows))) - 0.5


def g_test(tables: Counts) -> tuple[float, int]:
    """Return G² and its degrees of freedom (x − 1)(y − 1) · strata, empty levels included."""
    observed = tables.astype(np.float64)
    x_margin, y_margin, both = (sum_logarithms(observed.sum(axis=axis)) for axis in (1, 2, (1, 2)))
    statistic = 2.0 * float(xlogy(observed, observed).sum() - x_margin - y_margin + both)
    strata, x_levels, y_levels = tables.shape
    return max(statistic, 0.0), strata * (x_levels - 1) * (y_levels - 1)


def g_p_value(tables: Counts) -> float:
    """Return the p-value of the G test."""
    statistic, freedom = g_test(tables)
    return float(chdtrc(freedom, statistic)) if freedom else 1.0


def advanced_composition(epsilon: float, times: int, delta: float) -> float:
    """Return ε√(2k ln(1/δ)) + kε(e^ε − 1), what Priv-PC and its program report in parts or as a whole."""
    if times == 0:
        return 0.0
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return epsilon * math.sqrt(2.0 * times * math.log(1.0 / delta)) + times * epsilon * growth


def near_total(budget: Budget, schema: Schema) -> float:
    """Return an epsilon per round, ε/(2d), whose total by advanced composition is near the run's."""
    return float(budget.epsilon) / (2.0 * len(schema.columns))


def largest_published_order(n_rows: int, n_columns: int) -> int:
    """Return min(⌊log₂ n⌋ − 5, d − 2), Priv-PC's largest order."""
    return max(0, min(int(math.log2(max(1, n_rows))) - 5, n_columns - 2))


def prune_published(
    access: PublishedAccess,
    is_independent: Callable[[Question], bool],
    knowledge: Knowledge,
    progress: Progress,
    largest_order: int | None,
    traversal: Traversal = Traversal.PUBLISHED,
) -> Sweep:
    """Run PC's first phase; without a largest order it goes on while there are neighbours."""
    columns = tuple(access.schema.columns)
    largest = len(columns) - 2 if largest_order is None else largest_order
    return prune(columns, is_independent, largest, knowledge, traversal, progress=progress)


def describe_published(
    schema: Schema,
    sweep: Sweep,
    knowledge: Knowledge,
    reported: tuple[float, float],
    asked: int | None = None,
    counted: int | None = None,
) -> Asked:
    """Write down what a run as published found, and what its publication would report."""
    graph, findings = describe_sweep(tuple(schema.columns), sweep, knowledge)
    reported = (min(reported[0], sys.float_info.max), reported[1])  # JSON has no infinity
    questions = sweep.questions if asked is None else asked
    told = (*findings, describe_report(reported, counted))
    return Asked(graph, (), told, questions, sweep.unanswered, reported, counted)


def describe_report(reported: tuple[float, float], counted: int | None = None) -> str:
    """Say what the publication would report."""
    epsilon, delta = reported
    tests = "" if counted is None else f" It would count {counted} tests."
    return f"The publication would report epsilon {epsilon:.4g} and delta {delta:.3g}; that claim does not hold.{tests}"


def sum_logarithms(counts: Floats) -> float:
    """Return the sum of n ln n over cells, 0 for a negative n."""
    counts = np.maximum(counts, 0.0)
    return float(xlogy(counts, counts).sum())


def _alphabetical(column: Column) -> list[int]:
    if isinstance(column, Numeric):
        return list(range(column.n_levels))
    return sorted(range(column.n_levels), key=lambda level: column.labels[level])


class PublishedAccess:
    """Exact answers, remembered, and a generator for noise as published: not a secure one, since nothing is claimed."""

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        self._table, self.rng = table, rng
        self._known: dict[tuple[str, ...], Counts] = {}
        self._p_values: dict[Question, float] = {}
        self._scores: dict[Question, float] = {}

    @property
    def schema(self) -> Schema:
        """The public schema of the rows."""
        return self._table.schema

    @property
    def n_rows(self) -> int:
        """The exact number of rows, which all of the papers take as public."""
        return self._table.n_rows

    def exact_counts(self, x: str, y: str, given: Sequence[str]) -> Counts:
        """Count rows in the shape (strata, levels of x, levels of y)."""
        names = (*given, x, y)
        if names not in self._known:
            counts = self._table.counts(names)
            self._known[names] = counts.reshape(-1, *counts.shape[-2:])
        return self._known[names]

    def ordered_counts(self, question: Question) -> Counts:
        """Count the same with labels in alphabetical order, as the published programs do."""
        x, y = (_alphabetical(self.schema.columns[name]) for name in question[:2])
        return self.exact_counts(*question)[:, x][:, :, y]

    def kendall(self, question: Question) -> float:
        """Return the one-sided p-value of the conditional Kendall statistic."""
        if question not in self._p_values:
            self._p_values[question] = float(published_p_values(self.ordered_counts(question)))
        return self._p_values[question]

    def score(self, question: Question) -> float:
        """Return the absolute conditional Kendall statistic of definition 6 of Priv-PC; ties count 0."""
        if question not in self._scores:
            self._scores[question] = float(published_scores(self.ordered_counts(question), as_printed=True))
        return self._scores[question]

    def exact_table(self, columns: tuple[str, ...] | None = None) -> Counts:
        """Count rows by some columns, or by all."""
        return self._table.counts(tuple(self.schema.columns) if columns is None else columns)

    def exact_moments(self, plan: MomentPlan) -> Counts:
        """Sum the outer products of the rows, in fixed point."""
        return self._table.outer_products(plan)

    def exact_rows(self, columns: Sequence[str]) -> Floats:
        """Return the rows themselves, scaled to [-1, 1] by bounds and scores, in the shape (rows, k)."""
        return self._table.levelled_rows(columns, max(self.n_rows, 1))[: self.n_rows]

    def subsample(self, size: int) -> PublishedAccess:
        """Draw so many rows without replacement."""

        def keep(n_rows: int) -> NDArray[np.bool_]:
            kept = np.zeros(n_rows, dtype=np.bool_)
            kept[self.rng.choice(n_rows, min(size, n_rows), replace=False, shuffle=False)] = True
            return kept

        return PublishedAccess(self._table.thin(keep), self.rng)


Publish = Callable[[PublishedAccess, Budget, Knowledge, Any, Progress], Asked]


@dataclass(frozen=True, slots=True)
class Reading:
    """One method as its paper prints it, or as its authors' program has it."""

    settings: type[msgspec.Struct]  # constants of this reading
    publish: Publish  # runs it
    flaw: str  # why its guarantee does not hold
    check: Callable[[Schema, Any], None] = lambda schema, settings: None  # refuses settings that do not fit the columns


@dataclass(frozen=True, slots=True)
class Publication:
    """The readings of one method that exist, and why one is missing, if it is."""

    readings: Mapping[Calibration, Reading]
    missing: str = ""


# the file of this room that holds the publication of a method; it ends in its `PUBLICATIONS`
PAPERS: Mapping[str, str] = {
    "measure-notears": "zheng2018",
    "em-pc": "xu2017",
    "lap-mech": "xu2017",
    "priv-pc-star": "xu2017",
    "svt-pc": "wang2020",
    "priv-pc": "wang2020",
    "sampled-gaussian-pc": "wang2020",
    "noleaks": "ma2022",
    "curate-score": "bhattacharjee2024",
    "curate": "bhattacharjee2024",
    "pcd": "zhang2023",
}
# the same for methods that were never private: their one calibration is `none`
EXACT: Mapping[str, str] = {"pc": "spirtes2000"}


def readings_of(name: str) -> Mapping[Calibration, Reading]:
    """Return the readings of a method's publication; none for a method of our own or of a plug-in."""
    return _publication_of(name).readings


def require_reading(method: Method, calibration: Calibration) -> Reading:
    """Return a reading of a method's publication, or say why there is none."""
    publication = _publication_of(method.name)
    if not publication.readings:
        raise MethodError(
            f"{method.name} is not from a publication and has no {calibration.value} calibration; leave it out"
        )
    if calibration not in publication.readings:
        known = " or ".join(reading.value for reading in publication.readings)
        reason = "it was meant to be private" if calibration is Calibration.NONE else publication.missing
        raise MethodError(f"{method.name} has no {calibration.value} calibration, because {reason}; use {known}")
    return publication.readings[calibration]


def settings_of(method: Method, calibration: Calibration) -> type[msgspec.Struct]:
    """Return the kind of settings that a calibration of a method takes, or say that there is none."""
    if calibration is Calibration.SOUND and method.name not in EXACT:
        return method.settings
    return require_reading(method, calibration).settings


def read_settings(method: Method, calibration: Calibration, options: Mapping[str, Any] | None) -> msgspec.Struct:
    """Read the settings of a calibration from names and values, as `--set` gives them; unknown names are refused."""
    return read_options(settings_of(method, calibration), f"{method.name} ({calibration.value})", options)


def _publication_of(name: str) -> Publication:
    file = PAPERS.get(name) or EXACT.get(name)
    if file is None:
        return Publication({})
    publication: Publication = import_module(f"dagveil.papers.{file}").PUBLICATIONS[name]
    return publication
