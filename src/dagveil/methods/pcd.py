"""The method `pcd`: PC on numeric columns by tests of regression residuals (Zhang, Xia, Ren, Guan and Zhou 2023)."""

import enum
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import special

from dagveil.curator import Curator, Question
from dagveil.curator.kernel_questions import HsicTest, KernelQuestions, Ridge, check_permutations
from dagveil.data.column import Numeric
from dagveil.data.moments import RESIDUAL_SPREAD, ResidualPlan
from dagveil.data.schema import Schema
from dagveil.data.selection import MOST_SLOTS, unit_scale
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Order, Positive, count_pairs, describe_sweep
from dagveil.methods.measure import check_measurable, release_rows
from dagveil.methods.method import ONE_QUESTION, TWO_NUMBERS, ZHANG_2023, Method, SharpCase
from dagveil.methods.regressions import ReleasedFunctions, release_functions
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, Filter, tightest_filter
from dagveil.privacy.mechanisms.gaussian import deviation_for
from dagveil.privacy.mechanisms.laplace import epsilon_for, filter_for
from dagveil.privacy.release import NoisyMoments
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune
from dagveil.statistics.gcm import gcm_p_value

Floats = NDArray[np.float64]
DRAWS = 200  # simulations of regressions that noise has led astray
SEED = 20230207  # of these simulations; they are post-processing, and the same question must get the same answer
SCALED_MEAN_SPREAD = 1.0  # how far the mean of a scaled residual is from 0, usually; noisy means are shrunk accordingly
CAUTION = 1.1  # the standard error is taken this much larger: it is right to first order only
SMALLEST_SPREAD = 0.1  # floor for the spread of a column in half-widths of its bounds, where only noise tells it
MOMENTS_SHARE = Fraction(1, 8)  # share of the budget for the moments that regressions are computed from
MOST_RIDGE_ROWS = 5000  # rows that ridge regressions take unless told otherwise: beyond that a run takes minutes
SQUARES_SHARE = Fraction(1, 10)  # share of a question's price for the sum of squared products
# share of a question's price for the sums of both residuals; the products get the rest
RESIDUALS_SHARE = Fraction(1, 20)
MEAN_SPREAD = 0.15  # clipping moves the mean of residuals away from 0 by about so many clips, if they are skewed
CLIP = 0.5  # residuals are cut to ± this in products, in half-widths of the bounds
Bandwidth = Annotated[float, msgspec.Meta(ge=0.01, le=100.0)]  # of a Gaussian kernel, in half-widths of the bounds
Rows = Annotated[int, msgspec.Meta(ge=2)]  # a number of rows that a kernel test can use


def plan_residuals(functions: ReleasedFunctions, schema: Schema, question: Question) -> ResidualPlan:
    """Return what is to be measured for a question, from public and released facts."""
    x, y, given = question
    fitted = functions.function(x, given), functions.function(y, given)
    means = functions.function(x, ()).constant, functions.function(y, ()).constant
    return ResidualPlan((x, y), given, fitted, means, (_spread(functions, schema, x), _spread(functions, schema, y)))


def partial_p_value(release: NoisyMoments, plan: ResidualPlan, functions: ReleasedFunctions, rows: int) -> float:
    """Return the p-value of a zero partial covariance of the residuals, all noise counted."""
    deviation = release.deviation / rows
    # noisy means of coordinates are shrunk; `of_mean` is the variance that is left in each
    of_noise = (release.deviation / (release.constant * rows)) ** 2
    trusted = SCALED_MEAN_SPREAD**2 / (SCALED_MEAN_SPREAD**2 + of_noise)
    mean, of_mean = trusted * (release.matrix[0, 1:] / (release.constant * rows)), trusted * of_noise
    covariance = release.matrix[1:, 1:] / rows - np.outer(mean, mean)
    np.fill_diagonal(covariance, np.maximum(np.diag(covariance), math.sqrt(2.0) * deviation))
    left, right = _residual_directions(covariance, deviation)
    lengths = float(left @ left), float(right @ right)
    value = float(left @ covariance @ right)
    sides = zip((left, right), lengths, strict=True)
    spreads = [max(float(side @ covariance @ side), math.sqrt(2.0) * deviation * length) for side, length in sides]
    noise = deviation**2 * (lengths[0] * lengths[1] + float(left @ right) ** 2)
    means = [of_mean * length for length in lengths]
    centring = float(left @ mean) ** 2 * means[1] + float(right @ mean) ** 2 * means[0] + means[0] * means[1]
    error = CAUTION * math.sqrt(spreads[0] * spreads[1] / rows + noise + centring)
    leftovers = np.zeros(1)
    if plan.given:
        unit = (RESIDUAL_SPREAD * plan.spreads[0]) * (RESIDUAL_SPREAD * plan.spreads[1])
        leftovers = functions.draw_leftovers(*plan.pair, plan.given, rows, DRAWS, np.random.default_rng(SEED)) / unit
    tails = special.ndtr(-(abs(value) - leftovers) / error) + special.ndtr(-(abs(value) + leftovers) / error)
    return float(np.minimum(tails, 1.0).mean())


def _residual_directions(covariance: Floats, deviation: float) -> tuple[Floats, Floats]:
    """Return what is left of the first two coordinates after regression on the others."""
    size = len(covariance)
    left, right = np.eye(size)[:2]
    if size > 2:
        values, vectors = np.linalg.eigh(covariance[2:, 2:])
        floor = max(deviation * math.sqrt(size - 2), 1e-4)
        inverse = (vectors / np.maximum(values, floor)) @ vectors.T
        left[2:] = -inverse @ covariance[2:, 0]
        right[2:] = -inverse @ covariance[2:, 1]
    return left, right


def _spread(functions: ReleasedFunctions, schema: Schema, name: str) -> float:
    """Return the spread of a column in half-widths of its bounds: declared, or else from released moments."""
    column = schema.columns[name]
    _, half = unit_scale(column)
    if isinstance(column, Numeric) and column.spread is not None and half > 0.0:
        return column.spread / half
    return max(functions.spread(name), SMALLEST_SPREAD)


class ResidualTest(enum.Enum):
    """How residuals are compared."""

    HSIC = "hsic"  # a permutation test of root HSIC, which sees every kind of dependence
    GCM = "gcm"  # the mean product of residuals, which sees dependence that leaves a covariance
    # the covariance of residuals given what was predicted, with the regressions' own noise in its null law
    PARTIAL = "partial"


class RegressionRule(enum.Enum):
    """Where the regressions of conditional questions come from."""

    # from moments that are released first: public functions, so residuals add nothing to the sensitivity
    RELEASED = "released"
    RIDGE = "ridge"  # kernel ridge regression on the rows, whose residuals all move with one record


class PcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the sound `pcd`.

    - `test`: How residuals are compared: partial, gcm or hsic.
    - `regression`: Where residuals come from: released, or ridge.
    - `level`: Of every test, noise included.
    - `permutations`: Of the permutation test; level times permutations + 1 must be at least 1.
    - `largest_order`: Size of the largest conditioning set.
    - `questions`: Questions that the budget is divided into. None takes two for each pair.
    - `bandwidth`: Of all kernels, in half-widths of the bounds.
    - `penalty`: Of ridge regression. None takes a value from the number of rows.
    - `rows`: Rows that gcm and hsic use, at most. None takes all, but 5000 for ridge regression.
    """

    test: ResidualTest = ResidualTest.PARTIAL
    regression: RegressionRule = RegressionRule.RELEASED
    level: Level = 0.05
    permutations: Count = 99
    largest_order: Order = 2
    questions: Count | None = None
    bandwidth: Bandwidth = 0.5
    penalty: Positive | None = None
    rows: Rows | None = None


def accounting(budget: Budget, schema: Schema, settings: PcdSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter, and refuse settings that do not fit together."""
    if settings.test is not ResidualTest.HSIC and settings.regression is RegressionRule.RIDGE:
        raise MethodError(
            f"{settings.test.value} needs public regressions, which ridge regression on the rows does not give; choose "
            "regression=released"
        )
    if settings.test is ResidualTest.PARTIAL and settings.rows is not None:
        raise MethodError(
            "partial sums over all rows, so it takes no number of rows; leave it out, or choose test=gcm or hsic"
        )
    if settings.test is ResidualTest.HSIC:
        check_permutations(settings.level, settings.permutations)
    if settings.regression is RegressionRule.RELEASED:
        return tightest_filter(budget, [DiscreteGaussian, DiscreteLaplace])
    return filter_for(budget, settings.questions or 2 * count_pairs(schema.columns, knowledge))


def default_penalty(slots: int) -> float:
    """Return the ridge penalty for so many slots, 0.1/√m: small enough for the level of the test.

    The published penalty, 1, underfits: what is left of the conditioning columns in both residuals then looks like
    dependence. A smaller one lets a record move all residuals further, so the test needs more noise.
    """
    return 0.1 / math.sqrt(slots)


def count_slots(curator: Curator, most: int | None) -> tuple[int, list[Stage]]:
    """Return the public number of slots: the nominal number of rows, or else a private count, less three deviations.

    Slots without rows hold filler, and filler is dependence of its own: better a few slots too few.
    """
    rows, _, counted = release_rows(curator)
    rows -= sum(math.ceil(3.0 * stage.noise_sd) for stage in counted.plan)
    return max(2, min(rows, most or rows, MOST_SLOTS)), list(counted.plan)


def ask(curator: Curator, knowledge: Knowledge, settings: PcdSettings, progress: Progress) -> Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    ridge = settings.regression is RegressionRule.RIDGE
    slots, stages = count_slots(curator, settings.rows or (MOST_RIDGE_ROWS if ridge else None))
    functions = None
    if not ridge:
        functions, stage = release_functions(curator, MOMENTS_SHARE)
        stages.append(stage)
    kernels = curator.ask_kernels(slots)
    questions = settings.questions or 2 * count_pairs(columns, knowledge)
    deviation, decide = divide_rest(curator, kernels, functions, questions, settings)
    sweep = prune(columns, decide, settings.largest_order, knowledge, Traversal.ONCE, progress=progress)
    graph, findings = describe_sweep(columns, sweep, knowledge)
    share = 1.0 - sum(stage.share for stage in stages)
    why = f"divided equally among {questions} questions; {settings.test.value} on {slots} rows"
    stages.append(Stage("questions", sweep.questions, sweep.questions, share, deviation, why))
    return Asked(graph, tuple(stages), findings, sweep.questions, sweep.unanswered)


def divide_rest(
    curator: Curator,
    kernels: KernelQuestions,
    functions: ReleasedFunctions | None,
    questions: int,
    settings: PcdSettings,
) -> tuple[float, Callable[[Question], bool]]:
    """Divide what is left of the budget among so many questions: return the noise of one, and how it is decided.

    The noise is the deviation of an answer of sensitivity 1. The decision is true for independence. `functions` are the
    released regressions, where settings ask for them.
    """
    price = curator.accounting.remaining / questions
    level, slots = settings.level, kernels.slots
    if settings.test is ResidualTest.PARTIAL and functions is not None:
        share = price / curator.accounting.total

        def by_moments(question: Question) -> bool:
            plan = plan_residuals(functions, curator.schema, question)
            release = curator.outer_products(plan, share, _label(question))
            return partial_p_value(release, plan, functions, slots) > level

        # in millionths, since deviations are whole numbers
        return deviation_for(curator.accounting, Fraction(10**12), price) / 1e6, by_moments
    if settings.test is ResidualTest.GCM and functions is not None:
        shares = (1 - SQUARES_SHARE - RESIDUALS_SHARE, SQUARES_SHARE, RESIDUALS_SHARE)
        epsilon, squares, residuals = (epsilon_for(curator.accounting, price * part) for part in shares)

        def by_products(question: Question) -> bool:
            sums = kernels.gcm(question, (epsilon, squares, residuals), functions, CLIP, _label(question))
            total, variance = sums.centre(slots, MEAN_SPREAD * CLIP)
            return gcm_p_value(total, sums.squares, slots, variance, sums.variance_squares) > level

        return 2**0.5 / float(epsilon), by_products
    epsilon = epsilon_for(curator.accounting, price)
    regression = functions or Ridge(settings.penalty or default_penalty(slots), settings.bandwidth)
    test = HsicTest(regression, level, settings.permutations, settings.bandwidth)
    return 2**0.5 / float(epsilon), lambda asked: not kernels.permutation_bit(asked, epsilon, test, _label(asked))


def _label(question: Question) -> str:
    return f"question of order {len(question[2])}"


METHOD = Method(
    name="pcd",
    title="PC by kernel tests of regression residuals",
    paper=ZHANG_2023,
    data="numeric, and levels by their scores",
    cost="every question",
    settings=PcdSettings,
    accounting=accounting,
    check=check_measurable,
    ask=ask,
    relative_time=60.0,
    sharp=tuple(
        SharpCase(TWO_NUMBERS, {**ONE_QUESTION, "questions": "1", "test": test}) for test in ("partial", "gcm")
    ),
)
