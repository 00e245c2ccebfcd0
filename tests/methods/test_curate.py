"""`curate`: its optimisation keeps its constraint, its lemma holds, and without noise it is PC."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import laplace

from dagveil.curator import Curator
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import curate
from dagveil.methods.asking import Asked, describe_sweep
from dagveil.methods.curate import allocate, error_surrogate
from dagveil.papers.bhattacharjee2024 import CONDUCTS, order_leakage, published_p_value_constant, solve_opt
from dagveil.privacy.events import DiscreteLaplace
from dagveil.privacy.receipt import Calibration
from dagveil.search.constraint.pc import Traversal, prune
from published_bounds import error_bound

NETWORKS = ("asia", "cancer", "survey")
NOTHING = Knowledge.none()
MARGINS, BAND = (0.2, 0.2), (1.0, 1.0)
Ask = Callable[..., tuple[Asked, Curator]]


@pytest.mark.parametrize("network", NETWORKS)
def test_published_without_noise_is_pc(network: str, sampled: Any, publish_method: Any, exact_kendall: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    p_value = exact_kendall(table)
    # inside the band the program keeps edges, so the upper end of the band is its threshold
    for calibration, margins, traversal in (
        (Calibration.PROGRAM, [0.2, 0.2], Traversal.PUBLISHED),
        (Calibration.PAPER, [1e-6, 1e-6], Traversal.ONCE),
    ):
        threshold = 0.05 * (1.0 + margins[1])
        sweep = prune(
            columns, lambda question, t=threshold: p_value(question) > t, len(columns) - 2, NOTHING, traversal
        )
        asked = publish_method("curate", table, 1e12, calibration=calibration, margins=margins)
        assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
        assert asked.questions == sweep.questions


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_is_pc(network: str, sampled: Any, ask_method: Ask, exact_scores: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, exact_scores(table), 2, NOTHING, Traversal.ONCE)
    asked, curator = ask_method("curate", table, 1e6, margins=[0, 0])
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions
    # every question is charged, whatever its answer
    assert len([event for event in curator.events if event.label.startswith("question")]) == sweep.questions


class TestAllocation:
    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.integers(1, 10**5), min_size=1, max_size=5),
        st.floats(-12, 12).map(lambda power: 10.0**power),
        st.booleans(),
        st.floats(0.01, 10**4),
    )
    def test_the_constraint_holds_exactly_and_epsilons_fall(
        self, questions: list[int], total: float, pure: bool, distance: float
    ) -> None:
        squares, linear = ([0.0] * len(questions), questions) if pure else (questions, [0.0] * len(questions))
        found = allocate(squares, total, linear, distance, MARGINS, BAND)
        assert found.shape == (len(questions),)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert (np.diff(found) <= 0).all()
        exact = [Fraction(float(epsilon)) for epsilon in found]
        cost = sum(
            a * e * e + b * e for a, b, e in zip(map(Fraction, squares), map(Fraction, linear), exact, strict=True)
        )
        assert cost <= Fraction(total) * (1 + Fraction(1, 10**12))

    @pytest.mark.parametrize("questions", [[28, 84, 84], [10, 30, 30], [300, 900, 900, 300]])
    @pytest.mark.parametrize("total", [0.003, 0.0244, 1.5])
    @pytest.mark.parametrize("distance", [20.0, 100.0, 400.0])
    def test_it_is_no_worse_than_equal_shares(self, questions: list[int], total: float, distance: float) -> None:
        squares = [t / 2 for t in questions]
        found = allocate(squares, total, [0.0] * len(questions), distance, MARGINS, BAND)
        equal = np.minimum.accumulate(np.sqrt(total / len(questions) / np.array(squares)))
        ours, theirs = (error_surrogate(epsilons, distance, MARGINS, BAND) for epsilons in (found, equal))
        assert ours <= theirs + 1e-9

    def test_it_is_better_than_equal_shares_somewhere(self) -> None:
        found = allocate([14, 42, 42], 0.0244, [0, 0, 0], 100.0, MARGINS, BAND)
        equal = np.minimum.accumulate(np.sqrt(0.0244 / 3 / np.array([14, 42, 42])))
        gain = error_surrogate(equal, 100.0, MARGINS, BAND) - error_surrogate(found, 100.0, MARGINS, BAND)
        assert gain > 1e-3

    def test_two_orders_against_a_grid(self) -> None:
        a, total, distance = np.array([5.0, 40.0]), 0.05, 60.0
        found = allocate(a.tolist(), total, [0.0, 0.0], distance, MARGINS, BAND)
        best = math.inf
        for first in np.linspace(0, math.sqrt(total / a[0]), 400):
            second = min(first, math.sqrt(max(total - a[0] * first**2, 0) / a[1]))
            best = min(best, error_surrogate(np.array([first, second]), distance, MARGINS, BAND))
        assert error_surrogate(found, distance, MARGINS, BAND) <= best + 1e-4

    def test_the_objective_by_hand(self) -> None:
        epsilons = np.array([0.1, 0.05])
        kept = [0.5 + 0.5 * math.exp(-0.3 * e * 10) for e in epsilons]
        lost = [0.25 + 0.5 * math.exp(-0.2 * e * 10) for e in epsilons]
        expected = kept[0] * kept[1] + 1 - (1 - lost[0]) * (1 - lost[1])
        assert error_surrogate(epsilons, 10.0, (0.3, 0.2), (1.0, 0.5)) == pytest.approx(expected)


class TestOrders:
    def test_the_allocation_is_solved_again_for_every_order(
        self, sampled: Any, ask_method: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        solved: list[tuple[list[float], float, float]] = []

        def noting(amounts: Any, total: float, linear: Any, *rest: Any) -> np.ndarray:
            found = allocate(amounts, total, linear, *rest)
            solved.append(([a + b for a, b in zip(amounts, linear, strict=True)], total, float(found[0])))
            return found

        monkeypatch.setattr(curate, "allocate", noting)
        asked, curator = ask_method("curate", sampled("asia", 2000), 10)
        assert len(solved) == len(asked.plan) - 1 >= 2
        # orders that are left, and their questions: 28 pairs first, three neighbours expected
        scale = 1.0 if curator.accounting.name == "pure accounting" else 0.5
        assert solved[0][0] == [scale * 28, scale * 84, scale * 84]
        assert [len(amounts) for amounts, _, _ in solved] == list(range(3, 3 - len(solved), -1))
        # what is left is what the filter says is left
        spent = Fraction(0)
        questions = iter(curator.events)
        left = [curator.accounting.total]
        for event in questions:
            spent += curator.accounting.cost(event)
            left.append(curator.accounting.total - spent)
        for _, total, _ in solved:
            assert any(total == pytest.approx(float(amount), rel=1e-8) for amount in left)
        assert [total for _, total, _ in solved] == sorted((total for _, total, _ in solved), reverse=True)
        # and every question of an order has the epsilon that was found for it
        for order, (_, _, epsilon) in enumerate(solved):
            prices = {
                float(event.epsilon)
                for event in curator.events
                if isinstance(event, DiscreteLaplace) and event.label == f"question of order {order}"
            }
            assert len(prices) == 1
            assert prices.pop() == pytest.approx(epsilon, rel=1e-6)

    def test_a_hopeless_order_is_not_run(self, sampled: Any, ask_method: Ask) -> None:
        table = sampled("asia", 2000)
        stages = []
        for hopeless in (0.001, 20.0):
            asked, curator = ask_method("curate", table, 10, hopeless=hopeless)
            orders = {event.label[-1] for event in curator.events if event.label.startswith("question")}
            assert len(asked.plan) - 1 == len(orders)
            stages.append(len(orders))
        assert stages[0] == 1 < stages[1]

    def test_a_coin_decides_inside_the_band(self, sampled: Any, ask_method: Ask) -> None:
        """A band without end: every edge is left to a fair coin."""
        table = sampled("asia", 2000)
        kept = []
        for seed in range(12):
            asked, _ = ask_method("curate", table, 1, seed=seed, margins=[2.0, 1e9], largest_order=0, slack=1e4)
            kept.append(len(asked.graph.directed) + len(asked.graph.undirected))
        assert abs(sum(kept) - 0.5 * 12 * 28) < 5 * math.sqrt(12 * 28 / 4)

    def test_more_orders_than_expected_neighbours(self, sampled: Any, ask_method: Ask) -> None:
        with np.errstate(all="raise"):
            asked, _ = ask_method("curate", sampled("asia", 2000), 1, largest_order=5)
        assert asked.graph.is_valid()


class TestLemma1:
    """Below the band an edge is kept, above it goes, inside a coin decides; T/Δ records, noise Laplace(1/ε)."""

    @pytest.mark.parametrize("epsilon", [0.02, 0.1, 1.0])
    @pytest.mark.parametrize("threshold", [5.0, 40.0])
    @pytest.mark.parametrize("beyond", [1.0, 1.1, 2.0])
    @pytest.mark.parametrize("margins", [(0.2, 0.2), (0.5, 0.1)])
    def test_both_errors(self, epsilon: float, threshold: float, beyond: float, margins: tuple[float, float]) -> None:
        rng = np.random.default_rng(0)
        draws = 100_000
        noise = rng.laplace(0, 1 / epsilon, draws)
        coin = rng.random(draws) < 0.5
        low, high = threshold * (1 - margins[0]), threshold * (1 + margins[1])
        for exact, sign in ((threshold * beyond, 1), (threshold / beyond, -1)):
            noisy = exact + noise
            inside = (noisy >= low) & (noisy <= high)
            beyond_band = noisy < low if sign > 0 else noisy > high
            wrong = float((beyond_band | (inside & coin)).mean())
            within = laplace.cdf(high, exact, 1 / epsilon) - laplace.cdf(low, exact, 1 / epsilon)
            margin = margins[0] if sign > 0 else margins[1]
            bound = error_bound(epsilon, threshold, margin, float(within))
            assert wrong <= bound + 4 * math.sqrt(0.25 / draws)
            if beyond == 1.0:  # the bound is attained by a question on the threshold itself
                assert wrong >= bound - 4 * math.sqrt(0.25 / draws)


def solve_from_nothing(most: list[int], total: float, failure: float, distance: float, band: float) -> np.ndarray:
    """Solve OPT as the authors' program does: SLSQP from 0, in raw epsilons, with differences for gradients."""
    a = np.array(most, dtype=float)
    b = np.sqrt(2.0 * a * math.log(1.0 / failure))
    found = minimize(
        lambda x: error_surrogate(x, distance, MARGINS, (band, band)),
        np.zeros(len(a)),
        method="SLSQP",
        bounds=[(0.0, None)] * len(a),
        constraints=[
            {"type": "ineq", "fun": lambda x: total - (a * x * x + b * np.abs(x)).sum()},
            *({"type": "ineq", "fun": (lambda x, k=k: x[k] - x[k + 1])} for k in range(len(a) - 1)),
        ],
    ).x
    found = np.minimum.accumulate(np.maximum(found, 0.0))
    return found / max(1.0, float((a * found**2 + b * found).sum()) / total)


class TestOpt:
    """The published problem, solved to its optimum at every total and number of columns."""

    DISTANCE = 0.05 / (CONDUCTS[Calibration.PROGRAM].constant / math.sqrt(100_000))

    @pytest.mark.parametrize("columns", [5, 6, 8, 11, 20])
    @pytest.mark.parametrize("total", [0.01, 0.1, 1.0, 10.0, 100.0])
    @pytest.mark.parametrize("band", [1.0, 0.1])
    def test_it_is_no_worse_than_the_authors_solver_and_keeps_the_constraints(
        self, columns: int, total: float, band: float
    ) -> None:
        most = [math.comb(columns, 2) * math.comb(columns - 2, j) for j in range(columns - 1)]
        found = solve_opt(most, total, 1e-14, self.DISTANCE, MARGINS, (band, band))
        theirs = solve_from_nothing(most, total, 1e-14, self.DISTANCE, band)
        ours, best = (error_surrogate(x, self.DISTANCE, MARGINS, (band, band)) for x in (found, theirs))
        assert ours <= best + 3e-7
        assert (np.diff(found) <= 0).all()
        assert found[-1] >= 0
        leaked = sum(order_leakage(float(e), t, 1e-14) for e, t in zip(found, most, strict=True))
        assert leaked <= total * (1 + 1e-9)

    @pytest.mark.parametrize(("network", "columns", "first"), [("asia", 8, 0.00235), ("sachs", 11, 0.00168)])
    def test_little_is_left_for_later_orders_if_there_is_little(self, network: str, columns: int, first: float) -> None:
        """At ε = 0.1 everything goes to order 0: equal shares would draw 2 and 10 times as much noise."""
        most = [math.comb(columns, 2) * math.comb(columns - 2, j) for j in range(columns - 1)]
        found = solve_opt(most, 0.1, 1e-14, self.DISTANCE, MARGINS, BAND)
        assert found[0] == pytest.approx(first, abs=1e-5)

    @pytest.mark.parametrize("total", [0.1, 1.0, 10.0])
    @pytest.mark.parametrize("band", [1.0, 0.5])
    def test_two_orders_against_a_grid(self, total: float, band: float) -> None:
        most, failure, distance = [10, 30], 1e-12, 40.0
        found = solve_opt(most, total, failure, distance, MARGINS, (band, band))
        best, log = math.inf, math.log(1.0 / failure)
        for share in np.linspace(0.0, 1.0, 2001):
            roots = []
            for t, amount in zip(most, (share * total, (1.0 - share) * total), strict=True):
                slope = math.sqrt(2.0 * t * log)
                roots.append(2.0 * amount / (slope + math.sqrt(slope**2 + 4.0 * t * amount)))
            pair = np.array([roots[0], min(roots)])
            best = min(best, error_surrogate(pair, distance, MARGINS, (band, band)))
        assert error_surrogate(found, distance, MARGINS, (band, band)) <= best + 1e-6


class TestReadings:
    """Algorithm 1 as printed, and the program."""

    def test_the_sensitivities(self) -> None:
        assert published_p_value_constant(2) == pytest.approx(0.5129, abs=1e-4)
        assert max(published_p_value_constant(block) for block in range(2, 1000)) == published_p_value_constant(2)
        assert CONDUCTS[Calibration.PROGRAM].constant == pytest.approx(0.3627, abs=1e-4)

    def test_the_text_charges_every_question_of_each_order_and_stays_within_the_total(
        self, sampled: Any, publish_method: Any
    ) -> None:
        for seed in range(5):
            asked = publish_method("curate", sampled("asia", 20_000), 1, seed=seed, calibration=Calibration.PAPER)
            assert asked.counted == asked.questions
            assert 0.5 < asked.reported[0] <= 1.0 + 1e-9

    def test_the_program_counts_removals_and_the_band_over_all_orders(self, sampled: Any, publish_method: Any) -> None:
        """With a band that nothing leaves upwards every edge stays, and each order counts what came before again."""
        table = sampled("cancer", 20_000)
        asked = publish_method("curate", table, 1e9, calibration=Calibration.PROGRAM, margins=[1e9, 1e9])
        edges = len(asked.graph.directed) + len(asked.graph.undirected)
        assert edges == 10
        # ordered pairs times sets; what came before is charged again, so that the total is passed and the run stops
        assert asked.questions == 20 + 60
        assert asked.counted == 20 + (20 + 60)
        assert asked.reported[0] > 1e9
        kept = publish_method("curate", table, 1e9, calibration=Calibration.PROGRAM, margins=[0.0, 1e9])
        assert kept.questions == 20 + 60 + 60
        assert 60 < kept.counted < 20 + (20 + 60) + (20 + 60 + 60)  # below the band nothing is counted

    def test_the_coin_is_fair_in_the_text_and_always_keeps_in_the_program(
        self, sampled: Any, publish_method: Any
    ) -> None:
        table = sampled("asia", 20_000)
        for calibration, low, high in ((Calibration.PAPER, 0, 27), (Calibration.PROGRAM, 28, 28)):
            asked = publish_method("curate", table, 1e9, calibration=calibration, margins=[1e9, 1e9])
            assert low <= len(asked.graph.directed) + len(asked.graph.undirected) <= high

    def test_delta_adds_up_and_stops_the_run(self, sampled: Any, publish_method: Any) -> None:
        table = sampled("asia", 20_000)
        options = {"calibration": Calibration.PAPER, "question_delta": 1e-13}
        asked = publish_method("curate", table, 1000, total_delta=0.5, **options)
        orders = round((asked.reported[1] - 1e-13 * asked.questions) / 1e-12)
        assert orders >= 3
        stopped = publish_method("curate", table, 1000, total_delta=1e-12, **options)
        assert stopped.reported[1] == pytest.approx(1e-12 + 1e-13 * stopped.questions)
        assert stopped.questions <= 28 < asked.questions
        told = "Order 1 was not begun: ε or δ_Total was used up."
        assert told in stopped.findings
        assert told not in asked.findings

    def test_a_sub_sample_is_drawn_once(self, sampled: Any, publish_method: Any) -> None:
        table = sampled("cancer", 20_000)
        for calibration in (Calibration.PAPER, Calibration.PROGRAM):
            whole, part = (
                publish_method("curate", table, 10, calibration=calibration, rate=rate) for rate in (1.0, 0.05)
            )
            assert part.reported[0] != whole.reported[0]
