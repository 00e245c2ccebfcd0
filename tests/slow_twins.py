"""Plain forms of what the library computes faster, or in parts; tests compare the two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dagveil.privacy.mechanisms.exponential import Weights
from dagveil.privacy.noise.source import NoiseSource
from dagveil.search.score.order_mcmc import _Choices
from dagveil.statistics.gcm import gcm_p_value, gcm_sums
from dagveil.statistics.kernels import Floats


def exact_hsic(gram_u: Floats, gram_v: Floats) -> float:
    """Return the published tr(K H L H)/(m − 1)² with H = I − 1/m."""
    slots = len(gram_u)
    centred = gram_u - gram_u.mean(axis=0) - gram_u.mean(axis=1)[:, None] + gram_u.mean()
    return float(np.vdot(centred, gram_v)) / (slots - 1) ** 2


def exact_gcm(u: Floats, v: Floats, bound: float = 2.0) -> float:
    """Return the p-value without noise."""
    total, squares = gcm_sums(u, v, bound)
    return gcm_p_value(total, squares, len(u), 0.0, 0.0)


def one_sided_p_value_slope() -> float:
    """Return the Lipschitz constant of the p-value sf(|T|) in T: 1/√(2π), the density at 0 (docs/proofs/kendall.md)."""
    return math.nextafter(1.0 / math.sqrt(2.0 * math.pi), 1.0)


def score_order(choices: Sequence[_Choices], order: Sequence[int]) -> float:
    """Return the log of the summed weights of all graphs that fit an order."""
    earlier, total = 0, 0.0
    for node in order:
        total += choices[node].weigh(earlier)[0]
        earlier |= 1 << node
    return total


def choose_by_loss(losses: Sequence[Fraction], noise: NoiseSource) -> int:
    """Choose a position with probability in proportion to exp(−loss), exactly; losses are at least 0."""
    grid = math.lcm(*(Fraction(loss).denominator for loss in losses))
    return Weights([int(loss * grid) for loss in losses], Fraction(1, grid)).draw(range(len(losses)), noise)


def epsilon_of_response(n_values: int, truth: float) -> float:
    """Return the ε at which randomised response tells the truth so often."""
    return math.log(truth * (n_values - 1) / (1.0 - truth)) if n_values > 1 else 0.0
