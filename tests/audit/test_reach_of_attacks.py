"""Sharp cases, and the best attack that the accounting allows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from dagveil.audit.bound import bound_epsilon
from dagveil.audit.cases import SHARP, Case, attack_cases, is_slow
from dagveil.audit.examination import Plan, attack_case
from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.reachable import draw_losses, find_reachable
from dagveil.audit.replay import replay_method
from dagveil.audit.search import Effort
from dagveil.methods.catalogue import METHODS, method_named
from dagveil.privacy.budget import Budget
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, ExponentialChoice, SubsampledGaussian
from dagveil.privacy.relation import Relation

BUDGET = Budget.of(1, 1e-6)
GAUSSIAN = DiscreteGaussian("answer", 1, Fraction(1), Fraction(4))
SAMPLED = SubsampledGaussian("answer", Fraction(1, 4), Fraction(1), Fraction(1))

NOT_FULL = {
    ("noleaks", Relation.REPLACE_ONE): 0.6,  # the declared sum of two lengths, and squares that cannot be opposite
    ("curate-score", Relation.REPLACE_ONE): 0.6,
    ("pcd", Relation.ADD_REMOVE): 0.85,
    ("pcd", Relation.REPLACE_ONE): 0.85,
}


class TestReachable:
    @pytest.mark.parametrize("runs", [500, 5000, 50_000])
    def test_gaussian_noise_follows_its_trade_off_curve(self, runs: int) -> None:
        mu, thresholds = 0.5, np.linspace(-3.0, 3.0, 500)
        p, q = norm.sf(thresholds - mu), norm.sf(thresholds)
        slow = float(bound_epsilon(runs * p, runs * q, runs, runs, 1e-6).max())
        assert find_reachable([GAUSSIAN], runs, 1e-6) == pytest.approx(slow, abs=0.03)

    def test_pure_charges_are_randomised_responses(self) -> None:
        chance = np.e / (1 + np.e)
        slow = float(bound_epsilon(5000 * chance, 5000 * (1 - chance), 5000, 5000, 0.0))
        for event in (DiscreteLaplace("answer", 1, Fraction(1)), ExponentialChoice("choice", Fraction(1))):
            assert find_reachable([event], 5000, 0.0) == pytest.approx(slow, abs=0.02)

    def test_it_never_exceeds_the_charges(self) -> None:
        for runs in (100, 10_000, 10_000_000):
            assert find_reachable([DiscreteLaplace("answer", 1, Fraction(1))] * 2, runs, 0.0) <= 2.0
        assert find_reachable([], 1000, 0.0) == 0.0
        assert find_reachable([GAUSSIAN], 0, 0.0) == 0.0

    @pytest.mark.parametrize("mirrored", [False, True])
    @pytest.mark.parametrize("events", [[GAUSSIAN], [SAMPLED], [SAMPLED, GAUSSIAN]])
    def test_losses_are_log_likelihood_ratios(self, events: list[DiscreteGaussian], mirrored: bool) -> None:
        rng = np.random.default_rng(0)
        first, second = (draw_losses(events, on_second, mirrored, rng) for on_second in (False, True))
        assert np.exp(first).mean() == pytest.approx(1.0, abs=0.02)
        assert np.exp(-second).mean() == pytest.approx(1.0, abs=0.02)
        assert second.mean() > 0.0 > first.mean()

    def test_a_sub_sample_weakens_the_attack(self) -> None:
        whole = DiscreteGaussian("answer", 1, Fraction(1), Fraction(1))
        assert find_reachable([SAMPLED], 5000, 1e-6) < find_reachable([whole], 5000, 1e-6)


class TestCases:
    def test_every_method_has_one(self) -> None:
        assert set(SHARP) == set(METHODS)
        for method in METHODS.values():
            quick, full = (attack_cases(method, effort, {}) for effort in Effort)
            assert quick
            assert len(full) > len(quick)

    def test_blocks_are_for_replaced_records(self) -> None:
        cases = attack_cases(method_named("svt-pc"), Effort.QUICK, {})
        assert {case.relation for case in cases if case.kind is DataKind.BLOCKS} == {Relation.REPLACE_ONE}
        assert {case.relation for case in cases} == set(Relation)

    def test_given_settings_stand_above(self) -> None:
        cases = attack_cases(method_named("svt-pc"), Effort.QUICK, {"slack": "3"})
        assert {case.options["slack"] for case in cases} == {"3"}
        assert {case.options["rounds"] for case in cases} == {"1"}

    @pytest.mark.parametrize("name", METHODS)
    def test_one_record_moves_nearly_everything(self, name: str) -> None:
        method = METHODS[name]
        for case in attack_cases(method, Effort.QUICK, {}):
            replay = replay_method(method, make_pair(case.kind, case.relation), BUDGET, case.options)
            assert replay.holds
            assert replay.largest > NOT_FULL.get((name, case.relation), 0.93)

    def test_only_ordinary_tables_are_slow(self) -> None:
        method = method_named("noleaks")
        assert is_slow(method, Case(DataKind.NUMBERS, Relation.ADD_REMOVE))
        assert not is_slow(method, Case(DataKind.TWO_NUMBERS, Relation.ADD_REMOVE))

    @pytest.mark.parametrize("name", ["measure-notears", "noleaks", "em-pc", "curate", "priv-pc"])
    def test_sharp_attacks_see_weak_promises(self, name: str) -> None:
        """With epsilon 8 few runs prove a good part of it, where ordinary tables would prove nothing."""
        method = method_named(name)
        case = attack_cases(method, Effort.QUICK, {})[0]
        line = attack_case(method, Budget.of(8, 1e-6), case, Plan(runs=100))
        assert line.reachable is not None
        assert 0.4 < line.bound <= line.ceiling
        assert line.reachable > 0.4
