import math
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from dagveil.errors import InvalidBudgetError
from dagveil.privacy.budget import log_gaussian_delta
from dagveil.privacy.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialChoice,
    RandomisedResponse,
    SmoothLaplace,
    SparseVectorRound,
    Unbounded,
    approximate_zcdp_cost,
    decode_event,
    encode_event,
    failure_probability,
    gaussian_cost,
    pure_cost,
    zcdp_cost,
)

POSITIVE = st.fractions(min_value="1/1000000", max_value=10**6)
DRAWS = st.integers(1, 10**9)
SINGLE = (ExponentialChoice, SparseVectorRound, RandomisedResponse)
EVENTS = st.one_of(
    st.builds(DiscreteGaussian, st.text(), DRAWS, POSITIVE, POSITIVE, st.none() | DRAWS),
    st.builds(DiscreteLaplace, st.text(), DRAWS, POSITIVE),
    *(st.builds(kind, st.text(), POSITIVE) for kind in SINGLE),
    st.builds(SmoothLaplace, st.text(), POSITIVE, st.fractions(min_value="1/1000000", max_value="999/1000")),
    st.builds(Unbounded, st.text(), st.text()),
)


@given(EVENTS)
def test_events_survive_json(event):
    assert decode_event(encode_event(event)) == event


def test_fractions_are_written_exactly():
    text = encode_event(DiscreteGaussian("cells", 3, Fraction(1, 3), Fraction(200)))
    assert b'"squared_sensitivity":"1/3"' in text
    assert b'"variance":"200"' in text


@pytest.mark.parametrize(
    "build",
    [
        lambda: SparseVectorRound("x", Fraction(0)),
        lambda: SparseVectorRound("x", 0.5),
        lambda: SmoothLaplace("x", Fraction(1), Fraction(0)),
        lambda: SmoothLaplace("x", Fraction(1), Fraction(1)),
        lambda: SmoothLaplace("x", Fraction(1), 1e-6),
        lambda: DiscreteGaussian("x", 0, Fraction(1), Fraction(1)),
        lambda: DiscreteGaussian("x", 1, Fraction(1), Fraction(-1)),
        lambda: DiscreteGaussian("x", 1, Fraction(1), Fraction(1), -1),
    ],
)
def test_impossible_events_are_refused(build):
    with pytest.raises(InvalidBudgetError):
        build()


def test_impossible_events_are_refused_in_json():
    with pytest.raises(msgspec.ValidationError):
        decode_event('{"kind":"sparse-vector-round","label":"x","epsilon":"-1"}')


def test_costs():
    table = DiscreteGaussian("cells", 3, Fraction(2), Fraction(102))
    assert (pure_cost(table), zcdp_cost(table), gaussian_cost(table)) == (None, Fraction(1, 102), Fraction(1, 50))
    assert gaussian_cost(DiscreteGaussian("cells", 3, Fraction(2), Fraction(99))) is None
    choice = ExponentialChoice("edge", Fraction(1, 2))
    assert (pure_cost(choice), zcdp_cost(choice)) == (Fraction(1, 2), Fraction(1, 32))
    assert zcdp_cost(SparseVectorRound("edge", Fraction(1, 2))) == Fraction(1, 8)
    paper = Unbounded("edge", "as published")
    assert (pure_cost(paper), zcdp_cost(paper), gaussian_cost(paper)) == (None, None, None)
    assert approximate_zcdp_cost(paper) is None


def test_a_release_that_may_fail_has_two_prices():
    smooth = SmoothLaplace("median", Fraction(1, 2), Fraction(1, 10**7))
    assert (pure_cost(smooth), zcdp_cost(smooth), gaussian_cost(smooth)) == (None, None, None)
    assert (approximate_zcdp_cost(smooth), failure_probability(smooth)) == (Fraction(1, 8), Fraction(1, 10**7))
    choice = ExponentialChoice("edge", Fraction(1, 2))
    assert (approximate_zcdp_cost(choice), failure_probability(choice)) == (zcdp_cost(choice), 0)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0, 8.0])
def test_pure_events_cost_at_least_what_randomised_response_needs(epsilon):
    # exact mu of epsilon-DP: the corner of its trade-off curve lies on that of a shift by mu
    mu = 2 * ndtri(1 / (1 + math.exp(-epsilon)))
    charged = gaussian_cost(RandomisedResponse("x", Fraction(epsilon)))
    assert mu**2 <= charged
    assert charged <= mu**2 * (1.001 if epsilon < 0.1 else 3)
    # the exponential mechanism: the worst window of the same length that need not be symmetric
    worst = max(
        ndtri(1 / (1 + math.exp(-(start + epsilon)))) - ndtri(1 / (1 + math.exp(-start)))
        for start in np.linspace(-8 - epsilon, 8, 400)
    )
    assert worst**2 <= gaussian_cost(ExponentialChoice("x", Fraction(epsilon)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_concentrated_costs_cover_two_point_mechanisms(epsilon):
    # all pairs of two-point laws whose loss has range epsilon; epsilon-DP ones have range 2 epsilon
    for charged, span in ((zcdp_cost(ExponentialChoice("x", Fraction(epsilon))), epsilon),
                          (zcdp_cost(SparseVectorRound("x", Fraction(epsilon))), 2 * epsilon)):  # fmt: skip
        for top in np.linspace(0.02, 0.98, 25) * span:
            q = (1 - math.exp(top - span)) / (math.exp(top) - math.exp(top - span))
            p = q * math.exp(top)
            for order in (1.01, 1.5, 2, 5, 30):
                moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
                assert math.log(moment) / (order - 1) <= order * charged * (1 + 1e-9)


def discrete_gaussian_delta(shift: int, variance: float, epsilon: float) -> float:
    reach = int(12 * math.sqrt(variance)) + shift
    y = np.arange(-reach, reach + 1)
    p = np.exp(-(y**2) / (2 * variance))
    q = np.exp(-((y - shift) ** 2) / (2 * variance))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() / p.sum())


@pytest.mark.parametrize("variance", [100, 101.5, 400, 10_000])
@pytest.mark.parametrize("shift", [1, 3, 10, 40])
def test_gaussian_cost_dominates_the_discrete_gaussian(variance, shift):
    charged = gaussian_cost(DiscreteGaussian("x", 1, Fraction(shift**2), Fraction(variance)))
    mu = math.sqrt(charged)
    for epsilon in np.linspace(0.01, 6 * mu + mu**2, 60):
        promised = math.exp(log_gaussian_delta(float(epsilon), mu))
        assert discrete_gaussian_delta(shift, variance, float(epsilon)) <= promised * (1 + 1e-7) + 1e-14


def test_without_the_rounding_variance_the_promise_would_break():
    # the plain Gaussian curve with the discrete variance is not a bound: some epsilon violates it
    variance, shift = 100, 1
    mu = shift / math.sqrt(variance)
    excess = [
        discrete_gaussian_delta(shift, variance, float(e)) / math.exp(log_gaussian_delta(float(e), mu))
        for e in np.linspace(0.01, 0.6, 400)
    ]
    assert max(excess) > 1 + 1e-6
