"""The method `sampled-gaussian-pc`: PC with Gaussian noise on fresh sub-samples, the baseline of Wang et al. 2020."""

import math
from fractions import Fraction

from dagveil.curator import Curator, Question
from dagveil.data.schema import Schema
from dagveil.errors import MethodError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import asking, method
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import Filter
from dagveil.privacy.renyi import RenyiFilter, best_order, smallest_ratio
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Traversal, prune


class SampledGaussianSettings(asking.AskingSettings, frozen=True, kw_only=True):
    """Settings of the sound `sampled-gaussian-pc`.

    - `rate`: Probability with which each record is kept for a question.
    - `questions`: Questions that the budget is divided into. None takes three for each pair.
    - `slack`: By how many noise deviations a score may pass its threshold and still count as independent.
    """

    rate: asking.Rate = 0.25
    questions: asking.Count | None = None
    slack: float = 0.5


def check(schema: Schema, knowledge: Knowledge) -> None:
    """Refuse what Poisson sub-samples cannot be accounted for."""
    method.check_counts(schema, knowledge)
    if schema.relation != Relation.ADD_REMOVE.value:
        raise MethodError(
            "sampled-gaussian-pc takes Poisson sub-samples, which are accounted for under add/remove neighbours only; "
            "the schema declares replaced records. Choose `svt-pc` or `priv-pc`, or change the relation."
        )


def accounting(budget: Budget, schema: Schema, settings: SampledGaussianSettings, knowledge: Knowledge) -> Filter:
    """Rényi accounting at the order that needs the least noise for the planned questions."""
    questions = settings.questions or 3 * asking.count_pairs(schema.columns, knowledge)
    return RenyiFilter(budget, best_order(budget, Fraction(settings.rate).limit_denominator(1000), questions))


def ask(curator: Curator, knowledge: Knowledge, settings: SampledGaussianSettings, progress: Progress) -> asking.Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    session = asking.ThresholdedQuestions(
        curator, settings.statistic, settings.level, settings.largest_order, asking.Needs.FIXED_NOISE
    )
    rate = Fraction(settings.rate).limit_denominator(1000)
    questions = settings.questions or 3 * asking.count_pairs(columns, knowledge)
    spent = curator.accounting.spent / curator.accounting.total
    order = best_order(curator.accounting.budget, rate, questions)
    # a larger number of questions pays for what was spent before
    ratio = smallest_ratio(curator.accounting.budget, rate, math.ceil(questions / (1 - spent)), order)
    slack = settings.slack * math.sqrt(ratio)

    def is_independent(question: Question) -> bool:
        answer = session.questions.answer_from_sample(question, rate, ratio, "question on a sub-sample")
        return answer.score <= session.threshold(question, settings.rate) + slack

    sweep = prune(columns, is_independent, settings.largest_order, knowledge, Traversal.ONCE, progress=progress)
    why = f"fresh sub-samples of {float(rate):.3g} of the records, Renyi order {order}"
    asked = session.questions.asked
    stage = Stage("questions on sub-samples", asked, asked, session.share, math.sqrt(ratio), why)
    return session.conclude(columns, sweep, knowledge, stage)


METHOD = method.Method(
    name="sampled-gaussian-pc",
    title="Gaussian noise on fresh sub-samples, a baseline",
    paper=method.WANG_2020,
    data=method.COUNTED,
    cost="every question",
    settings=SampledGaussianSettings,
    accounting=accounting,
    check=check,
    ask=ask,
    # a quarter of the rows moves G by less than is declared for all, and Kendall's sum hardly
    sharp=(
        method.SharpCase(method.TWO_COLUMNS, {**method.ONE_QUESTION, "questions": "1"}),
        method.SharpCase(method.TWO_COLUMNS, {**method.FROM_PUBLIC_ROWS, "questions": "1", "rate": "1"}),
    ),
)
