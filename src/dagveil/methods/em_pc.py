"""The method `em-pc`: node by node, how many neighbours to drop and which (Xu, Yuan and Wu 2017, there "PrivPC")."""

from fractions import Fraction
from typing import Annotated

import msgspec

from dagveil.curator import Curator, Question
from dagveil.data.schema import Schema
from dagveil.errors import BudgetExceededError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import asking
from dagveil.methods.method import COUNTED, TWO_COLUMNS, XU_2017, Method, SharpCase, check_counts
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import ExponentialChoice, Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Sweep, Traversal


class EmPcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the sound `em-pc`.

    - `statistic`: What is compared with the threshold.
    - `level`: Level of the noiseless test behind the threshold.
    - `order_shares`: Shares of the budget for order 0, 1, …, in proportion; their number is the number of orders.
    - `number_share`: Share of each node's budget for the choice of how many neighbours to drop; the rest is for which.
    """

    statistic: str = "kendall"
    level: asking.Level = 0.01
    order_shares: Annotated[tuple[asking.Positive, ...], msgspec.Meta(min_length=1)] = (0.4, 0.3, 0.3)
    number_share: asking.Part = 0.5


def accounting(budget: Budget, schema: Schema, settings: EmPcSettings, knowledge: Knowledge) -> Filter:
    """Choose the filter: about two choices for each node and order, and more where several neighbours go."""
    choices = 4 * len(schema.columns) * len(settings.order_shares)
    return asking.asking_filter(budget, settings.statistic, choices, ExponentialChoice)


def ask(curator: Curator, knowledge: Knowledge, settings: EmPcSettings, progress: Progress) -> asking.Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    largest_order = len(settings.order_shares) - 1
    session = asking.ThresholdedQuestions(
        curator, settings.statistic, settings.level, largest_order, asking.Needs.FIXED_NOISE
    )
    graph = Pruning(columns, knowledge)
    room = curator.accounting.remaining
    number_share = Fraction(settings.number_share).limit_denominator(1000)
    whole = sum(settings.order_shares)
    asked: list[int] = []
    stages: list[Stage] = []
    unanswered: list[tuple[str, str, int]] = []
    for order, share in enumerate(settings.order_shares):
        nodes = [x for x in columns if len(graph.neighbours(x)) > order and graph.removable(x)]
        if not nodes:
            break
        asked.append(0)
        # what an order leaves over goes to the next
        left = curator.accounting.remaining - room * Fraction(sum(settings.order_shares[order + 1 :]) / whole)
        amount = left * Fraction(999, 1000) / len(nodes)
        epsilon = epsilon_for(curator.accounting, amount * number_share, ExponentialChoice)
        why = f"{len(nodes)} nodes, epsilon {float(epsilon):.3g} for how many neighbours go and as much for which"
        part = session.share * share / whole
        stages.append(Stage(f"order {order}", len(nodes), len(nodes), part, 2.0 / float(epsilon), why))
        for place, x in enumerate(nodes):
            progress(f"order {order}", place, len(nodes))
            if len(graph.neighbours(x)) <= order or not graph.removable(x):
                continue
            try:
                asked[-1] += _treat_node(session, curator, graph, x, order, amount, number_share)
            except BudgetExceededError:
                unanswered += [(x, y, order) for y in graph.removable(x)]
    sweep = Sweep(graph.skeleton(), tuple(asked), tuple(unanswered))
    found, findings = asking.describe_sweep(columns, sweep, knowledge)
    return asking.Asked(found, (*session.plan, *stages), findings, sweep.questions, sweep.unanswered)


def _treat_node(
    session: asking.ThresholdedQuestions,
    curator: Curator,
    graph: Pruning,
    x: str,
    order: int,
    amount: Fraction,
    number_share: Fraction,
) -> int:
    """Drop neighbours of x; returns the number of questions that were scored."""
    options: dict[str, list[tuple[Question, float]]] = {}
    for y in graph.removable(x):
        questions: list[Question] = [(x, y, given) for given in graph.sets(x, y, order, Traversal.PUBLISHED)]
        if questions:
            options[y] = [(question, session.threshold(question)) for question in questions]
    if not options:
        return 0
    scored = sum(map(len, options.values()))
    epsilon = epsilon_for(curator.accounting, amount * number_share, ExponentialChoice)
    number = session.questions.choose_number(list(options.values()), epsilon, f"number at order {order}")
    for _ in range(number):
        epsilon = epsilon_for(curator.accounting, amount * (1 - number_share) / number, ExponentialChoice)
        rest = [asked for questions in options.values() for asked in questions]
        chosen = session.questions.choose_separation(rest, epsilon, f"separation at order {order}")
        _, y, given = rest[chosen][0]
        graph.remove(x, y, given)
        del options[y]
    return scored


METHOD = Method(
    name="em-pc",
    title="exponential mechanism: how many neighbours of each node go, and which",
    paper=XU_2017,
    data=COUNTED,
    cost="about two choices per node and order",
    settings=EmPcSettings,
    accounting=accounting,
    check=check_counts,
    ask=ask,
    relative_time=2.0,
    # one neighbour: how many go is the only choice, and a threshold far away makes one outcome rare
    sharp=(
        SharpCase(TWO_COLUMNS, {"statistic": "g", "order_shares": ("1",), "number_share": "0.999", "level": "1e-8"}),
    ),
)
