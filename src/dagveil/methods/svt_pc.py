"""The method `svt-pc`: PC whose questions go through the sparse vector technique (Wang, Pang and Song 2020)."""

from fractions import Fraction

from dagveil.curator import Curator, Question
from dagveil.data.schema import Schema
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import asking
from dagveil.methods.method import BLOCK, COUNTED, FROM_PUBLIC_ROWS, WANG_2020, Method, SharpCase, check_counts
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune

THRESHOLD_SHARE = Fraction(39, 100)
"""Share of a round's epsilon for the threshold: 1 : 2^(2/3) between threshold and questions has the least variance."""


class SvtPcSettings(asking.AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `svt-pc`.

    - `rounds`: Rounds that the budget is divided into; one is spent for each removed edge. None takes the number of
      pairs.
    - `slack`: By how many noise scales a score may pass its threshold and still count as independent.
    """

    rounds: asking.Count | None = None
    slack: float = 0.5


def accounting(budget: Budget, schema: Schema, settings: SvtPcSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter."""
    rounds = settings.rounds or asking.count_pairs(schema.columns, knowledge)
    return asking.asking_filter(budget, settings.statistic, rounds)


def ask(curator: Curator, knowledge: Knowledge, settings: SvtPcSettings, progress: Progress) -> asking.Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    session = asking.ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, asking.Needs.FIXED_NOISE
    )
    rounds = settings.rounds or asking.count_pairs(columns, knowledge)
    epsilon = epsilon_for(curator.accounting, curator.accounting.remaining / rounds)
    sieve = session.questions.open_rounds(epsilon, THRESHOLD_SHARE, Fraction(1), "sparse vector round")
    slack = settings.slack * (sieve.question_scale + sieve.threshold_scale)

    def is_independent(question: Question) -> bool:
        return sieve.looks_independent(question, session.threshold(question) + slack)

    sweep = prune(columns, is_independent, settings.largest_order, knowledge, Traversal.ONCE, progress=progress)
    why = f"{rounds} rounds of epsilon {float(epsilon):.3g}; each removed edge ends one"
    asked = session.questions.asked
    stage = Stage("sparse vector", asked, asked, session.share, sieve.question_scale * 2**0.5, why)
    return session.conclude(columns, sweep, knowledge, stage)


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
    relative_time=2.0,
    # one round of many questions: those that a record moves look like a threshold that moved, until one comes that the
    # record does not move
    sharp=(SharpCase(BLOCK, {**FROM_PUBLIC_ROWS, "rounds": "1", "level": "0.999", "slack": "0.17"}),),
)
