from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import Budget
from dagveil.privacy.conversion import MOST_CHANGED_DRAWS
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialChoice,
    NoisyMax,
    SparseVectorRound,
    Unbounded,
)
from dagveil.privacy.filter import GaussianFilter, PureFilter, ZcdpFilter, tightest_filter

SMALL = st.fractions(min_value="1/10000", max_value=2)
PURE = st.one_of(*(st.builds(kind, st.just("q"), SMALL) for kind in (ExponentialChoice, NoisyMax, SparseVectorRound)))
GAUSSIAN = st.builds(
    DiscreteGaussian, st.just("t"), st.integers(1, 100), SMALL, st.fractions(min_value=100, max_value=10**5)
)


# every filter inherits these tests on purpose
SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class FilterContract:
    """What every filter keeps."""

    kind: type
    budget = Budget.of(2, 1e-5)
    events: st.SearchStrategy

    @settings(SHARED, max_examples=60)
    @given(st.data())
    def test_no_sequence_overspends(self, data):
        accounting = self.kind(self.budget)
        paid = Fraction(0)
        for event in data.draw(st.lists(self.events, max_size=30)):
            before = accounting.spent
            price = accounting.cost(event)
            assert accounting.spent == before
            if price <= accounting.remaining:
                accounting.charge(event)
                paid += price
            else:
                with pytest.raises(BudgetExceededError, match="left"):
                    accounting.charge(event)
                assert accounting.spent == before
            assert accounting.spent == paid <= accounting.total
            assert accounting.remaining == accounting.total - accounting.spent

    @settings(SHARED, max_examples=40)
    @given(st.data())
    def test_order_does_not_matter(self, data):
        events = data.draw(st.lists(self.events, max_size=8))
        shuffled = data.draw(st.permutations(events))
        costs = [self.kind(self.budget).cost(event) for event in events]
        assert sorted(costs) == sorted(self.kind(self.budget).cost(event) for event in shuffled)
        if sum(costs) <= self.kind(self.budget).total:
            one, two = self.kind(self.budget), self.kind(self.budget)
            for event in events:
                one.charge(event)
            for event in shuffled:
                two.charge(event)
            assert one.spent == two.spent

    def test_a_release_without_guarantee_cannot_be_charged(self):
        accounting = self.kind(self.budget)
        with pytest.raises(BudgetError, match="no guarantee"):
            accounting.charge(Unbounded("edge", "as published"))
        assert accounting.spent == 0

    def test_the_promise_is_in_words(self):
        accounting = self.kind(self.budget)
        assert "epsilon 2" in accounting.guarantee_words
        assert accounting.budget == self.budget

    def test_the_whole_total_can_be_spent(self):
        accounting = self.kind(self.budget)
        accounting.charge(self.priced_at(accounting.total))
        assert accounting.remaining == 0
        with pytest.raises(BudgetExceededError):
            accounting.charge(self.priced_at(Fraction(1, 10**12)))


class TestPure(FilterContract):
    kind = PureFilter
    events = PURE

    def priced_at(self, amount):
        return DiscreteLaplace("q", 1, amount)

    def test_gaussian_noise_has_no_pure_price(self):
        with pytest.raises(BudgetError, match="delta"):
            PureFilter(self.budget).cost(DiscreteGaussian("t", 1, Fraction(1), Fraction(1000)))


class TestZcdp(FilterContract):
    kind = ZcdpFilter
    events = PURE | GAUSSIAN

    def priced_at(self, amount):
        return DiscreteGaussian("t", 1, 2000 * amount, Fraction(1000))


class TestGaussian(FilterContract):
    kind = GaussianFilter
    events = PURE | GAUSSIAN

    def priced_at(self, amount):
        return DiscreteGaussian("t", 1, 1000 * amount, Fraction(1002))

    def test_coarse_noise_is_refused_with_the_way_out(self):
        with pytest.raises(BudgetError, match="multiply"):
            GaussianFilter(self.budget).cost(DiscreteGaussian("t", 1, Fraction(1), Fraction(99)))

    def test_changed_draws_have_a_limit(self):
        accounting = GaussianFilter(self.budget)
        cheap = Fraction(1, 10**9)
        accounting.charge(DiscreteGaussian("t", 2 * MOST_CHANGED_DRAWS, cheap, Fraction(100), 5))
        accounting.charge(DiscreteGaussian("t", MOST_CHANGED_DRAWS - 5, cheap, Fraction(100)))
        spent = accounting.spent
        with pytest.raises(BudgetExceededError, match="changed"):
            accounting.charge(DiscreteGaussian("t", 1, cheap, Fraction(100)))
        assert accounting.spent == spent


def test_the_tightest_filter():
    budget = Budget.of(1, 1e-6)
    assert isinstance(tightest_filter(budget, [DiscreteGaussian]), GaussianFilter)
    assert isinstance(tightest_filter(budget, [DiscreteGaussian, NoisyMax]), ZcdpFilter)
    assert isinstance(tightest_filter(Budget.of(1, 0), [NoisyMax]), PureFilter)
    with pytest.raises(BudgetError, match="delta"):
        tightest_filter(Budget.of(1, 0), [DiscreteGaussian])
    with pytest.raises(BudgetError, match="guarantee"):
        tightest_filter(budget, [Unbounded])
