"""Membership inference: bounds, intervals, and attackers who can tell members where a promise is broken."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagveil.audit.attacks import (
    ANSWERS,
    GRAPH,
    REFERENCES,
    Suspect,
    bound_auc,
    choose_threshold,
    fit_logistic,
    infer_membership,
    judge_scores,
    measure_advantage,
    measure_auc,
    membership_kind,
    membership_options,
)
from dagveil.audit.neighbours import ROWS, DataKind
from dagveil.audit.runs import AttackJob, BlockStore
from dagveil.errors import DataError
from dagveil.methods.method import METHODS, method_named
from dagveil.privacy.budget import Relation
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.receipt import bound_advantage

EPSILONS = st.floats(0.01, 8.0)
DELTAS = st.floats(0.0, 0.2)


def job(method: str, epsilon: str = "1", relation: Relation = Relation.ADD_REMOVE) -> AttackJob:
    chosen = method_named(method)
    options = tuple(sorted(membership_options(chosen, {}).items()))
    return AttackJob(method, membership_kind(chosen), relation, epsilon, "1/1000000", options)


class TestBounds:
    @given(EPSILONS, DELTAS)
    def test_they_are_those_of_the_region(self, epsilon: float, delta: float) -> None:
        """The slow twin walks along the edge of the region."""
        false = np.linspace(0.0, 1.0, 20_001)
        true = np.minimum(
            1.0, np.minimum(delta + math.exp(epsilon) * false, 1 - math.exp(-epsilon) * (1 - delta - false))
        )
        assert bound_advantage(epsilon, delta) == pytest.approx((true - false).max(), abs=1e-4)
        assert bound_auc(epsilon, delta) == pytest.approx(np.trapezoid(true, false), abs=1e-4)

    @given(EPSILONS, DELTAS)
    def test_the_advantage_has_its_printed_form(self, epsilon: float, delta: float) -> None:
        printed = (math.expm1(epsilon) + 2.0 * delta) / (math.exp(epsilon) + 1.0)
        assert bound_advantage(epsilon, delta) == pytest.approx(printed)

    def test_the_discrete_laplace_mechanism_attains_both(self) -> None:
        noise = noise_source(NoiseKind.SEEDED, 3)
        without = noise.discrete_laplace(Fraction(1), 100_000).astype(float)
        with_record = noise.discrete_laplace(Fraction(1), 100_000).astype(float) + 1.0
        area, advantage = measure_auc(with_record, without), measure_advantage(with_record, without, 1.0)
        assert area.low < bound_auc(1.0, 0.0) < area.high
        assert advantage.low < bound_advantage(1.0, 0.0) < advantage.high


class TestIntervals:
    @given(st.lists(st.integers(0, 6), min_size=2, max_size=12), st.lists(st.integers(0, 6), min_size=2, max_size=12))
    def test_the_area_counts_pairs(self, members: list[int], others: list[int]) -> None:
        slow = np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others])
        assert measure_auc(np.array(members, float), np.array(others, float)).value == pytest.approx(slow)

    def test_they_cover(self) -> None:
        """300 experiments with a known area and a known advantage; 5 % would be 15 misses."""
        rng = np.random.default_rng(0)
        area, advantage = 0.7602, 0.3829  # of two normals that lie 1 apart
        missed = np.zeros(2, dtype=int)
        for _ in range(300):
            members, others = rng.normal(1.0, 1.0, 120), rng.normal(0.0, 1.0, 120)
            for place, (found, truth) in enumerate(
                [(measure_auc(members, others), area), (measure_advantage(members, others, 0.5), advantage)]
            ):
                missed[place] += not found.low <= truth <= found.high
        assert missed[0] <= 27
        assert missed[1] <= 15

    def test_a_threshold_is_found(self) -> None:
        assert choose_threshold(np.array([1.0, 5.0, 6.0]), np.array([0.0, 1.0, 2.0])) == 5.0

    def test_a_logistic_score_finds_what_tells(self) -> None:
        rng = np.random.default_rng(1)
        is_member = rng.random(400) < 0.5
        marks = np.column_stack([rng.random(400) < 0.5, rng.random(400) < np.where(is_member, 0.8, 0.2), np.ones(400)])
        weights = fit_logistic(marks.astype(float), is_member)
        assert weights[1] > 5 * abs(weights[0])
        assert weights[2] == 0.0


class TestTrials:
    def test_members_are_told_at_a_large_epsilon(self) -> None:
        (found,) = infer_membership(job("lap-mech", "8"), 200)
        assert found.attacker == ANSWERS
        assert found.advantage_low > 0.5
        assert found.auc_low > 0.8
        assert found.advantage <= found.advantage_bound

    def test_a_sound_method_stays_within_its_bound(self) -> None:
        for relation in Relation:
            (found,) = infer_membership(job("lap-mech", relation=relation), 200)
            assert found.advantage_low <= found.advantage_bound
            assert found.auc_low <= found.auc_bound

    def test_the_graph_has_an_attacker_of_its_own(self) -> None:
        answers, graph = infer_membership(job("curate", "20"), 60)
        assert (answers.attacker, graph.attacker) == (ANSWERS, GRAPH)
        assert answers.trials == graph.trials == 30
        assert answers.auc != graph.auc

    @pytest.mark.parametrize("name", ["svt-pc", "em-pc", "priv-pc", "measure-features", "noleaks"])
    def test_answers_of_every_kind_speak(self, name: str) -> None:
        """With hardly any noise the score tells members, whatever the method asks."""
        suspect = Suspect(job(name, "400"))
        trials = np.array([suspect.try_once(number)[:2] for number in range(24)])
        members, others = trials[trials[:, 0] == 1.0, 1], trials[trials[:, 0] == 0.0, 1]
        assert len(members) == len(others) == 12
        assert measure_auc(members, others).value > 0.7

    def test_the_tables_are_neighbours(self) -> None:
        for relation in Relation:
            suspect = Suspect(job("lap-mech", relation=relation))
            tables = [suspect.make_table(np.random.default_rng(5), is_member) for is_member in (False, True)]
            assert tables[1].n_rows == ROWS + 1
            assert tables[0].n_rows == ROWS + (relation is Relation.REPLACE_ONE)
            moved = tables[1].counts(suspect.columns) - tables[0].counts(suspect.columns)
            assert np.abs(moved).sum() <= (1 if relation is Relation.ADD_REMOVE else 2)
            assert len(suspect.references) == REFERENCES

    def test_it_goes_on_and_works_in_parallel(self) -> None:
        alone = infer_membership(job("lap-mech"), 80)
        with BlockStore(None) as store:
            infer_membership(job("lap-mech"), 40, store)
            assert infer_membership(job("lap-mech"), 80, store, workers=2) == alone

    def test_fitted_trials_are_not_judged(self) -> None:
        """A score that is right on the fitted half only has no advantage."""
        numbers = np.arange(400)
        is_member, fitted = numbers % 2 == 0, numbers % 4 < 2
        scores = np.where(fitted, is_member, 0.0).astype(float)
        found = judge_scores(GRAPH, is_member, scores, job("lap-mech"))
        assert found.advantage == 0.0
        assert found.auc == 0.5

    def test_too_few_trials_are_refused(self) -> None:
        with pytest.raises(DataError, match="at least 40 trials"):
            infer_membership(job("lap-mech"), 8)

    def test_every_method_has_a_kind(self) -> None:
        assert {membership_kind(method) for method in METHODS.values()} == {DataKind.LEVELS, DataKind.NUMBERS}
