"""The method `priv-pc`: sieve on a sub-sample, then examine on all rows (Wang, Pang and Song 2020)."""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
from scipy.optimize import minimize_scalar

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import (
    Asked,
    AskingSettings,
    Count,
    Level,
    Needs,
    Part,
    Positive,
    Rate,
    ThresholdedQuestions,
    asking_filter,
    count_pairs,
    tell_sweep,
)
from dagveil.methods.method import COUNTED, FROM_PUBLIC_ROWS, TWO_COLUMNS, WANG_2020, Method, SharpCase, check_counts
from dagveil.methods.published import PublishedTests, advanced_composition, largest_published_order, tell_published
from dagveil.methods.svt_pc import THRESHOLD_SHARE
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune
from dagveil.statistics.kendall import published_p_value_sensitivity

SMALLEST_RATE = 1 / 20
"""The published search for the sub-sampling rate goes no lower."""

FLAW = (
    "one record moves the p-value by far more than the stated sensitivity (blocks of one record, blocks that switch in "
    "and out), and the refreshed threshold of the published algorithm lacks the factor √(n/m)"
)


class PrivPcSettings(AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `priv-pc`.

    Parameters
    ----------
    rounds
        Rounds of sieve and examination that the budget is divided into. None takes one and a half times the pairs.
    sieve_share
        Share of each round's budget for the sieve; the rest examines what passed.
    tweak
        By how many of its noise scales the sieve's threshold is eased.
    slack
        By how many noise scales an examined score may pass its threshold and still count as independent.
    rate
        Share of the records in each sub-sample. 1 is the most accurate: a smaller one only saves time.
    """

    rounds: Count | None = None
    sieve_share: Part = 0.5
    tweak: float = 1.0
    slack: float = 0.5
    rate: Rate = 1.0


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


def accounting(budget: Budget, schema: Schema, settings: PrivPcSettings, knowledge: Knowledge = NO_KNOWLEDGE) -> Filter:
    """Choose the filter: two charges for each round."""
    return asking_filter(
        budget, settings.statistic, 2 * (settings.rounds or default_rounds(count_pairs(schema.columns, knowledge)))
    )


def default_rounds(pairs: int) -> int:
    """Return the number of rounds that the budget is divided into: every pair, and as many false alarms again half."""
    return max(1, math.ceil(1.5 * pairs))


def ask(curator: Curator, knowledge: Knowledge, settings: PrivPcSettings, progress: Progress) -> Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    session = ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, Needs.NOISY_VALUE
    )
    rounds = settings.rounds or default_rounds(count_pairs(columns, knowledge))
    amount = curator.accounting.remaining / rounds
    sieve_share = Fraction(settings.sieve_share).limit_denominator(1000)
    rate = Fraction(settings.rate).limit_denominator(1000)
    sieve_epsilon = epsilon_for(curator.accounting, amount * sieve_share)
    epsilon = epsilon_for(curator.accounting, amount * (1 - sieve_share))
    sieve = session.questions.open_rounds(sieve_epsilon, THRESHOLD_SHARE, rate, "sieve round")
    tweak = settings.tweak * (sieve.question_scale + sieve.threshold_scale)

    def is_independent(question: Question) -> bool:
        if not sieve.looks_independent(question, session.threshold(question, settings.rate) + tweak):
            return False
        score, threshold = session.measure(question, epsilon, "examination", settings.slack)
        return score <= threshold

    sweep = prune(columns, is_independent, settings.largest_order, knowledge, Traversal.ONCE, progress=progress)
    graph, findings = tell_sweep(columns, sweep, knowledge)
    stage = Stage(
        "sieve and examine",
        session.questions.asked,
        session.questions.asked,
        session.share,
        sieve.question_scale * 2**0.5,
        f"{rounds} rounds: a sieve of epsilon {float(sieve_epsilon):.3g}, then an examination of {float(epsilon):.3g}",
    )
    return Asked(graph, (*session.plan, stage), findings, session.questions.asked, sweep.unanswered)


def publish(
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
    return tell_published(access.schema, sweep, knowledge, reported, sweep.questions + hits)


METHOD = Method(
    name="priv-pc",
    title="sieve on a sub-sample, examine on all rows",
    paper=WANG_2020,
    data=COUNTED,
    cost="one round per examined question, and one more",
    settings=PrivPcSettings,
    accounting=accounting,
    check=check_counts,
    ask=ask,
    published=PrivPcPublished,
    publish=publish,
    flaw=FLAW,
    relative_time=3.0,
    # the sieve lets everything pass, and nearly all of the budget examines one question
    sharp=(SharpCase(TWO_COLUMNS, {**FROM_PUBLIC_ROWS, "rounds": "1", "sieve_share": "0.001", "tweak": "20"}),),
)
