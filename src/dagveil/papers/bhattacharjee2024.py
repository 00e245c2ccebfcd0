"""Bhattacharjee and Tandon 2024: CURATE by constraints, as printed and as programmed, and by scores, as printed.

The program is `CURATE_cb.py` of the repository cgdCURATE. It writes OPT out for each of its six networks, with slips on
Survey; here OPT is solved as printed, for any number of columns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from scipy.optimize import minimize

from dagveil.curator import Question
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, NotNegative, Positive, Rate
from dagveil.methods.curate import Pair
from dagveil.methods.noleaks import Clip, Floats, Schedule, descend, describe_direction, epsilon_at, iterations_allowed
from dagveil.papers import ma2022, publication
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Traversal, prune
from dagveil.search.score.notears import forbidden_entries

ShareOfDelta = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class CuratePaper(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the text; margins, band and the total δ are not printed, and are those of the program.

    - `threshold`: T, on the p-value (section IV).
    - `margins`: β₁ and β₂.
    - `band`: c₁ and c₂ of Lemma 1.
    - `failure`: δ′ of advanced composition in each order.
    - `question_delta`: δ of each question.
    - `total_delta`: δ_Total: no order starts once the sum of δ′ + t δ has reached it.
    - `rate`: q: share of the records that are drawn once, before the first question (section IV).
    """

    threshold: Level = 0.05
    margins: tuple[NotNegative, NotNegative] = (0.2, 0.2)
    band: tuple[NotNegative, NotNegative] = (1.0, 1.0)
    failure: Level = 1e-12  # section IV
    question_delta: ShareOfDelta = 0.0  # algorithm 1, line 2: δ ≤ 10^(−1.5 m)
    total_delta: Level = 1e-10
    rate: Rate = 1.0


class CurateProgram(CuratePaper, frozen=True, kw_only=True):
    """Constants of the program, where they differ from the text's."""

    failure: Level = 1e-14  # delta_prime
    question_delta: ShareOfDelta = 1e-14  # delta_ad


def published_p_value_constant(block: int) -> float:
    """Return equation 16 times √n, the stated sensitivity of the p-value if a block of so many records changes.

    False: it multiplies the changes of two factors, and blocks switch in and out, whatever n is.
    """
    after = 9.0 * block * (block + 1) / (2.0 * (2.0 * (block + 1) + 5.0))
    before = 9.0 * block**2 / (2.0 * (2.0 * block + 5.0))
    return 2.0 / math.sqrt(math.pi) * (after - before) / (block - 1)


@dataclass(frozen=True, slots=True)
class CurateConduct:
    """What text and program do differently; comments name the lines of the program."""

    constant: float  # stated sensitivity of the p-value times √n, for blocks of two records, where it is largest
    coin: bool  # whether a coin decides inside the band; otherwise the edge stays
    counts_all: bool  # whether t counts every question, or only those that removed an edge or fell into the band
    # whether t goes on over the orders, so that earlier questions are charged again at each order's epsilon
    cumulative: bool
    updates_edges: bool  # whether e is the number of edges that are left
    amplifies: bool  # whether noise and charges use ln(1 + q(e^ε − 1))
    traversal: Traversal  # whether a question may come twice


CONDUCTS: Final = {
    Calibration.PAPER: CurateConduct(
        constant=published_p_value_constant(2),  # equation 16
        coin=True,  # section III-A, DP-CI test; algorithm 1, the third bullet
        counts_all=True,  # algorithm 1: t_i = t_i + 1 after each question
        cumulative=False,  # algorithm 1: t_i = 0 before each order
        updates_edges=True,  # algorithm 1: e_{i+1} = edges in updated graph
        amplifies=False,  # algorithm 1 draws Lap(Δ/ε_i) on the sub-sample
        traversal=Traversal.ONCE,  # algorithm 1: pairs that have not been tested on S
    ),
    Calibration.PROGRAM: CurateConduct(
        constant=published_p_value_constant(2) / math.sqrt(2.0),  # `maxi`, 0.3627: without the √2 of equation 15
        coin=False,  # seed(10000) before each randint(0, 1), which is then always 1: keep
        counts_all=False,  # `count` stands in the two branches of the band and of the removal
        cumulative=True,  # `count` is set to 0 before the loop over orders
        updates_edges=False,  # `deledge` grows only with method="stable", which is never given
        amplifies=True,  # eps = log(1 + q(exp(epsilon) − 1))
        traversal=Traversal.PUBLISHED,  # permutations(node_ids, 2)
    ),
}

SENSITIVITY_FLAW = "one record moves the p-value by far more than the stated sensitivity"
PROGRAM_FLAW = (
    f"{SENSITIVITY_FLAW}, and only questions that removed an edge or fell into the band are charged, after the run"
)


def order_leakage(epsilon: float, questions: int, failure: float) -> float:
    """Return tε² + ε√(2t ln(1/δ′)), what an order of questions leaks (section III-A)."""
    return questions * epsilon**2 + epsilon * math.sqrt(2.0 * questions * math.log(1.0 / failure))


def solve_opt(most: Sequence[int], total: float, failure: float, distance: float, margins: Pair, band: Pair) -> Floats:
    """Solve OPT (equation 3): non-increasing epsilons of the orders with the least error (2) that leak the total.

    SLSQP, as the authors use, from several starts, since the problem has local optima: nothing, equal shares, and the
    first k orders alone with one epsilon.
    """
    a = np.array(most, dtype=np.float64)
    b = np.sqrt(2.0 * a * math.log(1.0 / failure))
    whole, shared = np.cumsum(a), np.cumsum(b)
    levels = 2.0 * total / (shared + np.sqrt(shared**2 + 4.0 * whole * total))
    unit = float(levels[0])  # epsilons can be 1e-5, too small for the solver's steps
    corners = [np.where(np.arange(len(a)) <= k, levels[k] / unit, 0.0) for k in range(len(a))]
    share = total / len(a)
    equal = np.minimum.accumulate(2.0 * share / (b + np.sqrt(b**2 + 4.0 * a * share))) / unit
    slopes = np.array(margins) * distance * unit
    falling = np.eye(len(a))[:-1] - np.eye(len(a))[1:]

    def judge(x: Floats) -> tuple[float, Floats]:
        """Return the error and its gradient."""
        tails = 0.5 * np.exp(-np.outer(slopes, x))
        kept, lost = band[0] / 2.0 + tails[0], 1.0 - band[1] / 2.0 - tails[1]
        others = [np.prod(np.where(np.eye(len(x), dtype=bool), 1.0, rates), axis=1) for rates in (kept, lost)]
        gradient = -slopes[0] * tails[0] * others[0] - slopes[1] * tails[1] * others[1]
        return float(np.prod(kept) + 1.0 - np.prod(lost)), np.asarray(gradient)

    def leak(x: Floats) -> float:
        return float(((a * unit * x + b) * unit * x).sum()) / total

    limits = [
        {"type": "ineq", "fun": lambda x: 1.0 - leak(x), "jac": lambda x: -(2.0 * a * unit * x + b) * unit / total},
        {"type": "ineq", "fun": lambda x: falling @ x, "jac": lambda x: falling},
    ]
    rules: dict[str, Any] = {"bounds": [(0.0, None)] * len(a), "constraints": limits, "options": {"ftol": 1e-10}}

    def descend_from(x: Floats) -> Floats:
        found = minimize(judge, x, jac=True, method="SLSQP", **rules).x
        found = np.minimum.accumulate(np.maximum(found, 0.0))
        return np.asarray(found / max(1.0, leak(found)))  # the solver keeps its constraints up to a tolerance

    best = sorted(corners, key=lambda x: judge(x)[0])[:3]
    starts = [np.zeros(len(a)), equal, best[0], *(0.5 * (corner + equal) for corner in best[:2])]
    return unit * min([*best, *map(descend_from, starts)], key=lambda x: judge(x)[0])


def publish_curate(
    access: PublishedAccess,
    budget: Budget,
    knowledge: Knowledge,
    settings: CuratePaper,
    progress: Progress,
    conduct: CurateConduct,
) -> Asked:
    """Run constraint-based CURATE: before each order OPT divides what is left of the budget."""
    columns = tuple(access.schema.columns)
    d, total = len(columns), float(budget.epsilon)
    size = max(1, int(settings.rate * access.n_rows))
    tests = access if size >= access.n_rows else access.subsample(size)
    sensitivity = conduct.constant / math.sqrt(size)
    largest = publication.largest_published_order(access.n_rows, d) if conduct.cumulative else d - 2
    low, high = settings.threshold * (1.0 - settings.margins[0]), settings.threshold * (1.0 + settings.margins[1])
    epsilon, questions, counted, spent, delta, orders, stopped = 0.0, 0, 0, 0.0, 0.0, 0, False

    def charge_order() -> bool:
        """Charge the order that ends; returns whether another may start."""
        nonlocal spent, delta, counted
        spent += order_leakage(epsilon, questions, settings.failure)
        delta += settings.failure + questions * settings.question_delta
        counted += questions
        return delta < settings.total_delta and spent < total * (1.0 - 1e-9)

    def solve(order: int, edges: int) -> None:
        nonlocal epsilon, questions, orders
        most = [edges * math.comb(d - 2, j) for j in range(order, d - 1)]
        distance = settings.threshold / sensitivity
        found = solve_opt(most, total - spent, settings.failure, distance, settings.margins, settings.band)
        epsilon = max(float(found[0]), 1e-12)
        if conduct.amplifies and settings.rate < 1.0:
            epsilon = math.log1p(settings.rate * math.expm1(epsilon))
        questions, orders = questions if conduct.cumulative else 0, order + 1

    def start_order(order: int, graph: Pruning) -> bool:
        nonlocal stopped
        stopped = bool(order) and not charge_order()
        if not stopped:
            solve(order, graph.edges() if conduct.updates_edges else d * (d - 1) // 2)
        return not stopped

    def is_independent(question: Question) -> bool:
        nonlocal questions
        noisy = tests.kendall(question) + access.rng.laplace(0.0, sensitivity / epsilon)
        questions += conduct.counts_all or noisy > low
        return noisy > high or (conduct.coin and noisy >= low and bool(access.rng.random() < 0.5))

    sweep = prune(columns, is_independent, largest, knowledge, conduct.traversal, start_order, progress=progress)
    if not stopped and charge_order() and conduct.cumulative and orders <= largest:
        # the program begins one more order, finds no pair to test in it, and charges it all the same
        solve(orders, d * (d - 1) // 2)
        charge_order()
    asked = publication.describe_published(access.schema, sweep, knowledge, (spent, delta), counted=counted)
    told = (f"Order {orders} was not begun: ε or δ_Total was used up.",) if stopped else ()
    return replace(asked, findings=(*asked.findings, *told))


class CurateScorePaper(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of algorithm 2; what it leaves out is taken from NOLEAKS' artifact, whose descent it follows.

    - `schedule`: How the budget of each iteration follows from the first one's (section III-B).
    - `initial_share`: ε₀ over the run's epsilon.
    - `iterations`: Gradients of the run. None takes the number of Lemma 2, which spends the whole epsilon.
    - `to_the_end`: Divide k by I − 1, as algorithm 2 prints it; otherwise by I, as section III-B and Lemma 2 have it.
    - `outer`: Rounds of the augmented Lagrangian.
    - `penalty`: λ of the ℓ₁ penalty.
    - `clip`: Entries of the *mean* gradient are clipped to this.
    - `question_delta`: δ of each gradient.
    - `public_rows`: Records whose exact loss the line search reads for free.
    - `threshold`: Smallest weight that counts as an edge.
    """

    schedule: Schedule = Schedule.MULTIPLICATIVE
    initial_share: Rate = 1 / 30
    iterations: Count | None = None
    to_the_end: bool = False
    outer: Count = 10
    penalty: NotNegative = 0.1
    clip: Clip = 2.0
    question_delta: Positive = 1e-4
    public_rows: Count = 50
    threshold: Positive = 0.03


def publish_curate_score(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: CurateScorePaper, progress: Progress
) -> Asked:
    """Run algorithm 2; its gradient is taken where the weights are, not at W₀, as its line in the loop prints."""
    columns = tuple(access.schema.columns)
    d, total = len(columns), float(budget.epsilon)
    initial = total * settings.initial_share
    iterations = settings.iterations or max(1, int(iterations_allowed(settings.schedule, total, initial) + 1e-9))
    last = max(1, iterations - settings.to_the_end)
    coded = ma2022.encode_rows(access)
    moments, known = ma2022.second_moments(coded), ma2022.second_moments(coded[: settings.public_rows])
    sensitivity = ma2022.published_gradient_sensitivity(d, max(access.n_rows, 1), settings.clip)
    spent = 0.0

    def loss_gradient(weights: Floats, k: int) -> Floats:
        nonlocal spent
        epsilon = epsilon_at(settings.schedule, initial, k, last)
        spent += epsilon
        deviation = ma2022.gaussian_deviation(sensitivity, epsilon, settings.question_delta)
        mean = np.clip(-(moments @ (np.eye(d) - weights)), -settings.clip, settings.clip)
        noisy = mean + access.rng.normal(0.0, deviation, (d, d))
        np.fill_diagonal(noisy, 0.0)
        return np.asarray(noisy)

    def curvature(direction: Floats, k: int) -> float:
        return float(np.trace(direction.T @ known @ direction))

    counts = (iterations, min(settings.outer, iterations))
    forbidden = forbidden_entries(columns, knowledge)
    weights = descend(d, loss_gradient, curvature, *counts, settings.penalty, forbidden, progress)
    reported = (spent, iterations * settings.question_delta)
    told = describe_direction(settings.schedule, initial)
    return ma2022.describe_weights(access, weights, settings.threshold, knowledge, reported, iterations, told)


PUBLICATIONS = {
    "curate": Publication(
        {
            reading: Reading(settings, partial(publish_curate, conduct=CONDUCTS[reading]), flaw)
            for reading, settings, flaw in (
                (Calibration.PAPER, CuratePaper, SENSITIVITY_FLAW),
                (Calibration.PROGRAM, CurateProgram, PROGRAM_FLAW),
            )
        }
    ),
    "curate-score": Publication(
        {Calibration.PAPER: Reading(CurateScorePaper, publish_curate_score, ma2022.NOLEAKS_FLAW)},
        "the authors released it as an archive that was not at hand",
    ),
}
