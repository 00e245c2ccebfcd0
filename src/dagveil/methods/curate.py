"""The method `curate`: PC with a budget for each order that an optimisation chooses (Bhattacharjee and Tandon 2024)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dagveil.curator import Curator, Question
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import asking, method
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteLaplace, Filter, PureFilter
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Traversal, prune

Pair = tuple[float, float]


class CurateSettings(asking.AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `curate`.

    - `margins`: β₁ and β₂: inside threshold·(1 − β₁) … threshold·(1 + β₂) a coin decides.
    - `band`: c₁ and c₂ of Lemma 1.
    - `slack`: By how many noise scales the threshold is eased, so that noise alone keeps few edges.
    - `neighbours`: Neighbours that an edge's end is expected to have after order 0: how many questions an order may
      take.
    - `hopeless`: An order above 0 whose noise scale exceeds so many thresholds is not run.
    """

    margins: tuple[asking.NotNegative, asking.NotNegative] = (0.2, 0.2)
    band: tuple[asking.NotNegative, asking.NotNegative] = (1.0, 1.0)
    slack: float = 0.5
    neighbours: asking.Count = 3
    hopeless: asking.Positive = 20.0


def error_surrogate(epsilons: NDArray[np.float64], distance: float, margins: Pair, band: Pair) -> float:
    """Return objective (2): Π q⁽¹⁾ + 1 − Π (1 − q⁽²⁾) over the orders that are left."""
    kept = band[0] / 2.0 + 0.5 * np.exp(-margins[0] * epsilons * distance)
    lost = band[1] / 2.0 + 0.5 * np.exp(-margins[1] * epsilons * distance)
    return float(np.prod(kept) + 1.0 - np.prod(np.maximum(1.0 - lost, 0.0)))


def allocate(
    amounts: Sequence[float], total: float, linear: Sequence[float], distance: float, margins: Pair, band: Pair
) -> NDArray[np.float64]:
    """Solve OPT: non-increasing epsilons of the orders that minimise the error under Σ (a ε² + b ε) ≤ total."""
    a, b = np.array(amounts, dtype=np.float64), np.array(linear, dtype=np.float64)
    equal = total / len(a)
    # the root of a ε² + b ε = equal, in the form that loses no digits; then made non-increasing
    # an order without questions takes nothing, so only its predecessor limits it
    below = b + np.sqrt(b * b + 4.0 * a * equal)
    start = np.minimum.accumulate(np.divide(2.0 * equal, below, out=np.full_like(below, np.inf), where=below > 0.0))
    # solved in units of the first order's epsilon: raw values can be 1e-4, too small for the solver's steps
    unit = max(float(start[0]), 1e-12)

    def spare(x: NDArray[np.float64]) -> float:
        return float(1.0 - ((a * x * unit + b) * np.abs(x) * unit).sum() / total)

    def error(x: NDArray[np.float64]) -> float:
        return error_surrogate(x * unit, distance, margins, band)

    falling = [{"type": "ineq", "fun": (lambda x, k=k: x[k] - x[k + 1])} for k in range(len(a) - 1)]
    limits, bounds = [{"type": "ineq", "fun": spare}, *falling], [(0.0, None)] * len(a)
    found = minimize(error, start / unit, method="SLSQP", bounds=bounds, constraints=limits).x
    found = np.minimum.accumulate(np.maximum(found, 0.0))
    while spare(found) < 0.0:  # the solver keeps its constraints only up to a tolerance
        found *= 1.0 - 1e-6
    return np.asarray(found * unit)


def accounting(budget: Budget, schema: Schema, settings: CurateSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter for the questions of all orders."""
    questions = asking.count_pairs(schema.columns, knowledge) * (1 + settings.largest_order)
    return asking.asking_filter(budget, settings.statistic, questions)


def ask(curator: Curator, knowledge: Knowledge, settings: CurateSettings, progress: Progress) -> asking.Asked:
    """Run the sound method: every question is charged, whatever its answer."""
    columns = tuple(curator.schema.columns)
    session = asking.ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, asking.Needs.NOISY_VALUE
    )
    distance = median(session.threshold((x, y, ())) for x, y in combinations(columns, 2))
    pure = isinstance(curator.accounting, PureFilter)
    low, high = 1.0 - settings.margins[0], 1.0 + settings.margins[1]
    planned: list[tuple[int, Fraction]] = []
    declined: list[str] = []
    epsilon = Fraction(0)

    def start_order(order: int, graph: Pruning) -> bool:
        nonlocal epsilon
        edges = graph.edges() if order else asking.count_pairs(columns, knowledge)
        orders = range(order, settings.largest_order + 1)
        asked = [edges * max(1, math.comb(settings.neighbours, j)) for j in orders]
        if order:  # the graph is known by now: count what this order can ask
            open_pairs = graph.open_pairs(order, Traversal.ONCE)
            asked[0] = sum(len(graph.sets(x, y, order, Traversal.ONCE)) for x, y in open_pairs)
        left = float(curator.accounting.remaining) * (1.0 - 1e-9)
        squares, linear = ([0.0] * len(asked), asked) if pure else ([t / 2.0 for t in asked], [0.0] * len(asked))
        found = allocate(squares, left, linear, distance, settings.margins, settings.band)
        epsilon = Fraction(float(found[0])).limit_denominator(2**40)
        if epsilon <= 0 or (order and 1.0 / float(epsilon) > settings.hopeless * distance):
            declined.append(
                f"Order {order} was not run: what is left of the budget would drown its questions in noise, so every "
                "edge that is left was kept without them."
            )
            return False
        planned.append((asked[0], epsilon))
        return True

    def is_independent(question: Question) -> bool:
        label = f"question of order {len(question[2])}"
        score, threshold = session.measure(question, epsilon, label, settings.slack)
        if low * threshold <= score <= high * threshold:
            return session.questions.flip_coin()
        return score < threshold

    sweep = prune(
        columns, is_independent, settings.largest_order, knowledge, Traversal.ONCE, start_order, progress=progress
    )
    stages = []
    for order, ((most, price), questions) in enumerate(zip(planned, sweep.asked, strict=False)):
        cost = curator.accounting.cost(DiscreteLaplace("question", 1, price))
        share = float(questions * cost / curator.accounting.total)
        why = f"epsilon {float(price):.3g} for each question; there was room for {most}"
        stages.append(Stage(f"order {order}", questions, questions, share, 2**0.5 / float(price), why))
    asked = session.conclude(columns, sweep, knowledge, *stages)
    return replace(asked, findings=(*asked.findings, *declined))


METHOD = method.Method(
    name="curate",
    title="PC with an optimised budget for each order",
    paper=method.BHATTACHARJEE_2024,
    data=method.COUNTED,
    cost="every question",
    settings=CurateSettings,
    accounting=accounting,
    check=method.check_counts,
    ask=ask,
    relative_time=2.0,
    sharp=(method.SharpCase(method.TWO_COLUMNS, method.FROM_PUBLIC_ROWS),),
)
