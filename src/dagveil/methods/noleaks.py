"""The methods `noleaks` and `curate-score`: NOTEARS whose gradients are private, one question after another.

NOLEAKS (Ma, Ji, Pang and Wang 2022) gives every gradient the same budget; score-based CURATE (Bhattacharjee and Tandon
2024) lets it rise. Repaired, both clip the gradient of every record by itself. `measure-notears` pays for one matrix
instead, and is better: these are here for comparison.
"""

import enum
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dagveil.curator import Curator
from dagveil.data.column import Numeric
from dagveil.data.moments import MomentPlan
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.cpdag import Cpdag, Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import measure
from dagveil.methods.asking import Asked, Count, NotNegative, Positive
from dagveil.methods.method import MA_2022, TWO_NUMBERS, Method, SharpCase, account_gaussian
from dagveil.progress import Progress
from dagveil.search.score.notears import forbidden_entries, measure_by_exponential, weights_to_dag

Floats = NDArray[np.float64]
# a length that fixed point can hold, however many columns there are
Clip = Annotated[float, msgspec.Meta(ge=0.01, le=1000.0)]
# a first epsilon; beyond this, the multiplicative schedule would leave nothing to some iterations
Initial = Annotated[float, msgspec.Meta(ge=0.001, le=1000.0)]
BITS = 8  # fixed-point bits of rows and residuals
RADIUS_PER_COLUMN = 2.0  # squared radius of the ball that rows are shrunk to, per column, in squared spreads
CURVATURE_SHARE = 0.1  # share of each iteration's budget for the curvature along its direction, which sets the step
MEMORY = 8  # pairs of steps and changes of the gradient that quasi-Newton directions are built from
SMOOTHING = 1e-3  # λ‖W‖₁ is rounded off within about this distance of zero


class Schedule(enum.Enum):
    """Epsilon of iteration k of I, from an initial one ε₀."""

    UNIFORM = "uniform"  # ε₀, as NOLEAKS has it
    ADDITIVE = "additive"  # ε₀ (1 + k/I): the last iteration gets almost twice the first
    EXPONENTIAL = "exponential"  # ε₀ exp(k/I): the last iteration gets almost e times the first
    MULTIPLICATIVE = "multiplicative"  # ε₀ ^ (1 + k/I): rises for ε₀ above 1 and **falls** below


def epsilon_at(schedule: Schedule, initial: float, iteration: int, iterations: int) -> float:
    """Return the epsilon of one iteration, counted from 0."""
    step = iteration / iterations
    if schedule is Schedule.ADDITIVE:
        return initial * (1.0 + step)
    if schedule is Schedule.EXPONENTIAL:
        return initial * math.exp(step)
    if schedule is Schedule.MULTIPLICATIVE:
        return float(initial ** (1.0 + step))
    return initial


def iterations_allowed(schedule: Schedule, total: float, initial: float) -> float:
    """Return Lemma 2's number of iterations whose epsilons add up to at most the total, before rounding down.

    The exponential one is as printed, where every iteration is charged the largest epsilon: more would fit.
    """
    if initial <= 0.0 or total < initial:
        raise MethodError(f"an initial epsilon of {initial:g} does not fit a total of {total:g}; choose a smaller one")
    if schedule is Schedule.ADDITIVE:
        return (total + initial / 2.0) / (1.5 * initial)
    if schedule is Schedule.EXPONENTIAL:
        return total / (initial * math.e)
    if schedule is Schedule.MULTIPLICATIVE and initial != 1.0:
        rest = 1.0 - initial * (1.0 - initial) / total
        return math.log(initial) / math.log(rest) if rest > 0.0 else 1.0
    return total / initial


def shares(schedule: Schedule, initial: float, iterations: int) -> list[float]:
    """Return each iteration's share of the budget, in the unit of Gaussian accounting: in proportion to epsilon²."""
    squares = [epsilon_at(schedule, initial, k, iterations) ** 2 for k in range(iterations)]
    whole = sum(squares)
    return [square / whole for square in squares]


def describe_direction(schedule: Schedule, initial: float) -> str:
    """Say whether later iterations get more or less."""
    if schedule is Schedule.MULTIPLICATIVE and initial < 1.0:
        return "Later iterations get less budget than earlier ones: this schedule falls for an initial epsilon below 1."
    if schedule is Schedule.UNIFORM or (initial == 1.0 and schedule is Schedule.MULTIPLICATIVE):
        return "Every iteration gets the same budget."
    return "Later iterations get more budget than earlier ones."


class NoleaksSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the sound `noleaks`.

    - `iterations`: Gradients that the budget is divided into.
    - `outer`: Rounds of the augmented Lagrangian; each has the same number of iterations.
    - `penalty`: λ of the ℓ₁ penalty.
    - `clip`: Largest length of one record's gradient, per column.
    - `threshold`: Smallest weight that counts as an edge.
    """

    iterations: Count = 30
    outer: Count = 5
    penalty: NotNegative = 0.01
    clip: Clip = 1.0
    threshold: Positive = 0.05


class CurateScoreSettings(NoleaksSettings, frozen=True, kw_only=True):
    """Settings of the sound `curate-score`: those of `noleaks`, and a schedule.

    - `schedule`: How the budget rises: additive, exponential or multiplicative.
    - `initial`: ε₀ of the schedule's formula; only the multiplicative schedule depends on it. None takes
      epsilon/iterations.
    """

    schedule: Schedule = Schedule.ADDITIVE
    initial: Initial | None = None


def row_plan(
    schema: Schema, shares_of_levels: Mapping[str, Floats], radius_per_column: float = RADIUS_PER_COLUMN
) -> MomentPlan:
    """Return the scaling of rows."""
    centers, spreads = [], []
    for name, column in schema.columns.items():
        if isinstance(column, Numeric):
            lower, upper = column.bounds
            centers.append(column.center if column.center is not None else (lower + upper) / 2.0)
            spreads.append(column.spread if column.spread is not None else (upper - lower) / 6.0)
        else:
            center, spread = measure.scale_levels(column, shares_of_levels[name])
            centers.append(center)
            spreads.append(spread)
    radius = radius_per_column * len(schema.columns)
    return MomentPlan(tuple(schema.columns), tuple(centers), tuple(spreads), radius, 1.0, BITS)


@dataclass(slots=True)
class _Lagrangian:
    """The part of the objective that no row enters: penalty for cycles, and the rounded-off ℓ₁ penalty."""

    penalty: float
    rho: float = 1.0
    alpha: float = 0.0

    def value(self, weights: Floats) -> float:
        """Return the penalties."""
        h, _ = measure_by_exponential(weights)
        return 0.5 * self.rho * h * h + self.alpha * h + self.penalty * float(np.sqrt(weights**2 + SMOOTHING**2).sum())

    def gradient(self, weights: Floats) -> Floats:
        """Return their gradient."""
        h, slope = measure_by_exponential(weights)
        smooth: Floats = self.penalty * weights / np.sqrt(weights**2 + SMOOTHING**2)
        return (self.rho * h + self.alpha) * slope + smooth

    def tighten(self, weights: Floats, before: float) -> float:
        """Raise the price of cycles after a round; returns the measure of cycles."""
        h, _ = measure_by_exponential(weights)
        self.alpha += self.rho * h
        if h > 0.25 * before:
            self.rho *= 10.0
        return h


def descend(
    d: int,
    loss_gradient: Callable[[Floats, int], Floats],
    curvature: Callable[[Floats, int], float],
    iterations: int,
    outer: int,
    penalty: float,
    forbidden: NDArray[np.bool_],
    progress: Progress,
) -> Floats:
    """Minimise the loss under the augmented Lagrangian with noisy gradients and quasi-Newton directions."""
    weights = np.zeros((d, d))
    price = _Lagrangian(penalty)
    violation = math.inf
    for round_number in range(outer):
        pairs: deque[tuple[Floats, Floats]] = deque(maxlen=MEMORY)
        last: tuple[Floats, Floats] | None = None
        first, stop = (iterations * (round_number + k) // outer for k in (0, 1))
        for k in range(first, stop):
            progress("gradients", k, iterations)
            slope = loss_gradient(weights, k) + price.gradient(weights)
            slope[forbidden] = 0.0
            if last is not None:
                step, change = weights - last[0], slope - last[1]
                if float((step * change).sum()) > 1e-10 * float((step * step).sum()):
                    pairs.append((step, change))
            last = (weights.copy(), slope.copy())
            direction = -_bend(slope, pairs)
            if float((direction * slope).sum()) >= 0.0:
                direction = -slope
            length = float(np.abs(direction).max())
            if length == 0.0:
                continue
            direction = direction / max(1.0, length)
            weights = weights + _step(weights, direction, slope, curvature(direction, k), price) * direction
        violation = price.tighten(weights, violation)
    return weights


def _step(weights: Floats, direction: Floats, slope: Floats, curved: float, price: _Lagrangian) -> float:
    """Return the length of the step that the noisy quadratic model of the loss and the exact penalties ask for."""
    along = float((slope * direction).sum()) - float((price.gradient(weights) * direction).sum())
    start = price.value(weights)

    def rise(length: float) -> float:
        value = price.value(weights + length * direction) - start
        total = along * length + 0.5 * max(curved, 0.0) * length**2 + value
        return total if math.isfinite(total) else 1e300

    found = minimize_scalar(rise, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-4})
    return float(found.x) if rise(float(found.x)) < 0.0 else 0.0


def _bend(slope: Floats, pairs: deque[tuple[Floats, Floats]]) -> Floats:
    """Return the L-BFGS direction (two loops), uphill."""
    bent = slope.copy()
    factors = []
    for step, change in reversed(pairs):
        factor = float((step * bent).sum()) / float((step * change).sum())
        factors.append(factor)
        bent -= factor * change
    if pairs:
        step, change = pairs[-1]
        bent *= float((step * change).sum()) / float((change * change).sum())
    for (step, change), factor in zip(pairs, reversed(factors), strict=True):
        bent += (factor - float((change * bent).sum()) / float((step * change).sum())) * step
    return bent


def ask(curator: Curator, knowledge: Knowledge, settings: NoleaksSettings, progress: Progress) -> Asked:
    """Run the sound method."""
    schema = curator.schema
    columns = tuple(schema.columns)
    tables = measure.release_levels(curator, measure.LEVELS_SHARE)
    levels = {table.columns[0]: measure.read_shares(table) for table in tables}
    whole = 0.999 - (float(measure.LEVELS_SHARE) if levels else 0.0)
    plan = row_plan(schema, levels)
    descent = curator.ask_gradients(plan)
    rising = settings if isinstance(settings, CurateScoreSettings) else None
    schedule = rising.schedule if rising is not None else Schedule.UNIFORM
    initial = min(max(float(curator.accounting.budget.epsilon) / settings.iterations, 0.001), 1000.0)
    initial = rising.initial if rising is not None and rising.initial is not None else initial
    rows, _, counted = measure.release_rows(curator)
    whole -= sum(stage.share for stage in counted.plan)
    amounts = [Fraction(whole * share) for share in shares(schedule, initial, settings.iterations)]
    deviations: list[float] = []

    def loss_gradient(weights: Floats, k: int) -> Floats:
        share = amounts[k] * Fraction(1.0 - CURVATURE_SHARE)
        noisy, deviation = descent.gradient(weights, settings.clip * len(columns), share, "gradient")
        deviations.append(deviation / rows)
        return noisy / rows

    def curvature(direction: Floats, k: int) -> float:
        share = amounts[k] * Fraction(CURVATURE_SHARE)
        return descent.curvature(direction, plan.radius_squared, share, "curvature")[0] / rows

    forbidden = forbidden_entries(columns, knowledge)
    counts = (settings.iterations, settings.outer)
    weights = descend(len(columns), loss_gradient, curvature, *counts, settings.penalty, forbidden, progress)
    why = f"{settings.iterations} gradients, {schedule.value} schedule"
    stage = Stage("gradients", descent.asked, descent.asked, whole, float(np.median(deviations)), why)
    told = f"{descent.asked} questions were asked: a gradient and a curvature in each iteration."
    graph = read_graph(columns, weights, settings.threshold, knowledge)
    return Asked(graph, (*counted.plan, stage), (told, describe_direction(schedule, initial)), descent.asked)


def read_graph(columns: tuple[str, ...], weights: Floats, threshold: float, knowledge: Knowledge) -> Cpdag:
    """Return the CPDAG of the DAG that is left of the weights above the threshold."""
    arcs = weights_to_dag(weights, threshold, required=required_entries(columns, knowledge))
    return join_arcs(columns, arcs, knowledge)


def required_entries(columns: tuple[str, ...], knowledge: Knowledge) -> list[tuple[int, int]]:
    """Return the places of the arcs that knowledge requires."""
    return [(columns.index(cause), columns.index(effect)) for cause, effect in sorted(knowledge.required)]


def join_arcs(columns: tuple[str, ...], arcs: Iterable[tuple[int, int]], knowledge: Knowledge) -> Cpdag:
    """Return the CPDAG of a DAG, with what knowledge says of its arrows."""
    return knowledge.orient(Dag(columns, frozenset((columns[i], columns[j]) for i, j in arcs)).cpdag())


METHOD = Method(
    name="noleaks",
    title="NOTEARS with a private gradient in every iteration",
    paper=MA_2022,
    data="numeric, and levels by their scores",
    cost="every gradient",
    settings=NoleaksSettings,
    accounting=account_gaussian,
    check=measure.check_measurable,
    ask=ask,
    relative_time=25.0,
    sharp=(SharpCase(TWO_NUMBERS, {"iterations": "1", "outer": "1"}),),
)
