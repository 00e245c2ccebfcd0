"""The method `em-pc`: node by node, how many neighbours to drop and which (Xu, Yuan and Wu 2017, there "PrivPC")."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Annotated

import msgspec
import numpy as np
from scipy.special import chdtri

from dagveil.curator import Curator, PublishedAccess, Question
from dagveil.data.schema import Schema
from dagveil.errors import BudgetExceededError
from dagveil.evidence.bundle import Stage
from dagveil.graphs.knowledge import NO_KNOWLEDGE, Knowledge
from dagveil.methods.asking import (
    Asked,
    Count,
    Level,
    Needs,
    Part,
    Positive,
    ThresholdedQuestions,
    asking_filter,
    tell_sweep,
)
from dagveil.methods.method import COUNTED, TWO_COLUMNS, XU_2017, Method, SharpCase, check_counts
from dagveil.methods.published import PublishedTests, g_p_value, g_test, tell_published
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import ExponentialChoice
from dagveil.privacy.filter import Filter
from dagveil.privacy.mechanisms.laplace import epsilon_for
from dagveil.progress import Progress
from dagveil.search.constraint.pc import Pruning, Sweep
from dagveil.statistics.distance import greedy_distance

FLAW = (
    "the distance jumps from +1 to −1 and so has sensitivity 2, the score of the extreme conditioning set jumps when "
    "the set changes, the greedy distance is not the distance, and arrows use the raw separating set"
)


class EmPcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the sound `em-pc`.

    Parameters
    ----------
    statistic
        What is compared with the threshold.
    level
        Level of the noiseless test behind the threshold.
    order_shares
        Shares of the budget for order 0, 1, …, in proportion; their number is the number of orders.
    number_share
        Share of each node's budget for the choice of how many neighbours to drop; the rest is for which.
    """

    statistic: str = "kendall"
    level: Level = 0.01
    order_shares: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)] = (0.4, 0.3, 0.3)
    number_share: Part = 0.5


class EmPcPublished(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the published program.

    Parameters
    ----------
    level
        Of the G test.
    node_epsilon
        ε₁ + ε₂ of each node and order. None takes ε/15, as the publication does.
    number_share
        Share of it for the number of neighbours to drop, which is ε₂; the rest, ε₁, is for which.
    node_limit
        Nodes that may be treated before the budget is spent. None takes 15 if node_epsilon is None, else no limit.
    whole_domain
        Whether the number to drop may be all neighbours; the published program leaves that one out.
    """

    level: Level = 0.10
    node_epsilon: Positive | None = None
    number_share: Part = 0.5
    node_limit: Count | None = None
    whole_domain: bool = False


def accounting(budget: Budget, schema: Schema, settings: EmPcSettings, knowledge: Knowledge = NO_KNOWLEDGE) -> Filter:
    """Choose the filter: about two choices for each node and order, and more where several neighbours go."""
    choices = 4 * len(schema.columns) * len(settings.order_shares)
    return asking_filter(budget, settings.statistic, choices, ExponentialChoice)


def ask(curator: Curator, knowledge: Knowledge, settings: EmPcSettings, progress: Progress) -> Asked:
    """Run the sound method."""
    columns = tuple(curator.schema.columns)
    largest_order = len(settings.order_shares) - 1
    session = ThresholdedQuestions(curator, settings.statistic, settings.level, largest_order, Needs.FIXED_NOISE)
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
        stages.append(
            Stage(f"order {order}", len(nodes), len(nodes), session.share * share / whole, 2.0 / float(epsilon), why)
        )
        for place, x in enumerate(nodes):
            progress(f"order {order}", place, len(nodes))
            if len(graph.neighbours(x)) <= order or not graph.removable(x):
                continue
            try:
                asked[-1] += _treat_node(session, curator, graph, x, order, amount, number_share)
            except BudgetExceededError:
                unanswered += [(x, y, order) for y in graph.removable(x)]
    sweep = Sweep(graph.skeleton(), tuple(asked), tuple(unanswered))
    found, findings = tell_sweep(columns, sweep, knowledge)
    return Asked(found, (*session.plan, *stages), findings, sweep.questions, sweep.unanswered)


def _treat_node(
    session: ThresholdedQuestions,
    curator: Curator,
    graph: Pruning,
    x: str,
    order: int,
    amount: Fraction,
    number_share: Fraction,
) -> int:
    """Drop neighbours of x; returns the number of questions that were scored."""
    options: dict[str, list[tuple[Question, float]]] = {}
    others = graph.neighbours(x)
    for y in graph.removable(x):
        questions: list[Question] = [(x, y, given) for given in combinations([z for z in others if z != y], order)]
        options[y] = [(question, session.threshold(question)) for question in questions]
    options = {y: asked for y, asked in options.items() if asked}
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


def publish(
    access: PublishedAccess, budget: Budget, knowledge: Knowledge, settings: EmPcPublished, progress: Progress
) -> Asked:
    """Run the published program."""
    columns = tuple(access.schema.columns)
    tests = PublishedTests(access)
    graph = Pruning(columns, knowledge)
    epsilon = settings.node_epsilon or float(budget.epsilon) / 15.0
    split = (epsilon * settings.number_share, epsilon * (1.0 - settings.number_share))
    limit = settings.node_limit or (15 if settings.node_epsilon is None else None)
    distances: dict[Question, int] = {}
    p_values: dict[Question, tuple[float, float]] = {}
    treated, order, questions = 0, 0, []

    def merit(question: Question) -> tuple[float, float]:
        if question not in p_values:
            table = tests.table(question)
            # p-values of 0 are told apart by G²
            p_values[question] = (g_p_value(table), -g_test(table)[0])
        return p_values[question]

    def distance(question: Question) -> int:
        question = (min(question[:2]), max(question[:2]), question[2])
        if question not in distances:
            table = tests.table(question)
            _, freedom = g_test(table)
            distances[question] = greedy_distance(table, float(chdtri(max(freedom, 1), settings.level)))
        return distances[question]

    unanswered: list[tuple[str, str, int]] = []
    while any(len(graph.neighbours(x)) > order for x in columns) and not unanswered:
        questions.append(0)
        for x in columns:
            others = graph.removable(x)
            if len(graph.neighbours(x)) <= order or not others:
                continue
            if limit is not None and treated >= limit:
                unanswered += [(x, y, order) for y in others]
                continue
            treated += 1
            chosen: dict[str, Question] = {}
            for y in others:
                sets = combinations([z for z in graph.neighbours(x) if z != y], order)
                asked: list[Question] = [(min(x, y), max(x, y), given) for given in sets]
                questions[-1] += len(asked)
                best = max(asked, key=merit)
                chosen[y] = (x, y, best[2])
            _drop_neighbours(graph, chosen, distance, split, settings.whole_domain, access.rng)
        order += 1
    sweep = Sweep(graph.skeleton(), tuple(questions), tuple(unanswered))
    return tell_published(access.schema, sweep, knowledge, (treated * epsilon, 0.0))


def _drop_neighbours(
    graph: Pruning,
    chosen: dict[str, Question],
    distance: Callable[[Question], int],
    epsilons: tuple[float, float],
    whole_domain: bool,
    rng: np.random.Generator,
) -> None:
    """Draw how many neighbours go, with the first epsilon, and which, with the second, as published."""
    scores = {y: distance(question) for y, question in chosen.items()}
    best = sorted(scores.values(), reverse=True)
    number = _draw(number_scores(best, whole_domain), epsilons[0], rng)
    for _ in range(number):
        rest = list(scores)
        y = rest[_draw([scores[name] for name in rest], epsilons[1] / number, rng)]
        x, _, given = chosen[y]
        graph.remove(x, y, given)
        del scores[y]


def number_scores(best: list[int], whole_domain: bool) -> list[int]:
    """Return q₂, equations 6 to 8 of the publication, for distances in falling order.

    Examples
    --------
    >>> number_scores([5, 2, -3], whole_domain=True)
    [-5, -2, 1, -3]
    """
    scores = [-best[0] - (best[0] < 0)]
    scores += [min(left, -right) - (left > 0 > right) for left, right in pairwise(best)]
    if whole_domain:
        scores.append(best[-1] - (best[-1] > 0))
    return scores


def _draw(scores: list[int], epsilon: float, rng: np.random.Generator) -> int:
    weights = np.exp(epsilon / 2.0 * (np.array(scores, dtype=np.float64) - max(scores)))
    return int(rng.choice(len(scores), p=weights / weights.sum()))


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
    published=EmPcPublished,
    publish=publish,
    flaw=FLAW,
    relative_time=2.0,
    # one neighbour: how many go is the only choice, and a threshold far away makes one outcome rare
    sharp=(
        SharpCase(TWO_COLUMNS, {"statistic": "g", "order_shares": ("1",), "number_share": "0.999", "level": "1e-8"}),
    ),
)
