import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import MOST_CHANGED_DRAWS, Budget
from dagveil.privacy.events import (
    FAILURE_SHARE,
    ApproximateZcdpFilter,
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialChoice,
    GaussianFilter,
    PureFilter,
    SmoothLaplace,
    SparseVectorRound,
    Unbounded,
    ZcdpFilter,
    tightest_filter,
)

SMALL = st.fractions(min_value="1/10000", max_value=2)
PURE = st.one_of(*(st.builds(kind, st.just("q"), SMALL) for kind in (ExponentialChoice, SparseVectorRound)))
GAUSSIAN = st.builds(
    DiscreteGaussian, st.just("t"), st.integers(1, 100), SMALL, st.fractions(min_value=100, max_value=10**5)
)
SMOOTH = st.builds(SmoothLaplace, st.just("m"), SMALL, st.just(Fraction(1, 10**8)))


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


class TestApproximateZcdp(FilterContract):
    kind = ApproximateZcdpFilter
    events = PURE | GAUSSIAN | SMOOTH

    def priced_at(self, amount):
        return DiscreteGaussian("t", 1, 2000 * amount, Fraction(1000))

    def test_rho_is_converted_with_the_other_part_of_delta(self):
        rest = Budget(self.budget.epsilon, self.budget.delta * (1 - FAILURE_SHARE))
        assert ApproximateZcdpFilter(self.budget).total == ZcdpFilter(rest).total

    def test_failures_have_a_limit_of_their_own(self):
        accounting = ApproximateZcdpFilter(self.budget)
        share = self.budget.delta * FAILURE_SHARE
        cheap = Fraction(1, 1000)
        accounting.charge(SmoothLaplace("m", cheap, share / 3))
        accounting.charge(SmoothLaplace("m", cheap, share * 2 / 3))
        assert accounting.remaining_failure == 0
        spent = accounting.spent
        with pytest.raises(BudgetExceededError, match="fail"):
            accounting.charge(SmoothLaplace("m", cheap, Fraction(1, 10**30)))
        assert accounting.spent == spent == cheap**2
        accounting.charge(SparseVectorRound("q", cheap))  # events that cannot fail still have room

    def test_a_refusal_for_rho_keeps_the_failures(self):
        accounting = ApproximateZcdpFilter(self.budget)
        with pytest.raises(BudgetExceededError, match="rho"):
            accounting.charge(SmoothLaplace("m", Fraction(10), Fraction(1, 10**9)))
        assert accounting.remaining_failure == accounting.total_failure

    @pytest.mark.parametrize("count", [1, 7, 60])
    def test_the_worst_releases_stay_inside_the_budget(self, count):
        # every (epsilon, delta)-private release is a function of the answer of this one, so it is the worst
        accounting = ApproximateZcdpFilter(self.budget)
        failure = accounting.total_failure / count
        epsilon = Fraction(math.isqrt(int(2 * accounting.total / count * 10**12)), 10**6)
        for _ in range(count):
            accounting.charge(SmoothLaplace("m", epsilon, failure))
        assert accounting.remaining < accounting.total / 1000
        truths = np.arange(count + 1)
        truth = 1 / (1 + math.exp(-epsilon))
        choose = np.array([math.comb(count, k) for k in truths], dtype=float)
        p = choose * truth**truths * (1 - truth) ** (count - truths)
        survived = (1 - float(failure)) ** count
        excess = np.maximum(p - math.exp(self.budget.epsilon) * p[::-1], 0).sum()
        assert 1 - survived + survived * excess <= self.budget.delta


@pytest.mark.parametrize("kind", [PureFilter, ZcdpFilter, GaussianFilter])
def test_other_filters_refuse_releases_that_may_fail(kind):
    accounting = kind(Budget.of(2, 1e-5))
    with pytest.raises(BudgetError, match="approximate zCDP"):
        accounting.charge(SmoothLaplace("m", Fraction(1, 10), Fraction(1, 10**7)))
    assert accounting.spent == 0


@pytest.mark.parametrize("seed", range(40))
def test_every_approximate_release_splits_into_failure_and_a_pure_one(seed):
    """The construction of docs/proofs/zcdp-filter.md, on random pairs of laws."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet([0.3] * 6), rng.dirichlet([0.3] * 6)
    factor = math.exp(rng.uniform(0.01, 2))
    losses = [np.maximum(a - factor * b, 0).sum() for a, b in ((p, q), (q, p))]
    if losses[0] > losses[1]:
        p, q = q, p
    delta = max(losses) + rng.choice([0, 0.3]) * (1 - max(losses))
    kept_p, kept_q = np.minimum(p, factor * q), np.minimum(q, factor * p)
    middle = np.minimum(kept_p, kept_q)
    step = (kept_p.sum() - kept_q.sum()) / max((kept_p - middle).sum(), 1e-300)
    assert -1e-9 <= step <= 1 + 1e-9
    kept_p = kept_p + step * (middle - kept_p)
    shrink = (1 - delta) / kept_q.sum()
    kept_p, kept_q = shrink * kept_p, shrink * kept_q
    for kept, law in ((kept_p, p), (kept_q, q)):
        assert kept.sum() == pytest.approx(1 - delta)
        assert (kept <= law + 1e-12).all()
    assert (kept_p <= factor * kept_q + 1e-12).all()
    assert (kept_q <= factor * kept_p + 1e-12).all()


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
    assert isinstance(tightest_filter(budget, [DiscreteGaussian, SparseVectorRound]), ZcdpFilter)
    assert isinstance(tightest_filter(budget, [SmoothLaplace]), ApproximateZcdpFilter)
    assert isinstance(tightest_filter(budget, [DiscreteGaussian, SmoothLaplace]), ApproximateZcdpFilter)
    with pytest.raises(BudgetError, match="fail"):
        tightest_filter(Budget.of(1, 0), [SmoothLaplace, SparseVectorRound])
    assert isinstance(tightest_filter(Budget.of(1, 0), [SparseVectorRound]), PureFilter)
    with pytest.raises(BudgetError, match="delta"):
        tightest_filter(Budget.of(1, 0), [DiscreteGaussian])
    with pytest.raises(BudgetError, match="guarantee"):
        tightest_filter(budget, [Unbounded])
