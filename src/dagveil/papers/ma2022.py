"""Ma, Ji, Pang and Wang 2022: NoLeaks as its authors' artifact has it, and what score-based CURATE takes from it.

Files of the artifact are `notears/noleaks.py` and `notears/bnlearn.py`. It chooses the edge threshold with the true
graph, among 2000; a run has no truth, so `threshold` is a setting here, and only studies choose by the truth.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dagveil.data.column import Numeric
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, NotNegative, Positive
from dagveil.methods.noleaks import Clip, Floats, read_graph
from dagveil.papers.publication import Publication, PublishedAccess, Reading, describe_report
from dagveil.privacy.budget import Budget, mu_squared_of
from dagveil.privacy.receipt import Calibration
from dagveil.progress import Progress
from dagveil.search.score.notears import forbidden_entries, measure_by_exponential

COLUMN_SCALE: Final = 20.0  # bnlearn.py, read_tsv: what λ = 0.1 belongs to
PROGRAM_FACTOR: Final = 2.0  # noleaks.py, l2_sensitivity, beside CURATE's √(d(d − 1)) s/n (section II)
LINE_SEARCH_ROWS: Final = 1000  # noleaks.py, subsample_size, if there are no public rows
LAGRANGIAN: Final = (1e-8, 1e16)  # noleaks.py, h_tol and rho_max
USUAL_GRADIENTS: Final = 500  # about what a run asks for; the artifact is given an ε per gradient, not a total


def published_gradient_sensitivity(n_columns: int, n_rows: int, clip: float) -> float:
    """Return √(d(d − 1)) s / n, NOLEAKS' sensitivity of a gradient whose *mean* was clipped entry by entry at s.

    False: clipping a mean bounds the mean, not what one record does to it.
    """
    return math.sqrt(n_columns * (n_columns - 1)) * clip / n_rows


NOLEAKS_FLAW = (
    "the mean gradient is clipped instead of each record's, so one record moves it by many times the stated "
    "sensitivity, and the line search reads rows that are called public"
)


class NoleaksProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the artifact.

    - `rows`: Records that are used; the total is multiplied by their share, as amplification.
    - `public_rows`: Further records whose loss the line search reads for free. 0 reads the loss of 1000 of the used
      ones, and charges ln((n + 1)/(n − 999)) and δ = 1000/n for it.
    - `penalty`: λ of the ℓ₁ penalty.
    - `clip`: Entries of the *mean* gradient are clipped to this.
    - `gradient_epsilon`: Epsilon of each gradient. None takes a value whose reported total is near the run's epsilon.
    - `question_delta`: δ of each gradient.
    - `outer`: Most rounds of the augmented Lagrangian.
    - `threshold`: Smallest weight that counts as an edge; the artifact chooses it by the truth.
    - `private`: False neither clips nor draws noise, and reads the loss of all used records.
    """

    rows: Count = 5000
    public_rows: Annotated[int, msgspec.Meta(ge=0)] = 50
    penalty: NotNegative = 0.1
    clip: Clip = 2.0
    gradient_epsilon: Positive | None = None
    question_delta: Positive = 1e-4
    outer: Count = 100
    threshold: Positive = 0.03
    private: bool = True


def encode_rows(access: PublishedAccess) -> Floats:
    """Return the rows as the artifact codes them, centred and in random order.

    A level becomes the middle of its share of [0, 1], the most frequent one first, times 20. Numbers keep their units.
    """
    columns = tuple(access.schema.columns)
    coded = access.exact_rows(columns)[access.rng.permutation(access.n_rows)]
    for place, column in enumerate(access.schema.columns.values()):
        if isinstance(column, Numeric):
            coded[:, place] *= (column.bounds[1] - column.bounds[0]) / 2.0
            continue
        _, codes, counts = np.unique(coded[:, place], return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        ends = np.cumsum(counts[order]) / max(len(coded), 1)
        middles = np.empty(len(counts))
        middles[order] = ends - counts[order] / max(len(coded), 1) / 2.0
        coded[:, place] = COLUMN_SCALE * middles[codes]
    return np.asarray(coded - coded.mean(axis=0)) if len(coded) else coded


def second_moments(rows: Floats) -> Floats:
    """Return XᵀX/n: the loss ½‖X − XW‖²/n and its gradient depend on the rows through it alone."""
    return np.asarray(rows.T @ rows / max(len(rows), 1))


def gaussian_deviation(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return σ of the analytic Gaussian mechanism (CURATE's equation 1): its curve passes through epsilon and delta."""
    budget = Budget(Fraction(epsilon), Fraction(delta).limit_denominator(10**15))
    return sensitivity / math.sqrt(mu_squared_of(budget))


def minimise(
    loss: Callable[[Floats], float],
    gradient: Callable[[Floats], Floats],
    d: int,
    penalty: float,
    outer: int,
    forbidden: NDArray[np.bool_],
    progress: Progress,
) -> Floats:
    """Minimise loss and ℓ₁ penalty without cycles, as the artifact does: L-BFGS-B on positive and negative parts."""
    tolerance, largest = LAGRANGIAN
    found, rho, alpha, cycles = np.zeros(2 * d * d), 1.0, 0.0, math.inf
    bounds = [(0.0, 0.0) if entry else (0.0, None) for entry in np.tile(forbidden.ravel(), 2)]

    def weigh(parts: Floats) -> Floats:
        return np.asarray((parts[: d * d] - parts[d * d :]).reshape(d, d))

    def objective(parts: Floats) -> float:
        h, _ = measure_by_exponential(weigh(parts))
        return loss(weigh(parts)) + 0.5 * rho * h * h + alpha * h + penalty * float(parts.sum())

    def slope(parts: Floats) -> Floats:
        h, of_cycles = measure_by_exponential(weigh(parts))
        with np.errstate(invalid="ignore"):  # steps that a noisy line search takes can be too long for floats
            smooth = gradient(weigh(parts)) + (rho * h + alpha) * of_cycles
        return np.concatenate((smooth + penalty, -smooth + penalty), axis=None)

    for number in range(outer):
        progress("rounds", number, outer)
        before = cycles
        while rho < largest:
            found = minimize(objective, found, method="L-BFGS-B", jac=slope, bounds=bounds).x
            cycles, _ = measure_by_exponential(weigh(found))
            if cycles <= 0.25 * before:
                break
            rho *= 10.0
        alpha += rho * cycles
        if cycles <= tolerance or rho >= largest:
            break
    return weigh(found)


def noleaks_weights(
    access: PublishedAccess, epsilon: float, knowledge: Knowledge, settings: NoleaksProgram, progress: Progress
) -> tuple[Floats, tuple[float, float], int]:
    """Return the weights of the artifact, epsilon and delta as it reports them, and the number of gradients."""
    columns = tuple(access.schema.columns)
    d, whole = len(columns), max(access.n_rows, 1)
    coded = encode_rows(access)
    used = coded[: settings.rows]
    n = max(len(used), 1)
    moments = second_moments(used)
    price, failure, asked = 0.0, 0.0, 0
    known = moments
    if settings.private and settings.public_rows:
        known = second_moments(coded[len(used) : len(used) + settings.public_rows])
    elif settings.private:
        known = second_moments(used[:LINE_SEARCH_ROWS])
        price = math.log((n + 1) / (n + 1 - LINE_SEARCH_ROWS)) if n >= LINE_SEARCH_ROWS else math.inf
        failure = LINE_SEARCH_ROWS / n
    each = settings.gradient_epsilon or epsilon * whole / (n * USUAL_GRADIENTS)
    sensitivity = PROGRAM_FACTOR * published_gradient_sensitivity(d, n, settings.clip)
    deviation = gaussian_deviation(sensitivity, each, settings.question_delta)
    identity = np.eye(d)

    def loss(weights: Floats) -> float:
        rest = identity - weights
        return 0.5 * float(np.trace(rest.T @ known @ rest))

    def gradient(weights: Floats) -> Floats:
        nonlocal asked
        asked += 1
        mean = -(moments @ (identity - weights))
        if settings.private:
            mean = np.clip(mean, -settings.clip, settings.clip) + access.rng.normal(0.0, deviation, (d, d))
            np.fill_diagonal(mean, 0.0)
        return np.asarray(mean)

    forbidden = forbidden_entries(columns, knowledge)
    weights = minimise(loss, gradient, d, settings.penalty, settings.outer, forbidden, progress)
    share = n / whole
    totals = (price + asked * each) * share, (failure + asked * settings.question_delta) * share
    return weights, totals, asked


def publish_noleaks(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: NoleaksProgram, progress: Progress
) -> Asked:
    """Run the artifact."""
    weights, totals, asked = noleaks_weights(access, float(budget.epsilon), knowledge, settings, progress)
    reported = totals if settings.private else None
    return describe_weights(access, weights, settings.threshold, knowledge, reported, asked)


def describe_weights(
    access: PublishedAccess,
    weights: Floats,
    threshold: float,
    knowledge: Knowledge,
    reported: tuple[float, float] | None,
    asked: int,
    *told: str,
) -> Asked:
    """Write down what a descent found, and what its publication would report."""
    report = describe_report(reported) if reported else "No noise was drawn."
    findings = (f"{asked} gradients were asked.", *told, report)
    graph = read_graph(tuple(access.schema.columns), weights, threshold, knowledge)
    return Asked(graph, (), findings, asked, (), reported)


PUBLICATIONS = {
    "noleaks": Publication(
        {Calibration.PROGRAM: Reading(NoleaksProgram, publish_noleaks, NOLEAKS_FLAW)},
        "only the authors' artifact was at hand, not the text",
    ),
}
