"""Sharp cases, and the best attack that the accounting allows."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from dagveil.audit.attacks import bound_epsilon, draw_losses, find_reachable
from dagveil.audit.examination import Plan, attack_case
from dagveil.audit.neighbours import Case, DataKind, attack_cases, count_runs, make_pair
from dagveil.audit.recording import Rule
from dagveil.audit.replay import replay_method
from dagveil.audit.search import Effort
from dagveil.audit.transcript import Attacker
from dagveil.methods.method import METHODS, method_named
from dagveil.privacy.budget import Budget, Relation
from dagveil.privacy.events import DiscreteGaussian, DiscreteLaplace, ExponentialChoice, SubsampledGaussian

BUDGET = Budget.of(1, 1e-6)
GAUSSIAN = DiscreteGaussian("answer", 1, Fraction(1), Fraction(4))
SAMPLED = SubsampledGaussian("answer", Fraction(1, 4), Fraction(1), Fraction(1))

NOT_FULL = {
    ("noleaks", Relation.REPLACE_ONE): 0.6,  # the declared sum of two lengths, and squares that cannot be opposite
    ("curate-score", Relation.REPLACE_ONE): 0.6,
    ("pcd", Relation.ADD_REMOVE): 0.85,
    ("pcd", Relation.REPLACE_ONE): 0.85,
}


def _law_of_a_round(margins: np.ndarray, widths: tuple[float, ...]) -> np.ndarray:
    """Return with which probability each question is the first to pass, and that none does."""
    places = (np.arange(4000) + 0.5) / 4000
    standard = np.where(places < 0.5, np.log(2.0 * places), -np.log(2.0 * (1.0 - places)))
    beyond = (margins[:, None] + widths[0] * standard) / widths[1]
    tail = 0.5 * np.exp(-np.abs(beyond))
    passes = np.where(beyond < 0.0, tail, 1.0 - tail)
    left = np.cumprod(1.0 - passes, axis=0)
    before = np.vstack([np.ones_like(standard), left[:-1]])
    return np.append((before * passes).mean(axis=1), left[-1].mean())


def _expected_bound(one: np.ndarray, other: np.ndarray, runs: int) -> float:
    """Return what the best event is expected to prove, whichever table it is likelier on."""
    found = 0.0
    for likely, rare in ((one, other), (other, one)):
        order = np.argsort(-likely / rare)
        hits = (runs * np.cumsum(law[order]) for law in (likely, rare))
        found = max(found, float(bound_epsilon(*hits, runs, runs, 1e-6).max()))
    return found


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
        assert all(method.sharp for method in METHODS.values())
        for method in METHODS.values():
            quick, full = (attack_cases(method, effort, {}) for effort in Effort)
            assert quick
            assert len(full) > len(quick)

    def test_a_block_is_attacked_under_both_relations(self) -> None:
        cases = attack_cases(method_named("svt-pc"), Effort.QUICK, {})
        assert {(case.kind, case.relation) for case in cases} == {(DataKind.BLOCK, relation) for relation in Relation}

    def test_given_settings_stand_above(self) -> None:
        cases = attack_cases(method_named("svt-pc"), Effort.QUICK, {"slack": "3"})
        assert {case.options["slack"] for case in cases} == {"3"}
        assert {case.options["rounds"] for case in cases} == {"1"}

    @pytest.mark.parametrize("name", METHODS)
    def test_one_record_moves_nearly_everything(self, name: str) -> None:
        method = METHODS[name]
        for case in attack_cases(method, Effort.QUICK, {}):
            replay = replay_method(method, make_pair(case.kind, case.relation), BUDGET, case.options)
            assert not replay.violations
            assert replay.largest > NOT_FULL.get((name, case.relation), 0.93)

    def test_ordinary_tables_and_slow_methods_have_fewer_runs(self) -> None:
        sharp, ordinary = (Case(kind, Relation.ADD_REMOVE) for kind in (DataKind.TWO_NUMBERS, DataKind.NUMBERS))
        fast, slow = method_named("measure"), method_named("noleaks")
        assert count_runs(fast, sharp, Effort.FULL) == 100_000
        assert count_runs(slow, sharp, Effort.FULL) == 10_000
        assert count_runs(slow, ordinary, Effort.FULL) < count_runs(fast, ordinary, Effort.FULL) < 10_000
        assert {count_runs(method, case, Effort.QUICK) for method in (fast, slow) for case in (sharp, ordinary)} == {
            200
        }

    @pytest.mark.parametrize("relation", Relation)
    def test_a_round_of_the_sparse_vector_by_its_exact_law(self, relation: Relation) -> None:
        """The block proves more than half of epsilon with 50 000 judged runs, and one question a fifth of it.

        The slow twin computes the law of a round by the threshold's quantiles, from the scores of a replay.
        """
        case = next(
            case for case in attack_cases(method_named("svt-pc"), Effort.QUICK, {}) if case.relation is relation
        )
        attacker = Attacker(method_named("svt-pc"), make_pair(case.kind, relation), BUDGET, case.options)
        # a run that asks everything: nothing looks independent until the end
        longest = max((attacker.run(attacker.tables[0], seed)[1] for seed in range(40)), key=len)
        replays = attacker.replay(longest)
        scores = [[one.exact.values[0] for one in replay if one.exact.rule is Rule.ROUND] for replay in replays]
        margin = next(float(one.asked[1]) for one in longest if one.exact.rule is Rule.ROUND)
        widths = next(one.exact.widths for one in replays[0] if one.exact.rule is Rule.ROUND)
        # the record moves the questions within the block by one record, and none to the column beside it
        moved = np.array([1.0 if 5 not in pair else 0.0 for pair in combinations(range(6), 2)])
        assert np.allclose(scores[0], 0.0)
        assert np.allclose(scores[1], moved[: len(scores[1])], atol=0.01)
        laws = [_law_of_a_round(margin - score * moved, widths) for score in (0.0, 1.0)]
        assert _expected_bound(*laws, 50_000) > 0.5
        single = [_law_of_a_round(np.array([6.5 - score]), widths) for score in (0.0, 1.0)]
        assert _expected_bound(*single, 50_000) < 0.25

    @pytest.mark.parametrize("name", ["measure-notears", "noleaks", "em-pc", "curate", "priv-pc"])
    def test_sharp_attacks_see_weak_promises(self, name: str) -> None:
        """With epsilon 8 few runs prove a good part of it, where ordinary tables would prove nothing."""
        method = method_named(name)
        # a choice that is rare at epsilon 1 never comes at epsilon 8: the threshold must be closer
        given = {"level": "0.2"} if name == "em-pc" else {}
        case = attack_cases(method, Effort.QUICK, given)[0]
        line = attack_case(method, Budget.of(8, 1e-6), case, Plan(runs=100))
        assert line.reachable is not None
        assert 0.4 < line.bound <= line.ceiling
        assert line.reachable > 0.4
