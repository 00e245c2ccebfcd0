"""The method `measure`: release noisy sufficient statistics in a few rounds, then search as long as you like."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from statistics import median

import msgspec
import numpy as np
from numpy.typing import NDArray

from dagveil.curator import Curator
from dagveil.data.column import LevelColumn, Numeric
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.evidence.mixed import FeatureEvidence, MixedEvidence
from dagveil.evidence.moments import MomentEvidence
from dagveil.evidence.questions import Independence
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import plain_numbers
from dagveil.methods.measure_mixed import is_mixed, measure_mixed, trends_pay
from dagveil.methods.measure_moments import release_moments, scale_columns
from dagveil.methods.measure_tables import PAIRS_SHARE, SINGLES_SHARE, Plan, measure_tables, warn_of_noise
from dagveil.methods.method import TWO_COLUMNS, TWO_NUMBERS, Measured, Method, SharpCase
from dagveil.privacy.budget import Budget, Relation, mu_squared_of
from dagveil.privacy.events import DiscreteGaussian, Filter, PureFilter, tightest_filter
from dagveil.privacy.release import NoisyCounts
from dagveil.progress import Progress
from dagveil.search.constraint.skeleton import RemovalOrder, SkeletonSettings
from dagveil.search.settings import SearchRule
from dagveil.statistics.contingency import counts_sensitivity, interactions_squared_sensitivity

LEVELS_SHARE = Fraction(1, 20)  # share of the budget for the one-way tables that centre and scale columns with levels
ROWS_SHARE = Fraction(1, 100)  # share of the budget that estimates the number of rows when the schema declares none
# search constants for tables of counts; sets of three and more enter with their main effects
TABLE_SEARCH = SkeletonSettings(largest_order=4, removal_order=RemovalOrder.WEAKEST_EDGE)
# the same between rounds, where an edge that is cut is not measured again: so fewer are cut
ROUND_SEARCH = replace(TABLE_SEARCH, conditional_level=0.001, largest_order=2)
# search constants for numeric columns: their marginal tests have one degree of freedom and more power
MOMENT_SEARCH = SkeletonSettings(marginal_level=0.003, conditional_level=0.01, largest_order=3)
# search constants for features of numeric columns, beside levels or not
FEATURE_SEARCH = SkeletonSettings(conditional_level=0.01, largest_order=3, removal_order=RemovalOrder.WEAKEST_EDGE)
# the same for ordered levels under heavy noise: columns with few steps leave more behind than numbers do
TREND_SEARCH = replace(FEATURE_SEARCH, conditional_level=0.001)
MOST_COLUMNS_AT_FULL_LEVEL = 40  # beyond this width the levels of the search fall in proportion to the columns
MOST_JOINT_CELLS = 2**14  # cells of the table of all columns up to which one release of it is considered


def release_levels(curator: Curator, share: Fraction) -> tuple[NoisyCounts, ...]:
    """Release the one-way tables of columns with levels; nothing if all columns are numeric."""
    names = [(name,) for name, column in curator.schema.columns.items() if not isinstance(column, Numeric)]
    return curator.count_tables(names, share, "one-way tables")


def read_shares(table: NoisyCounts) -> NDArray[np.float64]:
    """Return the shares of levels that a noisy one-way table speaks for."""
    counts = np.maximum(table.counts, math.sqrt(table.count_variance))
    return np.asarray(counts / counts.sum())


def scale_levels(column: LevelColumn, shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return centre and spread of the column's scores under these shares of levels."""
    numbers = np.array(column.numbers)
    center = float(shares @ numbers)
    return center, math.sqrt(float(shares @ (numbers - center) ** 2)) or 1.0


def is_numeric(schema: Schema) -> bool:
    """Tell whether the table is measured by moments: numeric columns only, none with declared bins."""
    return len(plain_numbers(schema)) == len(schema.columns)


def search_defaults(tests: Independence, schema: Schema | None = None) -> SkeletonSettings:
    """Return the search constants that fit the evidence and its width; the schema tells trends alone from numbers."""
    constants = search_constants(tests)
    if isinstance(tests, MixedEvidence) and schema is not None and not is_mixed(schema):
        constants = TREND_SEARCH
    return fit_levels(constants, len(tests.columns))


def search_constants(tests: Independence) -> SkeletonSettings:
    """Return the search constants that fit the kind of evidence."""
    if isinstance(tests, MomentEvidence):
        return MOMENT_SEARCH
    if isinstance(tests, FeatureEvidence | MixedEvidence):
        return FEATURE_SEARCH
    return TABLE_SEARCH


def fit_levels(constants: SkeletonSettings, columns: int) -> SkeletonSettings:
    """Lower the levels for so many columns: pairs grow faster than columns, false edges per column should not."""
    share = min(1.0, MOST_COLUMNS_AT_FULL_LEVEL / max(columns, 1))
    marginal, conditional = constants.marginal_level * share, constants.conditional_level * share
    return replace(constants, marginal_level=marginal, conditional_level=conditional)


class MeasureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `measure`; those of the search apply besides, at no cost.

    - `plan`: What is released: auto, joint, pairs or loop.
    """

    plan: Plan = Plan.AUTO


def releases_mixed(
    method: str, settings: object, schema: Schema, budget: Budget | None = None, knowledge: Knowledge = NO_KNOWLEDGE
) -> bool:
    """Tell whether a method puts all columns into one matrix: `measure` does, unless its plan counts columns.

    Without a budget, only for numbers beside levels; with one, also for ordered levels under heavy noise.
    """
    if method != "measure" or not isinstance(settings, MeasureSettings) or settings.plan is not Plan.AUTO:
        return False
    if is_mixed(schema) or budget is None or budget.delta == 0 or prefers_joint(budget, schema, knowledge):
        return is_mixed(schema)
    return trends_pay(schema, float(tightest_filter(budget, [DiscreteGaussian]).total), knowledge)


def accounting(
    budget: Budget, schema: Schema, settings: MeasureSettings, knowledge: Knowledge, *, counted: bool = False
) -> Filter:
    """Choose the filter, and with it the plan: plain addition for one joint table, Gaussian accounting for the rest.

    Numbers without bins that stand beside levels go into one matrix, unless delta is 0 or all columns are `counted`.
    """
    mixed = is_mixed(schema) and budget.delta > 0 and not counted
    joint = settings.plan is Plan.JOINT or (
        settings.plan is Plan.AUTO and not mixed and prefers_joint(budget, schema, knowledge)
    )
    if joint and is_numeric(schema):
        raise MethodError("numeric columns without bins have no table of counts; declare bins, or leave out plan=joint")
    return PureFilter(budget) if joint else tightest_filter(budget, [DiscreteGaussian])


def prefers_joint(budget: Budget, schema: Schema, knowledge: Knowledge = NO_KNOWLEDGE) -> bool:
    """Tell, from public facts alone, whether the table of all columns would show pairs with less noise than their own.

    A record stands in one cell of the joint table, so Laplace noise of scale 1/ε pays for all of it, without delta. A
    pair table is a sum of its cells; with few cells that is less noise than Gaussian noise on every pair.
    """
    levels = {name: column.n_levels for name, column in schema.columns.items()}
    cells = math.prod(levels.values())
    if is_numeric(schema) or cells > MOST_JOINT_CELLS:
        return False
    if any(knowledge.excludes(x, y) for x, y in combinations(levels, 2)):
        return False  # nothing is released about pairs that knowledge excludes
    if budget.delta == 0:
        return True
    pairs = list(combinations(levels, 2))
    pair_cells = median(levels[x] * levels[y] for x, y in pairs)
    relation = Relation(schema.relation)
    joint = math.sqrt(2.0 * cells / pair_cells) * counts_sensitivity(relation, 1) / float(budget.epsilon)
    # what each interaction would carry with the share that `measure_tables` gives to pairs
    share = float((1 - SINGLES_SHARE) * PAIRS_SHARE * mu_squared_of(budget))
    return joint <= math.sqrt(float(interactions_squared_sensitivity(relation, pairs, levels)) / share)


def check_measurable(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse, before anything is reserved, what no run could do."""
    if len(schema.columns) < 2:
        raise MethodError(f"the schema has {len(schema.columns)} column; a causal graph needs at least 2")
    numbers = {name: one.bounds for name, one in schema.columns.items() if isinstance(one, Numeric)}
    endless = [name for name, (lower, upper) in numbers.items() if not math.isfinite(upper - lower)]
    if endless:
        raise MethodError(
            f"the bounds of {', '.join(endless)} are too far apart to compute with; declare closer ones, or let "
            "`dagveil schema bounds` find them privately"
        )
    knowledge.check(schema.columns)


def release_rows(curator: Curator) -> tuple[int, Fraction, Measured]:
    """Return the number of rows, the share of the budget that is left, and what was released.

    The number is the exact one where it is public, or the nominal one, or else a private estimate.
    """
    nominal = curator.schema.nominal_rows
    public = curator.relation is Relation.REPLACE_ONE
    if nominal is not None and not public:
        return nominal, Fraction(1), Measured()
    released = curator.count_rows(ROWS_SHARE)
    if public:
        return max(1, released.values[0]), Fraction(1), Measured()
    why = "the schema declares no nominal number of rows, so a small share estimated it"
    stage = Stage("number of rows", 1, 1, float(ROWS_SHARE), released.count_variance**0.5, why)
    return max(1, round(float(released.counts))), 1 - ROWS_SHARE, Measured((released,), (stage,))


def measure_jointly(curator: Curator, knowledge: Knowledge, settings: object, progress: Progress) -> Measured:
    """Release the table of all columns with Laplace noise."""
    progress("measuring the joint table", 0, 1)
    released = curator.count_tables([tuple(curator.schema.columns)], Fraction(1), "joint table")
    progress("measuring the joint table", 1, 1)
    why = "one record stands in one cell, and every question is a sum of cells: less noise than pair tables would have"
    table = released[0]
    cells = len(table.values)
    stage = Stage("joint table", 1, cells, 1.0, table.count_variance**0.5, why)
    rows = curator.schema.nominal_rows or max(1.0, float(table.counts.sum()))
    # a cell of a pair of yes/no columns is a sum of a quarter of all cells
    return Measured(released, (stage,), tuple(warn_of_noise(stage.noise_sd * math.sqrt(cells / 4), rows)))


def measure(
    curator: Curator, knowledge: Knowledge, settings: object, progress: Progress, *, counted: bool = False
) -> Measured:
    """Release the evidence for one table; whether it is the joint table, the filter that `accounting` chose says.

    - `knowledge`: pairs that it excludes are never asked about, if tables of counts are released.
    - `settings`: any plan but auto counts all columns, numbers in their bins; settings of other methods have no plan.
    - `counted`: whether that is done in any case.
    """
    schema = curator.schema
    if isinstance(curator.accounting, PureFilter):
        return measure_jointly(curator, knowledge, settings, progress)
    plan = settings.plan if isinstance(settings, MeasureSettings) else Plan.AUTO
    price = float(curator.accounting.total)
    mixed = plan is Plan.AUTO and not counted and (is_mixed(schema) or trends_pay(schema, price, knowledge))
    if not is_numeric(schema) and not mixed:
        return measure_tables(curator, knowledge, ROUND_SEARCH, progress, plan)
    rows, share, rows_counted = release_rows(curator)
    if mixed:
        return rows_counted + measure_mixed(curator, rows, share, progress)
    return rows_counted + release_moments(curator, rows, scale_columns(curator, share, progress), progress)


METHOD = Method(
    name="measure",
    title="noisy small tables or moments once, then any search for free",
    paper=None,
    data="any",
    cost="one to three releases",
    settings=MeasureSettings,
    search=SearchRule.AUTO,
    accounting=accounting,
    check=check_measurable,
    release=measure,
    sharp=(SharpCase(TWO_COLUMNS), SharpCase(TWO_NUMBERS)),
)
