"""Wang, Pang and Song 2020 as published: SVT-PC, Priv-PC and the baseline with Gaussian noise on sub-samples."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from fractions import Fraction

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dagveil.curator import Question
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Positive, Rate, count_pairs
from dagveil.methods.sampled_gaussian_pc import read_rate
from dagveil.papers.common import (
    PublishedTests,
    advanced_composition,
    describe_published,
    largest_published_order,
    published_p_value_sensitivity,
)
from dagveil.papers.publication import Publication, PublishedAccess, Reading
from dagveil.privacy.budget import Budget
from dagveil.privacy.mechanisms.smooth_median import smooth_sensitivity
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.renyi import best_order, epsilon_of_renyi, smallest_ratio, subsampled_cost
from dagveil.progress import Progress
from dagveil.search.constraint.pc import prune

SVT_PC_FLAW = (
    "the last round of the sparse vector is not charged, the refreshed threshold carries Gaussian noise that nothing "
    "accounts for, and one record moves the p-value by far more than the stated sensitivity"
)


class SvtPcPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program.

    Parameters
    ----------
    threshold
        A pair with a larger p-value is taken for independent.
    round_epsilon
        Epsilon of each round. None takes a value whose reported total is near the run's epsilon.
    delta
        Of the reported total.
    """

    threshold: Level = 0.10
    round_epsilon: Positive | None = None
    delta: Level = 1e-3


def publish_svt_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: SvtPcPublished, progress: Progress
) -> Asked:
    """Run the published program: p-values, threshold refreshed with Gaussian noise, no limit of hits."""
    tests = PublishedTests(access)
    columns = tuple(access.schema.columns)
    epsilon = settings.round_epsilon or float(budget.epsilon) / (2.0 * len(columns))
    sensitivity = published_p_value_sensitivity(access.n_rows)
    rng = access.rng
    threshold = settings.threshold + rng.laplace(0.0, 2.0 * sensitivity / epsilon)
    hits = 0

    def is_independent(question: Question) -> bool:
        nonlocal threshold, hits
        if tests.kendall(question) + rng.laplace(0.0, 8.0 * sensitivity / epsilon) < threshold:
            return False
        hits += 1
        threshold = settings.threshold + rng.normal(0.0, 2.0 * sensitivity / epsilon)
        return True

    sweep = prune(
        columns, is_independent, largest_published_order(access.n_rows, len(columns)), knowledge, progress=progress
    )
    reported = (advanced_composition(epsilon, hits, settings.delta), settings.delta)
    return describe_published(access.schema, sweep, knowledge, reported)


SMALLEST_RATE = 1 / 20
"""The published search for the sub-sampling rate goes no lower."""


PRIV_PC_FLAW = (
    "one record moves the p-value by far more than the stated sensitivity (blocks of one record, blocks that switch in "
    "and out), and the refreshed threshold of the published algorithm lacks the factor √(n/m)"
)


class PrivPcPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program.

    Parameters
    ----------
    threshold
        A pair with a larger p-value is taken for independent.
    tweak
        By how much the sieve's threshold is lower.
    round_epsilon
        Epsilon of each round. None takes a value whose reported total is near the run's epsilon.
    rate
        Share of the records in each sub-sample. None searches for the one with the least noise.
    delta
        Of the reported total.
    """

    threshold: Level = 0.10
    tweak: float = 0.02
    round_epsilon: Positive | None = None
    rate: Rate | None = None
    delta: Level = 1e-3


def optimal_rate(epsilon: float) -> float:
    """Return the sub-sampling rate q in [1/20, 1] with the least published noise, √(1/q) / ln((e^(ε/2) − 1)/q + 1).

    Examples
    --------
    >>> round(optimal_rate(0.1), 2), round(optimal_rate(3.0), 2)
    (0.05, 0.89)
    """
    found = minimize_scalar(
        lambda q: math.sqrt(1.0 / q) / sieve_epsilon(epsilon, q),
        bounds=(SMALLEST_RATE, 1.0),
        method="bounded",
    )
    return float(min(1.0, max(SMALLEST_RATE, found.x)))


def sieve_epsilon(epsilon: float, rate: float) -> float:
    """Return ε′ = ln((e^(ε/2) − 1)/q + 1), what the sieve may spend on a sub-sample."""
    half = epsilon / 2.0
    if half > 500.0:  # the same, without overflow
        return half - math.log(rate)
    return math.log1p(math.expm1(half) / rate)


def type_one_bound(epsilon: float, epsilon_sieve: float, distance: float, tweak: float, sensitivity: float) -> float:
    """Bound the probability that sieve and examination turn away a question with f ≥ T + distance.

    Theorem 2 of Priv-PC, whose printed bound is the sieve's part alone; the examination with its noise Laplace(2Δ/ε)
    can turn the question away as well.

    Parameters
    ----------
    epsilon
        Of the round; the examination has half of it.
    epsilon_sieve
        ε′ of the sieve on the sub-sample.
    distance
        By how much the question passes the threshold.
    tweak
        By how much the sieve's threshold is lower.
    sensitivity
        Δ of the statistic.

    Examples
    --------
    >>> round(type_one_bound(1.0, 1.0, 20.0, 4.0, 1.0), 4)
    0.0183
    """
    return _sieve_bound(epsilon_sieve, distance + tweak, sensitivity) + _examination_bound(
        epsilon, distance, sensitivity
    )


def type_two_bound(epsilon: float, epsilon_sieve: float, distance: float, tweak: float, sensitivity: float) -> float:
    """Bound the probability that a question with f ≤ T − distance passes both; needs distance ≥ tweak.

    Parameters are those of `type_one_bound`. The printed bound is `published_type_two_bound`.

    Examples
    --------
    >>> round(type_two_bound(1.0, 1.0, 6.0, 4.0, 1.0), 4)
    0.0146
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


def publish_priv_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: PrivPcPublished, progress: Progress
) -> Asked:
    """Run the published program."""
    columns = tuple(access.schema.columns)
    epsilon = settings.round_epsilon or float(budget.epsilon) / (2.0 * len(columns))
    rate = settings.rate or optimal_rate(epsilon)
    size = max(1, int(rate * access.n_rows))
    inner = sieve_epsilon(epsilon, rate)
    sensitivity = published_p_value_sensitivity(access.n_rows)
    scale = 2.0 * sensitivity / (math.sqrt(rate) * inner)
    rng = access.rng
    whole = PublishedTests(access)
    part = threshold = None
    hits = 0

    def is_independent(question: Question) -> bool:
        nonlocal part, threshold, hits
        if part is None or threshold is None:
            part = whole if size >= access.n_rows else PublishedTests(access.subsample(size))
            threshold = settings.threshold - settings.tweak + rng.laplace(0.0, scale)
        if part.kendall(question) + rng.laplace(0.0, 2.0 * scale) < threshold:
            return False
        hits += 1
        part = threshold = None
        return whole.kendall(question) + rng.laplace(0.0, 2.0 * sensitivity / epsilon) >= settings.threshold

    sweep = prune(
        columns, is_independent, largest_published_order(access.n_rows, len(columns)), knowledge, progress=progress
    )
    reported = (2.0 * advanced_composition(epsilon / 2.0, hits, settings.delta), 2.0 * settings.delta)
    return describe_published(access.schema, sweep, knowledge, reported, sweep.questions + hits)


SAMPLED_GAUSSIAN_FLAW = "one record moves the p-value by far more than the stated sensitivity"


class SampledGaussianPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published comparison; rate and number of questions are not printed there.

    Parameters
    ----------
    threshold
        A pair with a larger p-value is taken for independent.
    rate
        Share of the records in each sub-sample.
    questions
        Questions that the noise is planned for. None takes three for each pair.
    delta
        Of the reported total.
    """

    threshold: Level = 0.10
    rate: Rate = 0.25
    questions: Count | None = None
    delta: Level = 1e-3


def publish_sampled_gaussian_pc(
    access: PublishedAccess,
    budget: Budget,
    knowledge: Knowledge,
    settings: SampledGaussianPublished,
    progress: Progress,
) -> Asked:
    """Run the baseline as published: the moments accountant over the published sensitivity."""
    columns = tuple(access.schema.columns)
    target = Budget(budget.epsilon, Fraction(settings.delta).limit_denominator(10**12))
    rate = read_rate(settings.rate)
    questions = settings.questions or 3 * count_pairs(columns, knowledge)
    order = best_order(target, rate, questions)
    ratio = smallest_ratio(target, rate, questions, order)
    size = max(1, int(rate * access.n_rows))
    deviation = math.sqrt(ratio) * published_p_value_sensitivity(size)

    def is_independent(question: Question) -> bool:
        p_value = PublishedTests(access.subsample(size)).kendall(question)
        return p_value + access.rng.normal(0.0, deviation) >= settings.threshold

    sweep = prune(
        columns, is_independent, largest_published_order(access.n_rows, len(columns)), knowledge, progress=progress
    )
    total = sweep.questions * subsampled_cost(rate, ratio, order)
    reported = (float(epsilon_of_renyi(total, order, target.delta)), settings.delta)
    return describe_published(access.schema, sweep, knowledge, reported)


class PublishedLaw(enum.Enum):
    """The two noise laws of the reconciled tests, as published."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


def published_constants(law: PublishedLaw, epsilon: float, delta: float) -> tuple[float, float]:
    """Return alpha and beta as printed with the reconciled tests (Priv-PC, appendix F). They carry no guarantee.

    Examples
    --------
    >>> published_constants(PublishedLaw.LAPLACE, 1.0, math.exp(-14))
    (0.5, 7.0)
    """
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
    """Draw the noise that the publication adds to the median. It carries no guarantee.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> published_median_noise([3, 4, 4], 0, 10, 1.0, 1e-6, PublishedLaw.LAPLACE, rng) != 0
    True
    """
    drawn = rng.laplace() if law is PublishedLaw.LAPLACE else rng.standard_normal()
    return published_scale(values, lower, upper, epsilon, delta, law) * float(drawn)


ONLY_THE_PROGRAM = "only the constants of the authors' program are declared so far"
PUBLICATIONS = {
    "svt-pc": Publication(
        {Calibration.PROGRAM: Reading(SvtPcPublished, publish_svt_pc, SVT_PC_FLAW)}, ONLY_THE_PROGRAM
    ),
    "priv-pc": Publication(
        {Calibration.PROGRAM: Reading(PrivPcPublished, publish_priv_pc, PRIV_PC_FLAW)}, ONLY_THE_PROGRAM
    ),
    "sampled-gaussian-pc": Publication(
        {Calibration.PAPER: Reading(SampledGaussianPublished, publish_sampled_gaussian_pc, SAMPLED_GAUSSIAN_FLAW)},
        "the authors' program does not hold this baseline",
    ),
}
