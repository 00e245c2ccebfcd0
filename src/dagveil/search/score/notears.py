"""Linear NOTEARS from a covariance matrix.

Zheng, Aragam, Ravikumar and Xing, *DAGs with NO TEARS*, 2018. The loss ½ tr((I − W)ᵀ S (I − W)) needs the rows only
through their second moments S, so the cost does not grow with their number, and a noisy S that was released once
serves every iteration, every restart and every setting. Measures of cycles look at A = W∘W and add up closed walks with
positive weights: the exponential tr(exp A) − d = Σ tr(Aᵏ)/k!, the log-determinant −ln det(sI − A) + d ln s.

Which entries are edges, and what noise asks of the penalty and of the threshold, follows from public facts and the
noisy matrix, never from rows and never from a true graph; docs/methods/notears.md derives it.
"""

import enum
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from scipy.linalg import lapack

from dagveil.errors import GraphError, MethodError
from dagveil.evidence.moments import NoisyCovariance
from dagveil.graphs.knowledge import Knowledge

Floats = NDArray[np.float64]

LARGEST_NORM = 600.0  # beyond this the exponential of a matrix nears the end of double precision
_COEFFICIENTS = tuple(1.0 / math.factorial(k) for k in range(17))


class Acyclicity(enum.Enum):
    """Which measure of cycles the optimisation drives to zero."""

    EXPONENTIAL = "exponential"  # NOTEARS: tr(exp(W∘W)) − d, by the augmented Lagrangian
    LOG_DETERMINANT = "log-determinant"  # DAGMA: −ln det(sI − W∘W) + d ln s, along a central path


def measure_by_exponential(weights: Floats) -> tuple[float, Floats]:
    """Return tr(exp(W∘W)) − d and its gradient; infinity and zeros where that leaves double precision."""
    excess = exponentiate(weights * weights)
    if excess is None:
        return math.inf, np.zeros_like(weights)
    return float(np.trace(excess)), 2.0 * (excess.T * weights + np.diag(np.diag(weights)))


def measure_by_log_determinant(weights: Floats, level: float = 1.0) -> tuple[float, Floats]:
    """Return −ln det(sI − W∘W) + d ln s and its gradient, s being `level`.

    Outside of its domain, where W∘W has an eigenvalue of s or more, the value is infinite and the gradient zero.
    """
    d = len(weights)
    factors, pivots, failed = lapack.dgetrf(level * np.eye(d) - weights * weights, overwrite_a=1)
    if failed == 0:
        inverse, failed = lapack.dgetri(factors, pivots)
    # sI − A is an M-matrix, hence in the domain, exactly if its inverse has no negative entry
    if failed != 0 or not inverse.min() >= -1e-12:
        return math.inf, np.zeros_like(weights)
    value = d * math.log(level) - float(np.log(np.abs(np.diag(factors))).sum())
    return value, 2.0 * inverse.T * weights


def exponentiate(matrix: Floats) -> Floats | None:
    """Return exp(A) − I for a matrix without negative entries, or None where it would overflow.

    Taylor's sum of 16 terms after halving, then squaring as (I + X)² − I = 2X + X². No term is negative, so nothing
    cancels and even a tiny trace keeps its digits, where tr(exp A) − d would lose them.
    """
    norm = float(min(matrix.sum(axis=0).max(), matrix.sum(axis=1).max()))
    if not norm <= LARGEST_NORM:
        return None
    halvings = max(0, math.ceil(math.log2(norm))) if norm > 0.0 else 0
    first, c = matrix / 2.0**halvings, _COEFFICIENTS
    second = first @ first
    third, fourth = second @ first, second @ second
    total = c[13] * first + c[14] * second + c[15] * third + c[16] * fourth
    for k in (9, 5, 1):
        total = fourth @ total + c[k] * first + c[k + 1] * second + c[k + 2] * third + c[k + 3] * fourth
    for _ in range(halvings):
        total = total @ total + 2.0 * total
    return total


Smooth = Callable[[Floats], tuple[float, Floats]]

SUFFICIENT = 1e-4  # share of the promised decrease that a step must bring
MOST_HALVINGS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """Where a minimisation ended, and how often it evaluated the function."""

    point: Floats
    value: float
    evaluations: int


def minimise(
    smooth: Smooth,
    start: Floats,
    penalty: float,
    gradient_tolerance: float = 1e-5,
    value_tolerance: float = 1e-9,
    most_steps: int = 2000,
    memory: int = 10,
) -> Minimum:
    """Minimise smooth(x) + penalty · Σ|x|."""
    x = start
    value, gradient = smooth(x)
    value += penalty * float(np.abs(x).sum())
    evaluations = 1
    pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=memory)
    for _ in range(most_steps):
        slope = _generalised_gradient(x, gradient, penalty)
        if np.abs(slope).max(initial=0.0) <= gradient_tolerance:
            break
        direction = _bend(slope, pairs)
        direction[direction * slope >= 0.0] = 0.0
        orthant = np.where(x != 0.0, np.sign(x), -np.sign(slope))
        length = 1.0 if pairs else min(1.0, 1.0 / float(np.linalg.norm(slope)))
        for _ in range(MOST_HALVINGS):
            moved = x + length * direction
            moved[moved * orthant < 0.0] = 0.0
            new_value, new_gradient = smooth(moved)
            new_value += penalty * float(np.abs(moved).sum())
            evaluations += 1
            if new_value <= value + SUFFICIENT * float(slope @ (moved - x)):
                break
            length /= 2.0
        else:
            if not pairs:
                break
            pairs.clear()
            continue
        step, turn = moved - x, new_gradient - gradient
        curvature = float(step @ turn)
        if curvature > 1e-10 * float(turn @ turn):
            pairs.append((step, turn, curvature))
        gained = value - new_value
        x, value, gradient = moved, new_value, new_gradient
        if gained <= value_tolerance * max(abs(value), 1.0):
            break
    return Minimum(x, value, evaluations)


def _generalised_gradient(x: Floats, gradient: Floats, penalty: float) -> Floats:
    """Return the steepest ascent: at a zero entry the penalty takes up to its size from the gradient."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.where(x != 0.0, gradient + penalty * np.sign(x), at_zero)


def _bend(slope: Floats, pairs: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return minus the inverse Hessian, learned from past steps, times the slope."""
    direction = -slope
    if not pairs:
        return direction
    shares = []
    for step, turn, curvature in reversed(pairs):
        share = float(step @ direction) / curvature
        direction -= share * turn
        shares.append(share)
    _, turn, curvature = pairs[-1]
    direction *= curvature / float(turn @ turn)
    for (step, turn, curvature), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(turn @ direction) / curvature) * step
    return direction


Bools = NDArray[np.bool_]

PATH_LEVELS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""The level s of the log-determinant in each round of the central path; the last one stays."""

PATH_FACTOR = 10.0  # by how much the loss loses weight against cycles from one round of the central path to the next
UNIT_QUANTILE = 0.1  # columns of small variance tell the unit of the loss: they are near pure error
CYCLE_TOLERANCE = 1e-8  # the optimisation ends when tr(exp(W∘W)) − d is at most this
LARGEST_RHO = 1e16  # it also ends when cycles weigh this many times more than at the start
TOO_LARGE = 1e100  # stands for infinity where L-BFGS-B needs a number


@dataclass(frozen=True, slots=True)
class NotearsSettings:
    """Settings of the optimisation. None of them touches rows, so changing them costs nothing."""

    penalty: float = 0.1  # λ, the price of a unit of absolute weight
    acyclicity: Acyclicity = Acyclicity.LOG_DETERMINANT  # measure of cycles
    most_rounds: int = 100  # the optimisation ends after this many rounds, if not before

    def __post_init__(self) -> None:
        if not 0.0 <= self.penalty < math.inf:
            raise MethodError(f"penalty is {self.penalty:g}; choose a number of 0 or more")
        if self.most_rounds < 1:
            raise MethodError(f"most_rounds is {self.most_rounds}; choose 1 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A weighted graph that is nearly acyclic."""

    matrix: Floats  # ``matrix[i, j]`` is the effect of column i on column j
    violation: float  # tr(exp(W∘W)) − d: what is left of cycles
    rounds: int  # outer iterations
    evaluations: int  # how often the loss was computed


def find_weights(covariance: Floats, settings: NotearsSettings, forbidden: Bools | None = None) -> Weights:
    """Minimise ½ tr((I − W)ᵀ S (I − W)) + λ Σ|W| over weights without cycles.

    Negative eigenvalues of S are raised to 0 first, since the loss has no minimum with one; noise needs a higher floor.

    Which of several optima is reached hangs on rounding, so columns are taken in an order of their own: by the sum of
    their covariances, which is added up alike wherever they stand.
    """
    d = len(covariance)
    if covariance.shape != (d, d) or not np.isfinite(covariance).all():
        raise MethodError(
            f"a covariance matrix must be square and finite, and this one of shape {covariance.shape} is not; "
            "make it from moments of scaled columns"
        )
    free = ~np.eye(d, dtype=np.bool_)
    if forbidden is not None:
        if forbidden.shape != (d, d):
            raise MethodError(f"{d} columns need forbidden entries of shape ({d}, {d}), not {forbidden.shape}")
        free &= ~forbidden
    order = np.argsort(np.sort(np.abs(covariance), axis=1).sum(axis=1), kind="stable")
    sort, restore = np.ix_(order, order), np.ix_(*[np.argsort(order)] * 2)
    entries = np.flatnonzero(free[sort])
    if not len(entries):
        return Weights(np.zeros((d, d)), 0.0, 0, 0)
    problem = _Problem(raise_eigenvalues(covariance[sort], 0.0), entries)
    follow = _follow_lagrangian if settings.acyclicity is Acyclicity.EXPONENTIAL else _follow_path
    found = follow(problem, settings)
    return replace(found, matrix=found.matrix[restore])


def forbidden_entries(columns: Sequence[str], knowledge: Knowledge) -> Bools:
    """Return where knowledge allows no edge from the row's column to that of the column."""
    allowed = [[cause != effect and knowledge.allows(cause, effect) for effect in columns] for cause in columns]
    return ~np.array(allowed, dtype=np.bool_).reshape(len(columns), len(columns))


def raise_eigenvalues(matrix: Floats, floor: float) -> Floats:
    """Return the nearest symmetric matrix whose eigenvalues are at least `floor`."""
    symmetric: Floats = (matrix + matrix.T) / 2.0
    values, vectors = np.linalg.eigh(symmetric)
    if values.min(initial=math.inf) >= floor:
        return symmetric
    raised: Floats = (vectors * np.maximum(values, floor)) @ vectors.T
    return (raised + raised.T) / 2.0


def measure_loss(covariance: Floats, weights: Floats) -> tuple[float, Floats]:
    """Return ½ tr((I − W)ᵀ S (I − W)) and its gradient −S (I − W)."""
    rest = np.eye(len(weights)) - weights
    pulled = covariance @ rest
    return 0.5 * float(np.vdot(rest, pulled)), -pulled


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The covariance, and which entries of the weights are variables (positions in row-major order)."""

    covariance: Floats
    entries: NDArray[np.intp]

    def weights(self, point: Floats) -> Floats:
        d = len(self.covariance)
        matrix = np.zeros(d * d)
        matrix[self.entries] = point
        return matrix.reshape(d, d)

    def point(self, matrix: Floats) -> Floats:
        return matrix.reshape(-1)[self.entries]


def _follow_lagrangian(problem: _Problem, settings: NotearsSettings) -> Weights:
    """Run the published augmented Lagrangian, with L-BFGS-B on the positive and the negative parts of the weights."""
    size = len(problem.entries)
    point, bounds = np.zeros(2 * size), optimize.Bounds(0.0, np.inf)
    rho, multiplier, violation = 1.0, 0.0, math.inf
    rounds = evaluations = 0

    def price(parts: Floats) -> tuple[float, Floats]:
        weights = problem.weights(parts[:size] - parts[size:])
        cycles, cycle_gradient = measure_by_exponential(weights)
        if not cycles < TOO_LARGE:
            return TOO_LARGE, np.zeros(2 * size)
        value, gradient = measure_loss(problem.covariance, weights)
        value += (0.5 * rho * cycles + multiplier) * cycles + settings.penalty * float(parts.sum())
        slope = problem.point(gradient + (rho * cycles + multiplier) * cycle_gradient)
        return value, np.concatenate([slope, -slope]) + settings.penalty

    while rounds < settings.most_rounds:
        rounds += 1
        while True:
            found = optimize.minimize(price, point, jac=True, method="L-BFGS-B", bounds=bounds)
            evaluations += int(found.nfev)
            left, _ = measure_by_exponential(problem.weights(found.x[:size] - found.x[size:]))
            if left <= 0.25 * violation or rho >= LARGEST_RHO:
                break
            rho *= 10.0
        point, violation = found.x, left
        multiplier += rho * violation
        if violation <= CYCLE_TOLERANCE or rho >= LARGEST_RHO:
            break
    return Weights(problem.weights(point[:size] - point[size:]), violation, rounds, evaluations)


def _follow_path(problem: _Problem, settings: NotearsSettings) -> Weights:
    """Follow a central path: the loss against a log-determinant that weighs ten times more in each round.

    Bello, Aragam and Ravikumar, *DAGMA*, 2022, with a quasi-Newton method in place of Adam, and with the unit of the
    covariance taken out so that columns in other units take the same path.
    """
    unit = float(np.quantile(np.diag(problem.covariance), UNIT_QUANTILE))
    unit = unit if unit > 0.0 else 1.0
    covariance, penalty = problem.covariance / unit, settings.penalty / unit
    point, rho, violation = np.zeros(len(problem.entries)), 1.0, math.inf
    rounds = evaluations = 0
    while rounds < settings.most_rounds and violation > CYCLE_TOLERANCE and rho < LARGEST_RHO:
        level = PATH_LEVELS[min(rounds, len(PATH_LEVELS) - 1)]

        def price(parts: Floats, rho: float = rho, level: float = level) -> tuple[float, Floats]:
            weights = problem.weights(parts)
            cycles, cycle_gradient = measure_by_log_determinant(weights, level)
            if not math.isfinite(cycles):
                return math.inf, parts
            value, gradient = measure_loss(covariance, weights)
            return value + rho * cycles, problem.point(gradient + rho * cycle_gradient)

        found = minimise(price, point, penalty)
        point = found.point
        rounds += 1
        evaluations += found.evaluations
        violation, _ = measure_by_exponential(problem.weights(point))
        rho *= PATH_FACTOR
    return Weights(problem.weights(point), violation, rounds, evaluations)


LEVEL = 0.05  # chance of one false edge among all, for which Bonferroni's quantile is taken
THRESHOLD_SHARE = 0.5
"""Share of that quantile's error which an edge must exceed: the penalty has taken the rest from false edges already."""

SMALLEST_EFFECT = 0.05
"""Effects below this many spreads per spread are no edges, however little noise there is: optimisation leaves some."""

SMALLEST_PENALTY = 0.03
"""The penalty in units of an error's variance, however little noise there is: it keeps weak detours out."""

SMALLEST_EIGENVALUE = 1e-3  # floor for the eigenvalues of the scaled covariance when noise asks for less
RESIDUAL_SHARE = 0.5  # share of a scaled column's variance that is taken for its error where nothing is known yet


@dataclass(frozen=True, slots=True, eq=False)
class NoisyProblem:
    """What NOTEARS needs to know about noisy moments."""

    covariance: Floats  # in the chosen units, with its eigenvalues raised above the noise
    scales: Floats  # spread of each column in these units; a threshold is meant for weights in spreads per spread
    penalty: float  # for `NotearsSettings`
    threshold: float  # for `weights_to_dag`, with `scales`


def weights_to_dag(
    weights: Weights | Floats,
    threshold: float,
    scales: Floats | None = None,
    required: Iterable[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """Return the edges (cause, effect), as positions, above the smallest threshold that leaves no cycle."""
    size = np.abs(weights.matrix if isinstance(weights, Weights) else weights)
    if scales is not None:
        size = size * (scales[:, None] / scales[None, :])
    kept = np.zeros(size.shape, dtype=np.bool_)
    for cause, effect in required:
        kept[cause, effect] = True
    edges = kept | (size > acyclic_threshold(size, threshold, kept))
    return [(int(cause), int(effect)) for cause, effect in np.argwhere(edges)]


def acyclic_threshold(size: Floats, threshold: float, kept: Bools) -> float:
    """Return the smallest number, `threshold` or more, above which entries of `size` and those `kept` form a DAG."""
    if not is_acyclic(kept):
        raise GraphError(f"the {int(kept.sum())} required edges run in a circle; remove or turn one of them")
    steps = [threshold, *np.unique(size[size > threshold]).tolist()]
    place = bisect_left(steps, True, hi=len(steps) - 1, key=lambda step: is_acyclic(kept | (size > step)))
    return float(steps[place])


def is_acyclic(adjacency: Bools) -> bool:
    """Return whether a directed graph has no cycle: nodes without parents can be taken away until none is left."""
    left = adjacency
    while len(left):
        inner = left.any(axis=0)
        if inner.all():
            return False
        left = left[np.ix_(inner, inner)]
    return True


def pose(noisy: NoisyCovariance, scales: Floats) -> NoisyProblem:
    """Return the problem that a noisy covariance poses when its columns get these spreads."""
    d = len(scales)
    noise, n_rows = noisy.deviation, noisy.n_rows
    scaled = raise_eigenvalues(noisy.matrix, max(noise * math.sqrt(d), SMALLEST_EIGENVALUE))
    covariance = scaled * np.outer(scales, scales)
    if d < 2:
        return NoisyProblem(covariance, scales, 0.0, SMALLEST_EFFECT)
    quantile = -float(special.ndtri(LEVEL / (2 * d * (d - 1))))
    # deviation of an entry of the loss's gradient at the true weights: sampling, and noise times |(1, w)|² of about 2
    variances = np.diag(covariance)
    error = float(np.quantile(variances, UNIT_QUANTILE))
    pairs = ~np.eye(d, dtype=np.bool_)
    gradient = np.sqrt(variances[:, None] * error / n_rows + 2.0 * (noise * np.outer(scales, scales)) ** 2)
    # deviation of a regression coefficient of scaled columns: the same, through the inverse covariance
    inverse = float(np.diag(np.linalg.inv(scaled)).mean())
    coefficient = math.sqrt(inverse * RESIDUAL_SHARE / n_rows + 2.0 * (noise * inverse) ** 2)
    return NoisyProblem(
        covariance=covariance,
        scales=scales,
        penalty=max(quantile * float(np.median(gradient[pairs])), SMALLEST_PENALTY * error),
        threshold=max(THRESHOLD_SHARE * quantile * coefficient, SMALLEST_EFFECT),
    )
