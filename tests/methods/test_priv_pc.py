"""`priv-pc`: sieve and examination without noise are PC; the bounds of its theorem, and the printed one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dagveil.curator import Curator, Question
from dagveil.errors import MethodError
from dagveil.graphs.knowledge import Knowledge
from dagveil.methods.asking import Asked, describe_sweep
from dagveil.papers.publication import advanced_composition, largest_published_order
from dagveil.papers.wang2020 import SieveAndExamine, optimal_rate, program_rate, sieve_epsilon
from dagveil.privacy.events import DiscreteLaplace, SparseVectorRound
from dagveil.privacy.receipt import Calibration
from dagveil.search.constraint.pc import Traversal, prune
from published_bounds import (
    published_type_one_bound,
    published_type_two_bound,
    sieve_and_examine,
    type_one_bound,
    type_two_bound,
)

NETWORKS = ("asia", "cancer", "survey")
NOTHING = Knowledge.none()
DRAWS = 100_000
Ask = Callable[..., tuple[Asked, Curator]]


@pytest.mark.parametrize("reading", [Calibration.PAPER, Calibration.PROGRAM])
@pytest.mark.parametrize("network", NETWORKS)
def test_as_published_without_noise_is_pc(
    network: str, reading: Calibration, sampled: Any, publish_method: Any, exact_kendall: Any
) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    p_value = exact_kendall(table, reading)
    examined: list[Question] = []

    def is_independent(question: Question) -> bool:
        if p_value(question) >= 0.10 - 0.02:
            examined.append(question)
        return p_value(question) >= 0.10

    sweep = prune(columns, is_independent, largest_published_order(20_000, len(columns)), NOTHING)
    asked = publish_method("priv-pc", table, 1, round_epsilon=1e9, rate=1, calibration=reading)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    assert asked.questions == sweep.questions + len(examined)


@pytest.mark.parametrize("network", NETWORKS)
def test_sound_without_noise_is_pc(network: str, sampled: Any, ask_method: Ask, exact_scores: Any) -> None:
    table = sampled(network, 20_000)
    columns = tuple(table.schema.columns)
    sweep = prune(columns, exact_scores(table), 2, NOTHING, Traversal.ONCE)
    asked, curator = ask_method("priv-pc", table, 1e6)
    assert asked.graph == describe_sweep(columns, sweep, NOTHING)[0]
    removed = len(sweep.skeleton.separators)
    assert asked.questions == sweep.questions + removed
    examinations = [event for event in curator.events if event.label == "examination"]
    rounds = [event for event in curator.events if isinstance(event, SparseVectorRound)]
    assert len(examinations) == removed
    assert len(rounds) in (removed, removed + 1)


def test_rounds_share_the_budget(sampled: Any, ask_method: Ask) -> None:
    table = sampled("asia", 2000)
    asked, curator = ask_method("priv-pc", table, 1, statistic="g", rounds=4, tweak=1e6, sieve_share=0.25)
    # the sieve lets everything through, so every question is examined, and four rounds are all there is
    assert [type(event) for event in curator.events] == [SparseVectorRound, DiscreteLaplace] * 4
    assert asked.questions == 8
    prices = [curator.accounting.cost(event) / curator.accounting.total for event in curator.events]
    assert [float(price) for price in prices] == pytest.approx([1 / 16, 3 / 16] * 4, rel=1e-6)
    assert asked.unanswered


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_sub_samples_cost_the_same_and_have_more_noise(relation: str, sampled: Any, ask_method: Ask) -> None:
    table = sampled("asia", 2000, relation=relation)
    whole, _ = ask_method("priv-pc", table, 1)
    part, curator = ask_method("priv-pc", table, 1, rate=0.25)
    prices = {event.epsilon for event in curator.events if isinstance(event, SparseVectorRound)}
    assert len(prices) == 1
    # the noise on a quarter of the rows is less than on all, but not by the factor 4 that the signal loses
    assert 1.0 < whole.plan[-1].noise_sd / part.plan[-1].noise_sd < 4.0


def test_what_text_and_program_report(sampled: Any, publish_method: Any) -> None:
    """The text composes rounds; the program sieves and examinations apart, each with half of epsilon and of delta."""
    table = sampled("cancer", 2000)
    for reading in (Calibration.PAPER, Calibration.PROGRAM):
        asked = publish_method("priv-pc", table, 1, round_epsilon=0.3, rate=1, calibration=reading)
        part, times, delta = (0.3, 1, 1e-3) if reading is Calibration.PAPER else (0.15, 2, 5e-4)
        totals = [times * advanced_composition(part, hits, delta) for hits in range(1, 60)]
        assert min(abs(asked.reported[0] - total) for total in totals) < 1e-9
        assert asked.reported[1] == 1e-3


class TestSieveAndExamine:
    def test_scales_of_algorithms_1_and_2(self) -> None:
        inner = sieve_epsilon(1.0, 0.25)
        one = SieveAndExamine((0.0, 0.0), 1.0, 0.25, 3.0, np.random.default_rng(0))
        assert one.threshold_scale == one.refreshed_scale == pytest.approx(6.0 / inner)
        assert (one.question_scale, one.examination_scale) == pytest.approx((12.0 / inner, 6.0))
        two = SieveAndExamine((0.0, 0.0), 1.0, 0.25, 3.0, np.random.default_rng(0), (1.0, 2.0))
        assert (two.threshold_scale, two.refreshed_scale) == pytest.approx((12.0 / inner, 6.0 / inner))
        assert (two.question_scale, two.examination_scale) == pytest.approx((24.0 / inner, 6.0))

    def test_algorithm_1_passes_as_often_as_drawn(self) -> None:
        """Its first question, Δ = 1 and T = 0, beside the mechanism drawn by hand."""
        rng = np.random.default_rng(0)
        values = [sieve_and_examine([1.0], lambda place: 1.0, 0.0, 2.0, 1.0, 2.0, 1.0, rng) for _ in range(20_000)]
        assert np.mean([value == 0 for value in values]) == pytest.approx(
            TestTheorem2.pass_rate(2.0, 1.0, 1.0, 2.0), abs=0.012
        )

    def test_it_ends_with_the_first_that_passes_the_sieve(self) -> None:
        examined: list[int] = []

        def on_all(place: int) -> float:
            examined.append(place)
            return -1.0

        rng = np.random.default_rng(0)
        assert sieve_and_examine([-9.0, 5.0, 5.0], on_all, 0.0, 0.0, 1.0, 1e9, 1.0, rng) is None
        assert examined == [1]
        assert sieve_and_examine([-9.0], on_all, 0.0, 0.0, 1.0, 1e9, 1.0, rng) is None


class TestRates:
    @pytest.mark.parametrize(("epsilon", "rate"), [(0.1, 1 / 20), (8.0, 1 / 20), (10.0, 1 / 20)])
    def test_the_search_of_the_program_ends_elsewhere(self, epsilon: float, rate: float) -> None:
        assert program_rate(epsilon) == pytest.approx(rate)
        assert optimal_rate(8.0) == pytest.approx(1.0, abs=1e-3)

    @pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0, 2000.0])
    def test_the_rate_has_the_least_noise(self, epsilon: float) -> None:
        def noise(rate: float) -> float:
            return math.sqrt(1 / rate) / sieve_epsilon(epsilon, rate)

        best = optimal_rate(epsilon)
        assert 1 / 20 <= best <= 1
        assert noise(best) <= min(noise(rate) for rate in np.linspace(0.05, 1, 400)) * (1 + 1e-4)

    @pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
    def test_sieve_epsilon_is_continuous_where_its_formula_changes(self, rate: float) -> None:
        below, above = sieve_epsilon(2 * 499.999, rate), sieve_epsilon(2 * 500.001, rate)
        assert 0 < above - below < 0.01
        assert sieve_epsilon(1e7, rate) == pytest.approx(5e6, rel=1e-5)
        assert sieve_epsilon(0.2, 1.0) == pytest.approx(0.1)


class TestTheorem2:
    """The published mechanism, drawn many times: threshold Laplace(2Δ/ε′), question 4Δ/ε′, examination 2Δ/ε."""

    CASES = tuple(
        (epsilon, inner, distance, tweak)
        for epsilon, inner in [(1.0, 1.0), (0.5, 2.0), (3.0, 1.5)]
        for distance, tweak in [(1.0, 1.0), (4.0, 2.0), (8.0, 0.5), (20.0, 4.0)]
    )

    def test_the_printed_bound_forgets_the_examination(self) -> None:
        """A weak examination turns most questions away that a strong sieve lets pass."""
        bound = published_type_one_bound(5.0, 4.0, 4.0, 1.0)
        assert bound == pytest.approx(math.exp(-5 * 8 / 6) - math.exp(-5 * 8 / 3) / 4)
        assert 1 - self.pass_rate(0.5, 5.0, 4.0, 4.0) > 10 * bound
        assert 1 - self.pass_rate(0.5, 5.0, 4.0, 4.0) < type_one_bound(0.5, 5.0, 4.0, 4.0, 1.0) + 0.01

    @staticmethod
    def pass_rate(epsilon: float, inner: float, distance: float, tweak: float) -> float:
        """Return how often a question at T + distance passes sieve and examination; Δ = 1, T = 0."""
        rng = np.random.default_rng(0)
        sieve = distance + rng.laplace(0, 4 / inner, DRAWS) >= -tweak + rng.laplace(0, 2 / inner, DRAWS)
        return float((sieve & (distance + rng.laplace(0, 2 / epsilon, DRAWS) >= 0)).mean())

    @pytest.mark.parametrize("case", CASES)
    def test_type_one(self, case: tuple[float, float, float, float]) -> None:
        epsilon, inner, distance, tweak = case
        turned_away = 1 - self.pass_rate(epsilon, inner, distance, tweak)
        bound = type_one_bound(epsilon, inner, distance, tweak, 1.0)
        assert turned_away <= bound + 4 * math.sqrt(0.25 / DRAWS)
        # the bound scales with the sensitivity
        assert type_one_bound(epsilon, inner, 7 * distance, 7 * tweak, 7.0) == pytest.approx(bound)

    @pytest.mark.parametrize("case", CASES)
    def test_type_two(self, case: tuple[float, float, float, float]) -> None:
        epsilon, inner, distance, tweak = case
        passed = self.pass_rate(epsilon, inner, -distance, tweak)
        bound = type_two_bound(epsilon, inner, distance, tweak, 1.0)
        assert passed <= bound + 4 * math.sqrt(0.25 / DRAWS)
        assert published_type_two_bound(epsilon, inner, distance, tweak, 1.0) < bound

    def test_the_printed_type_two_bound_is_broken(self) -> None:
        broken = 0
        for epsilon, inner, distance, tweak in self.CASES:
            passed = self.pass_rate(epsilon, inner, -distance, tweak)
            printed = published_type_two_bound(epsilon, inner, distance, tweak, 1.0)
            broken += passed > printed + 4 * math.sqrt(max(passed, 1 / DRAWS) / DRAWS)
        assert broken >= 3
        assert self.pass_rate(1.0, 1.0, -1.0, 1.0) > published_type_two_bound(1.0, 1.0, 1.0, 1.0, 1.0) + 0.03

    def test_the_bound_needs_a_distance_beyond_the_tweak(self) -> None:
        with pytest.raises(MethodError, match="at least the tweak; got 1 and 2"):
            type_two_bound(1.0, 1.0, 1.0, 2.0, 1.0)
