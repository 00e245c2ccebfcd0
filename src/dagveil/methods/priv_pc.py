"""The method `priv-pc`: sieve on a sub-sample, then examine on all rows (Wang, Pang and Song 2020)."""

import math
from fractions import Fraction

from dagveil.curator import Curator, Question
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import asking
from dagveil.methods.method import COUNTED, FROM_PUBLIC_ROWS, TWO_COLUMNS, WANG_2020, Method, SharpCase, check_counts
from dagveil.methods.svt_pc import THRESHOLD_SHARE
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune


class PrivPcSettings(asking.AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `priv-pc`.

    - `rounds`: Rounds of sieve and examination that the budget is divided into. None takes one and a half times the
      pairs.
    - `sieve_share`: Share of each round's budget for the sieve; the rest examines what passed.
    - `tweak`: By how many of its noise scales the sieve's threshold is eased.
    - `slack`: By how many noise scales an examined score may pass its threshold and still count as independent.
    - `rate`: Share of the records in each sub-sample. 1 is the most accurate: a smaller one only saves time.
    """

    rounds: asking.Count | None = None
    sieve_share: asking.Part = 0.5
    tweak: float = 1.0
    slack: float = 0.5
    rate: asking.Rate = 1.0


def accounting(budget: Budget, schema: Schema, settings: PrivPcSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter: two charges for each round."""
    rounds = settings.rounds or default_rounds(asking.count_pairs(schema.columns, knowledge))
    return asking.asking_filter(budget, settings.statistic, 2 * rounds)


def default_rounds(pairs: int) -> int:
    """Return the number of rounds that the budget is divided into: every pair, and as many false alarms again half."""
    return max(1, math.ceil(1.5 * pairs))


def ask(curator: Curator, knowledge: Knowledge, settings: PrivPcSettings, progress: Progress) -> asking.Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    session = asking.ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, asking.Needs.NOISY_VALUE
    )
    rounds = settings.rounds or default_rounds(asking.count_pairs(columns, knowledge))
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
    asked = session.questions.asked
    why = f"{rounds} rounds: a sieve of epsilon {float(sieve_epsilon):.3g}, then an examination of {float(epsilon):.3g}"
    stage = Stage("sieve and examine", asked, asked, session.share, sieve.question_scale * 2**0.5, why)
    return session.conclude(columns, sweep, knowledge, stage)


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
    relative_time=3.0,
    # the sieve lets everything pass, and nearly all of the budget examines one question
    sharp=(SharpCase(TWO_COLUMNS, {**FROM_PUBLIC_ROWS, "rounds": "1", "sieve_share": "0.001", "tweak": "20"}),),
)
