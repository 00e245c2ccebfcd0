"""The distinguishing attack: its bound against SciPy's intervals and known laws, and runs that can be gone on with."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from dagveil.audit.attacks import bound_epsilon, distinguish, find_ceiling, find_rates
from dagveil.audit.neighbours import DataKind, make_pair
from dagveil.audit.runs import BLOCK, AttackJob, BlockStore, attacker_for, collect_runs
from dagveil.audit.transcript import ANSWER_FEATURES, Attacker
from dagveil.errors import DataError
from dagveil.methods.method import method_named
from dagveil.privacy.budget import Budget, Relation

JOB = AttackJob("lap-mech", DataKind.LEVELS, Relation.ADD_REMOVE, "1", "1/1000000")


class TestBound:
    @pytest.mark.parametrize("runs", [1, 7, 200])
    def test_rates_are_those_of_clopper_and_pearson(self, runs: int) -> None:
        for hits in {0, 1, runs // 2, runs}:
            slow = binomtest(hits, runs).proportion_ci(0.95, method="exact")
            low, high = find_rates(hits, runs)
            assert (float(low), float(high)) == pytest.approx((slow.low, slow.high), abs=1e-12)

    def test_the_ceiling_is_about_the_logarithm(self) -> None:
        for runs in (100, 10_000, 1_000_000):
            assert find_ceiling(runs, 0.0) == pytest.approx(math.log(runs / 3.7), abs=0.05)
            assert find_ceiling(runs, 0.0) == pytest.approx(float(bound_epsilon(runs, 0, runs, runs, 0.0)))
        assert find_ceiling(1000, 0.5) < find_ceiling(1000, 0.0)
        assert find_ceiling(0, 0.0) == 0.0

    def test_delta_takes_away(self) -> None:
        without, with_delta = (float(bound_epsilon(300, 10, 1000, 1000, delta)) for delta in (0.0, 0.1))
        assert 0.0 < with_delta < without
        assert float(bound_epsilon(300, 10, 1000, 1000, 0.3)) == 0.0

    def test_it_is_never_below_nothing(self) -> None:
        assert float(bound_epsilon(10, 900, 1000, 1000, 0.0)) == 0.0
        assert float(bound_epsilon(0, 0, 1000, 1000, 0.0)) == 0.0


class TestDistinguish:
    def test_the_bound_fails_as_rarely_as_it_says(self) -> None:
        """200 attacks on randomised response with epsilon 1; 5 % would be 10 failures."""
        rng, chance = np.random.default_rng(0), math.e / (1 + math.e)
        failures = 0
        bounds = []
        for _ in range(200):
            first, second = (rng.random((200, 1)) < chance).astype(float), (rng.random((200, 1)) > chance).astype(float)
            bounds.append(distinguish(first, second, ("answer",), 0.0).bound)
            failures += bounds[-1] > 1.0
        assert failures <= 16
        assert np.mean(bounds) > 0.3

    def test_tables_that_do_not_differ(self) -> None:
        rng = np.random.default_rng(1)
        bounds = [
            distinguish(rng.standard_normal((300, 4)), rng.standard_normal((300, 4)), tuple("abcd"), 0.0).bound
            for _ in range(40)
        ]
        assert sum(bound > 0.0 for bound in bounds) <= 6

    def test_features_are_put_together(self) -> None:
        """Each of twenty features tells little, their sum tells much."""
        rng = np.random.default_rng(2)
        first, second = rng.standard_normal((2000, 20)), rng.standard_normal((2000, 20)) + 0.3
        names = tuple(map(str, range(20)))
        together = distinguish(first, second, names, 0.0)
        assert together.event.startswith("a linear score")
        assert together.bound > distinguish(first[:, :1], second[:, :1], names[:1], 0.0).bound + 0.5

    def test_the_event_is_judged_on_other_runs(self) -> None:
        """Features that fit the first half by heart prove nothing on the second."""
        first, second = np.zeros((100, 1)), np.zeros((100, 1))
        second[::2] = 1.0
        found = distinguish(first, second, ("half",), 0.0)
        assert (found.hits, found.other_hits) in {(0, 0), (50, 50)}
        assert found.bound == 0.0

    @pytest.mark.parametrize("sign", [-1.0, 1.0])
    def test_either_side_and_either_table(self, sign: float) -> None:
        """The rare outcome may lie on either side and come on either table."""
        rng = np.random.default_rng(3)
        often, never = sign * (rng.random((1000, 1)) < 0.2), np.zeros((1000, 1))
        for tables in ((often, never), (never, often)):
            found = distinguish(*tables, ("outcome",), 0.0)
            assert found.bound > 2.5
            assert found.other_hits == 0

    def test_too_few_runs_are_refused(self) -> None:
        with pytest.raises(DataError, match="at least 8 runs"):
            distinguish(np.zeros((5, 1)), np.zeros((9, 1)), ("x",), 0.0)


class TestRuns:
    def test_they_prove_something_and_not_too_much(self) -> None:
        tables = collect_runs(JOB, 600)
        found = distinguish(*tables, attacker_for(JOB).names, 1e-6)
        assert 0.2 < found.bound <= 1.0
        assert found.event.startswith(ANSWER_FEATURES[0])

    def test_runs_are_independent_and_reproducible(self) -> None:
        first, second = collect_runs(JOB, 2 * BLOCK)
        again, _ = collect_runs(JOB, BLOCK)
        assert np.array_equal(again, first[:BLOCK])
        assert not np.array_equal(first[:BLOCK], first[BLOCK:])
        assert not np.array_equal(first, second)

    def test_a_store_is_gone_on_with(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.db"
        told: list[tuple[str, int, int]] = []
        whole = collect_runs(JOB, 3 * BLOCK)
        with BlockStore(path) as store:
            collect_runs(JOB, BLOCK, store)
        with BlockStore(path) as store:
            resumed = collect_runs(JOB, 3 * BLOCK, store, progress=lambda *stage: told.append(stage))
            for one, other in zip(whole, resumed, strict=True):
                assert np.array_equal(one, other)
            assert told == [("attack", done, 6) for done in range(2, 7)]
            collect_runs(JOB, 3 * BLOCK, store, progress=lambda *stage: told.append(stage))
        assert told[-1] == ("attack", 6, 6)
        assert len(told) == 6

    def test_other_attacks_share_a_store(self, tmp_path: Path) -> None:
        other = AttackJob("lap-mech", DataKind.LEVELS, Relation.REPLACE_ONE, "1", "1/1000000")
        alone = [collect_runs(job, 8)[1] for job in (JOB, other)]
        with BlockStore(tmp_path / "audit.db") as store:
            together = [collect_runs(job, 8, store)[1] for job in (JOB, other)]
        for one, two in zip(alone, together, strict=True):
            assert np.array_equal(one, two)
        assert not np.array_equal(*alone)

    def test_several_processes_give_the_same(self) -> None:
        alone, together = collect_runs(JOB, 2 * BLOCK), collect_runs(JOB, 2 * BLOCK, workers=2)
        for one, other in zip(alone, together, strict=True):
            assert np.array_equal(one, other)

    @pytest.mark.parametrize(
        ("method", "kind", "asks"),
        [("measure", DataKind.NUMBERS, False), ("svt-pc", DataKind.LEVELS, True), ("noleaks", DataKind.NUMBERS, True)],
    )
    def test_features_have_names(self, method: str, kind: DataKind, asks: bool) -> None:
        job = AttackJob(method, kind, Relation.REPLACE_ONE, "1", "1/1000000")
        attacker = attacker_for(job)
        pairs = math.comb(len(attacker.pair.schema.columns), 2)
        assert len(attacker.names) == len(ANSWER_FEATURES) + 3 * pairs * asks
        features = attacker.watch(attacker.pair.second, 7)
        assert len(features) == len(attacker.names)
        assert np.isfinite(features).all()
        assert features[0] != 0.0

    def test_a_secret_sub_sample_is_no_use(self) -> None:
        """Whoever knew the sub-sample could prove more than the amplified epsilon."""
        pair = make_pair(DataKind.LEVELS, Relation.ADD_REMOVE)
        for options, used in (({}, True), ({"rate": "0.5"}, False)):
            attacker = Attacker(method_named("priv-pc"), pair, Budget.of(1, 1e-6), options)
            bits = {attacker.watch(pair.first, seed)[1] for seed in range(6)}
            assert (bits != {0.0}) == used

    @pytest.mark.parametrize(
        ("name", "kind", "relation"),
        [
            ("lap-mech", DataKind.LEVELS, Relation.REPLACE_ONE),
            ("em-pc", DataKind.LEVELS, Relation.REPLACE_ONE),
            ("measure", DataKind.LEVELS, Relation.REPLACE_ONE),
            ("svt-pc", DataKind.LEVELS, Relation.REPLACE_ONE),
            ("svt-pc", DataKind.BLOCK, Relation.REPLACE_ONE),
            ("sampled-gaussian-pc", DataKind.TWO_COLUMNS, Relation.ADD_REMOVE),
        ],
    )
    def test_the_ratio_is_a_likelihood_ratio(self, name: str, kind: DataKind, relation: Relation) -> None:
        """The mean of exp(ratio) over runs on the first table is 1, whatever the method asks."""
        pair = make_pair(kind, relation)
        runs = 60 if name == "sampled-gaussian-pc" else 100
        # a large epsilon would make the mean hang on few runs; bits and sub-samples need one to say anything
        epsilon = 8 if name in ("svt-pc", "sampled-gaussian-pc") else 1
        attacker = Attacker(method_named(name), pair, Budget.of(epsilon, 1e-6), {})
        ratios = np.exp([attacker.watch(pair.first, seed)[0] for seed in range(runs)])
        assert abs(ratios.mean() - 1.0) < 4 * ratios.std() / math.sqrt(runs)
        assert ratios.std() > 0.01
