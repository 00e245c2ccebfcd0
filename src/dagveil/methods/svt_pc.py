"""The method `svt-pc`: PC whose questions go through the sparse vector technique (Wang, Pang and Song 2020)."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import (
    Asked,
    AskingSettings,
    Count,
    Level,
    Needs,
    Positive,
    ThresholdedQuestions,
    asking_filter,
    count_pairs,
    tell_sweep,
)
from dagveil.methods.method import BLOCK, COUNTED, FROM_PUBLIC_ROWS, WANG_2020, Method, SharpCase, check_counts
from dagveil.methods.published import PublishedTests, advanced_composition, largest_published_order, tell_published
from dagveil.privacy.budget import Budget
from dagveil.privacy.filter import Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune
from dagveil.statistics.kendall import published_p_value_sensitivity

THRESHOLD_SHARE = Fraction(39, 100)
"""Share of a round's epsilon for the threshold: 1 : 2^(2/3) between threshold and questions has the least variance."""

FLAW = (
    "the last round of the sparse vector is not charged, the refreshed threshold carries Gaussian noise that nothing "
    "accounts for, and one record moves the p-value by far more than the stated sensitivity"
)


class SvtPcSettings(AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `svt-pc`.

    Parameters
    ----------
    rounds
        Rounds that the budget is divided into; one is spent for each removed edge. None takes the number of pairs.
    slack
        By how many noise scales a score may pass its threshold and still count as independent.
    """

    rounds: Count | None = None
    slack: float = 0.5


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


def accounting(budget: Budget, schema: Schema, settings: SvtPcSettings, knowledge: Knowledge = NO_KNOWLEDGE) -> Filter:
    """Choose the filter."""
    return asking_filter(budget, settings.statistic, settings.rounds or count_pairs(schema.columns, knowledge))


def ask(curator: Curator, knowledge: Knowledge, settings: SvtPcSettings, progress: Progress) -> Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    session = ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, Needs.FIXED_NOISE
    )
    rounds = settings.rounds or count_pairs(columns, knowledge)
    epsilon = epsilon_for(curator.accounting, curator.accounting.remaining / rounds)
    sieve = session.questions.open_rounds(epsilon, THRESHOLD_SHARE, Fraction(1), "sparse vector round")
    slack = settings.slack * (sieve.question_scale + sieve.threshold_scale)

    def is_independent(question: Question) -> bool:
        return sieve.looks_independent(question, session.threshold(question) + slack)

    sweep = prune(columns, is_independent, settings.largest_order, knowledge, Traversal.ONCE, progress=progress)
    graph, findings = tell_sweep(columns, sweep, knowledge)
    why = f"{rounds} rounds of epsilon {float(epsilon):.3g}; each removed edge ends one"
    asked = session.questions.asked
    stage = Stage("sparse vector", asked, asked, session.share, sieve.question_scale * 2**0.5, why)
    return Asked(graph, (*session.plan, stage), findings, asked, sweep.unanswered)


def publish(
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
    return tell_published(access.schema, sweep, knowledge, reported)


METHOD = Method(
    name="svt-pc",
    title="PC's questions through the sparse vector technique",
    paper=WANG_2020,
    data=COUNTED,
    cost="one round per removed edge, and one more",
    settings=SvtPcSettings,
    accounting=accounting,
    check=check_counts,
    ask=ask,
    published=SvtPcPublished,
    publish=publish,
    flaw=FLAW,
    relative_time=2.0,
    # one round of many questions: those that a record moves look like a threshold that moved, until one comes that the
    # record does not move
    sharp=(SharpCase(BLOCK, {**FROM_PUBLIC_ROWS, "rounds": "1", "level": "0.999", "slack": "0.17"}),),
)
