"""The median with smooth noise: every claim of docs/proofs/smooth-median.md by search, and the printed noise beside."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import chdtri

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import ApproximateZcdpFilter, SmoothLaplace
from dagveil.privacy.mechanisms.smooth_median import (
    DECAY_BITS,
    SMALLEST_SCALE,
    decay_for,
    dilation_bound,
    median,
    noise_scale,
    release_median,
    smooth_sensitivity,
)
from dagveil.privacy.noise.exact import exp_bounds
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import representable_scale
from published_bounds import PublishedLaw, published_constants, published_median_noise, published_scale

MILLIONTH = Fraction(1, 10**6)
TINY = [(1, 6), (2, 5), (3, 4), (4, 3), (5, 2)]


def neighbours(values, domain):
    """All lists that differ from this one in one value."""
    return [
        (*values[:place], other, *values[place + 1 :])
        for place, value in enumerate(values)
        for other in domain
        if other != value
    ]


def defined_sensitivities(count, upper, beta):
    """Smooth sensitivities of all lists over 0 to upper, straight from the definition."""
    domain = range(upper + 1)
    lists = list(product(domain, repeat=count))
    local = {x: max(abs(median(x) - median(y)) for y in neighbours(x, domain)) for x in lists}
    return {
        x: max(local[y] * math.exp(-beta * sum(a != b for a, b in zip(x, y, strict=True))) for y in lists)
        for x in lists
    }


@pytest.mark.parametrize(("count", "upper"), [*TINY[1:], (1, 7)])
@pytest.mark.parametrize("beta", [0.03, 0.4, 2.0])
def test_the_bound_is_the_definition(count, upper, beta):
    for values, defined in defined_sensitivities(count, upper, beta).items():
        bound = smooth_sensitivity(sorted(values), 0, upper, beta)
        assert float(bound) == pytest.approx(defined, rel=1e-12)


def test_the_bound_does_not_mind_order_or_shift():
    values = [3, 900, 17, 17, 420, 5]
    bound = smooth_sensitivity(sorted(values), 0, 1000, 0.1)
    assert bound == smooth_sensitivity(values, 0, 1000, 0.1)
    assert bound == smooth_sensitivity([value - 700 for value in values], -700, 300, 0.1)
    assert smooth_sensitivity([-5, 2000], 0, 1000, 0.1) == smooth_sensitivity([0, 1000], 0, 1000, 0.1)


@st.composite
def neighbouring_lists(draw):
    upper = draw(st.sampled_from([1, 7, 1000, 2**20]))
    values = draw(st.lists(st.sampled_from([0, upper // 3, upper]) | st.integers(0, upper), min_size=1, max_size=40))
    other = list(values)
    other[draw(st.integers(0, len(values) - 1))] = draw(st.sampled_from([0, upper]) | st.integers(0, upper))
    return values, other, upper


@settings(deadline=None, max_examples=300)
@given(neighbouring_lists(), st.sampled_from([1e-6, 0.004, 0.03, 0.3, 3.0]))
def test_neighbours_differ_by_the_decay_exactly(pair, beta):
    one, other, upper = pair
    here, there = (smooth_sensitivity(values, 0, upper, beta) for values in (one, other))
    decay = exp_bounds(*Fraction(beta).as_integer_ratio(), DECAY_BITS)[1]
    assert here * decay <= there * 2**DECAY_BITS
    assert there * decay <= here * 2**DECAY_BITS
    assert 0 < abs(median(one) - median(other)) <= min(here, there) or median(one) == median(other)
    assert 0 < here <= upper


@settings(deadline=None, max_examples=200)
@given(neighbouring_lists(), st.sampled_from(["1/100", "1/10", "1", "10", "700"]), st.sampled_from([1e-12, 1e-6, 0.5]))
def test_drawn_scales_obey_the_proof(pair, epsilon, delta):
    one, other, upper = pair
    budget = Budget.of(epsilon, delta)
    here, there = (
        representable_scale(noise_scale(values, 0, upper, budget.epsilon, budget.delta)) for values in (one, other)
    )
    bound = dilation_bound(budget.epsilon, budget.delta)
    assert max(here / there, there / here) <= bound
    assert abs(median(one) - median(other)) <= budget.epsilon / 2 * min(here, there)
    room = float(bound) - 1
    assert math.log1p(room) <= float(budget.epsilon) / 2
    assert 2 * room / (1 + room) * math.exp(-float(budget.epsilon) / (2 * room)) <= delta


@pytest.mark.parametrize("delta", ["1/2", "1/10", 1e-6, 1e-15])
@pytest.mark.parametrize("epsilon", ["1/1000", "1/10", "1", "10"])
def test_the_decay_uses_nearly_all_the_room(epsilon, delta):
    budget = Budget.of(epsilon, delta)
    half = float(budget.epsilon) / 2
    classic = half / math.log(2 / float(budget.delta))  # Nissim, Raskhodnikova and Smith

    def excess(c):
        return math.log(2 * c / (1 + c)) - half / c - math.log(float(budget.delta))

    most = math.expm1(half)
    truth = math.log1p(brentq(excess, classic, most) if excess(most) > 0 else most)
    assert truth > math.log1p(classic)
    beta = float(decay_for(budget.epsilon, budget.delta))
    assert truth - 2e-6 < beta < truth - 0.9e-6


# --- what one release really reveals -----------------------------------------------------------------------------


def law(kind, centre, scale, support):
    """Probabilities of a discrete law; at large scales, also those of the continuous one on a fine grid."""
    away = np.abs(support - centre) / scale
    weights = np.exp(-away if kind is PublishedLaw.LAPLACE else -(away**2) / 2)
    # an exact normaliser, so that a support that is cut off loses mass instead of moving it
    whole = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1) / scale
    return weights / np.exp(-np.abs(whole) if kind is PublishedLaw.LAPLACE else -(whole**2) / 2).sum()


def realised_delta(kind, one, other, epsilon):
    """Hockey-stick divergence of two laws, each given by centre and scale, in the worse direction."""
    reach = math.ceil(60 * max(one[1], other[1])) + abs(one[0]) + abs(other[0])
    support = np.arange(-reach, reach + 1)
    p, q = (law(kind, centre, scale, support) for centre, scale in (one, other))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))


def median_and_scale(values, upper, budget):
    scale = representable_scale(noise_scale(values, 0, upper, budget.epsilon, budget.delta))
    return median(values), float(scale)


def worst_pair(count, upper, describe, epsilon):
    """Largest realised delta over all neighbours of a small domain."""
    domain = range(upper + 1)
    described = {x: describe(x) for x in product(domain, repeat=count) if list(x) == sorted(x)}
    pairs = {
        tuple(sorted([described[x], described[tuple(sorted(y))]])) for x in described for y in neighbours(x, domain)
    }
    return max(realised_delta(PublishedLaw.LAPLACE, one, other, epsilon) for one, other in pairs)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-2), (1, 1e-6), (1, 0.3), (5, 1e-3), (8, 0.5)])
@pytest.mark.parametrize(("count", "upper"), TINY)
def test_no_neighbours_break_the_promise(count, upper, epsilon, delta):
    budget = Budget.of(epsilon, delta)
    worst = worst_pair(count, upper, lambda x: median_and_scale(x, upper, budget), epsilon)
    assert worst <= delta


@pytest.mark.parametrize("flaw", ["decay", "scale"])
def test_the_search_finds_known_flaws(flaw):
    budget = Budget.of(1, 1e-6)

    def flawed(values):
        if flaw == "decay":  # e^(−k epsilon) instead of e^(−k beta)
            return median(values), float(2 * smooth_sensitivity(values, 0, 3, 1.0))
        centre, scale = median_and_scale(values, 3, budget)
        return centre, scale / 2.2

    assert worst_pair(4, 3, flawed, 1.0) > 1e-4


FLAT, TOP = 201, 100_000
FLAT_PAIR = ([0] * FLAT, [0] * (FLAT - 1) + [TOP])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-6), (1, 1e-3), (4, 1e-9)])
def test_the_widest_dilation_stays_inside_the_promise(epsilon, delta):
    # all values equal: S is decay alone, so one change moves the scale by the whole factor
    budget = Budget.of(epsilon, delta)
    upper = 2000
    one, other = (median_and_scale(np.minimum(x, upper), upper, budget) for x in FLAT_PAIR)
    if one[1] > 1:
        assert other[1] / one[1] == pytest.approx(float(dilation_bound(budget.epsilon, budget.delta)), rel=1e-5)
    assert realised_delta(PublishedLaw.LAPLACE, one, other, epsilon) <= delta


def worst_of_proof(kind, alpha, ratio, scale, epsilon):
    """Largest realised delta of all centres and scales that (alpha, beta)-admissibility would allow."""
    far = math.floor(alpha * scale / ratio)
    shifts = {0, far // 2, far, math.floor(alpha * scale)}
    return max(realised_delta(kind, (0, scale), (shift, scale / ratio), epsilon) for shift in shifts)


def test_the_printed_constants_are_not_admissible():
    epsilon, delta = 1.0, 1e-6
    alpha, beta = published_constants(PublishedLaw.LAPLACE, epsilon, delta)
    assert worst_of_proof(PublishedLaw.LAPLACE, alpha, math.exp(beta), 20_000, epsilon) > 0.994
    alpha, beta = published_constants(PublishedLaw.GAUSSIAN, epsilon, delta)
    gaussian = worst_of_proof(PublishedLaw.GAUSSIAN, alpha, math.exp(beta), 2_000, epsilon)
    assert gaussian == pytest.approx(6.8e-4, rel=0.01)
    # ours, by the same computation
    ratio = float(dilation_bound(Fraction(1), MILLIONTH))
    ours = worst_of_proof(PublishedLaw.LAPLACE, 0.5, ratio, 2_000, epsilon)
    assert delta / 10 < ours <= delta


@pytest.mark.parametrize(("kind", "broken"), [(PublishedLaw.LAPLACE, 0.19), (PublishedLaw.GAUSSIAN, 0.34)])
def test_the_printed_release_breaks_its_promise_on_real_lists(kind, broken):
    epsilon, delta, upper = 1.0, 1e-6, 10**7
    count = 21
    one, other = [0] * count, [0] * (count - 1) + [upper]
    laws = [(median(x), published_scale(x, 0, upper, epsilon, delta, kind)) for x in (one, other)]
    assert laws[1][1] / laws[0][1] == pytest.approx(math.e)
    assert realised_delta(kind, *laws, epsilon) > broken
    budget = Budget.of(1, 1e-6)
    ours = [median_and_scale(np.minimum(x, 1000), 1000, budget) for x in (one, other)]
    assert realised_delta(PublishedLaw.LAPLACE, *ours, epsilon) <= delta


def test_the_printed_noise_has_its_scale():
    rng = np.random.default_rng(3)
    values, draws = [2, 40, 50, 55, 90], 4000
    for kind, spread in ((PublishedLaw.LAPLACE, 1.0), (PublishedLaw.GAUSSIAN, math.sqrt(2 / math.pi))):
        drawn = [published_median_noise(values, 0, 100, 1.0, 1e-6, kind, rng) for _ in range(draws)]
        scale = published_scale(values, 0, 100, 1.0, 1e-6, kind)
        assert np.abs(drawn).mean() == pytest.approx(spread * scale, rel=0.08)


# --- the release itself --------------------------------------------------------------------------------------------


def test_the_release_has_its_law():
    noise = noise_source(NoiseKind.SEEDED, 11)
    values, upper, budget = [0, 3, 3, 4, 10], 10, Budget.of(2, 1e-3)
    drawn = np.array([release_median(values, 0, upper, *_of(budget), noise, _free) for _ in range(20_000)])
    centre, scale = median_and_scale(values, upper, budget)
    edges = np.array([-math.inf, -12, -6, -3, -1, 0, 1, 3, 6, 12, math.inf]) + centre + 0.5
    counts = np.array([((drawn > low) & (drawn < high)).sum() for low, high in pairwise(edges)])
    support = np.arange(-2000, 2001)

    def misfit(factor):
        p = law(PublishedLaw.LAPLACE, centre, scale * factor, support)
        parts = [p[(support > low) & (support < high)].sum() for low, high in pairwise(edges)]
        expected = np.array(parts) * len(drawn)
        return ((counts - expected) ** 2 / expected).sum() / chdtri(len(parts) - 1, 1e-6)

    assert misfit(1.0) < 1
    assert misfit(0.9) > 1
    assert misfit(1.1) > 1


@pytest.mark.parametrize("kind", [NoiseKind.OPENDP, NoiseKind.EXACT])
def test_equal_values_and_wide_ranges_can_be_drawn(kind):
    noise = noise_source(kind)
    quiet = release_median([7] * 3001, 0, 10, Fraction(4), MILLIONTH, noise, _free)
    assert quiet == 7
    assert noise_scale([7] * 3001, 0, 10, Fraction(4), MILLIONTH) == SMALLEST_SCALE
    assert isinstance(release_median([0], -(2**47), 2**47, Fraction(1), MILLIONTH, noise, _free), int)


def test_a_filter_pays_before_the_draw():
    accounting = ApproximateZcdpFilter(Budget.of(1, 1e-6))
    noise = noise_source(NoiseKind.EXACT)
    release_median([1, 2, 3], 0, 4, Fraction(1, 10), Fraction(1, 10**7), noise, accounting.charge, "p")
    assert accounting.spent == Fraction(1, 200)
    paid = []
    release_median([1, 2, 3], 0, 4, Fraction(1, 10), Fraction(1, 10**7), noise, paid.append, "p")
    assert paid == [SmoothLaplace("p", Fraction(1, 10), Fraction(1, 10**7))]


def test_a_refused_charge_touches_neither_values_nor_noise():
    class Untouchable:
        def __len__(self):
            return 3

        def __getattr__(self, name):
            raise AssertionError(f"{name} was used before the charge was accepted")

    def refuse(event):
        raise BudgetExceededError("refused")

    with pytest.raises(BudgetExceededError):
        release_median(Untouchable(), 0, 4, Fraction(1), MILLIONTH, Untouchable(), refuse)


@pytest.mark.parametrize(
    ("lower", "upper", "epsilon", "delta", "word"),
    [
        (0, 0, "1", "1/10", "range"),
        (0, 2**51, "1", "1/10", "range"),
        (0, 2**50, "1", "1/10", "coarser"),
        (0, 9, "1", "2/3", "delta"),
        (0, 9, "2000", "1/10", "epsilon"),
        (0, 9, "1/1000000", "1/10", "votes"),
    ],
)
def test_refusals_rest_on_public_numbers(lower, upper, epsilon, delta, word):
    messages = set()
    for values in ([1], [0], [2**40]):
        with pytest.raises(BudgetError, match=word) as refusal:
            release_median(values, lower, upper, Fraction(epsilon), Fraction(delta), None, _never)
        messages.add(str(refusal.value))
    assert len(messages) == 1


def test_nothing_has_no_median():
    with pytest.raises(BudgetError, match="at least one"):
        release_median([], 0, 1, Fraction(1), MILLIONTH, None, _never)
    with pytest.raises(BudgetError, match="above 0"):
        smooth_sensitivity([1], 0, 1, 0)


def _of(budget):
    return budget.epsilon, budget.delta


def _free(event):
    pass


def _never(event):
    raise AssertionError("charged although refused")
