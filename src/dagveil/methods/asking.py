"""What the methods that ask adaptively have in common: a statistic, public thresholds, and the story of the run."""

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Annotated

import msgspec
import numpy as np

from dagveil.curator import Curator, Question, QuestionSession
from dagveil.data.column import Numeric
from dagveil.data.schema import Schema
from dagveil.data.table import MAX_CELLS
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.cpdag import Cpdag
from dagveil.graphs.knowledge import Knowledge
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import ApproximateZcdpFilter, DiscreteLaplace, Filter
from dagveil.privacy.mechanisms.laplace import PureEvent, filter_for
from dagveil.search.constraint.arrows import orient_by_separating_sets
from dagveil.search.constraint.pc import Sweep
from dagveil.statistics.distance import ExactDistance
from dagveil.statistics.reconciled import PartTest, Reconciled
from dagveil.statistics.statistic import STATISTIC_NAMES, Statistic, statistic_named

RANK_STATISTICS = ("kendall", "spearman")
VOTES = {"reconciled-g": PartTest.G, "reconciled-chi-square": PartTest.CHI_SQUARE}
MEDIANS = {"median-g": PartTest.G, "median-chi-square": PartTest.CHI_SQUARE}
EXACT_DISTANCE = "exact-distance"
# statistics that an interactive method may be given by name
ASKABLE = (*STATISTIC_NAMES, *VOTES, *MEDIANS, EXACT_DISTANCE)
# a median p-value of the parts below 1 − this speaks for dependence: independent parts have medians around ½
MEDIAN_THRESHOLD = 0.75
PARTS = 41  # parts of a reconciled test; each must be large enough for a test of its own
# share of the budget for the one-way tables, from which ties and the number of rows are read
MARGIN_SHARE = Fraction(1, 20)


# a setting between 0 and 1, such as the level of a test. Bounds of settings are checked before anything is spent.
Level = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
# a share of the budget, in steps of about a thousandth; the rest is for something else
Part = Annotated[float, msgspec.Meta(ge=0.001, le=0.999)]
Rate = Annotated[float, msgspec.Meta(ge=0.001, le=1.0)]  # a share of the records, in steps of about a thousandth
Positive = Annotated[float, msgspec.Meta(gt=0.0)]  # a setting above 0
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]  # a setting of at least 0
Count = Annotated[int, msgspec.Meta(ge=1)]  # a number of at least 1
Order = Annotated[int, msgspec.Meta(ge=0)]  # the size of a conditioning set


class AskingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the methods that follow PC's questions have in common.

    - `statistic`: What is compared with the threshold.
    - `level`: Level of the noiseless test behind the threshold.
    - `largest_order`: Size of the largest conditioning set.
    """

    statistic: str = "kendall"
    level: Level = 0.01
    largest_order: Order = 2


class Needs(enum.Enum):
    """What a method needs of its statistic."""

    FIXED_NOISE = "fixed noise"
    """A sensitivity that is fixed before the run."""

    NOISY_VALUE = "noisy value"
    """A noisy value, however it comes about."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an asking method hands back.

    - `plan`: what was asked, with which share of the budget.
    - `findings`: what a reader should know.
    - `questions`: how many were put to the rows.
    - `unanswered`: edges still to be tested when the budget ran out, with the order of the sets.
    - `reported`: epsilon and delta as the publication would report them; for runs as published only.
    - `counted`: tests as the publication would count them, if that is not the number of questions.
    """

    graph: Cpdag
    plan: tuple[Stage, ...]
    findings: tuple[str, ...]
    questions: int
    unanswered: tuple[tuple[str, str, int], ...] = ()
    reported: tuple[float, float] | None = None
    counted: int | None = None


class ThresholdedQuestions:
    """Questions with their public thresholds.

    - `curator`: the door to the rows.
    - `statistic`: its name.
    - `level`: of the exact test that the thresholds come from.

    Rank statistics need the ties of the columns, and every threshold needs the number of rows: a small share of the
    budget releases the one-way tables for that, unless nothing of it is needed.
    """

    def __init__(self, curator: Curator, statistic: str, level: float, largest_order: int, needs: Needs) -> None:
        schema = curator.schema
        check_statistic(statistic, needs)
        check_tables(schema, largest_order)
        # refused before the first charge
        refusal = make_statistic(statistic, schema.nominal_rows or 10**6, level).refusal(curator.relation)
        if refusal is not None:
            raise MethodError(f"{statistic} cannot be asked about with noise: {refusal}")
        self.plan: list[Stage] = []
        self._level = level
        self._evenness: dict[str, float] = {}
        self._median_delta: Fraction | None = None
        self.rows = float(schema.nominal_rows or 0)
        if curator.relation is Relation.REPLACE_ONE:
            # public, so nothing is charged
            self.rows = max(1.0, float(curator.count_rows(MARGIN_SHARE).counts))
        if statistic in (*RANK_STATISTICS, EXACT_DISTANCE) or not self.rows:
            self._measure_margins(curator)
        self.share = 1.0 - sum(stage.share for stage in self.plan)
        self.questions: QuestionSession = curator.ask_questions(
            make_statistic(statistic, max(1, round(self.rows)), level)
        )
        if statistic in MEDIANS and isinstance(curator.accounting, ApproximateZcdpFilter):
            self._median_delta = curator.accounting.total_failure / most_questions(schema, largest_order)

    def threshold(self, question: Question, rate: float = 1.0) -> float:
        """Return the score, in records, that an independent pair exceeds with probability `level`, without noise."""
        x, y, _ = question
        ties = self._evenness.get(x, 1.0) * self._evenness.get(y, 1.0)
        return self.questions.critical_score(question, self._level, max(1.0, self.rows * rate), ties)

    def measure(self, question: Question, epsilon: Fraction, label: str, slack: float) -> tuple[float, float]:
        """Return a noisy score and its threshold, eased by so many noise scales; above it speaks for dependence.

        For medians the score is 1 − the median p-value. Their noise has a secret scale, so nothing is eased.
        """
        if self._median_delta is not None:
            p_value = self.questions.answer_by_median(question, epsilon, self._median_delta, label)
            return 1.0 - p_value, MEDIAN_THRESHOLD
        score = self.questions.answer(question, epsilon, label).score
        return score, self.threshold(question) + slack / float(epsilon)

    def conclude(self, columns: Sequence[str], sweep: Sweep, knowledge: Knowledge, *stages: Stage) -> Asked:
        """Direct the edges of a finished search, and tell the story of the run."""
        graph, findings = describe_sweep(columns, sweep, knowledge)
        return Asked(graph, (*self.plan, *stages), findings, self.questions.asked, sweep.unanswered)

    def _measure_margins(self, curator: Curator) -> None:
        names = [(name,) for name in curator.schema.columns]
        released = curator.count_tables(names, MARGIN_SHARE, "one-way tables")
        deviation = released[0].count_variance ** 0.5
        totals = [float(table.counts.sum()) for table in released]
        if not self.rows:
            self.rows = max(1.0, float(np.average(totals, weights=[1.0 / table.counts.size for table in released])))
        for (name,), table in zip(names, released, strict=True):
            shares = np.maximum(table.counts, deviation)
            self._evenness[name] = float(1.0 - ((shares / shares.sum()) ** 3).sum())
        cells = sum(table.counts.size for table in released)
        why = "ties in the columns and the number of rows set the thresholds of the questions"
        self.plan.append(Stage("one-way tables", len(names), cells, float(MARGIN_SHARE), deviation, why))


def make_statistic(name: str, rows: int, level: float) -> Statistic:
    """Return the statistic of this name, reconciled ones and the exact distance included."""
    if name in VOTES or name in MEDIANS:
        return Reconciled({**VOTES, **MEDIANS}[name], PARTS)
    if name == EXACT_DISTANCE:
        return ExactDistance(level, statistic_named("kendall", rows))
    return statistic_named(name, rows)


def check_statistic(name: str, needs: Needs) -> None:
    """Refuse a statistic that the method cannot use, with the reason."""
    if name not in ASKABLE:
        raise MethodError(f"no statistic is called {name!r}; choose one of {', '.join(ASKABLE)}")
    if name in MEDIANS and needs is Needs.FIXED_NOISE:
        raise MethodError(
            f"{name} has noise whose scale depends on the rows, and this method compares scores whose sensitivity must "
            f"be fixed; choose {name.replace('median', 'reconciled')}, which counts votes, or the method `curate`"
        )


def check_tables(schema: Schema, largest_order: int) -> None:
    """Refuse, before anything is spent, an order whose tables could be too large."""
    if largest_order < 0:
        raise MethodError(f"largest_order is {largest_order}; choose 0 or more")
    levels = sorted((column.n_levels for column in schema.columns.values()), reverse=True)
    cells = math.prod(levels[: largest_order + 2])
    if cells > MAX_CELLS:
        raise MethodError(
            f"questions of order {largest_order} can need a table of {cells} cells, and the limit is {MAX_CELLS}; "
            "choose a smaller largest_order, or group levels in the schema"
        )


def most_questions(schema: Schema, largest_order: int) -> int:
    """Return how many different questions there are up to an order."""
    d = len(schema.columns)
    return math.comb(d, 2) * sum(math.comb(d - 2, order) for order in range(largest_order + 1))


def asking_filter(budget: Budget, statistic: str, questions: int, event: PureEvent = DiscreteLaplace) -> Filter:
    """Choose the accounting for so many questions about this statistic."""
    return ApproximateZcdpFilter(budget) if statistic in MEDIANS else filter_for(budget, questions, event)


def plain_numbers(schema: Schema) -> tuple[str, ...]:
    """Return the numeric columns without bins."""
    return tuple(name for name, column in schema.columns.items() if isinstance(column, Numeric) and column.bins is None)


def check_countable(schema: Schema) -> None:
    """Refuse tables that a method on counts cannot take."""
    numeric = plain_numbers(schema)
    if numeric:
        raise MethodError(
            f"this method counts levels, but {', '.join(numeric)} {'is' if len(numeric) == 1 else 'are'} numeric "
            "without bins; declare bins in the schema, or choose `measure` or `priv-pc-star`"
        )
    if len(schema.columns) < 2:
        raise MethodError(f"the schema has {len(schema.columns)} column; a causal graph needs at least 2")


def count_pairs(columns: Iterable[str], knowledge: Knowledge) -> int:
    """Return the number of pairs that questions may be asked about, at least 1."""
    pairs = combinations(columns, 2)
    return max(1, sum(not knowledge.excludes(x, y) and not knowledge.requires(x, y) for x, y in pairs))


def describe_sweep(columns: Sequence[str], sweep: Sweep, knowledge: Knowledge) -> tuple[Cpdag, tuple[str, ...]]:
    """Direct the edges of a finished search, and say what was asked and what was not."""
    graph = orient_by_separating_sets(tuple(columns), sweep.skeleton, knowledge)
    by_order = ", ".join(f"{count} of order {order}" for order, count in enumerate(sweep.asked))
    findings = [f"{sweep.questions} questions were decided: {by_order or 'none'}."]
    if sweep.unanswered:
        pairs = ", ".join(dict.fromkeys(" – ".join(sorted(edge[:2])) for edge in sweep.unanswered))
        findings.append(
            f"The budget, as it was divided, ended the search at order {sweep.unanswered[0][2]}: these edges were kept "
            f"without the questions that were still to be asked about them: {pairs}. Their arrows mean little. A "
            "larger epsilon, or fewer columns, would answer more."
        )
    return graph, tuple(findings)
