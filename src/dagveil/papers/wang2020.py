"""Wang, Pang and Song 2020 as published: SVT-PC, Priv-PC and the baseline with Gaussian noise on sub-samples."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, Final

import msgspec
import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import ndtri

from dagveil.curator import Question
from dagveil.errors import BudgetExceededError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, Count, Level, Positive, Rate, count_pairs
from dagveil.papers import publication
from dagveil.papers.publication import Publication, PublishedAccess, Reading, advanced_composition
from dagveil.privacy.budget import Budget
from dagveil.privacy.receipt import Calibration
from dagveil.privacy.renyi import best_order, epsilon_of_renyi, smallest_ratio, subsampled_cost
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Sweep


@dataclass(frozen=True, slots=True)
class Score:
    """What a reading compares with its threshold; more speaks for independence."""

    of: Callable[[PublishedAccess, Question], float]  # the score of a question
    bar: Callable[[float], float]  # turns a one-sided p-value into a threshold
    sensitivity: Callable[[int], float]  # stated for a number of rows


# the text compares conditional Kendall's τ, the program its one-sided p-value
SCORES: Final = {
    # definition 6 and theorem 3; −|τ|, since section 2.3 wants scores that are large under independence
    Calibration.PAPER: Score(
        lambda access, question: -access.score(question),
        lambda level: float(ndtri(max(level, 0.0))),
        lambda n_rows: publication.PUBLISHED_KENDALL_CONSTANT / math.sqrt(n_rows),
    ),
    # src/indep_test.py, bincondKendall and discondKendall; src/pc.py, S
    Calibration.PROGRAM: Score(PublishedAccess.kendall, lambda level: level, publication.published_p_value_sensitivity),
}
SVT_PC_FLAW = (
    "the last round of the sparse vector is not charged, the refreshed threshold carries Gaussian noise that nothing "
    "accounts for, and one record moves the p-value by far more than the stated sensitivity"
)
ALGORITHM_5_FLAW = (
    "one record moves conditional Kendall's τ by more than the stated sensitivity: by 5.25/√n in one block of ordered "
    "levels, and by 1 whatever n is if all other blocks have one record"
)


class SvtPcPaper(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the text, which prints neither threshold nor quota; its epsilon is the run's.

    - `threshold`: A pair with a larger p-value is taken for independent; the program's value.
    - `quota`: Pairs that may be found independent. None takes all pairs.
    - `delta`: Of the total; 0 takes the pure variant of algorithm 5.
    """

    threshold: Level = 0.10
    quota: Count | None = None
    delta: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0


class SvtPcProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the program.

    - `threshold`: A pair with a larger p-value is taken for independent (src/eval.py, ALPHA).
    - `round_epsilon`: Epsilon of each round. None takes a value whose reported total is near the run's epsilon.
    - `delta`: Of the reported total (src/eval.py).
    """

    threshold: Level = 0.10
    round_epsilon: Positive | None = None
    delta: Level = 1e-3


class SparseVector:
    """Algorithm 5, with T, c, ε, δ and Δ: σ = 2cΔ/ε, or √(32c ln(1/δ))·Δ/ε if δ > 0; Laplace(2σ) on each question."""

    def __init__(
        self, threshold: float, quota: int, epsilon: float, delta: float, sensitivity: float, rng: np.random.Generator
    ) -> None:
        factor = math.sqrt(32.0 * quota * math.log(1.0 / delta)) if delta else 2.0 * quota
        self.scale = factor * sensitivity / epsilon
        self.left = quota
        self._threshold, self._rng = threshold, rng
        self._noisy = threshold + rng.laplace(0.0, self.scale)

    def passes(self, value: float) -> bool:
        """Say whether a question is above the threshold; beyond the quota nothing is answered."""
        if not self.left:
            raise BudgetExceededError("the quota of the sparse vector is used up")
        if value + self._rng.laplace(0.0, 2.0 * self.scale) < self._noisy:
            return False
        self.left -= 1
        self._noisy = self._threshold + self._rng.laplace(0.0, self.scale)
        return True


def publish_algorithm_5(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: SvtPcPaper, progress: Progress
) -> Asked:
    """Run PC with the sparse vector of the text: one epsilon and a quota for the whole run."""
    score = SCORES[Calibration.PAPER]
    vector = SparseVector(
        score.bar(settings.threshold),
        settings.quota or count_pairs(access.schema.columns, knowledge),
        float(budget.epsilon),
        settings.delta,
        score.sensitivity(access.n_rows),
        access.rng,
    )
    sweep = _prune(access, lambda question: vector.passes(score.of(access, question)), knowledge, progress)
    return publication.describe_published(access.schema, sweep, knowledge, (float(budget.epsilon), settings.delta))


def publish_svt_pc(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: SvtPcProgram, progress: Progress
) -> Asked:
    """Run the program: p-values, threshold refreshed with Gaussian noise, no limit of hits."""
    epsilon = settings.round_epsilon or publication.near_total(budget, access.schema)
    sensitivity = publication.published_p_value_sensitivity(access.n_rows)
    rng = access.rng
    threshold = settings.threshold + rng.laplace(0.0, 2.0 * sensitivity / epsilon)
    hits = 0

    def is_independent(question: Question) -> bool:
        nonlocal threshold, hits
        if access.kendall(question) + rng.laplace(0.0, 8.0 * sensitivity / epsilon) < threshold:
            return False
        hits += 1
        threshold = settings.threshold + rng.normal(0.0, 2.0 * sensitivity / epsilon)
        return True

    sweep = _prune(access, is_independent, knowledge, progress)
    reported = (advanced_composition(epsilon, hits, settings.delta), settings.delta)
    return publication.describe_published(access.schema, sweep, knowledge, reported)


SMALLEST_RATE = 1 / 20  # the published search for the sub-sampling rate goes no lower
PRIV_PC_FLAW = (
    "one record moves the p-value by far more than the stated sensitivity: blocks of one record, blocks that switch in "
    "and out"
)
ALGORITHM_2_FLAW = f"{ALGORITHM_5_FLAW}; and the refreshed threshold (line 15) lacks the factor √(n/m)"


class PrivPcPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the program, which the text does not print; under the text they are turned into values of τ.

    - `threshold`: A pair with a larger p-value is taken for independent (src/eval.py, ALPHA).
    - `tweak`: By how much the p-value of the sieve's threshold is lower (src/pc.py, bias).
    - `round_epsilon`: Epsilon of each round. None takes a value whose reported total is near the run's epsilon.
    - `rate`: Share of the records in each sub-sample. None searches for the one with the least noise; the program's
      search ends elsewhere.
    - `delta`: Of the reported total (src/eval.py).
    """

    threshold: Level = 0.10
    tweak: float = 0.02
    round_epsilon: Positive | None = None
    rate: Rate | None = None
    delta: Level = 1e-3


def optimal_rate(epsilon: float) -> float:
    """Return the sub-sampling rate q in [1/20, 1] with the least published noise, √(1/q) / ln((e^(ε/2) − 1)/q + 1)."""
    found = minimize_scalar(
        lambda q: math.sqrt(1.0 / q) / sieve_epsilon(epsilon, q), bounds=(SMALLEST_RATE, 1.0), method="bounded"
    )
    return float(min(1.0, max(SMALLEST_RATE, found.x)))


def program_rate(epsilon: float) -> float:
    """Return the rate at which the program's search ends (src/pc.py: BFGS over 1/q from ½, tolerance 0.01)."""

    def noise(inverse: publication.Floats) -> float:
        with np.errstate(all="ignore"):
            return float(np.sqrt(inverse[0]) / np.log(inverse[0] * np.expm1(epsilon / 2.0) + 1.0))

    with np.errstate(all="ignore"):
        return float(max(min(1.0 / minimize(noise, [0.5], tol=1e-2).x[0], 1.0), SMALLEST_RATE))


def sieve_epsilon(epsilon: float, rate: float) -> float:
    """Return ε′ = ln((e^(ε/2) − 1)/q + 1), what the sieve may spend on a sub-sample."""
    half = epsilon / 2.0
    # beyond 500 the same, without overflow
    return half - math.log(rate) if half > 500.0 else math.log1p(math.expm1(half) / rate)


class SieveAndExamine:
    """Algorithm 1, round after round: what passes a noisy threshold on a sub-sample is examined on all rows.

    - `thresholds`: the sieve's, T − t, and the examination's, T
    - `epsilon`, `rate`, `sensitivity`: ε of a round, m/n, and Δ on all rows
    - `growth`: factors of the sieve's noise: of each round's threshold but the first, and of everything else. Algorithm
      1 has none; algorithm 2 has √(n/m) in lines 5 and 11, and none in line 15.
    """

    def __init__(
        self,
        thresholds: tuple[float, float],
        epsilon: float,
        rate: float,
        sensitivity: float,
        rng: np.random.Generator,
        growth: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        scale = 2.0 * sensitivity / sieve_epsilon(epsilon, rate)
        self.refreshed_scale, self.threshold_scale = growth[0] * scale, growth[1] * scale
        self.question_scale, self.examination_scale = 2.0 * growth[1] * scale, 2.0 * sensitivity / epsilon
        self.hits = 0
        (self._sieve, self._whole), self._rng = thresholds, rng
        self._noisy = self._sieve + rng.laplace(0.0, self.threshold_scale)

    def passes(self, on_sample: float, on_all: Callable[[], float]) -> bool:
        """Say whether a question passes both; whoever passes the sieve ends the round."""
        if on_sample + self._rng.laplace(0.0, self.question_scale) < self._noisy:
            return False
        self.hits += 1
        self._noisy = self._sieve + self._rng.laplace(0.0, self.refreshed_scale)
        return on_all() + self._rng.laplace(0.0, self.examination_scale) >= self._whole


def publish_priv_pc(
    access: PublishedAccess,
    budget: Budget,
    knowledge: Knowledge,
    settings: PrivPcPublished,
    progress: Progress,
    reading: Calibration,
) -> Asked:
    """Run algorithm 2, or the program."""
    as_printed, score = reading is Calibration.PAPER, SCORES[reading]
    epsilon = settings.round_epsilon or publication.near_total(budget, access.schema)
    rate = settings.rate or (optimal_rate(epsilon) if as_printed else program_rate(epsilon))
    size = max(1, int(rate * access.n_rows))
    growth = math.sqrt(1.0 / rate)
    rounds = SieveAndExamine(
        (score.bar(settings.threshold - settings.tweak), score.bar(settings.threshold)),
        epsilon,
        rate,
        score.sensitivity(access.n_rows),
        access.rng,
        (1.0 if as_printed else growth, growth),  # algorithm 2, line 15; src/pc.py, sigma1
    )
    part, of_round = access, -1

    def is_independent(question: Question) -> bool:
        nonlocal part, of_round
        if size < access.n_rows and of_round < rounds.hits:
            part, of_round = access.subsample(size), rounds.hits
        return rounds.passes(score.of(part, question), lambda: score.of(access, question))

    sweep = _prune(access, is_independent, knowledge, progress)
    if as_printed:  # line 18, by theorem 1: every round is ε-private
        total = advanced_composition(epsilon, rounds.hits, settings.delta)
    else:  # src/pc.py: sieves and examinations apart, each with half of ε and of δ
        total = 2.0 * advanced_composition(epsilon / 2.0, rounds.hits, settings.delta / 2.0)
    return publication.describe_published(
        access.schema, sweep, knowledge, (total, settings.delta), sweep.questions + rounds.hits
    )


class SampledGaussianPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published comparison; rate and number of questions are not printed there.

    - `threshold`: A pair with a larger p-value is taken for independent.
    - `rate`: Share of the records in each sub-sample.
    - `questions`: Questions that the noise is planned for. None takes three for each pair.
    - `delta`: Of the reported total.
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
    target = Budget(budget.epsilon, Fraction(settings.delta).limit_denominator(10**12))
    rate = Fraction(settings.rate).limit_denominator(1000)
    questions = settings.questions or 3 * count_pairs(access.schema.columns, knowledge)
    order = best_order(target, rate, questions)
    ratio = smallest_ratio(target, rate, questions, order)
    size = max(1, int(rate * access.n_rows))
    score = SCORES[Calibration.PAPER]
    deviation = math.sqrt(ratio) * score.sensitivity(size)
    threshold = score.bar(settings.threshold)

    def is_independent(question: Question) -> bool:
        value = score.of(access.subsample(size), question)
        return value + access.rng.normal(0.0, deviation) >= threshold

    sweep = _prune(access, is_independent, knowledge, progress)
    total = sweep.questions * subsampled_cost(rate, ratio, order)
    reported = (float(epsilon_of_renyi(total, order, target.delta)), settings.delta)
    return publication.describe_published(access.schema, sweep, knowledge, reported)


def _prune(
    access: PublishedAccess, is_independent: Callable[[Question], bool], knowledge: Knowledge, progress: Progress
) -> Sweep:
    largest = publication.largest_published_order(access.n_rows, len(access.schema.columns))
    return publication.prune_published(access, is_independent, knowledge, progress, largest)


PUBLICATIONS = {
    "svt-pc": Publication(
        {
            Calibration.PAPER: Reading(SvtPcPaper, publish_algorithm_5, ALGORITHM_5_FLAW),
            Calibration.PROGRAM: Reading(SvtPcProgram, publish_svt_pc, SVT_PC_FLAW),
        }
    ),
    "priv-pc": Publication(
        {
            reading: Reading(PrivPcPublished, partial(publish_priv_pc, reading=reading), flaw)
            for reading, flaw in ((Calibration.PAPER, ALGORITHM_2_FLAW), (Calibration.PROGRAM, PRIV_PC_FLAW))
        }
    ),
    "sampled-gaussian-pc": Publication(
        {Calibration.PAPER: Reading(SampledGaussianPublished, publish_sampled_gaussian_pc, ALGORITHM_5_FLAW)},
        "the authors' program does not hold this baseline",
    ),
}
