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
from scipy.stats import laplace

from dagveil.curator import Curator
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods import curate
from dagveil.methods.asking import Asked, tell_sweep
from dagveil.methods.curate import allocate, error_surrogate
from dagveil.papers.bhattacharjee2024 import error_bound
from dagveil.privacy.events import DiscreteLaplace
from dagveil.search.constraint.pc import Traversal, prune

NETWORKS = ("asia", "cancer", "survey")
NOTHING = Knowledge.none()
MARGINS, BAND = (0.2, 0.2), (1.0, 1.0)
Ask = Callable[..., tuple[Asked, Curator]]


@pytest.mark.parametrize("network", NETWORKS)
def test_paper_without_noise_is_pc(network: str, sampled: Any, publish_method: Any, exact_kendall: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    p_value = exact_kendall(table)
    # inside the band edges stay, so the upper end of the band is the threshold
    sweep = prune(columns, lambda question: p_value(question) > 0.05 * 1.2, len(columns) - 2, NOTHING)
    asked = publish_method("curate", table, 1e12)
    assert asked.graph == tell_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_is_pc(network: str, sampled: Any, ask_method: Ask, exact_scores: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, exact_scores(table), 2, NOTHING, Traversal.ONCE)
    asked, curator = ask_method("curate", table, 1e6, margins=[0, 0])
    assert asked.graph == tell_sweep(columns, sweep, NOTHING)[0]
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
