"""Conversions against a slow twin with 250 decimal digits."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagveil.errors import BudgetError, InvalidBudgetError
from dagveil.privacy.budget import (
    DELTA_SLACK,
    EPSILON_SLACK,
    MOST_CHANGED_DRAWS,
    Budget,
    epsilon_of_mu_squared,
    epsilon_of_rho,
    log_gaussian_delta,
    mu_squared_of,
    rho_of,
)

BUDGETS = st.builds(
    lambda e, d: Budget.of(10.0**e, 10.0**d), st.floats(-4, 2), st.floats(-15, -0.5)
)  # 1e-4 … 100 and 1e-15 … 0.3


@cache
def pi() -> Decimal:
    def arctan_inverse(x):
        power = total = Decimal(1) / x
        k = 1
        while abs(power) > Decimal(10) ** -260:
            power = -power / (x * x)
            k += 2
            total += power / k
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def normal_cdf(x: Decimal) -> Decimal:
    density = (-x * x / 2).exp() / (2 * pi()).sqrt()
    term = total = x
    k = 1
    while abs(term) > Decimal(10) ** -260:
        k += 2
        term = term * x * x / k
        total += term
    return Decimal(1) / 2 + density * total


def true_delta(epsilon: Fraction, mu_squared: Fraction) -> Decimal:
    mu = (Decimal(mu_squared.numerator) / Decimal(mu_squared.denominator)).sqrt()
    e = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
    return normal_cdf(-e / mu + mu / 2) - e.exp() * normal_cdf(-e / mu - mu / 2)


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


@pytest.mark.parametrize(
    ("epsilon", "rho", "half_mu_squared"), [(0.1, 0.000321, 0.000379), (1, 0.0244, 0.0280), (10, 1.539, 1.708)]
)
def test_known_values(epsilon, rho, half_mu_squared):
    budget = Budget.of(epsilon, 1e-6)
    assert float(rho_of(budget)) == pytest.approx(rho, rel=2e-3)
    assert float(mu_squared_of(budget)) / 2 == pytest.approx(half_mu_squared, rel=2e-3)


@settings(max_examples=25, deadline=None)
@given(BUDGETS)
def test_gaussian_totals_keep_the_promise_and_waste_little(budget):
    # what docs/proofs/discrete-gaussian.md needs for the largest number of changed draws
    zeta = 3e-17
    needed = budget.epsilon - Fraction(2 * MOST_CHANGED_DRAWS * zeta)
    total = mu_squared_of(budget)
    with localcontext() as context:
        context.prec = 250
        assert true_delta(needed, total) * Decimal(1 + 2 * MOST_CHANGED_DRAWS * zeta) <= decimal(budget.delta)
        if budget.epsilon > Fraction(1, 1000):
            assert true_delta(budget.epsilon, total * Fraction(10_001, 10_000)) > decimal(budget.delta)


@settings(max_examples=40, deadline=None)
@given(st.floats(-4, 2), st.floats(-6, 2))
def test_log_delta_against_many_digits(log_epsilon, log_ratio):
    epsilon = 10.0**log_epsilon
    mu = epsilon / 10.0 ** min(max(log_ratio, -0.5), 1.2)
    with localcontext() as context:
        context.prec = 250
        truth = true_delta(Fraction(epsilon), Fraction(mu) ** 2)
        if truth < Decimal(10) ** -40:
            return
        log_truth = float(truth.ln())
    # far inside the slack that the conversions keep
    assert log_gaussian_delta(epsilon, mu) == pytest.approx(log_truth, abs=DELTA_SLACK / 20)


def slow_epsilon_of_rho(rho: float, delta: float) -> float:
    best = math.inf
    for step in range(1, 40_000):
        order = 1 + math.exp(-14 + step * 36 / 40_000)
        log_rest = (order - 1) * math.log1p(-1 / order) - math.log(order)
        best = min(best, order * rho + (math.log(1 / delta) + log_rest) / (order - 1))
    return max(best, 0.0)


@pytest.mark.parametrize("rho", [1e-9, 1e-4, 0.02, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.01])
def test_rho_to_epsilon_against_a_grid(rho, delta):
    found = float(epsilon_of_rho(Fraction(rho), Fraction(delta)))
    assert found == pytest.approx(slow_epsilon_of_rho(rho, delta), rel=1e-5, abs=5 * EPSILON_SLACK)


@pytest.mark.parametrize("mu_squared", [1e-6, 0.01, 0.5, 3.0])
def test_rho_never_beats_the_gaussian_it_describes(mu_squared):
    delta = Fraction(1, 10**6)
    exact_epsilon = epsilon_of_mu_squared(Fraction(mu_squared), delta)
    assert exact_epsilon <= epsilon_of_rho(Fraction(mu_squared) / 2, delta) + Fraction(2 * EPSILON_SLACK)


# so small that logarithms cancel down to them: once 3e-15 more came back than was there
@example(Budget.of("1e-4", "1e-13"))
@example(Budget.of(10.0**-3.941809747233339, 1e-13))
@example(Budget.of(10.0**-3.71, 10.0**-14.459600894620577))
@settings(max_examples=60, deadline=None)
@given(BUDGETS)
def test_forth_and_back_stays_inside_the_budget(budget):
    for there, back in ((mu_squared_of, epsilon_of_mu_squared), (rho_of, epsilon_of_rho)):
        spent = back(there(budget), budget.delta)
        assert spent <= budget.epsilon
        assert spent >= budget.epsilon * Fraction(999_999, 1_000_000) - Fraction(1, 10**8)


@settings(max_examples=60, deadline=None)
@given(st.floats(-7.9, -3), st.floats(-290, -0.5))
def test_forth_and_back_of_tiny_budgets_stays_inside_too(log_epsilon, log_delta):
    budget = Budget.of(10.0**log_epsilon, 10.0**log_delta)
    assert epsilon_of_mu_squared(mu_squared_of(budget), budget.delta) <= budget.epsilon
    assert epsilon_of_rho(rho_of(budget), budget.delta) <= budget.epsilon


def test_more_budget_is_more_total():
    epsilons = [0.001, 0.01, 0.1, 1, 10, 100]
    for total_of in (mu_squared_of, rho_of):
        totals = [total_of(Budget.of(e, 1e-6)) for e in epsilons]
        assert totals == sorted(totals)


@pytest.mark.parametrize("convert", [mu_squared_of, rho_of])
def test_delta_zero_has_only_pure_accounting(convert):
    with pytest.raises(BudgetError, match="pure"):
        convert(Budget.of(1, 0))


def test_an_epsilon_inside_the_slack_is_refused():
    with pytest.raises(InvalidBudgetError, match="1e-8"):
        mu_squared_of(Budget.of(1e-9, 1e-6))


def test_nothing_spent_is_epsilon_zero():
    assert epsilon_of_mu_squared(Fraction(0), Fraction(1, 10)) == 0
    assert epsilon_of_rho(Fraction(0), Fraction(1, 10)) == 0
