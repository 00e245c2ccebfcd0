"""Rényi accounting against exact sums of probabilities, many digits, and a numerical convolution of privacy losses."""

import math
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from dagveil.errors import BudgetError, BudgetExceededError, InvalidBudgetError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialChoice,
    GaussianFilter,
    PureFilter,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    Unbounded,
    ZcdpFilter,
    decode_event,
    encode_event,
    gaussian_cost,
    pure_cost,
    tightest_filter,
    zcdp_cost,
)
from dagveil.privacy.renyi import (
    MOST_ORDER,
    RenyiFilter,
    best_order,
    epsilon_of_renyi,
    renyi_cost,
    renyi_of,
    smallest_ratio,
    subsampled_cost,
)

BUDGET = Budget.of(1, 1e-6)


def log_law(centre: int, variance: float, reach: int) -> np.ndarray:
    """Log-probabilities of the discrete Gaussian on −reach … reach."""
    y = np.arange(-reach, reach + 1)
    weight = -((y - centre) ** 2) / (2 * variance)
    return weight - logsumexp(weight)


def mix(log_p: np.ndarray, log_q: np.ndarray, share: float) -> np.ndarray:
    return np.logaddexp(log_q + math.log1p(-share), log_p + math.log(share)) if share < 1 else log_p


def divergence(log_p: np.ndarray, log_q: np.ndarray, order: float) -> float:
    return float(logsumexp(order * log_p + (1 - order) * log_q)) / (order - 1)


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("variance", [0.3, 2.0, 25.0, 400.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_the_cost_covers_both_directions(rate, variance, shift):
    for order in (2, 3, 5, 16, 64):
        reach = int(40 * math.sqrt(variance)) + (order + 1) * shift + 20
        without, joined = log_law(0, variance, reach), log_law(shift, variance, reach)
        mixture = mix(joined, without, rate)
        charged = float(subsampled_cost(Fraction(rate), Fraction(variance) / shift**2, order))
        forward = divergence(mixture, without, order)
        assert divergence(without, mixture, order) <= forward * (1 + 1e-9) + 1e-13
        # the formula is exact for the largest shift: it must neither undercharge nor waste
        assert forward <= charged * (1 + 1e-12) + 1e-13
        assert charged == pytest.approx(forward, rel=1e-6, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(
    st.floats(0.01, 0.99),
    st.floats(0.3, 50),
    st.lists(st.tuples(st.integers(-6, 6), st.integers(-4, 4), st.floats(0.05, 1)), min_size=1, max_size=5),
    st.sampled_from([2, 3, 8, 20]),
)
def test_the_cost_covers_mixtures_of_hidden_sub_samples(rate, variance, parts, order):
    """The rest of the sub-sample is random too: each draw of it has its own centre and its own shift."""
    reach = int(40 * math.sqrt(variance)) + 5 * order + 30
    total = sum(weight for _, _, weight in parts)
    absent = logsumexp([log_law(c, variance, reach) + math.log(w / total) for c, _, w in parts], axis=0)
    present = logsumexp(
        [
            mix(log_law(c + v, variance, reach), log_law(c, variance, reach), rate) + math.log(w / total)
            for c, v, w in parts
        ],
        axis=0,
    )
    charged = float(subsampled_cost(Fraction(rate), Fraction(variance) / 16, order))
    assert divergence(present, absent, order) <= charged * (1 + 1e-9) + 1e-12
    assert divergence(absent, present, order) <= charged * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("record", [-3, -1, 2, 3])
def test_a_whole_mechanism_on_every_sub_sample(record):
    """Sum of values in −3 … 3 over a Poisson sub-sample: all sub-samples of four records, one record more or less."""
    rate, variance, rows = 0.3, 6.0, [3, -2, 1, 3]

    def law(values):
        parts = []
        for kept in product((0, 1), repeat=len(values)):
            chance = math.prod(rate if k else 1 - rate for k in kept)
            parts.append(math.log(chance) + log_law(int(np.dot(kept, values)), variance, 300))
        return logsumexp(parts, axis=0)

    small, large = law(rows), law([*rows, record])
    for order in (2, 4, 9, 20):
        charged = float(subsampled_cost(Fraction(rate), Fraction(variance) / 9, order))
        assert divergence(large, small, order) <= charged + 1e-12
        assert divergence(small, large, order) <= charged + 1e-12


def test_a_reused_sub_sample_costs_more_than_fresh_ones():
    """Fifty answers from one sub-sample are one mechanism with shift √50: charging it as fifty fresh ones is false."""
    rate, variance, order, answers = 0.1, 400.0, 16, 50
    fresh = answers * float(subsampled_cost(Fraction(rate), Fraction(variance), order))
    reused = float(subsampled_cost(Fraction(rate), Fraction(variance) / answers, order))
    assert reused > 1.3 * fresh


def slow_cost(rate: Fraction, ratio: Fraction, order: int) -> Decimal:
    q, r = (Decimal(x.numerator) / Decimal(x.denominator) for x in (rate, ratio))
    moment = sum(
        math.comb(order, k) * (1 - q) ** (order - k) * q**k * (Decimal(k * k - k) / (2 * r)).exp()
        for k in range(order + 1)
    )
    return moment.ln() / (order - 1)


@settings(max_examples=60, deadline=None)
@example(-3.0, -2.0, MOST_ORDER)
@given(st.floats(-9, -0.001), st.floats(-2, 12), st.sampled_from([2, 3, 10, 100, MOST_ORDER]))
def test_cost_against_many_digits(log_rate, log_ratio, order):
    rate, ratio = Fraction(10.0**log_rate), Fraction(10.0**log_ratio)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 80, MAX_EMAX, MIN_EMIN  # moments are as large as e^(5·10⁷)
        truth = slow_cost(rate, ratio, order)
        charged = subsampled_cost(rate, ratio, order)
        shown = Decimal(charged.numerator) / Decimal(charged.denominator)
        assert truth * (1 - Decimal(10) ** -60) <= shown <= truth * (1 + Decimal(10) ** -8)


def test_extreme_figures_are_charged_from_above():
    assert subsampled_cost(Fraction(1, 2**900), Fraction(10**300), 8) > 0
    assert subsampled_cost(1 - Fraction(1, 2**900), Fraction(3), 8) == Fraction(8, 6)
    with pytest.raises(InvalidBudgetError, match="noise"):
        subsampled_cost(Fraction(1, 2), Fraction(1, 2**900), 8)


def test_prices_of_other_events():
    assert renyi_cost(DiscreteGaussian("t", 3, Fraction(2), Fraction(100)), 5) == Fraction(1, 20)
    assert renyi_cost(SparseVectorRound("t", Fraction(1, 10)), 5) == Fraction(1, 40)
    assert renyi_cost(DiscreteLaplace("t", 4, Fraction(3)), 5) == 3
    assert renyi_cost(ExponentialChoice("t", Fraction(1)), 4) == Fraction(1, 2)
    assert renyi_cost(Unbounded("t", "as published"), 4) is None


@pytest.mark.parametrize("order", [2, 3, 8, 40])
@pytest.mark.parametrize("epsilon", [0.05, 0.4, 2.0])
def test_pure_prices_cover_randomised_response(order, epsilon):
    p = 1 / (1 + math.exp(-epsilon))
    log_p, log_q = np.log([p, 1 - p]), np.log([1 - p, p])
    assert (
        divergence(log_p, log_q, order) <= float(renyi_cost(SparseVectorRound("t", Fraction(epsilon)), order)) + 1e-12
    )


# --- conversion -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(-2, 2), st.floats(-15, -0.5), st.sampled_from([2, 3, 10, 64, 500]))
def test_totals_go_forth_and_back_inside_the_budget(log_epsilon, log_delta, order):
    budget = Budget.of(10.0**log_epsilon, 10.0**log_delta)
    plain = float(budget.epsilon) - math.log1p(-1 / order) + math.log(order * float(budget.delta)) / (order - 1)
    if plain < 1e-5:
        with pytest.raises(BudgetError, match="larger order"):
            renyi_of(Budget.of(budget.epsilon / 2, budget.delta), order)
        return
    total = renyi_of(budget, order)
    assert float(total) < plain
    assert float(total) == pytest.approx(plain, abs=1e-5)
    spent = epsilon_of_renyi(total, order, budget.delta)
    assert budget.epsilon - Fraction(1, 10**8) * max(1, budget.epsilon) < spent <= budget.epsilon + Fraction(1, 10**15)


def loss_delta(log_p: np.ndarray, log_q: np.ndarray, times: int, epsilon: float, upwards: bool) -> float:
    """δ(ε) of so many independent repetitions; losses are rounded to a grid in one direction."""
    step, size = 2e-5, 2**20
    loss = (log_p - log_q) / step
    loss = np.ceil(loss) if upwards else np.floor(loss)
    mass = np.zeros(size)
    np.add.at(mass, loss.astype(int) % size, np.exp(log_p))
    composed = np.fft.irfft(np.fft.rfft(mass) ** times, size)
    place = np.arange(size)
    values = np.where(place < size // 2, place, place - size) * step
    return float((composed * -np.expm1(np.minimum(epsilon - values, 0))).sum())


@pytest.mark.parametrize(("rate", "questions"), [(Fraction(1, 10), 60), (Fraction(1, 2), 20), (Fraction(1, 50), 200)])
def test_a_full_run_keeps_its_promise(rate, questions):
    order = best_order(BUDGET, rate, questions)
    variance = Fraction(math.ceil(smallest_ratio(BUDGET, rate, questions, order)))
    accounting = RenyiFilter(BUDGET, order)
    for _ in range(questions):
        accounting.charge(SubsampledGaussian("q", rate, Fraction(1), variance))
    claimed = float(epsilon_of_renyi(accounting.spent, order, BUDGET.delta))
    assert claimed <= 1 + 1e-8
    reach = int(14 * math.sqrt(variance)) + 5
    without, joined = log_law(0, float(variance), reach), log_law(1, float(variance), reach)
    mixture = mix(joined, without, float(rate))
    both = [(mixture, without), (without, mixture)]
    assert max(loss_delta(p, q, questions, claimed, upwards=True) for p, q in both) <= 1e-6
    # and it is no empty promise: two thirds of that epsilon would be false
    assert max(loss_delta(p, q, questions, 0.66 * claimed, upwards=False) for p, q in both) > 1e-6


# --- planning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 10), Fraction(1, 200)])
@pytest.mark.parametrize(("epsilon", "questions"), [(0.1, 30), (1, 1), (1, 500), (8, 2000)])
def test_the_best_order_is_the_best_of_all(rate, epsilon, questions):
    budget = Budget.of(epsilon, 1e-6)
    order = best_order(budget, rate, questions)
    ratio = smallest_ratio(budget, rate, questions, order)
    assert questions * subsampled_cost(rate, ratio, order) <= renyi_of(budget, order)
    assert questions * subsampled_cost(rate, ratio * Fraction(999, 1000), order) > renyi_of(budget, order)
    for other in range(2, 200):
        try:
            each = renyi_of(budget, other) / questions
        except BudgetError:
            continue
        # no order makes do with a hundredth less; between the candidates little is left to gain
        assert subsampled_cost(rate, ratio * Fraction(99, 100), other) > each


def test_less_sampling_needs_less_noise():
    ratios = [
        smallest_ratio(BUDGET, rate, 100, best_order(BUDGET, rate, 100))
        for rate in (Fraction(1), Fraction(1, 5), Fraction(1, 50))
    ]
    assert ratios[0] > 4 * ratios[1] > 16 * ratios[2]


@pytest.mark.parametrize(
    "call",
    [
        lambda: best_order(BUDGET, Fraction(0), 5),
        lambda: best_order(BUDGET, Fraction(3, 2), 5),
        lambda: smallest_ratio(BUDGET, Fraction(1, 2), 0, 20),
        lambda: best_order(BUDGET, Fraction(1, 2), 0),
        lambda: best_order(Budget.of("1e-5", "1e-12"), Fraction(1, 2), 5),
        lambda: best_order(Budget.of(1, 0), Fraction(1, 2), 5),
        lambda: renyi_of(Budget.of(1, 0), 8),
        lambda: renyi_of(BUDGET, 1),
        lambda: renyi_of(BUDGET, MOST_ORDER + 1),
        lambda: RenyiFilter(BUDGET, 2),
        lambda: RenyiFilter(BUDGET, 2.5),
        lambda: epsilon_of_renyi(Fraction(-1), 8, Fraction(1, 10)),
    ],
)
def test_impossible_plans_are_refused(call):
    with pytest.raises(BudgetError):
        call()


# --- event and filter -------------------------------------------------------------------------------------------------


def test_the_event_survives_json_and_refuses_bad_rates():
    event = SubsampledGaussian("pair", Fraction(1, 7), Fraction(4), Fraction(900))
    assert decode_event(encode_event(event)) == event
    assert b'"rate":"1/7"' in encode_event(event)
    for rate in (Fraction(0), Fraction(8, 7), 0.1):
        with pytest.raises(InvalidBudgetError):
            SubsampledGaussian("pair", rate, Fraction(4), Fraction(900))
    with pytest.raises(msgspec.ValidationError):
        decode_event(encode_event(event).replace(b"1/7", b"8/7"))


def test_other_accountings_never_count_on_the_sub_sample():
    event = SubsampledGaussian("pair", Fraction(1, 7), Fraction(4), Fraction(900))
    assert (pure_cost(event), zcdp_cost(event), gaussian_cost(event)) == (None, Fraction(2, 900), None)
    ZcdpFilter(BUDGET).charge(event)
    for refusing in (PureFilter(BUDGET), GaussianFilter(BUDGET)):
        with pytest.raises(BudgetError, match="accounting"):
            refusing.charge(event)
    with pytest.raises(BudgetError, match="delta"):
        tightest_filter(Budget.of(1, 0), [SubsampledGaussian])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.builds(
                SubsampledGaussian,
                st.just("q"),
                st.fractions(min_value="1/1000", max_value=1),
                st.just(Fraction(1)),
                st.fractions(min_value=10, max_value=10**5),
            ),
            st.builds(SparseVectorRound, st.just("q"), st.fractions(min_value="1/1000", max_value=1)),
            st.builds(
                DiscreteGaussian,
                st.just("q"),
                st.just(3),
                st.just(Fraction(1)),
                st.fractions(min_value=10, max_value=10**5),
            ),
        ),
        max_size=25,
    )
)
def test_no_sequence_overspends(events):
    accounting = RenyiFilter(BUDGET, 20)
    paid = Fraction(0)
    for event in events:
        price = accounting.cost(event)
        assert price > 0
        if price <= accounting.remaining:
            accounting.charge(event)
            paid += price
        else:
            with pytest.raises(BudgetExceededError, match="left"):
                accounting.charge(event)
        assert accounting.spent == paid <= accounting.total


def test_the_filter_says_what_it_is():
    accounting = RenyiFilter(BUDGET, 20)
    assert accounting.order == 20
    with pytest.raises(BudgetError, match="no guarantee"):
        accounting.charge(Unbounded("edge", "as published"))
    with pytest.raises(BudgetError, match="may fail"):
        accounting.charge(SmoothLaplace("median", Fraction(1, 10), Fraction(1, 10**7)))
    assert accounting.spent == 0
