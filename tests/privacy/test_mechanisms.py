"""Mechanisms: exact probabilities with power, and charges before draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import chdtri

from dagveil.errors import BudgetError, BudgetExceededError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import ExponentialChoice, SparseVectorRound
from dagveil.privacy.mechanisms import exponential
from dagveil.privacy.mechanisms.exponential import Weights
from dagveil.privacy.mechanisms.laplace import laplace_variance
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.mechanisms.subsampling import Sampling, amplify
from dagveil.privacy.noise.exact import EXP_GAP, exp_bounds, exp_floors
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from slow_twins import choose_by_loss


def free(event):
    pass


def refuse(event):
    raise BudgetExceededError("refused")


class Untouchable:
    """A noise source that must not be asked for draws."""

    private = True
    name = "untouchable"

    def representable_scale(self, scale):
        return scale

    def __getattr__(self, name):
        raise AssertionError(f"{name} was drawn before the charge was accepted")


def misfit(counts, probabilities):
    expected = np.asarray(probabilities) * sum(counts)
    return ((np.asarray(counts) - expected) ** 2 / expected).sum() / chdtri(len(expected) - 1, 1e-6)


def softmax(scores, factor):
    weights = np.exp(factor * (np.asarray(scores, float) - max(scores)))
    return weights / weights.sum()


def test_the_exponential_mechanism_has_its_probabilities():
    noise = noise_source(NoiseKind.SEEDED, 5)
    scores = [6, 5, 4, 3, Fraction(5, 2), 1]
    drawn = [exponential.choose(scores, Fraction(2), noise, free) for _ in range(20_000)]
    counts = np.bincount(drawn, minlength=6)
    floats = [float(score) for score in scores]
    assert misfit(counts, softmax(floats, 1.0)) < 1
    assert misfit(counts, softmax(floats, 0.9)) > 1
    assert misfit(counts, softmax(floats, 1.1)) > 1


def test_one_sparse_vector_question_has_its_probability():
    noise = noise_source(NoiseKind.SEEDED, 8)
    rounds, above = 12_000, 0
    for _ in range(rounds):
        asked = SparseVector(Fraction(1, 2), Fraction(1, 2), noise, free)
        above += asked.is_above(12, 3)

    def probability(factor):
        y = np.arange(-300, 301)
        p, q = (np.exp(-np.abs(y) / (scale * factor)) for scale in (2, 4))
        return float((p / p.sum()) @ ((y[:, None] <= 9 + y[None, :]) @ (q / q.sum())))

    def far(p):
        return abs(above - rounds * p) / math.sqrt(rounds * p * (1 - p)) > 4.9

    assert not far(probability(1.0))
    assert far(probability(0.9))
    assert far(probability(1.1))


def test_sparse_vector_charges_each_round_when_it_starts():
    paid = []
    asked = SparseVector(Fraction(1, 3), Fraction(1, 6), noise_source(NoiseKind.EXACT), paid.append)
    assert paid == []
    assert [asked.is_above(value, 0) for value in (-(10**4), -(10**4), 10**4)] == [False, False, True]
    assert len(paid) == 1
    assert not asked.is_above(-(10**4), 0)  # a new round, never triggered: charged all the same
    assert paid == [SparseVectorRound("sparse vector", Fraction(1, 2))] * 2


@pytest.mark.parametrize(
    "run",
    [
        lambda: exponential.choose([0, 1], Fraction(1), Untouchable(), refuse),
        lambda: SparseVector(Fraction(1), Fraction(1), Untouchable(), refuse).is_above(0, 0),
    ],
)
def test_a_refused_charge_draws_nothing(run):
    with pytest.raises(BudgetExceededError):
        run()


def test_a_choice_charges_its_own_event():
    paid = []
    exponential.choose([1], Fraction(1), noise_source(NoiseKind.EXACT), paid.append, "a")
    assert paid == [ExponentialChoice("a", Fraction(1))]


class Script:
    """Uniform words from a list, to reach rare branches."""

    def __init__(self, *words):
        self._words = list(words)

    def uniform_below(self, bound, size):
        return np.array([self._words.pop(0) for _ in range(size)], dtype=np.int64)


def test_a_choice_on_the_edge_looks_again():
    losses = [Fraction(0), Fraction(1)]
    edge = int(2**62 / (1 + math.exp(-1)))
    near = [edge + step for step in range(-600, 600)]
    answers = [choose_by_loss(losses, Script(word, 0, 0)) for word in near]
    assert answers == sorted(answers)  # one switch from 0 to 1
    switch = near[answers.index(1)] - 1
    assert choose_by_loss(losses, Script(switch, 0, 0)) == 0
    assert choose_by_loss(losses, Script(switch, 2**62 - 1, 0)) == 1


def test_floors_of_exponentials_are_bounds():
    rng = np.random.default_rng(1)
    arguments = np.concatenate([rng.integers(0, 40 << 32, 3000), rng.integers(0, 1 << 34, 2000), np.arange(300) << 24])
    arguments = np.concatenate([arguments, [0, 1, 2**16 - 1, 2**32 - 1, 2**62]])
    for argument, floor in zip(arguments.tolist(), exp_floors(arguments).tolist(), strict=True):
        largest = exp_bounds(argument, 1 << 32, 80)[1]
        least = exp_bounds(argument + 1, 1 << 32, 80)[0]
        assert floor << 49 <= least
        assert largest <= (floor + EXP_GAP) << 49


def test_rough_bounds_choose_as_tight_ones_do():
    rng = np.random.default_rng(2)
    for spread in (1, 10**3, 10**8, 10**30):
        steps = [int(step) * spread // 100 for step in rng.integers(0, 2000, 40)]
        weights = Weights(steps, Fraction(1, 97))
        for _ in range(200):
            places = np.flatnonzero(rng.random(40) < 0.5)
            word = int(rng.integers(0, 2**62))
            found = weights.draw(places, Script(word, 0))
            assert found == places[weights._settle(places.tolist(), word, Script(0))]


@given(st.floats(0.001, 50), st.fractions(min_value="1/1000", max_value="999/1000"))
def test_amplification_is_rounded_up(epsilon, rate):
    budget = Budget.of(epsilon, 1e-6)
    whole = amplify(budget, rate, Sampling.POISSON, Relation.ADD_REMOVE)
    truth = math.log1p(float(rate) * math.expm1(epsilon))
    assert truth * (1 - 1e-13) <= whole.epsilon <= min(truth * (1 + 1e-9) + 1e-12, budget.epsilon)
    assert whole.delta == rate * budget.delta


def test_amplification_needs_its_relation():
    budget, rate = Budget.of(1, 0), Fraction(1, 2)
    with pytest.raises(BudgetError, match="replace-one"):
        amplify(budget, rate, Sampling.WITHOUT_REPLACEMENT, Relation.ADD_REMOVE)
    with pytest.raises(BudgetError, match="add-remove"):
        amplify(budget, rate, Sampling.POISSON, Relation.REPLACE_ONE)
    assert amplify(budget, Fraction(1), Sampling.POISSON, Relation.ADD_REMOVE) == budget
    with pytest.raises(BudgetError, match="rate"):
        amplify(budget, Fraction(2), Sampling.POISSON, Relation.ADD_REMOVE)


def test_amplification_is_attained_by_randomised_response():
    # sampling one of two records and answering about it: the loss on the whole table, computed by hand
    epsilon, q = 1.3, 0.5
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    yes, no = q * truth + (1 - q) * (1 - truth), q * (1 - truth) + (1 - q) * (1 - truth)
    loss = math.log(yes / no)
    whole = amplify(Budget.of(epsilon, 0), Fraction(1, 2), Sampling.WITHOUT_REPLACEMENT, Relation.REPLACE_ONE)
    assert loss <= whole.epsilon
    assert loss == pytest.approx(float(whole.epsilon), rel=1e-9)


def test_the_variance_of_next_to_no_noise() -> None:
    """A scale below the smallest float once divided by 0, after the charge."""
    assert 0 < laplace_variance(Fraction(1, 10**400)) < Fraction(1, 10**40)
