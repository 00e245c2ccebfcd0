"""Kernel questions about numeric columns, each charged before its noise is drawn. What leaves is a bit or a score.

Rows are levelled to a public number of slots, so neighbours differ in one slot (docs/proofs/fixed-slots.md). Statistics
are divided by what one slot can move them: scores of sensitivity 1, as in a question session, on the same grid.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dagveil.curator.gate import Gate
from dagveil.curator.questions import RECORD, Floats, Question
from dagveil.data.moments import AdditiveFunction
from dagveil.data.selection import check_slots
from dagveil.data.table import Table
from dagveil.errors import MethodError
from dagveil.privacy.budget import Relation
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.statistics.gcm import gcm_sensitivities
from dagveil.statistics.kernels import kernel_features, paired_root_hsic_sensitivity, root_hsic, root_hsic_sensitivity
from dagveil.statistics.residuals import (
    residual_rank_score,
    residual_rank_sensitivity,
    residual_sensitivity,
    ridge_residuals_by_features,
)


@dataclass(frozen=True, slots=True)
class NoisySums:
    """Noisy sums over slots of clipped residuals u and v, with the variances of their noise."""

    products: float  # Σ uv
    squares: float  # Σ (uv)²
    first: float  # Σ u: clipping skewed residuals moves their means away from 0
    second: float  # Σ v
    variance_products: float
    variance_squares: float
    variance_first: float
    variance_second: float

    def centre(self, slots: int, spread: float) -> tuple[float, float]:
        """Return Σ uv − m ū v̄, with means shrunk to their usual spread around 0, and the noise's variance."""
        (u, spread_u), (v, spread_v) = (
            _shrink(total / slots, variance / slots**2, spread**2)
            for total, variance in ((self.first, self.variance_first), (self.second, self.variance_second))
        )
        means = u**2 * spread_v + v**2 * spread_u + spread_u * spread_v
        return self.products - slots * u * v, self.variance_products + slots**2 * means


def _shrink(mean: float, variance: float, prior: float) -> tuple[float, float]:
    """Return mean and variance of what is behind a noisy mean, itself around 0 with the prior variance."""
    share = prior / (prior + variance)
    return share * mean, share * variance


# sensitivities are raised by this part, and by a thousandth of it, so that float rounding cannot exceed them
ROUNDING: Final = 1e-6
COLUMN_REACH: Final = 2.0
RESIDUAL_REACH: Final = 4.0  # largest distance of two values of a column in [-1, 1], and of two residuals in [-2, 2]
_PERMUTED_CELLS: Final = 2**22


@dataclass(frozen=True, slots=True)
class Ridge:
    """Kernel ridge regression with a public penalty and bandwidth; its residuals depend on all rows."""

    penalty: float
    bandwidth: float


class PublicFunctions(Protocol):
    """Regression functions that were computed from released values. It is told names only, never rows."""

    def function(self, target: str, given: tuple[str, ...]) -> AdditiveFunction:
        """Give the function that predicts a column from others, in scaled units."""


Regression = Ridge | PublicFunctions


@dataclass(frozen=True, slots=True)
class HsicTest:
    """A permutation test of independence by root HSIC; everything here is public."""

    regression: Regression
    level: float = 0.05  # bounds the probability of calling independent columns dependent
    permutations: int = 99  # level × (permutations + 1) must be at least 1
    bandwidth: float = 0.5  # of both Gaussian kernels, in half-widths of the bounds

    def __post_init__(self) -> None:
        check_permutations(self.level, self.permutations)


@dataclass(frozen=True, slots=True)
class NoisyDifference:
    """A noisy difference of two scores of dependence, and the scale of its Laplace noise."""

    value: float
    scale: float


class KernelQuestions:
    """Kernel questions about rows on a public number of slots: sensitivities hold under both relations."""

    def __init__(self, table: Table, relation: Relation, slots: int, gate: Gate) -> None:
        check_slots(slots)
        if slots < 2:
            raise MethodError(
                f"kernel questions need at least 2 slots, not {slots}; declare nominal_rows in the schema"
            )
        self._table = table
        self._gate = gate
        self.relation = relation
        self.slots = slots
        self.asked = 0

    def permutation_bit(self, question: Question, epsilon: Fraction, test: HsicTest, label: str) -> bool:
        """Tell whether x and y look dependent given the set, by a private permutation test.

        Noise is added to the statistic and to each permuted one. Given the permutations and the noise of the permuted
        ones, the bit is a threshold on the statistic less a quantile of the others. One slot moves that by what it
        moves the statistic and a permuted one by, together, and the noise of the statistic covers it. The same noise on
        the others keeps the level (docs/proofs/permutation-test.md).
        """
        if question[2]:
            u, v, residual = self._residuals(question, test.regression)
            kernel = kernel_features(test.bandwidth, RESIDUAL_REACH)
        else:
            u, v = self._table.levelled_rows(question[:2], self.slots).T
            residual, kernel = 0.0, kernel_features(test.bandwidth, COLUMN_REACH)
        sensitivity = root_hsic_sensitivity(self.slots, kernel, kernel, residual, residual)
        paired = paired_root_hsic_sensitivity(self.slots, kernel, kernel, residual, residual)
        # in grid steps: a permuted statistic moves by a record, the statistic itself by less
        moved = RECORD + min(RECORD, math.ceil(RECORD * _raise(paired) / _raise(sensitivity)))
        scale = self._gate.representable_scale(moved / epsilon)
        scores = _to_grid(self._permuted(kernel.map(u), kernel.map(v), test.permutations), sensitivity)
        event = DiscreteLaplace(label, 1, epsilon)
        bit = self._gate.is_among_largest(scores, scale, event, largest_rank(test.level, test.permutations), question)
        self.asked += 1
        return bit

    def gcm(
        self,
        question: Question,
        epsilons: tuple[Fraction, Fraction, Fraction],
        functions: PublicFunctions,
        bound: float,
        label: str,
    ) -> NoisySums:
        """Return noisy sums of residual products, of their squares and of residuals, cut to [-bound, bound].

        The epsilons are those of the sum of products, of the sum of their squares, and of the two sums of residuals
        together; the functions predict both columns given the set, which may be empty.
        """
        u, v, residual = self._residuals(question, functions)
        first, second = (np.clip(part, -bound, bound) for part in (u, v))
        products = first * second
        # rounded once at the end: the order of the slots makes no difference
        values = [math.fsum(terms.tolist()) for terms in (products, products**2, first, second)]
        # functions are public, so a slot moves its own residual only
        sensitivities = (*gcm_sensitivities(self.slots, bound, residual), 2.0 * bound, 2.0 * bound)
        exact = np.array([_to_grid(np.array(one), moved) for one, moved in zip(values, sensitivities, strict=True)])
        each = (*epsilons[:2], epsilons[2] / 2, epsilons[2] / 2)
        scales = [self._gate.representable_scale(RECORD / epsilon) for epsilon in each]
        draws = zip(("products", "squares", "residuals"), (1, 1, 2), epsilons, strict=True)
        events = [DiscreteLaplace(f"{label}, {name}", count, epsilon) for name, count, epsilon in draws]
        released = self._gate.add_laplace(exact, events, scales, question)
        self.asked += 1
        units = [_raise(moved) / RECORD for moved in sensitivities]
        noisy = [value * unit for value, unit in zip(released.tolist(), units, strict=True)]
        variances = [float(laplace_variance(scale)) * unit**2 for scale, unit in zip(scales, units, strict=True)]
        return NoisySums(*noisy, *variances)

    def hsic_difference(
        self, x: str, y: str, epsilon: Fraction, regression: Regression, bandwidth: float, label: str
    ) -> NoisyDifference:
        """Return the root HSIC of x and y's residual less that of y and x's: below zero speaks for x → y."""
        cause, rest = kernel_features(bandwidth, COLUMN_REACH), kernel_features(bandwidth, RESIDUAL_REACH)
        nothing = np.empty((0, self.slots), dtype=np.intp)
        value = sensitivity = 0.0
        for sign, (source, target) in ((1.0, (x, y)), (-1.0, (y, x))):
            column, residuals, moved = self._explain(source, target, regression)
            value += sign * float(root_hsic(cause.map(column), rest.map(residuals), nothing)[0])
            sensitivity += paired_root_hsic_sensitivity(self.slots, cause, rest, 0.0, moved)
        return self._release_difference(value, sensitivity, epsilon, label, (x, y))

    def rank_difference(
        self, x: str, y: str, epsilon: Fraction, functions: PublicFunctions, label: str
    ) -> NoisyDifference:
        """Return the same difference for a score by ranks: how the size of residuals goes with the cause."""
        value = 0.0
        for sign, (source, target) in ((1.0, (x, y)), (-1.0, (y, x))):
            column, residuals, _ = self._explain(source, target, functions)
            value += sign * residual_rank_score(column, residuals)
        return self._release_difference(value, 2.0 * residual_rank_sensitivity(self.slots), epsilon, label, (x, y))

    def _release_difference(
        self, value: float, sensitivity: float, epsilon: Fraction, label: str, asked: tuple[str, str]
    ) -> NoisyDifference:
        scale = self._gate.representable_scale(RECORD / epsilon)
        exact = _to_grid(np.array([value]), sensitivity)
        noisy = self._gate.add_laplace(exact, [DiscreteLaplace(label, 1, epsilon)], [scale], asked)
        self.asked += 1
        unit = _raise(sensitivity) / RECORD
        return NoisyDifference(int(noisy[0]) * unit, float(scale) * unit)

    def _explain(self, source: str, target: str, regression: Regression) -> tuple[Floats, Floats, float]:
        """Return a column, the residual of another given it, and what one slot moves residuals of other slots by."""
        rows = self._table.levelled_rows((source, target), self.slots)
        if isinstance(regression, Ridge):
            residuals = ridge_residuals_by_features(rows[:, :1], rows[:, 1], regression.penalty, regression.bandwidth)
            return rows[:, 0], residuals, residual_sensitivity(self.slots, regression.penalty)
        return rows[:, 0], rows[:, 1] - regression.function(target, (source,)).values(rows[:, :1]), 0.0

    def _residuals(self, question: Question, regression: Regression) -> tuple[Floats, Floats, float]:
        """Return what the set leaves of both columns, and what one slot moves residuals of other slots by."""
        x, y, given = question
        rows = self._table.levelled_rows((*given, x, y), self.slots)
        conditions, targets = rows[:, :-2], rows[:, -2:]
        if isinstance(regression, Ridge):
            residuals = ridge_residuals_by_features(conditions, targets, regression.penalty, regression.bandwidth)
            return residuals[:, 0], residuals[:, 1], residual_sensitivity(self.slots, regression.penalty)
        u, v = (
            targets[:, place] - regression.function(name, given).values(conditions) for place, name in enumerate((x, y))
        )
        return u, v, 0.0

    def _permuted(self, u: Floats, v: Floats, count: int) -> Floats:
        """Return the statistic and so many permuted ones, in blocks of bounded memory.

        Orders must be secret and uniform: the proof puts the slots of two neighbours in line with each other.
        """
        parts: list[Floats] = []
        step = max(1, _PERMUTED_CELLS // self.slots)
        for start in range(0, count, step):
            drawn = [self._gate.permute(self.slots) for _ in range(min(step, count - start))]
            values = root_hsic(u, v, np.stack(drawn))
            parts.append(values if not parts else values[1:])
        return np.concatenate(parts)


def check_permutations(level: float, permutations: int) -> None:
    """Refuse so few permutations that the test could never reject."""
    if largest_rank(level, permutations) < 1:
        raise MethodError(
            f"{permutations} permutations cannot reject at level {level:g}: level times (permutations + 1) must be at "
            f"least 1; choose at least {math.ceil(1 / level) - 1} permutations"
        )


def largest_rank(level: float, permutations: int) -> int:
    """Return among how many largest of the B + 1 the statistic must be."""
    # decimal fractions such as 0.05 lie a little beside the float: a level times a whole number must not lose a rank
    return math.floor(Fraction(level).limit_denominator(10**6) * (permutations + 1))


def _raise(sensitivity: float) -> float:
    return sensitivity * (1.0 + ROUNDING) + ROUNDING / 1000.0


def _to_grid(values: Floats, sensitivity: float) -> NDArray[np.int64]:
    """Divide by the sensitivity and round down to the grid: one slot moves the result by at most one record."""
    return np.floor(values * (RECORD / _raise(sensitivity))).astype(np.int64)
