"""Laplace draws in blocks, what an amount of budget buys, and sub-sampling's price: each against plain arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import (
    DiscreteLaplace,
    ExponentialChoice,
    GaussianFilter,
    PureFilter,
    SparseVectorRound,
    ZcdpFilter,
)
from dagveil.privacy.mechanisms.laplace import epsilon_for, filter_for, laplace_variance
from dagveil.privacy.mechanisms.subsampling import Sampling, amplify, strengthen
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import BLOCK, LaplaceBlocks
from dagveil.privacy.renyi import RenyiFilter

POISSON = (Sampling.POISSON, Relation.ADD_REMOVE)


class CountingNoise:
    """Hands out consecutive integers, so that a draw that comes twice is seen."""

    def __init__(self) -> None:
        self.calls: list[tuple[Fraction, int]] = []
        self.next = 0

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.calls.append((scale, size))
        self.next += size
        return np.arange(self.next - size, self.next)


class TestBlocks:
    def test_no_draw_is_handed_out_twice(self) -> None:
        noise = CountingNoise()
        blocks = LaplaceBlocks(noise)
        scales = [Fraction(8), Fraction(4), Fraction(8, 3)]
        drawn = [blocks.draw(scales[i % 3]) for i in range(6 * BLOCK)]
        assert len(set(drawn)) == len(drawn)
        # in blocks, each of one scale
        assert len(noise.calls) == 6
        assert {size for _, size in noise.calls} == {BLOCK}

    def test_a_draw_has_the_scale_it_was_asked_for(self) -> None:
        noise = CountingNoise()
        blocks = LaplaceBlocks(noise)
        first = blocks.draw(Fraction(8))
        other = blocks.draw(Fraction(4))
        again = blocks.draw(Fraction(8))
        assert noise.calls == [(Fraction(8), BLOCK), (Fraction(4), BLOCK)]
        assert (first, other, again) == (0, BLOCK, 1)

    def test_two_takers_share_nothing(self) -> None:
        noise = CountingNoise()
        one, two = LaplaceBlocks(noise), LaplaceBlocks(noise)
        assert one.draw(Fraction(8)) != two.draw(Fraction(8))

    def test_nothing_is_drawn_before_it_is_asked_for(self) -> None:
        noise = CountingNoise()
        LaplaceBlocks(noise)
        assert noise.calls == []

    def test_the_distribution(self) -> None:
        blocks = LaplaceBlocks(noise_source(NoiseKind.SEEDED, 0))
        scale = Fraction(5)
        drawn = np.array([blocks.draw(scale) for _ in range(20_000)])
        variance = float(laplace_variance(scale))
        assert abs(drawn.mean()) < 5 * math.sqrt(variance / len(drawn))
        assert drawn.var() == pytest.approx(variance, rel=0.1)
        decay = math.exp(-1 / 5)
        assert (drawn == 0).mean() == pytest.approx((1 - decay) / (1 + decay), abs=0.012)


class TestVariance:
    @pytest.mark.parametrize("scale", [Fraction(1, 4), Fraction(1), Fraction(7, 2), Fraction(30)])
    def test_against_the_sum(self, scale: Fraction) -> None:
        decay = math.exp(-1 / float(scale))
        k = np.arange(1, 2000)
        summed = 2 * float(((1 - decay) / (1 + decay) * k**2 * decay**k).sum())
        assert float(laplace_variance(scale)) == pytest.approx(summed, rel=1e-9)

    @pytest.mark.parametrize("scale", [Fraction(1, 10**2), Fraction(1, 10**3), Fraction(1, 10**9)])
    def test_tiny_scales_have_a_variance_that_can_be_divided_by(self, scale: Fraction) -> None:
        assert 0 < float(laplace_variance(scale)) < 1e-20


class TestPrices:
    @settings(max_examples=60, deadline=None)
    @given(
        st.fractions(Fraction(1, 1000), 50, max_denominator=10**6),
        st.fractions(Fraction(1, 10**6), 1, max_denominator=10**6),
    )
    def test_an_amount_buys_what_it_pays_for_and_hardly_less(self, epsilon: Fraction, share: Fraction) -> None:
        for accounting in (PureFilter(Budget(epsilon, Fraction(0))), ZcdpFilter(Budget(epsilon, Fraction(1, 10**6)))):
            amount = share * accounting.total
            for kind, event in (
                (DiscreteLaplace, lambda bought: DiscreteLaplace("one", 1, bought)),
                (DiscreteLaplace, lambda bought: SparseVectorRound("round", bought)),
                (ExponentialChoice, lambda bought: ExponentialChoice("choice", bought)),
            ):
                bought = epsilon_for(accounting, amount, kind)
                assert accounting.cost(event(bought)) <= amount
                assert accounting.cost(event(bought + Fraction(1, 2**39))) > amount

    def test_amounts_and_filters_that_buy_nothing(self) -> None:
        for amount in (Fraction(0), Fraction(-1)):
            with pytest.raises(BudgetError, match="above 0"):
                epsilon_for(PureFilter(Budget.of(1, 0)), amount)
        with pytest.raises(BudgetError, match="no simple price"):
            epsilon_for(RenyiFilter(Budget.of(1, 1e-6), 40), Fraction(1, 100))

    @pytest.mark.parametrize("kind", [DiscreteLaplace, ExponentialChoice])
    def test_gaussian_accounting_has_its_own_price(self, kind: type) -> None:
        accounting, amount = GaussianFilter(Budget.of(1, 1e-6)), Fraction(1, 100)
        epsilon = epsilon_for(accounting, amount, kind)
        event = kind("one", 1, epsilon) if kind is DiscreteLaplace else kind("one", epsilon)
        assert Fraction(99, 100) * amount < accounting.cost(event) <= amount

    @pytest.mark.parametrize("epsilon", [0.1, 1, 10, 1000])
    @pytest.mark.parametrize("questions", [1, 5, 50, 5000])
    @pytest.mark.parametrize("kind", [DiscreteLaplace, ExponentialChoice])
    def test_the_chosen_filter_is_the_better_one(self, epsilon: float, questions: int, kind: type) -> None:
        budget = Budget.of(epsilon, 1e-6)
        bought = {
            accounting.name: epsilon_for(accounting, accounting.total / questions, kind)
            for accounting in (PureFilter(budget), ZcdpFilter(budget))
        }
        assert bought[filter_for(budget, questions, kind).name] == max(bought.values())

    def test_without_delta_only_pure_accounting_is_left(self) -> None:
        assert filter_for(Budget.of(1, 0), 5000).name == "pure accounting"


class TestSubsampling:
    @settings(max_examples=100, deadline=None)
    @given(
        st.fractions(Fraction(1, 10**4), 2000, max_denominator=10**5),
        st.fractions(Fraction(1, 1000), 1, max_denominator=1000),
    )
    def test_strengthened_noise_costs_the_whole_table_at_most_the_price(
        self, epsilon: Fraction, rate: Fraction
    ) -> None:
        inner = strengthen(epsilon, rate, *POISSON)
        price = amplify(Budget(inner, Fraction(0)), rate, *POISSON).epsilon
        assert price <= epsilon
        assert float(price) == pytest.approx(float(epsilon), rel=1e-6)
        assert inner >= epsilon * (1 - Fraction(1, 10**6))

    def test_the_other_relation_is_refused(self) -> None:
        with pytest.raises(BudgetError, match="neighbours only"):
            strengthen(Fraction(1), Fraction(1, 2), Sampling.POISSON, Relation.REPLACE_ONE)
