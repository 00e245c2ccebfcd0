"""What papers state about themselves and no run uses: sensitivities, bounds on errors, numbers of tests.

From Wang, Pang and Song 2020; `error_bound` from Bhattacharjee and Tandon 2024, `most_*` from Xu, Yuan and Wu 2017.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dagveil.errors import MethodError
from dagveil.papers.wang2020 import SieveAndExamine
from dagveil.privacy.mechanisms.smooth_median import smooth_sensitivity


def published_kendall_sensitivity(n_rows: int) -> float:
    """Return 2/(n − 1), theorem 6, of Kendall's τ. False for n > 3: a record against all moves it by 4/(n + 1)."""
    return 2.0 / (n_rows - 1)


def published_conditional_kendall_sensitivity(n_rows: int, blocks: int = 1, smallest: float = math.inf) -> float:
    """Return theorem 7's (27/4 + 9/(2c₁))/√(c₂(n − k)), c₂ = 9c₁/(2(2c₁ + 5)), for k blocks of at least c₁ rows.

    Large blocks give theorem 3, 4.5/√n. False: 5.25/√n in one block, and no bound with blocks of one row.
    """
    weight = 9.0 / (2.0 * (2.0 + 5.0 / smallest))
    return (27.0 / 4.0 + 9.0 / (2.0 * smallest)) / math.sqrt(weight * (n_rows - blocks))


def published_spearman_sensitivity(n_rows: int) -> float:
    """Return 30/n, theorem 8. False for the printed ρ, which grows with n; true of the usual one, over n(n² − 1)."""
    return 30.0 / n_rows


def published_conditional_spearman_sensitivity(n_rows: int, blocks: int = 1, smallest: float = math.inf) -> float:
    """Return (31 + 30/c₁)/√(n − k), the proof of theorem 9, whose statement has a further √k. As true as theorem 8."""
    return (31.0 + 30.0 / smallest) / math.sqrt(n_rows - blocks)


def type_one_bound(epsilon: float, epsilon_sieve: float, distance: float, tweak: float, sensitivity: float) -> float:
    """Bound the probability that sieve and examination turn away a question with f ≥ T + distance.

    Theorem 2 of Priv-PC, whose printed bound, `published_type_one_bound`, is the sieve's part alone; the examination
    with its noise Laplace(2Δ/ε) can turn the question away as well.
    """
    return published_type_one_bound(epsilon_sieve, distance, tweak, sensitivity) + _examination_bound(
        epsilon, distance, sensitivity
    )


def published_type_one_bound(epsilon_sieve: float, distance: float, tweak: float, sensitivity: float) -> float:
    """Return the bound as printed, theorems 2 and 4: true of the sieve, and not of sieve and examination."""
    return _sieve_bound(epsilon_sieve, distance + tweak, sensitivity)


def type_two_bound(epsilon: float, epsilon_sieve: float, distance: float, tweak: float, sensitivity: float) -> float:
    """Bound the probability that a question with f ≤ T − distance passes both; needs distance ≥ tweak.

    Parameters are those of `type_one_bound`. The printed bound is `published_type_two_bound`.
    """
    if distance < tweak:
        raise MethodError(f"the bound needs a distance of at least the tweak; got {distance:g} and {tweak:g}")
    sieve = _sieve_bound(epsilon_sieve, distance - tweak, sensitivity)
    return sieve * _examination_bound(epsilon, distance, sensitivity)


def published_type_two_bound(
    epsilon: float, epsilon_sieve: float, distance: float, tweak: float, sensitivity: float
) -> float:
    """Return the bound as printed, with exp(−2ε·distance/Δ) for the examination: false for noise Laplace(2Δ/ε)."""
    sieve = _sieve_bound(epsilon_sieve, distance - tweak, sensitivity)
    return sieve * math.exp(-2.0 * epsilon * distance / sensitivity)


def _sieve_bound(epsilon_sieve: float, margin: float, sensitivity: float) -> float:
    """Neither threshold noise, of a third of the margin, nor question noise, of two thirds, may fail."""
    half = math.exp(-epsilon_sieve * margin / (6.0 * sensitivity))
    return half - 0.25 * half**2


def _examination_bound(epsilon: float, distance: float, sensitivity: float) -> float:
    return 0.5 * math.exp(-epsilon * distance / (2.0 * sensitivity))


def sieve_and_examine(
    on_sample: Iterable[float],
    on_all: Callable[[int], float],
    threshold: float,
    tweak: float,
    rate: float,
    epsilon: float,
    sensitivity: float,
    rng: np.random.Generator,
) -> int | None:
    """Run algorithm 1 once: the place of the first question that passes the sieve, if it passes the examination too."""
    rounds = SieveAndExamine((threshold - tweak, threshold), epsilon, rate, sensitivity, rng)
    for place, value in enumerate(on_sample):
        passed = rounds.passes(value, partial(on_all, place))
        if rounds.hits:
            return place if passed else None
    return None


class PublishedLaw(enum.Enum):
    """The two noise laws of the reconciled tests, as published."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


def published_constants(law: PublishedLaw, epsilon: float, delta: float) -> tuple[float, float]:
    """Return alpha and beta as printed with the reconciled tests (Priv-PC, appendix F). They carry no guarantee."""
    logarithm = -math.log(delta)
    if law is PublishedLaw.LAPLACE:
        return epsilon / 2, epsilon * logarithm / 2
    return epsilon / math.sqrt(logarithm), epsilon / (2 * logarithm)


def published_scale(
    values: Sequence[int] | NDArray[np.int64], lower: int, upper: int, epsilon: float, delta: float, law: PublishedLaw
) -> float:
    """Return the scale of the noise as printed: S / alpha, where S decays with e^(−k epsilon), not e^(−k beta)."""
    alpha, _ = published_constants(law, epsilon, delta)
    return float(smooth_sensitivity(values, lower, upper, epsilon)) / alpha


def published_median_noise(
    values: Sequence[int] | NDArray[np.int64],
    lower: int,
    upper: int,
    epsilon: float,
    delta: float,
    law: PublishedLaw,
    rng: np.random.Generator,
) -> float:
    """Draw the noise that the publication adds to the median. It carries no guarantee."""
    drawn = rng.laplace() if law is PublishedLaw.LAPLACE else rng.standard_normal()
    return published_scale(values, lower, upper, epsilon, delta, law) * float(drawn)


def error_bound(epsilon: float, distance: float, margin: float, band: float) -> float:
    """Return Lemma 1's bound c/2 + ½ exp(−β ε T/Δ) on a wrong decision, in which T/Δ is the threshold in records.

    With β₁ and c₁ it bounds the probability of keeping what the exact statistic removes, with β₂ and c₂ the opposite;
    c is the probability that the noisy value lands in the band where a coin decides.
    """
    return band / 2.0 + 0.5 * math.exp(-margin * epsilon * distance)


def most_tests(n_columns: int, largest_order: int) -> int:
    """Return 2·C(p, 2)·ΣC(p − 1, order), the text's bound on PC's tests (section III.A).

    Its printed "maximal value" of this, p²(p − 1)^(l−1)/(l − 1)!, is smaller than it, and no bound.
    """
    sets = sum(math.comb(n_columns - 1, order) for order in range(largest_order + 1))
    return n_columns * (n_columns - 1) * sets


def most_rounds(n_columns: int, largest_order: int) -> int:
    """Return (l + 1)·p, the nodes that PrivPC treats at most; section IV.C prints l·p, which leaves out order 0."""
    return (largest_order + 1) * n_columns
