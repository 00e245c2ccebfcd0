"""`em-pc`: without noise it drops exactly what the tests call independent; its scores, its nodes and its budget."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dagveil.curator import Curator, Question, QuestionSession
from dagveil.data.memory import MemoryTable
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked
from dagveil.papers.publication import advanced_composition
from dagveil.papers.xu2017 import _draw, _Program, number_scores
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, ExponentialChoice
from dagveil.privacy.receipt import Calibration
from dagveil.search.constraint.pc import prune
from dagveil.statistics.distance import exact_distance
from published_bounds import most_rounds, most_tests

NETWORKS = ("asia", "cancer", "survey")
Ask = Callable[..., tuple[Asked, Curator]]


def joined(asked: Asked) -> set[frozenset[str]]:
    return {frozenset(edge) for edge in asked.graph.directed} | set(asked.graph.undirected)


def g_test(table: MemoryTable, question: Question) -> tuple[float, float]:
    """Return the p-value and −G², from the definition; empty levels count as degrees of freedom."""
    x, y, given = question
    counts = table.counts((*given, x, y))
    counts = counts.reshape(-1, *counts.shape[-2:]).astype(float)
    total = 0.0
    for stratum in counts:
        expected = np.outer(stratum.sum(axis=1), stratum.sum(axis=0)) / max(stratum.sum(), 1.0)
        seen = stratum > 0
        total += 2 * float((stratum[seen] * np.log(stratum[seen] / expected[seen])).sum())
    freedom = counts.shape[0] * (counts.shape[1] - 1) * (counts.shape[2] - 1)
    return float(chi2.sf(total, freedom)), -total


def drop_without_noise(
    columns: tuple[str, ...], orders: int, goes: Callable[[str, str, list[tuple[str, ...]]], bool], renew: bool
) -> set[frozenset[str]]:
    """Go through the nodes, and drop every neighbour that goes; `renew` asks each time who is a node worth treating."""
    around = {x: [y for y in columns if y != x] for x in columns}
    for order in range(orders):
        nodes = [x for x in columns if len(around[x]) > order]
        for x in columns:
            if len(around[x]) <= order or (not renew and x not in nodes):
                continue
            pool = list(around[x])
            for y in pool:
                if goes(x, y, list(combinations([z for z in pool if z != y], order))):
                    around[x].remove(y)
                    around[y].remove(x)
    return {frozenset((x, y)) for x in columns for y in around[x]}


@pytest.mark.parametrize("network", NETWORKS)
def test_paper_without_noise_drops_what_the_best_set_separates(network: str, sampled: Any, publish_method: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)

    def goes(x: str, y: str, sets: list[tuple[str, ...]]) -> bool:
        first, second = sorted((x, y))
        p_value, _ = max(g_test(table, (first, second, given)) for given in sets)
        return p_value >= 0.01

    asked = publish_method("em-pc", table, 1, node_epsilon=1e7)
    assert joined(asked) == drop_without_noise(columns, len(columns) - 1, goes, renew=True)
    assert asked.unanswered == ()


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_drops_what_any_set_separates(
    network: str, sampled: Any, ask_method: Ask, exact_scores: Any
) -> None:
    table = sampled(network, 20_000)
    decide = exact_scores(table)

    def goes(x: str, y: str, sets: list[tuple[str, ...]]) -> bool:
        return any(decide((x, y, given)) for given in sets)

    asked, _ = ask_method("em-pc", table, 1e6)
    assert joined(asked) == drop_without_noise(tuple(table.schema.columns), 3, goes, renew=False)


def test_the_program_leaves_one_neighbour(sampled: Any, publish_method: Any) -> None:
    """Independent columns: by the text all neighbours go at once, in the program one always stays."""
    table = sampled("cancer", 2000)
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 2, 2000).astype(np.uint8) for name in table.schema.columns}
    coins = MemoryTable.from_codes(codes, table.schema)
    whole = publish_method("em-pc", coins, 1, node_epsilon=1e7, level=1e-9)
    program = publish_method("em-pc", coins, 1, node_epsilon=1e7, level=1e-9, calibration=Calibration.PROGRAM)
    assert joined(whole) == set()
    assert len(joined(program)) >= 1


def test_the_printed_direction_removes_what_depends(sampled: Any, publish_method: Any) -> None:
    """Algorithm 3 as printed drops pairs with small p-values: without noise it keeps what no set separates least."""
    table = sampled("cancer", 20_000)
    columns = tuple(table.schema.columns)

    def goes(x: str, y: str, sets: list[tuple[str, ...]]) -> bool:
        first, second = sorted((x, y))
        return min(g_test(table, (first, second, given))[0] for given in sets) < 0.01

    asked = publish_method("em-pc", table, 1, node_epsilon=1e7, removes_below=True)
    assert joined(asked) == drop_without_noise(columns, len(columns) - 1, goes, renew=True)
    assert not joined(asked) & joined(publish_method("em-pc", table, 1, node_epsilon=1e7))


def test_what_the_program_reports(sampled: Any, publish_method: Any) -> None:
    """It composes nodes by advanced composition, and treats them until none has neighbours enough."""
    table = sampled("cancer", 2000)
    asked = publish_method("em-pc", table, 1, node_epsilon=0.3, calibration=Calibration.PROGRAM)
    totals = [advanced_composition(0.3, nodes, 1e-3) for nodes in range(most_rounds(5, 3) + 1)]
    assert min(abs(asked.reported[0] - total) for total in totals) < 1e-9
    assert asked.reported[0] > totals[5]
    assert asked.reported[1] == 1e-3
    assert asked.unanswered == ()


@pytest.mark.parametrize("seed", range(3))
def test_the_published_limit_of_nodes(seed: int, sampled: Any, publish_method: Any) -> None:
    table = sampled("asia", 2000)
    asked = publish_method("em-pc", table, 3, seed=seed, level=0.5)
    assert asked.reported == (pytest.approx(3.0), 0.0)  # fifteen nodes at a fifteenth each
    assert asked.unanswered
    few = publish_method("em-pc", table, 3, seed=seed, node_limit=2, node_epsilon=0.5)
    assert few.reported == (1.0, 0.0)
    assert {order for _, _, order in few.unanswered} == {0}


@pytest.mark.parametrize("network", NETWORKS)
def test_bounds_on_tests_and_rounds(network: str, sampled: Any, publish_method: Any) -> None:
    """The text's sum bounds the questions of PC and of PrivPC; its closed form, and l·p rounds, do not."""
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, lambda question: False, len(columns) - 2, Knowledge.none())
    assert sweep.questions <= most_tests(len(columns), len(columns) - 2)
    first = prune(columns, lambda question: False, 1, Knowledge.none())
    assert len(columns) ** 2 < first.questions <= most_tests(len(columns), 1)
    nodes = round(publish_method("em-pc", table, 1, node_epsilon=1.0).reported[0])
    orders = next(order for order in range(len(columns)) if nodes <= most_rounds(len(columns), order))
    assert nodes > orders * len(columns)


class TestScores:
    def test_the_number_of_neighbours_is_that_of_the_positive_distances(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(200):
            best = sorted((int(d) or 1 for d in rng.integers(-6, 7, rng.integers(1, 6))), reverse=True)
            scores = number_scores(best)
            assert len(scores) == len(best) + 1
            assert int(np.argmax(scores)) == sum(d > 0 for d in best)

    def test_given_exact_distances_the_number_has_sensitivity_one(self) -> None:
        """Not a flaw, though it looks like one: distances jump from +1 to −1, and q₂ takes the jump away again."""
        critical = 2.706
        distances = {
            cells: exact_distance(np.array(cells).reshape(2, 2), critical)
            for cells in product(range(4), repeat=4)
            if sum(cells) <= 7
        }
        moves = {
            (distance, distances[more])
            for cells, distance in distances.items()
            for place in range(4)
            if (more := (*cells[:place], cells[place] + 1, *cells[place + 1 :])) in distances
        }
        assert (1, -1) in moves or (-1, 1) in moves
        worst = 0
        for pairs in product(moves, repeat=2):
            before, after = (sorted((pair[side] for pair in pairs), reverse=True) for side in (0, 1))
            scores = [np.array(number_scores(best)) for best in (before, after)]
            worst = max(worst, int(np.abs(scores[0] - scores[1]).max()))
        assert worst == 1

    def test_the_program_counts_one_record_less(self) -> None:
        """src/findJS.py: distances 5, 1, −3 become 4, 0, −2; the number may not be 3."""
        assert _Program().number_scores([1, -3, 5]) == [-5, 0, -1]
        assert _Program().number_scores([-2, -1]) == [0, 0]

    def test_published_draws_have_their_probabilities(self) -> None:
        rng = np.random.default_rng(0)
        drawn = np.bincount([_draw([0, 2, -1], 1.5, rng) for _ in range(5000)], minlength=3) / 5000
        weights = np.exp(0.75 * np.array([0, 2, -1]))
        assert np.abs(drawn - weights / weights.sum()).max() < 0.035


class TestBudget:
    def test_shares_of_the_orders(self, sampled: Any, ask_method: Ask) -> None:
        """No order takes more than its share and what the ones before it left."""
        table = sampled("asia", 2000)
        for shares in ([0.5, 0.25, 0.25], [1, 3]):
            for seed in range(3):
                asked, curator = ask_method("em-pc", table, 1, seed=seed, order_shares=shares, statistic="g")
                costs = [0.0] * len(shares)
                for event in curator.events:
                    assert isinstance(event, ExponentialChoice)
                    costs[int(event.label[-1])] += float(curator.accounting.cost(event) / curator.accounting.total)
                allowed = np.cumsum(shares) / sum(shares)
                assert (np.cumsum(costs) <= allowed + 1e-9).all()
                assert costs[0] > 0
                assert len(asked.plan) <= len(shares)

    def test_questions_are_those_that_were_scored(
        self, sampled: Any, ask_method: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every set of every neighbour that a node was treated with counts once, whichever neighbours go."""
        scored: list[Question] = []
        choose = QuestionSession.choose_number

        def noting(interview: QuestionSession, options: Any, *rest: Any) -> int:
            scored.extend(question for questions in options for question, _ in questions)
            return choose(interview, options, *rest)

        monkeypatch.setattr(QuestionSession, "choose_number", noting)
        asked, _ = ask_method("em-pc", sampled("asia", 2000), 10)
        assert asked.questions == len(scored)
        assert {len(given) for _, _, given in scored} == {0, 1, 2}

    def test_only_choices_and_margins_are_charged(self, sampled: Any, ask_method: Ask) -> None:
        _, curator = ask_method("em-pc", sampled("asia", 2000), 1)
        first, *rest = curator.events
        assert isinstance(first, DiscreteGaussian | DiscreteLaplace)
        assert {type(event) for event in rest} == {ExponentialChoice}
