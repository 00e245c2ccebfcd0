"""Kernel questions through the door: charge, record, draw; the law of the bit on neighbours; and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spies import SpyRun, spy_on

from dagveil.curator import Curator
from dagveil.curator.gate import Gate
from dagveil.curator.kernel_questions import HsicTest, KernelQuestions, Ridge, largest_rank
from dagveil.curator.questions import RECORD
from dagveil.data.column import Numeric
from dagveil.data.memory import MemoryTable
from dagveil.data.moments import AdditiveFunction
from dagveil.data.schema import Schema
from dagveil.errors import BudgetExceededError, LedgerError, MethodError
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteLaplace, PureFilter
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.statistics.gcm import gcm_sums
from dagveil.statistics.kernels import kernel_features, paired_root_hsic_sensitivity, root_hsic, root_hsic_sensitivity

EPSILON = Fraction(1, 10)


class Halves:
    """Public functions: half of each given column."""

    def function(self, target: str, given: tuple[str, ...]) -> AdditiveFunction:
        return AdditiveFunction(0.0, tuple((0.5,) for _ in given))


PUBLIC, RIDGE = Halves(), Ridge(0.5, 0.5)


class ScriptedNoise:
    """Laplace draws from a script, zero beyond it; permutations from a seed."""

    name = "scripted"
    private = True

    def __init__(self, log: list[str] | None = None, script: tuple[int, ...] = (), seed: int = 0) -> None:
        self.log = [] if log is None else log
        self.script = script
        self.scales: list[Fraction] = []
        self.rng = np.random.default_rng(seed)

    def uniform_below(self, bound: int, size: int) -> np.ndarray:
        return self.rng.integers(0, bound, size)

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.log.append("draw")
        self.scales.append(scale)
        drawn = np.zeros(size, dtype=np.int64)
        drawn[: len(self.script)] = self.script[:size]
        return drawn


def make_table(values: np.ndarray) -> MemoryTable:
    columns = {name: Numeric(bounds=(-1, 1)) for name in ("x", "y", "z")}
    schema = Schema(dataset="numbers", columns=columns, reviewed=True)
    return MemoryTable.from_source(dict(zip(columns, np.asarray(values, dtype=float).T, strict=True)), schema)


def make_values(n: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = rng.uniform(-1, 1, n)
    return np.stack([np.clip(z**2 + rng.normal(0, 0.2, n), -1, 1), np.sin(2 * z), z], axis=1)


def make_laboratory(fails: bool = False) -> tuple[KernelQuestions, Curator, list[str], SpyRun]:
    log: list[str] = []
    run = SpyRun(log, fails)
    accounting = spy_on(PureFilter(Budget.of(1, 0)), log)
    curator = Curator(make_table(make_values()), Relation.ADD_REMOVE, accounting, run, ScriptedNoise(log))
    return curator.ask_kernels(60), curator, log, run


QUESTION = ("x", "y", ("z",))
TESTS = {"public": HsicTest(PUBLIC), "ridge": HsicTest(RIDGE)}
QUESTIONS: dict[str, Callable[[KernelQuestions, Fraction], object]] = {
    "bit": lambda lab, epsilon: lab.permutation_bit(("x", "y", ()), epsilon, TESTS["public"], "q"),
    "bit given z": lambda lab, epsilon: lab.permutation_bit(QUESTION, epsilon, TESTS["public"], "q"),
    "bit given z by ridge": lambda lab, epsilon: lab.permutation_bit(QUESTION, epsilon, TESTS["ridge"], "q"),
    "hsic": lambda lab, epsilon: lab.hsic_difference("x", "y", epsilon, RIDGE, 0.5, "q"),
    "ranks": lambda lab, epsilon: lab.rank_difference("x", "y", epsilon, PUBLIC, "q"),
    "gcm": lambda lab, epsilon: lab.gcm(QUESTION, (epsilon / 2, epsilon / 4, epsilon / 4), PUBLIC, 1.0, "q"),
}
every_question = pytest.mark.parametrize("name", QUESTIONS)


class TestOrder:
    @every_question
    def test_charge_then_record_then_draw(self, name: str) -> None:
        laboratory, curator, log, run = make_laboratory()
        once = ["charge", "record", "draw"] if name != "gcm" else ["charge", "record"] * 3 + ["draw"] * 4
        for number in (1, 2):
            QUESTIONS[name](laboratory, EPSILON)
            assert log == once * number
            assert laboratory.asked == number
        assert tuple(run.events) == curator.events
        assert curator.accounting.spent == 2 * EPSILON

    @every_question
    def test_what_would_overspend_is_refused(self, name: str) -> None:
        laboratory, curator, log, _ = make_laboratory()
        with pytest.raises(BudgetExceededError):
            QUESTIONS[name](laboratory, Fraction(8))
        assert "draw" not in log
        assert laboratory.asked == 0
        assert curator.accounting.spent <= 1

    @every_question
    def test_nothing_is_drawn_when_the_ledger_fails(self, name: str) -> None:
        laboratory, curator, log, _ = make_laboratory(fails=True)
        with pytest.raises(LedgerError):
            QUESTIONS[name](laboratory, EPSILON)
        assert log == ["charge"]
        assert curator.accounting.spent > 0
        assert laboratory.asked == 0

    @given(
        st.lists(st.tuples(st.sampled_from(list(QUESTIONS)), st.fractions(Fraction(1, 100), Fraction(1))), max_size=8)
    )
    @settings(max_examples=20, deadline=None)
    def test_no_sequence_exceeds_the_total(self, questions: list[tuple[str, Fraction]]) -> None:
        laboratory, curator, _, _ = make_laboratory()
        for name, epsilon in questions:
            try:
                QUESTIONS[name](laboratory, epsilon)
            except BudgetExceededError:
                continue
        assert curator.accounting.spent <= curator.accounting.total
        assert sum(curator.accounting.cost(event) for event in curator.events) == curator.accounting.spent


def open_laboratory(values: np.ndarray, slots: int, noise: Any) -> KernelQuestions:
    gate = Gate(PureFilter(Budget.of(10**9, 0)), Mock(), noise)
    return KernelQuestions(make_table(values), Relation.ADD_REMOVE, slots, gate)


def threshold(values: np.ndarray, test: HsicTest, question: Any, others: tuple[int, ...]) -> tuple[int, Fraction]:
    """Return the least noise of the statistic with which the bit is true, given permutations and the others' noise."""
    scales: list[Fraction] = []

    def bit(own: int) -> bool:
        noise = ScriptedNoise(script=(own, *others), seed=7)
        answer = open_laboratory(values, len(values), noise).permutation_bit(question, Fraction(1), test, "q")
        scales.extend(noise.scales)
        return answer

    low, high = -(2**28), 2**28
    assert bit(high)
    assert not bit(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bit(middle) else (middle, high)
    (scale,) = set(scales)
    return high, scale


def log_tail(least: int, scale: Fraction) -> tuple[float, float]:
    """Return the logarithms of P(X ≥ least) and of P(X < least) for discrete Laplace noise."""
    decay = -1.0 / float(scale)
    edge = math.log1p(math.exp(decay))

    def upper(k: int) -> float:  # P(X ≥ k) for k ≥ 1 is e^{-k/s} / (1 + e^{-1/s})
        return k * decay - edge

    if least >= 1:
        high = upper(least)
        return high, math.log1p(-math.exp(high))
    low = upper(1 - least)
    return math.log1p(-math.exp(low)), low


class TestTheLawOfTheBit:
    @pytest.mark.parametrize(("name", "given_z"), [("public", ()), ("public", ("z",)), ("ridge", ("z",))])
    def test_no_neighbour_changes_its_odds_by_more_than_epsilon(self, name: str, given_z: tuple[str, ...]) -> None:
        """For fixed permutations and noise of the permuted ones, by the exact tails of the statistic's noise."""
        rng = np.random.default_rng(5)
        test = HsicTest(TESTS[name].regression, permutations=19)
        worst = 0.0
        for trial in range(8):
            n = int(rng.integers(3, 8))
            values = rng.choice([-1.0, 1.0], (n, 3)) if trial % 2 else rng.uniform(-1, 1, (n, 3))
            others = values.copy()
            others[rng.integers(n)] = rng.choice([-1.0, 1.0], 3)
            noise = tuple(int(draw) for draw in rng.laplace(0, 1.6 * RECORD, 19))
            first, scale = threshold(values, test, ("x", "y", given_z), noise)
            second, same = threshold(others, test, ("x", "y", given_z), noise)
            assert scale == same
            for one, two in zip(log_tail(first, scale), log_tail(second, scale), strict=True):
                worst = max(worst, abs(one - two))
        assert worst <= 1.0 + 1e-9
        # the search comes near enough to notice noise that is much too small
        assert worst > (0.1 if name == "public" else 0.001)

    def test_insertions_in_front_keep_the_law(self) -> None:
        """Over all permutations of four slots: inserting a record moves every row, and the law hardly."""
        values = np.array([[-1.0, -1.0, 0.0], [-0.9, -0.8, 0.0], [1.0, 0.9, 0.0], [0.8, 1.0, 0.0]])
        inserted = np.concatenate([[[1.0, -1.0, 0.0]], values])
        removed = values[1:]
        epsilon, count = 1.0, 19
        kernel = kernel_features(0.5, 2.0)
        unit = root_hsic_sensitivity(4, kernel, kernel)
        paired = paired_root_hsic_sensitivity(4, kernel, kernel)
        orders = np.array(list(itertools.permutations(range(4))), dtype=np.intp)
        grid = np.linspace(-30, 30, 20_001)

        def probability(table: np.ndarray) -> float:
            x, y = make_table(table).levelled_rows(("x", "y"), 4).T
            scores = root_hsic(kernel.map(x), kernel.map(y), orders) / unit
            scale = (1.0 + paired / unit) / epsilon
            shifted = (scores[0] + grid)[:, None] - scores[None, 1:]
            below = np.where(shifted < 0, 0.5 * np.exp(shifted / scale), 1 - 0.5 * np.exp(-np.abs(shifted) / scale))
            density = np.exp(-np.abs(grid) / scale) / (2 * scale)
            return float(np.trapezoid(density * below.mean(axis=1) ** count, grid))

        base = probability(values)
        for table in (inserted, removed, values[::-1], values[[1, 2, 3, 0]]):
            found = probability(table)
            assert abs(math.log(found / base)) <= epsilon
            assert abs(math.log((1 - found) / (1 - base))) <= epsilon
        assert probability(values[[2, 0, 3, 1]]) == pytest.approx(base, rel=1e-9)

    def test_permutations_are_uniform(self) -> None:
        laboratory = open_laboratory(make_values(3), 3, noise_source(NoiseKind.SEEDED, 3))
        drawn = [tuple(laboratory._gate.permute(3).tolist()) for _ in range(6000)]
        counts = np.array([drawn.count(order) for order in itertools.permutations(range(3))])
        assert counts.sum() == 6000
        assert ((counts - 1000) ** 2 / 1000).sum() < 35  # five degrees of freedom: probability 1.5e-6

    def test_equal_tickets_are_drawn_again(self) -> None:
        class Ties(ScriptedNoise):
            calls = 0

            def uniform_below(self, bound: int, size: int) -> np.ndarray:
                self.calls += 1
                return np.array([5, 5, 1]) if self.calls < 3 else np.array([5, 2, 1])

        noise = Ties()
        assert open_laboratory(make_values(3), 3, noise)._gate.permute(3).tolist() == [2, 1, 0]
        assert noise.calls == 3


class TestTheBit:
    def test_level_and_power_without_privacy(self) -> None:
        """With next to no noise it is the ordinary permutation test."""
        noise = noise_source(NoiseKind.SEEDED, 1)
        rng = np.random.default_rng(2)
        test = HsicTest(PUBLIC, level=0.1, permutations=19)
        wrong = 0
        for _ in range(200):
            laboratory = open_laboratory(rng.uniform(-1, 1, (40, 3)), 40, noise)
            wrong += laboratory.permutation_bit(("x", "y", ()), Fraction(10**4), test, "q")
        assert wrong <= 40  # binomial(200, 0.1): more with probability 1e-5
        dependent = np.tile(np.linspace(-1, 1, 60)[:, None], (1, 3))
        assert open_laboratory(dependent, 60, noise).permutation_bit(("x", "y", ()), Fraction(10**4), test, "q")

    def test_the_level_holds_with_noise(self) -> None:
        noise = noise_source(NoiseKind.SEEDED, 4)
        test = HsicTest(PUBLIC, level=0.05, permutations=19)
        values = np.random.default_rng(1).uniform(-1, 1, (30, 3))
        laboratory = open_laboratory(values, 30, noise)
        said = sum(laboratory.permutation_bit(("x", "y", ()), Fraction(1, 10), test, "q") for _ in range(400))
        assert 3 <= said <= 45

    @pytest.mark.parametrize(("level", "permutations"), [(0.05, 18), (0.01, 98), (0.001, 99)])
    def test_too_few_permutations(self, level: float, permutations: int) -> None:
        with pytest.raises(MethodError, match=f"choose at least {math.ceil(1 / level) - 1} permutations"):
            HsicTest(PUBLIC, level, permutations)

    def test_ranks(self) -> None:
        assert largest_rank(0.05, 99) == 5
        assert largest_rank(0.05, 19) == 1
        assert largest_rank(0.05, 100) == 5

    def test_one_slot_is_too_few(self) -> None:
        with pytest.raises(MethodError, match="at least 2 slots"):
            open_laboratory(make_values(3), 1, ScriptedNoise())


class TestSums:
    def test_without_noise_they_are_the_sums_of_clipped_products(self) -> None:
        values = make_values()
        sums = open_laboratory(values, 60, ScriptedNoise()).gcm(QUESTION, (EPSILON,) * 3, PUBLIC, 0.4, "q")
        u, v = (np.clip(values[:, k] - 0.5 * values[:, 2], -0.4, 0.4) for k in (0, 1))
        assert (sums.products, sums.squares) == pytest.approx(gcm_sums(u, v, 0.4), abs=1e-5)
        assert (sums.first, sums.second) == pytest.approx((u.sum(), v.sum()), abs=1e-5)
        assert sums.centre(60, 1e9)[0] == pytest.approx(((u - u.mean()) * (v - v.mean())).sum(), abs=1e-4)
        assert sums.centre(60, 1e-9)[0] == pytest.approx((u * v).sum(), abs=1e-4)

    def test_they_carry_the_noise_that_they_state(self) -> None:
        laboratory = open_laboratory(make_values(), 60, noise_source(NoiseKind.SEEDED, 0))
        answers = [laboratory.gcm(QUESTION, (EPSILON, 3 * EPSILON, 2 * EPSILON), PUBLIC, 1.0, "q") for _ in range(600)]
        for name in ("products", "squares", "first", "second"):
            drawn = np.array([getattr(answer, name) for answer in answers])
            stated = getattr(answers[0], f"variance_{name}")
            # the kurtosis of Laplace noise is 6: four standard errors of a variance are 4 √(5/600)
            assert drawn.var() / stated == pytest.approx(1.0, abs=0.37)
        centred, variances = zip(*(answer.centre(60, 1e9) for answer in answers), strict=True)
        assert np.var(centred) / np.mean(variances) == pytest.approx(1.0, abs=0.4)
        # one slot moves the sum of products by 2, the sum of squares by 1 and a sum of residuals by 2
        assert answers[0].variance_first == answers[0].variance_second == pytest.approx(2 * (2 / 0.1) ** 2, rel=1e-4)
        assert answers[0].variance_products == pytest.approx(2 * (2 / 0.1) ** 2, rel=1e-4)
        assert answers[0].variance_squares == pytest.approx(2 * (1 / 0.3) ** 2, rel=1e-4)

    def test_events_hold_all_epsilons(self) -> None:
        laboratory, curator, _, _ = make_laboratory()
        laboratory.gcm(QUESTION, (EPSILON, EPSILON / 2, EPSILON / 4), PUBLIC, 1.0, "q")
        assert curator.events == (
            DiscreteLaplace("q, products", 1, EPSILON),
            DiscreteLaplace("q, squares", 1, EPSILON / 2),
            DiscreteLaplace("q, residuals", 2, EPSILON / 4),
        )


class TestDifferences:
    @pytest.mark.parametrize("regression", [PUBLIC, RIDGE], ids=["public", "ridge"])
    def test_exchanging_the_columns_turns_the_sign(self, regression: Any) -> None:
        laboratory = open_laboratory(make_values(), 60, ScriptedNoise())
        forth = laboratory.hsic_difference("x", "y", EPSILON, regression, 0.5, "q")
        back = laboratory.hsic_difference("y", "x", EPSILON, regression, 0.5, "q")
        assert forth.value == pytest.approx(-back.value, abs=1e-5)
        assert abs(forth.value) > 1e-3
        assert forth.scale == back.scale
